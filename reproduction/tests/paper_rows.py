"""What several tests want: the rows of an item's studies at the reduced size, and the paper's own text."""

from __future__ import annotations

from typing import Any

import pytest

from blocc._lib.version import __version__
from blocc.report.study.study_views import Findings, Observation
from blocc.studies.compute import compute_batch, decode
from reproduction.data_sets import FOLDER, data_folder
from reproduction.item import Item

Rows = dict[str, list[dict[str, Any]]]


def quick_rows(item: Item) -> Rows:
    """As the engine gives them to ``conclude``, through its own checks."""
    found: Rows = {}
    for study in item.studies(True):
        rows: list[dict[str, Any]] = []
        for index, batch in enumerate(study.batches()):
            outcome = compute_batch(study.to_json(), index, __version__)
            assert outcome.error is None, outcome.error
            for cell, row in zip(batch, outcome.value, strict=True):
                rows.append({**cell.parameters, **decode(row), "status": "done", "error": None})
        found[study.name] = rows
    return found


def paper_text() -> str:
    """The LaTeX of arXiv 2406.10148, with which printed figures are compared; a test is skipped without it."""
    source = data_folder() / "paper.tex"
    if not source.is_file():
        pytest.skip(f"needs the paper's source (arXiv 2406.10148) as paper.tex in ${FOLDER} or in the clone's data/")
    return source.read_text(encoding="utf-8")


def observation(findings: Findings, beginning: str) -> Observation:
    """The one whose statement begins so."""
    (found,) = (one for one in findings.observations if one.statement.startswith(beginning))
    return found


def with_a_failure(rows: Rows) -> Rows:
    """The same rows, but the first of every study has failed and lacks its columns."""
    return {study: [{"status": "failed", "error": "no luck", **_grid(of[0])}, *of[1:]] for study, of in rows.items()}


def _grid(row: dict[str, Any]) -> dict[str, Any]:
    parameters = ("x", "preset", "eta", "gamma", "seed", "network", "steps")
    return {name: row[name] for name in parameters if name in row}
