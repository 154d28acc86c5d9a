"""A dense primal-dual interior-point method: the accurate oracle for small and medium lower levels.

Newton's method on the perturbed KKT conditions with slacks for the inequalities, Mehrotra's predictor and corrector,
and derivatives by automatic differentiation. y never leaves the bounds of Y, so functions such as a logarithm are
safe; the inequalities may be violated on the way. Everything is one ``lax.while_loop``: it compiles once for all x and
all weights, and ``vmap`` runs many starts at a time. Linear systems are solved by Cholesky factors only, of
``H + J' diag(mu/s) J`` and of the Schur complement of the equalities, with a small proximal term where
the lower level is merely convex.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import cho_solve, solve_triangular

from blocc.inner.protocol import InnerCode, InnerSolution, finish
from blocc.lagrangian import Multipliers, Weights, objective
from blocc.problem import FlatProblem

Array = Any


class Point(NamedTuple):
    """All primal and dual variables, in the solver's own scaling."""

    y: Array
    slack: Array  #: s > 0 with c(y) + s = 0 at the solution
    inequality: Array  #: multipliers of c, > 0
    equality: Array  #: multipliers of e
    lower: Array  #: multipliers of the lower bounds (0 where there is none)
    upper: Array  #: multipliers of the upper bounds


class Warm(NamedTuple):
    """The last point, in the user's scaling, and whether there is one."""

    point: Point
    known: Array


class _State(NamedTuple):
    point: Point
    best: Point
    best_error: Array
    since_best: Array
    iteration: Array
    code: Array


class _Scaled(NamedTuple):
    """The problem at one x, in the scaling of the solver: functions of y only."""

    gradient: Callable[[Array, Array, Array], Array]  #: of the Lagrangian in y
    objective: Callable[[Array], Array]
    inequality: Callable[[Array], Array]
    equality: Callable[[Array], Array]
    equality_matrix: Array
    objective_scale: Array
    inequality_scale: Array
    equality_scale: Array


_RUNNING = -1


@dataclass(frozen=True)
class InteriorPoint:
    """Options of the interior-point oracle; the defaults need no tuning.

    ``proximal`` is the weight of the term that keeps Newton's matrix positive definite when the lower level has no
    curvature in some direction; it changes the steps, never the solution. ``warm_margin`` is how far a warm start is
    pushed back into the interior.
    """

    max_iterations: int = 100
    proximal: float = 1e-10
    step_to_boundary: float = 0.995
    warm_margin: float = 1e-3

    def cold(self, flat: FlatProblem) -> Warm:
        """No information: the method starts in the middle of Y."""
        n_c, n_e = _sizes(flat)
        zero = lambda size: jnp.zeros(size, dtype=jnp.float64)  # noqa: E731
        point = Point(
            jnp.asarray(flat.y_set.interior_flat()), zero(n_c), zero(n_c), zero(n_e), zero(flat.n_y), zero(flat.n_y)
        )
        return Warm(point, jnp.asarray(False))

    def solve(self, flat: FlatProblem, x: Array, weights: Weights, warm: Warm, tolerance: Array) -> InnerSolution:
        """Solve the lower level at ``x`` with the given weights to ``tolerance`` (relative KKT residual)."""
        bounds = _Bounds.of(flat)
        start = bounds.push_inside(jnp.where(warm.known, warm.point.y, flat.y_set.interior_flat()))
        scaled = _scale(flat, x, weights, start)
        first = self._start(scaled, bounds, start, warm)

        def running(state: _State) -> Array:
            return state.code == _RUNNING

        def step(state: _State) -> _State:
            return _iterate(self, scaled, bounds, state, tolerance)

        initial = _State(first, first, jnp.inf, jnp.asarray(0), jnp.asarray(0), jnp.asarray(_RUNNING))
        end = lax.while_loop(running, step, initial)
        best = end.best
        inequality = best.inequality * scaled.inequality_scale / scaled.objective_scale
        equality = best.equality * scaled.equality_scale / scaled.objective_scale
        multipliers = Multipliers(inequality[: flat.n_inequality], equality[: flat.n_equality])
        unscaled = best._replace(
            slack=best.slack / scaled.inequality_scale,
            inequality=inequality,
            equality=equality,
            lower=best.lower / scaled.objective_scale,
            upper=best.upper / scaled.objective_scale,
        )
        good = (end.code == InnerCode.CONVERGED) | ((end.code == InnerCode.STALLED) & (end.best_error < 1e-4))
        keep = Warm(jax.tree.map(lambda new, old: jnp.where(good, new, old), unscaled, warm.point), good | warm.known)
        return finish(flat, x, best.y, multipliers, weights, iterations=end.iteration, code=end.code, warm=keep)

    def _start(self, scaled: _Scaled, bounds: _Bounds, y: Array, warm: Warm) -> Point:
        """Cold: unit slacks and multipliers. Warm: the last ones, pushed away from zero."""
        value = scaled.inequality(y)
        margin = self.warm_margin
        old = warm.point

        def choose(cold_value: Array, warm_value: Array) -> Array:
            return jnp.where(warm.known, warm_value, cold_value)

        slack = choose(jnp.maximum(-value, 1.0), jnp.maximum(-value, margin))
        prices = old.inequality * scaled.objective_scale / scaled.inequality_scale
        return Point(
            y,
            slack,
            choose(jnp.ones_like(value), jnp.maximum(prices, margin)),
            choose(jnp.zeros_like(old.equality), old.equality * scaled.objective_scale / scaled.equality_scale),
            bounds.has_lower * choose(jnp.ones_like(y), jnp.maximum(old.lower * scaled.objective_scale, margin)),
            bounds.has_upper * choose(jnp.ones_like(y), jnp.maximum(old.upper * scaled.objective_scale, margin)),
        )


def _sizes(flat: FlatProblem) -> tuple[int, int]:
    """Number of inequalities and equalities, those of the set Y included."""
    point = jax.ShapeDtypeStruct((flat.n_y,), jnp.float64)
    n_set = jax.eval_shape(flat.y_set.inequality_flat, point).shape[0]
    n_affine = jax.eval_shape(flat.y_set.equality_flat, point).shape[0]
    return flat.n_inequality + n_set, flat.n_equality + n_affine


@dataclass(frozen=True)
class _Bounds:
    """The bounds of Y, with masks instead of infinities; ``free`` is 0 where lower == upper."""

    lower: np.ndarray
    upper: np.ndarray
    has_lower: np.ndarray
    has_upper: np.ndarray
    free: np.ndarray

    @classmethod
    def of(cls, flat: FlatProblem) -> _Bounds:
        low, high = flat.y_set.bounds_flat()
        free = high > low
        has_lower, has_upper = np.isfinite(low) & free, np.isfinite(high) & free
        return cls(low, high, has_lower.astype(float), has_upper.astype(float), free.astype(float))

    def distances(self, y: Array) -> tuple[Array, Array]:
        """Distance to the lower and to the upper bound, 1 where there is none."""
        below = jnp.where(self.has_lower > 0, y - np.where(self.has_lower > 0, self.lower, 0.0), 1.0)
        above = jnp.where(self.has_upper > 0, np.where(self.has_upper > 0, self.upper, 0.0) - y, 1.0)
        return below, above

    def push_inside(self, y: Array) -> Array:
        """Move y strictly inside the bounds: by 1e-2, or a hundredth of the width where that is less."""
        with np.errstate(invalid="ignore"):
            width = np.where((self.has_lower > 0) & (self.has_upper > 0), self.upper - self.lower, np.inf)
        margin = np.where(self.free > 0, np.minimum(1e-2, 1e-2 * width), 0.0)
        return jnp.clip(y, self.lower + margin, self.upper - margin)


def _scale(flat: FlatProblem, x: Array, w: Weights, start: Array) -> _Scaled:
    """Bring gradients at the start to at most 100, so that the proximal term means the same everywhere."""
    limit = 100.0

    def raw_inequality(y: Array) -> Array:
        return jnp.concatenate([flat.inequality(x, y), flat.y_set.inequality_flat(y)])

    def raw_equality(y: Array) -> Array:
        return jnp.concatenate([flat.equality(x, y), flat.y_set.equality_flat(y)])

    def raw_objective(y: Array) -> Array:
        return objective(flat, x, y, w)

    def factor(size: Array) -> Array:
        return limit / jnp.maximum(limit, jnp.where(jnp.isfinite(size), size, 0.0))

    n_c, n_e = _sizes(flat)
    objective_scale = factor(jnp.max(jnp.abs(jax.grad(raw_objective)(start)), initial=0.0))
    inequality_scale = factor(jnp.max(jnp.abs(_jacobian(raw_inequality, n_c)(start)), axis=1, initial=0.0))
    matrix = _jacobian(raw_equality, n_e)(start)
    equality_scale = factor(jnp.max(jnp.abs(matrix), axis=1, initial=0.0))
    matrix = matrix * equality_scale[:, None]
    offset = raw_equality(start) * equality_scale - matrix @ start

    def lagrangian(y: Array, inequality: Array, equality: Array) -> Array:
        value = objective_scale * raw_objective(y) + jnp.dot(equality, matrix @ y)
        return value + (jnp.dot(inequality * inequality_scale, raw_inequality(y)) if n_c else 0.0)

    return _Scaled(
        gradient=jax.grad(lagrangian),
        objective=lambda y: objective_scale * raw_objective(y),
        inequality=lambda y: inequality_scale * raw_inequality(y),
        equality=lambda y: matrix @ y + offset,
        equality_matrix=matrix,
        objective_scale=objective_scale,
        inequality_scale=inequality_scale,
        equality_scale=equality_scale,
    )


def _jacobian(function: Callable[[Array], Array], rows: int) -> Callable[[Array], Array]:
    """Dense Jacobian, forward or reverse, whichever needs fewer sweeps."""

    def evaluate(y: Array) -> Array:
        if rows == 0:
            return jnp.zeros((0, y.shape[0]), dtype=y.dtype)
        return (jax.jacrev if rows <= y.shape[0] else jax.jacfwd)(function)(y)

    return evaluate


class _Residual(NamedTuple):
    """Left-hand sides of the perturbed KKT conditions."""

    stationarity: Array
    inequality: Array
    equality: Array
    slack: Array  #: s mu - tau
    lower: Array
    upper: Array

    def norm(self) -> Array:
        return jnp.sqrt(sum(jnp.sum(part**2) for part in self))


def _residual(scaled: _Scaled, bounds: _Bounds, p: Point, target: Array) -> _Residual:
    below, above = bounds.distances(p.y)
    return _Residual(
        bounds.free * (scaled.gradient(p.y, p.inequality, p.equality) - p.lower + p.upper),
        scaled.inequality(p.y) + p.slack,
        scaled.equality(p.y),
        p.slack * p.inequality - target,
        bounds.has_lower * (below * p.lower - target),
        bounds.has_upper * (above * p.upper - target),
    )


def _average_product(bounds: _Bounds, p: Point) -> Array:
    """The barrier parameter: mean of all complementarity products."""
    below, above = bounds.distances(p.y)
    pairs = p.slack.shape[0] + float(bounds.has_lower.sum() + bounds.has_upper.sum())
    total = jnp.dot(p.slack, p.inequality) + jnp.dot(below, p.lower) + jnp.dot(above, p.upper)
    return total / max(pairs, 1.0)


def _longest_step(bounds: _Bounds, p: Point, d: Point, fraction: Array | float) -> Array:
    """Largest step in (0, 1] that keeps every positive quantity positive."""
    below, above = bounds.distances(p.y)

    def limit(value: Array, change: Array) -> Array:
        ratio = jnp.where(change < 0, -fraction * value / jnp.where(change < 0, change, -1.0), jnp.inf)
        return jnp.min(ratio, initial=jnp.inf)

    limits = [
        limit(p.slack, d.slack),
        limit(p.inequality, d.inequality),
        limit(below, bounds.has_lower * d.y),
        limit(above, -bounds.has_upper * d.y),
        limit(p.lower, d.lower),
        limit(p.upper, d.upper),
    ]
    return jnp.minimum(1.0, jnp.min(jnp.stack(limits)))


def _advance(p: Point, d: Point, step: Array) -> Point:
    return jax.tree.map(lambda value, change: value + step * change, p, d)


class _Newton(NamedTuple):
    """Factors of Newton's matrix at one point; :func:`_direction` solves with them for any right-hand side."""

    jacobian: Array
    matrix: Array
    factor: Array
    schur_factor: Array
    scaled_equality: Array  #: L^-1 E'


def _factorise(options: InteriorPoint, scaled: _Scaled, bounds: _Bounds, p: Point) -> _Newton:
    n, n_c = p.y.shape[0], p.slack.shape[0]
    below, above = bounds.distances(p.y)
    hessian = jax.jacfwd(scaled.gradient)(p.y, p.inequality, p.equality)
    jacobian = _jacobian(scaled.inequality, n_c)(p.y) * bounds.free
    matrix = 0.5 * (hessian + hessian.T) * bounds.free * bounds.free[:, None]
    matrix = matrix + jacobian.T @ ((p.inequality / p.slack)[:, None] * jacobian)
    matrix = matrix + jnp.diag(p.lower / below + p.upper / above + (1.0 - bounds.free))
    size = 1.0 + jnp.max(jnp.abs(jnp.diag(matrix)))

    def factor(shift: Array) -> Array:
        return jnp.linalg.cholesky(matrix + shift * jnp.eye(n))

    # The smallest shift at which the factor exists; in a convex problem the first one nearly always does.
    def failed(pair: tuple[Array, Array]) -> Array:
        return ~jnp.isfinite(pair[1]).all() & (pair[0] < 1e4 * size)

    shift = jnp.asarray(options.proximal)
    shift, lower = lax.while_loop(
        failed, lambda pair: (pair[0] * 100.0, factor(pair[0] * 100.0)), (shift, factor(shift))
    )
    equality = scaled.equality_matrix * bounds.free
    half = solve_triangular(lower, equality.T, lower=True)
    schur = half.T @ half
    # Dependent rows leave the Schur complement singular; the shift is relative to its largest entry.
    shift_schur = 1e-14 * (1e-2 + jnp.max(jnp.abs(jnp.diag(schur)), initial=0.0))
    schur_factor = jnp.linalg.cholesky(schur + shift_schur * jnp.eye(schur.shape[0]))
    return _Newton(jacobian, matrix + shift * jnp.eye(n), lower, schur_factor, half)


def _direction(newton: _Newton, scaled: _Scaled, bounds: _Bounds, p: Point, r: _Residual) -> Point:
    """Newton's direction for the residual ``r``, by elimination down to y and the equality multipliers."""
    below, above = bounds.distances(p.y)
    ratio = p.inequality / p.slack
    rhs = -r.stationarity + newton.jacobian.T @ (r.slack / p.slack - ratio * r.inequality)
    rhs = bounds.free * (rhs - r.lower / below + r.upper / above)
    equality = scaled.equality_matrix * bounds.free

    def solve(top: Array, bottom: Array) -> tuple[Array, Array]:
        if bottom.shape[0] == 0:
            return cho_solve((newton.factor, True), top), bottom
        half = solve_triangular(newton.factor, top, lower=True)
        multipliers = cho_solve((newton.schur_factor, True), newton.scaled_equality.T @ half - bottom)
        change = solve_triangular(newton.factor.T, half - newton.scaled_equality @ multipliers, lower=False)
        return change, multipliers

    dy, d_equality = solve(rhs, -r.equality)
    # One step of iterative refinement: the factors lose digits when the products s mu differ by many orders.
    again = solve(rhs - newton.matrix @ dy - equality.T @ d_equality, -r.equality - equality @ dy)
    dy, d_equality = bounds.free * (dy + again[0]), d_equality + again[1]
    d_slack = -r.inequality - newton.jacobian @ dy
    return Point(
        dy,
        d_slack,
        -(r.slack + p.inequality * d_slack) / p.slack,
        d_equality,
        -(r.lower + bounds.has_lower * p.lower * dy) / below,
        -(r.upper - bounds.has_upper * p.upper * dy) / above,
    )


def _iterate(options: InteriorPoint, scaled: _Scaled, bounds: _Bounds, state: _State, tolerance: Array) -> _State:
    p = state.point
    average = _average_product(bounds, p)
    affine_residual = _residual(scaled, bounds, p, jnp.asarray(0.0))
    newton = _factorise(options, scaled, bounds, p)
    affine = _direction(newton, scaled, bounds, p, affine_residual)
    reach = _longest_step(bounds, p, affine, 1.0)
    after = _average_product(bounds, _advance(p, affine, reach))
    centering = jnp.clip((after / jnp.maximum(average, 1e-300)) ** 3, 1e-8, 1.0)
    target = centering * average

    # Plain Newton towards the target, and the same with Mehrotra's second-order correction of the products.
    plain_residual = _residual(scaled, bounds, p, target)
    corrected_residual = plain_residual._replace(
        slack=plain_residual.slack + affine.slack * affine.inequality,
        lower=plain_residual.lower + bounds.has_lower * affine.y * affine.lower,
        upper=plain_residual.upper - bounds.has_upper * affine.y * affine.upper,
    )
    corrected = _direction(newton, scaled, bounds, p, corrected_residual)
    plain = _direction(newton, scaled, bounds, p, plain_residual)
    fraction = jnp.maximum(options.step_to_boundary, 1.0 - average)
    start_norm = plain_residual.norm()

    def acceptable(candidate: Point, step: Array) -> Array:
        norm = _residual(scaled, bounds, candidate, target).norm()
        return jnp.isfinite(norm) & (norm <= (1.0 - 1e-4 * step) * start_norm)

    full = _longest_step(bounds, p, corrected, fraction)
    use_corrected = acceptable(_advance(p, corrected, full), full)
    direction = jax.tree.map(lambda a, b: jnp.where(use_corrected, a, b), corrected, plain)
    longest = jnp.where(use_corrected, full, _longest_step(bounds, p, plain, fraction))

    def too_long(pair: tuple[Array, Array]) -> Array:
        step, accepted = pair
        return ~accepted & (step > 1e-12)

    def halve(pair: tuple[Array, Array]) -> tuple[Array, Array]:
        step = 0.5 * pair[0]
        return step, acceptable(_advance(p, direction, step), step)

    accepted = use_corrected | acceptable(_advance(p, direction, longest), longest)
    step, accepted = lax.while_loop(too_long, halve, (longest, accepted))
    moved = _advance(p, direction, jnp.where(accepted, step, 0.0))
    unbounded = _recedes(scaled, bounds, p, affine.y)
    return _judge(options, scaled, bounds, newton, state, moved, accepted, unbounded, tolerance)


def _judge(
    options: InteriorPoint,
    scaled: _Scaled,
    bounds: _Bounds,
    newton: _Newton,
    state: _State,
    p: Point,
    accepted: Array,
    unbounded: Array,
    tolerance: Array,
) -> _State:
    """Measure the new point and decide whether, and how, to stop."""
    r = _residual(scaled, bounds, p, jnp.asarray(0.0))
    zero = jnp.zeros_like
    gradient = scaled.gradient(p.y, zero(p.inequality), zero(p.equality))
    value = scaled.objective(p.y)
    largest = lambda vector: jnp.max(jnp.abs(vector), initial=0.0)  # noqa: E731
    # In the user's units the objective counts as 1 + |value| + |gradient|; the solver's scaling must not loosen that.
    size_y, size = 1.0 + largest(p.y), scaled.objective_scale + largest(gradient) + jnp.abs(value)
    products = jnp.maximum(largest(r.slack), jnp.maximum(largest(r.lower), largest(r.upper)))
    infeasibility = jnp.maximum(largest(r.inequality), largest(r.equality))
    # Where strict complementarity fails, y is off by the root of the product: products must be far smaller.
    parts = [largest(r.stationarity) / size, infeasibility / size_y, 1e4 * products / size]
    error = jnp.max(jnp.stack(parts))
    error = jnp.where(jnp.isfinite(error), error, jnp.inf)
    better = error < state.best_error
    since = jnp.where(error < 0.5 * state.best_error, 0, state.since_best + 1)

    # Farkas: the priced sum of all constraints is positive here and does not fall in any direction, so no y satisfies
    # them. "Does not fall": its gradient is 1e-5 of the terms that cancel in it.
    price = jnp.sum(p.inequality) + jnp.sum(jnp.abs(p.equality))
    below, above = bounds.distances(p.y)
    violation = jnp.dot(p.inequality, scaled.inequality(p.y)) + jnp.dot(p.equality, scaled.equality(p.y))
    bound_slack = jnp.dot(p.lower, below) + jnp.dot(p.upper, above)
    slope = jnp.sum(jnp.abs(r.stationarity - bounds.free * gradient))
    terms = jnp.dot(jnp.sum(jnp.abs(newton.jacobian), axis=1), p.inequality) + jnp.sum(p.lower) + jnp.sum(p.upper)
    terms += jnp.dot(jnp.sum(jnp.abs(scaled.equality_matrix), axis=1), jnp.abs(p.equality))
    farkas = (violation - bound_slack - 10.0 * slope * size_y) / jnp.maximum(price, 1e-300)
    infeasible = (slope <= 1e-5 * terms) & (farkas > 1e-8 * size_y) & (infeasibility > 1e-8 * size_y)

    iteration = state.iteration + 1
    stuck = ~accepted | (iteration >= options.max_iterations) | ((since >= 8) & (error < 1e-6)) | (since >= 30)
    code = jnp.asarray(_RUNNING)
    code = jnp.where(stuck, int(InnerCode.STALLED), code)
    code = jnp.where(infeasible, int(InnerCode.INFEASIBLE), code)
    code = jnp.where(unbounded, int(InnerCode.UNBOUNDED), code)
    code = jnp.where(~jnp.isfinite(gradient).all(), int(InnerCode.NOT_FINITE), code)
    code = jnp.where(error <= tolerance, int(InnerCode.CONVERGED), code)
    best = jax.tree.map(lambda new, old: jnp.where(better, new, old), p, state.best)
    return _State(p, best, jnp.where(better, error, state.best_error), since, iteration, code)


def _recedes(scaled: _Scaled, bounds: _Bounds, p: Point, change: Array) -> Array:
    """Whether ``change`` is a direction in which the objective falls for ever and no constraint ever stops it.

    Checked by going there: at a distance of 1e6 and 1e8 the objective must still fall as fast as it does here.
    """
    direction = change / jnp.maximum(jnp.max(jnp.abs(change)), 1e-300)
    zero = jnp.zeros_like
    slope = jnp.dot(scaled.gradient(p.y, zero(p.inequality), zero(p.equality)), direction)
    along_bounds = (bounds.has_lower * direction >= -1e-7).all() & (bounds.has_upper * direction <= 1e-7).all()
    falls = jnp.asarray(slope < -1e-7)
    for distance in (1e6, 1e8):
        far = p.y + distance * bounds.free * direction
        falls &= scaled.objective(far) <= scaled.objective(p.y) + 0.5 * distance * slope
        falls &= jnp.max(scaled.inequality(far), initial=0.0) <= 1e-6 * distance
        falls &= jnp.max(jnp.abs(scaled.equality(far)), initial=0.0) <= 1e-6 * distance
    return falls & along_bounds
