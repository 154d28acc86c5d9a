"""Followers replaced by their optimality conditions: global optima against enumeration, and what is refused."""

from __future__ import annotations

import signal
import threading
import warnings
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from blocc import BilevelProblem, Box, ProblemError, Reals, Result, Simplex, Status, solve_global, verify
from blocc._lib.precision import double_precision
from blocc.global_search.answer_row import answer_row
from blocc.global_search.forms import constraints_of, follower_of
from blocc.global_search.reply import reply_at
from blocc.problems.textbook import known_problem, known_problems
from blocc.report.storage import describe
from clocks import counted
from global_reference import (
    interdiction_problem,
    least_flow,
    ring_problem,
    ring_value,
    toll_problem,
    toll_revenue,
)
from selections import few

LINEAR = [entry.name for entry in known_problems() if "linear" in entry.tags]
OTHERS = ["falk_liu_1995", "simplex_projection", "outrata_1990_example_1a", "two_road_toll", "morgan_patrone_2006"]


@pytest.fixture(scope="module")
def tolls() -> BilevelProblem:
    return toll_problem()


@pytest.fixture(scope="module")
def ring() -> BilevelProblem:
    return ring_problem()


@pytest.mark.parametrize("name", few([*LINEAR, *OTHERS], *LINEAR[::3], *OTHERS[::2]))
def test_textbook_values_are_proven(name: str) -> None:
    entry = known_problem(name)
    result = solve_global(entry.problem, starts=0)
    assert result.status is Status.CONVERGED
    assert result.upper_value == pytest.approx(entry.upper_value, rel=1e-6, abs=1e-6)
    assert result.bound is not None
    assert result.gap is not None
    assert result.bound <= entry.upper_value + 1e-6
    assert 0.0 <= result.gap <= 1e-6 * max(1.0, abs(result.upper_value))
    assert result.certificate.exact


def toll_data(seed: int) -> dict[str, np.ndarray]:
    """Whole numbers for even seeds, with many ties; others for odd ones, where ties hold up to rounding only."""
    generator = np.random.default_rng(seed)
    beyond = np.array([0, 0, 0, 0, 0, 0, 0, 9, 7])  # the links that bypass all tolls are dear
    draw = generator.uniform if seed % 2 else generator.integers
    return {"cost": draw(1, 6, 9) + 1.0 * beyond, "demand": draw(1, 6, 2) + 0.0}


@pytest.mark.parametrize("seed", range(6))
def test_tolls_earn_what_enumeration_of_paths_finds(tolls: BilevelProblem, seed: int) -> None:
    data = toll_data(seed)
    result = solve_global(tolls.with_data(data), starts=0)
    assert result.status is Status.CONVERGED
    assert -result.upper_value == pytest.approx(toll_revenue(**data), abs=1e-6)


@pytest.mark.parametrize(
    ("leader", "follower"),
    [
        ([4.0, 4.0, 4.0], [4.0, 4.0, 4.0]),
        ([1.0, 1.0, 1.0], [0.3, 0.3, 0.3]),
        ([1.0, 2.0, 5.0], [3.0, 1.0, 0.7]),  # each trip has a weight of its own
    ],
)
def test_flows_without_bounds(ring: BilevelProblem, leader: list[float], follower: list[float]) -> None:
    data = {"leader": np.array(leader), "follower": np.array(follower)}
    result = solve_global(ring.with_data(data), starts=0)
    assert result.status is Status.CONVERGED
    assert result.upper_value == pytest.approx(ring_value(data["leader"]), abs=1e-6)


def test_costs_bound_what_constraints_do_not() -> None:
    """y[0] and y[1] may grow together for ever, and the leader would like that; the follower pays for both."""
    problem = BilevelProblem(
        upper=lambda x, y: -(y[0] ** 2) + 0.1 * x,
        lower=lambda x, y: (1.0 + x) * y[0] + y[1] + 2.0 * y[2],
        equality=lambda x, y: y[0] - y[1] + y[2] - 1.0,
        x_set=Box(-0.5, 4.0),
        y_set=Box.nonnegative(3),
    )
    result = solve_global(problem, starts=0)
    assert result.status is Status.CONVERGED
    assert result.upper_value == pytest.approx(-1.05)
    flat = problem.flat
    with double_precision():
        constraints, follower = constraints_of(flat), follower_of(flat)
    bounding = answer_row(constraints, follower)
    assert bounding is not None
    for x in np.linspace(-0.5, 4.0, 10):
        y = reply_at(constraints, follower, np.array([x]))
        assert y is not None
        assert bounding[0] @ y <= bounding[1]
    assert (bounding[0] > 0.0).all()  # with y >= 0 that leaves a bounded set


def test_interdiction_leaves_what_enumeration_of_cuts_finds() -> None:
    problem, generator = interdiction_problem(), np.random.default_rng(3)
    for budget in (0.5, 1.0, 1.5, 2.5):
        capacity = generator.integers(1, 9, 8) + 0.0
        result = solve_global(problem.with_data({"capacity": capacity, "budget": budget}), starts=0)
        assert result.status is Status.CONVERGED
        assert result.upper_value == pytest.approx(least_flow(capacity, budget), abs=1e-6)


@pytest.mark.slow
def test_the_local_answer_stands_beside_the_global_one() -> None:
    """One traveller would pay 8 and three more only 3: the middle of X leads to 8 from one."""
    problem = BilevelProblem(
        upper=lambda x, y: -x * (y[0] + 3.0 * y[1]),
        lower=lambda x, y: (2.0 + x) * (y[0] + 3.0 * y[1]) + 10.0 * (1.0 - y[0]) + 15.0 * (1.0 - y[1]),
        x_set=Box(0.0, 10.0),
        y_set=Box(0.0, 1.0, shape=2),
    )
    result = solve_global(problem, time_limit=None)
    assert result.upper_value == pytest.approx(-12.0)
    assert result.settings["local_upper_values"] == [pytest.approx(-8.0, abs=1e-4)]
    assert "best local answer had -8." in result.message
    assert verify(problem, result).ok


# --- random followers against a grid of x -----------------------------------------------------------------------------
N_X, N_Y, ROWS = 1, 3, 4


def random_problem(leader: str) -> BilevelProblem:
    """A linear or quadratic follower with coupled rows: ties, flat directions and infeasible x are common."""

    def upper(x: Any, y: Any, d: Any) -> Any:
        curved = jnp.sum((d["rx"] @ x + d["ry"] @ y) ** 2) if leader == "convex" else 0.0
        return d["fx"] @ x + d["fy"] @ y + curved

    return BilevelProblem(
        upper=upper,
        lower=lambda x, y, d: (d["c"] + d["coupling"] @ x) @ y + 0.5 * jnp.sum((d["root"] @ y) ** 2),
        inequality=lambda x, y, d: d["a"] @ x + d["b"] @ y - d["right"],
        x_set=Box(0.0, 2.0, shape=N_X),
        y_set=Box(0.0, 3.0, shape=N_Y),
        data=random_data(np.random.default_rng(0), True),
    )


def random_data(generator: np.random.Generator, quadratic: bool) -> dict[str, np.ndarray]:
    whole = lambda *shape: generator.integers(-2, 3, shape) + 0.0  # noqa: E731 - small integers make ties
    root = whole(N_Y, N_Y) * np.array([[1.0], [1.0], [0.0]]) * quadratic
    return {
        **{name: whole(N_X) for name in ("fx",)},
        **{name: whole(N_Y) for name in ("fy", "c")},
        "rx": whole(2, N_X),
        "ry": whole(2, N_Y),
        "coupling": whole(N_Y, N_X) * generator.integers(0, 2),
        "root": root,
        "a": whole(ROWS, N_X),
        "b": whole(ROWS, N_Y),
        "right": generator.integers(0, 5, ROWS) + 0.0,
    }


def optimistic_value(d: dict[str, np.ndarray], x: np.ndarray, curved: bool) -> float:
    """f at the follower's answer that suits the leader best, by Clarabel on the follower's optimal face."""
    import cvxpy as cp

    y = cp.Variable(N_Y)
    inside = [y >= 0, y <= 3, d["b"] @ y <= d["right"] - d["a"] @ x]
    slope = d["c"] + d["coupling"] @ x
    below = cp.Problem(cp.Minimize(slope @ y + 0.5 * cp.sum_squares(d["root"] @ y)), inside)
    if below.solve(solver=cp.CLARABEL) == np.inf:
        return np.inf
    assert y.value is not None
    held = [slope @ y <= slope @ y.value + 1e-7, cp.abs(d["root"] @ (y - y.value)) <= 1e-7]
    above = d["fx"] @ x + d["fy"] @ y + (cp.sum_squares(d["rx"] @ x + d["ry"] @ y) if curved else 0.0)
    return float(cp.Problem(cp.Minimize(above), inside + held).solve(solver=cp.CLARABEL))


@pytest.mark.slow
@pytest.mark.parametrize("leader", few(["linear", "convex"], "convex"))
def test_bounds_hold_for_every_x(leader: str) -> None:
    problem, generator = random_problem(leader), np.random.default_rng(1)
    proven = 0
    for number in range(6):
        data = random_data(generator, quadratic=number % 2 == 0)
        result = solve_global(problem.with_data(data), starts=0)
        values = [optimistic_value(data, np.array([at]), leader == "convex") for at in np.linspace(0.0, 2.0, 21)]
        if result.status is Status.INFEASIBLE:
            assert not np.isfinite(values).any()
            continue
        proven += result.status is Status.CONVERGED
        assert result.bound is not None
        assert result.bound <= min(values) + 1e-5
        assert optimistic_value(data, np.asarray(result.x), leader == "convex") == pytest.approx(
            result.upper_value, abs=1e-4
        )
    assert proven >= 4


@pytest.mark.parametrize("size", [1e-10, 1e10])
def test_units_of_the_follower_do_not_matter(size: float) -> None:
    problem = BilevelProblem(
        upper=lambda x, y: -x - y,
        lower=lambda x, y: size * (y + x * y),
        inequality=lambda x, y: jnp.stack([1.0 - x - y, x - y]) * size,
        x_set=Box(0.0, 4.0),
        y_set=Box(-10.0, 10.0),
    )
    result = solve_global(problem, starts=0)
    assert result.status is Status.CONVERGED
    assert (result.x, result.y) == (pytest.approx(4.0), pytest.approx(4.0))


def test_ties_are_the_leaders() -> None:
    """The follower does not care where on an edge it stands; the leader does, and has a constraint of its own too."""
    problem = BilevelProblem(
        upper=lambda x, y: -y[0] + 0.1 * x,
        lower=lambda x, y: -(y[0] + y[1]),
        inequality=lambda x, y: y[0] + y[1] - x,
        upper_inequality=lambda x, y: y[0] - 1.5,
        x_set=Box(0.0, 4.0),
        y_set=Box(0.0, 2.0, shape=2),
    )
    result = solve_global(problem, starts=0)
    assert result.upper_value == pytest.approx(-1.35)
    assert result.x == pytest.approx(1.5)


def test_an_indifferent_follower_is_judged_without_overflow() -> None:
    problem = BilevelProblem(
        upper=lambda x, y: 0.1 * x - y, lower=lambda x, y: 0.0 * y, x_set=Box(0.0, 1.0), y_set=Box(0.0, 1.0)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = solve_global(problem, starts=0)
    assert result.status is Status.CONVERGED
    assert result.upper_value == pytest.approx(-1.0)


def test_leaders_that_bend_downwards_are_searched_by_intervals() -> None:
    """Products with x in the follower's constraints, and a constraint of the leader's own that is not convex."""
    problem = BilevelProblem(
        upper=lambda x, y: -x[0] * y[0] + x[1] * y[1] - 0.5 * y[1],
        lower=lambda x, y: (y[0] - x[1]) ** 2 + (x[0] - 0.4) * y[1],
        inequality=lambda x, y: y[0] + y[1] - 1.0 - 0.5 * x[0],
        upper_inequality=lambda x, y: 0.3 - x[0] * x[1],
        x_set=Box(0.0, 1.0, shape=2),
        y_set=Box(0.0, 1.0, shape=2),
    )
    result = solve_global(problem, starts=0, gap_tolerance=1e-4)
    assert result.status is Status.CONVERGED
    assert result.bound is not None
    best = np.inf
    for first, second in np.random.default_rng(0).uniform(0.0, 1.0, (4000, 2)):
        if first * second < 0.3:
            continue
        # Along y[1] the follower pays first - 0.4: it takes all that is left, nothing, or trades it for y[0].
        grid = np.linspace(0.0, 1.0, 101)
        y0, y1 = np.meshgrid(grid, grid)
        cost = np.where(y0 + y1 <= 1.0 + 0.5 * first + 1e-9, (y0 - second) ** 2 + (first - 0.4) * y1, np.inf)
        at = np.unravel_index(int(cost.argmin()), cost.shape)
        best = min(best, -first * y0[at] + second * y1[at] - 0.5 * y1[at])
    assert result.bound <= best + 0.02  # the grid's own error
    assert result.upper_value == pytest.approx(best, abs=0.03)


# --- other ends -------------------------------------------------------------------------------------------------------
def line(**changes: Any) -> BilevelProblem:
    """A follower on the line, with parts exchanged."""
    parts: dict[str, Any] = {
        "upper": lambda x, y: x[0] + y[0],
        "lower": lambda x, y: (y[0] - x[0]) ** 2,
        "x_set": Box(0.0, 1.0, shape=4),
        "y_set": Reals(1),
    }
    return BilevelProblem(**parts | changes)


def test_infeasible_is_proven() -> None:
    result = solve_global(line(upper_inequality=lambda x, y: 3.0 - y[0]), starts=0)
    assert result.status is Status.INFEASIBLE
    assert "proven" in result.message
    follower = solve_global(line(inequality=lambda x, y: jnp.stack([y[0], 1.0 - y[0]])), starts=0)
    assert follower.status is Status.INFEASIBLE


def test_unbounded_is_noticed() -> None:
    assert solve_global(line(x_set=Reals(4)), starts=0).status is Status.UNBOUNDED
    square = line(x_set=Reals(4), upper=lambda x, y: x[1] ** 2 + (x[0] - x[2]) ** 2 - x[0])
    assert solve_global(square, starts=0).status is Status.UNBOUNDED
    far = line(x_set=Reals(4), upper=lambda x, y: jnp.sum(x**2) - 5e4 * y[0])
    assert solve_global(far, starts=0).upper_value == pytest.approx(-6.25e8)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lower": lambda x, y: jnp.exp(y[0] - x[0])}, "lower uses exp"),
        ({"lower": lambda x, y: y[0] ** 4}, "degree 4"),
        ({"lower": lambda x, y: -(y[0] ** 2)}, "lower is not convex in y"),
        ({"inequality": lambda x, y: y[0] * x[1] - 1.0}, r"the product 1 x\[1\] y\[0\]"),
        ({"inequality": lambda x, y: y[0] ** 2 - x[1]}, r"row 0 of the follower's inequality .* 1 y\[0\]\^2"),
        ({"upper": lambda x, y: jnp.abs(x[0])}, "upper uses abs"),
        ({"upper": lambda x, y: x[0] * y[0] - 9.0 * x[1] * y[0], "x_set": Reals(4)}, r"the product -9 x\[1\] y\[0\]"),
        ({"upper_inequality": lambda x, y: -(x[0] ** 2), "x_set": Reals(4)}, r"upper_inequality .* -1 x\[0\]\^2"),
        ({"x_set": Box(0.0, 1.0, shape=500)}, "501 variables"),
    ],
)
def test_refusals_name_the_term(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ProblemError, match=words):
        solve_global(line(**changes), starts=0)


def test_a_set_of_the_users_own_is_refused() -> None:
    class Odd(Simplex):
        pass

    with pytest.raises(ProblemError, match="x_set is a Odd"):
        solve_global(line(x_set=Odd(4)), starts=0)


def hard_problem() -> BilevelProblem:
    """Twenty-five followers on the line, each at the better of two ends: more than a second's worth of nodes."""
    generator = np.random.default_rng(0)
    n = 25
    mix, pull, weight = generator.normal(size=(n, n)), generator.normal(size=n), generator.normal(size=(n, n))
    return BilevelProblem(
        upper=lambda x, y: pull @ y + jnp.sum((x - 0.3) ** 2),
        lower=lambda x, y: (mix @ x) @ y,
        upper_inequality=lambda x, y: weight[:5] @ y - 1.0,
        x_set=Box(-1.0, 1.0, shape=n),
        y_set=Box(0.0, 1.0, shape=n),
    )


def test_local_descents_get_no_share_of_the_time() -> None:
    """A fifth of it, on a machine this slow, would end the descent before it has converged."""
    problem = BilevelProblem(
        upper=lambda x, y: -x * (y[0] + 3.0 * y[1]),
        lower=lambda x, y: (2.0 + x) * (y[0] + 3.0 * y[1]) + 10.0 * (1.0 - y[0]) + 15.0 * (1.0 - y[1]),
        x_set=Box(0.0, 10.0),
        y_set=Box(0.0, 1.0, shape=2),
    )
    with counted(step=0.1):
        result = solve_global(problem, time_limit=100.0)
    assert result.settings["local_statuses"] == ["converged"]
    assert result.success


def test_the_time_limit_is_kept_with_a_valid_bound() -> None:
    problem = hard_problem()
    with counted(step=0.01) as clock:
        short = solve_global(problem, starts=0, time_limit=1.0)
    assert short.status is Status.TIME_LIMIT
    assert clock.passed < 1.5
    with counted(step=0.01):
        longer = solve_global(problem, starts=0, time_limit=4.0)
    assert short.bound is not None
    assert longer.bound is not None
    assert short.bound <= longer.bound + 1e-9 <= longer.upper_value + 2e-9
    assert short.gap == pytest.approx(short.upper_value - short.bound)


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals reach the main thread")
def test_an_interrupt_returns_what_is_known() -> None:
    problem = hard_problem()
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with counted(step=1e-3, at={100: lambda: signal.raise_signal(signal.SIGINT)}):
            result = solve_global(problem, starts=0, time_limit=30.0)
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.status is Status.INTERRUPTED
    assert result.bound is not None
    assert result.bound <= result.upper_value


def test_bound_and_gap_are_shown_saved_and_loaded(tmp_path: Path) -> None:
    result = solve_global(known_problem("liu_hart_1994").problem, starts=0)
    assert "bound        -16" in repr(result)
    loaded = Result.load(result.save(tmp_path / "answer"))
    assert (loaded.bound, loaded.gap) == (result.bound, result.gap)
    assert describe(result)["bound"] == result.bound


def test_the_grid_of_the_reference_is_no_better() -> None:
    """The enumeration of paths against plain random tolls with exact cheapest paths."""
    data, generator = toll_data(0), np.random.default_rng(0)
    best = toll_revenue(**data)
    problem = toll_problem().with_data(data)
    flat = problem.flat
    for _ in range(5):
        x = generator.uniform(0.0, 6.0, 3)
        total = 0.0
        for trip in range(2):
            rows = np.asarray(flat.equality(x, np.zeros(18))).reshape(2, 5)[trip]
            matrix = np.stack([np.asarray(flat.equality(x, unit)).reshape(2, 5)[trip] - rows for unit in np.eye(18)])
            matrix = matrix.T[:, 9 * trip : 9 * trip + 9]
            cost = data["cost"].copy()
            cost[[1, 3, 5]] += x
            flow = linprog(cost, A_eq=matrix, b_eq=-rows, bounds=(0.0, None)).x
            total += data["demand"][trip] * flow[[1, 3, 5]] @ x
        assert total <= best + 1e-6
