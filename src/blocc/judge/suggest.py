"""``suggest(problem, x0, epsilon)``: numbers for Algorithms 1 and 2 that reach a promised accuracy.

The promise: over the T steps the mean of |G|^2 is at most epsilon, and so is |yF - yg|^2. The proof of Theorem 2 gives

    mean |G|^2  <=  4 (F(x0) - min F) l_F / T  +  4 max |b|^2,      eta = 1 / l_F,

b the error of the gradient that the inner solutions leave; each term gets half of epsilon. Of b each inner solution may
cause half, which says how accurate it must be. gamma closes half of the distance, and the inner solutions may add a
quarter each. Constants are those of :mod:`blocc.judge.constants`, so the promise is as good as they are. The safe
steps are 1 / (curvature in y, that of gc times the multipliers included) and alpha / s^2, s the norm of the
constraints' Jacobian (the paper prints alpha / s). How many iterations of Algorithm 2 these steps need is counted, from
a cold start, at every point where constants are measured; the theorems' bounds stand beside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from blocc._lib.arrays import NDArray, PyTree
from blocc._lib.precision import double_precision
from blocc._lib.rounding import EXACT, TINY
from blocc.errors import OptionError, ProblemError
from blocc.inner.maxmin import MaxMin
from blocc.judge.constants import Constants, Measurement, Point, Side
from blocc.judge.iterations import Steps, cold, path, slope
from blocc.lagrangian import Weights
from blocc.problem import BilevelProblem

_MOST = 10**9  #: iterations beyond this are refused: nobody could make them
_FAR = 1e6  #: times the size of x0: a descent that has gone further and still falls has no end
_LOOK = 256  #: iterations of Algorithm 2 between two looks
_PATIENCE = 2**15  #: iterations after which the theorem's bound is taken instead
_ROUNDS = 4  #: of measuring again where points further on ask for a larger gamma


@dataclass(frozen=True)
class Suggestion:
    """Numbers for Algorithm 1 with Algorithm 2 inside, and the constants that they rest on. Pairs: for L_g, for L_F."""

    epsilon: float
    gamma: float
    eta: float  #: 1 / l_F
    iterations: int  #: T
    inner_iterations: tuple[int, int]  #: T_g and T_F, with momentum: counted
    inner_bounds: tuple[int, int]  #: the same as Theorem 3 bounds them
    inner_bounds_affine: tuple[int, int]  #: without momentum, by the linear rate of the dual (gc affine in y)
    steps_y: tuple[int, int]
    primal_step: tuple[float, float]
    dual_step: tuple[float, float]
    inner_accuracy: tuple[float, float]  #: squared error of the inner solutions that keeps the promise
    constants: Constants

    @property
    def options(self) -> dict[str, Any]:
        """For ``solve(problem, x0, **suggestion.options)``."""
        inner = MaxMin(
            iterations=self.inner_iterations,
            steps_y=self.steps_y,
            primal_step=self.primal_step,
            dual_step=self.dual_step,
        )
        named = {"outer": "pgd", "inner": inner, "gamma": self.gamma, "step": self.eta}
        return {**named, "max_iterations": self.iterations}

    def steps(self, penalised: bool) -> Steps:
        """Those of Algorithm 2 on L_F, or on L_g."""
        return Steps(self.primal_step[penalised], self.dual_step[penalised], self.steps_y[penalised])


def suggest(problem: BilevelProblem, x0: PyTree | None = None, *, epsilon: float, seed: int = 0) -> Suggestion:
    """Numbers with which the mean of |G|^2, and the squared distance of yF to yg, are at most ``epsilon``."""
    with double_precision():
        return measured(problem, x0, epsilon, seed)[0]


def measured(
    problem: BilevelProblem, x0: PyTree | None, epsilon: float, seed: int
) -> tuple[Suggestion, Measurement, list[Point]]:
    """The suggestion, with the measurement and its points for whoever compares bounds."""
    if not isinstance(problem, BilevelProblem):
        raise OptionError(f"problem must be a BilevelProblem, got {type(problem).__name__}")
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0.0 < epsilon < np.inf:
        raise OptionError(f"epsilon must be a positive number, got {epsilon!r}")
    at = problem.x_set.interior_flat() if x0 is None else problem.x_set.ravel(x0, "x0")
    measurement = Measurement(problem, np.asarray(at, dtype=np.float64), seed)
    gamma, points = 1.0, measurement.around_start()
    for _ in range(_ROUNDS):
        wanted = _gamma(*measurement.slopes(points), epsilon)
        if wanted <= gamma and gamma > 1.0:
            break
        gamma = max(gamma, wanted)
        points = measurement.points(gamma)
    constants = measurement.constants(gamma, points)
    return _suggestion(measurement, constants, points, epsilon), measurement, points


def _gamma(alpha: float, steep: float, bent: float, epsilon: float) -> float:
    """(gamma alpha - l_f,1) |yF - yg| <= l_f,0 makes half of the distance; twice l_f,1 / alpha is the least."""
    if not alpha > EXACT * (1.0 + bent):
        raise ProblemError(
            "the theorems need a lower level that is strongly convex in y, with gamma above l_f,1 / alpha_g, and at x0 "
            f"alpha_g, the least curvature of lower, is {alpha:.3g} and l_f,1, the largest of upper, {bent:.3g}: "
            "problem.check() tells more; solve() needs no such numbers"
        )
    return float(max(1.0, (2.0 * steep / np.sqrt(epsilon) + bent) / alpha, 2.0 * bent / alpha))


def _suggestion(measurement: Measurement, found: Constants, points: list[Point], epsilon: float) -> Suggestion:
    gamma, sides = found.gamma, (found.follower, found.penalised)
    bias = np.sqrt(epsilon / 8.0)  # 4 |b|^2 <= epsilon / 2
    # The follower's part of the gradient has the factor gamma.
    shares = tuple(0.5 * bias / factor for factor in (gamma, 1.0))
    accuracy = [
        min((share / max(side.cross, TINY)) ** 2, epsilon / 16.0) for share, side in zip(shares, sides, strict=True)
    ]
    bounds = [accelerated_bound(side, one) for side, one in zip(sides, accuracy, strict=True)]
    steps_y = [_repeats(*parts) for parts in zip(sides, accuracy, bounds, strict=True)]
    suggestion = Suggestion(
        epsilon=epsilon,
        gamma=gamma,
        eta=1.0 / found.smoothness,
        iterations=_count(8.0 * found.decrease * found.smoothness / epsilon),
        inner_iterations=(1, 1),
        inner_bounds=(bounds[0], bounds[1]),
        inner_bounds_affine=(linear_bound(sides[0], accuracy[0]), linear_bound(sides[1], accuracy[1])),
        steps_y=(steps_y[0], steps_y[1]),
        primal_step=(1.0 / sides[0].smoothness, 1.0 / sides[1].smoothness),
        dual_step=(_dual_step(sides[0]), _dual_step(sides[1])),
        inner_accuracy=(float(accuracy[0]), float(accuracy[1])),
        constants=found,
    )
    _refuse_unbounded(measurement, found, points[-1], epsilon)
    _refuse_endless("T", suggestion.iterations, found, epsilon)
    counted = [max(_counted(measurement, suggestion, point, bool(k), shares[k]) for point in points) for k in range(2)]
    _refuse_endless("T_g, T_F or T_y", max(*counted, *steps_y), found, epsilon)
    return Suggestion(**{**vars(suggestion), "inner_iterations": (counted[0], counted[1])})


def _refuse_unbounded(measurement: Measurement, found: Constants, end: Point, epsilon: float) -> None:
    """Without a smallest value of F no T keeps the promise."""
    start = measurement.start
    step = measurement.function.project(end.x - np.asarray(end.found.gradient) / found.smoothness) - end.x
    falls = float(np.linalg.norm(step)) * found.smoothness > np.sqrt(epsilon)
    if falls and np.linalg.norm(end.x - start) > _FAR * (1.0 + np.linalg.norm(start)):
        raise ProblemError(
            f"F_gamma seems to be unbounded below: from x0 it falls by {found.decrease:.3g} and goes on falling, so "
            "that no number of iterations keeps the promise: bound x by x_set"
        )


def _refuse_endless(name: str, count: int, found: Constants, epsilon: float) -> None:
    """No number of iterations is cut: with fewer the promise would not hold."""
    if count > _MOST:
        raise OptionError(
            f"epsilon={epsilon:g} needs {name} = {count:.3g} iterations, more than {_MOST:,}: take a larger epsilon. "
            f"Measured: gamma {found.gamma:.3g}, l_F {found.smoothness:.3g}, F(x0) - min F {found.decrease:.3g}"
        )


def _counted(measurement: Measurement, found: Suggestion, point: Point, penalised: bool, share: float) -> int:
    """Iterations from a cold start after which the errors of y and of the gradient stay below what they may be."""
    flat, w = measurement.flat, measurement.weights(penalised, found.gamma)
    y, mu = point.answer(penalised)
    exact, bound = np.asarray(flat.program(slope)(point.x, w, y, mu)), found.inner_bounds[penalised]
    last, done = 0, 0
    for slopes, ys in _looks(measurement, point, w, found.steps(penalised)):
        error = np.linalg.norm(slopes - exact, axis=1)
        wrong = ~((error <= share) & (((ys - y) ** 2).sum(axis=1) <= found.epsilon / 16.0))
        last = done + int(np.flatnonzero(wrong)[-1]) + 1 if wrong.any() else last
        done += len(ys)
        if done >= 2 * (last + 1):
            return min(last + 1, bound)
        if done >= min(bound, _PATIENCE):
            break
    return bound


def _looks(measurement: Measurement, point: Point, w: Weights, steps: Steps) -> Iterator[tuple[NDArray, NDArray]]:
    """Derivatives in x, and y, of one stretch of Algorithm 2 after another."""
    flat, now, done = measurement.flat, cold(measurement.flat), 0
    while True:
        part = flat.program(path, _LOOK)(point.x, w, steps, now, np.asarray(done))
        yield np.asarray(flat.program(_slopes)(point.x, w, part.y, part.mu)), np.asarray(part.y)
        now, done = jax.tree.map(lambda leaf: leaf[-1], part), done + _LOOK


def _slopes(flat: Any, x: Any, w: Weights, ys: Any, mus: Any) -> Any:
    return jax.vmap(lambda y, mu: slope(flat, x, w, y, mu))(ys, mus)


def accelerated_bound(side: Side, accuracy: float) -> int:
    """T of Theorem 3: D* - D(mu_T) <= 2 l_D |mu*|^2 / (T + 1)^2, and C/2 |mu_T - mu*|^2 is at most that.

    Half of the squared error is for the multipliers, of which y's share s / modulus |mu_T - mu*| is a part.
    """
    if side.jacobian == 0.0:
        return 1
    allowed = 0.5 * accuracy / (1.0 + 2.0 * (side.jacobian / side.modulus) ** 2)
    return _count(side.multipliers * np.sqrt(4.0 * side.dual_smoothness / (side.dual_convexity * allowed)))


def linear_bound(side: Side, accuracy: float) -> int:
    """T of gradient steps on a dual function that is strongly concave everywhere."""
    if side.jacobian == 0.0:
        return 1
    allowed = 0.5 * accuracy / (1.0 + 2.0 * (side.jacobian / side.modulus) ** 2)
    ratio = max(side.multipliers**2 / allowed, 2.0)
    return _count(side.dual_smoothness / side.dual_convexity * np.log(ratio))


def _repeats(side: Side, accuracy: float, count: int) -> int:
    """T_y: steps that leave an error of y whose sum over all iterations costs the dual value no more than its share.

    Devolder, Glineur and Nesterov: errors delta of the gradient add up to 3 R delta T at most, R = |mu*|; y's own error
    is to be at most a quarter of the accuracy.
    """
    condition, norm, least = side.smoothness / side.modulus, side.jacobian, accuracy / 4.0
    price = side.multipliers * norm
    if price > 0.0 and np.isfinite(side.dual_convexity):
        allowed = 0.5 * accuracy / (1.0 + 2.0 * (norm / side.modulus) ** 2)
        least = min((0.5 * side.dual_convexity * allowed / (6.0 * price * count)) ** 2, least)
    radius = side.reach + norm * side.multipliers / side.modulus  # of what y may be away from its answer
    return _count(condition * np.log(max(radius**2 / least, 2.0)))


def _dual_step(side: Side) -> float:
    return 1.0 / side.dual_smoothness if side.jacobian > 0.0 else 1.0


def _count(number: float) -> int:
    return int(min(max(np.ceil(number), 1.0), np.finfo(np.float64).max))
