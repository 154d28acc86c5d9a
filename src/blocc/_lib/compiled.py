"""Functions that are compiled once, and how long that took.

Results report compile and run seconds apart, so functions are lowered and compiled explicitly instead of on first call.
"""

from __future__ import annotations

import gc
import math
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.jaxprs import is_program
from blocc._lib.precision import double_precision
from blocc._lib.signals import unbroken

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr, Jaxpr

R = TypeVar("R")

# XLA's fusion emitters for CPUs more than double the compile time of the interior-point loop and make it no faster. Its
# YNNPACK reductions return wrong sums when padded slices of 3e4 numbers or more are fused into them (jaxlib 0.10.2).
# Operations on constants alone are left to the program: XLA's interpreter takes two minutes for a cumulative sum of two
# million numbers out of a closure, and raises its alarm of slow operations on the way.
_OPTIONS: dict[str, str | bool | int] = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_experimental_ynn_fusion_type": "",
    "xla_disable_hlo_passes": "constant_folding",
}

# Where no array is larger than this, vector instructions gain little: at its lowest level of optimisation LLVM is done
# in a third of the time, and the program is about twice as slow, which a thousand calls do not make up for. XLA's own
# passes over loops, branches and constants take four tenths of the time that is left, and such programs gain nothing by
# them. Loops that take thousands of steps in one call are better off optimised.
_SMALL = 512
_FOR_SMALL: dict[str, str | bool | int] = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_disable_hlo_passes": "while-loop-invariant-code-motion,while-loop-constant-sinking,simplify-while-loops,"
    "simplify-conditional,constant_folding,reshape-mover",
}

_SMALL_PROGRAMS = ("/jax/core/compile/jaxpr_to_mlir_module_duration", "/jax/core/compile/backend_compile_duration")

_thread = threading.local()
now: Callable[[], float] = time.perf_counter  #: what the clock below reads; tests bring their own

_unknown: set[str] = set()  #: options that this version of XLA does not know


def _compiled(
    traced: jax.stages.Traced, quickly: bool | None, meanwhile: Sequence[Callable[[], Any]] = ()
) -> jax.stages.Compiled:
    """Compiled with those of the options above that fit and that XLA knows; it names the ones that it does not."""
    lowered, wanted = traced.lower(), {}
    if meanwhile:  # until here Python was busy, now XLA is; at its end the program waits for both
        device = getattr(jax.config, "jax_default_device", None)  # of this thread; another does not inherit it
        threading.Thread(target=_do, args=(meanwhile, device), name="blocc-meanwhile").start()
    if jax.default_backend() == "cpu":
        quickly = _largest_array(traced.jaxpr) <= _SMALL if quickly is None else quickly
        wanted = {**_OPTIONS, **(_FOR_SMALL if quickly else {})}
    while True:
        options = {name: value for name, value in wanted.items() if name not in _unknown}
        try:
            return lowered.compile(compiler_options=options)
        except jax.errors.JaxRuntimeError as error:
            refused = {name for name in options if name in str(error)}
            if not refused:
                raise
            _unknown.update(refused)


def _do(work: Sequence[Callable[[], Any]], device: jax.Device | str | None) -> None:
    """Do what can be done early; whoever needs it will do what has failed, and see why."""
    for each in work:
        with suppress(Exception), jax.default_device(device), double_precision(), np.errstate(all="ignore"):
            each()


def _largest_array(program: ClosedJaxpr | Jaxpr) -> int:
    """Numbers in the largest array that a program is given or computes on the way to its results."""
    inner: Any = getattr(program, "jaxpr", program)
    found = [math.prod(atom.aval.shape) for atom in (*inner.constvars, *inner.invars)]
    for equation in inner.eqns:
        if equation.primitive.name == "concatenate" and equation.outvars == inner.outvars:
            continue  # small results may be packed in a long row
        found += [math.prod(getattr(atom.aval, "shape", ())) for atom in equation.outvars]
        parts = [
            part for value in equation.params.values() for part in (value if isinstance(value, tuple) else (value,))
        ]
        found += [_largest_array(part) for part in parts if is_program(part)]
    return max(found, default=0)


def _count_small_programs(event: str, duration_secs: float, **_: Any) -> None:
    """JAX compiles single operations by itself, on their first use; hundreds of them take seconds."""
    if event in _SMALL_PROGRAMS and not getattr(_thread, "compiling", False):
        _thread.seconds = compile_seconds() + duration_secs


jax.monitoring.register_event_duration_secs_listener(_count_small_programs)


def compile_seconds() -> float:
    """Seconds that this thread has spent on compilation so far; differences tell what a piece of work has cost."""
    return getattr(_thread, "seconds", 0.0)


def counted_compile_seconds() -> float:
    """Those of them that :func:`clock` counts: all, or none."""
    return 0.0 if getattr(_thread, "leaves_out", False) else compile_seconds()


def clock() -> float:
    """Seconds on the clock of histories and time limits: a difference is how long something took."""
    return now() - compile_seconds() + counted_compile_seconds()


@contextmanager
def clock_without_compilation() -> Iterator[None]:
    """In this block, and in this thread, :func:`clock` stands still during compilation."""
    before = getattr(_thread, "leaves_out", False)
    _thread.leaves_out = True
    try:
        yield
    finally:
        _thread.leaves_out = before


@contextmanager
def counted_as_compilation() -> Iterator[None]:
    """Count the seconds of this block, in this thread, as compilation; for what others compile on their first call."""
    begun, outer = time.perf_counter(), getattr(_thread, "compiling", False)
    _thread.compiling = True
    try:
        yield
    finally:
        _thread.compiling = outer
        if not outer:  # what is compiled on the way is part of it
            _thread.seconds = compile_seconds() + time.perf_counter() - begun


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Tracing makes hundreds of thousands of objects that live on; looking through all of them takes a fifth of it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def compile_ahead(
    function: Callable[..., Any],
    *arguments: Any,
    quickly: bool | None = None,
    meanwhile: Sequence[Callable[[], Any]] = (),
) -> tuple[Callable[..., Any], float]:
    """Compile ``function`` for arguments like these, in double precision; returns it and the seconds it took.

    What is to be done ``meanwhile`` is begun in another thread when XLA begins.
    """
    begun = time.perf_counter()
    with unbroken(), counted_as_compilation(), double_precision(), _without_garbage_collection():
        compiled = _compiled(jax.jit(function).trace(*arguments), quickly, meanwhile)
    return compiled, time.perf_counter() - begun


class _Packing:
    """A function whose results leave as one array: fetching fifty small ones takes longer than computing them."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__name__ = function.__name__
        self._structure: Any = None
        self._parts: list[tuple[int, int, tuple[int, ...], np.dtype[Any]]] = []  #: where each result is, and its form

    def __call__(self, *arguments: Any) -> jax.Array:
        """The numbers of all results in a row; each of them is exact as a float64."""
        leaves, self._structure = jax.tree.flatten(self._function(*arguments))
        ends = np.cumsum([0, *(math.prod(jnp.shape(leaf)) for leaf in leaves)]).tolist()
        forms = [(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves]
        self._parts = [(a, b, *form) for a, b, form in zip(ends, ends[1:], forms, strict=False)]
        return jnp.concatenate([jnp.ravel(jnp.asarray(leaf, jnp.float64)) for leaf in leaves])

    def unpacked(self, packed: jax.Array) -> Any:
        """The results, in NumPy."""
        row, double = np.asarray(packed), np.dtype(np.float64)
        parts = [
            row[a:b].reshape(shape) if kind == double else row[a:b].astype(kind).reshape(shape)
            for a, b, shape, kind in self._parts
        ]
        return jax.tree.unflatten(self._structure, parts)


class Program(Generic[R]):
    """A function that is compiled, in double precision, for the first arguments it is called with.

    Later arguments must have the same structure, shapes and dtypes. With ``quickly`` it is optimised less; None: if it
    is small. With ``to_host`` its results are in NumPy; otherwise they stay where they were computed.
    """

    def __init__(self, function: Callable[..., R], quickly: bool | None = None, to_host: bool = False) -> None:
        self._packing = _Packing(function) if to_host else None
        self._function: Callable[..., Any] = self._packing or function
        self._quickly = quickly
        self._compiled: Callable[..., Any] | None = None
        self._lock = threading.Lock()

    @property
    def is_compiled(self) -> bool:
        """Whether a call will begin at once."""
        return self._compiled is not None

    def __call__(self, *arguments: Any) -> R:
        found = self.prepare(*arguments)(*arguments)
        told: R = found if self._packing is None else self._packing.unpacked(found)
        return told

    def prepare(self, *arguments: Any, meanwhile: Sequence[Callable[[], Any]] = ()) -> Callable[..., Any]:
        """Compile it for arguments like these, if nobody has; see :func:`compile_ahead`."""
        if self._compiled is not None:
            return self._compiled
        begun = time.perf_counter()
        with self._lock:
            if self._compiled is None:
                self._compiled, _ = compile_ahead(
                    self._function, *arguments, quickly=self._quickly, meanwhile=meanwhile
                )
            elif not getattr(_thread, "compiling", False):  # another thread has compiled it, and this one has waited
                _thread.seconds = compile_seconds() + time.perf_counter() - begun
        return self._compiled


class Store:
    """Programs, and other things that are made once, by what they are made from."""

    def __init__(self) -> None:
        self._made: dict[tuple[Hashable, ...], Any] = {}

    def get(self, key: tuple[Hashable, ...], make: Callable[[], R]) -> R:
        """What ``make`` returned when this key was first asked for."""
        if key not in self._made:
            self._made.setdefault(key, make())  # another thread may have been sooner
        found: R = self._made[key]
        return found
