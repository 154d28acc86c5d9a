"""``compare``: every method on one problem; numbers against closed forms, failures as rows, early ends."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import blocc.methods.compare as module
from blocc import BilevelProblem, Box, OptionError, ProblemError, Reals, Status, solve
from blocc.methods.compare import Comparison, MethodRow, compare, own_answer, title_of
from blocc.methods.loop import FULL, ROWS
from blocc.methods.registry import NAMES
from blocc.methods.single_loop import BicGaffa
from blocc.outer.monitor import State
from blocc.problems.toy import toy_problem
from clocks import counted


def held(target: float = 1.0) -> BilevelProblem:
    """The follower wants 2x and may have at most x: y = x, so f = (x - target)^2 + x^2 is least at target / 2."""
    return BilevelProblem(
        upper=lambda x, y: (x - target) ** 2 + y**2,
        lower=lambda x, y: (y - 2.0 * x) ** 2,
        inequality=lambda x, y: y - x,
        x_set=Box(0.0, 3.0),
        y_set=Reals(),
        name="held",
    )


#: Quick methods that apply, and two that do not.
METHODS = ("blocc", "aipod", "e-aipod", "gam", "sflcb")


@pytest.fixture(scope="module")
def problem() -> BilevelProblem:
    return held()


@pytest.fixture(scope="module")
def comparison(problem: BilevelProblem) -> Comparison:
    return compare(problem, 2.0, methods=METHODS, max_iterations=400, time_limit=1e6)


def test_by_default_every_method_runs(problem: BilevelProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, method: str, **options: Any) -> Any:
        raise RuntimeError(f"this is {method}")

    monkeypatch.setattr(module, "solve", refuse)
    found = compare(problem)
    assert [row.method for row in found.entries] == list(NAMES)
    assert [row.message for row in found.entries] == [f"RuntimeError: this is {name}" for name in NAMES]


def test_time_alone_ends_a_method(problem: BilevelProblem) -> None:
    seen: list[int] = []

    def beyond(name: str, state: State) -> bool:
        seen.append(state.row.evaluations // 3)  # LV-HBA and its like differentiate three times in an iteration
        return seen[-1] > 3 * FULL

    numbers = {"alpha": 1e-6, "eta": 1e-6, "beta": 1e-6, "gamma1": 1.0, "gamma2": 1.0, "c0": 1.0, "p": 0.0, "r": 1.0}
    found = compare(problem, 2.0, methods=[BicGaffa(numbers)], time_limit=1e6, callback=beyond)
    assert found.interrupted
    assert seen[-1] > 3 * FULL
    assert 2 * ROWS < len(seen) + 1 < 4 * ROWS  # rows grow sparse in a long run


def test_one_row_for_each_method(comparison: Comparison) -> None:
    assert [row.method for row in comparison.entries] == list(METHODS)
    assert len(comparison) == len(METHODS)
    assert comparison.name == "held"
    assert not comparison.interrupted
    assert comparison.settings == {
        "preset": "default",
        "time_limit": 1e6,
        "max_iterations": 400,
        "tolerance": None,
        "seed": 0,
    }
    for row in comparison.entries:
        assert row.title == title_of(row.method)
        assert row.method.partition("-")[0] in row.title.lower()


def test_values_are_those_of_the_exact_lower_level(comparison: Comparison) -> None:
    for row in comparison.entries:
        if row.result is None:
            continue
        x = float(row.result.x)
        assert row.upper_value == pytest.approx((x - 1.0) ** 2 + x**2, abs=1e-6)
        own = float(row.result.y_penalty)
        assert row.lower_gap == pytest.approx((own - 2.0 * x) ** 2 - x**2, abs=1e-6)
        assert row.violation == pytest.approx(max(own - x, 0.0), abs=1e-9)
        assert row.distance == pytest.approx(abs(own - x), abs=1e-6)
        assert row.status == row.result.status.value
        assert row.message == row.result.message
        assert row.run_seconds > 0.0
        assert row.compile_seconds >= 0.0
        assert row.iterations > 0


def test_best(comparison: Comparison) -> None:
    best = comparison.best
    assert best is not None
    assert best.upper_value == pytest.approx(0.5, abs=1e-6)
    assert comparison["blocc"].success
    assert comparison["blocc"].upper_value == pytest.approx(0.5, abs=1e-6)
    assert comparison.is_best(comparison["blocc"])
    assert not comparison.is_best(comparison["aipod"])
    with pytest.raises(KeyError, match="newton"):
        comparison["newton"]


def test_seconds_leave_compilation_out_everywhere(comparison: Comparison) -> None:
    assert "  clock: seconds without compilation" in repr(comparison).splitlines()
    for row in comparison.entries:
        if row.result is not None:
            assert 0.0 < row.result.history.time[-1] <= row.run_seconds  # the table's clock is that of the history
            assert np.all(np.diff(row.result.history.time) >= 0.0)


def test_budgets_do_not_count_compilation() -> None:
    def slow(x: Any, y: Any) -> Any:  # its traces alone take longer than the whole budget
        clock.advance(1.0)
        return (x - 1.0) ** 2 + y**2

    budget = 1.5
    with counted(step=0.0) as clock:
        found = compare(replace(held(), upper=slow), 2.0, methods=["sflcb"], max_iterations=20, time_limit=budget)
    row = found["sflcb"]
    assert row.compile_seconds > budget
    assert row.iterations == 20
    assert row.status != "time limit"


def test_exact_zeros_are_marked_and_small_numbers_are_not(comparison: Comparison) -> None:
    own = comparison["blocc"]
    exact = replace(own, method="exact", distance=0.0, moved=0.0, violation=1e-300)
    lines = repr(Comparison("made", (exact,))).splitlines()
    columns = dict(zip(lines[1].split()[-7:], lines[2].split()[-7:], strict=True))
    assert (columns["distance"], columns["moved"], columns["violation"]) == ("=0", "=0", "1.0e-300")
    assert "  =0: exactly zero, not rounded" in lines
    small = replace(exact, distance=1e-300, moved=1e-9)
    assert "=0" not in repr(Comparison("made", (replace(small, stationarity_x=1e-9, lower_gap=1e-9),)))


def test_a_method_that_never_moves(problem: BilevelProblem) -> None:
    found = compare(problem, 0.5, methods=["sflcb"], max_iterations=1, preset="paper")["sflcb"]
    assert found.result is not None
    assert found.moved == pytest.approx(abs(float(found.result.x) - 0.5))


def test_ties_are_marked_and_worse_values_are_not(comparison: Comparison) -> None:
    own = comparison["blocc"]
    close = replace(own, method="close", upper_value=own.upper_value + 0.5e-5)
    worse = replace(own, method="worse", upper_value=own.upper_value + 1e-3)
    made = Comparison("made", (own, close, worse))
    assert [made.is_best(row) for row in made.entries] == [True, True, False]
    assert [row["best"] for row in made.rows()] == [True, True, False]
    assert [line.count(" *") for line in repr(made).splitlines()[2:5]] == [1, 1, 0]


@pytest.mark.parametrize("flaw", ["feasibility", "leader_violation"])
def test_an_infeasible_answer_is_never_the_best(comparison: Comparison, flaw: str) -> None:
    own = comparison["blocc"]
    assert own.result is not None
    broken = replace(own.result, certificate=replace(own.result.certificate, **{flaw: 0.1}))
    low = replace(own, method="low", upper_value=-100.0, result=broken)
    assert Comparison("made", (low, own)).best is own
    assert Comparison("made", (low,)).best is None
    text = repr(Comparison("made", (low,)))
    assert "no feasible answer" in text
    assert "(-100)" in text
    assert "  ( ) not the value of a feasible answer" in text.splitlines()


def test_the_first_of_equals_is_the_best(comparison: Comparison) -> None:
    own = comparison["blocc"]
    other = replace(own, method="gam", upper_value=own.upper_value - 1e-9)
    assert Comparison("made", (own, other)).best is own
    assert Comparison("made", (own,)).with_first(other).best is other


def test_methods_that_do_not_apply(comparison: Comparison) -> None:
    for name in ("aipod", "e-aipod"):
        row = comparison[name]
        assert (row.applies, row.status, row.result) == (False, "does not apply", None)
        assert row.why_not.startswith("needs equality constraints in the lower level")
        assert math.isnan(row.upper_value)
        assert not row.success
        assert not row.eligible


def test_printed_table(comparison: Comparison) -> None:
    first, head, *lines = repr(comparison).splitlines()
    best = comparison.best
    assert best is not None
    assert first == f"held: 5 methods, best upper value {best.upper_value:.8g} ({best.method})"
    assert head.split()[:2] == ["method", "status"]
    shown = dict(zip(METHODS, lines, strict=False))
    assert shown["blocc"].split()[:4] == ["blocc", "converged", f"{comparison['blocc'].upper_value:.8g}", "*"]
    assert shown["aipod"].split()[1:5] == ["does", "not", "apply", "–"]
    ends = {len(line) for line in (head, *shown.values())}
    assert len(ends) == 1  # numbers stand in columns
    assert any(line.startswith("  aipod: needs equality") for line in lines)


def test_rows_and_further_columns(comparison: Comparison) -> None:
    plain = comparison.rows()
    assert all(list(row) == list(plain[0]) for row in plain)
    assert "result" not in plain[0]
    further = comparison.with_columns({"blocc": {"test_share": 0.75}}).with_columns({"gam": {"other": 2}})
    rows = {row["method"]: row for row in further.rows()}
    assert list(rows["blocc"])[-2:] == ["test_share", "other"]
    assert (rows["blocc"]["test_share"], rows["blocc"]["other"]) == (0.75, None)
    assert (rows["gam"]["test_share"], rows["gam"]["other"]) == (None, 2)
    head = repr(further).splitlines()[1]
    assert head.endswith("test share  other")
    assert "test_share" not in comparison.rows()[0]


def test_chosen_methods_in_the_given_order(problem: BilevelProblem) -> None:
    found = compare(problem, 2.0, methods=["gam", "blocc", "gam"], max_iterations=50)
    assert [row.method for row in found.entries] == ["gam", "blocc"]
    alone = solve(problem, 2.0, method="gam", max_iterations=50)
    assert found["gam"].upper_value == alone.upper_value
    assert found["gam"].iterations == alone.counts["iterations"]


def test_options_reach_every_method(problem: BilevelProblem) -> None:
    found = compare(problem, 2.0, methods=["sflcb", "blocc"], preset="paper", max_iterations=7, tolerance=1e-7, seed=3)
    settings = [row.result.settings for row in found.entries if row.result is not None]
    assert [(s["max_iterations"], s["tolerance"], s["seed"]) for s in settings] == [(7, 1e-7, 3)] * 2
    assert settings[0]["numbers"]["eta"] == 1e-2
    assert settings[1]["outer"] == "pgd"
    assert found["sflcb"].iterations == 7
    assert found.settings["preset"] == "paper"


@pytest.mark.slow
def test_equality_constraints_count_as_violation() -> None:
    problem = BilevelProblem(
        upper=lambda x, y: jnp.sum((y - 1.0) ** 2) + x**2,
        lower=lambda x, y: jnp.sum(y**2),
        equality=lambda x, y: y[0] + y[1] - x,
        x_set=Box(-4.0, 4.0),
        y_set=Reals(2),
    )
    result = solve(problem, 1.0)
    gap, violation = own_answer(problem, replace(result, y_penalty=np.array([0.0, float(result.x) - 0.25])))
    assert violation == pytest.approx(0.25)
    assert gap == pytest.approx((float(result.x) - 0.25) ** 2 - float(result.x) ** 2 / 2.0, abs=1e-7)


# --- failures and early ends ---------------------------------------------------------------------------------------
def test_a_failing_method_is_a_row(problem: BilevelProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: Any, method: str, **options: Any) -> Any:
        if method == "gam":
            raise FloatingPointError("the matrix is singular")
        if method == "sflcb":
            raise ProblemError("something else is wrong")
        return solve(*arguments, method=method, **options)

    monkeypatch.setattr(module, "solve", failing)
    found = compare(problem, 2.0, methods=["gam", "sflcb", "blocc"])
    assert (found["gam"].status, found["gam"].applies) == ("error", True)
    assert found["gam"].message == "FloatingPointError: the matrix is singular"
    assert (found["sflcb"].applies, found["sflcb"].why_not) == (False, "something else is wrong")
    assert found["blocc"].success
    assert "  gam: FloatingPointError: the matrix is singular" in repr(found).splitlines()


def test_ctrl_c_keeps_what_there_is(problem: BilevelProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: Any, method: str, **options: Any) -> Any:
        if method == "sflcb":
            raise KeyboardInterrupt
        return solve(*arguments, method=method, **options)

    monkeypatch.setattr(module, "solve", interrupted)
    found = compare(problem, 2.0, methods=["blocc", "sflcb", "gam"])
    assert [row.method for row in found.entries] == ["blocc"]
    assert found.interrupted
    assert "(ended early)" in repr(found).splitlines()[0]


def test_an_interrupted_run_ends_the_comparison(problem: BilevelProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    result = replace(solve(problem, 2.0), status=Status.INTERRUPTED)
    monkeypatch.setattr(module, "solve", lambda *arguments, **options: result)
    found = compare(problem, 2.0, methods=["blocc", "gam"])
    assert [(row.method, row.status) for row in found.entries] == [("blocc", "interrupted")]
    assert found.interrupted


def test_callback_sees_every_method_and_can_stop() -> None:
    seen: list[str] = []

    def stop_at_gam(name: str, state: Any) -> bool:
        assert 0.0 <= float(state.x) <= 3.0
        seen.append(name)
        return name == "gam"

    found = compare(held(), 2.0, methods=["blocc", "gam", "sflcb"], callback=stop_at_gam)
    assert [row.status for row in found.entries] == ["converged", "stopped by callback"]
    assert found.interrupted
    assert seen.count("gam") == 1
    assert set(seen) == {"blocc", "gam"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"methods": ["newton"]}, "method must be one of 'blocc', .*got 'newton'"),
        ({"methods": "blocc"}, "methods must be a sequence of names"),
        ({"methods": []}, "methods must be a sequence of names"),
        ({"preset": "best"}, "preset must be one of 'default', 'paper', got 'best'"),
        ({"time_limit": -1.0}, "time_limit must be positive"),
        ({"max_iterations": 0}, "max_iterations must be positive"),
        ({"tolerance": math.nan}, "tolerance must be positive"),
        ({"seed": -1}, "seed must be a nonnegative whole number"),
        ({"x0": 9.0}, "x0 lies outside x_set"),
    ],
)
def test_bad_values_are_named(
    problem: BilevelProblem, options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "solve", lambda *_, **__: pytest.fail("work was started"))
    with pytest.raises(OptionError, match=words):
        compare(problem, **options)


def test_not_a_problem() -> None:
    with pytest.raises(OptionError, match="problem must be a BilevelProblem, got function"):
        compare(toy_problem)  # type: ignore[arg-type]


def test_row_without_a_result() -> None:
    empty = Comparison("nothing", (MethodRow("blocc", title_of("blocc")),))
    assert empty.best is None
    assert repr(empty).splitlines()[2].split() == ["blocc", "error", *["–"] * 9]
    assert Comparison("none", ()).rows() == []
    assert repr(Comparison("none", ())).startswith("none: 0 methods, no feasible answer")
