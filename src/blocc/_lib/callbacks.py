"""Leaving a compiled program for Python, with 64-bit numbers.

``jax.pure_callback`` hands arrays of the device to Python. Reading a large one may wait for a thread of XLA's pool, and
where that has one thread alone, or all of them are in such calls, it waits for ever. Here Python is shown the program's
own memory, in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from blocc._lib.arrays import Array, PyTree

_call = Primitive("blocc_call_back")
_call.multiple_results = True


def call_back(run: Callable[..., PyTree], shapes: PyTree, *arguments: PyTree) -> PyTree:
    """``run(*arguments)``, a pure function of NumPy arrays that returns 64-bit floats of these shapes. Traceable.

    ``run`` must not keep its arguments: what is in them lasts as long as the call.
    """
    leaves, structure = jax.tree.flatten(arguments)
    sizes, returned = jax.tree.flatten(shapes)

    def host(*numbers: np.ndarray) -> list[np.ndarray]:
        found = jax.tree.leaves(run(*jax.tree.unflatten(structure, numbers)))
        # JAX rounds what comes back to 32 bits, in a thread that does not know that 64 are enabled. So they travel as
        # pairs of words.
        return [np.array(leaf, np.float64)[..., None].view(np.uint32) for leaf in found]

    pairs = tuple((*size.shape, 2) for size in sizes)
    found = _call.bind(*map(jnp.asarray, leaves), host=host, shapes=pairs)
    return jax.tree.unflatten(returned, [lax.bitcast_convert_type(pair, np.float64) for pair in found])


def _abstract(*_: Any, host: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]) -> list[Any]:
    return [jax.core.ShapedArray(shape, np.dtype(np.uint32)) for shape in shapes]


def _now(*arguments: Array, **settings: Any) -> Any:
    return jax.jit(lambda *given: _call.bind(*given, **settings))(*arguments)


def _lower(ctx: Any, *operands: Any, host: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]) -> Any:
    found, _, _ = mlir.emit_python_callback(
        ctx, host, None, list(operands), ctx.avals_in, ctx.avals_out, has_side_effect=False, returns_token=False
    )
    return found


def _one_by_one(arguments: Sequence[Array], axes: Sequence[int | None], **settings: Any) -> tuple[Any, list[int]]:
    """A batch is a loop: Python computes one case after the other."""
    batched = [
        None if axis is None else jnp.moveaxis(each, axis, 0) for each, axis in zip(arguments, axes, strict=True)
    ]

    def single(parts: list[Array | None]) -> Any:
        chosen = [each if part is None else part for each, part in zip(arguments, parts, strict=True)]
        return _call.bind(*chosen, **settings)

    found = lax.map(single, batched)
    return found, [0] * len(found)


_call.def_abstract_eval(_abstract)
_call.def_impl(_now)
mlir.register_lowering(_call, _lower)
batching.primitive_batchers[_call] = _one_by_one
