"""``suggest(problem, x0, epsilon)``: the numbers of Algorithms 1 and 2 as the paper's theorems give them.

The theorems name orders: gamma of order epsilon^-1/2, eta at most 1 / l_F, T of order gamma / epsilon, and inner
solutions of squared error epsilon / gamma^2. The constants behind them are measured here, at x0 and at points of X
around it, and are estimates like those of :func:`blocc.check`. The safe steps of the multipliers are alpha / s^2, s the
norm of the constraints' Jacobian (the paper prints alpha / s).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Float, NDArray, PyTree
from blocc._lib.precision import double_precision
from blocc.errors import OptionError, ProblemError
from blocc.inner.choice import choose_oracles
from blocc.inner.maxmin import MaxMin
from blocc.judge.curvature import curvature_of, feasible_samples
from blocc.outer.evaluator import Evaluator
from blocc.outer.monitor import Monitor
from blocc.penalty import Evaluation, no_leader
from blocc.problem import BilevelProblem

#: Points of X at which curvatures and gradients are compared, and how far apart gradients are taken.
_POINTS, _STEP = 6, 1e-4
_MOST = 10**9  #: counts beyond this are printed as this


@dataclass(frozen=True)
class Suggestion:
    """Numbers for Algorithm 1 with Algorithm 2 inside, and the constants that they rest on. Pairs: for L_g, for L_F."""

    epsilon: float
    gamma: float
    eta: float  #: 1 / l_F
    iterations: int  #: T
    inner_iterations: tuple[int, int]  #: T_g and T_F, with momentum
    inner_iterations_affine: tuple[int, int]  #: the same without, where gc is affine in y and Y the whole space
    steps_y: tuple[int, int]
    primal_step: tuple[float, float]
    dual_step: tuple[float, float]
    inner_accuracy: float  #: squared error of the inner solutions: epsilon / gamma^2
    smoothness: float  #: l_F, of the gradient of F_gamma
    strong_convexity: float  #: alpha_g
    decrease: float  #: F_gamma(x0) less the smallest value seen

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


def suggest(problem: BilevelProblem, x0: PyTree | None = None, *, epsilon: float, seed: int = 0) -> Suggestion:
    """The numbers for a mean squared gradient of F_gamma, and a squared distance of yF to yg, of ``epsilon``."""
    if not isinstance(problem, BilevelProblem):
        raise OptionError(f"problem must be a BilevelProblem, got {type(problem).__name__}")
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0.0 < epsilon < np.inf:
        raise OptionError(f"epsilon must be a positive number, got {epsilon!r}")
    at = problem.x_set.interior_flat() if x0 is None else problem.x_set.ravel(x0, "x0")
    with double_precision():
        return _Constants(problem, np.asarray(at, dtype=np.float64), seed).suggestion(float(epsilon))


def smoothness_at(
    function: Evaluator, points: list[Float[NDArray, "n_x"]], gamma: float, seed: int = 0
) -> tuple[float, list[Evaluation]]:
    """l_F: the largest ratio of a difference of gradients of F_gamma to that of points, and the evaluations.

    At every point the direction turns towards that in which the gradient changes most, as in power iterations.
    """
    generator, leader, largest, seen = np.random.default_rng(seed), no_leader(function.flat), 0.0, []
    for point in points:
        here = function(point, gamma, leader, 1e-11)
        if not here.usable:
            continue
        seen.append(here)
        size = _STEP * (1.0 + float(np.abs(point).max(initial=0.0)))
        direction = generator.standard_normal(point.size)
        for _ in range(3):
            length = float(np.linalg.norm(direction))
            if length == 0.0:
                break
            beside = function.project(point + size * direction / length)
            away = float(np.linalg.norm(beside - point))
            there = function(beside, gamma, leader, 1e-11)
            if away < 0.1 * size or not there.usable:
                direction = -direction
                continue
            change = np.asarray(there.gradient) - np.asarray(here.gradient)
            largest = max(largest, float(np.linalg.norm(change)) / away)
            direction = change
    return largest, seen


class _Constants:
    """What the theorems want to know, measured at x0 and around it."""

    def __init__(self, problem: BilevelProblem, x: Float[NDArray, "n_x"], seed: int) -> None:
        self.flat, self.seed = problem.flat, seed
        self.function = Evaluator(self.flat, choose_oracles(problem, "auto"), Monitor(problem.x_set.unravel))
        generator = np.random.default_rng(seed)
        sampled = [self.flat.x_set.sample_flat(generator) for _ in range(_POINTS - 1)]
        self.points = [x, *(np.asarray(self.function.project(0.5 * (x + point))) for point in sampled)]
        first = self.function(x, 1.0, no_leader(self.flat), 1e-10)
        self.y = np.asarray(first.follower.y)
        if not np.isfinite(self.y).all():
            raise ProblemError("x0 must be a point at which the follower has an answer; none was found there")
        prices = np.concatenate([np.asarray(part).ravel() for part in first.follower.multipliers])
        self.reach = 1.0 + float(np.linalg.norm(prices))  # a distance to the multipliers from zero
        at, y = jnp.asarray(x), jnp.asarray(self.y)
        samples = feasible_samples(self.flat, x, self.y, 6, seed)
        lower = curvature_of(lambda z: self.flat.lower(at, z))
        upper = curvature_of(lambda z: self.flat.upper(at, z))
        bends = np.array([[*lower(point), *upper(point)] for point in samples])
        self.alpha, self.l_g = float(np.nanmin(bends[:, 0])), float(np.nanmax(np.abs(bends[:, :2])))
        self.l_f = float(np.nanmax(np.abs(bends[:, 2:])))
        slope = jax.jit(jax.grad(lambda z: self.flat.upper(at, z)))
        self.slope_f = max(float(np.linalg.norm(slope(jnp.asarray(point)))) for point in samples)
        rows = [
            np.asarray(jax.jacrev(lambda z, f=f: f(at, z))(y)).reshape(-1, self.flat.n_y)
            for f in (self.flat.inequality, self.flat.equality)
        ]
        singular = np.linalg.svd(np.concatenate(rows), compute_uv=False)
        self.s_max = float(singular.max(initial=0.0))
        self.s_min = float(singular[singular > 1e-9 * (1.0 + self.s_max)].min(initial=np.inf))
        if not self.alpha > 1e-9 * (1.0 + self.l_g):
            raise ProblemError(
                "the theorems need a lower level that is strongly convex in y, and the curvature of lower at x0 is "
                f"{self.alpha:.3g}: problem.check() tells more; solve() needs no such numbers"
            )

    def suggestion(self, epsilon: float) -> Suggestion:
        """gamma (alpha/2) |yF - yg|^2 <= gamma (g(yF) - g(yg)) <= f(yg) - f(yF) <= l |yF - yg| gives gamma."""
        gamma = max(2.0 * self.slope_f / (self.alpha * np.sqrt(epsilon)), 2.0 * self.l_f / self.alpha)
        smoothness, seen = smoothness_at(self.function, self.points, gamma, self.seed)
        if not seen:
            raise ProblemError(f"F_gamma could not be evaluated around x0 at gamma {gamma:.3g}")
        smoothness = max(smoothness, 1e-12)
        values = [float(one.value) for one in seen]
        slopes = [float(np.linalg.norm(one.gradient)) for one in seen]
        decrease = max(values[0] - min(values), slopes[0] ** 2 / (2.0 * smoothness), 1e-12)
        accuracy = epsilon / gamma**2
        moduli = (self.alpha, gamma * self.alpha - self.l_f)
        lipschitz = (self.l_g, self.l_f + gamma * self.l_g)
        return Suggestion(
            epsilon=epsilon,
            gamma=gamma,
            eta=1.0 / smoothness,
            # Half of epsilon for (2 / (eta T)) (F(x0) - min F), half for the error of the inner solutions.
            iterations=_count(4.0 * decrease * smoothness / epsilon),
            inner_iterations=self._pair(moduli, lipschitz, accuracy, gamma, momentum=True),
            inner_iterations_affine=self._pair(moduli, lipschitz, accuracy, gamma, momentum=False),
            steps_y=_counts(
                bound / modulus * np.log(1.0 / min(accuracy, 0.5) ** 1.5)
                for modulus, bound in zip(moduli, lipschitz, strict=True)
            ),
            primal_step=(1.0 / lipschitz[0], 1.0 / lipschitz[1]),
            dual_step=(self._dual(moduli[0]), self._dual(moduli[1])),
            inner_accuracy=accuracy,
            smoothness=smoothness,
            strong_convexity=self.alpha,
            decrease=decrease,
        )

    def _dual(self, modulus: float) -> float:
        return modulus / self.s_max**2 if self.s_max > 0.0 else 1.0

    def _pair(
        self, moduli: tuple[float, float], lipschitz: tuple[float, float], accuracy: float, gamma: float, momentum: bool
    ) -> tuple[int, int]:
        """Steps of the multipliers: by the rate 1 / t^2 of the dual value, or by the linear rate of the dual."""
        if self.s_max == 0.0:
            return 1, 1
        found = []
        for modulus, bound, far in zip(moduli, lipschitz, (self.reach, gamma * self.reach), strict=True):
            smooth, curved = self.s_max**2 / modulus, self.s_min**2 / bound  # of the dual function
            slow = far * np.sqrt(4.0 * smooth / (curved * accuracy))
            fast = smooth / curved * np.log(max(far**2 / accuracy, 2.0))
            found.append(slow if momentum else fast)
        return _counts(found)


def _count(number: float) -> int:
    return int(min(max(np.ceil(number), 1.0), _MOST))


def _counts(numbers: Any) -> tuple[int, int]:
    first, second = (_count(float(number)) for number in numbers)
    return first, second
