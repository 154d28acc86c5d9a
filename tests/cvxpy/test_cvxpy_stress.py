"""Random small problems of all kinds against a grid in x: what is called converged is what it is said to be."""

from __future__ import annotations

from typing import NamedTuple

import cvxpy as cp
import numpy as np
import pytest

from blocc.cvxpy import BilevelProblem
from blocc.result import Result, Status

pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")


class Drawn(NamedTuple):
    problem: BilevelProblem
    x: cp.Parameter
    follower: cp.Problem
    upper: cp.Expression  #: in the leader's own words
    sign: float  #: 1: minimised
    rules: list[cp.Constraint]  #: of the leader's, on y


def draw(seed: int) -> Drawn:
    """Followers linear, quadratic or with a norm; all four senses; every fourth with a rule on y, every fifth tied."""
    generator = np.random.default_rng(1000 + seed)
    n_x, n_y = int(generator.integers(1, 3)), int(generator.integers(2, 5))
    x, y = cp.Parameter(n_x, name="x", bounds=[-1, 1]), cp.Variable(n_y, name="y")
    kind, up, down = seed % 3, 1.0 - 2.0 * (seed // 3 % 2), 1.0 - 2.0 * (seed // 6 % 2)
    pull, tilt = generator.normal(size=(n_y, n_x)), generator.normal(size=n_y)
    if seed % 5 == 0:
        tilt, pull = np.round(tilt), np.round(pull)  # ties
    lower = tilt @ y + (pull @ x) @ y
    if kind == 1:
        lower = lower + 0.5 * cp.sum_squares(y - pull @ x)
    if kind == 2:
        lower = lower + cp.norm2(y - generator.normal(size=n_y)) + 0.1 * cp.sum_squares(y)
    rows = generator.uniform(0.0, 1.0, size=(2, n_y))
    below = [rows @ y <= 1.5 + 0.3 * (generator.normal(size=(2, n_x)) @ x), y >= -1, y <= 1]
    follower = cp.Problem(cp.Minimize(lower) if down > 0 else cp.Maximize(-lower), below)
    upper = cp.sum_squares(y - generator.normal(size=n_y)) + generator.normal(size=n_x) @ x + 0.3 * cp.sum_squares(x)
    if seed % 7 == 0:
        upper = upper + cp.max(y)
    rules = [generator.normal(size=n_y) @ y <= 0.8] if seed % 4 == 0 else []
    leader = cp.Minimize(upper) if up > 0 else cp.Maximize(-upper)
    return Drawn(BilevelProblem(leader, follower, x, rules), x, follower, up * upper, up, rules)


def value_at(one: Drawn, point: np.ndarray) -> float:
    """The leader's value with the follower solved anew, minimised; infinite where her rules are broken."""
    one.x.value = point
    try:
        one.follower.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    except cp.error.SolverError:  # more digits than can be had
        one.follower.solve(solver=cp.HIGHS if one.follower.is_qp() else cp.SCS)
    if one.follower.status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        return np.inf
    if any(float(np.max(rule.violation())) > 1e-6 for rule in one.rules):
        return np.inf
    return one.sign * float(one.upper.value)


def faults(seed: int, samples: int) -> tuple[Result, list[str]]:
    """What is wrong with a result, in words."""
    one, generator = draw(seed), np.random.default_rng(seed)
    start = generator.uniform(-1, 1, size=one.x.size)
    result = one.problem.solve(start, progress=False, time_limit=60.0, seed=seed)
    found: list[str] = []
    if not result.success:
        honest = result.status in (Status.STALLED, Status.INFEASIBLE, Status.TIME_LIMIT)
        return result, [] if honest else [f"status {result.status.value}"]
    x, claimed = np.asarray(result.x["x"]), one.sign * result.upper_value
    allowed = 2e-5 * (1.0 + abs(claimed))
    anew, least = value_at(one, x), float(one.follower.value)
    tied = (result.settings["spread"] or 0.0) > 1e-4
    # Clarabel's gap of 1e-10 leaves an answer off by its root; where it cannot have that, by more.
    if not tied and not abs(anew - claimed) <= 1e-4 * (1.0 + abs(claimed)):
        found.append(f"claimed {claimed}, but {anew} with the follower solved anew")
    for variable in one.follower.variables():
        variable.value = result.y[variable.name()]
    if abs(float(one.follower.objective.value) - least) > 1e-5 * (1.0 + abs(least)):
        found.append(f"y gives the follower {one.follower.objective.value}, and {least} can be had")
    if abs(one.sign * float(one.upper.value) - claimed) > allowed:
        found.append(f"claimed {claimed}, but {one.sign * float(one.upper.value)} at the y that is told")
    if result.certificate.leader_violation > 1e-6:
        found.append(f"the leader's rule is violated by {result.certificate.leader_violation}")
    for _ in range(samples):
        point = np.clip(x + generator.uniform(-0.02, 0.02, size=len(x)), -1, 1)
        if value_at(one, point) < claimed - allowed:
            found.append(
                f"better by {claimed - value_at(one, point):.3g} at a distance of {np.max(abs(point - x)):.2g}"
            )
            break
    return result, found


#: Those of every day: one of each kind and sense, and one on which the judge's solver gives up.
_DAILY = (0, 3, 7, 40)


@pytest.mark.parametrize("seed", [k if k in _DAILY else pytest.param(k, marks=pytest.mark.slow) for k in range(100)])
def test_what_is_called_converged_is_a_local_optimum(seed: int) -> None:
    result, found = faults(seed, samples=15)
    assert not found, (found, result)
