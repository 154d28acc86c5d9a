"""Conjugate gradients for symmetric operators that are only ever applied to vectors, and a diagonal preconditioner.

The operators are positive semidefinite wherever the problem is convex. They may be singular as long as the right side
lies in their range, which is how projections on active sets leave them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from blocc._lib.arrays import Array
from blocc._lib.rounding import TINY
from blocc.lagrangian import exactly

Operator = Callable[[Array], Array]

#: Products that the preconditioner, and the estimate of the largest eigenvalue, are made of.
_PROBES, _POWER = 10, 5
#: Iterations after which a preconditioner is compared with none.
_TRIAL = 20
#: Rows whose norms differ by less than this factor from each other are left alone: random probes differ as much.
_ALIKE = 2.0
#: Curvature below minus this share of the largest seen is negative beyond rounding.
_NEGATIVE = 1e-10


class Solved(NamedTuple):
    """Where conjugate gradients ended."""

    solution: Array
    residual: Array  #: the right side minus the operator's image of the solution
    products: Array  #: with the operator
    concave: Array  #: whether a direction of negative curvature was met


class _State(NamedTuple):
    solution: Array
    residual: Array
    direction: Array
    weighted: Array  #: <residual, preconditioner * residual>
    largest: Array  #: curvature seen so far
    products: Array
    running: Array
    concave: Array


def conjugate_gradients(
    operator: Operator,
    right: Array,
    preconditioner: Array,
    accuracy: Array,
    most: Array | int,
    guess: Array | None = None,
) -> Solved:
    """Solve until the norm of the residual is at most ``accuracy``, or a direction has no positive curvature.

    The first step is along ``guess``, where that is given and not zero: along the solution of a nearby system.
    """

    def advance(s: _State) -> _State:
        image = exactly(operator(s.direction))
        square = jnp.dot(s.direction, s.direction)
        curvature = jnp.dot(s.direction, image)
        # Curvature that rounding can explain counts as none, and ends the iteration just so.
        bend = curvature / jnp.where(square > 0.0, square, 1.0)
        largest = jnp.maximum(s.largest, jnp.abs(bend))
        curved = (bend > 1e-15 * largest) & jnp.isfinite(curvature)
        step = jnp.where(curved, jnp.dot(s.residual, s.direction) / jnp.where(curved, curvature, 1.0), 0.0)
        solution, residual = s.solution + step * s.direction, s.residual - step * image
        weighted = jnp.dot(residual, preconditioner * residual)
        ratio = jnp.where(s.weighted > 0.0, weighted / jnp.where(s.weighted > 0.0, s.weighted, 1.0), 0.0)
        products = s.products + 1
        # A guess that the operator takes to nothing is no reason to end.
        running = (curved | jnp.isinf(s.weighted)) & (jnp.linalg.norm(residual) > accuracy) & (products < most)
        direction = preconditioner * residual + ratio * s.direction
        concave = s.concave | (bend < -_NEGATIVE * largest)
        return _State(solution, residual, direction, weighted, largest, products, running, concave)

    direction = preconditioner * right
    weighted = jnp.dot(right, direction)
    if guess is not None:
        guessed = jnp.isfinite(guess).all() & (guess != 0.0).any()
        direction = jnp.where(guessed, guess, direction)
        weighted = jnp.where(guessed, jnp.inf, weighted)  # the next direction owes nothing to this one
    start = _State(
        jnp.zeros_like(right),
        right,
        direction,
        weighted,
        jnp.zeros(()),
        jnp.asarray(0),
        (jnp.linalg.norm(right) > accuracy) & (most > 0),
        jnp.asarray(False),
    )
    end = jax.lax.while_loop(lambda s: s.running, advance, start)
    return Solved(end.solution, end.residual, end.products, end.concave)


class Scales(NamedTuple):
    """What products with random vectors tell about a symmetric operator."""

    preconditioner: Array  #: positive; close to the inverse diagonal where the rows differ in size, otherwise ones
    largest: Array  #: a lower bound of its largest eigenvalue, hardly ever far below


def scales_of(operator: Operator, size: int) -> Scales:
    """Balance the rows of ``S operator S`` by a diagonal S, from products with random vectors of signs.

    The entries of a product with random signs have the norms of the rows as their standard deviations, however large
    the entries off the diagonal are. (Estimates of the diagonal itself drown in those.) A balanced operator need not be
    the better one: ``A^T A + identity`` with few rows in A has few different eigenvalues only as it is. So S is used
    where a few iterations with it get further than without it.
    """
    squares = jnp.arange(1, size + 1, dtype=jnp.float64) ** 2
    start = jnp.cos(squares)  # a flat spectrum: no structured operator has its eigenvectors orthogonal to it

    def probe(index: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        """One product: first steps of the power method, then probes of the rows."""
        scale, vector, largest = state
        turn = index - _POWER
        signs = jnp.sign(jnp.cos((1.0 + turn / _PROBES) * squares))  # as good as random, and quick to compile
        image = exactly(operator(jnp.where(turn < 0, vector, scale * signs)))
        norm = jnp.linalg.norm(image)
        usable = jnp.isfinite(norm) & (norm > 0.0)
        following = image / jnp.where(usable, norm, 1.0)
        row = jnp.maximum(jnp.abs(scale * image), TINY)
        level = jnp.exp(jnp.mean(jnp.log(row)))
        # Steps that become shorter average the probes; each one moves an entry by a limited factor.
        moved = scale * jnp.clip(row / level, 0.1, 10.0) ** (-1.0 / (jnp.maximum(turn, 0) + 2.0))
        return (
            jnp.where(usable & (turn >= 0), moved, scale),
            jnp.where(usable & (turn < 0), following, vector),
            jnp.where(usable & (turn < 0), norm, largest),
        )

    first = (jnp.ones(size), start / jnp.linalg.norm(start), jnp.zeros(()))
    scale, _, largest = jax.lax.fori_loop(0, _POWER + _PROBES, probe, first)
    balanced = scale**2
    both = jnp.stack([jnp.ones(size), balanced])
    trials = jnp.where(jnp.exp(jnp.std(jnp.log(balanced))) > _ALIKE, _TRIAL, 0)

    def left(preconditioner: Array) -> Array:
        none = jnp.zeros(())
        return jnp.linalg.norm(conjugate_gradients(operator, start, preconditioner, none, trials).residual)

    return Scales(both[jnp.argmin(jax.lax.map(left, both))], largest)
