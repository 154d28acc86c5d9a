"""Functions that are compiled once, and how long that took.

Results report compile and run seconds apart, so functions are lowered and compiled explicitly instead of on first call.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from functools import cache
from typing import Any, Generic, TypeVar

import jax

from blocc._lib.precision import double_precision

R = TypeVar("R")

# XLA's fusion emitters for CPUs more than double the compile time of the interior-point loop and make it no faster. Its
# YNNPACK reductions return wrong sums when padded slices of 3e4 numbers or more are fused into them (jaxlib 0.10.2).
_OPTIONS: dict[str, str | bool] = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_experimental_ynn_fusion_type": ""}

_thread = threading.local()


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


def compile_seconds() -> float:
    """Seconds that this thread has spent on compilation so far; differences tell what a piece of work has cost."""
    return getattr(_thread, "seconds", 0.0)


def compile_ahead(function: Callable[..., Any], *arguments: Any) -> tuple[Callable[..., Any], float]:
    """Compile ``function`` for arguments like these, in double precision; returns it and the seconds it took."""
    begun = time.perf_counter()
    with double_precision():
        compiled = jax.jit(function).lower(*arguments).compile(compiler_options=_compiler_options())
    seconds = time.perf_counter() - begun
    _thread.seconds = compile_seconds() + seconds
    return compiled, seconds


class Program(Generic[R]):
    """A function that is compiled, in double precision, for the first arguments it is called with.

    Later arguments must have the same structure, shapes and dtypes.
    """

    def __init__(self, function: Callable[..., R]) -> None:
        self._function = function
        self._compiled: Callable[..., R] | None = None
        self._lock = threading.Lock()

    def __call__(self, *arguments: Any) -> R:
        if self._compiled is None:
            with self._lock:
                if self._compiled is None:
                    self._compiled, _ = compile_ahead(self._function, *arguments)
        return self._compiled(*arguments)


class Store:
    """Programs, and other things that are made once, by what they are made from."""

    def __init__(self) -> None:
        self._made: dict[tuple[Hashable, ...], Any] = {}

    def get(self, key: tuple[Hashable, ...], make: Callable[[], R]) -> R:
        """What ``make`` returned when this key was first asked for."""
        if key not in self._made:
            self._made[key] = make()
        found: R = self._made[key]
        return found
