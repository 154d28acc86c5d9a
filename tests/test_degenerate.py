"""Problems that break a textbook assumption each end with the right status, a sentence that helps, and a finite point.

All of them are one quadratic problem with other numbers, given as data, so little is compiled.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, Reals, Status, solve, solve_many
from blocc.judge.verify import verify
from selections import few

SLACK = np.array([100.0, 100.0, 100.0, 100.0])
IDENTITY, NOTHING = np.eye(2), np.zeros((4, 2))


def _upper(x: Any, y: Any, d: Any) -> Any:
    far = 0.5 * jnp.sum(d["w"] * (x - d["a"]) ** 2) + d["q"] @ x
    return d["unit"] * (far + 0.5 * d["v"] * jnp.sum((y - d["t"]) ** 2))


TEMPLATE = BilevelProblem(
    upper=_upper,
    lower=lambda x, y, d: 0.5 * y @ d["H"] @ y + (d["c"] + d["C"] @ x) @ y,
    inequality=lambda x, y, d: d["A"] @ y + d["B"] @ x - d["b"],
    x_set=Reals(1),
    y_set=Reals(2),
    data={
        **{"unit": 1.0, "w": np.ones(1), "a": np.zeros(1), "q": np.zeros(1), "v": 1.0, "t": np.zeros(2)},
        **{"H": IDENTITY, "c": np.zeros(2), "C": np.zeros((2, 1)), "A": NOTHING, "B": np.zeros((4, 1)), "b": SLACK},
    },
)


def numbers(rows: list[tuple[list[float], float, float]] | None = None, **changes: Any) -> BilevelProblem:
    """The template with these rows ``(A, B, b)`` of ``A y + B x <= b`` (the others far away) and other numbers."""
    data = {name: np.array(value) for name, value in TEMPLATE.data.items()}
    for index, (left, move, right) in enumerate(rows or []):
        data["A"][index], data["B"][index], data["b"][index] = left, move, right
    for name, value in changes.items():
        data[name] = np.broadcast_to(np.asarray(value, dtype=float), data[name].shape)
    return TEMPLATE.with_data(data)


LINE = ([-1.0, -1.0], 1.0, 0.0)  # x <= y1 + y2

SOLVABLE = {
    # y1 = |x| out of three rows for one variable; the leader's value has a kink at the answer.
    "licq fails": (
        numbers([([-1, 0], 1, 0), ([-1, 0], -1, 0), ([-1, 0], 0, 0)], c=[1, 0], a=0.5, t=[-1, 0]),
        (0.625, 0.0, (0.0, 0.0)),
    ),
    # The same row three times: y = (x/2, x/2), with a whole triangle of multipliers.
    "repeated rows": (
        numbers([LINE, ([-2, -2], 2, 0), ([-0.5, -0.5], 0.5, 0)], a=3.0),
        (1.5, 2.0, (1.0, 1.0)),
    ),
    # y1 <= x and y1 >= x: nothing is strictly feasible.
    "hidden equality": (numbers([([1, 0], -1, 0), ([-1, 0], 1, 0)], c=[-5, 0], a=2.0), (1.0, 1.0, (1.0, 0.0))),
    # y2 means nothing to the follower: the leader gets y2 = 3 for nothing.
    "many minimisers": (
        numbers(H=np.diag([1.0, 0.0]), C=[[-1], [0]], a=2.0, t=[0, 3]),
        (1.0, 1.0, (1.0, 3.0)),
    ),
    # y1 = max(0, x - 1), and the answer is x = 1.
    "switching": (numbers([([-1, 0], 1, 1)], a=1.0), (0.0, 1.0, (0.0, 0.0))),
    # x <= y1 <= 1: no answer of the follower for x > 1, where the run starts and where the leader wants to be.
    "wall": (numbers([([-1, 0], 1, 0), ([1, 0], 0, 1)], a=3.0, t=[1, 0]), (2.0, 1.0, (1.0, 0.0))),
    # All rows slack.
    "no active row": (numbers(C=[[-1], [-1]], a=3.0), (3.0, 1.0, (1.0, 1.0))),
}


@pytest.mark.parametrize("name", few(SOLVABLE, *(name for name in SOLVABLE if name != "wall")))
def test_degenerate_problems_are_solved(name: str) -> None:
    given, (value, x, y) = SOLVABLE[name]
    result = solve(given, np.array([4.0]))
    assert result.success, result.message
    assert result.upper_value == pytest.approx(value, abs=1e-4)
    assert result.x[0] == pytest.approx(x, abs=2e-2)
    np.testing.assert_allclose(result.y, y, atol=2e-2)


BOUNDED = [([1.0, 0.0], 0.0, 1.0), ([-1.0, 0.0], 0.0, 1.0), ([0.0, 1.0], 0.0, 1.0), ([0.0, -1.0], 0.0, 1.0)]

UNSOLVABLE = {
    "never feasible": (numbers([([1, 0], 0, -1), ([-1, 0], 0, -1)]), Status.INFEASIBLE, "cannot satisfy"),
    "lower unbounded": (numbers(H=np.diag([1.0, 0.0]), c=[0, -1]), Status.UNBOUNDED, "lower level is unbounded"),
    "upper unbounded": (numbers(w=0.0, v=0.0, q=1.0), Status.UNBOUNDED, "leader's objective falls"),
    "not convex": (numbers(BOUNDED, H=np.diag([1.0, -1.0]), c=[0, 0.1]), Status.NOT_CONVEX, "not convex in y"),
    "not finite": (numbers(c=[np.nan, 0]), Status.NOT_FINITE, "lower(x, y) returns nan"),
}


@pytest.mark.parametrize("name", UNSOLVABLE)
def test_ill_posed_problems_are_named(name: str) -> None:
    given, status, words = UNSOLVABLE[name]
    result = solve(given, np.array([0.5]))
    assert result.status is status, result.message
    assert words in result.message
    assert np.isfinite(result.x).all()


def in_odd_units(power: int) -> tuple[BilevelProblem, float, np.ndarray]:
    """x in units of 10^power, y1 in its inverse, both objectives and a row in units of their own; units of x and y."""
    plain, _ = SOLVABLE["repeated rows"]
    big, small = 10.0**power, 10.0 ** (-power / 2)
    d, stretch = dict(plain.data), np.array([small, 1.0])
    d |= {"unit": np.array(small), "w": d["w"] * big**2, "a": d["a"] / big}
    d |= {"H": 1e3 * d["H"] * stretch[:, None] * stretch, "A": d["A"] * stretch, "B": d["B"] * big}
    d["A"], d["B"], d["b"] = (np.concatenate([1e4 * d[name][:1], d[name][1:]]) for name in ("A", "B", "b"))
    # The leader's distance in y is not weighted by entry: aim where y ends, so that only x counts above.
    d |= {"v": np.array(0.0)}
    return TEMPLATE.with_data(d), big, stretch


@pytest.mark.parametrize("power", [-6, 6])
def test_units_do_not_matter(power: int) -> None:
    problem, big, stretch = in_odd_units(power)
    seen: list[float] = []
    result = solve(problem, np.array([4.0 / big]), callback=lambda state: seen.append(float(state.x[0])))
    assert result.success, result.message
    assert result.x[0] * big == pytest.approx(3.0, rel=1e-3)
    np.testing.assert_allclose(result.y * stretch, [1.5, 1.5], rtol=1e-3)
    assert result.upper_value <= 1e-6 * stretch[0]
    assert result.certificate.feasibility <= 1e-4  # a row of the user is in units of 1e4
    assert seen[-1] * big == pytest.approx(3.0, rel=1e-2)


@pytest.mark.slow
def test_units_do_not_matter_to_many_starts() -> None:
    problem, big, stretch = in_odd_units(6)
    found = solve_many(problem, np.array([[4.0 / big], [1.0 / big], [2.5 / big]]))
    for result in found.results:
        assert result.success, result.message
        assert result.x[0] * big == pytest.approx(3.0, rel=1e-3)
        np.testing.assert_allclose(result.y * stretch, [1.5, 1.5], rtol=1e-3)
        assert verify(problem, result).ok


def test_a_leader_without_a_choice() -> None:
    problem = BilevelProblem(
        upper=lambda x, y: (y[0] - 1.0) ** 2,
        lower=lambda x, y: jnp.sum((y - x) ** 2),
        x_set=Box(np.array([0.5]), np.array([0.5])),
        y_set=Reals(1),
    )
    result = solve(problem)
    assert result.success, result.message
    assert result.upper_value == pytest.approx(0.25, abs=1e-5)


def test_an_upper_objective_without_value_in_the_middle_of_y() -> None:
    """log(y) has none at y = 0, where a search from the middle of Y begins; the follower's answers are positive."""
    problem = BilevelProblem(
        upper=lambda x, y: x[0] - jnp.log(y[0]),
        lower=lambda x, y: jnp.sum((y - x) ** 2),
        x_set=Box(-1.0, 3.0, shape=1),
        y_set=Reals(1),
    )
    result = solve(problem, np.array([0.5]))
    assert result.success, result.message
    assert result.x[0] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.slow
def test_gam_stays_where_the_follower_has_an_answer() -> None:
    problem = BilevelProblem(
        upper=lambda x, y: (x[0] - 1.0) ** 2 + (x[1] - 0.1) ** 2 + y**2,
        lower=lambda x, y: (y + 0.01 * x[1]) ** 2,
        inequality=lambda x, y: jnp.stack([x[0] - 0.4 - y, y]),
        x_set=Box(-1.0, 1.0, shape=2),
        y_set=Reals(),
    )
    result = solve(problem, np.array([-0.5, 0.4]), method="gam", max_iterations=50)
    assert result.status is Status.STALLED  # at the wall its matrix is singular, and it says so
    assert result.certificate.feasibility <= 1e-6


def test_whole_numbers_and_single_precision_give_double() -> None:
    data = {name: value.astype(np.float32) for name, value in SOLVABLE["hidden equality"][0].data.items()}
    result = solve(TEMPLATE.with_data(data), np.array([3], dtype=np.int32))
    assert result.success, result.message
    assert result.x.dtype == result.y.dtype == np.float64
    assert result.upper_value == pytest.approx(1.0, abs=1e-6)


def test_constraints_of_length_zero_are_none() -> None:
    given = BilevelProblem(
        upper=lambda x, y: (x - 2.0) ** 2 + y**2,
        lower=lambda x, y: (y - x) ** 2,
        inequality=lambda x, y: jnp.zeros(0),
        equality=lambda x, y: jnp.zeros(0),
        x_set=Reals(),
        y_set=Reals(),
    )
    result = solve(given)
    assert result.success, result.message
    assert float(result.x) == pytest.approx(1.0, abs=1e-4)
    assert result.multipliers.inequality.shape == (0,)
