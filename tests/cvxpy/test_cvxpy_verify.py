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
from blocc.cvxpy import BilevelProblem, dual

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
