"""Whole runs: plain functions, several followers, many starts, checkpoints, limits, hostile problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cvxpy as cp
import jax.numpy as jnp
import numpy as np
import pytest

from blocc.cvxpy import BilevelProblem
from blocc.errors import BloccError, OptionError, ProblemError
from blocc.result import Status

pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")


def _tracking(name: str = "x") -> tuple[cp.Parameter, cp.Variable, cp.Problem]:
    x, y = cp.Parameter(2, name=name, bounds=[-3, 3]), cp.Variable(2, name="y")
    follower = cp.Problem(cp.Minimize(cp.sum_squares(y - x) + cp.norm1(y)), [cp.norm2(y) <= 1.2, cp.sum(y) <= 1])
    return x, y, follower


def _best_on_a_grid(x: cp.Parameter, follower: cp.Problem, value: Any, points: np.ndarray) -> float:
    found = []
    for a in points:
        for b in points:
            x.value = np.array([a, b])
            follower.solve(solver=cp.CLARABEL)
            found.append(float(value()))
    return min(found)


def test_a_plain_function_of_the_leaders_agrees_with_the_same_expression_and_with_a_grid() -> None:
    x, y, follower = _tracking()
    expression = cp.sum_squares(y - np.array([0.8, -0.5])) + 0.1 * cp.sum_squares(x)
    start = [1.0, -0.9]  # where |y| keeps y at 0, x = 0 is a local minimum too
    by_cvxpy = BilevelProblem(cp.Minimize(expression), follower, x).solve(start, progress=False)

    def plain(x: Any, y: Any) -> Any:
        return jnp.sum((y["y"] - jnp.array([0.8, -0.5])) ** 2) + 0.1 * jnp.sum(x["x"] ** 2)

    by_function = BilevelProblem(plain, follower, x).solve(start, progress=False)
    assert by_cvxpy.success, by_cvxpy
    assert by_function.success, by_function
    np.testing.assert_allclose(by_function.upper_value, by_cvxpy.upper_value, atol=1e-6)
    best = _best_on_a_grid(x, follower, lambda: expression.value, np.linspace(-3, 3, 25))
    assert by_cvxpy.upper_value <= best + 1e-6


@pytest.mark.slow
def test_a_plain_function_that_is_not_convex() -> None:
    x, y = cp.Parameter(name="x", bounds=[-2, 2]), cp.Variable((2, 2), symmetric=True, name="y")
    follower = cp.Problem(cp.Minimize(cp.sum_squares(y - x * np.array([[1.0, 0.5], [0.5, -1.0]]))), [cp.trace(y) <= 1])

    def plain(x: Any, y: Any) -> Any:
        return jnp.cos(2.0 * y["y"][0, 0]) * y["y"][0, 1] + 0.2 * x["x"] ** 2 + y["y"][1, 0]

    result = BilevelProblem(plain, follower, x).solve(-0.3, progress=False)
    assert result.success, result
    values = []
    for point in np.linspace(-2, 2, 401):
        x.value = point
        follower.solve(solver=cp.CLARABEL)
        values.append(float(plain({"x": point}, {"y": y.value})))
    local = min(values[k] for k in range(401) if -0.9 < np.linspace(-2, 2, 401)[k] < 0.2)
    assert result.upper_value <= local + 1e-5
    with pytest.raises(ProblemError, match="fails on arrays"):
        BilevelProblem(lambda x, y: y["z"], follower, x)
    with pytest.raises(ProblemError, match="one number"):
        BilevelProblem(lambda x, y: y["y"], follower, x)


def test_scenarios_are_followers_of_their_own_with_a_certificate_each() -> None:
    x = cp.Parameter(name="capacity", nonneg=True)
    followers, terms, weights = [], [], (0.5, 0.3, 0.2)
    for demand in (1.0, 2.0, 4.0):
        y = cp.Variable(name="served", nonneg=True)
        followers.append(cp.Problem(cp.Maximize(4 * y - 0.5 * cp.square(y)), [y <= x, y <= demand]))
        terms.append(y)
    income = sum(w * 3 * y for w, y in zip(weights, terms, strict=True))
    problem = BilevelProblem(cp.Maximize(income - x), followers, x, [x <= 10])
    result = problem.solve(0.5, progress=False)
    assert result.success, result
    grid = np.linspace(0, 10, 1001)
    best = max(float(sum(w * 3 * min(v, d) for w, d in zip(weights, (1, 2, 4), strict=True)) - v) for v in grid)
    np.testing.assert_allclose(result.upper_value, best, atol=1e-4)
    assert len(result.settings["followers"]) == 3
    assert all(max(one.values()) < 1e-5 for one in result.settings["followers"])
    assert set(result.y) == {"0.served", "1.served", "2.served"}


def test_names_and_values_of_several_parameters_stay_together() -> None:
    z, a = cp.Parameter(name="z", bounds=[-2, 3]), cp.Parameter((2, 2), name="a", bounds=[0, 2])
    y = cp.Variable((2, 2), name="y")
    follower = cp.Problem(cp.Minimize(cp.sum_squares(y - a - z)))
    target = np.array([[1.0, 2.0], [3.0, 4.0]])
    problem = BilevelProblem(cp.Minimize(cp.sum_squares(y - target) + cp.square(z - 2)), follower, [z, a])
    result = problem.solve(progress=False)
    assert result.success
    np.testing.assert_allclose(z.value, 5 / 3, atol=1e-4)  # by hand: (z - 1) + (z - 2) + (z - 2) = 0
    np.testing.assert_allclose(result.x["z"], 5 / 3, atol=1e-4)
    np.testing.assert_allclose(a.value, np.clip(target - 5 / 3, 0, 2), atol=1e-3)
    np.testing.assert_allclose(y.value, a.value + z.value, atol=1e-6)


@pytest.mark.parametrize("executor", [None, pytest.param("processes", marks=pytest.mark.slow)])
def test_many_starts_here_and_in_processes_find_the_same(executor: str | None) -> None:
    x, y = cp.Parameter(name="x", bounds=[-4, 4]), cp.Variable(name="y")
    shift = cp.Parameter(name="shift", value=0.3)  # no decision
    follower = cp.Problem(cp.Minimize(cp.square(y - x - shift)), [cp.abs(y) <= 3])
    problem = BilevelProblem(cp.Minimize(cp.abs(y - 2) - 0.5 * x - 0.7 * cp.abs(x + 1)), follower, x)
    here = problem.solve_many(x0s=[-3.0, 0.5, 3.0], progress=False)
    if executor is not None:
        pytest.importorskip("loky")
        there = problem.solve_many(x0s=[-3.0, 0.5, 3.0], progress=False, executor=executor)
        np.testing.assert_allclose(here.upper_values, there.upper_values, atol=1e-12)
        assert [one.status for one in here.results] == [one.status for one in there.results]
    np.testing.assert_allclose(x.value, here.best.x["x"])
    assert len(problem.solve_many(starts=2, seed=3, progress=False)) == 2
    with pytest.raises(OptionError, match="x0s"):
        problem.solve_many(x0s=[])


def test_a_run_that_was_stopped_is_continued_to_the_same_end(tmp_path: Path) -> None:
    x, y, follower = _tracking()
    problem = BilevelProblem(cp.Minimize(cp.sum_squares(y - np.array([0.8, -0.5])) + 0.1 * cp.norm1(x)), follower, x)
    whole = problem.solve([2.0, -1.0], progress=False)
    file = tmp_path / "run.npz"
    seen: list[int] = []

    def stop(state: Any) -> bool:
        seen.append(1)
        return len(seen) >= 3

    part = problem.solve([2.0, -1.0], progress=False, checkpoint=file, checkpoint_seconds=0.0, callback=stop)
    assert part.status is Status.STOPPED
    again = problem.solve([2.0, -1.0], progress=False, resume=file)
    np.testing.assert_array_equal(again.x["x"], whole.x["x"])
    assert again.counts["evaluations"] == whole.counts["evaluations"]
    other = BilevelProblem(cp.Minimize(cp.sum_squares(y - 0.7)), follower, x)
    with pytest.raises(BloccError, match="the leader's problem"):
        other.solve([2.0, -1.0], resume=file, progress=False)


@pytest.mark.slow
def test_many_starts_that_were_stopped_are_continued(tmp_path: Path) -> None:
    x, y = cp.Parameter(name="x", bounds=[-2, 2]), cp.Variable(name="y")
    problem = BilevelProblem(
        cp.Minimize(cp.square(y - 0.5) - 0.7 * cp.abs(x)), cp.Problem(cp.Minimize(cp.square(y - x))), x
    )
    whole = problem.solve_many(x0s=[-1.0, 0.3, 1.5], progress=False)
    file, seen = tmp_path / "run.npz", []

    def stop(state: Any) -> bool:
        seen.append(state)
        return len(seen) > whole.results[0].history.evaluations.size + 2  # in the second start

    part = problem.solve_many(x0s=[-1.0, 0.3, 1.5], progress=False, checkpoint=file, callback=stop)
    assert part.results[0].success
    assert not part.results[1].success
    again = problem.solve_many(x0s=[-1.0, 0.3, 1.5], progress=False, resume=file)
    np.testing.assert_array_equal(again.upper_values, whole.upper_values)
    with pytest.raises(OptionError, match="in this process"):
        problem.solve_many(starts=2, executor="processes", checkpoint=file)


def test_limits_end_a_run_with_the_best_point_so_far() -> None:
    x, y, follower = _tracking()
    problem = BilevelProblem(cp.Minimize(cp.sum_squares(y - 1)), follower, x)
    result = problem.solve([0.0, 0.0], time_limit=1e-9, progress=False)
    assert result.status is Status.TIME_LIMIT
    with pytest.raises(OptionError, match="is no option"):
        problem.solve(maxiter=3)
    with pytest.raises(OptionError, match="outside"):
        problem.solve([7.0, 0.0])


def test_followers_without_answers_are_told() -> None:
    x, y = cp.Parameter(name="x", bounds=[0, 4]), cp.Variable(name="y")
    nothing = cp.Problem(cp.Minimize(cp.square(y)), [y >= x + 1, y <= x])
    assert BilevelProblem(cp.Minimize(y), nothing, x).solve(1.0, progress=False).status is Status.INFEASIBLE
    endless = cp.Problem(cp.Minimize(y + x), [y <= x])
    assert (
        BilevelProblem(cp.Minimize(x + cp.square(y)), endless, x).solve(1.0, progress=False).status is Status.UNBOUNDED
    )
    # Feasible on one side only: the start is on the other, the best point on the edge.
    half = cp.Problem(cp.Minimize(cp.square(y)), [y >= 3 - x, y <= 1])
    result = BilevelProblem(cp.Minimize(x + 0.1 * y), half, x).solve(0.5, progress=False)
    assert result.success, result
    np.testing.assert_allclose(result.x["x"], 2.0, atol=1e-4)


def test_a_leader_without_a_minimum_is_told() -> None:
    x, y = cp.Parameter(name="x"), cp.Variable(name="y")
    follower = cp.Problem(cp.Minimize(cp.square(y - x)))
    assert BilevelProblem(cp.Minimize(y), follower, x).solve(0.0, progress=False).status is Status.UNBOUNDED


@pytest.mark.parametrize("sense", ["best", pytest.param("worst", marks=pytest.mark.slow)])
def test_answers_that_jump_and_ties_are_settled_for_the_leader_and_the_spread_told(sense: str) -> None:
    x, y = cp.Parameter(name="x", bounds=[-1, 1]), cp.Variable(2, nonneg=True, name="y")
    follower = cp.Problem(cp.Minimize(x * y[0]), [cp.sum(y) == 1])  # y jumps at x = 0, where all answers tie
    leader = cp.square(x) - y[0] if sense == "best" else cp.square(x) + y[0]
    result = BilevelProblem(cp.Minimize(leader), follower, x).solve(0.5, progress=False)
    assert result.success, result
    np.testing.assert_allclose(result.upper_value, -1.0 if sense == "best" else 0.0, atol=1e-4)
    if abs(float(result.x["x"])) < 1e-9:  # further away there is no tie
        assert result.settings["spread"] > 0.9
        assert "other answers as good" in result.message


def test_bad_problems_are_refused_by_name() -> None:
    x, y = cp.Parameter(name="x"), cp.Variable(name="y")
    good = cp.Problem(cp.Minimize(cp.square(y - x)))
    cases: list[tuple[Any, str]] = [
        (lambda: BilevelProblem(cp.Minimize(y), cp.Problem(cp.Minimize(-cp.square(y) + x)), x), "not convex"),
        (lambda: BilevelProblem(cp.Minimize(y), cp.Problem(cp.Minimize(cp.square(y) * x)), x), "Parameter.nonneg"),
        (lambda: BilevelProblem(cp.Minimize(y), cp.Problem(cp.Minimize(cp.square(y) + x * x * y)), x), "not DPP"),
        (lambda: BilevelProblem(cp.Minimize(cp.exp(x) * y), good, x), "not DPP"),
        (lambda: BilevelProblem(cp.Minimize(-cp.square(y)), good, x), "not convex"),
        (lambda: BilevelProblem(cp.Minimize(y), good, cp.Parameter(name="w")), "neither"),
        (lambda: BilevelProblem(cp.Minimize(cp.Variable(name="u") + y), good, x), "variable u"),
        (lambda: BilevelProblem(cp.Minimize(y), good, []), "x must be"),
        (lambda: BilevelProblem(y, good, x), "cp.Minimize"),
        (lambda: BilevelProblem(cp.Minimize(y), "follower", x), "follower must be"),
        (lambda: BilevelProblem(cp.Minimize(y), good, x, [3]), "no constraint"),
        (lambda: BilevelProblem(cp.Minimize(y), good, x, [cp.square(x) >= 1]), "not convex"),
        (lambda: BilevelProblem(cp.Minimize(y), [good, good], x), "shares a variable"),
    ]
    for make, words in cases:
        with pytest.raises(ProblemError, match=words):
            make()
    whole = cp.Variable(name="whole", integer=True)
    with pytest.raises(ProblemError, match="whole"):
        BilevelProblem(cp.Minimize(whole), cp.Problem(cp.Minimize(cp.square(whole - x))), x)
    matrix = cp.Parameter((2, 2), name="matrix", PSD=True)
    square = cp.Variable((2, 2))
    with pytest.raises(ProblemError, match="attribute PSD"):
        BilevelProblem(cp.Minimize(cp.sum(square)), cp.Problem(cp.Minimize(cp.sum_squares(square - matrix))), matrix)
    other = cp.Parameter(name="other")
    with pytest.raises(ProblemError, match="other, which has no value"):
        BilevelProblem(cp.Minimize(y), cp.Problem(cp.Minimize(cp.square(y - x - other))), x)


def test_the_best_of_many_starts_of_a_leader_who_maximises_is_the_largest() -> None:
    x, y = cp.Parameter(name="x", bounds=[-2, 2]), cp.Variable(name="y")
    follower = cp.Problem(cp.Maximize(-cp.square(y - x)))
    problem = BilevelProblem(cp.Maximize(cp.square(x) + 0.2 * y), follower, x)  # best at both ends
    found = problem.solve_many(x0s=[-1.5, 1.5], progress=False)
    np.testing.assert_allclose(sorted(found.upper_values), [3.6, 4.4], atol=1e-5)
    np.testing.assert_allclose(found.best.upper_value, 4.4, atol=1e-5)
    np.testing.assert_allclose(x.value, 2.0, atol=1e-5)


def test_solvers_are_chosen_by_size_and_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    from blocc.cvxpy import solvers

    def solved(**options: Any) -> Any:
        x, y = cp.Parameter(name="x", bounds=[0, 3]), cp.Variable(3, nonneg=True, name="y")
        follower = cp.Problem(cp.Minimize(np.array([1.0, 2.0, 4.0]) @ y), [cp.sum(y) >= x, y <= 1])
        problem = BilevelProblem(cp.Minimize(cp.square(x - 2.3) + 0.5 * y[1] + y[2]), follower, x)
        return problem.solve(1.0, progress=False, **options)

    plain = solved(solver="clarabel")
    grid = np.linspace(0, 3, 3001)
    values = (grid - 2.3) ** 2 + 0.5 * np.clip(grid - 1, 0, 1) + np.clip(grid - 2, 0, 1)
    np.testing.assert_allclose(plain.upper_value, values.min(), atol=1e-5)
    np.testing.assert_allclose(solved(solver="highs").upper_value, plain.upper_value, atol=1e-6)
    monkeypatch.setattr(solvers, "LARGE_LINEAR", 1)
    np.testing.assert_allclose(solved().upper_value, plain.upper_value, atol=1e-6)
    x, y, follower = _tracking()
    with pytest.raises(OptionError, match="not linear"):
        BilevelProblem(cp.Minimize(cp.sum(y)), follower, x).solve(solver="highs")


def test_multipliers_of_cones_are_set_as_cvxpy_sets_them() -> None:
    x, y, m = (
        cp.Parameter(name="x", bounds=[0.5, 2]),
        cp.Variable(3, name="y"),
        cp.Variable((2, 2), symmetric=True, name="m"),
    )
    ball, positive = cp.SOC(x, y[:2]), m >> 0.1 * np.eye(2)
    growth = cp.ExpCone(y[0], cp.Constant(1.0), y[2])
    cost = cp.sum_squares(y - np.array([2.0, 1.0, 0.5])) + cp.sum_squares(m - np.array([[1.0, 2.0], [2.0, -1.0]]))
    follower = cp.Problem(cp.Minimize(cost), [ball, positive, growth])
    result = BilevelProblem(cp.Minimize(cp.square(x - 1) + cp.square(y[0] - 0.8)), follower, x).solve(
        1.5, progress=False
    )
    assert result.success, result
    kept = [[np.array(part) for part in _parts(one)] for one in (ball, positive, growth)]
    value = float(x.value)
    follower.solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(x.value, value)
    for one, parts in zip((ball, positive, growth), kept, strict=True):
        for part, wanted in zip(parts, _parts(one), strict=True):
            np.testing.assert_allclose(part, wanted, atol=1e-4)
    assert max(float(np.max(np.abs(part))) for parts in kept for part in parts) > 0.1


def _parts(constraint: cp.Constraint) -> list[Any]:
    return [one.value for one in constraint.dual_variables]


def test_constraints_of_the_leaders_are_met_to_the_last_digits_and_not_overdone() -> None:
    x, y = cp.Parameter(2, name="x", bounds=[-3, 3]), cp.Variable(2, name="y")
    follower = cp.Problem(cp.Minimize(cp.sum_squares(y - x) + cp.sum(cp.exp(y))))
    limits = [cp.sum_squares(y) <= 1, y[0] >= 0.2]
    result = BilevelProblem(cp.Maximize(y[0] + 3 * y[1] - 0.1 * x[0]), follower, x, limits).solve(
        [0.5, 0.0], progress=False
    )
    assert result.success, result
    assert result.certificate.leader_violation <= 2e-8
    answer = result.y["y"]
    assert float(answer @ answer) >= 1 - 1e-6
    # By hand: any y can be had, with x = y + exp(y) / 2.
    angle = np.linspace(0, 2 * np.pi, 200_001)
    own, other = np.cos(angle), np.sin(angle)
    values = np.where(own >= 0.2, own + 3 * other - 0.1 * (own + np.exp(own) / 2), -np.inf)
    np.testing.assert_allclose(result.upper_value, values.max(), atol=1e-6)


@pytest.mark.slow
def test_edges_of_feasibility_and_constraints_of_the_leaders_against_grids() -> None:
    x, y = cp.Parameter(name="x", nonneg=True), cp.Variable(name="y")
    follower = cp.Problem(cp.Minimize(cp.square(y - x)), [y <= 3 - x, y >= 0])  # no answer beyond 3
    result = BilevelProblem(cp.Minimize(-x + 0.2 * y), follower, x).solve(1.0, progress=False)
    assert result.success, result
    np.testing.assert_allclose(result.upper_value, -3.0, atol=1e-4)
    x, y = cp.Parameter(name="x", bounds=[0, 4]), cp.Variable(2, name="y")
    follower = cp.Problem(cp.Maximize(cp.sum(cp.log(1 + y)) - x * y[0]), [cp.sum(y) <= 3, y >= 0])
    result = BilevelProblem(cp.Maximize(y[0] - 0.1 * x), follower, x, [y[1] >= 1.7]).solve(1.0, progress=False)
    assert result.success, result
    assert result.certificate.leader_violation <= 1e-6
    best = -np.inf
    for point in np.linspace(0, 0.4, 161):
        x.value = point
        follower.solve(solver=cp.CLARABEL)
        if y.value[1] >= 1.7 - 1e-6:
            best = max(best, float(y.value[0]) - 0.1 * point)
    assert best - 1e-3 <= result.upper_value <= best + 0.01  # the grid is that coarse


def test_kinks_of_an_l1_objective_take_no_thousands_of_evaluations() -> None:
    generator = np.random.default_rng(0)
    x, y = cp.Parameter(3, name="x", bounds=[-3, 3]), cp.Variable(3, name="y")
    mixed, rows = generator.normal(size=(3, 3)), generator.normal(size=(2, 3))
    limit = rows @ generator.normal(size=3) + generator.uniform(0.2, 1, 2)
    follower = cp.Problem(cp.Minimize(cp.sum_squares(y - mixed @ x)), [rows @ y <= limit, cp.norm(y, "inf") <= 2])
    wanted = cp.norm1(y - generator.normal(size=3)) + 0.5 * cp.norm1(x - generator.normal(size=3))
    rule = generator.normal(size=3) @ x + generator.normal(size=3) @ y <= generator.uniform(-0.5, 0.5)
    result = BilevelProblem(cp.Minimize(wanted), follower, x, [rule]).solve(progress=False)
    assert result.success, result
    np.testing.assert_allclose(result.upper_value, 2.524428, atol=1e-5)  # as with 3874 evaluations
    assert result.counts["evaluations"] < 400
