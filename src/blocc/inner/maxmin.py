"""The paper's MaxMin as an inner solver: its lines as printed, or with a stopping test and safeguards around them.

The lines themselves are :mod:`blocc.inner.algorithm_2`. With a fixed number of iterations they are run as published,
and steps given by hand are steps on the Lagrangians as they are written: L_F is not divided by gamma for them.
Otherwise the iteration stops on the KKT residuals, re-estimates its constants as it goes, restarts the momentum when
it points the wrong way, and falls back to smaller steps when the residual grows.

The dual function is ``l^2 / alpha`` smooth (l the norm of the constraints' Jacobian, alpha the strong convexity in
y), so the safe dual step is ``alpha / l^2``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array
from blocc.errors import OptionError
from blocc.flat_problem import FlatProblem
from blocc.inner import algorithm_2
from blocc.inner.algorithm_2 import InnerLagrangian, Iterate
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

#: The public hooks, with the arguments that they are called with.
HOOKS = {
    "primal_update": ("lagrangian", "y", "mu_half", "eta_1"),
    "dual_update": ("lagrangian", "now", "mu_half", "y", "eta_2"),
}
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


class _Point(NamedTuple):
    """An iterate of the adaptive version; its t counts from the last restart of the momentum."""

    at: Iterate
    primal: Array  #: primal step, which may have been shortened


class _State(NamedTuple):
    point: _Point
    steps: _Steps
    caution: Array  #: factor in (0, 1] on the automatic step lengths
    error: Array
    best_error: Array
    best: _Point
    rounds: Array
    derivatives: Array  #: of the Lagrangian in y
    code: Array
    running: Array


def _no_steps() -> _Steps:
    """For where every step is given."""
    return _Steps(jnp.zeros(()), jnp.zeros(()), jnp.asarray(1))


@dataclass(frozen=True, repr=False)
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
    :param primal_update: what stands for :func:`blocc.inner.algorithm_2.primal_update`, with the same arguments
    :param dual_update: likewise for :func:`blocc.inner.algorithm_2.dual_update`; both are traced by JAX
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
    primal_update: Callable[..., Array] = algorithm_2.primal_update
    dual_update: Callable[..., Array] = algorithm_2.dual_update

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
        for name, arguments in HOOKS.items():
            hook = getattr(self, name)
            if not callable(hook):
                raise OptionError(f"{name} must be a function, got {hook!r}")
            try:
                inspect.signature(hook).bind(*arguments)
            except TypeError as error:
                raise OptionError(f"{name} must take ({', '.join(arguments)}): {error}") from None
            except ValueError:  # a function in C tells no signature
                continue

    def __repr__(self) -> str:
        """What was given, with functions by name: the same in every process."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if getattr(self, one.name) != one.default}
        named = {name: getattr(value, "__qualname__", repr(value)) for name, value in given.items()}
        return f"MaxMin({', '.join(f'{name}={value}' for name, value in named.items())})"

    @classmethod
    def single_loop(cls, **options: Any) -> MaxMin:
        """The single-loop version: no momentum and one step in y for each step of the multipliers.

        Converges linearly when gc is affine in y with a Jacobian of full rank, Y is the whole space and the Lagrangian
        is strongly convex in y.
        """
        return cls(accelerated=False, steps_y=1, **options)

    def expects_unscaled(self) -> bool:
        """Whether a step length was given: it is one on the Lagrangian as written, whatever gamma is."""
        return self.primal_step is not None or self.dual_step is not None

    def cold(self, flat: FlatProblem) -> MaxMinWarm:
        """An interior point of Y and no prices."""
        return MaxMinWarm(jnp.asarray(flat.y_set.interior_flat()), zero_multipliers(flat))

    def begin_with(self, flat: FlatProblem, y: AnyArray, multipliers: Multipliers) -> MaxMinWarm:
        """A start with y_0 and mu_0."""
        return MaxMinWarm(jnp.asarray(y), Multipliers(*map(jnp.asarray, multipliers)))

    def solve(self, flat: FlatProblem, x: Array, weights: Weights, warm: MaxMinWarm, tolerance: Array) -> InnerSolution:
        """Solve at ``x``: T iterations where ``iterations`` is given, otherwise until the residuals are small."""
        y, mu = flat.y_set.project_flat(warm.y), project_cone(flat, stack(warm.multipliers))
        start = Iterate(y, mu, mu, jnp.asarray(0))
        if self.iterations is not None:
            return self._solve_published(flat, x, weights, start, tolerance)
        return self._solve_adaptive(flat, x, weights, start, tolerance)

    def first_iterate(self, flat: FlatProblem) -> Iterate:
        """Where the published iteration begins from a cold start; see :meth:`iterate`."""
        cold = self.cold(flat)
        mu = stack(cold.multipliers)
        return Iterate(cold.y, mu, mu, jnp.asarray(0))

    def iterate(self, flat: FlatProblem, x: Array, w: Weights, now: Iterate) -> Iterate:
        """One published iteration, for whoever wants to see its way; all steps and ``steps_y`` must be given."""
        if None in (self.steps_y, self.primal_step, self.dual_step):
            raise OptionError("steps_y, primal_step and dual_step must be given to iterate one step at a time")
        return self._published(inner_lagrangian(flat, x, w), now, self._fill(_no_steps(), w))

    # --- the algorithm as published ------------------------------------------------------------------------------
    def _published(self, lagrangian: InnerLagrangian, now: Iterate, steps: _Steps) -> Iterate:
        primal, dual = self._primal, self._dual
        return algorithm_2.iterate(lagrangian, now, *steps, accelerated=self.accelerated, primal=primal, dual=dual)

    def _primal(self, lagrangian: InnerLagrangian, y: Array, mu_half: Array, eta_1: Array) -> Array:
        return _like("primal_update", self.primal_update(lagrangian, y, mu_half, eta_1), "y", y)

    def _dual(self, lagrangian: InnerLagrangian, now: Iterate, mu_half: Array, y: Array, eta_2: Array) -> Array:
        return _like("dual_update", self.dual_update(lagrangian, now, mu_half, y, eta_2), "mu", now.mu)

    def _solve_published(
        self, flat: FlatProblem, x: Array, w: Weights, start: Iterate, tolerance: Array
    ) -> InnerSolution:
        given = None not in (self.steps_y, self.primal_step, self.dual_step)
        steps = self._fill(_no_steps() if given else self._estimate(flat, x, w, start), w)
        count, lagrangian = jnp.asarray(_pick(self.iterations, w)), inner_lagrangian(flat, x, w)
        end = jax.lax.fori_loop(0, count, lambda _, now: self._published(lagrangian, now, steps), start)
        error = evaluate(flat, x, w, end.y, end.mu).error
        false = jnp.asarray(False)
        code = verdict(error <= tolerance, false, false, ~jnp.isfinite(error))
        return self._finish(flat, x, w, end, count, count * steps.repeats, code)

    # --- with stopping test and safeguards ------------------------------------------------------------------------
    def _solve_adaptive(
        self, flat: FlatProblem, x: Array, w: Weights, start: Iterate, tolerance: Array
    ) -> InnerSolution:
        lagrangian = inner_lagrangian(flat, x, w)

        def look(y: Array, mu: Array) -> Assessment:
            return evaluate(flat, x, w, y, mu)

        def advance(state: _State) -> _State:
            fresh = state.rounds % self.estimate_every == 0
            steps = jax.lax.cond(fresh, lambda: self._estimate(flat, x, w, state.point.at), lambda: state.steps)
            primal = jnp.where(fresh, state.caution * steps.primal, state.point.primal)
            used = self._fill(_Steps(primal, state.caution * steps.dual, steps.repeats), w)
            before = state.point._replace(primal=used.primal)
            now = jax.lax.fori_loop(
                0, self.check_every, lambda _, point: self._adaptive(lagrangian, point, used), before
            )
            ray = rays(flat, now.at.y, now.at.mu, before.at.y, before.at.mu)
            # One batched evaluation: the iterate, the multiplier ray at it, and the far end of the y ray.
            ys = jnp.stack([now.at.y, now.at.y, now.at.y + ray.length * ray.y])
            points = jax.vmap(look)(ys, jnp.stack([now.at.mu, ray.prices, now.at.mu]))
            here, priced, far = (jax.tree.map(lambda leaf, i=i: leaf[i], points) for i in range(3))
            code = verdict(
                here.error <= tolerance,
                is_infeasible(flat, now.at.y, ray, priced),
                is_unbounded(flat, now.at.y, ray, here, far),
                jnp.asarray(False),
            )
            # A residual that doubles means steps too long; one that explodes also means a way back to the best point.
            # Smaller rises are the normal waves of a method that is not monotone.
            grew = here.error > 2.0 * state.error
            lost = ~(here.error <= 1e3 * (1.0 + state.best_error))
            better = here.error <= state.best_error
            best = jax.tree.map(lambda new, old: jnp.where(better, new, old), now, state.best)
            now = now._replace(at=_restarted(now.at, grew))
            now = jax.tree.map(lambda new, old: jnp.where(lost, old, new), now, best)
            caution = jnp.where(grew, 0.5 * state.caution, jnp.minimum(1.2 * state.caution, 1.0))
            caution = jnp.where(lost, 0.1 * state.caution, caution)
            now = now._replace(primal=jnp.where(lost, caution * steps.primal, now.primal))
            rounds = state.rounds + 1
            return _State(
                point=now,
                steps=steps,
                caution=caution,
                error=jnp.where(lost, state.best_error, here.error),
                best_error=jnp.where(better, here.error, state.best_error),
                best=best,
                rounds=rounds,
                derivatives=state.derivatives + self.check_every * used.repeats,
                code=code,
                running=(code == InnerCode.STALLED)
                & (rounds * self.check_every < self.max_iterations)
                & (caution > 1e-12),
            )

        first = look(start.y, start.mu).error
        false, none = jnp.asarray(False), jnp.asarray(0)
        code = verdict(first <= tolerance, false, false, ~jnp.isfinite(first))
        begun = _Point(start, jnp.zeros(()))
        running = code == InnerCode.STALLED
        state = _State(begun, _no_steps(), jnp.ones(()), first, first, begun, none, none, code, running)
        state = jax.lax.while_loop(lambda s: s.running, advance, state)
        ended = jax.tree.map(
            lambda now, best: jnp.where(state.code == InnerCode.STALLED, best, now), state.point.at, state.best.at
        )
        return self._finish(flat, x, w, ended, state.rounds * self.check_every, state.derivatives, state.code)

    def _adaptive(self, lagrangian: InnerLagrangian, now: _Point, steps: _Steps) -> _Point:
        """One iteration with backtracking in y and restarts of the momentum."""
        half = algorithm_2.extrapolate(now.at) if self.accelerated else now.at.mu
        if self.primal_step is None and self.primal_update is algorithm_2.primal_update:
            y, primal = _descended(lagrangian, now, half, steps.repeats)
        else:
            primal = now.primal
            step = lambda _, y: self._primal(lagrangian, y, half, primal)  # noqa: E731
            y = jax.lax.fori_loop(0, steps.repeats, step, now.at.y)
        mu = self._dual(lagrangian, now.at, half, y, steps.dual)
        following = Iterate(y, mu, now.at.mu, now.at.t + 1)
        if self.accelerated:
            # Momentum that carries the multipliers against the ascent direction has become a hindrance.
            following = _restarted(following, jnp.dot(mu - half, mu - now.at.mu) < 0.0)
        return _Point(following, primal)

    # --- parts ----------------------------------------------------------------------------------------------------
    def _estimate(self, flat: FlatProblem, x: Array, w: Weights, now: Iterate) -> _Steps:
        """Safe steps from the constants at the iterate."""
        multipliers = unstack(flat, now.mu)
        found = estimate_constants(flat, x, now.y, multipliers, w)
        slope = exactly(gradient_y(flat, x, now.y, multipliers, w))
        # Power iteration errs low; and where L is linear in y the step is bounded by the size of y instead.
        floor = 1e-2 * jnp.linalg.norm(slope) / (1.0 + jnp.linalg.norm(now.y)) + 1e-12
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

    def _finish(
        self, flat: FlatProblem, x: Array, w: Weights, end: Iterate, iterations: Array, derivatives: Array, code: Array
    ) -> InnerSolution:
        multipliers = unstack(flat, end.mu)
        counted = {"iterations": iterations, "derivatives": derivatives}
        return finish(flat, x, end.y, multipliers, w, **counted, code=code, warm=MaxMinWarm(end.y, multipliers))


def inner_lagrangian(flat: FlatProblem, x: Array, w: Weights) -> InnerLagrangian:
    """L_g or L_F at ``x``, as Algorithm 2 sees it."""
    return InnerLagrangian(
        gradient_y=lambda y, mu: exactly(gradient_y(flat, x, y, unstack(flat, mu), w)),
        gradient_mu=lambda y: constraints(flat, x, y),
        project_y=flat.y_set.project_flat,
        project_mu=lambda mu: project_cone(flat, mu),
    )


def _like(name: str, found: Any, what: str, wanted: Array) -> Array:
    """What a hook returned, refused where it cannot stand for ``wanted``."""
    is_array = isinstance(found, (jax.Array, np.ndarray))
    if not is_array or (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        got = f"shape {found.shape} of {found.dtype}" if is_array else f"{type(found).__name__}"
        raise OptionError(f"{name} must return {what}, shape {wanted.shape} of {wanted.dtype}; it returned {got}")
    return jnp.asarray(found)


def _restarted(at: Iterate, when: Array) -> Iterate:
    """The momentum gone. At t = 0 its factor is -1/2: with the old multipliers that would be a half step back."""
    return at._replace(t=jnp.where(when, 0, at.t), mu_before=jnp.where(when, at.mu, at.mu_before))


def _descended(lagrangian: InnerLagrangian, now: _Point, half: Array, repeats: Array) -> tuple[Array, Array]:
    """Steps in y, each taken again where it was too long; y and the step length at the end."""

    def descend(_: Array, carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        y, before, slope_before, step = carry
        gradient = lagrangian.gradient_y(y, half)
        # The last step was too long if the gradient changed along it by more than 1 / step.
        move = y - before
        square = jnp.dot(move, move)
        change = jnp.dot(gradient - slope_before, move)
        noticeable = square > 1e-18 * (1.0 + jnp.dot(y, y))
        wrong = (noticeable & (change * step > 1.01 * square)) | ~jnp.isfinite(gradient).all()
        step = jnp.where(wrong, jnp.where(jnp.isfinite(change), 0.9 * square / change, 0.1 * step), step)
        y, gradient = jnp.where(wrong, before, y), jnp.where(wrong, slope_before, gradient)
        return lagrangian.project_y(y - step * gradient), y, gradient, step

    start = (now.at.y, now.at.y, jnp.zeros_like(now.at.y), now.primal)
    y, _, _, primal = jax.lax.fori_loop(0, repeats, descend, start)
    return y, primal


def _each(given: Any, paired: bool = True) -> tuple[Any, ...]:
    """The values of an option: none, one, or those of a pair; anything else is left for the check to refuse."""
    if given is None:
        return ()
    return given if paired and isinstance(given, tuple) and len(given) == 2 else (given,)


def _pick(given: Any, w: Weights) -> Any:
    """The number itself; of a pair the one for L_g, which has no f in it, or the one for L_F."""
    return jnp.where(w.upper == 0.0, *given) if isinstance(given, tuple) else given
