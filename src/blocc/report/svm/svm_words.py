"""The summary of a fitted SVM as text for people; the first line says how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blocc.kit.text import number, percent, shortened
from blocc.report.svm.svm_parts import PARTS
from blocc.result import Certificate

_MOST_CLASSES = 6


def fit_text(summary: dict[str, Any]) -> str:
    """One fit, from what ``fit_summary`` or ``multiclass_summary`` made."""
    lines = [*_head(summary, f"{summary['data']['name']}: {summary['status']}"), f"  {summary['message']}"]
    lines += _about(summary)
    lines += ["", *_accuracies(summary)]
    if "fits" in summary:
        lines += ["", "  each class against the rest"]
        lines += [f"    {shortened(str(fit['label']))}: {fit['status']}. {fit['message']}" for fit in summary["fits"]]
    else:
        lines += ["", *_values(summary), "", "  certificate", *_certificate(summary), "", *_forgiven(summary)]
    lines += ["", f"  {_seconds(summary['seconds'])}"]
    return "\n".join([*lines, *(f"  note: {note}" for note in summary.get("notes", ()))])


def splits_text(summary: dict[str, Any]) -> str:
    """Many splits, from a summary with the member ``splits``."""
    many = summary["splits"]
    ended = ", ".join(f"{count} {status}" for status, count in many["statuses"].items())
    rows = [["accuracy", "y: mean", "std", "least", "greatest", "yF: mean", "std"]]
    for part, kinds in many["accuracy"].items():
        exact, penalised = kinds["exact"], kinds.get("penalised", {})
        cells = [exact[name] for name in ("mean", "std", "least", "greatest")]
        cells += [penalised.get(name) for name in ("mean", "std")]
        rows.append([part, *(percent(cell, 2) for cell in cells)])
    lines = [f"{summary['data']['name']}: {many['splits']} splits, {ended}", *_about(summary)]
    lines += ["", *_table(rows), "", f"  {_seconds(many['seconds'])}"]
    return "\n".join([*lines, *(f"  note: {note}" for note in summary.get("notes", ()))])


def _head(summary: dict[str, Any], line: str) -> list[str]:
    return [line + (", a global optimum" if summary.get("is_global") else "")]


def _about(summary: dict[str, Any]) -> list[str]:
    data = summary["data"]
    classes = [f"{shortened(str(entry['label']))} ({entry['samples']})" for entry in data["classes"][:_MOST_CLASSES]]
    classes += ["..."] if len(data["classes"]) > _MOST_CLASSES else []
    names = {"train": "train and validation"} if "fits" in summary else {}
    sizes = ", ".join(f"{names.get(part, part)} {data['parts'][part]}" for part in PARTS if data["parts"][part])
    scaled = "standardised" if data["standardized"] else "as they are"
    seed = f" (seed {summary['seed']})" if "seed" in summary and "splits" not in summary else ""
    return [
        f"  data       {data['samples']} samples, {data['features']} features, {scaled}",
        f"  classes    {', '.join(classes)}",
        f"  parts      {sizes}{seed}",
    ]


def _accuracies(summary: dict[str, Any]) -> list[str]:
    penalised = any("penalised" in kinds for kinds in summary["accuracy"].values())
    rows = [["accuracy", "y, the follower's answer", "yF, penalised"][: 3 if penalised else 2]]
    if not penalised:
        rows[0][1] = "one class against the rest"
    for part, kinds in summary["accuracy"].items():
        rows.append([part, percent(kinds["exact"], 2)] + ([percent(kinds["penalised"], 2)] if penalised else []))
    return _table(rows)


def _values(summary: dict[str, Any]) -> list[str]:
    bound, is_global = summary["bound"], summary["is_global"]
    about = "no bound is known" if bound is None else f"none is smaller than {number(bound, 8)}"
    proof = "proved to be a global optimum" if is_global else "not proved to be a global optimum"
    return [
        f"  upper value       {number(summary['upper_value'], 8)}   ({proof}; {about})",
        f"  by the paper      {number(summary['upper_value_paper'], 8)}   (validation loss + ||c||^2 / 2)",
        f"  validation loss   {number(summary['validation_loss'], 8)}",
        f"  lower value       {number(summary['lower_value'], 8)}",
    ]


def _certificate(summary: dict[str, Any]) -> list[str]:
    # What is not finite was written as null.
    numbers: dict[str, Any] = {
        name: float("nan") if value is None else value for name, value in summary["certificate"].items()
    }
    return [f"    {line}" for line in str(Certificate(**numbers)).splitlines()]


def _forgiven(summary: dict[str, Any]) -> list[str]:
    training = summary["data"]["parts"]["train"]
    count = (
        f"{summary['forgiven']} of {training} training samples forgiven; {summary['support_vectors']} support vectors"
    )
    rows = [["sample", "label", "predicted", "c", "margin"]]
    for row in summary["most_forgiven"]:
        names = [shortened(str(row[name]), 20) for name in ("label", "predicted")]
        rows.append([str(row["index"]), *names, f"{row['c']:.4g}", f"{row['margin']:.4g}"])
    return [f"  {count}", *(_table(rows) if len(rows) > 1 else [])]


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns side by side, the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))]
        lines.append("  " + "   ".join(cells).rstrip())
    return lines


def _seconds(seconds: dict[str, float]) -> str:
    return f"{seconds['run']:.3g} s (and {seconds['compile']:.3g} s to compile)"
