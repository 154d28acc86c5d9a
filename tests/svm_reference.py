"""Reference answers for the margins' problems from CVXPY and Clarabel; shares no code with the application."""

from __future__ import annotations

import itertools
import warnings
from typing import NamedTuple

import clarabel
import cvxpy as cp
import numpy as np
from scipy import sparse

Samples = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class Margins(NamedTuple):
    """The bilevel problem of the margins, as plain arrays."""

    rows: np.ndarray
    validation: np.ndarray
    ridge: np.ndarray
    c_penalty: str
    c_weight: float

    def price(self, c: np.ndarray) -> float:
        kinds = {"sum": np.sum(c), "squared": 0.5 * np.sum(c**2), "norm": np.sqrt(np.sum(c**2))}
        return float(self.c_weight * kinds[self.c_penalty])

    def upper(self, c: np.ndarray, y: np.ndarray) -> float:
        return float(np.sum(np.exp(1.0 - self.validation @ y))) + self.price(c)


class Branch(NamedTuple):
    """The best bilevel answer with a given set of held samples."""

    held: tuple[bool, ...]
    value: float
    y: np.ndarray
    c: np.ndarray


def signed_rows(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return labels[:, None] * np.hstack([features, np.ones((len(features), 1))])


def margins_of(
    samples: Samples, c_penalty: str = "sum", c_weight: float = 10.0, intercept_weight: float = 0.0
) -> Margins:
    ridge = np.append(np.ones(samples[0].shape[1]), intercept_weight)
    return Margins(signed_rows(*samples[:2]), signed_rows(*samples[2:]), ridge, c_penalty, c_weight)


def overlapping(seed: int, n: int = 20, features: int = 2, m: int = 12, distance: float = 1.0) -> Samples:
    """Two clouds at a distance; both classes occur in both tables."""
    generator = np.random.default_rng(seed)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.where(generator.uniform(size=count) < 0.5, -1.0, 1.0)
        labels[:2] = -1.0, 1.0
        return 0.5 * distance * labels[:, None] + generator.standard_normal((count, features)), labels

    return (*draw(n), *draw(m))


def solved(problem: cp.Problem) -> str:
    """Solve as precisely as rounding permits; the status."""
    for wanted, least in ((1e-12, 1e-9), (1e-9, 1e-6)):
        kinds = ("tol_gap_abs", "tol_gap_rel", "tol_feas")
        options = dict.fromkeys(kinds, wanted) | {f"reduced_{kind}": least for kind in kinds}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of every solution short of the first tolerance
            try:
                problem.solve(solver=cp.CLARABEL, max_iter=300, **options)
            except cp.SolverError:
                continue
        if problem.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE, cp.INFEASIBLE):
            return problem.status
    raise RuntimeError(f"Clarabel ended with status {problem.status}")


def losses(validation: np.ndarray, y: cp.Variable) -> cp.Expression:
    return cp.sum(cp.exp(1.0 - validation @ y))


def solve_lower_level(
    rows: np.ndarray,
    ridge: np.ndarray,
    c: np.ndarray,
    validation: np.ndarray | None = None,
    gamma: float | None = None,
) -> tuple[float, np.ndarray, np.ndarray] | None:
    """Value, y and multipliers of the follower (or the penalised follower); None where no y meets the demands."""
    y = cp.Variable(rows.shape[1])
    quadratic = 0.5 * cp.sum_squares(cp.multiply(np.sqrt(ridge), y))
    objective = quadratic if gamma is None else losses(validation, y) + gamma * quadratic
    limit = rows @ y >= 1.0 - c
    problem = cp.Problem(cp.Minimize(objective), [limit])
    if solved(problem) == cp.INFEASIBLE:
        return None
    return float(problem.value), np.asarray(y.value), np.asarray(limit.dual_value)


def solve_upper_level(
    rows: np.ndarray,
    validation: np.ndarray,
    *,
    ridge: np.ndarray,
    c_weight: float,
    charge: np.ndarray,
    held: np.ndarray | None = None,
    coupling: np.ndarray | None = None,
) -> tuple[float, np.ndarray, np.ndarray] | None:
    """Value, y and c of the leader's convex problem; coupled where some samples are held."""
    n, p = rows.shape
    y, c = cp.Variable(p), cp.Variable(n, nonneg=True)
    objective = losses(validation, y) + 0.5 * cp.sum_squares(cp.multiply(np.sqrt(ridge), y))
    objective += 0.5 * c_weight * cp.sum_squares(c) + charge @ c
    slack = rows @ y + c - 1.0
    constraints = [slack >= 0.0]
    if held is not None:
        where = np.flatnonzero(held)
        constraints = [slack[np.flatnonzero(~held)] >= 0.0, slack[where] == 0.0] if len(where) else constraints
        support = cp.Variable(max(len(where), 1), nonneg=True)
        combined = rows[where].T @ support if len(where) else np.zeros(p)
        constraints.append(cp.multiply(coupling, y) == combined)
    problem = cp.Problem(cp.Minimize(objective), [limit for limit in constraints if limit.size])
    if solved(problem) == cp.INFEASIBLE:
        return None
    return float(problem.value), np.asarray(y.value), np.asarray(c.value)


def all_branches(problem: Margins) -> list[Branch]:
    """Every set of held samples with its best answer: together the whole (optimistic) bilevel problem."""
    sets = itertools.product((False, True), repeat=len(problem.rows))
    return [branch for held in sets if (branch := solve_branch(problem, held)) is not None]


def solve_branch(problem: Margins, held: tuple[bool, ...]) -> Branch | None:
    """One convex branch, given to Clarabel as a cone program over (y, c, mu, losses, length of c)."""
    rows, validation = problem.rows, problem.validation
    (n, p), m = rows.shape, len(validation)
    holding, free = np.array(held), ~np.array(held)
    support = rows[holding].T  # (p, number of held samples)
    k = support.shape[1]
    width = p + n + k + m + 1
    at_c, at_mu, at_loss, at_length = p, p + n, p + n + k, width - 1

    def block(height: int, **parts: np.ndarray) -> np.ndarray:
        table = np.zeros((height, width))
        for name, values in parts.items():
            begin = {"y": 0, "c": at_c, "mu": at_mu, "loss": at_loss, "length": at_length}[name]
            table[:, begin : begin + values.shape[1]] = values
        return table

    pick = np.eye(n)
    equal = [
        block(k, y=rows[holding], c=pick[holding]),
        block(p, y=np.diag(problem.ridge), mu=-support),
    ]
    least = [
        block(n - k, y=-rows[free], c=-pick[free]),
        block(n, c=-pick),
        block(k, mu=-np.eye(k)),
    ]
    parts, right = [*equal, *least], [np.ones(k), np.zeros(p), -np.ones(n - k), np.zeros(n + k)]
    cones = [clarabel.ZeroConeT(k + p), clarabel.NonnegativeConeT(2 * n)]
    for j in range(m):  # (1 - v . y, 1, loss) lies in the exponential cone
        parts.append(block(1, y=validation[j : j + 1]))
        parts.append(block(1))
        parts.append(block(1, loss=-np.eye(m)[j : j + 1]))
        right.append(np.array([1.0, 1.0, 0.0]))
        cones.append(clarabel.ExponentialConeT())
    cost, curvature = np.zeros(width), np.zeros(width)
    cost[at_loss:at_length] = 1.0
    if problem.c_penalty == "sum":
        cost[at_c:at_mu] = problem.c_weight
    elif problem.c_penalty == "squared":
        curvature[at_c:at_mu] = problem.c_weight
    cost[at_length] = problem.c_weight if problem.c_penalty == "norm" else 0.0
    if problem.c_penalty == "norm":
        parts += [block(1, length=-np.ones((1, 1))), block(n, c=-pick)]
        right.append(np.zeros(1 + n))
        cones.append(clarabel.SecondOrderConeT(1 + n))
    else:
        parts.append(block(1, length=np.ones((1, 1))))
        right.append(np.zeros(1))
        cones.append(clarabel.ZeroConeT(1))
    quadratic, matrix = sparse.diags(curvature, format="csc"), sparse.csc_matrix(np.vstack(parts))
    for tolerance in (1e-10, 1e-8, 1e-7):
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_iter = 300
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
        settings.reduced_tol_gap_abs = settings.reduced_tol_gap_rel = settings.reduced_tol_feas = 100.0 * tolerance
        found = clarabel.DefaultSolver(quadratic, cost, matrix, np.concatenate(right), cones, settings).solve()
        status = str(found.status)
        if status in ("Solved", "AlmostSolved"):
            z = np.array(found.x)
            y, c = z[:p], z[at_c:at_mu]
            return Branch(held, problem.upper(np.maximum(c, 0.0), y), y, c)
        if "PrimalInfeasible" in status:
            return None
    raise RuntimeError(f"Clarabel ended a branch with status {status}")
