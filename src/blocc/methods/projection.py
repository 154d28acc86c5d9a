"""The projection of (x, y) on X x Y with the coupled constraints: what LV-HBA computes at every step.

A problem that knows its own (``joint_projection``) is asked. Where the constraints are affine and both sets have bounds
only, Newton's method solves the dual from the last multipliers: one or two small factorisations. In all other cases,
where there are many more rows than variables, and where the active sets do not settle, the package's interior point
does it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, Bool, Float, Int, NDArray
from blocc.flat_problem import FlatProblem
from blocc.inner.interior_point import InteriorPoint
from blocc.lagrangian import weights
from blocc.methods.base import Demand, Multipliers, Scalar, constraints, is_inequality, meets, positive_part
from blocc.sets import Product

Both = Float[Array, "both"]  #: x and y in one vector

#: Relative accuracy of the joint projection.
TOLERANCE = 1e-12
#: Changes of the active sets before the interior point takes over.
CHANGES = 30
#: With more rows than so many times the variables, the interior point is faster: its matrices are as large as the
#: variables are many, those of the dual as large as the rows.
ROWS_PER_VARIABLE = 4
#: Lengths of a Newton step that are tried; the dual function decides.
LENGTHS = 2.0 ** -np.arange(0.0, 9.0, 2.0)


class AffineRows(NamedTuple):
    """The constraints as matrix (x, y) <= limit, and the multipliers of the last projection."""

    matrix: Float[Array, "rows both"]
    limit: Float[Array, "rows"]
    prices: Multipliers


def projector(flat: FlatProblem, x: Float[AnyArray, "n_x"], y: Float[AnyArray, "n_y"]) -> AffineRows | None:
    """What :func:`project` carries from one call to the next; None where it has to do without."""
    count = flat.n_inequality + flat.n_equality
    traced = isinstance(x, jax.core.Tracer) or isinstance(y, jax.core.Tracer)  # whether it is affine is not known then
    few = count <= ROWS_PER_VARIABLE * (flat.n_x + flat.n_y)
    fit = count > 0 and few and flat.joint_projection is None and not traced and _bounds_only(flat)
    if not (fit and meets(flat, Demand.AFFINE, x, y)):
        return None
    x, y = jnp.asarray(x), jnp.asarray(y)
    matrix = jnp.hstack(jax.jacfwd(lambda a, b: constraints(flat, a, b), argnums=(0, 1))(x, y))
    limit = matrix @ jnp.concatenate([x, y]) - constraints(flat, x, y)
    return AffineRows(matrix, limit, jnp.zeros(count))


def project(flat: FlatProblem, point: Both, carried: AffineRows | None) -> tuple[Both, AffineRows | None]:
    """The nearest member of the coupled set, and what the next call carries."""
    if flat.joint_projection is not None:
        x, y = flat.joint_projection(point[: flat.n_x], point[flat.n_x :])
        return jnp.concatenate([x, y]), carried
    joint = as_lower_level(flat)
    if flat.n_inequality + flat.n_equality == 0:
        return joint.y_set.project_flat(point), carried
    if carried is None:
        return _interior(joint, point), None
    prices, settled = _active_sets(flat, point, carried)
    nearest = _primal(flat, point, carried.matrix, prices)
    # A loop of at most one turn, and not a branch: under vmap a branch would always compute both sides.
    again = lambda _: (_interior(joint, point), jnp.asarray(True))  # noqa: E731
    nearest, _ = jax.lax.while_loop(lambda s: ~s[1], again, (nearest, settled))
    return nearest, carried._replace(prices=jnp.where(settled, prices, 0.0))


def as_lower_level(flat: FlatProblem) -> FlatProblem:
    """The projection as a lower level: its x is the point, its y the nearest member."""
    n_x = flat.n_x
    both = Product((flat.x_set, flat.y_set))
    return FlatProblem(
        upper=lambda point, w: jnp.zeros(()),
        lower=lambda point, w: 0.5 * jnp.sum((w - point) ** 2),
        inequality=lambda point, w: flat.inequality(w[:n_x], w[n_x:]),
        equality=lambda point, w: flat.equality(w[:n_x], w[n_x:]),
        upper_inequality=lambda point, w: jnp.zeros(0),
        x_set=both,
        y_set=both,
        n_inequality=flat.n_inequality,
        n_equality=flat.n_equality,
        n_upper_inequality=0,
    )


def _interior(joint: FlatProblem, point: Both) -> Both:
    # A cold start is more dependable than a warm one when the active set changes.
    oracle = InteriorPoint()
    return jnp.asarray(oracle.solve(joint, point, weights(joint), oracle.cold(joint), jnp.asarray(TOLERANCE)).y)


def _bounds(flat: FlatProblem) -> tuple[Float[NDArray, "both"], Float[NDArray, "both"]]:
    (low_x, high_x), (low_y, high_y) = flat.x_set.bounds_flat(), flat.y_set.bounds_flat()
    return np.concatenate([low_x, low_y]), np.concatenate([high_x, high_y])


def _primal(flat: FlatProblem, point: Both, matrix: Float[Array, "rows both"], prices: Multipliers) -> Both:
    return jnp.clip(point - matrix.T @ prices, *_bounds(flat))


def _active_sets(flat: FlatProblem, point: Both, carried: AffineRows) -> tuple[Multipliers, Bool[Array, ""]]:
    """Multipliers by projected Newton steps up the dual, whose matrix changes only with the active sets."""
    matrix, limit, _ = carried
    low, high = _bounds(flat)
    inequality = is_inequality(flat)
    size = 1.0 + jnp.abs(limit).max() + jnp.abs(point).max()

    def dual(prices: Multipliers) -> tuple[Scalar, Float[Array, "rows"]]:
        """The dual function and its gradient, the rows' excess."""
        nearest = _primal(flat, point, matrix, prices)
        excess = matrix @ nearest - limit
        return 0.5 * jnp.sum((nearest - point) ** 2) + prices @ excess, excess

    def error_of(prices: Multipliers) -> Scalar:
        """How far the rows are from feasibility and complementarity."""
        excess = dual(prices)[1]
        return jnp.abs(jnp.where(inequality, prices - jnp.maximum(prices + excess, 0.0), excess)).max() / size

    def newton(state: tuple[Multipliers, Int[Array, ""], Scalar]) -> tuple[Multipliers, Int[Array, ""], Scalar]:
        prices, count, error = state
        excess = dual(prices)[1]
        free = point - matrix.T @ prices
        active = ~inequality | (prices > 0.0) | (excess > 0.0)
        rows = jnp.where(active[:, None], matrix * ((free > low) & (free < high)), 0.0)
        # Far from the answer the matrix may be singular; its regularisation falls with the error.
        ridge = (1e-14 + 1e-2 * jnp.minimum(error, 1.0)) * (1.0 + jnp.sum(matrix**2, axis=1))
        gram = rows @ rows.T + jnp.diag(jnp.where(active, ridge, 1.0))
        change = jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(gram), jnp.where(active, excess, 0.0))
        trials = jax.vmap(lambda length: positive_part(flat, prices + length * change))(LENGTHS)
        values = jax.vmap(lambda trial: dual(trial)[0])(trials)
        # At the end values differ by rounding alone; the full step is then the right one.
        full = jax.vmap(error_of)(trials)[0] <= TOLERANCE
        new = trials[jnp.where(full, 0, jnp.argmax(jnp.where(jnp.isfinite(values), values, -jnp.inf)))]
        return new, count + 1, error_of(new)

    start = positive_part(flat, carried.prices)
    goes_on = lambda s: ~(s[2] <= TOLERANCE) & (s[1] < CHANGES)  # noqa: E731
    prices, _, error = jax.lax.while_loop(goes_on, newton, (start, jnp.zeros((), int), error_of(start)))
    return prices, error <= TOLERANCE


def _bounds_only(flat: FlatProblem) -> bool:
    return all(
        np.asarray(rows(s.interior_flat())).size == 0
        for s in (flat.x_set, flat.y_set)
        for rows in (s.inequality_flat, s.equality_flat)
    )
