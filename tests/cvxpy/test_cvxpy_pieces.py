"""Descent of f(x, y(x)) piece by piece: kinks, ties, faces of cones, units, and what that takes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from blocc.cvxpy import BilevelProblem
from blocc.cvxpy.implicit import Response, is_unique, polished
from blocc.cvxpy.run import ConicRun
from blocc.cvxpy.run_options import RunOptions
from blocc.cvxpy.solvers import solve

pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
FILE = Path(__file__).parents[2] / "benchmarks" / "cvxpy_examples.py"


@pytest.fixture
def examples() -> Any:
    """The benchmark's problems as a module."""
    spec = importlib.util.spec_from_file_location("cvxpy_examples", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "value"),  # by hand, or the best of a grid (docs/cvxpy.md)
    [
        ("tariff (docs)", 1.828125),
        ("scarcity", 20_000.0),
        ("limited payment", 5.85),
        ("wide range", 1 / 44),
        ("tie", -1.0),
    ],
)
def test_small_examples_take_some_tens_of_evaluations(examples: Any, name: str, value: float) -> None:
    found = examples.evaluated(examples.EXAMPLES[name](), 60.0)
    assert found.status == "converged"
    np.testing.assert_allclose(found.value, value, rtol=1e-7)
    assert found.evaluations <= 80


def test_what_cannot_be_met_is_told_after_some_tens_of_evaluations(examples: Any) -> None:
    found = examples.evaluated(examples.unmet_cap(), 60.0)
    assert found.status == "infeasible"
    assert found.evaluations <= 80


def test_prices_for_many_customers_end_at_no_value_that_cannot_be_had(examples: Any) -> None:
    """Hundreds of kinks: answers within a slack of the follower's best value feigned a better one."""
    problem, start = examples.four_prices(60)
    result = problem.solve(start, progress=False)
    assert result.success, result
    assert result.counts["evaluations"] <= 60
    (price,), follower = problem.x, problem.followers[0]
    follower.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    np.testing.assert_allclose(problem.objective.value, result.upper_value, rtol=1e-6)
    generator = np.random.default_rng(1)
    for _ in range(20):
        price.value = np.clip(result.x["price"] + generator.uniform(-1e-3, 1e-3, size=4), 0, 3)
        follower.solve(solver=cp.CLARABEL)
        assert problem.objective.value <= result.upper_value + 1e-5


@pytest.mark.parametrize("seed", range(3))
def test_many_kinks_at_once_are_met_exactly(seed: int) -> None:
    """Every coordinate has its optimum where its own row becomes active."""
    generator, n = np.random.default_rng(seed), 12
    x, y = cp.Parameter(n, name="x", bounds=[-3, 3]), cp.Variable(n, name="y")
    top = generator.uniform(-1, 1, size=n)
    follower = cp.Problem(cp.Minimize(cp.sum_squares(y - x)), [y <= top])
    leader = cp.sum_squares(y - 3) + cp.sum_squares(x - top) * 0.1 + 0.2 * cp.sum(x)
    result = BilevelProblem(cp.Minimize(leader), follower, x).solve(generator.uniform(-1, 1, size=n), progress=False)
    assert result.success, result
    np.testing.assert_allclose(result.x["x"], top, atol=1e-8)  # beyond a kink f rises by 0.2, before it falls
    assert result.counts["evaluations"] <= 80


@pytest.mark.parametrize("cost", [1e-9, 1.0, 1e3])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e6])
def test_the_response_does_not_depend_on_units(cost: float, size: float) -> None:
    """y = min(x, size) and its derivative, whatever the units of the cost and of x."""
    x, y = cp.Parameter(name="x"), cp.Variable(name="y")
    follower = cp.Problem(cp.Minimize(cost * cp.square(y - x)), [y <= size])
    model = BilevelProblem(cp.Minimize(y), follower, x).model
    program = model.followers[0].program
    for share, slope in ((0.7, 1.0), (1.4, 0.0)):
        (theta,) = model.follower_thetas(np.array([share * size]))
        pair = polished(program.at(theta), program.cones, solve(program.at(theta), program.cones, 1e-10))
        assert pair is not None
        here = Response(program, theta, pair)
        assert here.is_regular
        assert (here.rows.values > 0.0).all()
        moved = here.moved(model.columns_in_x(0, here.sides).toarray())
        column = program.variables[y.id].start
        np.testing.assert_allclose(pair.z[column], min(share, 1.0) * size, rtol=1e-9)
        np.testing.assert_allclose(moved[column, 0], slope, atol=1e-9)


def test_answers_are_unique_but_at_ties_and_on_flat_faces() -> None:
    x, y = cp.Parameter(name="x", value=0.5), cp.Variable(2, nonneg=True)
    tied = cp.Problem(cp.Minimize((1 + x) * y[0] + y[1]), [cp.sum(y) == 1])
    model = BilevelProblem(cp.Minimize(y[0]), tied, x).model
    program = model.followers[0].program
    for point, wanted in ((0.5, True), (0.0, False), (1e-9, False), (-0.5, True)):
        numbers = program.at(model.follower_thetas(np.array([point]))[0])
        found = solve(numbers, program.cones, 1e-10, "highs")
        assert is_unique(numbers, program.cones, found, 1.0) is wanted


def test_a_leader_takes_the_answer_that_suits_her_and_moves_along_the_tie() -> None:
    """At x[0] = x[1] all shares are as good; between them 0.3 is best, and x itself should be near (1, 2)."""
    x, y = cp.Parameter(2, name="x", bounds=[0, 3]), cp.Variable(2, nonneg=True, name="y")
    follower = cp.Problem(cp.Minimize(x @ y), [cp.sum(y) == 1])
    leader = 10 * cp.square(y[0] - 0.3) + cp.square(x[0] - 1) + cp.square(x[1] - 2)
    result = BilevelProblem(cp.Minimize(leader), follower, x).solve([1.0, 2.0], progress=False)
    np.testing.assert_allclose(result.upper_value, 0.5, atol=1e-6)
    np.testing.assert_allclose(result.x["x"], [1.5, 1.5], atol=1e-6)
    assert result.success, result


def test_an_exponentially_flat_face_has_a_derivative() -> None:
    """A share of exp(-80) is none: the others answer as if it were not there."""
    x, y = cp.Parameter(3, name="x", bounds=[-90, 90]), cp.Variable(3, nonneg=True, name="y")
    follower = cp.Problem(cp.Minimize(x @ y - cp.sum(cp.entr(y))), [cp.sum(y) == 1])
    problem = BilevelProblem(cp.Minimize(cp.square(y[0] - 0.25)), follower, x)
    run = ConicRun(problem, RunOptions(progress=False))
    found = run.evaluator(np.array([0.3, 0.0, 80.0]), np.inf, run.leader, 1e-11)
    assert found.usable
    share = 1.0 / (1.0 + np.exp(0.3))
    np.testing.assert_allclose(float(found.value), (share - 0.25) ** 2, atol=1e-12)
    slope = -2.0 * (share - 0.25) * share * (1.0 - share)
    np.testing.assert_allclose(found.gradient, [slope, -slope, 0.0], atol=1e-6)


def test_a_plateau_is_left_or_not_called_an_end() -> None:
    """Two of five shares fall off exponentially at the start: f changes by 1e-10 nearby, by 0.3 further away."""
    generator = np.random.default_rng(0)
    x, y = cp.Parameter(5, name="x", bounds=[-50, 50]), cp.Variable(5, nonneg=True, name="y")
    follower = cp.Problem(cp.Minimize(x @ y - cp.sum(cp.entr(y))), [cp.sum(y) == 1])
    leader = cp.sum_squares(y - generator.dirichlet(np.ones(5)))
    problem = BilevelProblem(cp.Minimize(leader), follower, x)
    result = problem.solve([32.84, 5.51, 18.28, 6.48, 35.06], progress=False)
    assert not result.success or result.upper_value < 1e-4, result  # every target can be had
