"""Tables and findings on a terminal, readable at 100 columns; needs rich."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from blocc.report.format import is_numeric, value_text
from blocc.report.study.study_tables import VERDICTS
from blocc.report.study.study_views import ItemView

if TYPE_CHECKING:
    from rich.console import Console

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
    for table in item.findings.tables:
        print_table(table.rows, table.title, console=console)
        for note in table.notes:
            console.print(Text(note, style="dim"))
    for seen in item.findings.observations:
        measured = f" ({seen.measured})" if seen.measured else ""
        console.print(Text.assemble((f"{VERDICTS[seen.holds]}: ", _STYLES[seen.holds]), f"{seen.statement}{measured}"))
    if item.trouble:
        console.print(Text(item.trouble, style="yellow"))
