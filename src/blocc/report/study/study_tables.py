"""Rows, findings and whole studies as CSV and Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from blocc.report.storage import csv_text
from blocc.report.study.study_summary import Spread, summary_rows
from blocc.report.study.study_views import ERROR, STATUS, Findings, ItemView, StudyView, Table
from blocc.report.transport.design_style import number
from blocc.studies.study import SEED

_MOST_PARTS = 8  #: of a list, where people read it
#: What stands in a table where there is no number.
_GAPS = (None, "", "/", "-", "–")
#: A number in words, perhaps with its deviation.
_FIGURE = re.compile(r"(-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)(?: ± \S+)?")
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
                target |= {f"{key} {part}": number for part, number in asdict(value).items()}
            else:
                target[key] = json.dumps(value, default=str) if isinstance(value, list | tuple | dict) else value
    headings = list(dict.fromkeys(key for row in flat for key in row))
    return csv_text([{key: row.get(key) for key in headings} for row in flat])


def markdown_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a table in Markdown: numbers to the right, everything else to the left."""
    headings = list(dict.fromkeys(key for row in rows for key in row))
    if not headings:
        return "(no rows)\n"
    numeric = {key for key in headings if is_numeric(rows, key)}
    lines = [_line(headings), _line(["---:" if key in numeric else "---" for key in headings])]
    lines += [_line([shown(row.get(key)) for key in headings]) for row in rows]
    return "\n".join(lines) + "\n"


def markdown_findings(title: str, findings: Findings) -> str:
    """The tables of an item and what they say about its statements."""
    parts = [f"# {_escaped(title)}\n"]
    for table in findings.tables:
        notes = "".join(f"\n{_escaped(note)}\n" for note in table.notes)
        parts.append(f"## {_escaped(table.title)}\n\n{markdown_rows(table.rows)}{notes}")
    if findings.observations:
        lines = []
        for seen in findings.observations:
            measured = f" ({_escaped(seen.measured)})" if seen.measured else ""
            lines.append(f"- **{VERDICTS[seen.holds]}**: {_escaped(seen.statement)}{measured}")
        parts.append("## Statements\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def markdown_study(view: StudyView) -> str:
    """A study in Markdown: counts, the summary over the seeds, and the cells that failed."""
    counts = f"{view.total} cells: {len(view.done)} done, {len(view.failed)} failed, {view.missing} missing."
    parts = [f"# {_escaped(view.study.name)}\n", counts + "\n"]
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


def is_numeric(rows: Sequence[Mapping[str, Any]], key: str) -> bool:
    """Whether a column holds numbers and nothing else; a gap in a table of words is no word."""
    values = [row.get(key) for row in rows if row.get(key) not in _GAPS]
    return bool(values) and all(figure_of(value) is not None for value in values)


def figure_of(value: Any) -> float | None:
    """The number that a value is or shows, such as 0.5 for "0.500 ± 0.012"; None for anything else."""
    if isinstance(value, Spread):
        return value.mean
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    found = _FIGURE.fullmatch(value) if isinstance(value, str) else None
    return None if found is None else float(found[1].replace(",", ""))


def shown(value: Any, digits: int = 5) -> str:
    """A value for people; nothing where there is none."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return number(value, digits)
    if isinstance(value, Spread):
        return number(value.mean, digits) + (f" ± {number(value.deviation, 3)}" if value.count > 1 else "")
    if isinstance(value, list | tuple):
        few = [shown(part, digits) or "–" for part in value[:_MOST_PARTS]]
        more = f", … {len(value)} in all" if len(value) > _MOST_PARTS else ""
        return "[" + ", ".join(few) + more + "]"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _escaped(text: str) -> str:
    """Words that stay words in Markdown, and in one line."""
    words = " ".join(str(text).split())
    return words.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
