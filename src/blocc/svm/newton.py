"""What the two interior-point methods of this application share: step lengths, Cholesky factors, where to stop.

Both keep one row for each sample and one small matrix in the number of features; everything per sample is diagonal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular

Array = Any

#: Most Newton steps; ten to twenty are usual.
MAX_ITERATIONS = 100
#: Near the end, steps without a smaller residual after which rounding has the last word.
PATIENCE = 12
NEAR = 1e-5
#: A step may multiply the validation loss by e to this power, at most.
LONGEST_EXPONENT = 3.0
#: Added to Newton's matrix, relative to its diagonal; multiplied a hundredfold whenever a factorisation fails.
REGULARISATION = 1e-13
LARGEST_REGULARISATION = 1e-5


class Progress(NamedTuple):
    """Where an interior-point loop stands: its point, the best one so far, and what it may still do."""

    point: Any
    best: Any
    best_error: Array
    since_best: Array
    iteration: Array
    regularisation: Array
    path: Array  #: y after each iteration: one row each


def begin(point: Any, y: Array) -> Progress:
    """No iteration done yet."""
    zero = jnp.asarray(0)
    path = jnp.tile(y, (MAX_ITERATIONS + 1, 1))
    return Progress(point, point, jnp.asarray(jnp.inf), zero, zero, jnp.asarray(REGULARISATION), path)


def may_continue(progress: Progress, tolerance: Array) -> Array:
    """Whether another Newton step can help."""
    return (
        (progress.best_error > tolerance)
        & ((progress.since_best < PATIENCE) | (progress.best_error > NEAR))
        & (progress.iteration < MAX_ITERATIONS)
        & (progress.regularisation < LARGEST_REGULARISATION)
    )


def proceed(progress: Progress, candidate: Any, error: Array, y: Array) -> Progress:
    """Take the candidate; where it is not finite, keep the point and regularise more."""
    leaves = jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(candidate)])
    sound = leaves.all() & jnp.isfinite(error)
    point = jax.tree.map(lambda new, old: jnp.where(sound, new, old), candidate, progress.point)
    better = sound & (error < progress.best_error)
    best = jax.tree.map(lambda new, old: jnp.where(better, new, old), point, progress.best)
    iteration = progress.iteration + 1
    return Progress(
        point,
        best,
        jnp.where(better, error, progress.best_error),
        jnp.where(better, 0, progress.since_best + 1),
        iteration,
        jnp.where(sound, progress.regularisation, 100.0 * progress.regularisation),
        progress.path.at[iteration].set(jnp.where(sound, y, progress.path[iteration - 1])),
    )


def longest_step(value: Array, change: Array, counts: Array | bool = True) -> Array:
    """The largest step of at most 1 that keeps ``value`` nonnegative where it ``counts``."""
    shrinking = (change < 0.0) & counts
    return jnp.min(jnp.where(shrinking, -value / jnp.where(shrinking, change, -1.0), 1.0), initial=1.0)


def tame(rows: Array, loss: Array, change: Array) -> Array:
    """The largest step of at most 1 that lets no validation loss grow far beyond their present sum.

    Newton's model of exp reaches no further; a loss that falls needs no such care.
    """
    growth = -(rows @ change)
    room = LONGEST_EXPONENT + jnp.log(jnp.maximum(jnp.sum(loss), 1.0)) - jnp.log(jnp.maximum(loss, 1e-300))
    growing = (growth > 0.0) & (loss > 0.0)
    return jnp.min(jnp.where(growing, room / jnp.where(growing, growth, 1.0), 1.0), initial=1.0)


def losses(rows: Array, weight: Array, y: Array) -> Array:
    """exp(1 - margin) of every validation sample, times its weight."""
    return weight * jnp.exp(jnp.minimum(1.0 - rows @ y, 60.0))


def weighted_gram(rows: Array, weight: Array) -> Array:
    """rows' diag(weight) rows."""
    return rows.T @ (weight[:, None] * rows)


def factor(matrix: Array, regularisation: Array) -> Array:
    """The Cholesky factor, after a small multiple of the diagonal was added."""
    diagonal = jnp.diagonal(matrix)
    return jnp.linalg.cholesky(matrix + jnp.diag(regularisation * (diagonal + jnp.mean(diagonal))))


def solve_definite(matrix: Array, regularisation: Array) -> Callable[[Array], Array]:
    """A solver for the positive definite ``matrix``, with one step of refinement against the regularisation."""
    lower = factor(matrix, regularisation)

    def solve(right: Array) -> Array:
        first = cho_solve((lower, True), right)
        return first + cho_solve((lower, True), right - matrix @ first)

    return solve


def solve_saddle(
    matrix: Array, coupling: Array, complement: Array, regularisation: Array
) -> Callable[[Array, Array], tuple[Array, Array]]:
    """A solver for [[matrix, -diag(coupling)], [-diag(coupling), -complement]], by two Cholesky factors."""
    lower = factor(matrix, regularisation)
    half = solve_triangular(lower, jnp.diag(coupling), lower=True)
    schur = factor(complement + half.T @ half, regularisation)

    def once(top: Array, bottom: Array) -> tuple[Array, Array]:
        price = cho_solve((schur, True), -(bottom + coupling * cho_solve((lower, True), top)))
        return cho_solve((lower, True), top + coupling * price), price

    def solve(top: Array, bottom: Array) -> tuple[Array, Array]:
        y, price = once(top, bottom)
        for _ in range(2):  # against the regularisation
            left = top - (matrix @ y - coupling * price)
            right = bottom - (-coupling * y - complement @ price)
            more_y, more_price = once(left, right)
            y, price = y + more_y, price + more_price
        return y, price

    return solve
