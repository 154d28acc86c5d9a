"""Mehrotra's predictor-corrector method without its linear algebra, for every interior point of the package.

A point is a named tuple of arrays. A problem supplies

* :class:`Pairs`: which two fields of a point are a nonnegative variable and its nonnegative multiplier,
* ``direction(wanted)``: Newton's direction, as a point, that satisfies the linearised equations and changes every
  complementary product by ``wanted`` (one array for each pair),
* ``error(point)``: one number that is small at a solution,

and its iteration then reads::

    def step(state):
        change, barrier = corrected_direction(state.point, pairs, partial(direction, state.point))
        return move(state.point, change, 0.995 * pairs.longest_step(state.point, change))

    end = iterate(first, step, error, tolerance)

A warm start that may be given up is a choice in ``step``, by ``state.iteration``. A method with a line search of its
own needs :func:`longest_step` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from blocc._lib.arrays import AnyArray, Array, Bool, Float, Int

P = TypeVar("P", bound=tuple)  #: A point, or a direction: a named tuple of arrays.
Products = tuple[Float[Array, "..."], ...]  #: One array for each pair of fields.


def longest_step(
    values: tuple[Float[Array, "..."], ...], changes: tuple[Float[Array, "..."], ...], fraction: float | Array = 1.0
) -> Float[Array, ""]:
    """The longest step of at most 1 that uses up no more than ``fraction`` of any value.

    Values are positive; one that has no bound is given a change of 0.
    """
    limits = [
        jnp.min(jnp.where(change < 0.0, -fraction * value / jnp.where(change < 0.0, change, -1.0), 1.0), initial=1.0)
        for value, change in zip(values, changes, strict=True)
    ]
    return jnp.min(jnp.stack(limits))


def move(point: P, change: P, step: Array | float) -> P:
    """``point + step change``."""
    return jax.tree.map(lambda value, along: value + step * along, point, change)


class Pairs(NamedTuple):
    """The complementary pairs of a problem: two fields of its points whose product is 0 at a solution.

    ``weights`` has an array (or a number) for each pair of fields: how often an entry counts in the average product,
    which is also the inverse of what its own product is steered to. 0 is for entries that are not there.
    """

    names: tuple[tuple[str, str], ...]
    weights: tuple[Float[AnyArray, "..."] | float, ...]

    def products(self, left: P, right: P) -> Products:
        """Variables of one point times multipliers of another; 0 for entries that are not there."""
        return tuple(
            jnp.where(weight > 0.0, getattr(left, variable) * getattr(right, multiplier), 0.0)
            for (variable, multiplier), weight in zip(self.names, self.weights, strict=True)
        )

    def total(self, point: P) -> Float[Array, ""]:
        """The weighted sum of the products."""
        products = zip(self.weights, self.products(point, point), strict=True)
        return sum((jnp.sum(weight * product) for weight, product in products), start=jnp.zeros(()))

    def average(self, point: P) -> Float[Array, ""]:
        """The weighted mean of the products: the barrier parameter."""
        there = sum(
            jnp.sum(jnp.broadcast_to(weight > 0.0, getattr(point, variable).shape))
            for (variable, _), weight in zip(self.names, self.weights, strict=True)
        )
        return self.total(point) / jnp.maximum(there, 1)

    def longest_step(self, point: P, change: P, fraction: float | Array = 1.0) -> Float[Array, ""]:
        """The longest common step of variables and multipliers."""
        values, changes = (self._side(each, 0) + self._side(each, 1) for each in (point, change))
        return longest_step(values, changes, fraction)

    def longest_steps(
        self, point: P, change: P, fraction: float | Array = 1.0
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The longest step of the variables, and that of the multipliers."""
        first, second = (longest_step(self._side(point, side), self._side(change, side), fraction) for side in (0, 1))
        return first, second

    def _side(self, point: P, side: int) -> Products:
        """All variables (0) or all multipliers (1); 0 for entries that are not there."""
        return tuple(
            jnp.where(weight > 0.0, getattr(point, pair[side]), 0.0)
            for pair, weight in zip(self.names, self.weights, strict=True)
        )


def corrected_direction(
    point: P, pairs: Pairs, direction: Callable[[Products], P], least_centring: float = 1e-6
) -> tuple[P, Float[Array, ""]]:
    """Newton's direction with Mehrotra's centring and second-order correction, and the average product here.

    A first direction aims at products of 0. The more of them it can remove before a variable reaches 0, the smaller
    the products that the second one aims at: at least ``least_centring`` times the present average.
    """
    average, products = pairs.average(point), pairs.products(point, point)
    predictor = direction(tuple(-product for product in products))
    left = pairs.total(move(point, predictor, pairs.longest_step(point, predictor))) / pairs.total(point)
    target = average * jnp.clip(left**3, least_centring, 1.0)
    wanted = tuple(
        jnp.where(weight > 0.0, target / jnp.where(weight > 0.0, weight, 1.0) - product - second_order, 0.0)
        for weight, product, second_order in zip(
            pairs.weights, products, pairs.products(predictor, predictor), strict=True
        )
    )
    return direction(wanted), average


@dataclass(frozen=True)
class Limits:
    """When an iteration ends that does not reach its tolerance."""

    max_iterations: int = 100
    #: So many iterations without progress, and rounding has been reached.
    patience: int = 12
    #: Progress is an error below this multiple of the least one so far.
    progress: float = 1.0
    #: Patience ends only once the error is below this.
    patient_above: float = jnp.inf
    #: Added to Newton's matrix, relative; multiplied a hundredfold whenever a step is not finite.
    regularisation: float = 1e-13
    largest_regularisation: float = 1e-5


class IterationState(NamedTuple):
    """Where an iteration stands."""

    point: Any
    best: Any  #: the point of least error
    best_error: Float[Array, ""]
    idle: Int[Array, ""]  #: iterations since there was progress
    iteration: Int[Array, ""]
    regularisation: Float[Array, ""]
    record: Float[Array, "iterations ..."]  #: what was recorded of the start and after each iteration: a row each


class Piece(NamedTuple):
    """A part of an iteration, so that somebody can look at the clock between parts."""

    state: IterationState  #: where the part before ended; any numbers where this is the first
    continued: Bool[Array, ""]  #: whether there was one before
    until: Int[Array, ""]  #: the part ends after this many iterations in all


def iterate(
    first: P,
    step: Callable[[IterationState], P],
    error: Callable[[P], Float[Array, ""]],
    tolerance: float | Float[Array, ""],
    limits: Limits = Limits(),  # noqa: B008 - frozen
    record: Callable[[P], Float[Array, "..."]] = lambda point: jnp.zeros(0),
    piece: Piece | None = None,
) -> IterationState:
    """Repeat ``step`` until the error is at most ``tolerance``, or ``limits`` are reached; the answer is ``best``.

    A step that is not finite is not taken: it is tried again with more regularisation, if it uses any. With a ``piece``
    it goes on from where another call ended, and ends early.
    """

    def unfinished(state: IterationState) -> Bool[Array, ""]:
        patient = (state.idle < limits.patience) | (state.best_error > limits.patient_above)
        possible = (state.iteration < limits.max_iterations) & (state.regularisation < limits.largest_regularisation)
        wanted = True if piece is None else state.iteration < piece.until
        return ~(state.best_error <= tolerance) & patient & possible & wanted

    def advance(state: IterationState) -> IterationState:
        candidate = step(state)
        found = error(candidate)
        leaves = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(candidate)])
        sound = leaves.all() & jnp.isfinite(found)
        better = sound & (found < state.best_error)
        point = jax.tree.map(lambda new, old: jnp.where(sound, new, old), candidate, state.point)
        iteration = state.iteration + 1
        return IterationState(
            point,
            jax.tree.map(lambda new, old: jnp.where(better, new, old), point, state.best),
            jnp.where(better, found, state.best_error),
            jnp.where(sound & (found < limits.progress * state.best_error), 0, state.idle + 1),
            iteration,
            jnp.where(sound, state.regularisation, 100.0 * state.regularisation),
            state.record.at[iteration].set(record(point)),
        )

    begun = error(first)
    row = record(first)
    initial = IterationState(
        first,
        first,
        jnp.where(jnp.isfinite(begun), begun, jnp.inf),
        jnp.asarray(0),
        jnp.asarray(0),
        jnp.asarray(limits.regularisation),
        jnp.broadcast_to(row, (limits.max_iterations + 1, *row.shape)),
    )
    if piece is not None:
        initial = jax.tree.map(lambda old, new: jnp.where(piece.continued, old, new), piece.state, initial)
    return lax.while_loop(unfinished, advance, initial)
