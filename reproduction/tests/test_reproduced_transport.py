from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from paper_rows import Rows, observation, paper_text, quick_rows, with_a_failure

from blocc.studies.study import select
from reproduction import seville, three_sensitivity, transport
from reproduction.published_runs import AT_REST, NOTHING_BUILT, STILL_MOVING
from reproduction.transport_runs import run_algorithm_one


@pytest.fixture(scope="module")
def three() -> Rows:
    return quick_rows(three_sensitivity.ITEM)


@pytest.fixture(scope="module")
def networks() -> Rows:
    return quick_rows(transport.ITEM)


def test_the_papers_observations_on_three_nodes(three: Rows) -> None:
    findings = three_sensitivity.ITEM.conclude(three)
    assert {one.statement: one.holds for one in findings.observations} == dict.fromkeys(
        (one.statement for one in findings.observations), True
    )
    assert observation(findings, "With fixed eta a large gamma fails").measured.count("from gamma 5.0 on") == 1
    assert set(three_sensitivity.draw(three)) == {"utility"}


def test_the_published_scheme_reaches_the_printed_figures(three: Rows) -> None:
    rows = three[three_sensitivity.PUBLISHED_STUDY]
    good = [row["utility"] for row in select(rows, eta=1.6e-4, gamma=4.0)]
    assert float(np.mean(good)) == pytest.approx(1.71, abs=0.01)  # the paper's table of networks
    for row in select(rows, eta=1.6e-4, gamma=10.0):
        assert row["ended"] == NOTHING_BUILT
        assert row["utility"] == 0.0
        assert row["utility_exact"] < 0.0  # the least capacities cost, and carry next to nobody


def test_the_table_of_three_nodes_prints_the_papers_figures(three: Rows) -> None:
    lines = three_sensitivity.ITEM.conclude(three).tables[0].rows
    line = next(line for line in lines if (line["eta"], line["gamma"]) == ("3.2e-05", "5"))
    assert (line["printed: utility"], line["printed: seconds"]) == ("1.4582 ± 0.41", "22.48")


def test_the_printed_sensitivity_is_the_papers() -> None:
    text = paper_text().partition("Sensitivity Analysis for the 3-node network")[2]
    printed = re.findall(r"\$(-?[\d.]+) \\pm ([\d.]+)\$", text.partition(r"\end{table}")[0])
    assert len(printed) == 2 * len(three_sensitivity.PUBLISHED)
    for index, cell in enumerate(three_sensitivity.PUBLISHED.values()):
        row, column = divmod(index, 10)
        utility, seconds = printed[20 * row + column], printed[20 * row + 10 + column]
        assert cell == (-float(utility[0]) + 0.0, float(utility[1]), float(seconds[0]), float(seconds[1]))


def test_the_printed_networks_are_the_papers() -> None:
    text = paper_text()
    for gamma in transport.GAMMAS:
        line = next(line for line in text.splitlines() if rf"BLOCC (Ours)-$\gamma={gamma:g}$" in line)
        figures = [float(cell.strip(" $\\").replace(" ", "")) for cell in re.split("&", line)[1:]]
        for index, network in enumerate(transport.NETWORKS):
            assert transport.PUBLISHED[network, gamma] == (figures[2 * index + 1], figures[2 * index])


@pytest.mark.slow
def test_the_papers_observations_on_networks(networks: Rows) -> None:
    findings = transport.ITEM.conclude(networks)
    # Five starts on three nodes tell.
    assert observation(findings, "f at yg improves with gamma, by the emulated program").holds is True
    assert observation(findings, "f at yg improves with gamma, by our method").holds is True
    assert observation(findings, "The emulated program gives the printed utilities on three").holds is True
    assert observation(findings, "LV-HBA takes longer").holds is None  # seconds bear no verdict
    assert observation(findings, "LV-HBA has not converged").holds is True
    assert all(one.source for one in findings.observations)
    assert set(transport.draw(networks)) == {"upper-three", "gap-three"}


@pytest.mark.slow
def test_the_table_of_networks(networks: Rows) -> None:
    main, answers, _ = transport.ITEM.conclude(networks).tables
    lines: dict[str, Any] = {line["method"]: line for line in main.rows}
    assert (lines["gamma = 4"]["printed: utility"], lines["gamma = 4"]["printed: seconds"]) == ("1.71", "20.1")
    assert lines["LV-HBA"]["printed: utility"] == "1.53"
    assert lines["LV-HBA"]["program emulated: utility, own"].startswith("1.587")
    assert lines["gamma = 4"]["program emulated: utility, own"].startswith("1.707")
    assert lines["gamma = 4"]["our method: at the exact lower level"].startswith("1.714")
    assert lines["gamma by itself"]["our method: at the exact lower level"].startswith("1.762")
    assert {line["variant"] for line in answers.rows} == {"program emulated", "our method", "LV-HBA"}
    assert all(set(line) == set(main.rows[0]) for line in main.rows)


def test_the_sizes_of_the_networks_are_counted() -> None:
    sizes = {network: transport._sizes(network) for network in transport.NETWORKS}
    assert [sizes[network]["counted: nonzeros (NZ)"] for network in sizes] == ["126", "6,654", "146,920"]
    assert [sizes[network]["printed: nonzeros (NZ)"] for network in sizes] == ["126", "6,222", "129,256"]
    for what in ("variables (NV)", "constraints (NC)"):
        assert all(line[f"counted: {what}"] == line[f"printed: {what}"] for line in sizes.values())


@pytest.mark.slow
def test_curves_are_short_and_end_at_the_answer(networks: Rows) -> None:
    for row in (row for rows in networks.values() for row in rows):
        curves = row["curves"]
        assert {len(values) for values in curves.values()} == {len(row["curve_seconds"])}
        assert 0 < len(row["curve_seconds"]) <= 200
    for row in networks[transport.published_study("three")]:
        assert row["curves"]["upper_value"][-1] == pytest.approx(-row["utility"])


@pytest.mark.slow
def test_failed_cells_leave_observations_open(three: Rows, networks: Rows) -> None:
    for item, rows in ((three_sensitivity.ITEM, three), (transport.ITEM, networks)):
        findings = item.conclude(with_a_failure(rows))
        assert all(one.holds is None for one in findings.observations)
        assert findings.tables[0].rows


def test_full_sizes_are_the_papers() -> None:
    counts = {study.name: len(study.cells()) for study in three_sensitivity.ITEM.studies(False)}
    assert counts == {"three-published": 500, "three-default": 110, "three-exact-inner": 6}
    counts = {study.name: len(study.cells()) for study in transport.ITEM.studies(False)}
    assert counts["published-three"] == 30
    assert counts["published-nine"] == 30
    assert (counts["algorithm-1-three"], counts["algorithm-1-nine"]) == (9, 3)
    assert counts["default-nine"] == 40
    assert counts["lv-hba-three"] == 10
    assert counts["published-lv-hba-three"] == 10
    counts = {study.name: len(study.cells()) for study in seville.ITEM.studies(False)}
    assert counts == {"published-seville": 6, "default-seville": 2}


def test_algorithm_1_with_exact_inner_solutions_rests_where_the_penalty_does() -> None:
    """At gamma = 2 x comes to rest; there F_gamma is the -1.807847 of all its minimisers on three nodes."""
    row = run_algorithm_one("three", 2.0, 0, 50_000)
    assert row["ended"] == AT_REST
    assert row["iterations"] < 50_000
    penalty = -row["utility_penalised"] + 2.0 * row["lower_gap"]
    assert penalty == pytest.approx(-1.807847, abs=2e-5)
    assert {len(values) for values in row["curves"].values()} == {len(row["curve_seconds"])}
    cut = run_algorithm_one("three", 4.0, 0, 300)
    assert (cut["ended"], cut["iterations"]) == (STILL_MOVING, 300)
