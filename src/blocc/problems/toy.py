"""The toy example of the BLOCC paper: one variable on each level, several local minima, and a known answer below.

    minimise over x in [0, 3]   f(x, y) = exp(2 - y) / (2 + cos 6x) + ln((4x - 2)^2 + 1) / 2
    y minimises                 g(x, y) = (y - 2x)^2   subject to   y <= x

The follower answers y = x, so the leader really minimises f(x, x), and every end point can be checked against a grid.
Even yF is x for every gamma > 0, because f falls in y: whatever distance a run shows between yF and x is inexactness of
its inner solver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize_scalar

from blocc._lib.arrays import AnyArray, Float, Int, NDArray
from blocc.errors import OptionError
from blocc.multi_result import MultiResult
from blocc.presets import PRESETS, check_preset
from blocc.problem import BilevelProblem
from blocc.sets import Box, Reals
from blocc.solve_many import solve_many

#: Numbers, or arrays of them: the functions below are elementwise.
Values = Float[AnyArray, "..."] | float

LOWER, UPPER = 0.0, 3.0  #: X
GRID = 30_001  #: points of [0, 3] from which the search for local minimisers starts

#: Ends of the interval that the paper's starts are drawn from; those beyond X are put on its bound.
STARTS = 0.0, 3.5
#: Distance from a local minimiser up to which a start has found it.
FOUND = 1e-3

#: The settings that :func:`run_starts` knows by name: those of ``solve``.
SETTINGS: dict[str, dict[str, Any]] = {name: PRESETS[name] for name in ("default", "paper", "toy")}


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


def upper_value(x: Values, y: Values) -> Values:
    """f(x, y) in NumPy, elementwise."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    return np.exp(2.0 - y) / (2.0 + np.cos(6.0 * x)) + 0.5 * np.log((4.0 * x - 2.0) ** 2 + 1.0)


def true_value(x: Values) -> Values:
    """f(x, x): what the leader really minimises, since the follower answers y = x."""
    return upper_value(x, x)


def local_minimisers() -> Float[NDArray, "minimisers"]:
    """All local minimisers of f(x, x) on [0, 3], in order: those of a grid, refined; ends of the interval included."""
    points = np.linspace(LOWER, UPPER, GRID)
    padded = np.concatenate([[np.inf], true_value(points), [np.inf]])
    lowest = np.flatnonzero((padded[1:-1] <= padded[:-2]) & (padded[1:-1] <= padded[2:]))
    found = []
    for index in lowest.tolist():
        ends = points[max(index - 1, 0)], points[min(index + 1, GRID - 1)]
        refined = minimize_scalar(true_value, bounds=ends, method="bounded", options={"xatol": 1e-12}).x
        candidates = [refined, *(end for end in ends if end in (LOWER, UPPER))]  # that search never tries its bounds
        found.append(min(candidates, key=lambda x: float(true_value(x))))
    return np.array(found)


@dataclass(frozen=True)
class ToyRun:
    """Where many starts of the toy ended."""

    results: MultiResult
    minimisers: Float[NDArray, "minimisers"]  #: the local minimisers of f(x, x), in order
    counts: Int[NDArray, "minimisers"]  #: starts that ended nearest to each of them
    distances: Float[NDArray, "starts"]  #: of every end point to its nearest local minimiser
    gamma: float
    preset: str

    @property
    def end_points(self) -> Float[NDArray, "starts"]:
        """x of every start."""
        return np.asarray(self.results.x)

    @property
    def largest_distance(self) -> float:
        """The worst of ``distances``."""
        return float(self.distances.max())

    @property
    def found(self) -> int:
        """How many starts ended within :data:`FOUND` of a local minimiser."""
        return int((self.distances <= FOUND).sum())

    @property
    def converged(self) -> int:
        """How many starts converged."""
        return sum(result.success for result in self.results.results)


def draw_starts(starts: int, seed: int = 0) -> Float[NDArray, "starts"]:
    """x0 as in the paper's experiment: uniform on [0, 3.5], those beyond 3 at 3."""
    if isinstance(starts, bool) or not isinstance(starts, (int, np.integer)) or starts < 1:
        raise OptionError(f"starts must be a positive integer, got {starts!r}")
    return np.clip(np.random.default_rng(seed).uniform(*STARTS, starts), LOWER, UPPER)


def run_starts(
    starts: int = 200,
    gamma: float = 5.0,
    preset: str = "default",
    seed: int = 0,
    problem: BilevelProblem | None = None,
) -> ToyRun:
    """Run the toy from ``starts`` points at a fixed gamma, all in one batch; they are drawn as the paper's were.

    :param preset: "default" (blocc's own methods), "paper" (Algorithms 1 and 2 by the paper's text) or "toy" (with the
        numbers of its program), as in ``solve``
    :param problem: a :func:`toy_problem` to run again without compiling again
    """
    check_preset(preset, SETTINGS)
    settings = {**SETTINGS[preset], "gamma": float(gamma), "seed": seed}
    results = solve_many(problem or toy_problem(), draw_starts(starts, seed), **settings)
    minimisers = local_minimisers()
    away = np.abs(np.asarray(results.x)[:, None] - minimisers)
    counts = np.bincount(away.argmin(axis=1), minlength=len(minimisers))
    return ToyRun(results, minimisers, counts, away.min(axis=1), float(gamma), preset)
