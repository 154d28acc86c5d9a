"""Rows, findings and whole studies as CSV and Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from blocc._lib.tables import csv_bytes
from blocc.report.format import Spread, is_numeric, markdown_table, markdown_text, value_text
from blocc.report.study.study_summary import summary_rows
from blocc.report.study.study_views import ERROR, STATUS, Findings, ItemView, StudyView, Table
from blocc.studies.study import SEED

#: What an observation's ``holds`` is called.
VERDICTS = {True: "holds", False: "does not hold", None: "cannot tell"}


def rows_csv(view: StudyView) -> bytes:
    """Every row of a study: parameters, columns, status and error."""
    headings = [*view.study.grid, SEED, *view.columns, STATUS, ERROR]
    return table_csv([{key: row.get(key) for key in headings} for row in view.rows])


def table_csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Rows whose headings may differ; lists and tables become JSON, what a row lacks stays empty.

    A spread becomes three columns: mean, deviation and count.
    """
    flat: list[dict[str, Any]] = [{} for _ in rows]
    for row, target in zip(rows, flat, strict=True):
        for key, value in row.items():
            if isinstance(value, Spread):
                target |= {f"{key} {part}": figure for part, figure in asdict(value).items()}
            else:
                target[key] = json.dumps(value, default=str) if isinstance(value, list | tuple | dict) else value
    return csv_bytes(flat)


def markdown_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a table in Markdown: numbers to the right, everything else to the left."""
    headings = list(dict.fromkeys(key for row in rows for key in row))
    if not headings:
        return "(no rows)\n"
    cells = [[value_text(row.get(key)) for key in headings] for row in rows]
    return markdown_table(headings, cells, [is_numeric(rows, key) for key in headings])


def markdown_findings(title: str, findings: Findings) -> str:
    """The tables of an item and what they say about its statements."""
    parts = [f"# {markdown_text(title)}\n"]
    for table in findings.tables:
        notes = "".join(f"\n{markdown_text(note)}\n" for note in table.notes)
        parts.append(f"## {markdown_text(table.title)}\n\n{markdown_rows(table.rows)}{notes}")
    if findings.observations:
        lines = []
        for seen in findings.observations:
            measured = f" ({markdown_text(seen.measured)})" if seen.measured else ""
            lines.append(f"- **{VERDICTS[seen.holds]}**: {markdown_text(seen.statement)}{measured}")
        parts.append("## Statements\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def markdown_study(view: StudyView) -> str:
    """A study in Markdown: counts, the summary over the seeds, and the cells that failed."""
    counts = f"{view.total} cells: {len(view.done)} done, {len(view.failed)} failed, {view.missing} missing."
    parts = [f"# {markdown_text(view.study.name)}\n", counts + "\n"]
    if view.done:
        parts += ["Mean over the seeds ± standard deviation.\n"] if len(view.study.seeds) > 1 else []
        parts.append(markdown_rows(summary_rows(view)))
    if view.failed:
        parts.append("## Failed cells\n\n" + markdown_rows([failure(view, row) for row in view.failed]))
    return "\n".join(parts)


def study_files(view: StudyView) -> dict[str, bytes]:
    """Names and contents of a study's files: all rows, the summary, and the summary in Markdown."""
    name = view.study.name
    return {
        f"{name}.csv": rows_csv(view),
        f"{name}-summary.csv": table_csv(summary_rows(view)),
        f"{name}.md": markdown_study(view).encode(errors="replace"),
    }


def item_files(item: ItemView, studies: Sequence[StudyView]) -> dict[str, bytes]:
    """Names and contents of an item's files: its tables, its findings in Markdown, pictures, rows of its studies."""
    assert item.findings is not None
    tables = item.findings.tables
    files = {table_file(item.name, k, tables): table_csv(table.rows) for k, table in enumerate(tables)}
    files[f"{item.name}.md"] = markdown_findings(item.title, item.findings).encode(errors="replace")
    files |= {f"{item.name}-{name}.png": image for name, image in item.pictures.items()}
    return files | {f"{item.name}-rows-{view.study.name}.csv": rows_csv(view) for view in studies}


def table_file(item: str, position: int, tables: Sequence[Table]) -> str:
    """``ITEM.csv`` for the only table, ``ITEM-1.csv`` and so on for several."""
    return f"{item}.csv" if len(tables) == 1 else f"{item}-{position + 1}.csv"


def failure(view: StudyView, row: Mapping[str, Any]) -> dict[str, Any]:
    """A failed cell: its parameters and the error."""
    return {**{key: row.get(key) for key in view.parameters}, ERROR: row.get(ERROR, "")}
