"""Compile once, ahead of time, and know how long it took.

Results report compile and run seconds apart, so functions are lowered and compiled explicitly instead of on first call.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import jax

from blocc.precision import double_precision

# XLA's fusion emitters for CPUs more than double the compile time of the interior-point loop and make it no faster.
_FAST_COMPILE: dict[str, str | bool] = {"xla_cpu_use_fusion_emitters": False}


@cache
def _compiler_options() -> dict[str, str | bool]:
    """The options above, where this version of XLA knows them."""
    if jax.default_backend() != "cpu":
        return {}
    try:
        jax.jit(lambda value: value + 1.0).lower(1.0).compile(compiler_options=_FAST_COMPILE)
    except jax.errors.JaxRuntimeError:
        return {}
    return _FAST_COMPILE


def compile_ahead(function: Callable[..., Any], *arguments: Any) -> tuple[Callable[..., Any], float]:
    """Compile ``function`` for arguments like these, in double precision; returns it and the seconds it took."""
    start = time.perf_counter()
    with double_precision():
        compiled = jax.jit(function).lower(*arguments).compile(compiler_options=_compiler_options())
    return compiled, time.perf_counter() - start
