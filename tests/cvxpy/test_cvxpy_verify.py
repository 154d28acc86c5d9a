"""Results verified by another solver, and the command line on files with problems in CVXPY."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
from typer.testing import CliRunner

from blocc.cli.commands import build_app
from blocc.cvxpy import BilevelProblem, RunOptions, dual, solvers
from blocc.cvxpy.judge import second_value
from blocc.cvxpy.run import ConicRun
from blocc.cvxpy.solvers import Outcome
from blocc.result import Status

pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")

FILE = """
import cvxpy as cp
from blocc.cvxpy import BilevelProblem

price, demand = cp.Parameter(name="price", bounds=[0, 5]), cp.Variable(2, name="demand", nonneg=True)
follower = cp.Problem(cp.Maximize(3 * cp.sum(cp.sqrt(demand)) - price * cp.sum(demand)), [cp.sum(demand) <= 4])
problem = BilevelProblem(cp.Maximize((price - 0.5) * cp.sum(demand)), follower, price)
"""


def _priced() -> BilevelProblem:
    d, g = cp.Parameter(name="d", bounds=[0, 3]), cp.Variable(2, nonneg=True, name="g")
    rule = d <= cp.sum(g)
    follower = cp.Problem(cp.Minimize(g[0] + 3 * g[1] + 0.5 * cp.sum_squares(g)), [rule, g[0] <= 1])
    return BilevelProblem(cp.Maximize(4 * d - cp.square(d) - dual(rule)), follower, d)


def _cones() -> BilevelProblem:
    x, y = cp.Parameter(name="x", bounds=[-1, 2]), cp.Variable(2, name="y")
    follower = cp.Problem(cp.Minimize(cp.norm2(y - 1) + cp.exp(y[0] - x)), [cp.sum(y) >= x])
    return BilevelProblem(cp.Minimize(cp.square(x - 1) + y[0]), follower, x)


@pytest.mark.parametrize("make", [pytest.param(_priced, marks=pytest.mark.slow), _cones])
def test_true_results_are_verified_and_forged_ones_are_not(make: object, tmp_path: Path) -> None:
    problem: BilevelProblem = make()  # type: ignore[operator]
    result = problem.solve(0.7, progress=False)
    assert result.success, result
    loaded = type(result).load(result.save(tmp_path / "result"))
    found = problem.verify(loaded)
    assert found.ok, found
    (name,), (below,) = result.x, list(result.y)[:1]
    forged = (
        replace(result, upper_value=result.upper_value + 0.01),
        replace(result, lower_value=result.lower_value - 0.01),
        replace(result, y={**result.y, below: result.y[below] + 0.05}),
        replace(result, x={name: result.x[name] + 9.0}),
    )
    for one in forged:
        assert not problem.verify(one).ok
    elsewhere = problem.solve(float(result.x[name]) - 0.3, max_iterations=1, time_limit=1e-9, progress=False)
    claimed = replace(elsewhere, status=result.status)
    assert not problem.verify(claimed).ok


@pytest.mark.parametrize("cost", [1e-9, 1e-6, 1e3])
@pytest.mark.parametrize("size", [1e3, 1e6])
def test_right_answers_are_verified_in_all_units(cost: float, size: float) -> None:
    x, y = cp.Parameter(name="x", bounds=[0, size]), cp.Variable(name="y")
    follower = cp.Problem(cp.Minimize(cost * (cp.square(y) / 2 - x * y)))
    problem = BilevelProblem(cp.Minimize(cp.square(y / size - 0.5) + 0.1 * cp.square(x / size)), follower, x)
    result = problem.solve(0.3 * size, progress=False)
    np.testing.assert_allclose(result.upper_value, 0.25 / 11, rtol=1e-6)  # by hand
    assert problem.verify(result).ok, problem.verify(result)


@pytest.mark.parametrize("away", [3e-3, -3e-3])
def test_a_point_beside_the_best_one_is_refused_by_its_slope(away: float) -> None:
    problem = _priced()
    result = problem.solve(0.7, progress=False)
    best = float(result.x["d"])
    beside = ConicRun(problem, RunOptions(progress=False))
    point, _ = beside._begin(np.array([best + away * (1.0 + best)]))
    judged = beside._judged(point)
    assert judged is not None
    forged = replace(beside._conclude(judged, Status.CONVERGED, ""), certificate=result.certificate)
    failed = [check.name for check in problem.verify(forged).checks if not check.ok]
    assert failed == ["no better x nearby"]


def _cone_programs() -> dict[str, cp.Problem]:
    z, matrix = cp.Variable(3), cp.Variable((3, 3), symmetric=True)
    wanted = np.array([[2.0, -1.0, 0.3], [-1.0, 0.5, 0.7], [0.3, 0.7, -1.0]])
    return {
        "quadratic": cp.Problem(cp.Minimize(cp.sum_squares(z - 1) + z[0]), [cp.sum(z) <= 1, z >= -2]),
        "second-order": cp.Problem(cp.Minimize(cp.norm(z - 2) + z[1]), [cp.norm(z) <= 1]),
        "semidefinite": cp.Problem(cp.Minimize(cp.sum_squares(matrix - wanted)), [matrix >> 0, cp.trace(matrix) <= 2]),
        "exponential": cp.Problem(cp.Minimize(cp.sum(cp.exp(z)) - z[0]), [cp.sum(z) == 1]),
        "power": cp.Problem(cp.Minimize(-cp.geo_mean(z) + 0.1 * z[2]), [cp.sum(z) <= 3]),
    }


@pytest.mark.parametrize("name", _cone_programs())
def test_the_second_solver_agrees_with_the_first(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = _cone_programs()[name]
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    wanted, points = float(problem.value), [np.array(one.value) for one in problem.variables()]
    monkeypatch.setattr(solvers, "_by_clarabel", lambda numbers, *_: solvers.without_answer(numbers, Outcome.FAILED))
    found, _ = second_value(problem)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)
    for one, point in zip(problem.variables(), points, strict=True):
        np.testing.assert_allclose(one.value, point, atol=1e-3)


def test_the_command_line_solves_and_verifies_files_with_problems_in_cvxpy(tmp_path: Path) -> None:
    file = tmp_path / "tariff.py"
    file.write_text(FILE)
    app, runner = build_app(), CliRunner()
    done = runner.invoke(app, ["solve", str(file), "--x0", "2.0", "--json", "--save", str(tmp_path / "kept")])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    # Each demand is (1.5 / p)^2 by hand, unless both together reach the limit.
    prices = np.linspace(0.01, 5, 5000)
    sold = np.minimum(4.5 / prices**2, 4.0)
    np.testing.assert_allclose(document["upper_value"], float(np.max((prices - 0.5) * sold)), atol=1e-3)
    verified = runner.invoke(app, ["verify", str(tmp_path / "kept"), str(file)])
    assert verified.exit_code == 0, verified.output
    refused = runner.invoke(app, ["solve", str(file), "--inner", "pdhg"])
    assert refused.exit_code != 0
    assert "inner" in str(refused.exception) + refused.output
    many = runner.invoke(app, ["solve", str(file), "--starts", "2", "--json"])
    assert many.exit_code == 0, many.output


@pytest.mark.parametrize("seed", range(2))
def test_a_result_beside_a_kink_is_refused_for_the_better_x(seed: int) -> None:
    # The follower stays as close to Bx as a box allows, the leader counts absolute values: all is known in closed form.
    rng = np.random.default_rng(seed)
    slopes, wanted = rng.standard_normal((3, 2)), rng.uniform(-0.5, 0.5, 3)
    x, y = cp.Parameter(2, name="x", bounds=[-2, 2]), cp.Variable(3, name="y")
    follower = cp.Problem(cp.Minimize(cp.sum_squares(y - slopes @ x)), [y <= 1, y >= -1])
    leader = cp.Minimize(cp.norm1(y - wanted) + 0.1 * cp.sum_squares(x))
    problem = BilevelProblem(leader, follower, x)
    result = problem.solve(np.zeros(2), progress=False)
    assert result.success, result
    assert problem.verify(result).ok, problem.verify(result)
    for way in ([1.0, 1.0], [1.0, -1.0]):
        point = np.clip(np.asarray(result.x["x"]) + 0.03 * np.array(way), -2.0, 2.0)
        answer = np.clip(slopes @ point, -1.0, 1.0)
        value = float(np.abs(answer - wanted).sum() + 0.1 * point @ point)
        lower = float(((answer - slopes @ point) ** 2).sum())
        told = {"upper_value": value, "upper_value_penalty": value, "lower_value": lower}
        forged = replace(result, x={"x": point}, y={"y": answer}, y_penalty={"y": answer}, **told)
        found = problem.verify(forged)
        assert [one.name for one in found.failed] == ["no better x nearby"], found
