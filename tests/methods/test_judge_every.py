"""How often the history of another method is judged at the exact lower level, and numbers that share a name."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, OptionError, Reals, Status, solve
from blocc.judge.examine import Judge
from blocc.methods.execute import MethodRun
from blocc.methods.loop import Iteration
from blocc.problems.toy import toy_problem
from blocc.result import HistoryRow


class Point(NamedTuple):
    x: Any
    y: Any


class Trivial(Iteration):
    """Steps that cost next to nothing."""

    name = "trivial"
    names = ("alpha",)

    def start(self, flat, x, y):
        return Point(x, y)

    def step(self, flat, numbers, state, k):
        return Point((1.0 - numbers["alpha"]) * state.x, state.y)

    def automatic(self, size):
        return [{"alpha": 1e-3}]


def large(n: int) -> BilevelProblem:
    curvature = np.linspace(1.0, 10.0, n)
    return BilevelProblem(
        upper=lambda x, y: jnp.sum((y - 1.0) ** 2) + jnp.sum(x**2),
        lower=lambda x, y: 0.5 * jnp.sum(curvature * (y - x) ** 2) + 0.1 * jnp.sum(jnp.diff(y) ** 4),
        x_set=Reals(n),
        y_set=Reals(n),
    )


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The iterations at which rows were judged."""
    found: list[int] = []
    plain = MethodRun.judged

    def judge(self: MethodRun, *given: Any) -> HistoryRow:
        found.append(self.iterations)
        return plain(self, *given)

    monkeypatch.setattr(MethodRun, "judged", judge)
    return found


def test_a_small_follower_is_judged_forty_times(judged: list[int]) -> None:
    result = solve(large(3), np.ones(3), method=Trivial({"alpha": 1e-3}), max_iterations=200)
    assert judged == list(range(5, 201, 5))
    assert len(result.history) == 40


@pytest.mark.parametrize(("every", "rows"), [(60, [60, 120, 180, 200]), (200, [200]), (1, list(range(1, 201)))])
def test_as_often_as_is_said(judged: list[int], every: int, rows: list[int]) -> None:
    """And at the end."""
    result = solve(large(3), np.ones(3), method=Trivial({"alpha": 1e-3}), max_iterations=200, judge_every=every)
    assert judged == rows
    np.testing.assert_array_equal(result.history.evaluations, rows)


def test_judging_a_large_follower_costs_no_more_than_the_steps(judged: list[int]) -> None:
    n = 600
    costs: list[int] = []
    result = solve(
        large(n),
        np.linspace(0.5, 1.5, n),
        method=Trivial({"alpha": 1e-3}),
        max_iterations=200,
        callback=lambda state: costs.append(state.iteration) and None,
    )
    assert 2 <= len(judged) == len(result.history) == len(costs) < 20
    assert judged[-1] == 200


def test_automatic_numbers_of_large_problems_take_no_matrices() -> None:
    """Dense second derivatives of 20,000 variables would need 3 GB each."""
    result = solve(large(10_000), np.ones(10_000), method="sflcb", max_iterations=100, judge_every=100)
    assert result.upper_value < 0.9 * 10_000  # at the start it is 10,000, at the optimum 5,000


@pytest.mark.parametrize("every", [0, 2.5, True, "often"])
def test_what_is_no_count(every: Any) -> None:
    with pytest.raises(OptionError, match="judge_every must be a positive whole number"):
        solve(large(3), method=Trivial({"alpha": 1e-3}), judge_every=every)


def test_judge_every_is_of_other_methods() -> None:
    with pytest.raises(OptionError, match="unknown option 'judge_every'"):
        solve(large(3), judge_every=5)


@pytest.mark.parametrize("method", ["alt-pbgd", "pbgd-free", "ip-dwca"])
def test_a_gamma_of_the_methods_own(method: str) -> None:
    result = solve(toy_problem(), 1.0, method=method, gamma=30.0, max_iterations=20)
    assert result.settings["numbers"]["gamma"] == 30.0


class Weighted(Trivial):
    """A plug-in whose number is called as one of blocc's options."""

    name = "weighted"
    names = ("alpha", "gamma")

    def automatic(self, size):
        return [{"alpha": 1e-3, "gamma": 1.0, **self.given}]


def test_a_gamma_of_a_plug_in() -> None:
    assert solve(large(3), method=Weighted, gamma=30.0, max_iterations=5).settings["numbers"]["gamma"] == 30.0


def test_what_stands_for_gamma_is_named() -> None:
    with pytest.raises(OptionError, match="delta, which is 1 / gamma, stands for it"):
        solve(toy_problem(), method="sflcb", gamma=30.0)
    with pytest.raises(OptionError, match=r"gamma is an option of method 'blocc'; those of 'vf-idca' are"):
        solve(toy_problem(), method="vf-idca", gamma=30.0)


def test_nothing_is_probed_once_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking around x took longer than the whole limit, for a status that is known."""
    probed, examine = [], Judge.examine

    def watched(self: Judge, *at: Any, probes: bool, **how: Any) -> Any:
        probed.append(probes)
        return examine(self, *at, probes=probes, **how)

    monkeypatch.setattr(Judge, "examine", watched)
    result = solve(toy_problem(), 1.3, method="sflcb", time_limit=1e-9)
    assert result.status is Status.TIME_LIMIT
    assert solve(toy_problem(), 1.3, method="sflcb", max_iterations=5).status is not Status.TIME_LIMIT
    assert probed == [False, True]
