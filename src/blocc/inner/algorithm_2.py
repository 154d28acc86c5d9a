"""The paper's inner solver (its Algorithm 2): projected gradient ascent in the multipliers, descent in y.

For t = 0, 1, ...: extrapolate the multipliers with momentum (accelerated version only), take ``steps_y`` projected
gradient steps in y on the Lagrangian at the extrapolated multipliers, then one step of the multipliers along the
constraints:

    half     = mu_t + (t - 1)/(t + 2) (mu_t - mu_{t-1})
    y        <- P_Y(y - primal_step dL/dy(y, half))            steps_y times
    mu_{t+1} = [half + dual_step gc(y)]_+                      (without [.]_+ for equalities)

The dual function is ``l^2 / alpha`` smooth (l the norm of the constraints' Jacobian, alpha the strong convexity in
y), so the safe dual step is ``alpha / l^2``. With a fixed number of iterations this is the algorithm as published, and
steps given by hand are steps on the Lagrangians as they are written: L_F is not divided by gamma for them.
Otherwise it stops on the KKT residuals, re-estimates its constants as it goes, restarts the momentum when it points
the wrong way, and falls back to smaller steps when the residual grows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from blocc._lib.arrays import Array
from blocc.errors import OptionError
from blocc.flat_problem import FlatProblem
from blocc.inner.first_order import (
    Assessment,
    constraints,
    estimate_constants,
    evaluate,
    is_infeasible,
    is_unbounded,
    project_cone,
    rays,
    stack,
    unstack,
    verdict,
)
from blocc.inner.protocol import InnerCode, InnerOracle, InnerSolution, finish
from blocc.lagrangian import Multipliers, Weights, exactly, gradient_y, zero_multipliers

#: A number for both Lagrangians, or one for L_g and one for L_F: Algorithm 1 has eta_g, T_g and eta_F, T_F.
Count = int | tuple[int, int]
Length = float | tuple[float, float]


class MaxMinWarm(NamedTuple):
    """What the next, nearby solve starts from: the last saddle point."""

    y: Array
    multipliers: Multipliers


class _Steps(NamedTuple):
    primal: Array
    dual: Array
    repeats: Array  #: steps in y for each step of the multipliers


class _Iterate(NamedTuple):
    y: Array
    prices: Array
    previous: Array  #: prices one iteration ago
    age: Array  #: iterations since the momentum was last reset: the paper's t
    primal: Array  #: primal step; automatic mode may shorten it


class _State(NamedTuple):
    iterate: _Iterate
    steps: _Steps
    caution: Array  #: factor in (0, 1] on the automatic step lengths
    error: Array
    best_error: Array
    best: _Iterate
    rounds: Array
    code: Array
    running: Array


@dataclass(frozen=True)
class MaxMin(InnerOracle):
    """Algorithm 2 of the BLOCC paper, "MaxMin(T, T_y)".

    ``steps_y``, ``primal_step``, ``dual_step`` and ``iterations`` may be pairs: for L_g, and for L_F.

    :param accelerated: momentum on the multipliers; for general convex gc
    :param steps_y: T_y, gradient steps in y for each step of the multipliers; None: about the condition number of the
        Lagrangian in y, at most ``max_steps_y``
    :param primal_step: step length in y, on L_g and L_F as they are written; None: 1 / (Lipschitz constant of dL/dy)
    :param dual_step: step length of the multipliers, likewise; None: strong convexity / (norm of the Jacobian)^2
    :param iterations: T, the paper's fixed count, without any stopping test, restart or safeguard; None: stop on the
        KKT residuals
    :param max_iterations: most steps of the multipliers when ``iterations`` is None
    :param check_every: steps of the multipliers between two looks at the residuals
    :param estimate_every: looks at the residuals between two estimates of the constants
    """

    #: Digits beyond this cost too many iterations to be asked for.
    finest = 1e-10

    accelerated: bool = True
    steps_y: Count | None = None
    primal_step: Length | None = None
    dual_step: Length | None = None
    iterations: Count | None = None
    max_iterations: int = 20_000
    max_steps_y: int = 50
    check_every: int = 20
    estimate_every: int = 5

    def __post_init__(self) -> None:
        for name in ("steps_y", "iterations", "max_iterations", "max_steps_y", "check_every", "estimate_every"):
            given = getattr(self, name)
            paired = name in ("steps_y", "iterations")
            if not all(isinstance(value, int) and value >= 1 for value in _each(given, paired)):
                or_pair = ", or a pair of them for L_g and L_F" if paired else ""
                raise OptionError(f"{name} must be a positive integer{or_pair}, got {given!r}")
        for name in ("primal_step", "dual_step"):
            given = getattr(self, name)
            if not all(isinstance(value, int | float) and 0.0 < value < float("inf") for value in _each(given)):
                raise OptionError(f"{name} must be a positive number, or a pair of them for L_g and L_F, got {given!r}")

    @classmethod
    def single_loop(cls, **options: Any) -> MaxMin:
        """The single-loop version: no momentum and one step in y for each step of the multipliers.

        Converges linearly when gc is affine in y with a Jacobian of full rank, Y is the whole space and the Lagrangian
        is strongly convex in y.
        """
        return cls(accelerated=False, steps_y=1, **options)

    def takes_as_written(self) -> bool:
        """Whether a step length was given: it is one on the Lagrangian as written, whatever gamma is."""
        return self.primal_step is not None or self.dual_step is not None

    def cold(self, flat: FlatProblem) -> MaxMinWarm:
        """An interior point of Y and no prices."""
        return MaxMinWarm(jnp.asarray(flat.y_set.interior_flat()), zero_multipliers(flat))

    def solve(self, flat: FlatProblem, x: Array, weights: Weights, warm: MaxMinWarm, tolerance: Array) -> InnerSolution:
        """Solve at ``x``: T iterations where ``iterations`` is given, otherwise until the residuals are small."""
        y = flat.y_set.project_flat(warm.y)
        prices = project_cone(flat, stack(warm.multipliers))
        start = _Iterate(y, prices, prices, jnp.asarray(0), jnp.zeros(()))
        if self.iterations is not None:
            return self._solve_published(flat, x, weights, start, tolerance)
        return self._solve_adaptive(flat, x, weights, start, tolerance)

    def first_iterate(self, flat: FlatProblem) -> _Iterate:
        """Where the published iteration begins from a cold start; see :meth:`iterate`."""
        cold = self.cold(flat)
        prices = stack(cold.multipliers)
        return _Iterate(cold.y, prices, prices, jnp.asarray(0), jnp.asarray(0.0, dtype=prices.dtype))

    def iterate(self, flat: FlatProblem, x: Array, w: Weights, iterate: _Iterate) -> _Iterate:
        """One published iteration, for whoever wants to see its way; all steps and ``steps_y`` must be given."""
        if None in (self.steps_y, self.primal_step, self.dual_step):
            raise OptionError("steps_y, primal_step and dual_step must be given to iterate one step at a time")
        steps = self._fill(_Steps(jnp.zeros(()), jnp.zeros(()), jnp.asarray(1)), w)
        return self._iterate(flat, x, w, iterate._replace(primal=steps.primal), steps, adaptive=False)

    # --- the algorithm as published ------------------------------------------------------------------------------
    def _solve_published(
        self, flat: FlatProblem, x: Array, w: Weights, start: _Iterate, tolerance: Array
    ) -> InnerSolution:
        given = None not in (self.steps_y, self.primal_step, self.dual_step)
        nothing = _Steps(jnp.zeros(()), jnp.zeros(()), jnp.asarray(1))
        steps = self._fill(nothing if given else self._estimate(flat, x, w, start), w)
        iterations = _pick(self.iterations, w)
        end = jax.lax.fori_loop(
            0,
            iterations,
            lambda _, iterate: self._iterate(flat, x, w, iterate, steps, adaptive=False),
            start._replace(primal=steps.primal),
        )
        error = evaluate(flat, x, w, end.y, end.prices).error
        false = jnp.asarray(False)
        code = verdict(error <= tolerance, false, false, ~jnp.isfinite(error))
        return self._finish(flat, x, w, end, jnp.asarray(iterations), code)

    # --- with stopping test and safeguards ------------------------------------------------------------------------
    def _solve_adaptive(
        self, flat: FlatProblem, x: Array, w: Weights, start: _Iterate, tolerance: Array
    ) -> InnerSolution:
        def look(y: Array, prices: Array) -> Assessment:
            return evaluate(flat, x, w, y, prices)

        def advance(state: _State) -> _State:
            fresh = state.rounds % self.estimate_every == 0
            steps = jax.lax.cond(fresh, lambda: self._estimate(flat, x, w, state.iterate), lambda: state.steps)
            primal = jnp.where(fresh, state.caution * steps.primal, state.iterate.primal)
            used = self._fill(_Steps(primal, state.caution * steps.dual, steps.repeats), w)
            before = state.iterate._replace(primal=used.primal)
            now = jax.lax.fori_loop(
                0, self.check_every, lambda _, it: self._iterate(flat, x, w, it, used, adaptive=True), before
            )
            ray = rays(flat, now.y, now.prices, before.y, before.prices)
            # One batched evaluation: the iterate, the price ray at it, and the far end of the y ray.
            ys = jnp.stack([now.y, now.y, now.y + ray.length * ray.y])
            points = jax.vmap(look)(ys, jnp.stack([now.prices, ray.prices, now.prices]))
            here, priced, far = (jax.tree.map(lambda leaf, i=i: leaf[i], points) for i in range(3))
            code = verdict(
                here.error <= tolerance,
                is_infeasible(flat, now.y, ray, priced),
                is_unbounded(flat, now.y, ray, here, far),
                jnp.asarray(False),
            )
            # A residual that doubles means steps too long; one that explodes also means a way back to the best point.
            # Smaller rises are the normal waves of a method that is not monotone.
            grew = here.error > 2.0 * state.error
            lost = ~(here.error <= 1e3 * (1.0 + state.best_error))
            better = here.error <= state.best_error
            best = jax.tree.map(lambda new, old: jnp.where(better, new, old), now, state.best)
            now = now._replace(age=jnp.where(grew, 0, now.age), previous=jnp.where(grew, now.prices, now.previous))
            now = jax.tree.map(lambda new, old: jnp.where(lost, old, new), now, best)
            caution = jnp.where(grew, 0.5 * state.caution, jnp.minimum(1.2 * state.caution, 1.0))
            caution = jnp.where(lost, 0.1 * state.caution, caution)
            now = now._replace(primal=jnp.where(lost, caution * steps.primal, now.primal))
            rounds = state.rounds + 1
            return _State(
                iterate=now,
                steps=steps,
                caution=caution,
                error=jnp.where(lost, state.best_error, here.error),
                best_error=jnp.where(better, here.error, state.best_error),
                best=best,
                rounds=rounds,
                code=code,
                running=(code == InnerCode.STALLED)
                & (rounds * self.check_every < self.max_iterations)
                & (caution > 1e-12),
            )

        first = look(start.y, start.prices).error
        false = jnp.asarray(False)
        code = verdict(first <= tolerance, false, false, ~jnp.isfinite(first))
        steps = _Steps(jnp.zeros(()), jnp.zeros(()), jnp.asarray(1))
        running = code == InnerCode.STALLED
        state = _State(start, steps, jnp.ones(()), first, first, start, jnp.asarray(0), code, running)
        state = jax.lax.while_loop(lambda s: s.running, advance, state)
        ended = jax.tree.map(
            lambda now, best: jnp.where(state.code == InnerCode.STALLED, best, now), state.iterate, state.best
        )
        return self._finish(flat, x, w, ended, state.rounds * self.check_every, state.code)

    # --- parts ----------------------------------------------------------------------------------------------------
    def _estimate(self, flat: FlatProblem, x: Array, w: Weights, iterate: _Iterate) -> _Steps:
        """Safe steps from the constants at the iterate."""
        multipliers = unstack(flat, iterate.prices)
        found = estimate_constants(flat, x, iterate.y, multipliers, w)
        slope = exactly(gradient_y(flat, x, iterate.y, multipliers, w))
        # Power iteration errs low; and where L is linear in y the step is bounded by the size of y instead.
        floor = 1e-2 * jnp.linalg.norm(slope) / (1.0 + jnp.linalg.norm(iterate.y)) + 1e-12
        lipschitz = 1.05 * jnp.maximum(found.lipschitz, floor)
        convexity = jnp.maximum(found.strong_convexity, 1e-4 * lipschitz)
        dual = convexity / jnp.maximum(1.05 * found.jacobian_norm, 1e-6 * jnp.sqrt(convexity)) ** 2
        count = jnp.clip(jnp.ceil(lipschitz / convexity), 1, self.max_steps_y).astype(int)
        return _Steps(1.0 / lipschitz, dual, count)

    def _fill(self, automatic: _Steps, w: Weights) -> _Steps:
        """The given steps, and the automatic ones where none is given."""

        def choose(given: Length | None, found: Array) -> Array:
            return found if given is None else jnp.asarray(_pick(given, w), dtype=found.dtype)

        return _Steps(
            choose(self.primal_step, automatic.primal),
            choose(self.dual_step, automatic.dual),
            choose(self.steps_y, automatic.repeats),
        )

    def _iterate(
        self, flat: FlatProblem, x: Array, w: Weights, now: _Iterate, steps: _Steps, adaptive: bool
    ) -> _Iterate:
        """One iteration of Algorithm 2; ``adaptive`` adds the backtracking in y and the restart of the momentum."""
        half = now.prices
        if self.accelerated:
            half = half + (now.age - 1.0) / (now.age + 2.0) * (now.prices - now.previous)
        slope = lambda y: gradient_y(flat, x, y, unstack(flat, half), w)  # noqa: E731

        def descend(_: Array, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
            y, before, slope_before, step = carry
            gradient = exactly(slope(y))
            if adaptive and self.primal_step is None:
                # The last step was too long if the gradient changed along it by more than 1 / step: take it again.
                move = y - before
                square = jnp.dot(move, move)
                change = jnp.dot(gradient - slope_before, move)
                noticeable = square > 1e-18 * (1.0 + jnp.dot(y, y))
                wrong = (noticeable & (change * step > 1.01 * square)) | ~jnp.isfinite(gradient).all()
                step = jnp.where(wrong, jnp.where(jnp.isfinite(change), 0.9 * square / change, 0.1 * step), step)
                y, gradient = jnp.where(wrong, before, y), jnp.where(wrong, slope_before, gradient)
            return flat.y_set.project_flat(y - step * gradient), y, gradient, step

        nowhere = jnp.zeros_like(now.y)
        y, _, _, primal = jax.lax.fori_loop(0, steps.repeats, descend, (now.y, now.y, nowhere, now.primal))
        prices = project_cone(flat, half + steps.dual * constraints(flat, x, y))
        age, previous = now.age + 1, now.prices
        if adaptive and self.accelerated:
            # Momentum that carries the multipliers against the ascent direction has become a hindrance. A restart
            # begins at the new prices: at age 0 the factor is -1/2, and with the old ones would be a half step back.
            restart = jnp.dot(prices - half, prices - now.prices) < 0.0
            age, previous = jnp.where(restart, 0, age), jnp.where(restart, prices, previous)
        return _Iterate(y, prices, previous, age, primal)

    def _finish(
        self, flat: FlatProblem, x: Array, w: Weights, end: _Iterate, iterations: Array, code: Array
    ) -> InnerSolution:
        multipliers = unstack(flat, end.prices)
        warm = MaxMinWarm(end.y, multipliers)
        return finish(flat, x, end.y, multipliers, w, iterations=iterations, code=code, warm=warm)


def _each(given: Any, paired: bool = True) -> tuple[Any, ...]:
    """The values of an option: none, one, or those of a pair; anything else is left for the check to refuse."""
    if given is None:
        return ()
    return given if paired and isinstance(given, tuple) and len(given) == 2 else (given,)


def _pick(given: Any, w: Weights) -> Any:
    """The number itself; of a pair the one for L_g, which has no f in it, or the one for L_F."""
    return jnp.where(w.upper == 0.0, *given) if isinstance(given, tuple) else given
