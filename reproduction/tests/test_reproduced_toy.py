from __future__ import annotations

import re

import numpy as np
import pytest
from paper_rows import Rows, observation, paper_text, quick_rows, with_a_failure

from blocc.problems.toy import local_minimisers
from reproduction import gradient_of_v, toy_sensitivity, toy_surface

ITEMS = (gradient_of_v.ITEM, toy_surface.ITEM, toy_sensitivity.ITEM)


def test_published_table_is_complete() -> None:
    published = toy_sensitivity.PUBLISHED
    assert set(published) == {(eta, gamma) for eta in toy_sensitivity.ETAS for gamma in toy_sensitivity.GAMMAS}
    assert published[0.1, 0.01] == (0.017, 0.027, 1.475)
    assert published[10.0, 0.001] == (0.034, 0.123, 6.565)


@pytest.fixture(scope="module")
def gradient() -> Rows:
    return quick_rows(gradient_of_v.ITEM)


@pytest.fixture(scope="module")
def surface() -> Rows:
    return quick_rows(toy_surface.ITEM)


@pytest.fixture(scope="module")
def sensitivity() -> Rows:
    return quick_rows(toy_sensitivity.ITEM)


@pytest.mark.slow
def test_the_gradient_without_multiplier_points_the_opposite_way(gradient: Rows) -> None:
    findings = gradient_of_v.ITEM.conclude(gradient)
    assert [one.holds for one in findings.observations] == [True, True]
    for row in gradient[gradient_of_v.STUDY]:
        x = row["x"]
        assert row["y"] == pytest.approx(3 * x, abs=1e-7)
        assert row["value"] == pytest.approx(x**2, abs=1e-7)
        assert row["multiplier"] == pytest.approx(2 * x, abs=1e-7)
    figures = gradient_of_v.draw(gradient)
    assert [line.get_label() for line in figures["gradient"].axes[0].lines][3].startswith("$v(x)$")


def test_every_start_of_the_toy_finds_a_local_minimum(surface: Rows) -> None:
    findings = toy_surface.ITEM.conclude(surface)
    assert findings.observations[0].holds is True
    reached, speed = findings.tables
    assert {line["local minimiser"] for line in reached.rows} <= {f"{x:.6f}" for x in local_minimisers()}
    for name in toy_surface.TITLES.values():
        assert sum(line[f"{name}: starts"] for line in reached.rows) == 40
    assert [line["starts"] for line in speed.rows] == [40, 40, 40]
    assert set(toy_surface.draw(surface)) == set(toy_surface.PRESETS)


def test_a_start_that_misses_is_told(surface: Rows) -> None:
    (rows,) = surface.values()
    missed = {toy_surface.STUDY: [{**rows[0], "away": 0.5}, *rows[1:]]}
    assert toy_surface.ITEM.conclude(missed).observations[0].holds is False


def test_gamma_and_the_gap_of_the_toy(sensitivity: Rows) -> None:
    findings = toy_sensitivity.ITEM.conclude(sensitivity)
    # The inner loops stop sooner at a larger gamma: the paper's second observation is about them.
    work = observation(findings, "At a small fixed eta")
    assert work.holds is True
    assert work.source == "the paper, Table 5"
    assert observation(findings, "With exact inner solutions").holds is True
    line = next(line for line in findings.tables[0].rows if (line["eta"], line["gamma"]) == ("1", "0.001"))
    assert line["printed: gap"] == "0.023 ± 0.019"
    assert line["printed: seconds"] == "7.118"
    # The emulated program leaves gaps of the printed size at a small gamma, and none at gamma = 1.
    rows = sensitivity[toy_sensitivity.PUBLISHED_STUDY]
    gaps = {gamma: np.mean([row["distance"] for row in rows if row["gamma"] == gamma]) for gamma in (0.001, 1.0)}
    assert 0.005 < gaps[0.001] < 0.1
    assert gaps[1.0] < 1e-3
    assert set(toy_sensitivity.draw(sensitivity)) == {"gap"}


def test_the_printed_gaps_are_those_of_the_paper() -> None:
    text = paper_text().partition("Sensitivity analysis for the toy example")[2]
    printed = re.findall(r"\$([\d.]+) \\pm ([\d.]+)\$", text.partition(r"\end{table}")[0])
    flat = [toy_sensitivity.PUBLISHED[eta, gamma] for eta in toy_sensitivity.ETAS for gamma in toy_sensitivity.GAMMAS]
    # Four gaps, then four times, for every eta.
    gaps = [printed[8 * row + column] for row in range(5) for column in range(4)]
    times = [printed[8 * row + 4 + column] for row in range(5) for column in range(4)]
    assert [(float(mean), float(spread)) for mean, spread in gaps] == [cell[:2] for cell in flat]
    assert [float(mean) for mean, _ in times] == [cell[2] for cell in flat]


def test_failed_cells_leave_observations_open(gradient: Rows, surface: Rows, sensitivity: Rows) -> None:
    for item, rows in zip(ITEMS, (gradient, surface, sensitivity), strict=True):
        findings = item.conclude(with_a_failure(rows))
        assert all(one.holds is None for one in findings.observations)
        assert findings.tables[0].rows


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_full_size_is_the_papers(item: gradient_of_v.Item) -> None:
    cells = sum(len(study.cells()) for study in item.studies(False))
    assert cells == {"gradient_of_v": 40, "toy_surface": 600, "toy_sensitivity": 1200}[item.name]
