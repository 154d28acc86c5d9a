"""The perturbed KKT system of one lower-level problem: scaling, residuals, and Newton's direction.

The parts of the interior-point method that know the algebra; :mod:`blocc.inner.interior_point` decides with them. How
matrices are held and factored is left to :class:`Matrices`: dense in :mod:`blocc.inner.dense_newton`, sparse in
:mod:`blocc.inner.sparse_newton`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from blocc._lib.arrays import AnyArray, Array, Float, NDArray
from blocc._lib.operations import joined, largest
from blocc.flat_problem import FlatProblem
from blocc.inner.mehrotra import longest_step
from blocc.lagrangian import Weights, objective, objective_with_gradient


class PrimalDual(NamedTuple):
    """All primal and dual variables, in the solver's own scaling."""

    y: Array
    slack: Array  #: s > 0 with c(y) + s = 0 at the solution
    inequality: Array  #: multipliers of c, > 0
    equality: Array  #: multipliers of e
    lower: Array  #: multipliers of the lower bounds (0 where there is none)
    upper: Array  #: multipliers of the upper bounds


class Rows(Protocol):
    """A matrix with a row for each constraint."""

    def times(self, vector: Float[Array, " columns"]) -> Float[Array, " rows"]:
        """``A v``."""
        ...

    def transposed_times(self, vector: Float[Array, " rows"]) -> Float[Array, " columns"]:
        """``A' v``."""
        ...

    def largest(self) -> Float[Array, " rows"]:
        """The largest absolute entry of each row."""
        ...

    def sums(self) -> Float[Array, " rows"]:
        """The sum of absolute entries of each row."""
        ...

    def scaled(self, rows: Float[Array, " rows"]) -> Rows:
        """Each row times its number."""
        ...


class Change(NamedTuple):
    """A step of y, of the slacks and of the multipliers of the constraints."""

    y: Array
    slack: Array
    inequality: Array
    equality: Array


class Newton(Protocol):
    """Factors of Newton's matrix at one point; :func:`direction` solves with them for any right-hand side."""

    @property
    def jacobian(self) -> Rows:
        """Of the inequalities, 0 for variables that are fixed."""
        ...

    @property
    def concave(self) -> Array:
        """Whether the Hessian of the Lagrangian itself has a negative eigenvalue."""
        ...

    def solve(self, p: PrimalDual, r: Residual) -> Change:
        """Newton's step."""
        ...


class Matrices(Protocol):
    """How derivatives become matrices, and how Newton's matrix is factored."""

    def inequality_rows(self, function: Callable[[Array], Array], y: Array, rows: int) -> Rows:
        """The Jacobian of the inequalities, of which there are so many."""
        ...

    def equality_rows(self, function: Callable[[Array], Array], y: Array, rows: int) -> Rows:
        """The Jacobian of the equalities, of which there are so many."""
        ...

    def factorise(self, proximal: Array, scaled: Scaled, bounds: Bounds, p: PrimalDual) -> Newton:
        """Factor Newton's matrix at ``p``, shifted by at least ``proximal``."""
        ...


class Scaled(NamedTuple):
    """The problem at one x, in the scaling of the solver: functions of y only, and what is known at the start."""

    gradient_and_rows: Callable[[Array, Array, Array], tuple[Array, Array]]  #: of the Lagrangian; the inequalities
    slopes: Callable[[Array], tuple[Array, Array]]  #: objective and its gradient
    objective: Callable[[Array], Array]
    inequality: Callable[[Array], Array]
    equality: Callable[[Array], Array]
    equality_matrix: Rows
    objective_scale: Array
    inequality_scale: Array
    equality_scale: Array
    start: Linear
    matrices: Matrices


class Linear(NamedTuple):
    """Objective and constraints with their derivatives at one y, in the scaling of the solver."""

    value: Array
    gradient: Array
    inequality: Array
    jacobian: Rows


@dataclass(frozen=True)
class Bounds:
    """The bounds of Y, with masks instead of infinities; ``free`` is 0 where lower == upper."""

    lower: Float[AnyArray, "n_y"]
    upper: Float[AnyArray, "n_y"]
    has_lower: Float[NDArray, "n_y"]
    has_upper: Float[NDArray, "n_y"]
    free: Float[NDArray, "n_y"]

    @classmethod
    def of(cls, flat: FlatProblem) -> Bounds:
        """The bounds of the follower's set."""
        low, high = flat.y_set.bounds_flat()
        below, above, free = flat.y_set.bounded_flat()
        has_lower, has_upper = below & free, above & free
        return cls(low, high, has_lower.astype(float), has_upper.astype(float), free.astype(float))

    @cached_property
    def exist(self) -> bool:
        """Whether there is any; nothing is compiled for bounds that are not there."""
        return bool(self.has_lower.any() or self.has_upper.any())

    def among_free(self, values: Array) -> Array:
        """Values of variables (in the last axis) with 0 in the place of those that cannot move."""
        return values if self.free.all() else values * self.free

    def distances(self, y: Array) -> tuple[Array, Array]:
        """Distance to the lower and to the upper bound, 1 where there is none."""
        ends = ((self.has_lower > 0, self.lower, 1.0), (self.has_upper > 0, self.upper, -1.0))
        below, above = (_distance(there, bound, y, sign) for there, bound, sign in ends)
        return below, above

    def push_inside(self, y: Array) -> Array:
        """Move y strictly inside the bounds: by 1e-2, or a hundredth of the width where that is less."""
        if not self.exist and self.free.all():
            return y
        both = (self.has_lower > 0) & (self.has_upper > 0)
        width = jnp.where(both, jnp.where(both, self.upper, 1.0) - jnp.where(both, self.lower, 0.0), jnp.inf)
        margin = jnp.where(self.free > 0, jnp.minimum(1e-2, 1e-2 * width), 0.0)
        return jnp.clip(y, self.lower + margin, self.upper - margin)


def _distance(there: NDArray, bound: AnyArray, y: Array, sign: float) -> Array:
    """``sign (y - bound)``, 1 where there is no bound; what is not there at all is not compiled either."""
    if there.all():
        return sign * (y - bound)
    if not there.any():
        return jnp.ones_like(y)
    return jnp.where(there, sign * (y - jnp.where(there, bound, 0.0)), 1.0)


def scale(flat: FlatProblem, x: Array, w: Weights, start: Array, matrices: Matrices) -> Scaled:
    """Bring gradients at the start to at most 100, so that the proximal term means the same everywhere."""
    limit = 100.0

    def raw_inequality(y: Array) -> Array:
        return joined(flat.inequality(x, y), flat.y_set.inequality_flat(y))

    def raw_equality(y: Array) -> Array:
        return joined(flat.equality(x, y), flat.y_set.equality_flat(y))

    def raw_slopes(y: Array) -> tuple[Array, Array]:
        return objective_with_gradient(flat, x, y, w)

    def factor(size: Array) -> Array:
        return limit / jnp.maximum(limit, jnp.where(jnp.isfinite(size), size, 0.0))

    value, gradient = raw_slopes(start)
    base = jnp.where(jnp.isfinite(value), value, 0.0)  # a constant in the objective must not loosen relative tolerances
    objective_scale = factor(largest(gradient))
    n_c, n_e = flat.follower_rows
    row, jacobian = raw_inequality(start), matrices.inequality_rows(raw_inequality, start, n_c)
    inequality_scale = factor(jacobian.largest())
    matrix = matrices.equality_rows(raw_equality, start, n_e)
    offset = equality_scale = raw_equality(start)
    if n_e:
        equality_scale = factor(matrix.largest())
        matrix = matrix.scaled(equality_scale)
        offset = offset * equality_scale - matrix.times(start)

    def slopes(y: Array) -> tuple[Array, Array]:
        value, gradient = raw_slopes(y)
        return objective_scale * (value - base), objective_scale * gradient

    def gradient_and_rows(y: Array, inequality: Array, equality: Array) -> tuple[Array, Array]:
        total = slopes(y)[1]
        if n_e:
            total = total + matrix.transposed_times(equality)
        if n_c == 0:
            return total, row
        rows, pull = jax.vjp(raw_inequality, y)
        return total + pull(inequality * inequality_scale)[0], inequality_scale * rows

    return Scaled(
        gradient_and_rows=gradient_and_rows,
        slopes=slopes,
        objective=lambda y: objective_scale * (objective(flat, x, y, w) - base),
        inequality=lambda y: inequality_scale * raw_inequality(y),
        equality=lambda y: matrix.times(y) + offset if n_e else offset,
        equality_matrix=matrix,
        objective_scale=objective_scale,
        inequality_scale=inequality_scale,
        equality_scale=equality_scale,
        start=Linear(
            objective_scale * (value - base),
            objective_scale * gradient,
            inequality_scale * row,
            jacobian.scaled(inequality_scale),
        ),
        matrices=matrices,
    )


class Residual(NamedTuple):
    """Left-hand sides of the perturbed KKT conditions."""

    stationarity: Array
    inequality: Array
    equality: Array
    slack: Array  #: s mu - tau
    lower: Array
    upper: Array

    def norm(self) -> Array:
        """Euclidean length of all parts together."""
        return jnp.linalg.norm(joined(*self))

    def infeasibility(self) -> Array:
        """Euclidean length of what the constraints are off by."""
        return jnp.linalg.norm(joined(self.inequality, self.equality))


class Measured(NamedTuple):
    """A point with everything that functions of y tell about it, so that each is evaluated, and compiled, once."""

    value: Array  #: of the objective
    gradient: Array  #: of the objective
    constraint: Array  #: the inequalities
    residual: Residual  #: with every complementarity product aimed at zero


def measure(scaled: Scaled, bounds: Bounds, p: PrimalDual) -> Measured:
    """Objective, constraints and KKT conditions at ``p``."""
    value, gradient = scaled.slopes(p.y)
    constraint, pull = jax.vjp(scaled.inequality, p.y)
    return _measured(scaled, bounds, p, value, gradient, constraint, pull(p.inequality)[0])


def measure_start(scaled: Scaled, bounds: Bounds, p: PrimalDual) -> Measured:
    """The same at the start, from what is known there: no function has to be compiled for it once more."""
    value, gradient, constraint, jacobian = scaled.start
    return _measured(scaled, bounds, p, value, gradient, constraint, jacobian.transposed_times(p.inequality))


def _measured(
    scaled: Scaled, bounds: Bounds, p: PrimalDual, value: Array, gradient: Array, constraint: Array, pull: Array
) -> Measured:
    below, above = bounds.distances(p.y)
    slope = gradient + pull
    if p.equality.shape[0]:
        slope = slope + scaled.equality_matrix.transposed_times(p.equality)
    rows = constraint + p.slack, scaled.equality(p.y), p.slack * p.inequality
    if not bounds.exist:
        return Measured(value, gradient, constraint, Residual(bounds.among_free(slope), *rows, p.lower, p.upper))
    products = below * p.lower * bounds.has_lower, above * p.upper * bounds.has_upper
    residual = Residual(bounds.among_free(slope - p.lower + p.upper), *rows, *products)
    return Measured(value, gradient, constraint, residual)


def aimed(bounds: Bounds, r: Residual, target: Array) -> Residual:
    """The same residual with every complementarity product aimed at ``target``."""
    aimed_at = r._replace(slack=r.slack - target)
    if not bounds.exist:
        return aimed_at
    return aimed_at._replace(lower=r.lower - bounds.has_lower * target, upper=r.upper - bounds.has_upper * target)


def average_product(bounds: Bounds, p: PrimalDual) -> Array:
    """The barrier parameter: mean of all complementarity products."""
    pairs = p.slack.shape[0] + float(bounds.has_lower.sum() + bounds.has_upper.sum())
    total = jnp.dot(p.slack, p.inequality)
    if bounds.exist:
        below, above = bounds.distances(p.y)
        total = total + jnp.dot(below, p.lower) + jnp.dot(above, p.upper)
    return total / max(pairs, 1.0)


def step_to_boundary(bounds: Bounds, p: PrimalDual, d: PrimalDual, fraction: Array | float) -> Array:
    """Largest step in (0, 1] that keeps every positive quantity positive."""
    # One vector of all: less to compile than six.
    values, changes = [p.slack, p.inequality], [d.slack, d.inequality]
    if bounds.exist:
        values += [*bounds.distances(p.y), p.lower, p.upper]
        changes += [d.y * bounds.has_lower, -d.y * bounds.has_upper, d.lower, d.upper]
    return longest_step((joined(*values),), (joined(*changes),), fraction)


def direction(newton: Newton, bounds: Bounds, p: PrimalDual, r: Residual) -> PrimalDual:
    """Newton's direction for the residual ``r``."""
    change = newton.solve(p, r)
    if not bounds.exist:
        return PrimalDual(*change, p.lower, p.upper)  # which are 0
    below, above = bounds.distances(p.y)
    return PrimalDual(
        *change,
        -(r.lower + bounds.has_lower * p.lower * change.y) / below,
        -(r.upper - bounds.has_upper * p.upper * change.y) / above,
    )
