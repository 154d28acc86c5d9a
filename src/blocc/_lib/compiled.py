"""Functions that are compiled once, and how long that took.

Results report compile and run seconds apart, so functions are lowered and compiled explicitly instead of on first call.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Generic, TypeVar

import jax

from blocc._lib.precision import double_precision

R = TypeVar("R")

# XLA's fusion emitters for CPUs more than double the compile time of the interior-point loop and make it no faster. Its
# YNNPACK reductions return wrong sums when padded slices of 3e4 numbers or more are fused into them (jaxlib 0.10.2).
_OPTIONS: dict[str, str | bool] = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_experimental_ynn_fusion_type": ""}

_SMALL_PROGRAMS = ("/jax/core/compile/jaxpr_to_mlir_module_duration", "/jax/core/compile/backend_compile_duration")

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


def _count_small_programs(event: str, duration_secs: float, **_: Any) -> None:
    """JAX compiles single operations by itself, on their first use; hundreds of them take seconds."""
    if event in _SMALL_PROGRAMS and not getattr(_thread, "compiling", False):
        _thread.seconds = compile_seconds() + duration_secs


jax.monitoring.register_event_duration_secs_listener(_count_small_programs)


def compile_seconds() -> float:
    """Seconds that this thread has spent on compilation so far; differences tell what a piece of work has cost."""
    return getattr(_thread, "seconds", 0.0)


def clock() -> float:
    """Seconds on the clock of histories and time limits: a difference is how long something took."""
    return time.perf_counter() - (compile_seconds() if getattr(_thread, "leaves_out", False) else 0.0)


@contextmanager
def clock_without_compilation() -> Iterator[None]:
    """In this block, and in this thread, :func:`clock` stands still during compilation."""
    before = getattr(_thread, "leaves_out", False)
    _thread.leaves_out = True
    try:
        yield
    finally:
        _thread.leaves_out = before


def compile_ahead(function: Callable[..., Any], *arguments: Any) -> tuple[Callable[..., Any], float]:
    """Compile ``function`` for arguments like these, in double precision; returns it and the seconds it took."""
    options = _compiler_options()
    begun, outer = time.perf_counter(), getattr(_thread, "compiling", False)
    _thread.compiling = True
    try:
        with double_precision():
            compiled = jax.jit(function).lower(*arguments).compile(compiler_options=options)
    finally:
        _thread.compiling = outer
        seconds = time.perf_counter() - begun
        if not outer:  # what is compiled on the way is part of it
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

    @property
    def is_compiled(self) -> bool:
        """Whether a call will begin at once."""
        return self._compiled is not None

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
