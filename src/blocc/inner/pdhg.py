"""A first-order oracle for large problems: accelerated primal-dual hybrid gradient with restarts.

For ``min phi(y) + <mu, gc(y)> + <nu, h(y)>`` each iteration takes one step in the multipliers and one in y:

    prices   <- P_cone(prices + sigma (G(y) + theta (G(y) - G(y_previous))))
    y        <- P_Y(y - tau (grad phi(middle) + J(y)^T prices)),     middle = a share of y and of the running average

The running averages, with weights growing like 1, 2, 3, ..., are the answer. Without constraints this is Nesterov's
accelerated projected gradient method; with affine constraints it is the method of Chen, Lan and Ouyang (2014); the
linearisation of a nonlinear G at y and the test that accepts a step follow Hamedani and Aybat (2021). Restarts from
the average when the normalised KKT residual has dropped, and the balance of primal against dual steps learnt at each
restart, follow PDLP (Applegate et al., 2021); they turn the sublinear rate into a linear one wherever the residual
grows linearly away from the solutions, a linear program included.

Step lengths come from three observed constants: the curvature of phi, the curvature of <prices, G>, and the norm of
the Jacobian. They only grow between restarts, and a step whose own observations break the inequality that the
convergence proof needs is not taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from blocc._lib.arrays import Array
from blocc._lib.rounding import ASKED, TINY
from blocc.errors import OptionError
from blocc.flat_problem import FlatProblem
from blocc.inner.first_order import (
    Assessment,
    constraints,
    evaluate,
    flat_spectrum_vector,
    is_infeasible,
    is_unbounded,
    project_cone,
    rays,
    row_norms,
    stack,
    unstack,
    verdict,
)
from blocc.inner.protocol import InnerCode, InnerOracle, InnerSolution, finish
from blocc.lagrangian import Multipliers, Weights, exactly, objective, zero_multipliers

#: A restart follows when the residual has fallen by the first factor, or by the second and then rises again, or when
#: the epoch has taken this share of all iterations (the constants of PDLP).
SUFFICIENT, NECESSARY, LONGEST = 0.2, 0.8, 0.36


class StepConstants(NamedTuple):
    """What the step lengths are made of."""

    curvature: Array  #: of phi
    constraint_curvature: Array  #: of <prices, G>
    jacobian: Array  #: norm of the row-scaled Jacobian of G
    primal_weight: Array  #: how far multipliers travel for a unit of y; zero while unknown


class PrimalDualWarm(NamedTuple):
    """What the next, nearby solve starts from."""

    y: Array
    multipliers: Multipliers
    constants: StepConstants


class _Epoch(NamedTuple):
    """Iterates since the last restart."""

    y: Array
    prices: Array
    y_average: Array
    prices_average: Array
    constraint: Array  #: G(y)
    change: Array  #: G(y) - G(y_previous)
    taken: Array  #: accepted steps since the restart, plus one
    constants: StepConstants
    trusted: Array  #: whether the last step was long enough for its observations to mean something
    rejected: Array  #: steps rejected in a row


class _State(NamedTuple):
    epoch: _Epoch
    row_scale: Array
    anchor_y: Array  #: where the epoch began
    anchor_prices: Array
    anchor_error: Array
    last_y: Array  #: iterate at the last check
    last_prices: Array
    last_error: Array
    best_y: Array
    best_prices: Array
    epoch_start: Array
    iterations: Array
    code: Array
    running: Array


@dataclass(frozen=True)
class PrimalDualHybridGradient(InnerOracle):
    """Accelerated, adaptive, restarted primal-dual method; needs only products with Jacobians.

    For problems too large for factorisations. It copes with a merely convex lower level, a linear program included,
    though each further digit costs about as many iterations as the one before.

    :param max_iterations: trial steps before the solve ends as stalled
    :param check_every: trial steps between two looks at the KKT residuals
    """

    #: Digits beyond this cost too many iterations to be asked for.
    finest = 1e-10

    max_iterations: int = 100_000
    check_every: int = 25

    def __post_init__(self) -> None:
        for name in ("max_iterations", "check_every"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise OptionError(f"{name} must be a positive integer, got {getattr(self, name)!r}")

    def cold(self, flat: FlatProblem) -> PrimalDualWarm:
        """An interior point of Y, no prices, and step lengths unknown."""
        unknown = StepConstants(*(jnp.zeros(()) for _ in StepConstants._fields))
        return PrimalDualWarm(jnp.asarray(flat.y_set.interior_flat()), zero_multipliers(flat), unknown)

    def solve(
        self, flat: FlatProblem, x: Array, weights: Weights, warm: PrimalDualWarm, tolerance: Array
    ) -> InnerSolution:
        """Solve at ``x`` until every KKT residual is below ``tolerance`` relative to its scale."""

        def look(y: Array, prices: Array) -> Assessment:
            return evaluate(flat, x, weights, y, prices)

        def advance(state: _State) -> _State:
            epoch = jax.lax.fori_loop(
                0, self.check_every, lambda _, e: _try_step(flat, x, weights, state.row_scale, e), state.epoch
            )
            ray = rays(flat, epoch.y, epoch.prices, state.last_y, state.last_prices)
            # One batched evaluation: average, iterate, price ray at the iterate, and the far end of the y ray.
            ys = jnp.stack([epoch.y_average, epoch.y, epoch.y, epoch.y + ray.length * ray.y])
            zs = jnp.stack([epoch.prices_average, epoch.prices, ray.prices, epoch.prices])
            points = jax.vmap(look)(ys, zs)
            average, iterate, priced, far = (jax.tree.map(lambda leaf, i=i: leaf[i], points) for i in range(4))
            pick = jnp.where(average.error <= iterate.error, 0, 1)
            error, y, prices = points.error[pick], ys[pick], zs[pick]
            code = verdict(
                error <= tolerance,
                is_infeasible(flat, epoch.y, ray, priced),
                is_unbounded(flat, epoch.y, ray, iterate, far),
                (epoch.rejected >= self.check_every) & ~jnp.isfinite(error),
            )
            iterations = state.iterations + self.check_every
            length = iterations - state.epoch_start
            restart = (
                (error <= SUFFICIENT * state.anchor_error)
                | ((error <= NECESSARY * state.anchor_error) & (error > state.last_error))
                | (length >= LONGEST * iterations)
            ) & (code == InnerCode.STALLED)
            restarted = _restart(flat, x, state, y, prices, points.constraint[pick], epoch)
            epoch = jax.tree.map(lambda new, old: jnp.where(restart, new, old), restarted, epoch)
            return _State(
                epoch=epoch,
                row_scale=jax.lax.cond(restart, lambda: row_norms(flat, x, y), lambda: state.row_scale),
                anchor_y=jnp.where(restart, y, state.anchor_y),
                anchor_prices=jnp.where(restart, prices, state.anchor_prices),
                anchor_error=jnp.where(restart, error, state.anchor_error),
                last_y=epoch.y,
                last_prices=epoch.prices,
                last_error=jnp.where(restart, jnp.inf, error),
                best_y=y,
                best_prices=prices,
                epoch_start=jnp.where(restart, iterations, state.epoch_start),
                iterations=iterations,
                code=code,
                running=(code == InnerCode.STALLED) & (iterations < self.max_iterations),
            )

        y = flat.y_set.project_flat(warm.y)
        prices = project_cone(flat, stack(warm.multipliers))
        start = look(y, prices)
        code = verdict(start.error <= tolerance, *(jnp.asarray(False),) * 2, ~jnp.isfinite(start.error))
        state = _begin(flat, x, weights, y, prices, start, warm.constants)
        state = state._replace(code=code, running=code == InnerCode.STALLED)
        state = jax.lax.while_loop(lambda s: s.running, advance, state)
        multipliers = unstack(flat, state.best_prices)
        back = PrimalDualWarm(state.best_y, multipliers, state.epoch.constants)
        return finish(
            flat, x, state.best_y, multipliers, weights, iterations=state.iterations, code=state.code, warm=back
        )


def _begin(
    flat: FlatProblem, x: Array, w: Weights, y: Array, prices: Array, start: Assessment, constants: StepConstants
) -> _State:
    """First state. Unknown constants are observed on a short step down the gradient of the Lagrangian."""
    scale = row_norms(flat, x, y)
    slope = start.gradient + start.pull
    size = 1.0 + jnp.linalg.norm(y)
    offset = flat_spectrum_vector(flat.n_y)
    direction = -slope / jnp.maximum(jnp.linalg.norm(slope), TINY) + 0.3 * offset / jnp.linalg.norm(offset)
    nearby = flat.y_set.project_flat(y + 1e-4 * size * direction)
    probe = evaluate(flat, x, w, nearby, prices)
    length = jnp.linalg.norm(nearby - y)
    per_length = lambda vector: jnp.linalg.norm(vector) / jnp.where(length > 0.0, length, 1.0)  # noqa: E731
    finite = lambda value, other: jnp.where(jnp.isfinite(value) & (value > 0.0), value, other)  # noqa: E731
    jacobian = finite(per_length((probe.constraint - start.constraint) / scale), 1.0)
    violation = jnp.linalg.norm(project_cone(flat, start.constraint) / scale)
    weight = finite(jnp.linalg.norm(start.gradient) / violation, 1.0)
    observed = StepConstants(
        finite(per_length(probe.gradient - start.gradient), 1e-6),
        finite(per_length(probe.pull - start.pull), 0.0),
        jacobian,
        jnp.clip(weight, 1e-4, 1e4),
    )
    known = constants.primal_weight > 0.0
    constants = jax.tree.map(lambda old, new: jnp.where(known, old, new), constants, observed)
    zero, one, infinite, running = jnp.asarray(0), jnp.asarray(1), jnp.asarray(jnp.inf), jnp.asarray(True)
    change = jnp.zeros_like(start.constraint)
    epoch = _Epoch(y, prices, y, prices, start.constraint, change, one, constants, jnp.asarray(False), zero)
    return _State(epoch, scale, y, prices, start.error, y, prices, infinite, y, prices, zero, zero, one, running)


def _try_step(flat: FlatProblem, x: Array, w: Weights, row_scale: Array, e: _Epoch) -> _Epoch:
    """One trial step: taken if its observed constants fit the step lengths, otherwise the constants are raised."""
    c = e.constants
    count = e.taken.astype(e.y.dtype)
    share = 2.0 / (count + 1.0)
    theta = (count - 1.0) / count
    sigma = c.primal_weight / c.jacobian
    inverse_tau = c.curvature * share + c.constraint_curvature + 1.02 * c.primal_weight * c.jacobian
    inverse_tau = jnp.where(e.constraint.size > 0, inverse_tau, c.curvature * share)

    prices = project_cone(flat, e.prices + sigma / row_scale**2 * (e.constraint + theta * e.change))
    middle = e.y_average + share * (e.y - e.y_average)
    value, gradient = jax.value_and_grad(lambda v: objective(flat, x, v, w))(middle)
    _, transpose = jax.vjp(lambda v: constraints(flat, x, v), e.y)
    gradient, pull = exactly(gradient), exactly(transpose(prices)[0])
    y = flat.y_set.project_flat(e.y - (gradient + pull) / inverse_tau)
    move = y - e.y
    y_average = middle + share * move
    constraint = exactly(constraints(flat, x, y))
    change = constraint - e.constraint
    new_value = objective(flat, x, y_average, w)

    # Twice the three terms that 1/tau |move|^2 must dominate.
    square = jnp.dot(move, move)
    bregman = 2.0 * (new_value - value - share * jnp.dot(gradient, move)) / share
    constraint_bregman = 2.0 * (jnp.dot(prices, change) - jnp.dot(pull, move))
    interaction = jnp.sum((change / row_scale) ** 2)
    needed = bregman + constraint_bregman + sigma * interaction
    allowed = inverse_tau * square
    # Differences of values drown in rounding near the solution; there the constants of larger steps stay in force.
    size = jnp.linalg.norm(y) + jnp.linalg.norm(y_average)
    magnitude = (jnp.abs(value) + jnp.abs(new_value) + 0.1 * c.curvature * size**2) / share
    magnitude += jnp.dot(jnp.abs(prices), jnp.abs(constraint) + jnp.abs(e.constraint))
    magnitude += (jnp.linalg.norm(pull) + c.jacobian * jnp.linalg.norm(prices * row_scale)) * size
    trusted = jnp.maximum(needed, allowed) > 1e-14 * magnitude
    finite = jnp.isfinite(needed) & jnp.isfinite(square)
    accept = finite & ((needed <= allowed) | ~trusted)

    per_square = 1.0 / jnp.where(square > 0.0, square, 1.0)
    raised = StepConstants(
        jnp.maximum(c.curvature, 1.1 * bregman * per_square / share),
        jnp.maximum(c.constraint_curvature, 1.1 * constraint_bregman * per_square),
        jnp.maximum(c.jacobian, 1.05 * jnp.sqrt(interaction * per_square)),
        c.primal_weight,
    )
    shortened = c._replace(curvature=10.0 * (c.curvature + inverse_tau / share))
    rejected = jax.tree.map(lambda a, b: jnp.where(finite, a, b), raised, shortened)
    prices_average = e.prices_average + share * (prices - e.prices_average)
    none = jnp.zeros_like(e.rejected)
    taken = _Epoch(y, prices, y_average, prices_average, constraint, change, e.taken + 1, c, trusted, none)
    kept = e._replace(constants=rejected, rejected=e.rejected + 1)
    return jax.tree.map(lambda new, old: jnp.where(accept, new, old), taken, kept)


def _restart(
    flat: FlatProblem, x: Array, state: _State, y: Array, prices: Array, constraint: Array, epoch: _Epoch
) -> _Epoch:
    """A fresh epoch at (y, prices); the travelled distances teach the balance of primal against dual steps."""
    c = epoch.constants
    primal = jnp.linalg.norm(y - state.anchor_y)
    dual = jnp.linalg.norm((prices - state.anchor_prices) * state.row_scale)
    meaningful = (primal > ASKED * (1.0 + jnp.linalg.norm(y))) & (dual > ASKED * (1.0 + jnp.linalg.norm(prices)))
    ratio = jnp.where(meaningful, dual / jnp.where(meaningful, primal, 1.0), c.primal_weight)
    weight = jnp.sqrt(ratio * c.primal_weight)
    # Constants may be too high by now; lowering them a little costs at most a few rejected steps, as long as steps are
    # long enough for the test to notice.
    relax = lambda value, factor: jnp.where(epoch.trusted, factor * value, value)  # noqa: E731
    relaxed = StepConstants(relax(c.curvature, 0.7), relax(c.constraint_curvature, 0.7), relax(c.jacobian, 0.9), weight)
    one = jnp.ones_like(epoch.taken)
    zero = jnp.zeros_like(epoch.rejected)
    return _Epoch(y, prices, y, prices, constraint, jnp.zeros_like(constraint), one, relaxed, epoch.trusted, zero)
