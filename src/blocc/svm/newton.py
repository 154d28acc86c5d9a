"""What Newton's systems of the two interior points share: the validation loss, and solves by Cholesky factors.

Both keep one row for each sample and one small matrix in the number of features; everything per sample is diagonal.
Arrays have n training samples, m validation samples and p entries of y = (w, b).
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular

from blocc._lib.arrays import Array, Float
from blocc._lib.rounding import TINY
from blocc.inner.mehrotra import Limits

#: Ten to twenty steps are usual. Far from a solution an error may rise for long before it falls.
LIMITS = Limits(max_iterations=100, patience=12, patient_above=1e-5)
#: A step may multiply the validation loss by e to this power, at most.
LONGEST_EXPONENT = 3.0

Vector = Float[Array, "p"]
Matrix = Float[Array, "p p"]


def losses(rows: Float[Array, "m p"], weight: Float[Array, "m"], y: Vector) -> Float[Array, "m"]:
    """exp(1 - margin) of every validation sample, times its weight."""
    return weight * jnp.exp(jnp.minimum(1.0 - rows @ y, 60.0))


def loss_limited_step(rows: Float[Array, "m p"], loss: Float[Array, "m"], change: Vector) -> Float[Array, ""]:
    """The largest step of at most 1 that lets no validation loss grow far beyond their present sum.

    Newton's model of exp reaches no further; a loss that falls needs no such care.
    """
    growth = -(rows @ change)
    room = LONGEST_EXPONENT + jnp.log(jnp.maximum(jnp.sum(loss), 1.0)) - jnp.log(jnp.maximum(loss, TINY))
    growing = (growth > 0.0) & (loss > 0.0)
    return jnp.min(jnp.where(growing, room / jnp.where(growing, growth, 1.0), 1.0), initial=1.0)


def weighted_gram(rows: Float[Array, "n p"], weight: Float[Array, "n"]) -> Matrix:
    """rows' diag(weight) rows."""
    return rows.T @ (weight[:, None] * rows)


def solve_definite(matrix: Matrix, regularisation: Float[Array, ""]) -> Callable[[Vector], Vector]:
    """A solver for the positive definite ``matrix``, with one step of refinement against the regularisation."""
    lower = _factor(matrix, regularisation)

    def solve(right: Vector) -> Vector:
        first = cho_solve((lower, True), right)
        return first + cho_solve((lower, True), right - matrix @ first)

    return solve


def solve_saddle(
    matrix: Matrix, coupling: Vector, complement: Matrix, regularisation: Float[Array, ""]
) -> Callable[[Vector, Vector], tuple[Vector, Vector]]:
    """A solver for [[matrix, -diag(coupling)], [-diag(coupling), -complement]], by two Cholesky factors."""
    lower = _factor(matrix, regularisation)
    half = solve_triangular(lower, jnp.diag(coupling), lower=True)
    schur = _factor(complement + half.T @ half, regularisation)

    def once(top: Vector, bottom: Vector) -> tuple[Vector, Vector]:
        price = cho_solve((schur, True), -(bottom + coupling * cho_solve((lower, True), top)))
        return cho_solve((lower, True), top + coupling * price), price

    def solve(top: Vector, bottom: Vector) -> tuple[Vector, Vector]:
        y, price = once(top, bottom)
        for _ in range(2):  # against the regularisation
            left = top - (matrix @ y - coupling * price)
            right = bottom - (-coupling * y - complement @ price)
            more_y, more_price = once(left, right)
            y, price = y + more_y, price + more_price
        return y, price

    return solve


def _factor(matrix: Matrix, regularisation: Float[Array, ""]) -> Matrix:
    """The Cholesky factor, after a small multiple of the diagonal was added."""
    diagonal = jnp.diagonal(matrix)
    return jnp.linalg.cholesky(matrix + jnp.diag(regularisation * (diagonal + jnp.mean(diagonal))))
