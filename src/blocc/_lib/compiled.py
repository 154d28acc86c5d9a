"""Compile once, ahead of time, and know how long it took.

Results report compile and run seconds apart, so functions are lowered and compiled explicitly instead of on first call.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import jax

from blocc._lib.precision import double_precision

# XLA's fusion emitters for CPUs more than double the compile time of the interior-point loop and make it no faster. Its
# YNNPACK reductions return wrong sums when padded slices of 3e4 numbers or more are fused into them (jaxlib 0.10.2).
_OPTIONS: dict[str, str | bool] = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_experimental_ynn_fusion_type": ""}


@cache
def _compiler_options() -> dict[str, str | bool]:
    """Those of the options above that this version of XLA knows."""
    if jax.default_backend() != "cpu":
        return {}
    known: dict[str, str | bool] = {}
    for name, value in _OPTIONS.items():
        try:
            jax.jit(lambda number: number + 1.0).lower(1.0).compile(compiler_options={name: value})
        except jax.errors.JaxRuntimeError:
            continue
        known[name] = value
    return known


def compile_ahead(function: Callable[..., Any], *arguments: Any) -> tuple[Callable[..., Any], float]:
    """Compile ``function`` for arguments like these, in double precision; returns it and the seconds it took."""
    start = time.perf_counter()
    with double_precision():
        compiled = jax.jit(function).lower(*arguments).compile(compiler_options=_compiler_options())
    return compiled, time.perf_counter() - start
