from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from paper_rows import Rows, observation, paper_text, quick_rows, with_a_failure

from blocc._lib.precision import double_precision
from blocc.studies.study import select
from blocc.svm.data.samples import LabelledData
from blocc.svm.fitting import FitOptions, fit_margins
from blocc.svm.svm_problem import svm_problem
from reproduction import data_sets, published_svm, svm, svm_lv_hba, svm_runs
from reproduction.svm_runs import Split
from svm_datasets import shared_dataset


@pytest.fixture(scope="module")
def rows() -> Rows:
    shared_dataset("fourclass")  # skips, with a reason, where the file is missing
    studies = [
        replace(study, grid={**study.grid, "dataset": ["fourclass"]}, seeds=(0, 1)) for study in svm.ITEM.studies(True)
    ]
    found = quick_rows(replace(svm.ITEM, studies=lambda quick: studies))
    # The other data set would compile everything again: its rows are these under its name.
    return {study: [*of, *({**row, "dataset": "diabetes"} for row in of)] for study, of in found.items()}


def small_split(seed: int = 0, c_penalty: Any = "squared", intercept_weight: float = 0.0) -> Split:
    """Two overlapping clouds."""
    generator = np.random.default_rng(seed)
    labels = np.where(np.arange(60) % 2, 1.0, -1.0)
    features = generator.standard_normal((60, 2)) + 0.7 * labels[:, None]
    train, validation, test = ((features[cut], labels[cut]) for cut in (slice(30), slice(30, 45), slice(45, 60)))
    return Split(train, validation, test, generator.uniform(1.0, 5.0, 30), c_penalty, intercept_weight)


def test_the_table_has_the_papers_figures_and_ours(rows: Rows) -> None:
    main, answers = svm.ITEM.conclude(rows).tables
    lines = {(line["data"], line["method"]): line for line in main.rows}
    assert set(lines) == set(svm.PUBLISHED)
    assert lines["diabetes", "BLOCC"]["printed: accuracy"] == "0.767 ± 0.039"
    assert lines["diabetes", "BLOCC"]["our method: ended"] == "2 converged"
    assert lines["fourclass", "GAM"]["printed: seconds"] == "13.481 ± 0.970"
    assert len(answers.rows) == 12  # the reduced size has one formula of Algorithm 1
    assert all(set(line) == set(answers.rows[0]) for line in answers.rows)


def test_what_the_rows_say(rows: Rows) -> None:
    findings = svm.ITEM.conclude(rows)
    assert all(one.source for one in findings.observations)
    assert observation(findings, "BLOCC outperforms GAM").holds is None  # two splits cannot tell
    for row in rows[svm.DEFAULT]:
        assert row["is_global"]
        assert abs(row["lower_gap"]) < svm.ATTAINED
        assert row["violation"] < 1e-9
        assert 0.6 < row["accuracy"] < 0.9
    for row in rows[svm.PROGRAM]:
        assert row["violation"] > 0.1  # its classifier breaks the constraints
        assert 0.65 < row["accuracy_own"] < 0.85
        assert row["iterations"] == 80
    for row in rows[svm.EXACT]:
        assert row["ended"] == svm_runs.NO_ANSWER  # steps of a fixed length lead to margins that no classifier meets
    # No price of c is as small, by the paper's formula, as the exact answer at its own price.
    for exact in select(rows[svm.DEFAULT], price="paper"):
        others = [row for study in rows.values() for row in select(study, dataset=exact["dataset"], seed=exact["seed"])]
        assert exact["upper_value"] <= min(row["upper_value"] for row in others if "upper_value" in row) + 1e-6


def test_curves_are_short_and_end_at_the_answer(rows: Rows) -> None:
    for row in (row for study in rows.values() for row in study):
        curves = row["curves"]
        assert {len(values) for values in curves.values()} == {len(curves["iteration"])}
        assert 0 < len(curves["iteration"]) <= svm_runs.MOST_POINTS
        assert curves["iteration"] == sorted(curves["iteration"])
    for row in (*rows[svm.PROGRAM], *rows[svm.EXACT], *rows[svm.LV_HBA], *rows[svm.GAM]):
        assert row["curves"]["accuracy"][-1] == row["accuracy_own"]


def test_the_figures(rows: Rows) -> None:
    figures = svm.draw(rows)
    assert set(figures) == set(svm.DATASETS)
    for figure in figures.values():
        assert [len(axes.lines) for axes in figure.axes] == [len(svm.DRAWN)] * 3


def test_failed_cells_leave_observations_open(rows: Rows) -> None:
    findings = svm.ITEM.conclude(with_a_failure(rows))
    assert all(one.holds is None for one in findings.observations)
    assert findings.tables[0].rows


def test_no_rows_at_all() -> None:
    findings = svm.ITEM.conclude({study.name: [] for study in svm.ITEM.studies(True)})
    assert all(one.holds is None for one in findings.observations)
    svm.draw({})


@pytest.mark.slow
def test_algorithm_one_is_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    formula = "published code"
    c_penalty, intercept_weight = svm_runs.FORMULAS[formula]
    split = small_split(1, c_penalty, intercept_weight)
    monkeypatch.setattr(Split, "draw", classmethod(lambda cls, dataset, seed, *price: split))
    ours = svm_runs.run_algorithm_one("any", formula, 0, 20)
    options = FitOptions(c_penalty, 1.0, intercept_weight, gamma=12.0, method="pgd", max_iterations=20)
    theirs = fit_margins((*split.train, *split.validation), options, split.start).result
    assert ours["upper_value_own"] == pytest.approx(split.paper_value(theirs.x, theirs.y_penalty), rel=1e-5)
    assert ours["iterations"] == theirs.counts["evaluations"]


@pytest.mark.slow
def test_the_problem_of_the_other_methods_is_the_applications() -> None:
    split = small_split(intercept_weight=svm_lv_hba.INTERCEPT_WEIGHT)
    weights: dict[str, Any] = {
        "c_penalty": "squared",
        "c_weight": 1.0,
        "intercept_weight": svm_lv_hba.INTERCEPT_WEIGHT,
    }
    theirs = svm_problem(*split.train, *split.validation, **weights).flat
    with double_precision():
        ours = svm_lv_hba.margins_problem(svm_lv_hba.Samples(split.problem.rows, split.problem.validation))
        c, y = jnp.asarray(split.start), jnp.array([0.3, -0.2, 0.1])
        for name in ("upper", "lower", "inequality"):
            np.testing.assert_allclose(getattr(ours, name)(c, y), getattr(theirs, name)(c, y), rtol=1e-12)
        assert ours.joint_projection is not None
        assert theirs.joint_projection is not None
        for one, other in zip(ours.joint_projection(c, y), theirs.joint_projection(c, y), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)


def test_the_printed_figures_are_the_papers() -> None:
    text = paper_text().partition("Methods & diabetes & fourclass")[2].partition(r"\end{tabular}")[0]
    printed = [tuple(map(float, pair)) for pair in re.findall(r"([\d.]+) \\pm ([\d.]+)", text)]
    for place, method in enumerate(svm.COLUMNS):
        for column, dataset in enumerate(svm.DATASETS):
            accuracy, seconds = printed[4 * place + column], printed[4 * place + 2 + column]
            assert svm.PUBLISHED[dataset, method] == (*accuracy, *seconds)


def test_without_files_diabetes_alone_is_offered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(data_sets.FOLDER, str(tmp_path))
    assert {tuple(study.grid["dataset"]) for study in svm.ITEM.studies(True)} == {("diabetes",)}
    # What OpenML has is put into LIBSVM's columns: the larger class is 1.
    monkeypatch.setattr(
        published_svm, "load_data", lambda name: LabelledData(np.eye(3), np.array([0, 0, 1]), "abc", name)
    )
    np.testing.assert_array_equal(published_svm._table("diabetes"), [[1, 1, 0, 0], [1, 0, 1, 0], [-1, 0, 0, 1]])


def test_full_size_is_the_papers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svm, "is_offered", lambda name: True)
    counts = {study.name: len(study.cells()) for study in svm.ITEM.studies(False)}
    assert counts == {svm.PROGRAM: 20, svm.EXACT: 40, svm.DEFAULT: 40, svm.LV_HBA: 20, svm.GAM: 20}
