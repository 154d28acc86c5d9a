"""Rows, findings and studies as CSV, Markdown and LaTeX, and on a terminal, readable at 100 columns (needs rich)."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from blocc._lib.digests import digest_list
from blocc._lib.tables import csv_bytes
from blocc.kit.text import Spread, is_numeric, markdown_table, markdown_text, value_text
from blocc.report.study.study_views import (
    ERROR,
    STATUS,
    Findings,
    ItemView,
    Observation,
    StudyView,
    Table,
    summary_rows,
)
from blocc.studies.study import SEED

if TYPE_CHECKING:
    from rich.console import Console


#: What an observation's ``holds`` is called.
VERDICTS = {True: "holds", False: "does not hold", None: "inconclusive"}


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


def markdown_findings(title: str, findings: Findings, notice: str = "") -> str:
    """The tables of an item and what they say about its statements; a notice stands on top."""
    parts = [f"# {markdown_text(title)}\n", *([f"**{markdown_text(notice)}**\n"] if notice else [])]
    for table in findings.tables:
        notes = "".join(f"\n{markdown_text(note)}\n" for note in table.notes)
        parts.append(f"## {markdown_text(table.title)}\n\n{markdown_rows(table.rows)}{notes}")
    if findings.observations:
        lines = []
        for seen in findings.observations:
            lines.append(f"- **{VERDICTS[seen.holds]}**: {markdown_text(_told(seen))}")
        parts.append("## Statements\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def _told(seen: Observation) -> str:
    """A statement, who makes it, and the figures it rests on."""
    source = f" [{seen.source}]" if seen.source else ""
    return f"{seen.statement}{source}" + (f" ({seen.measured})" if seen.measured else "")


def latex_table(table: Table) -> str:
    """A table for a paper (booktabs); one that is too wide for a page becomes several, each with the naming columns."""
    headings = list(dict.fromkeys(key for row in table.rows for key in row))
    lines = []
    for part in parts(table.rows, headings, WIDTH) if headings else []:
        right = [is_numeric(table.rows, key) for key in part]
        rows = [part, *([value_text(row.get(key)) for key in part] for row in table.rows)]
        cells = [" & ".join(latex_text(cell) for cell in row) + r" \\" for row in rows]
        lines += [
            r"\begin{table}",
            r"\caption{" + latex_text(table.title) + "}",
            r"\begin{tabular}{" + "".join("r" if aside else "l" for aside in right) + "}",
            *(r"\toprule", cells[0], r"\midrule", *cells[1:], r"\bottomrule"),
            *(r"\end{tabular}", *(r"\par " + latex_text(note) for note in table.notes), r"\end{table}", ""),
        ]
    return "\n".join(lines)


_LATEX = {
    **{letter: "\\" + letter for letter in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"},
    **{"<": "$<$", ">": "$>$", "|": "$|$", "−": "$-$", "∞": r"$\infty$"},
}


def latex_text(text: str) -> str:
    """Words that stay words in LaTeX, and in one line."""
    return "".join(_LATEX.get(letter, letter) for letter in " ".join(str(text).split()))


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
    """Names and contents of a study's files: all rows, the summary, the summary in Markdown, and their digests."""
    name = view.study.name
    files = {
        f"{name}.csv": rows_csv(view),
        f"{name}-summary.csv": table_csv(summary_rows(view)),
        f"{name}.md": markdown_study(view).encode(errors="replace"),
    }
    return files | {f"{name}.sha256": digest_list(files)}


def item_files(item: ItemView, studies: Sequence[StudyView]) -> dict[str, bytes]:
    """Names and contents of an item's files: tables (CSV, LaTeX), findings (Markdown), pictures, rows, digests."""
    assert item.findings is not None
    tables = item.findings.tables
    files = {table_file(item.name, k, tables): table_csv(table.rows) for k, table in enumerate(tables)}
    files[f"{item.name}.tex"] = "\n".join(latex_table(table) for table in tables).encode(errors="replace")
    files[f"{item.name}.md"] = markdown_findings(item.title, item.findings, item.notice).encode(errors="replace")
    files |= {f"{item.name}-{name}.png": image for name, image in item.pictures.items()}
    files |= {f"{item.name}-{name}": content for name, content in item.documents.items()}
    files |= {f"{item.name}-rows-{view.study.name}.csv": rows_csv(view) for view in studies}
    return files | {f"{item.name}.sha256": digest_list(files)}


def table_file(item: str, position: int, tables: Sequence[Table]) -> str:
    """``ITEM.csv`` for the only table, ``ITEM-1.csv`` and so on for several."""
    return f"{item}.csv" if len(tables) == 1 else f"{item}-{position + 1}.csv"


def failure(view: StudyView, row: Mapping[str, Any]) -> dict[str, Any]:
    """A failed cell: its parameters and the error."""
    return {**{key: row.get(key) for key in view.parameters}, ERROR: row.get(ERROR, "")}


WIDTH = 100
_GAP = 3  #: between two columns
_HEADING = 14  #: characters of a line of a heading
_WIDEST = 36  #: longer cells are folded
_STYLES = {True: "green", False: "red", None: "yellow"}

Rows = Sequence[Mapping[str, Any]]


def make_console() -> Console:
    """A console of the terminal's width, or of 100 columns where output goes elsewhere."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)


def print_table(rows: Rows, title: str, note: str = "", console: Console | None = None) -> None:
    """Print rows as a table; one that is too wide is printed in parts, each with the columns that name the rows."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    console = console or make_console()
    headings = list(dict.fromkeys(key for row in rows for key in row))
    console.print(Text.assemble((title, "bold"), f", {note}" if note else ""))
    for part in parts(rows, headings, console.width):
        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        for key in part:
            right = is_numeric(rows, key)
            table.add_column(Text(folded(key)), justify="right" if right else "left", overflow="fold", no_wrap=right)
        for row in rows:
            table.add_row(*(Text(value_text(row.get(key))) for key in part))
        console.print(table)


def parts(rows: Rows, headings: Sequence[str], width: int) -> list[list[str]]:
    """Columns packed into as few tables as fit; the columns that tell the rows apart stand in each."""
    names = naming_columns(rows, headings)
    widths = {
        key: min(max(map(len, [*folded(key).split("\n"), *(value_text(row.get(key)) for row in rows)])), _WIDEST) + _GAP
        for key in headings
    }
    fixed = sum(widths[key] for key in names) + _GAP
    packed: list[list[str]] = [list(names)]
    used = fixed
    for key in headings[len(names) :]:
        if used + widths[key] > width and len(packed[-1]) > len(names):
            packed.append(list(names))
            used = fixed
        packed[-1].append(key)
        used += widths[key]
    return packed


def folded(heading: str) -> str:
    """A heading in several lines, so that its column need not be wider than its numbers."""
    return "\n".join(textwrap.wrap(heading, _HEADING, break_long_words=False)) or heading


def naming_columns(rows: Rows, headings: Sequence[str]) -> list[str]:
    """The first columns, as many as make all rows different; the very first where none do."""
    for count in range(1, min(len(headings), 4) + 1):
        if len({tuple(value_text(row.get(key)) for key in headings[:count]) for row in rows}) == len(rows):
            return list(headings[:count])
    return list(headings[:1])


def print_item(item: ItemView) -> None:
    """Print an item: its tables, and whether each statement about them holds."""
    from rich.text import Text

    console = make_console()
    console.print()
    console.rule(Text(item.title, style="bold"), align="left")
    if item.findings is None:
        console.print(Text(f"skipped: {item.skipped}", style="yellow"))
        return
    if item.notice:
        console.print(Text(item.notice, style="bold yellow"))
    for table in item.findings.tables:
        print_table(table.rows, table.title, console=console)
        for note in table.notes:
            console.print(Text(note, style="dim"))
    for seen in item.findings.observations:
        console.print(Text.assemble((f"{VERDICTS[seen.holds]}: ", _STYLES[seen.holds]), _told(seen)))
    if item.trouble:
        console.print(Text(item.trouble, style="yellow"))
