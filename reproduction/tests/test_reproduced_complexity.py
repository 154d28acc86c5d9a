from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from paper_rows import Rows, observation, with_a_failure

from reproduction import complexity, complexity_costs
from reproduction.complexity_costs import AXES, DENSE, METHODS, PUBLISHED, SIZES, Cost


class Moves(NamedTuple):
    multipliers: np.ndarray
    constraints: np.ndarray


def made_up(powers: dict[str, dict[str, float]], sizes: tuple[int, ...] = (10, 100, 300, 1_000)) -> Rows:
    """Rows of methods that cost exactly size^power, and one second at 1,000."""
    found: Rows = {}
    for axis, study in complexity.STUDIES.items():
        found[study] = []
        for method, power in powers[axis].items():
            costs = [(size / 1_000) ** power for size in sizes]
            fitted = complexity_costs.exponents([Cost(*pair, "") for pair in zip(sizes, costs, strict=True)])
            columns: dict[str, Any] = {"step_sizes": list(sizes), "step_seconds": costs, "solver": ""}
            columns |= {"fitted_sizes": sum(size >= complexity_costs.FIT_FROM for size in sizes)}
            columns |= {"exponent": fitted.get(""), "status": "done", "error": None}
            found[study].append({"method": method, "axis": axis, "seed": 0, "sizes": list(sizes), **columns})
    return found


PROPER = {"blocc": 0.8, PUBLISHED: 1.0, "lv-hba": 3.5, "gam": 3.0}


@pytest.mark.slow
def test_every_paper_method_is_measured() -> None:
    for method, axis in ((PUBLISHED, "d_y"), ("sflcb", "d_c"), ("bvfsm", "d_c"), ("aipod", "d_y")):
        row = complexity.run_sweep(method, axis, [10], seed=0)
        assert row["step_sizes"] == [10]
        assert all(0.0 < seconds < 1.0 for seconds in row["step_seconds"])
        assert row["exponent"] is None  # overheads rule at such sizes
    seconds, _ = complexity_costs.cost("gam", 6, 4)
    assert seconds > 0.0


@pytest.mark.slow
def test_lv_hba_is_timed_where_rows_are_active() -> None:
    flat = complexity_costs.family(10, 30, equality=False).flat
    far = complexity_costs.FAR * np.random.default_rng(2).standard_normal(10)
    broken = np.asarray(flat.inequality(np.zeros(complexity_costs.UPPER_VARIABLES), far)) > 0.0
    assert 0.2 < broken.mean() < 0.8
    assert complexity_costs.cost("lv-hba", 10, 30)[1] == "Newton on the dual"


def test_gam_counts_the_constraints_that_a_step_could_turn() -> None:
    moves = Moves(np.array([[10.0], [1.0], [0.0]]), np.array([[0.0], [0.0], [1e3]]))
    # Active with a small price; active with a large one; inactive, but moving fast.
    assert complexity_costs.doubtful(moves, np.array([0.01, 1.0, 0.0]), np.array([0.0, 0.0, 1.0])) == 2


def test_a_sweep_ends_where_a_method_cannot_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complexity_costs, "cost", lambda method, d_y, d_c: (1e-3 * d_y * d_c, ""))
    assert [one.size for one in complexity_costs.sweep("gam", "d_y", SIZES)] == [10, 30, 100, 300]  # more than 2 s
    monkeypatch.setattr(complexity_costs, "cost", lambda method, d_y, d_c: (1e-3, ""))
    assert max(one.size for one in complexity_costs.sweep("lv-hba", "d_c", SIZES)) == DENSE["lv-hba"] == 3_000
    assert max(one.size for one in complexity_costs.sweep("sflcb", "d_c", SIZES)) == 10_000


def test_aipod_has_fewer_equalities_than_variables() -> None:
    for axis in AXES:
        for size in SIZES:
            shape = complexity_costs.shape_of("aipod", axis, size)
            assert shape is None or shape[1] < shape[0]
    assert complexity_costs.shape_of("aipod", "d_c", 300) == (600, 300)


def test_the_exponent_is_fitted_where_sizes_are_large() -> None:
    found = [Cost(10, 5.0, "a"), Cost(100, 1e-4 * 100**1.5, "a"), Cost(1_000, 1e-4 * 1_000**1.5, "a")]
    assert complexity_costs.exponents(found) == {"a": pytest.approx(1.5)}
    assert complexity_costs.exponents(found[:2]) == {}


def test_an_exponent_belongs_to_one_solver() -> None:
    found = [Cost(100, 1.0, "a"), Cost(300, 3.0, "a"), Cost(1_000, 0.1, "b"), Cost(3_000, 0.9, "b")]
    fitted = complexity_costs.exponents(found)
    assert fitted["a"] == pytest.approx(1.0)
    assert fitted["b"] == pytest.approx(2.0)


def test_tables_and_observations() -> None:
    rows = made_up({"d_y": PROPER, "d_c": dict.fromkeys(PROPER, 0.9)}, (10, 100, 200, 300))
    findings = complexity.ITEM.conclude(rows)
    variables, _, orders = findings.tables
    assert variables.rows[0] == {
        "method": "blocc",
        "10": "25.1",
        "100": "158",
        "200": "276",
        "300": "382",
        "exponent": "0.80",
        "solver": "",
    }
    line = next(line for line in orders.rows if line["method"] == "lv-hba")
    assert (line["paper: power of d_y"], line["measured: power of d_y"]) == ("3.5", "3.50")
    assert line["paper: iterations"] == "eps^-3"
    assert [one["method"] for one in orders.rows] == list(METHODS)
    assert observation(findings, "A step of BLOCC").holds is True
    assert observation(findings, "Steps of LV-HBA").holds is True
    assert (
        observation(findings, "At the largest size Algorithm 1's iteration").holds is False
    )  # the others' powers cost less here
    figure = complexity.draw(rows)["cost"]
    assert [len(axes.lines) for axes in figure.axes] == [4, 4]


def test_what_does_not_hold_is_told() -> None:
    rows = made_up({"d_y": {**PROPER, PUBLISHED: 3.2}, "d_c": dict.fromkeys(PROPER, 0.9)})
    findings = complexity.ITEM.conclude(rows)
    assert observation(findings, "A step of BLOCC").holds is False
    assert observation(findings, "Steps of GAM").holds is False


def test_table_7_speaks_of_algorithm_1_and_two_sizes_are_no_fit() -> None:
    powers = {"d_y": {**PROPER, "blocc": 3.2}, "d_c": dict.fromkeys(PROPER, 0.9)}
    assert [one.holds for one in complexity.ITEM.conclude(made_up(powers)).observations[:3]] == [True] * 3
    quick = complexity.ITEM.conclude(made_up(powers, complexity.QUICK_SIZES))
    assert all(one.holds is None for one in quick.observations)


def test_failed_and_missing_cells_leave_observations_open() -> None:
    rows = made_up({"d_y": PROPER, "d_c": dict.fromkeys(PROPER, 0.9)})
    for some in (with_a_failure(rows), {study: [] for study in rows}):
        findings = complexity.ITEM.conclude(some)
        assert all(one.holds is None for one in findings.observations)
        complexity.draw(some)
    quick = made_up({"d_y": PROPER, "d_c": {PUBLISHED: 0.9, "sflcb": 0.5}})
    assert [one.holds for one in complexity.ITEM.conclude(quick).observations[:2]] == [True, True]


def test_both_sizes() -> None:
    quick, full = complexity.ITEM.studies(True), complexity.ITEM.studies(False)
    assert [len(study.cells()) for study in quick] == [4, 2]
    assert [len(study.cells()) for study in full] == [len(METHODS), len(METHODS)]
    assert full[0].fixed["sizes"][-1] == 10_000
    assert np.isfinite(complexity.ITEM.seconds).all()
