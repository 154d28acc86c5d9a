"""Units decide about nothing: programs scaled at random, and claims that a problem has no answer."""

from __future__ import annotations

import warnings

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from blocc.cvxpy import BilevelProblem, dual
from blocc.cvxpy.cone_program import ConeSizes, Numbers, canonical
from blocc.cvxpy.scaling import row_blocks
from blocc.cvxpy.solvers import Outcome, measured, solve
from blocc.result import Status

pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")


def _program(seed: int) -> tuple[Numbers, ConeSizes]:
    """Feasible and bounded; linear, quadratic, with a norm, or with exponentials."""
    generator, z = np.random.default_rng(seed), cp.Variable(4)
    costs = (
        generator.uniform(0.5, 2, size=4) @ z,
        cp.sum_squares(z - generator.normal(size=4)),
        cp.norm2(z - generator.normal(size=4)) + 0.1 * cp.sum(z),
        cp.sum(cp.exp(z)) - generator.uniform(0.5, 2, size=4) @ z,
    )
    rows = generator.uniform(0.2, 1, size=(2, 4))
    found = canonical(costs[seed % 4], [rows @ z >= 1, z >= -1, z <= 3, z[0] == 0.5], "a program")
    return found.at(found.theta({})), found.cones


def _in_other_units(numbers: Numbers, cones: ConeSizes, seed: int, powers: float) -> tuple[Numbers, float]:
    """The same program in units drawn at random: of columns, rows, the objective, and of all columns together."""
    generator, blocks = np.random.default_rng(1000 + seed), row_blocks(cones)
    draw = lambda count: 10.0 ** generator.uniform(-powers, powers, size=count)  # noqa: E731
    columns, rows, cost, length = draw(len(numbers.linear)), draw(len(blocks))[blocks], *draw(2)
    other = Numbers(
        sp.csc_array(sp.diags_array(columns) @ numbers.quadratic @ sp.diags_array(columns) * cost / length),
        cost * columns * numbers.linear,
        0.0,
        sp.csc_array(sp.diags_array(rows) @ numbers.matrix @ sp.diags_array(columns)),
        rows * numbers.offset * length,
    )
    return other, cost * length


@pytest.mark.parametrize("seed", range(8))
def test_answers_do_not_depend_on_units(seed: int) -> None:
    numbers, cones = _program(seed)
    wanted = solve(numbers, cones, 1e-10)
    other, cost = _in_other_units(numbers, cones, seed, 3.0)
    found = solve(other, cones, 1e-10)
    assert wanted.is_usable
    assert found.is_usable
    own = wanted.value - numbers.constant
    np.testing.assert_allclose(found.value / cost, own, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_answers_that_cannot_be_are_claimed_in_all_units(seed: int) -> None:
    generator, z = np.random.default_rng(seed), cp.Variable(3)
    size = 10.0 ** generator.uniform(-4, 6)
    rows = generator.uniform(0.2, 1, size=3)
    nothing = canonical(size * cp.sum_squares(z), [size * (rows @ z) >= size, size * z <= -size], "a program")
    endless = canonical(size * cp.sum(z), [size * (rows @ z) <= size], "a program")
    assert solve(nothing.at(nothing.theta({})), nothing.cones, 1e-9).outcome is Outcome.INFEASIBLE
    assert solve(endless.at(endless.theta({})), endless.cones, 1e-9).outcome is Outcome.UNBOUNDED


@pytest.mark.parametrize("seed", range(6))
def test_a_supplier_whose_costs_and_sizes_are_far_apart(seed: int) -> None:
    generator = np.random.default_rng(seed)
    size, cheap = 10.0 ** generator.uniform(0, 6), 10.0 ** generator.uniform(-4, 2)
    costly = cheap * 10.0 ** generator.uniform(1, 9 - np.log10(max(cheap, 1.0)) / 2)
    x, y = cp.Parameter(name="x", bounds=[0, size]), cp.Variable(2, name="y", nonneg=True)
    follower = cp.Problem(cp.Minimize(cheap * y[0] + costly * y[1]), [cp.sum(y) >= x, y[0] <= size])
    unit, pull = 0.25 * size, float(generator.uniform(-1, 1))
    leader = cp.Minimize(cp.square(x / unit - 3) + pull / unit * y[0])
    problem = BilevelProblem(leader, follower, x)
    result = problem.solve(0.1 * size, progress=False)
    assert result.success, (size, cheap, costly, result)
    share = 3 - 0.5 * pull
    np.testing.assert_allclose(result.upper_value, (share - 3) ** 2 + pull * share, atol=1e-4)
    assert problem.verify(result).ok, problem.verify(result)


@pytest.mark.parametrize("costs", [(1e-3, 1e3), (1e-3, 1e6), (1e6, 1e7)])
@pytest.mark.parametrize("solver", ["auto", "clarabel", "highs"])
def test_a_start_with_an_answer_is_not_called_infeasible_or_unbounded(costs: tuple[float, float], solver: str) -> None:
    x, y = cp.Parameter(name="x", bounds=[0, 1e6]), cp.Variable(2, name="y", nonneg=True)
    follower = cp.Problem(cp.Minimize(np.array(costs) @ y), [cp.sum(y) >= x, y[0] <= 1e6])
    leader = cp.Minimize(cp.square(x / 1e5 - 3) + 1e-5 * y[0])
    result = BilevelProblem(leader, follower, x).solve(1e5, solver=solver, progress=False)
    assert result.success, result
    np.testing.assert_allclose(result.upper_value, 2.75, atol=1e-4)  # at x = 2.5e5, by hand


def test_a_price_cap_that_cannot_be_met_is_named_with_the_least_violation() -> None:
    bid, output = cp.Parameter(name="bid", bounds=[0, 50]), cp.Variable(2, name="output", nonneg=True)
    balance = 10 - cp.sum(output) == 0
    cost = bid * output[0] + 40 * output[1] + cp.sum_squares(output)
    market = cp.Problem(cp.Minimize(cost), [balance, output <= np.array([6.0, 20.0])])
    problem = BilevelProblem(cp.Maximize(output[0]), market, bid, [dual(balance) <= 30])
    result = problem.solve(20.0, progress=False, time_limit=60.0)
    assert result.status is Status.INFEASIBLE
    np.testing.assert_allclose(result.certificate.leader_violation, 18.0, atol=1e-4)  # the price is 40 + 2 * 4 or more
    assert "dual(" in result.message
    assert "violated by 18, the least violation" in result.message
    stopped = problem.solve(20.0, progress=False, callback=lambda state: True)
    assert stopped.status is Status.STOPPED
    assert "violated by" in stopped.message


@pytest.mark.slow
def test_a_cap_that_cannot_be_met_is_named_where_points_around_are_better_otherwise() -> None:
    random = np.random.default_rng(0)
    random.integers(10, size=2)
    costs, most, share = random.uniform(20, 60, size=4), random.uniform(3, 15, size=6), random.uniform(0.5, 0.95)
    bids, output = cp.Parameter(2, name="bids", bounds=[0, 50]), cp.Variable(6, name="output", nonneg=True)
    demand = share * most.sum()
    balance = demand - cp.sum(output) == 0
    market = cp.Problem(cp.Minimize(bids @ output[:2] + costs @ output[2:]), [balance, output <= most])
    served, least = most[0] + most[1], 0.0  # with bids of 0 these are used first, and then the cheapest others
    for k in np.argsort(costs):
        if served < demand:
            least, served = costs[k], served + most[2 + k]
    cap = least * random.uniform(0.3, 0.9)
    problem = BilevelProblem(cp.Maximize(cp.sum(bids) + output[0]), market, bids, [dual(balance) <= cap])
    result = problem.solve([20.0, 20.0], progress=False)
    assert result.status is Status.INFEASIBLE, result
    np.testing.assert_allclose(result.certificate.leader_violation, least - cap, rtol=1e-6)


def test_answers_without_bounds_overflow_nothing() -> None:
    numbers, cones = _program(1)
    huge = np.full(len(numbers.linear), 1e200)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = measured(numbers, cones, Outcome.SOLVED, huge, np.full(len(numbers.offset), np.nan))
    assert found.outcome is Outcome.FAILED


def test_a_follower_with_a_small_objective_is_no_freer_than_another() -> None:
    size, cost = 1e-3, np.array([0.6, 0.8])
    x, y = cp.Parameter(name="x", bounds=[0, 2 * size]), cp.Variable(2, name="y")
    leader = cp.Minimize(cp.sum_squares(y / size - np.array([0.3, -0.9])))
    problem = BilevelProblem(leader, cp.Problem(cp.Minimize(1e-6 * (cost @ y)), [cp.norm(y) <= x]), x)
    result = problem.solve(1.5 * size, progress=False)
    np.testing.assert_allclose(result.upper_value, 0.6084, rtol=1e-4)
    np.testing.assert_allclose(result.y["y"], -float(result.x["x"]) * cost, atol=1e-4 * size)
    assert problem.verify(result).ok


def test_a_small_curvature_holds_the_answer_as_a_large_one_does() -> None:
    x, y = cp.Parameter(name="x", bounds=[-3, 3]), cp.Variable(name="y")
    leader = cp.Minimize(cp.square(y - 0.5) + 0.1 * cp.square(x))
    problem = BilevelProblem(leader, cp.Problem(cp.Minimize(1e-6 * cp.square(y - x)), [y <= 1, y >= -1]), x)
    result = problem.solve(2.0, progress=False)
    np.testing.assert_allclose([result.x["x"], result.y["y"]], 5 / 11, atol=1e-4)


def test_a_follower_too_steep_for_its_solvers_is_not_called_infeasible() -> None:
    size, a = 1e-3, np.array([1.5, -0.5])
    x, y = cp.Parameter(name="x", bounds=[-3 * size, 3 * size]), cp.Variable(2, name="y")
    most = size * np.array([0.4, 0.9])
    follower = cp.Problem(cp.Minimize(1e10 * cp.sum_squares(y - a * x)), [y <= most, y >= -most])
    result = BilevelProblem(cp.Minimize(cp.sum_squares(y / size)), follower, x).solve(1.1 * size, progress=False)
    assert result.status is not Status.INFEASIBLE, result


def test_a_second_solver_that_cycles_is_left_for_a_third() -> None:
    size = 1e3
    x, y = cp.Parameter(name="x", bounds=[-3 * size, 3 * size]), cp.Variable(2, name="y")
    most, near = size * np.array([0.4, 0.9]), np.array([1.5, -0.5]) * x - size * np.array([0.06, -0.05])
    follower = cp.Problem(cp.Minimize(1e-6 * cp.sum_squares(y - near)), [y <= most, y >= -most])
    problem = BilevelProblem(cp.Minimize(cp.sum_squares(y / size - np.array([-0.2, 0.5]))), follower, x)
    result = problem.solve(1.1 * size, progress=False)
    assert problem.verify(result).ok, problem.verify(result)
