"""Arguments of sets and problems, checked: each error names the argument and says what would be right."""

from __future__ import annotations

import inspect
import math
from contextlib import suppress
from typing import Any

import jax
import numpy as np

from blocc.errors import ProblemError


def as_shape(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    """A shape as a tuple of integers."""
    try:
        dims = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    except TypeError:
        raise ProblemError(f"shape must be an integer or a tuple of integers, got {shape!r}") from None
    if any(not isinstance(d, (int, np.integer)) or d < 0 for d in dims):
        raise ProblemError(f"shape must be an integer or a tuple of non-negative integers, got {shape!r}")
    return tuple(int(d) for d in dims)


def as_float_array(name: str, value: Any) -> np.ndarray:
    """A float64 copy, so that a later change of the caller's array does not change the set."""
    try:
        if np.iscomplexobj(value) or np.asarray(value).dtype.kind in "US":  # NumPy would read numbers in texts
            raise TypeError
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ProblemError(f"{name} must be a real number or an array of real numbers, got {value!r}") from error
    except OverflowError as error:
        raise ProblemError(f"{name} holds an integer that is too large for a float") from error
    if np.isnan(array).any():
        raise ProblemError(f"{name} contains NaN")
    return array


def in_words(tree: Any) -> str:
    """The structure of a tree of numbers and arrays, as one would write it."""
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{key!r}: {in_words(part)}" for key, part in tree.items()) + "}"
    if isinstance(tree, list | tuple):
        inside = ", ".join(map(in_words, tree))
        return f"[{inside}]" if isinstance(tree, list) else f"({inside}{',' * (len(tree) == 1)})"
    shape = None if tree is None or isinstance(tree, str) else getattr(tree, "shape", ())
    return repr(tree) if shape is None else f"array of shape {shape}" if shape else "number"


def as_number(name: str, value: Any, *, positive: bool = False) -> float:
    """A finite number."""
    array = as_float_array(name, value)
    if array.shape != () or not np.isfinite(array) or (positive and array <= 0):
        raise ProblemError(f"{name} must be a {'positive ' if positive else ''}finite number, got {value!r}")
    return float(array)


#: Bytes to a multiple of which the arrays of JAX are aligned.
_ALIGNMENT = 64


def as_data(leaf: Any, real: bool = False) -> np.ndarray:
    """A leaf of the data as an array that cannot be written to.

    Real numbers are in double precision, whole numbers (indices, counts) as they are unless they stand for ``real``
    ones.
    """
    if isinstance(leaf, jax.core.Tracer):
        raise ProblemError(
            "data is being traced by JAX (jax.grad, jax.jit or jax.vmap), and a problem needs numbers: build it "
            "outside, and give the traced data to blocc.solve_differentiable(problem, data) or "
            "blocc.lower_level(problem, x, data)"
        )
    array = np.asarray(leaf)
    if array.dtype.kind not in "fiub":
        raise ProblemError(f"data must hold real numbers, got {leaf!r}")
    copied = _aligned(array.shape, np.dtype(np.float64) if real or array.dtype.kind == "f" else array.dtype)
    copied[...] = array
    copied.flags.writeable = False
    return copied


def _aligned(shape: tuple[int, ...], kind: np.dtype[Any]) -> np.ndarray:
    """An empty array that JAX uses where it lies; one that begins elsewhere it copies whenever it is handed over."""
    size = math.prod(shape) * kind.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    return memory[begin : begin + size].view(kind).reshape(shape)


def check_taken(name: str, function: Any, count: int) -> None:
    """Refuse a function of a problem that does not take (x, y), or (x, y, data) where ``count`` is 3."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # nothing is known about it
        return
    fits = []
    for number in (2, 3):
        with suppress(TypeError):
            signature.bind(*range(number))
            fits.append(number)
    if count in fits:
        return
    if count == 3:
        raise ProblemError(f"{name} must take (x, y, data), because the problem has data; it takes {signature}")
    hint = "; for a third argument give the problem data=..." if fits else ""
    raise ProblemError(f"{name} must take (x, y), and it takes {signature}{hint}")
