"""``theory(problem, x0, epsilon)``: what the paper's theorems bound on a problem of the user's, beside measurements.

Lemma 1 (quadratic growth), Theorem 1 (F_gamma against the bilevel problem), Theorem 2 (the mean of |G|^2 on the way of
Algorithm 1) and Theorems 3 and 4 (Algorithm 2 from a cold start), each as a curve beside its bound. The bounds are made
of constants that are measured themselves (:mod:`blocc.judge.constants`): a measured curve above its bound says that a
constant was seen too small, or that an assumption fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, Float, NDArray, PyTree
from blocc._lib.precision import double_precision
from blocc._lib.rounding import KEPT
from blocc.flat_problem import FlatProblem
from blocc.judge.constants import Constants, Measurement, Point, Side
from blocc.judge.curvature import feasible_samples
from blocc.judge.iterations import Pair, Steps, algorithm_one, cold, descend, path, rows, split
from blocc.judge.suggest import Suggestion, measured
from blocc.lagrangian import Weights, lagrangian
from blocc.problem import BilevelProblem

GROWTH_SAMPLES = 50  #: members of Y(x) at each point, for Lemma 1
GAMMAS = 7  #: between the least that the theorems allow and the suggested one times ten
OUTER, INNER = 1_000, 1_000  #: iterations of Algorithms 1 and 2 that are followed, at most
DERIVATIVES = 20_000_000  #: in y, that following Algorithm 1 may take
ROUNDING = 1e-13  #: of values near 1: less than this is indistinguishable from zero


@dataclass(frozen=True)
class Curve:
    """Something measured beside its bound, over the numbers of one axis."""

    statement: str  #: of the paper, with its place
    axis: str
    at: Float[NDArray, "points"]
    measured: Float[NDArray, "points"]
    bound: Float[NDArray, "points"]
    floor: float = ROUNDING  #: what rounding and the accuracy of the exact answers leave

    @property
    def holds(self) -> bool:
        """Whether the bound is kept everywhere."""
        return bool((self.measured <= self.bound * (1.0 + KEPT) + self.floor).all())

    @property
    def power(self) -> float:
        """The fitted power of the axis in what was measured, over its last decade; NaN where there is too little."""
        kept = (self.measured > 10.0 * self.floor) & (self.at >= 0.1 * self.at.max(initial=0.0)) & (self.at > 0.0)
        if kept.sum() < 3:
            return float("nan")
        return float(np.polyfit(np.log(self.at[kept]), np.log(self.measured[kept]), 1)[0])


@dataclass(frozen=True)
class Theory:
    """Constants of a problem, the numbers that the theorems give out of them, and measured curves with their bounds."""

    suggestion: Suggestion
    curves: dict[str, Curve] = field(repr=False)

    @property
    def constants(self) -> Constants:
        """What was measured."""
        return self.suggestion.constants

    def __str__(self) -> str:
        found, lines = self.constants, []
        lines.append(
            f"gamma {found.gamma:.3g}: alpha_g {found.strong_convexity:.3g}, l_f,0 {found.slope:.3g}, "
            f"l_f,1 {found.curvature:.3g}, l_F {found.smoothness:.3g}"
        )
        for name, side in (("L_g", found.follower), ("L_F", found.penalised)):
            lines.append(
                f"{name}: modulus {side.modulus:.3g}, curvature {side.smoothness:.3g}, Jacobian {side.jacobian:.3g}, "
                f"multipliers {side.multipliers:.3g}, C {side.dual_convexity:.3g}"
            )
        for curve in self.curves.values():
            verdict = "bound kept" if curve.holds else "BOUND BROKEN"
            lines.append(f"{curve.statement}: {verdict}; at {curve.axis} {curve.at[-1]:.3g}: {_ends(curve)}")
        return "\n".join(lines)


def _ends(curve: Curve) -> str:
    return f"{curve.measured[-1]:.3g}, bound {curve.bound[-1]:.3g}"


def theory(problem: BilevelProblem, x0: PyTree | None = None, *, epsilon: float, seed: int = 0) -> Theory:
    """Constants, bounds and measured curves at the accuracy ``epsilon``, which :func:`blocc.suggest` promises."""
    with double_precision():
        suggestion, measurement, points = measured(problem, x0, epsilon, seed)
        found = suggestion.constants
        curves = {
            "growth": growth(measurement, points, found),
            "distance": distances(measurement, points, suggestion),
            "hidden": hidden(measurement, points, suggestion),
            "outer": outer(measurement, suggestion),
        }
        for penalised, name in ((False, "follower"), (True, "penalised")):
            if _side(suggestion, penalised).jacobian == 0.0:
                continue
            farthest = max(points, key=lambda point: float(np.linalg.norm(point.answer(penalised)[1])))
            curves[f"accelerated-{name}"] = accelerated(measurement, farthest, suggestion, penalised)
            if measurement.is_affine:
                curves[f"plain-{name}"] = plain(measurement, farthest, suggestion, penalised)
        return Theory(suggestion, curves)


def growth(measurement: Measurement, points: Sequence[Point], found: Constants) -> Curve:
    """Lemma 1: alpha_g / 2 |y - yg|^2 <= g(x, y) - v(x) for y in Y(x)."""
    flat, squares, excess = measurement.flat, [], []
    value = flat.program(_lower)
    for point in points:
        y = point.answer(False)[0]
        least = float(value(point.x, y))
        for other in feasible_samples(flat, point.x, y, GROWTH_SAMPLES, measurement.seed)[1:]:
            squares.append(0.5 * found.strong_convexity * float(((other - y) ** 2).sum()))
            excess.append(float(value(point.x, other)) - least)
    order = np.argsort(squares)
    at = np.sqrt(2.0 * np.array(squares)[order] / found.strong_convexity)
    # What is measured is the square, and g - v is its bound.
    return Curve("Lemma 1", "|y - yg|", at, np.array(squares)[order], np.array(excess)[order], 1e-9)


def distances(measurement: Measurement, points: Sequence[Point], suggestion: Suggestion) -> Curve:
    """Theorem 1: |yF - yg|^2 falls like gamma^-2; the largest at any point."""
    gammas = _gammas(suggestion)
    seen = [
        max(float(one.found.distance) ** 2 for point in points if (one := measurement.at(point.x, gamma)) is not None)
        for gamma in gammas
    ]
    bounds = [suggestion.constants.distance(gamma) ** 2 for gamma in gammas]
    return Curve("Theorem 1, |yF - yg|^2", "gamma", gammas, np.array(seen), np.array(bounds), 1e-12)


def hidden(measurement: Measurement, points: Sequence[Point], suggestion: Suggestion) -> Curve:
    """Theorem 1: F_gamma(x) is below f(x, yg(x)) by no more than l_f,0^2 / (2 (gamma alpha_g - l_f,1))."""
    gammas = _gammas(suggestion)
    seen = []
    for gamma in gammas:
        found = [one.found for point in points if (one := measurement.at(point.x, gamma)) is not None]
        seen.append(max(float(one.upper_follower) - float(one.value) for one in found))
    bounds = [suggestion.constants.hidden(gamma) for gamma in gammas]
    return Curve("Theorem 1, f(x, yg) - F_gamma(x)", "gamma", gammas, np.array(seen), np.array(bounds), 1e-8)


def _gammas(suggestion: Suggestion) -> NDArray:
    found = suggestion.constants
    least = max(1.0, 2.0 * found.curvature / found.strong_convexity)
    return np.geomspace(least, max(10.0 * suggestion.gamma, 10.0 * least), GAMMAS)


def outer(measurement: Measurement, suggestion: Suggestion, steps: int = OUTER) -> Curve:
    """Theorem 2: the mean of |G|^2 over the first T steps of Algorithm 1 with Algorithm 2 inside, as suggested."""
    work = sum(a * b for a, b in zip(suggestion.inner_iterations, suggestion.steps_y, strict=True))
    count = max(min(suggestion.iterations, steps, DERIVATIVES // work), 1)
    squares = np.asarray(descent(measurement, suggestion, count).squares)
    at = np.unique(np.geomspace(1, count, 40).astype(int))
    means = (np.cumsum(squares) / np.arange(1, count + 1))[at - 1]
    found = suggestion.constants
    bound = 4.0 * found.decrease * found.smoothness / at + 0.5 * suggestion.epsilon
    return Curve("Theorem 2, mean of |G|^2", "T", at.astype(float), means, bound)


def descent(measurement: Measurement, suggestion: Suggestion, count: int) -> Any:
    """``count`` steps of Algorithm 1 with the suggested numbers."""
    sides = tuple(
        (measurement.weights(k, suggestion.gamma), suggestion.steps(k), suggestion.inner_iterations[k])
        for k in (False, True)
    )
    run = measurement.flat.program(algorithm_one, count, is_loop=True)
    return run(measurement.start, sides, suggestion.gamma, suggestion.eta)


def accelerated(measurement: Measurement, point: Point, suggestion: Suggestion, penalised: bool) -> Curve:
    """Theorem 3: D* - D(mu_t) <= 2 l_D |mu* - mu_0|^2 / (t + 1)^2 from a cold start."""
    side = _side(suggestion, penalised)
    at, _, values = inner(measurement, point, suggestion, penalised, momentum=True)
    start = float(np.linalg.norm(point.answer(penalised)[1]))
    bound = 2.0 * side.dual_smoothness * start**2 / (at + 1.0) ** 2
    return Curve(f"Theorem 3, {_name(penalised)}: dual gap", "t", at, values, bound, 1e-9 * (1.0 + side.multipliers))


def plain(measurement: Measurement, point: Point, suggestion: Suggestion, penalised: bool) -> Curve:
    """gc affine, Y the whole space, no momentum: |mu_t - mu*|^2 <= (1 - C / l_D)^t |mu_0 - mu*|^2, C = s_min^2 / l.

    Theorem 4 makes one step in y for each of the multipliers; T_y of them follow the dual function itself.
    """
    side, (y, mu) = _side(suggestion, penalised), point.answer(penalised)
    at, pairs, _ = inner(measurement, point, suggestion, penalised, momentum=False)
    squares = ((np.asarray(pairs.mu) - mu) ** 2).sum(axis=1)
    jacobian = np.asarray(measurement.flat.program(_jacobian)(point.x, y))
    least = float(np.linalg.svd(jacobian, compute_uv=False)[-1]) if len(jacobian) <= jacobian.shape[1] else 0.0
    rate: float = 1.0 - least**2 / side.smoothness / side.dual_smoothness
    bound = np.power(rate, at) * float((mu**2).sum())
    name = f"linear rate of the dual, {_name(penalised)}: |mu - mu*|^2"
    return Curve(name, "t", at, squares, bound, 1e-9 * (1.0 + float(mu @ mu)))


def inner(
    measurement: Measurement, point: Point, suggestion: Suggestion, penalised: bool, *, momentum: bool
) -> tuple[NDArray, Pair, NDArray]:
    """t, the iterates of Algorithm 2 from a cold start, and by how much their dual values miss the largest."""
    flat, w = measurement.flat, measurement.weights(penalised, suggestion.gamma)
    steps = suggestion.steps(penalised)._replace(momentum=1.0 if momentum else 0.0)
    pairs = flat.program(path, INNER)(point.x, w, steps, cold(flat), np.asarray(0))
    chosen = np.unique(np.geomspace(1, INNER, 60).astype(int))
    kept = jax.tree.map(lambda leaf: np.asarray(leaf)[chosen - 1], pairs)
    y, mu = point.answer(penalised)
    with_best = Pair(*(np.concatenate([one[None], of]) for one, of in zip((y, mu, mu), kept, strict=True)))
    values = np.asarray(flat.program(dual_values)(point.x, w, steps, with_best))
    return chosen.astype(float), kept, values[0] - values[1:]


def dual_values(flat: FlatProblem, x: AnyArray, w: Weights, steps: Steps, pairs: Pair) -> Array:
    """D(mu) of every iterate: y by ten times as many steps as Algorithm 2 makes."""

    def one(pair: Pair) -> Array:
        y = descend(flat, x, w, steps, pair.y, pair.mu, 10)
        return lagrangian(flat, x, y, split(flat, pair.mu), w)

    return jax.lax.map(one, jax.tree.map(jnp.asarray, pairs))


def _lower(flat: FlatProblem, x: AnyArray, y: AnyArray) -> Array:
    return flat.lower(x, y)


def _jacobian(flat: FlatProblem, x: AnyArray, y: AnyArray) -> Array:
    return jax.jacrev(lambda z: rows(flat, x, z))(y)


def _side(suggestion: Suggestion, penalised: bool) -> Side:
    return suggestion.constants.penalised if penalised else suggestion.constants.follower


def _name(penalised: bool) -> str:
    return "L_F" if penalised else "L_g"
