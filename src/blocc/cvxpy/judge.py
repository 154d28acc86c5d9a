"""Is it true? The followers' answers once more, by CVXPY's own way to a solver, and values around x.

Nothing here uses the programs, the gradients or the penalty that led to x. Where a follower has several best answers,
the one that suits the leader counts (the optimistic one), and the spread between that and the worst is measured: the
answers within eps of the optimum spread like ``c + d sqrt(eps)``, so two values of eps tell c.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from blocc._lib.arrays import Float, NDArray
from blocc.cvxpy.cone_program import ConeSizes, Numbers
from blocc.cvxpy.model import Model, Vector
from blocc.cvxpy.solvers import Outcome, measured

#: Relative slack of the follower's value within which answers count as equally good, larger first.
_NEAR = (1e-5, 1e-7)
#: Distances of probes, relative to the size of x.
DISTANCES = (1e-2, 1e-3, 1e-4)
#: Directions that are probed at most.
MOST_DIRECTIONS = 24
_TIGHT = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10, "max_iter": 200}


class Exact(NamedTuple):
    """The leader's value at the followers' answers."""

    upper: float
    lower: tuple[float, ...]  #: the followers' values, minimised
    violation: float  #: of the leader's constraints
    values: tuple[Any, ...]  #: of the followers' variables and of prices, in order
    prices: tuple[Any, ...]  #: of every constraint of every follower


class Judge:
    """Answers by CVXPY itself."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.problems = [cp.Problem(cp.Minimize(one.objective), one.constraints) for one in model.followers]
        self.limits = [cp.Parameter(value=0.0) for _ in self.problems]
        best: list[cp.Constraint] = []
        for one, limit in zip(model.followers, self.limits, strict=True):
            best += [*one.constraints, one.objective <= limit]
        self.leader_rules = list(model.soft.constraints)
        objective = model.objective
        self.optimistic = cp.Problem(cp.Minimize(objective), best + self.leader_rules)
        concave = objective.is_concave() and cp.Maximize(objective).is_dcp(dpp=True)
        self.pessimistic = cp.Problem(cp.Maximize(objective), best) if concave else None
        self.has_prices = bool(model.price_variables)

    def at(self, x: Vector) -> Exact | None:
        """The value at the follower's answer as the solver finds it; None where there is none."""
        model = self.model
        for one, value in zip(model.parameters, model.values(x), strict=True):
            one.save_value(value if one.shape else float(value))
        lower = []
        for problem in self.problems:
            if not _solved(problem):
                return None
            lower.append(float(problem.value))
        for variable in model.price_variables:
            variable.save_value(variable.constraint.dual_value)
        return self._read(tuple(lower))

    def _read(self, lower: tuple[float, ...]) -> Exact:
        model = self.model
        violated = [_violated(one) for one in self.leader_rules]
        values = tuple(np.array(one.value) for one in self._variables())
        prices = tuple(_copied(one.dual_value) for follower in model.followers for one in follower.constraints)
        return Exact(float(np.asarray(model.objective.value)), lower, max(violated, default=0.0), values, prices)

    def _variables(self) -> list[cp.Variable]:
        own = [variable for follower in self.model.followers for variable in follower.variables]
        return [*own, *self.model.price_variables]

    def restore(self, x: Vector, exact: Exact) -> None:
        """Leave the user's parameters, variables and constraints with the values of an answer."""
        model = self.model
        for one, value in zip(model.parameters, model.values(x), strict=True):
            one.save_value(value if one.shape else float(value))
        for variable, value in zip(self._variables(), exact.values, strict=True):
            variable.save_value(value)
        constraints = [one for follower in model.followers for one in follower.constraints]
        for constraint, price in zip(constraints, exact.prices, strict=True):
            if price is not None and len(constraint.dual_variables) == 1:
                constraint.dual_variables[0].save_value(price)

    def among_best(self, x: Vector, exact: Exact, *, worst: bool = False) -> tuple[float, Exact] | None:
        """The leader's best (worst) value over the followers' best answers, extrapolated; and the best such answer.

        None where it is not a convex problem, or prices are concerned: their followers' answers are pairs.
        """
        problem = self.pessimistic if worst else self.optimistic
        if problem is None or self.has_prices:
            return None
        found: list[float] = []
        last = exact
        for near in _NEAR:
            for limit, value in zip(self.limits, exact.lower, strict=True):
                limit.value = value + near * (1e-3 + abs(value))
            if not _solved(problem):
                return None
            last = self._read(exact.lower)._replace(prices=exact.prices)
            found.append(last.upper)
        ratio = float(np.sqrt(_NEAR[0] / _NEAR[1]))
        return (ratio * found[1] - found[0]) / (ratio - 1.0), last

    def residuals(self, x: Vector, exact: Exact | None) -> tuple[float, float, float]:
        """Stationarity, feasibility and complementarity of the answers, from the numbers that CVXPY gives a solver.

        An answer that was chosen among several in the leader's favour is measured by its value instead.
        """
        if exact is None:
            return np.inf, np.inf, np.inf
        worst = np.zeros(3)
        for problem, one, lower in zip(self.problems, self.model.followers, exact.lower, strict=True):
            data, chain, _ = problem.get_problem_data(cp.CLARABEL)
            raw = chain.solve_via_data(problem, data, solver_opts=_TIGHT)
            found = measured(_numbers(data), _sizes(data["dims"]), Outcome.SOLVED, np.asarray(raw.x), np.asarray(raw.z))
            chosen = float(np.asarray(one.objective.value)) - lower
            broken = max(
                (float(np.max(np.abs(rule.violation()), initial=0.0)) for rule in one.constraints), default=0.0
            )
            here = (found.stationarity, max(found.feasibility, broken), max(found.complementarity, abs(chosen)))
            worst = np.maximum(worst, here)
        return float(worst[0]), float(worst[1]), float(worst[2])


def _numbers(data: dict[str, Any]) -> Numbers:
    n = len(data["c"])
    quadratic = sp.csc_array(data["P"]) if data.get("P") is not None else sp.csc_array((n, n))
    return Numbers(quadratic, data["c"], 0.0, sp.csc_array(-data["A"]), data["b"])


def _sizes(dims: Any) -> ConeSizes:
    return ConeSizes(dims.zero, dims.nonneg, tuple(dims.soc), tuple(dims.psd), dims.exp, tuple(dims.p3d))


def _violated(constraint: cp.Constraint) -> float:
    return float(np.max(np.abs(constraint.violation()), initial=0.0))


def _copied(value: Any) -> Any:
    return None if value is None else np.array(value)


def _solved(problem: cp.Problem) -> bool:
    """Solve by Clarabel as CVXPY calls it; whether that came to an answer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the accuracy asked for cannot be had is seen to here
        return _solved_noisily(problem)


def _solved_noisily(problem: cp.Problem) -> bool:
    try:
        problem.solve(solver=cp.CLARABEL, **_TIGHT)
    except cp.error.SolverError:
        return False
    if problem.status == cp.OPTIMAL:
        return True
    if problem.status not in cp.settings.SOLUTION_PRESENT:
        return False
    problem.solve(solver=cp.CLARABEL)  # the accuracy asked for cannot be had
    return bool(problem.status == cp.OPTIMAL)


class Around(NamedTuple):
    """What probes around x found."""

    best: Float[NDArray, " n_x"] | None  #: a better x, if there is one
    improvement: float
    steepest: float  #: largest descent by the length of the step


def probe(
    value_at: Callable[[Vector], float], project: Callable[[Vector], Vector], x: Vector, here: float, seed: int
) -> Around:
    """Values at points of X around x, in all directions of few variables, in random ones of many."""
    generator = np.random.default_rng(seed)
    n = len(x)
    few = 2 * n <= MOST_DIRECTIONS
    directions = np.eye(n) if few else generator.standard_normal((MOST_DIRECTIONS // 2, n)) / np.sqrt(n)
    if few and n > 1:
        directions = np.concatenate([directions, generator.standard_normal((min(n, 4), n)) / np.sqrt(n)])
    size = 1.0 + float(np.max(np.abs(x), initial=0.0))
    best, improvement, steepest = None, 0.0, 0.0
    for direction in (*directions, *-directions):
        for distance in DISTANCES:
            point = project(x + distance * size * direction)
            length = float(np.linalg.norm(point - x))
            if length < 1e-9 * size:
                continue
            gained = here - value_at(point)
            steepest = max(steepest, gained / length)
            if gained > improvement:
                best, improvement = point, gained
    return Around(best, improvement, steepest)
