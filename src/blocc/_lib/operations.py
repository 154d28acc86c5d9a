"""What nearly every compiled program does with its arrays, in as few operations as can be.

Small problems wait longer for their programs to be compiled than for the programs, and wait in proportion to the number
of operations: a norm of this package is two of them, a choice is one, and there is none for an array without entries.
"""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from blocc._lib.arrays import AnyArray, Array, Bool, Float

T = TypeVar("T")


def largest(values: Float[AnyArray, "*shape"]) -> Float[Array, ""]:
    """The largest absolute entry; not a number where any entry is none."""
    array = jnp.asarray(values)
    if array.size == 0:
        return jnp.zeros((), array.dtype)
    return lax.reduce_max(lax.abs(array), axes=tuple(range(array.ndim)))


def largest_positive(values: Float[AnyArray, "*shape"]) -> Float[Array, ""]:
    """The largest entry, or 0 where none is positive; not a number where any entry is none."""
    array = jnp.asarray(values)
    if array.size == 0:
        return jnp.zeros((), array.dtype)
    return lax.max(lax.reduce_max(array, axes=tuple(range(array.ndim))), np.zeros((), array.dtype))


def inner_product(one: Float[AnyArray, "n"], other: Float[AnyArray, "n"]) -> Float[AnyArray, ""]:
    """The sum of products; of vectors without entries the number 0, for which nothing is compiled."""
    return jnp.dot(one, other) if one.shape[0] else np.zeros(())


def joined(*vectors: Array) -> Array:
    """One vector of all; nothing is compiled for those without entries."""
    some = [vector for vector in vectors if vector.shape[0]]
    return jnp.concatenate(some) if len(some) > 1 else (some or vectors)[0]


def chosen(condition: Bool[Array, ""], these: T, those: T) -> T:
    """One of two pytrees of arrays with the same shapes, by one condition for all."""
    found: T = jax.tree.map(lambda one, other: lax.select(condition, one, other), these, those)
    return found
