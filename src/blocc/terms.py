"""Simple terms of the follower's objective that have kinks: norms whose proximal operator is a formula.

A follower with ``lower_terms=[L1(weight)]`` minimises ``lower(x, y) + weight(x) |y|_1``. The kinks are handled exactly:
entries that the norm holds at zero are zero, and nobody writes y as a difference of two nonnegative variables.
:mod:`blocc.lifting` does that where a solver needs it. (The indicator of a simple set is no term: it is ``y_set``.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, PyTree
from blocc._lib.checks import as_float_array
from blocc.errors import ProblemError
from blocc.sets import ConvexSet, Product

Weight = Callable[..., Any] | float | AnyArray
FlatFunction = Callable[[AnyArray, AnyArray], Array]


@dataclass(frozen=True, eq=False)
class Term(ABC):
    """A norm of one array of y, times a weight.

    :param weight: a nonnegative number or array, or a function of x (of x and data where the problem has data) that
        returns one: what the leader tunes
    :param of: which part of y, by its name in a :class:`~blocc.sets.Product`; None where y is one array
    """

    weight: Weight
    of: Any = None

    def __post_init__(self) -> None:
        if not callable(self.weight):
            number = as_float_array("weight", self.weight)
            if not np.isfinite(number).all() or (number < 0.0).any():
                raise ProblemError(f"weight must be nonnegative and finite, or a function of x, got {self.weight!r}")

    def weight_at(self, x: PyTree, *data: PyTree) -> Array:
        """The weight at x."""
        return jnp.asarray(self.weight(x, *data) if callable(self.weight) else self.weight)

    def over(self, own: Callable[[PyTree], tuple[PyTree, ...]]) -> Term:
        """The same term in a problem with other data, of which ``own(data)`` are those that the weight was given."""
        if not callable(self.weight):
            return self
        weight = self.weight
        return replace(self, weight=lambda x, data: weight(x, *own(data)))

    @abstractmethod
    def magnitudes(self, part: Array) -> Array:
        """What the weights are multiplied with."""

    def value(self, part: Array, weight: Array) -> Array:
        """The term at one array."""
        return jnp.sum(weight * self.magnitudes(part))

    @abstractmethod
    def prox(self, part: Array, weight: Array) -> Array:
        """The array z that minimises ``value(z) + |z - part|^2 / 2``."""

    def catch(self, part: Array, pattern: Array) -> Array:
        """The array with entries at their kink that lie beyond it, seen from ``pattern``; none where kinks are rare."""
        return part


@dataclass(frozen=True, eq=False)
class L1(Term):
    """``sum of weight * |entry|``, which makes entries exactly zero. The weight is one number or one for each entry."""

    def magnitudes(self, part: Array) -> Array:
        """Absolute values."""
        return jnp.abs(part)

    def prox(self, part: Array, weight: Array) -> Array:
        """Entries moved towards zero by their weights, and not beyond."""
        return jnp.where(jnp.abs(part) > weight, part - weight * jnp.sign(part), 0.0)

    def catch(self, part: Array, pattern: Array) -> Array:
        """Zero in the place of entries that have the other sign."""
        return jnp.where(part * pattern < 0.0, 0.0, part)


@dataclass(frozen=True, eq=False)
class GroupL2(Term):
    """``sum of weight * Euclidean norm of a group``, which makes whole groups exactly zero.

    The groups are the rows of the array (its entries along the last axis); the weight is one number or one for each
    row. A vector is one group.
    """

    def magnitudes(self, part: Array) -> Array:
        """Norms of the groups."""
        return jnp.sqrt(jnp.sum(part**2, axis=-1))

    def prox(self, part: Array, weight: Array) -> Array:
        """Groups shortened by their weights, and not beyond zero."""
        square = jnp.sum(part**2, axis=-1)
        kept = square > weight**2
        norm = jnp.sqrt(jnp.where(kept, square, 1.0))  # the derivative of the root is not finite at zero
        return part * jnp.where(kept, 1.0 - weight / norm, 0.0)[..., None]


class Placed(NamedTuple):
    """A term and where its array lies in the flat y."""

    term: Term
    where: slice
    shape: tuple[int, ...]


class Terms:
    """All terms of a follower over its flat variables."""

    def __init__(self, terms: Any, y_set: ConvexSet) -> None:
        listed = terms if isinstance(terms, list | tuple) else [terms]
        if any(isinstance(term, ConvexSet) for term in listed):
            raise ProblemError(
                "the indicator of a set is no term of lower_terms: make the set y_set (or a part of a Product); where "
                "y has another set already, write it as inequality(x, y) <= 0"
            )
        if listed is not terms or not all(isinstance(term, Term) for term in listed):
            raise ProblemError("lower_terms must be a list of terms such as [L1(0.1)] or [L1(lambda x: x[0], of='w')]")
        ordered = sorted(terms, key=lambda term: isinstance(term, GroupL2))  # of both, entries are shrunk first
        self.placed = [_place(term, y_set) for term in ordered]
        self._y_set = y_set
        kinds = [(type(placed.term), placed.where.start) for placed in self.placed]
        if len(set(kinds)) < len(kinds):
            raise ProblemError("lower_terms has two terms of the same kind for one array; add their weights instead")

    def value(self, y: Array, x: PyTree, *data: PyTree) -> Array:
        """The sum of all terms."""
        parts = (
            placed.term.value(y[placed.where].reshape(placed.shape), placed.term.weight_at(x, *data))
            for placed in self.placed
        )
        return jnp.asarray(sum(parts, start=jnp.zeros(())), dtype=y.dtype)

    def at(self, x: PyTree, y: PyTree, *data: PyTree) -> Array:
        """The same at a member of Y."""
        return self.value(jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(y)]), x, *data)

    def prox(self, y: Array, length: Array, x: PyTree, *data: PyTree) -> Array:
        """The member z of Y that minimises ``length * value(z) + |z - y|^2 / 2``."""
        shrunk = y
        for term, where, shape in self.placed:
            weight = length * term.weight_at(x, *data)
            shrunk = shrunk.at[where].set(term.prox(shrunk[where].reshape(shape), weight).ravel())
        # Entry by entry, the nearest point of an interval is also the best one of a convex function over it.
        return self._y_set.project_flat(shrunk)

    def added_to(self, smooth: FlatFunction, x_set: ConvexSet, *data: PyTree) -> FlatFunction:
        """A function with the terms. Their derivative in y is left to :meth:`prox_over`."""
        return lambda x, y: smooth(x, y) + self.value(jax.lax.stop_gradient(jnp.asarray(y)), x_set.unravel(x), *data)

    def prox_over(self, x_set: ConvexSet, *data: PyTree) -> Callable[[AnyArray, AnyArray, AnyArray], Array]:
        """:meth:`prox` as a function of flat vectors x and y, and the length."""
        return lambda x, y, length: self.prox(jnp.asarray(y), jnp.asarray(length), x_set.unravel(x), *data)

    def catch(self, y: Array, pattern: Array) -> Array:
        """What lies beyond a kink, seen from the flat vector ``pattern``, moved on it."""
        for term, where, shape in self.placed:
            caught = term.catch(y[where].reshape(shape), pattern[where].reshape(shape))
            y = y.at[where].set(caught.ravel())
        return y


def _place(term: Term, y_set: ConvexSet) -> Placed:
    """Where the array of a term lies; refused where the norm and Y do not go together."""
    kind = type(term).__name__
    part, positions = y_set, y_set.unravel(np.arange(y_set.size))
    if term.of is not None:
        try:
            if not isinstance(y_set, Product):
                raise TypeError
            part, positions = y_set.sets[term.of], positions[term.of]
        except (KeyError, IndexError, TypeError):
            raise ProblemError(f"{kind} is of {term.of!r}, and y_set is {y_set!r}: it has no such part") from None
    if not isinstance(part, ConvexSet) or isinstance(part, Product):
        raise ProblemError(f"{kind} needs one array: name the part of y with of=...")
    low, high = part.bounds_flat()
    if not part.is_box:
        raise ProblemError(
            f"{kind} needs a box (or Reals) as the set of its array, got {part!r}; write that set as inequality(x, y) "
            "<= 0 or equality(x, y) == 0 instead"
        )
    if isinstance(term, GroupL2) and (np.isfinite(low).any() or np.isfinite(high).any()):
        raise ProblemError(
            f"GroupL2 needs Reals as the set of its array, got {part!r}; write the bounds as inequality(x, y) <= 0"
        )
    array = np.asarray(positions)
    if isinstance(term, GroupL2) and array.ndim == 0:
        raise ProblemError("GroupL2 needs an array with at least one axis; use L1 for a number")
    start = int(array.min())
    return Placed(term, slice(start, start + array.size), array.shape)
