"""Tables and pictures of a fitted SVM: numbers against the samples themselves, and short or broken histories."""

from __future__ import annotations

import copy
import csv
import dataclasses
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from blocc.errors import ProblemError
from blocc.kit.figure import PlotError
from blocc.report.svm.svm_figures import plot_accuracy, plot_losses, plot_margins, plot_splits
from blocc.report.svm.svm_parts import SplitData, answer_row, descents, running_seconds, stages
from blocc.report.svm.svm_tables import (
    coefficient_rows,
    fit_summary,
    forgiven_rows,
    history_rows,
    margin_rows,
    prediction_rows,
    split_row,
    splits_summary,
    write_fit,
)
from blocc.report.svm.svm_words import fit_text
from blocc.result import History, Result
from blocc.svm.data.samples import LabelledData, split_indices
from blocc.svm.estimator import BilevelSVC


def clouds(n: int = 60) -> LabelledData:
    """Two overlapping clouds with labels in words, one feature a thousand times larger than the other."""
    generator = np.random.default_rng(3)
    y = np.arange(n) % 2
    X = generator.normal(size=(n, 2)) + 1.2 * y[:, None]
    return LabelledData(X * [1.0, 1000.0] + [0.0, 5000.0], np.array(["no", "yes"])[y], ("small", "large"), "clouds")


def fit(parts: SplitData, **options: Any) -> BilevelSVC:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return BilevelSVC(**options).fit(
            parts.X("train"), parts.y("train"), parts.X("validation"), parts.y("validation")
        )


@pytest.fixture(scope="module")
def parts() -> SplitData:
    return SplitData(clouds(), *split_indices(60, train=40, validation=12, seed=0))


@pytest.fixture(scope="module")
def model(parts: SplitData) -> BilevelSVC:
    return fit(parts, start="uniform")


def with_history(model: BilevelSVC, keep: int, **changes: Any) -> BilevelSVC:
    """The same answer with the last ``keep`` rows of its history; ``changes`` replace parts of the result."""
    other = copy.copy(model)
    rows = list(model.result_.history.rows())[len(model.result_.history) - keep :]
    other.result_ = dataclasses.replace(model.result_, **{"history": History(rows), **changes})
    other.stage_rows_ = np.arange(keep)
    (machine,) = model._machines
    other._machines = [dataclasses.replace(machine, path=machine.path[len(machine.path) - keep :])]
    return other


# --- parts ---------------------------------------------------------------------------------------------------------
def test_standardized_by_the_training_part_alone(parts: SplitData) -> None:
    np.testing.assert_allclose(parts.X("train").mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(parts.X("train").std(axis=0), 1.0)
    assert abs(parts.X("test").mean(axis=0)).max() > 1e-3
    np.testing.assert_allclose(parts.features * parts.scale + parts.centre, parts.data.X)
    plain = SplitData(parts.data, parts.train, parts.validation, parts.test, standardize=False)
    np.testing.assert_array_equal(plain.X("test"), parts.data.X[parts.test])


def test_a_constant_feature_is_only_centred() -> None:
    data = LabelledData(np.column_stack([np.full(6, 0.1), np.arange(6.0)]), np.arange(6) % 2, ("a", "b"), "few")
    cut = SplitData(data, np.arange(4), np.array([4]), np.array([5]))
    np.testing.assert_allclose(cut.features[:, 0], 0.0, atol=1e-12)


def test_parts_that_cannot_be() -> None:
    with pytest.raises(ProblemError, match="train must hold"):
        SplitData(clouds(), np.empty(0, dtype=np.int64), np.arange(3), np.arange(3))
    huge = LabelledData(np.array([[1e300], [-1e300], [1e308]]), np.array([0, 1, 0]), ("a",), "huge")
    with pytest.raises(ProblemError, match="too large to standardise"):
        SplitData(huge, np.arange(3), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def test_other_training_samples_are_noticed(model: BilevelSVC, parts: SplitData) -> None:
    other = SplitData(parts.data, parts.train[:-1], parts.validation, parts.test)
    with pytest.raises(ProblemError, match="40 training samples, but train has 39"):
        margin_rows(model, other)


def test_stages_end_at_the_answer(model: BilevelSVC, parts: SplitData) -> None:
    found = stages(model, parts)
    assert len(found.rows) == len(model.result_.history) > 3
    row = answer_row(model)
    assert row is not None
    assert found.validation_loss[row] == pytest.approx(model.validation_loss_, rel=1e-5)
    for part in ("train", "validation", "test"):
        assert found.accuracy[part][row] == np.mean(model.predict(parts.X(part)) == parts.y(part))


def test_descents_begin_where_the_value_rises(model: BilevelSVC) -> None:
    rows = [
        row._replace(upper_value=value) for row, value in zip(model.result_.history.rows(), (9, 5, 7, 3), strict=False)
    ]
    other = with_history(model, 4, history=History(rows))
    np.testing.assert_array_equal(descents(other), [0, 2])
    by_steps = with_history(model, 4, history=History(rows), settings={"method": "pgd"})
    np.testing.assert_array_equal(descents(by_steps), [0])


def test_compilation_is_left_out_where_it_came_first(model: BilevelSVC) -> None:
    rows = [row._replace(time=t) for row, t in zip(model.result_.history.rows(), (3.0, 3.5), strict=False)]
    early = with_history(model, 2, history=History(rows), seconds={"compile": 2.75, "run": 1.0})
    np.testing.assert_allclose(running_seconds(early)[0], [0.25, 0.75])
    late = with_history(model, 2, history=History(rows), seconds={"compile": 3.25, "run": 1.0})
    np.testing.assert_allclose(running_seconds(late)[0], [3.0, 3.5])
    assert "3.2" in running_seconds(late)[1]


# --- tables --------------------------------------------------------------------------------------------------------
def test_summary_from_the_samples(model: BilevelSVC, parts: SplitData) -> None:
    summary = fit_summary(model, parts, top=3)
    decisions = model.decision_function(parts.X("validation"))
    loss = np.exp(1.0 - np.where(parts.y("validation") == "yes", decisions, -decisions)).sum()
    assert summary["validation_loss"] == pytest.approx(loss)
    assert summary["upper_value_paper"] == pytest.approx(loss + 0.5 * model.margins_ @ model.margins_)
    assert summary["upper_value"] == pytest.approx(loss + 10.0 * model.margins_.sum())
    assert summary["bound"] <= summary["upper_value"]
    assert summary["accuracy"]["test"]["exact"] == model.score(parts.X("test"), parts.y("test"))
    penalised = np.where(model.penalised_decision_function(parts.X("train")) > 0, "yes", "no")
    assert summary["accuracy"]["train"]["penalised"] == np.mean(penalised == parts.y("train"))
    assert summary["data"]["classes"] == [{"label": "no", "samples": 30}, {"label": "yes", "samples": 30}]
    assert summary["data"]["parts"] == {"train": 40, "validation": 12, "test": 8}
    assert len(summary["most_forgiven"]) == 3
    json.dumps(summary, allow_nan=False)


def test_most_forgiven(model: BilevelSVC, parts: SplitData) -> None:
    rows = forgiven_rows(model, parts, 5)
    np.testing.assert_array_equal([row["index"] for row in rows], parts.train[model.most_forgiven(5)])
    for row in rows:
        sign = 1.0 if row["label"] == "yes" else -1.0
        decision = model.decision_function(parts.features[[row["index"]]])[0]
        assert row["margin"] == pytest.approx(sign * decision)
        assert row["margin"] >= 1.0 - row["c"] - 1e-6  # what the follower promises
        assert row["label"] == parts.data.y[row["index"]]
    assert forgiven_rows(model, parts, 0) == []


def test_margins_of_every_training_sample(model: BilevelSVC, parts: SplitData) -> None:
    rows = margin_rows(model, parts)
    assert sorted(row["index"] for row in rows) == sorted(parts.train)
    assert [row["c"] for row in rows] == sorted(model.margins_, reverse=True)
    assert {row["forgiven"] for row in rows} == {"yes", "no"}
    assert all((row["c"] > 1e-9) == (row["forgiven"] == "yes") for row in rows)


def test_coefficients_in_both_units(model: BilevelSVC, parts: SplitData) -> None:
    rows = {row["feature"]: row for row in coefficient_rows(model, parts)}
    assert list(rows) == ["small", "large", "(intercept)"]
    own = np.array([rows[name]["weight_original"] for name in rows])
    decisions = parts.data.X @ own[:2] + own[2]
    np.testing.assert_allclose(decisions, model.decision_function(parts.features), atol=1e-9)
    np.testing.assert_allclose([rows[name]["weight"] for name in ("small", "large")], model.coef_[0])


def test_history_rows(model: BilevelSVC, parts: SplitData) -> None:
    rows = history_rows(model, parts)
    assert [row["iteration"] for row in rows] == list(range(1, len(rows) + 1))
    assert rows[-1]["upper_value"] == pytest.approx(model.result_.upper_value)
    assert rows[-1]["lower_value"] == pytest.approx(model.result_.lower_value)
    assert rows[-1]["test_accuracy"] == model.score(parts.X("test"), parts.y("test"))
    sparse = copy.copy(model)
    sparse.stage_rows_ = np.array([0, len(rows) - 1, len(rows) - 1])  # the last row twice: its own comes first
    (machine,) = model._machines
    end = machine.decision
    sparse._machines = [
        dataclasses.replace(machine, path=(end, end._replace(weights=0.0 * end.weights, intercept=1.0), end))
    ]
    rows = history_rows(sparse, parts)
    assert rows[0]["train_accuracy"] == model.score(parts.X("train"), parts.y("train"))
    assert np.isnan(rows[1]["train_accuracy"])
    assert rows[-1]["train_accuracy"] == np.mean(parts.y("train") == "yes")


def test_predictions_of_every_sample(model: BilevelSVC, parts: SplitData) -> None:
    rows = prediction_rows(model, parts)
    assert [row["index"] for row in rows] == list(range(60))
    assert all((row["decision"] > 0) == (row["predicted"] == "yes") for row in rows)
    assert {row["index"] for row in rows if row["part"] == "test"} == set(parts.test.tolist())


@pytest.mark.slow
def test_without_a_test_set(model: BilevelSVC, parts: SplitData, tmp_path: Path) -> None:
    two = SplitData(parts.data, parts.train, parts.validation, np.empty(0, dtype=np.int64))
    assert set(fit_summary(model, two)["accuracy"]) == {"train", "validation"}
    assert np.isnan(history_rows(model, two)[0]["test_accuracy"])
    written = {path.name: path for path in write_fit(tmp_path / "made", model, two)}
    with written["history.csv"].open(newline="") as stream:
        assert {row["test_accuracy"] for row in csv.DictReader(stream)} == {""}
    assert len(plot_accuracy(model, two).axes[0].get_lines()) >= 4  # two curves and two stars
    assert "test" not in fit_text(fit_summary(model, two))


def test_saved_result_can_be_read_back(model: BilevelSVC, parts: SplitData, tmp_path: Path) -> None:
    write_fit(tmp_path, model, parts)
    back = Result.load(tmp_path / "result.json")
    np.testing.assert_array_equal(back.x, model.margins_)
    assert not list(tmp_path.glob(".*"))  # nothing half written is left


def test_what_is_not_finite_is_null_in_the_summary(model: BilevelSVC, parts: SplitData) -> None:
    other = with_history(model, 2, upper_value=np.inf)
    other.bound_ = -np.inf
    summary = fit_summary(other, parts)
    assert (summary["upper_value"], summary["bound"]) == (None, None)
    assert "no bound is known" in fit_text(summary)


def test_splits() -> None:
    summaries = [
        {
            "status": status,
            "accuracy": {"train": {"exact": share, "penalised": 0.5}, "test": {"exact": share - 0.1, "penalised": 0.4}},
            "upper_value": None,
            "seconds": {"run": 1.0, "compile": 0.5},
        }
        for status, share in (("converged", 0.8), ("stalled", 0.9), ("converged", 1.0))
    ]
    rows = [split_row(summary, seed) for seed, summary in enumerate(summaries)]
    assert np.isnan(rows[0]["upper_value"])
    assert np.isnan(rows[0]["validation_accuracy"])
    many = splits_summary(rows)
    assert many["statuses"] == {"converged": 2, "stalled": 1}
    exact = many["accuracy"]["train"]["exact"]
    assert (exact["mean"], exact["std"]) == (pytest.approx(0.9), pytest.approx(0.1))
    assert many["accuracy"]["test"]["penalised"]["mean"] == pytest.approx(0.4)
    assert (exact["least"], exact["greatest"]) == (0.8, 1.0)
    assert set(many["accuracy"]) == {"train", "test"}
    assert many["seconds"] == {"run": 3.0, "compile": 1.5}
    axes = plot_splits(rows).axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["train", "test"]
    np.testing.assert_allclose(axes.get_lines()[0].get_ydata(), [80.0, 90.0, 100.0])
    assert plot_splits(rows[:1]).axes[0].get_lines()


# --- pictures ------------------------------------------------------------------------------------------------------
def curve(axes: Any, label: str) -> np.ndarray:
    (line,) = [line for line in axes.get_lines() if line.get_label().startswith(label)]
    values = np.asarray(line.get_ydata(), dtype=float)
    return values[np.isfinite(values)]


def test_accuracy_picture(model: BilevelSVC, parts: SplitData, tmp_path: Path) -> None:
    figure = plot_accuracy(model, parts, tmp_path / "new" / "accuracy.png")
    assert (tmp_path / "new" / "accuracy.png").stat().st_size > 20_000
    by_iteration, by_time = figure.axes
    for part, shares in stages(model, parts).accuracy.items():
        for axes in (by_iteration, by_time):
            np.testing.assert_allclose(curve(axes, part), 100.0 * shares)
    assert by_iteration.get_xlabel() == "iteration"
    assert by_time.get_xlabel().startswith("seconds")


def test_losses_picture(model: BilevelSVC, parts: SplitData) -> None:
    upper, _, lower, _ = plot_losses(model, parts).axes
    np.testing.assert_allclose(curve(upper, "upper objective"), model.result_.history.upper_value)
    np.testing.assert_allclose(curve(upper, "validation loss"), stages(model, parts).validation_loss)
    np.testing.assert_allclose(curve(lower, "lower objective"), model.result_.history.lower_value)
    assert lower.get_yscale() == "log"  # the uniform start lies many decades below


@pytest.mark.slow
@pytest.mark.parametrize("keep", [0, 1, pytest.param(2, marks=pytest.mark.slow)])
def test_short_histories(model: BilevelSVC, parts: SplitData, keep: int, tmp_path: Path) -> None:
    short = with_history(model, keep)
    for plot in (plot_accuracy, plot_losses):
        figure = plot(short, parts, tmp_path / "short.png")
        line = figure.axes[0].get_lines()[0]
        assert len(line.get_ydata()) == keep
        assert line.get_marker() == "o"
    if keep:
        low, high = plot_losses(with_history(model, 1), parts).axes[0].get_ylim()
        assert high - low > 0.01 * model.result_.upper_value  # rounding is not magnified


@pytest.mark.slow
def test_values_that_are_not_finite(model: BilevelSVC, parts: SplitData, tmp_path: Path) -> None:
    rows = [row._replace(upper_value=np.nan, lower_value=np.inf) for row in model.result_.history.rows()]
    broken = with_history(model, len(rows), history=History(rows), upper_value=np.nan, lower_value=np.nan)
    plot_losses(broken, parts, tmp_path / "broken.png")
    plot_accuracy(broken, parts, tmp_path / "broken.png")
    assert answer_row(broken) is None


def test_margins_picture(model: BilevelSVC, parts: SplitData) -> None:
    bars, ranks, spread = plot_margins(model, parts, top=4).axes
    forgiven = np.sort(model.margins_[model.margins_ > 1e-9])[::-1]
    assert sorted((bar.get_width() for bar in bars.patches), reverse=True) == pytest.approx(forgiven[:4])
    names = [tick.get_text() for tick in bars.get_yticklabels()]
    assert names == [f"{row['index']}: {row['label']}" for row in forgiven_rows(model, parts, 4)]
    np.testing.assert_allclose(ranks.get_lines()[0].get_ydata(), forgiven)
    assert sum(bar.get_height() for bar in spread.patches) == len(forgiven)


@pytest.mark.parametrize("count", [0, 1])
def test_hardly_anyone_is_forgiven(model: BilevelSVC, parts: SplitData, count: int, tmp_path: Path) -> None:
    strict = copy.copy(model)
    strict.margins_ = np.eye(1, len(parts.train))[0] * count
    figure = plot_margins(strict, parts, tmp_path / "forgiven.png")
    assert len(figure.axes) == (3 if count else 1)
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert ("no sample is forgiven" in texts) == (count == 0)


def test_unknown_kind_of_picture(model: BilevelSVC, parts: SplitData, tmp_path: Path) -> None:
    with pytest.raises(PlotError, match=r"use \.png"):
        plot_losses(model, parts, tmp_path / "losses.doc")
