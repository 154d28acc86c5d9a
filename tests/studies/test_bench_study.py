"""The benchmark suite: its problems, what a cell tells, and what it refuses."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from blocc.errors import BloccError
from blocc.judge.suggest import suggest
from blocc.methods.compare import ENDLESS, MethodRow
from blocc.problems.textbook import known_problem
from blocc.studies import benchmark
from blocc.studies.benchmark import ACCURACY, ALGORITHM_1, QUICK, bench_cell, bench_study, full_suite, way_of
from blocc.studies.cases import THREE_NODES_BEST, Case, find_known_case, gam_svm_case, known_case
from blocc.studies.study import Study


@pytest.mark.parametrize("method", ["gam", "sflcb"])
def test_a_cell_tells_how_the_value_fell(method: str) -> None:
    row = bench_cell("moving_lower_bound", method, time_limit=1e6, preset="default", seed=0)
    assert row["applies"]
    assert row["success"]
    assert row["known"] == 0.9
    assert row["value"] == pytest.approx(0.9, abs=2e-3)
    seconds, calls, values = np.array(row["way"]).T
    assert (np.diff(values) < 0.0).all()
    assert (np.diff(seconds) >= 0.0).all()
    assert (np.diff(calls) >= 0.0).all()
    assert row["calls"] >= calls[-1] > 0
    assert values[-1] <= row["value"]


def test_a_cell_that_does_not_apply() -> None:
    row = bench_cell("moving_lower_bound", "aipod", time_limit=1e6, preset="default", seed=0)
    assert (row["applies"], row["success"], row["way"], row["calls"]) == (False, False, [], 0)
    assert "equality constraints" in row["message"]


def test_algorithm_1_has_the_numbers_of_its_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """Published ones where it was published on the problem, and those of the theorems elsewhere; or none."""
    given: dict[str, dict[str, Any]] = {}

    def solved(method: str, problem: Any, x0: Any, options: dict[str, Any]) -> MethodRow:
        given[problem.name] = options
        return MethodRow(method, "")

    monkeypatch.setattr(benchmark, "solved_by", solved)
    for name in ("toy", "three", "svm", "moving_lower_bound"):
        assert bench_cell(name, ALGORITHM_1, time_limit=1.0, preset="default", seed=0)["applies"]
    toy, three, svm, moving = given.values()
    assert (toy["preset"], svm["preset"]) == ("toy", "svm")
    assert (three["preset"], three["step"], three["inner"]) == ("three", 1.6e-4, "auto")
    case = find_known_case("moving_lower_bound")
    wanted = suggest(case.problem, case.x0, epsilon=ACCURACY)
    assert (moving["gamma"], moving["step"]) == (wanted.gamma, wanted.eta)
    assert all(one["max_iterations"] == ENDLESS for one in given.values())
    row = bench_cell("gam-svm", ALGORITHM_1, time_limit=1.0, preset="default", seed=0)
    assert not row["applies"]
    assert "strongly convex" in row["message"]


def history(**columns: list[float]) -> Any:
    return SimpleNamespace(**{name: np.array(values) for name, values in columns.items()})


def test_ways_count_inner_iterations_and_leave_out_what_is_no_value() -> None:
    case = known_case(known_problem("moving_lower_bound"))
    result: Any = SimpleNamespace(
        history=history(
            time=[0.1, 0.2, 0.3, 0.4],
            evaluations=[1, 2, 4, 8],
            upper_value=[5.0, -7.0, 6.0, 3.0],
            inner_residual=[0.0, 1.0, 0.0, 0.0],
        ),
        counts={"evaluations": 10, "inner_iterations": 15, "derivatives": 150},
        status=None,
        certificate=SimpleNamespace(feasibility=0.0, leader_violation=0.0),
    )
    row = MethodRow("blocc", "", upper_value=2.0, run_seconds=0.5, result=result)
    # An evaluation is 15 inner iterations; the second point has no follower's answer, and the third no better value.
    assert way_of(case, row) == [[0.1, 15.0, 5.0], [0.4, 120.0, 3.0], [0.5, 150.0, 2.0]]
    limited = known_problem("moving_lower_bound").problem
    bound = Case(replace(limited, upper_inequality=lambda x, y: x - 1.0))
    assert way_of(bound, row) == [[0.5, 150.0, 2.0]], "the history does not tell what the leader's constraint allows"
    assert way_of(case, replace(row, upper_value=math.nan))[-1] == [0.4, 120.0, 3.0]


def test_suites() -> None:
    study = bench_study()
    assert set(QUICK) <= {*full_suite(), "toy"}
    assert len(study.cells()) == len(QUICK) * 14
    assert Study.from_json(study.to_json()).to_json() == study.to_json()
    assert len(full_suite()) > 50
    assert not [name for name in full_suite() if name.endswith("_10000")]
    # Both links earn 2 and cost 1 for each of sigmoid(2) travellers.
    assert pytest.approx(-1.7615941559557646) == THREE_NODES_BEST


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"problems": ["nowhere"]}, "'nowhere' is not in the collection"),
        ({"methods": ["newton"]}, "methods must be names among blocc, lv-hba"),
        ({"time_limit": 0.0}, "time_limit must be a positive number of seconds, got 0.0"),
        ({"preset": "best"}, "preset must be one of 'default', 'paper', got 'best'"),
        ({"problems": ["svm:"]}, "svm: needs samples"),
    ],
)
def test_what_it_refuses(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BloccError, match=message):
        bench_study(**given)


def test_gam_s_own_formulation_of_an_svm(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rows = np.column_stack([generator.normal(size=(24, 2)), generator.integers(0, 2, 24)])
    path = tmp_path / "samples.csv"
    np.savetxt(path, rows, delimiter=",", header="a,b,label", comments="")
    case = gam_svm_case(str(path), 3)
    flat = case.problem.flat
    assert flat.n_y == 6 + 1 + flat.n_x  # w has a constant, two features, and their squares and product
    assert (case.x0 >= -7.0).all()
    assert (case.x0 <= -6.0).all()
    assert find_known_case(f"gam-svm:{path}", 3).problem.flat.n_x == flat.n_x


def test_algorithm_1_is_a_row_with_its_inner_derivatives_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blocc.studies.benchmark.ENDLESS", 400)  # steps, whatever the machine makes of the time
    row = bench_cell("moving_lower_bound", "algorithm-1", time_limit=60.0, preset="default", seed=0)
    assert row["applies"]
    case = find_known_case("moving_lower_bound")
    inner = suggest(case.problem, case.x0, epsilon=ACCURACY)
    step = sum(T * T_y for T, T_y in zip(inner.inner_iterations, inner.steps_y, strict=True))
    assert row["calls"] == 401 * step
    _, calls, values = np.array(row["way"]).T
    assert calls[0] >= step
    assert values[-1] == pytest.approx(0.9, abs=1e-2)
    assert "algorithm-1" in bench_study().grid["method"]
