"""A fitted SVM as rows and documents, and as files in a folder: JSON and CSV for other programs, pictures for people.

Samples are numbered from 0 in the order of their file. In JSON what is not finite is null, in CSV an empty cell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blocc._lib.files import json_bytes
from blocc._lib.tables import csv_bytes
from blocc.report.storage import write_files
from blocc.report.svm.svm_figures import figure_files
from blocc.report.svm.svm_parts import FORGIVEN, PARTS, SplitData, order_of_margins, scalar, stages
from blocc.report.svm.svm_summary import Row, fit_summary, multiclass_summary

if TYPE_CHECKING:
    from blocc.svm.estimator import BilevelSVC


# --- rows ----------------------------------------------------------------------------------------------------------
def margin_rows(model: BilevelSVC, parts: SplitData) -> list[Row]:
    """Every training sample, most forgiven first."""
    order = order_of_margins(model, parts)
    decisions = model.decision_function(parts.X("train"))
    labels = parts.y("train")
    return [
        {
            "index": int(parts.train[k]),
            "label": scalar(labels[k]),
            "c": float(model.margins_[k]),
            "decision": float(decisions[k]),
            "forgiven": "yes" if model.margins_[k] > FORGIVEN else "no",
        }
        for k in order
    ]


def history_rows(model: BilevelSVC, parts: SplitData) -> list[Row]:
    """The fit, iteration by iteration; accuracies and validation loss where the classifier was kept (NaN elsewhere)."""
    history, on_the_way = model.result_.history, stages(model, parts)
    stage_of = {int(row): k for k, row in enumerate(on_the_way.rows)}
    rows = []
    for number, entry in enumerate(history.rows()):
        stage = stage_of.get(number)
        row: Row = {
            "iteration": number + 1,
            "time": float(entry.time),
            "upper_value": float(entry.upper_value),
            "validation_loss": math.nan if stage is None else float(on_the_way.validation_loss[stage]),
            "lower_value": float(entry.lower_value),
        }
        for part in PARTS:
            known = stage is not None and part in on_the_way.accuracy
            row[f"{part}_accuracy"] = float(on_the_way.accuracy[part][stage]) if known else math.nan
        rows.append(row)
    return rows


def coefficient_rows(model: BilevelSVC, parts: SplitData) -> list[Row]:
    """The weight of every feature of a linear classifier, as it was given and in the data's own units."""
    weights = model.coef_[0]
    original = weights / parts.scale
    rows = [
        {"feature": name, "weight": float(weight), "weight_original": float(own)}
        for name, weight, own in zip(parts.data.feature_names, weights, original, strict=True)
    ]
    intercept = float(model.intercept_[0])
    moved = intercept - float(original @ parts.centre)
    return [*rows, {"feature": "(intercept)", "weight": intercept, "weight_original": moved}]


def prediction_rows(model: Any, parts: SplitData) -> list[Row]:
    """All samples in the order of the file; decision values only where there are two classes."""
    rows = []
    for part in parts.names:
        X, labels = parts.X(part), parts.y(part)
        predicted, decisions = model.predict(X), model.decision_function(X)
        for k, index in enumerate(parts.indices(part)):
            row = {
                "index": int(index),
                "part": part,
                "label": scalar(labels[k]),
                "predicted": scalar(predicted[k]),
                "decision": float(decisions[k]) if decisions.ndim == 1 else math.nan,
            }
            rows.append(row)
    return sorted(rows, key=lambda row: row["index"])


# --- files ---------------------------------------------------------------------------------------------------------
def write_fit(
    folder: str | Path, model: Any, parts: SplitData, summary: Row | None = None, splits: Sequence[Row] = ()
) -> list[Path]:
    """Write everything about a fit into ``folder`` (created where missing) and return the paths.

    ``summary.json`` (``summary``, or :func:`fit_summary`), ``predictions.csv``, and for two classes ``result.json``
    with ``result.npz``, ``history.csv``, ``margins.csv``, ``coefficients.csv`` for the linear kernel and the pictures
    ``accuracy.png``, ``losses.png`` and ``forgiven.png`` (needs ``blocc[plot]``). ``splits.csv`` and ``splits.png``
    where rows of several splits are given. Each file appears complete or not at all.
    """
    target = Path(folder)
    several = hasattr(model, "estimators_")
    if summary is None:
        summary = multiclass_summary(model, parts) if several else fit_summary(model, parts)
    # Everything is made before anything is written: a failure leaves the old files of a folder together.
    files = {
        "summary.json": json_bytes(summary),
        "predictions.csv": csv_bytes(prediction_rows(model, parts)),
    }
    if splits:
        files["splits.csv"] = csv_bytes(splits)
    if not several:
        files["history.csv"] = csv_bytes(history_rows(model, parts))
        files["margins.csv"] = csv_bytes(margin_rows(model, parts))
        if hasattr(model, "coef_"):
            files["coefficients.csv"] = csv_bytes(coefficient_rows(model, parts))
    files |= figure_files(None if several else model, parts, splits)
    written = write_files(target, files, "the files of the SVM")
    if not several:
        written += [model.result_.save(target / "result.json"), target / "result.npz"]
    return written
