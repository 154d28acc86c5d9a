"""A dense primal-dual interior-point method: the accurate oracle for small and medium lower levels.

Newton's method on the perturbed KKT conditions with slacks for the inequalities, Mehrotra's predictor and corrector,
and derivatives by automatic differentiation. y never leaves the bounds of Y, so functions such as a logarithm are
safe; the inequalities may be violated on the way. Everything is one ``lax.while_loop``: it compiles once for all x and
all weights, and ``vmap`` runs many starts at a time. Linear systems are solved by Cholesky factors only, of
``H + J' diag(mu/s) J`` and of the Schur complement of the equalities, with a small proximal term where
the lower level is merely convex.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from blocc._lib.arrays import AnyArray, Array
from blocc._lib.operations import chosen, inner_product, joined, largest, largest_positive
from blocc._lib.rounding import KEPT, PLACED, TINY
from blocc.flat_problem import FlatProblem
from blocc.inner.dense_newton import DenseMatrices
from blocc.inner.mehrotra import move
from blocc.inner.newton_system import (
    Bounds,
    Matrices,
    Measured,
    Newton,
    PrimalDual,
    Residual,
    Scaled,
    aimed,
    average_product,
    direction,
    measure,
    measure_start,
    scale,
    step_to_boundary,
)
from blocc.inner.protocol import InnerCode, InnerOracle, InnerSolution, finish
from blocc.lagrangian import Multipliers, Weights


class Warm(NamedTuple):
    """The last point, in the user's scaling, and whether there is one."""

    point: PrimalDual
    known: Array


class _State(NamedTuple):
    point: PrimalDual
    best: PrimalDual
    best_error: Array
    since_best: Array
    iteration: Array
    code: Array
    concave: Array
    proximal: Array  #: weight of the proximal term: grows while steps are cut short
    measured: Measured  #: at ``point``


class _Trial(NamedTuple):
    tried: Array  #: trials so far
    step: Array
    accepted: Array
    point: PrimalDual
    measured: Measured


_RUNNING = -1


@dataclass(frozen=True)
class InteriorPoint(InnerOracle):
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
        n_c, n_e = flat.follower_rows
        nothing = [np.zeros(size) for size in (n_c, n_c, n_e, flat.n_y, flat.n_y)]
        point: Any = (flat.y_set.interior_flat(), *nothing)
        return Warm(PrimalDual(*point), _flag(False))

    def begin_at(self, flat: FlatProblem, y: AnyArray) -> Warm:
        """A start at ``y``, with nothing known about the multipliers."""
        at: Any = y
        return Warm(self.cold(flat).point._replace(y=at), _flag(True))

    def solve(self, flat: FlatProblem, x: Array, weights: Weights, warm: Warm, tolerance: Array) -> InnerSolution:
        """Solve the lower level at ``x`` with the given weights to ``tolerance`` (relative KKT residual)."""
        bounds = Bounds.of(flat)
        start = bounds.push_inside(jnp.where(warm.known, warm.point.y, flat.y_set.interior_flat()))
        scaled = scale(flat, x, weights, start, self._matrices(flat))
        first = self._start(scaled, bounds, start, warm)

        def running(state: _State) -> Array:
            return state.code == _RUNNING

        def step(state: _State) -> _State:
            return _iterate(self, scaled, bounds, state, tolerance)

        number, flag = jnp.asarray(0), jnp.asarray(False)
        running_code, proximal = jnp.asarray(_RUNNING), jnp.asarray(self.proximal)
        here = measure_start(scaled, bounds, first)
        initial = _State(first, first, jnp.asarray(jnp.inf), number, number, running_code, flag, proximal, here)
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
        keep = Warm(chosen(good, unscaled, jax.tree.map(jnp.asarray, warm.point)), good | warm.known)
        return finish(
            flat,
            x,
            best.y,
            multipliers,
            weights,
            iterations=end.iteration,
            code=end.code,
            warm=keep,
            concave=end.concave,
        )

    def _matrices(self, flat: FlatProblem) -> Matrices:
        """How this method holds its matrices."""
        return DenseMatrices()

    def _start(self, scaled: Scaled, bounds: Bounds, y: Array, warm: Warm) -> PrimalDual:
        """Cold: unit slacks and multipliers. Warm: the last ones, pushed away from zero."""
        value = scaled.start.inequality
        margin = self.warm_margin
        old = warm.point

        def choose(cold_value: float, warm_value: Array | float) -> Array:
            return jnp.where(warm.known, warm_value, cold_value)

        slack = jnp.maximum(-value, choose(1.0, margin))
        prices = old.inequality * scaled.objective_scale / scaled.inequality_scale
        held = choose(1.0, jnp.maximum(prices, margin))
        equality = old.equality  # of these, all are zero where nothing is known
        if equality.shape[0]:
            equality = choose(0.0, equality * scaled.objective_scale / scaled.equality_scale)
        if not bounds.exist:
            return PrimalDual(y, slack, held, equality, jnp.zeros_like(y), jnp.zeros_like(y))
        at_bounds = [
            choose(1.0, jnp.maximum(price * scaled.objective_scale, margin)) * there
            for price, there in ((old.lower, bounds.has_lower), (old.upper, bounds.has_upper))
        ]
        return PrimalDual(y, slack, held, equality, *at_bounds)


def _flag(known: bool) -> Any:
    return np.asarray(known)


def _iterate(options: InteriorPoint, scaled: Scaled, bounds: Bounds, state: _State, tolerance: Array) -> _State:
    """One predictor-corrector step, and whether it is the last."""
    p, here = state.point, state.measured
    average = average_product(bounds, p)
    newton = scaled.matrices.factorise(state.proximal, scaled, bounds, p)
    affine = direction(newton, bounds, p, here.residual)
    after = average_product(bounds, move(p, affine, step_to_boundary(bounds, p, affine, 1.0)))
    centering = jnp.clip((after / jnp.maximum(average, TINY)) ** 3, 1e-8, 1.0)
    # Products that vanish before the other conditions hold would block every later step: they wait for feasibility, and
    # grow again where slacks, one in a hundred, are smaller than what their rows are off by. A curved row, which every
    # long step violates a little, can so undo for ever what was reached: where nothing improves they wait for all
    # conditions and never grow.
    off, patient = jnp.abs(here.residual.inequality), state.since_best >= 20
    violated = largest(off / jnp.maximum(p.slack, 1.0))
    slope = largest(here.residual.stationarity) / (scaled.objective_scale + largest(here.gradient))
    ceiling = jnp.where((jnp.sum(off > p.slack) > 0.01 * off.size) & ~patient, jnp.maximum(average, 1e-2), average)
    lag = jnp.where(patient, jnp.maximum(violated, slope), violated)
    # Among many pairs some are always nearly degenerate and fall slowly. The others wait for them: products that differ
    # by many orders spoil the matrix.
    worst = _largest_product(bounds, here.residual)
    waiting = jnp.where(worst > 30.0 * average, jnp.minimum(average, 3e-4 * worst), 0.0)
    target = jnp.maximum(jnp.maximum(centering * average, waiting), jnp.minimum(ceiling, 0.1 * lag))

    # Plain Newton towards the target, and the same with Mehrotra's second-order correction of the products.
    plain = aimed(bounds, here.residual, target)
    corrected = plain._replace(slack=plain.slack + affine.slack * affine.inequality)
    if bounds.exist:
        corrected = corrected._replace(
            lower=plain.lower + bounds.has_lower * affine.y * affine.lower,
            upper=plain.upper - bounds.has_upper * affine.y * affine.upper,
        )
    two = jax.tree.map(lambda a, b: jnp.stack([a, b]), corrected, plain)
    pair = jax.vmap(lambda r: direction(newton, bounds, p, r))(two)
    fraction = jnp.maximum(options.step_to_boundary, 1.0 - average)
    longest = jax.vmap(lambda d: step_to_boundary(bounds, p, d, fraction))(pair)
    trial = _search(scaled, bounds, state, pair, longest, target)
    moved, there = chosen(trial.accepted, (trial.point, trial.measured), (p, here))
    short = trial.step < 0.5 * longest[jnp.minimum(trial.tried - 1, 1)]
    proximal = jnp.where(short, jnp.minimum(100.0 * jnp.maximum(state.proximal, 1e-8), 1.0), 0.1 * state.proximal)
    state = state._replace(
        point=moved,
        measured=there,
        proximal=jnp.maximum(proximal, options.proximal),
        iteration=state.iteration + 1,
        concave=state.concave | newton.concave,
    )
    unbounded = _recedes(scaled, bounds, p, here, affine.y)
    return _decide(options, scaled, bounds, newton, state, trial.accepted, unbounded, tolerance)


def _search(scaled: Scaled, bounds: Bounds, state: _State, pair: PrimalDual, longest: Array, target: Array) -> _Trial:
    """The corrected direction has one trial, at full length; then the plain one is shortened until it serves.

    All trials are one loop, so that the functions are compiled for them once.
    """
    p, here = state.point, state.measured
    corrected, plain = (jax.tree.map(lambda leaf, i=i: leaf[i], pair) for i in (0, 1))
    begun = aimed(bounds, here.residual, target)
    start_norm, violated = begun.norm(), begun.infeasibility()

    def acceptable(found: Measured, step: Array) -> Array:
        """All residuals together shrink; or stationarity does, at a price in feasibility that Newton pays back.

        The second rule matters far from a curved constraint: the step that satisfies its linearisation overshoots.
        """
        r = aimed(bounds, found.residual, target)
        norm, infeasibility = r.norm(), r.infeasibility()
        # Below the floor residuals are rounding of an ill-conditioned system and must not stop the products.
        shrinks = norm <= jnp.maximum((1.0 - 1e-4 * step) * start_norm, 3e-10)
        rest, start_rest = norm**2 - infeasibility**2, start_norm**2 - violated**2
        trades = (rest <= 0.25 * start_rest) & (infeasibility <= 1e5 * (KEPT + violated)) & (violated > KEPT)
        return jnp.isfinite(norm) & (shrinks | trades)

    def searching(trial: _Trial) -> Array:
        return ~trial.accepted & ((trial.tried < 2) | (trial.step > 1e-12))

    def attempt(trial: _Trial) -> _Trial:
        count = trial.tried + 1
        step = jnp.where(trial.tried == 0, longest[0], jnp.where(trial.tried == 1, longest[1], 0.5 * trial.step))
        point = move(p, chosen(trial.tried == 0, corrected, plain), step)
        found = measure(scaled, bounds, point)
        return _Trial(count, step, acceptable(found, step), point, found)

    nothing = _Trial(jnp.asarray(0), jnp.asarray(1.0), jnp.asarray(False), p, here)
    return lax.while_loop(searching, attempt, nothing)


def _largest_product(bounds: Bounds, r: Residual) -> Array:
    """The largest complementarity product."""
    return largest(joined(r.slack, r.lower, r.upper) if bounds.exist else r.slack)


def _decide(
    options: InteriorPoint,
    scaled: Scaled,
    bounds: Bounds,
    newton: Newton,
    state: _State,
    accepted: Array,
    unbounded: Array,
    tolerance: Array,
) -> _State:
    """Measure the new point and decide whether, and how, to stop."""
    p, (value, gradient, _, r) = state.point, state.measured
    # In the user's units the objective counts as 1 + |value| + |gradient|; the solver's scaling must not loosen that. A
    # value that is a sum over many variables says little of what one of them may be off by.
    share = 1.0 / max(1.0, p.y.shape[0] / 100.0)
    size_y, size = 1.0 + largest(p.y), scaled.objective_scale + largest(gradient) + share * jnp.abs(value)
    products = _largest_product(bounds, r)
    infeasibility = largest(joined(r.inequality, r.equality))
    # Where strict complementarity fails, y is off by the root of the product: products must be far smaller.
    product_tolerance = jnp.maximum(1e-4 * tolerance, 1e-15)
    parts = [largest(r.stationarity) / size, infeasibility / size_y, products / size * (tolerance / product_tolerance)]
    # What counts where nothing moves any more: the same, with products that rounding lets one reach.
    relaxed = jnp.max(jnp.stack([*parts[:2], 1e2 * products / size]))
    error = jnp.max(jnp.stack(parts))
    error = jnp.where(jnp.isfinite(error), error, jnp.inf)
    better = error < state.best_error
    since = jnp.where(error < 0.5 * state.best_error, 0, state.since_best + 1)
    stuck = ~accepted | (state.iteration >= options.max_iterations) | ((since >= 8) & (error < KEPT)) | (since >= 40)

    code = jnp.asarray(_RUNNING)
    code = jnp.where(stuck, int(InnerCode.STALLED), code)
    infeasible = _certifies_infeasibility(scaled, bounds, newton, state, stuck)
    code = jnp.where(infeasible & (infeasibility > 1e-8 * size_y), int(InnerCode.INFEASIBLE), code)
    nowhere_finite = ~jnp.isfinite(state.best_error) & ~jnp.isfinite(error)
    code = jnp.where(nowhere_finite & stuck, int(InnerCode.NOT_FINITE), code)
    code = jnp.where((error <= tolerance) | (stuck & (relaxed <= tolerance)), int(InnerCode.CONVERGED), code)
    # Last, because residuals are relative to the value: far out on the way down anything passes for converged.
    code = jnp.where(unbounded, int(InnerCode.UNBOUNDED), code)
    return state._replace(
        best=chosen(better, p, state.best),
        best_error=jnp.where(better, error, state.best_error),
        since_best=since,
        code=code,
    )


def _certifies_infeasibility(scaled: Scaled, bounds: Bounds, newton: Newton, state: _State, stuck: Array) -> Array:
    """Farkas: the priced sum of all constraints is positive here and does not fall in any direction.

    Then no y satisfies them. "Does not fall": its gradient is 1e-5 of the terms that cancel in it, or 1e-3 where
    nothing moves any more. There it may also fall towards bounds, if it is still positive when it gets to them.
    """
    p, (_, gradient, constraint, r) = state.point, state.measured
    size_y = 1.0 + largest(p.y)
    if p.inequality.shape[0] + p.equality.shape[0] == 0:
        return jnp.asarray(False)
    price = jnp.sum(p.inequality)
    violation = inner_product(p.inequality, constraint)
    slope = jnp.sum(jnp.abs(r.stationarity - bounds.among_free(gradient)))
    terms = inner_product(newton.jacobian.sums(), p.inequality)
    if p.equality.shape[0]:
        price = price + jnp.sum(jnp.abs(p.equality))
        violation = violation + jnp.dot(p.equality, r.equality)
        terms = terms + jnp.dot(scaled.equality_matrix.sums(), jnp.abs(p.equality))
    enough = 1e-8 * size_y * jnp.maximum(price, TINY)
    if not bounds.exist:
        flat = slope <= jnp.where(stuck, 1e-3, 1e-5) * terms
        return flat & (violation - 10.0 * slope * size_y > enough)
    below, above = bounds.distances(p.y)
    bound_slack = jnp.dot(p.lower, below) + jnp.dot(p.upper, above)
    terms = terms + jnp.sum(p.lower) + jnp.sum(p.upper)
    nowhere = (slope <= jnp.where(stuck, 1e-3, 1e-5) * terms) & (
        violation - bound_slack - 10.0 * slope * size_y > enough
    )
    priced = r.stationarity - bounds.among_free(gradient - p.lower + p.upper)
    bounded = jnp.where(priced > 0.0, bounds.has_lower, bounds.has_upper) > 0
    fall = jnp.sum(jnp.abs(priced) * jnp.where(bounded, jnp.where(priced > 0.0, below, above), 0.0))
    loose = jnp.sum(jnp.abs(priced) * ~bounded)
    to_bounds = stuck & (loose <= 1e-5 * terms) & (violation - fall - 10.0 * loose * size_y > enough)
    return nowhere | to_bounds


def _recedes(scaled: Scaled, bounds: Bounds, p: PrimalDual, here: Measured, change: Array) -> Array:
    """Whether ``change`` is a direction in which the objective falls for ever and no constraint ever stops it.

    Checked by going there: at a distance of 1e6 and 1e8 the objective must still fall as fast as it does here.
    """
    direction = change / jnp.maximum(largest(change), TINY)
    slope = jnp.dot(here.gradient, direction)
    falling = slope < -PLACED
    if bounds.exist:
        falling &= (bounds.has_lower * direction >= -PLACED).all() & (bounds.has_upper * direction <= PLACED).all()

    def falls(distance: Array) -> Array:
        far = p.y + distance * bounds.among_free(direction)
        lower = scaled.objective(far) <= here.value + 0.5 * distance * slope
        if p.slack.shape[0]:
            lower &= largest_positive(scaled.inequality(far)) <= KEPT * distance
        if p.equality.shape[0]:
            lower &= largest(scaled.equality(far)) <= KEPT * distance
        return lower

    return jax.vmap(falls)(jnp.asarray([1e6, 1e8])).all() & falling
