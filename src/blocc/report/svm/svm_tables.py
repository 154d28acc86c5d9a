"""A fitted SVM as documents and rows, and as files in a folder: JSON and CSV for other programs, pictures for people.

Samples are numbered from 0 in the order of their file. In JSON what is not finite is null, in CSV an empty cell.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.digests import sealed
from blocc._lib.files import json_bytes, plain
from blocc._lib.tables import csv_bytes, table_rows
from blocc.kit.storage import write_files
from blocc.report.svm.svm_figures import figure_files
from blocc.report.svm.svm_parts import FORGIVEN, PARTS, SplitData, accuracies, order_of_margins, scalar, signs, stages
from blocc.result import Result
from blocc.svm.fitting import worst_result

if TYPE_CHECKING:
    from blocc.svm.estimator import BilevelSVC


FORMAT = "blocc-svm"
VERSION = 1

Row = dict[str, Any]


def data_summary(parts: SplitData) -> Row:
    """What was learned from: sizes, classes, and what was done to the features."""
    labels, counts = np.unique(parts.data.y, return_counts=True)
    return {
        "name": parts.data.name,
        "samples": parts.data.n_samples,
        "features": parts.data.n_features,
        "classes": [{"label": scalar(a), "samples": int(n)} for a, n in zip(labels, counts, strict=True)],
        "standardized": parts.standardize,
        "parts": {part: len(parts.indices(part)) for part in PARTS},
    }


def fit_summary(model: BilevelSVC, parts: SplitData, top: int = 10) -> Row:
    """Everything worth knowing about a fitted classifier, as JSON values; the ``top`` most forgiven samples with it.

    ``upper_value_paper`` is the leader's objective as the paper writes it, whatever price of c was paid.
    """
    result = model.result_
    own = {
        "accuracy": accuracies(model, parts),
        **_values(model),
        "gamma": result.gamma,
        "certificate": asdict(result.certificate),
        "support_vectors": len(model.support_),
        "forgiven": int(np.sum(model.margins_ > FORGIVEN)),
        "most_forgiven": forgiven_rows(model, parts, top),
        "iterations": len(result.history),
        "counts": result.counts,
        "seconds": result.seconds,
    }
    return _document(parts, result, result.message, own, model)


def multiclass_summary(model: BilevelSVC, parts: SplitData) -> Row:
    """The same for more than two classes: accuracies, and how the fit of each class against the rest ended."""
    worst = worst_result(model.results_)
    fits = [
        {"label": scalar(label), "status": result.status.value, "message": result.message}
        for label, result in zip(model.classes_, model.results_, strict=True)
    ]
    seconds = {name: sum(result.seconds.get(name, 0.0) for result in model.results_) for name in ("compile", "run")}
    right = {part: float(np.mean(model.predict(parts.X(part)) == parts.y(part))) for part in parts.names}
    own = {"accuracy": {part: {"exact": share} for part, share in right.items()}, "fits": fits, "seconds": seconds}
    message = "Every class was told apart from the rest." if worst.success else worst.message
    return _document(parts, worst, message, own, model)


def _document(parts: SplitData, result: Result, message: str, own: Row, estimator: Any) -> Row:
    """What every summary says, with its ``own`` entries among it."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "data": data_summary(parts),
        "status": result.status.value,
        "success": result.success,
        "message": message,
        **own,
        "settings": estimator.get_params(deep=False),
        "versions": result.versions,
    }
    return dict(plain(document))


def splits_summary(rows: Sequence[Row]) -> Row:
    """Means, standard deviations (of a sample), least and greatest accuracy over many splits."""
    statuses = Counter(row["status"] for row in rows)
    table: Row = {}
    for part in PARTS:
        for kind, suffix in (("exact", ""), ("penalised", "_penalised")):
            shares = np.array([row[f"{part}_accuracy{suffix}"] for row in rows], dtype=np.float64)
            if np.isfinite(shares).all():
                spread = shares.std(ddof=1) if len(shares) > 1 else math.nan
                least, greatest = shares.min(), shares.max()
                found = {"mean": shares.mean(), "std": spread, "least": least, "greatest": greatest}
                table.setdefault(part, {})[kind] = {name: float(value) for name, value in found.items()}
    seconds = {name: float(sum(row[f"{name}_seconds"] for row in rows)) for name in ("run", "compile")}
    return dict(plain({"splits": len(rows), "statuses": dict(statuses), "accuracy": table, "seconds": seconds}))


def split_row(summary: Row, seed: int) -> Row:
    """One split in one row, from the summary of its fit."""
    row: Row = {"seed": seed, "status": summary["status"]}
    for suffix, kind in (("", "exact"), ("_penalised", "penalised")):
        for part in PARTS:
            share = summary["accuracy"].get(part, {}).get(kind)
            row[f"{part}_accuracy{suffix}"] = math.nan if share is None else share
    for name in ("upper_value", "bound", "is_global", "upper_value_paper", "validation_loss", "lower_value"):
        value = summary.get(name)
        row[name] = math.nan if value is None else value
    return {**row, **{f"{name}_seconds": summary["seconds"].get(name, 0.0) for name in ("run", "compile")}}


def forgiven_rows(model: BilevelSVC, parts: SplitData, top: int = 10) -> list[Row]:
    """The most forgiven training samples: their number, label, predicted label, c and margin."""
    chosen = order_of_margins(model, parts)[:top]
    chosen = chosen[model.margins_[chosen] > FORGIVEN]
    if not len(chosen):
        return []
    X, labels = parts.X("train")[chosen], parts.y("train")[chosen]
    columns = {"index": parts.train[chosen], "label": labels, "predicted": model.predict(X)}
    margin = signs(model, labels) * model.decision_function(X)
    return table_rows({**columns, "c": model.margins_[chosen], "margin": margin})


def _values(model: BilevelSVC) -> Row:
    """Objectives of both levels, and what bounds them."""
    result = model.result_
    return {
        "upper_value": result.upper_value,
        "bound": model.bound_,
        "is_global": bool(model.is_global_),
        "upper_value_paper": model.validation_loss_ + 0.5 * float(model.margins_ @ model.margins_),
        "validation_loss": model.validation_loss_,
        "training_loss": model.training_loss_,
        "lower_value": result.lower_value,
        "upper_value_penalised": result.upper_value_penalty,
    }


# --- rows ----------------------------------------------------------------------------------------------------------
def margin_rows(model: BilevelSVC, parts: SplitData) -> list[Row]:
    """Every training sample, most forgiven first."""
    order = order_of_margins(model, parts)
    c = model.margins_[order]
    columns = {"index": parts.train[order], "label": parts.y("train")[order], "c": c}
    decisions = model.decision_function(parts.X("train"))[order]
    return table_rows({**columns, "decision": decisions, "forgiven": np.where(c > FORGIVEN, "yes", "no")})


def history_rows(model: BilevelSVC, parts: SplitData) -> list[Row]:
    """The fit, iteration by iteration; accuracies and validation loss where the classifier was kept (NaN elsewhere)."""
    history, on_the_way = model.result_.history, stages(model, parts)

    def where_kept(values: Float[NDArray, "stages"] | float) -> Float[NDArray, "iterations"]:
        column = np.full(len(history), np.nan)
        column[on_the_way.rows] = values
        return column

    accuracy = {f"{part}_accuracy": where_kept(on_the_way.accuracy.get(part, np.nan)) for part in PARTS}
    columns = {"iteration": np.arange(1, len(history) + 1), "time": history.time, "upper_value": history.upper_value}
    losses = {"validation_loss": where_kept(on_the_way.validation_loss), "lower_value": history.lower_value}
    return table_rows({**columns, **losses, **accuracy})


def coefficient_rows(model: BilevelSVC, parts: SplitData) -> list[Row]:
    """The weight of every feature of a linear classifier, as it was given and in the data's own units."""
    weights, intercept = model.coef_[0], float(model.intercept_[0])
    original = weights / parts.scale
    moved = intercept - float(original @ parts.centre)
    columns = {"weight": np.append(weights, intercept), "weight_original": np.append(original, moved)}
    return table_rows({"feature": [*parts.data.feature_names, "(intercept)"], **columns})


def prediction_rows(model: Any, parts: SplitData) -> list[Row]:
    """All samples in the order of the file; decision values only where there are two classes."""
    rows: list[Row] = []
    for part in parts.names:
        X, index = parts.X(part), parts.indices(part)
        decisions = model.decision_function(X)
        columns = {"index": index, "part": [part] * len(index), "label": parts.y(part), "predicted": model.predict(X)}
        rows += table_rows({**columns, "decision": decisions if decisions.ndim == 1 else [math.nan] * len(index)})
    return sorted(rows, key=lambda row: row["index"])


# --- files ---------------------------------------------------------------------------------------------------------
def write_fit(
    folder: str | Path, model: Any, parts: SplitData, summary: Row | None = None, splits: Sequence[Row] = ()
) -> list[Path]:
    """Write everything about a fit into ``folder`` (created where missing) and return the paths.

    ``summary.json`` (``summary``, or :func:`fit_summary`), ``predictions.csv``, and for two classes ``result.json``,
    ``history.csv``, ``margins.csv``, ``coefficients.csv`` for the linear kernel and the pictures
    ``accuracy.png``, ``losses.png`` and ``forgiven.png`` (needs ``blocc[plot]``). ``splits.csv`` and ``splits.png``
    where rows of several splits are given. Each file appears complete or not at all.
    """
    target = Path(folder)
    several = len(model.classes_) > 2
    if summary is None:
        summary = multiclass_summary(model, parts) if several else fit_summary(model, parts)
    # Everything is made before anything is written: a failure leaves the old files of a folder together.
    files = {
        "summary.json": json_bytes(sealed(summary)),
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
        written.append(model.result_.save(target / "result.json"))
    return written
