"""The toy example of the BLOCC paper: one variable on each level, several local minima, and a known answer below.

    minimise over x in [0, 3]   f(x, y) = exp(2 - y) / (2 + cos 6x) + ln((4x - 2)^2 + 1) / 2
    y minimises                 g(x, y) = (y - 2x)^2   subject to   y <= x

The follower answers y = x, so the leader really minimises f(x, x), and every end point can be checked against a grid.
Even yF is x for every gamma > 0, because f falls in y: whatever distance a run shows between yF and x is inexactness of
its inner solver.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize_scalar

from blocc._lib.compiled import compile_ahead
from blocc._lib.precision import double_precision
from blocc.errors import OptionError
from blocc.inner.algorithm_2 import MaxMin
from blocc.outer import algorithm_1 as pgd
from blocc.outer.monitor import Monitor
from blocc.penalty import evaluate, no_leader
from blocc.problem import BilevelProblem
from blocc.result import MultiResult
from blocc.sets import Box, Reals
from blocc.solve import solve_many

Array = Any

LOWER, UPPER = 0.0, 3.0  #: X

#: The published experiment: projected gradient steps of length 0.01, inner problems by the single-loop version of
#: Algorithm 2. The counts and lengths of the inner steps are not in the paper; 50 iterations with the steps that the
#: theory calls safe leave errors far below the tolerance.
PAPER_SETTINGS: dict[str, Any] = {
    "outer": "pgd",
    "inner": MaxMin.single_loop(iterations=50),
    "step": 0.01,
    "tolerance": 1e-5,
    "max_iterations": 10_000,
}

#: The settings that :func:`run_starts` knows by name.
SETTINGS: dict[str, dict[str, Any]] = {"default": {}, "paper": PAPER_SETTINGS}


def toy_problem() -> BilevelProblem:
    """The toy as a :class:`BilevelProblem`; x and y are bare numbers."""
    return BilevelProblem(
        upper=lambda x, y: jnp.exp(2.0 - y) / (2.0 + jnp.cos(6.0 * x)) + 0.5 * jnp.log((4.0 * x - 2.0) ** 2 + 1.0),
        lower=lambda x, y: (y - 2.0 * x) ** 2,
        inequality=lambda x, y: y - x,
        x_set=Box(LOWER, UPPER),
        y_set=Reals(),
        name="the toy of the BLOCC paper",
    )


def upper_value(x: Array, y: Array) -> np.ndarray:
    """f(x, y) in NumPy, elementwise."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    return np.exp(2.0 - y) / (2.0 + np.cos(6.0 * x)) + 0.5 * np.log((4.0 * x - 2.0) ** 2 + 1.0)


def true_value(x: Array) -> np.ndarray:
    """f(x, x): what the leader really minimises, since the follower answers y = x."""
    return upper_value(x, x)


def local_minimisers(grid: int = 30_001) -> np.ndarray:
    """All local minimisers of f(x, x) on [0, 3], in order: those of a grid, refined; ends of the interval included."""
    if grid < 3:
        raise OptionError(f"grid must be at least 3, got {grid!r}")
    points = np.linspace(LOWER, UPPER, grid)
    padded = np.concatenate([[np.inf], true_value(points), [np.inf]])
    lowest = np.flatnonzero((padded[1:-1] <= padded[:-2]) & (padded[1:-1] <= padded[2:]))
    found = []
    for index in lowest.tolist():
        ends = points[max(index - 1, 0)], points[min(index + 1, grid - 1)]
        refined = minimize_scalar(true_value, bounds=ends, method="bounded", options={"xatol": 1e-12}).x
        candidates = [refined, *(end for end in ends if end in (LOWER, UPPER))]  # that search never tries its bounds
        found.append(min(candidates, key=lambda x: float(true_value(x))))
    return np.array(found)


@dataclass(frozen=True)
class ToyRun:
    """Where many starts of the toy ended."""

    results: MultiResult
    minimisers: np.ndarray  #: the local minimisers of f(x, x), in order
    counts: np.ndarray  #: starts that ended nearest to each of them
    distances: np.ndarray  #: of every end point to its nearest local minimiser
    gamma: float
    preset: str

    @property
    def end_points(self) -> np.ndarray:
        """x of every start."""
        return np.asarray(self.results.x)

    @property
    def largest_distance(self) -> float:
        """The worst of ``distances``."""
        return float(self.distances.max())

    @property
    def converged(self) -> int:
        """How many starts converged."""
        return sum(result.success for result in self.results.results)


def run_starts(
    starts: int = 200,
    gamma: float = 5.0,
    preset: str = "default",
    seed: int = 0,
    problem: BilevelProblem | None = None,
    **options: Any,
) -> ToyRun:
    """Run the toy from ``starts`` random points at a fixed gamma, all in one batch.

    :param preset: "default" (blocc's own methods) or "paper" (Algorithms 1 and 2, see :data:`PAPER_SETTINGS`)
    :param problem: a :func:`toy_problem` to run again without compiling again
    :param options: further options of :func:`blocc.solve_many`
    """
    if preset not in SETTINGS:
        raise OptionError(f"preset must be one of {', '.join(map(repr, SETTINGS))}, got {preset!r}")
    settings = {**SETTINGS[preset], "gamma": float(gamma), "seed": seed, **options}
    results = solve_many(toy_problem() if problem is None else problem, starts=starts, **settings)
    minimisers = local_minimisers()
    away = np.abs(np.asarray(results.x)[:, None] - minimisers)
    counts = np.bincount(away.argmin(axis=1), minlength=len(minimisers))
    return ToyRun(results, minimisers, counts, away.min(axis=1), float(gamma), preset)


# --- the sensitivity study -----------------------------------------------------------------------------------------

GAMMAS = (0.001, 0.01, 0.1, 1.0)
ETAS = (0.001, 0.01, 0.1, 1.0, 10.0)

#: The paper's table: (mean, standard deviation) of ||yg - yF||, and mean seconds, by eta and gamma. The paper prints
#: the standard deviation of the distance a second time beside the seconds, so none of the seconds is known.
PUBLISHED: dict[tuple[float, float], tuple[float, float, float]] = {
    (eta, gamma): cell
    for eta, row in zip(
        ETAS,
        (
            ((0.028, 0.042, 3.314), (0.035, 0.076, 3.186), (0.027, 0.064, 2.049), (0.000, 0.000, 1.967)),
            ((0.020, 0.031, 2.242), (0.020, 0.041, 1.575), (0.009, 0.019, 1.118), (0.000, 0.000, 0.585)),
            ((0.006, 0.010, 1.616), (0.017, 0.027, 1.475), (0.011, 0.033, 1.257), (0.000, 0.000, 0.383)),
            ((0.023, 0.019, 7.118), (0.030, 0.022, 4.570), (0.020, 0.045, 3.477), (0.000, 0.000, 1.645)),
            ((0.034, 0.123, 6.565), (0.019, 0.014, 4.365), (0.025, 0.070, 2.808), (0.000, 0.000, 1.750)),
        ),
        strict=True,
    )
    for gamma, cell in zip(GAMMAS, row, strict=True)
}

#: The inner solver of the study: 100 single-loop iterations for each step of x, both step lengths 0.1, warm-started.
#: While x moves slowly that is plenty; where eta makes x jump it leaves an error, and that is what the study is about.
SENSITIVITY_INNER = MaxMin.single_loop(iterations=100, primal_step=0.1, dual_step=0.1)


@dataclass(frozen=True)
class SensitivityRow:
    """One cell of the study: one gamma, one step length eta, many random starts."""

    gamma: float
    eta: float
    distance_mean: float  #: of ||yg - yF||, yg the exact answer below and yF what the inner iterations left
    distance_std: float
    seconds_mean: float  #: seconds of the batch divided by its simulations, mean over the repetitions
    seconds_std: float  #: over the repetitions
    iterations_mean: float  #: steps of x
    minimiser_distance: float  #: median distance of the end points to the nearest local minimiser
    published_distance_mean: float  #: the paper's figures; NaN outside its table
    published_distance_std: float
    published_seconds_mean: float


def sensitivity(
    gammas: Sequence[float] = GAMMAS,
    etas: Sequence[float] = ETAS,
    simulations: int = 40,
    seed: int = 0,
    *,
    inner: MaxMin = SENSITIVITY_INNER,
    max_iterations: int = 500,
    tolerance: float = 1e-4,
    repetitions: int = 3,
) -> list[SensitivityRow]:
    """The paper's study of gamma and eta on the toy: ||yg - yF|| and time, over random starts run as one batch.

    Rows come eta by eta, as in the paper. yg is exact (it is x); yF is what Algorithm 2 holds when Algorithm 1 ends,
    never re-solved.
    """
    return list(_cells(gammas, etas, simulations, seed, inner, max_iterations, tolerance, repetitions))


def _cells(
    gammas: Sequence[float],
    etas: Sequence[float],
    simulations: int,
    seed: int,
    inner: MaxMin,
    max_iterations: int,
    tolerance: float,
    repetitions: int,
) -> Iterator[SensitivityRow]:
    problem = toy_problem()
    minimisers = local_minimisers()
    starts = np.random.default_rng(seed).uniform(LOWER, UPPER, size=(simulations, 1))
    for eta in etas:
        for gamma in gammas:
            arguments = (problem, starts, gamma, eta, inner, max_iterations, tolerance)
            x, y, steps = _published_run(*arguments)  # compiles, and warms up: not timed
            seconds = []
            for _ in range(repetitions):
                begun = time.perf_counter()
                _published_run(*arguments)
                seconds.append((time.perf_counter() - begun) / simulations)
            distance = np.abs(y - x)
            published = PUBLISHED.get((eta, gamma), (np.nan, np.nan, np.nan))
            yield SensitivityRow(
                gamma=gamma,
                eta=eta,
                distance_mean=float(distance.mean()),
                distance_std=float(distance.std()),
                seconds_mean=float(np.mean(seconds)),
                seconds_std=float(np.std(seconds)),
                iterations_mean=float(steps.mean()),
                minimiser_distance=float(np.median(np.abs(x[:, None] - minimisers).min(axis=1))),
                published_distance_mean=published[0],
                published_distance_std=published[1],
                published_seconds_mean=published[2],
            )


def _published_run(
    problem: BilevelProblem,
    starts: np.ndarray,
    gamma: float,
    eta: float,
    inner: MaxMin,
    max_iterations: int,
    tolerance: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x_T, y_{F,T} and the number of steps of every start.

    It goes below the front door, because a result would hold yF solved from scratch, not as the run left it.
    """
    flat, cache, number = problem.flat, problem.cache, partial(jnp.asarray, dtype=jnp.float64)
    with double_precision():
        leader = no_leader(flat)
        state, _ = pgd.minimise(
            flat,
            inner,
            cache,
            Monitor(problem.x_set.unravel),
            starts,
            gamma=gamma,
            step_size=eta,
            leader=jax.device_get(leader),
            tolerance=tolerance,
            inner_tolerance=tolerance,
            max_iterations=max_iterations,
        )
        # Algorithm 1 ends with one more call of Algorithm 2, at x_T.
        arguments = (number(state.x), state.warm, number(gamma))
        if ("toy yF", inner, len(starts)) not in cache:

            def penalised(x: Array, warm: Any, weight: Array) -> Array:
                return evaluate(flat, inner, x, weight, leader, warm, number(tolerance)).penalised.y

            cache["toy yF", inner, len(starts)], _ = compile_ahead(
                jax.vmap(penalised, in_axes=(0, 0, None)), *arguments
            )
        y = np.asarray(cache["toy yF", inner, len(starts)](*arguments))
    return np.asarray(state.x)[:, 0], y[:, 0], np.asarray(state.iteration)
