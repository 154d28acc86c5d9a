"""What a notebook shows of an answer: its printed report as a card, a curve beside it, and a line that renews itself.

Cards are plain HTML with the colours of the notebook around them, light or dark: no script, no style sheet, nothing to
fetch. IPython is used only where a notebook runs, which has it.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Sequence
from html import escape
from io import TextIOBase
from typing import Any, TextIO

GOOD, BAD, NEUTRAL = "#00805e", "#c8102e", "#5b6773"  #: a word beside each colour says the same
_ROW = re.compile(r"^\s+(\S.*?)\s{2,}(\S.*)$")
_CELL = 'style="text-align:left;vertical-align:top;padding:2px 14px 2px 0"'
_NUMBERS = f'{_CELL[:-1]};font-variant-numeric:tabular-nums;white-space:pre-wrap;overflow-wrap:anywhere"'
_WHOLE = f'{_CELL[:-1]};font-variant-numeric:tabular-nums;white-space:nowrap"'


class Shown:
    """Objects whose printed report notebooks show as a card; ``success`` colours it where there is one."""

    def _repr_html_(self) -> str:
        return card(str(self), getattr(self, "success", None))


def card(report: str, success: bool | None = None, beside: str = "") -> str:
    """A printed report as HTML: its first line as a heading, ``name   value`` lines as a table, others as sentences.

    :param success: the colour of the status, which follows a colon in the first line; None colours nothing
    :param beside: HTML that stands below the heading, such as a :func:`curve`
    """
    first, *lines = report.splitlines() or [""]
    parts = [_heading(first, success), beside]
    rows: list[tuple[str, str]] = []
    for line in lines:
        found = _ROW.match(line)
        if found:
            rows.append((found[1], found[2]))
            continue
        parts.append(table(rows))
        rows = []
        if line.strip():
            parts.append(f'<p style="margin:4px 0">{escape(line.strip())}</p>')
    return framed("".join([*parts, table(rows)]))


def framed(inside: str) -> str:
    """The frame around everything that a notebook shows."""
    return f'<div style="border-left:3px solid {NEUTRAL};padding:2px 0 2px 12px;max-width:60em">{inside}</div>'


def _heading(first: str, success: bool | None) -> str:
    name, colon, status = first.partition(": ")
    colour = NEUTRAL if success is None else GOOD if success else BAD
    badge = f' <span style="color:{colour};font-weight:bold">{escape(status)}</span>' if colon else ""
    return f'<p style="margin:4px 0"><strong>{escape(name)}</strong>{badge}</p>'


def table(rows: Sequence[Sequence[str]], headings: Iterable[str] = (), wide: str = "") -> str:
    """Rows of text as a table; the first column names the row.

    :param wide: what a table of many columns holds: none of its words and numbers is broken, and it scrolls instead
    """
    if not rows:
        return ""
    head, cell_style = (_WHOLE, _WHOLE) if wide else (_CELL, _NUMBERS)
    top = "".join(f'<th scope="col" {head}>{escape(word)}</th>' for word in headings)
    body = "".join(
        f'<tr><th scope="row" {head}>{escape(row[0])}</th>'
        + "".join(f"<td {cell_style}>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    made = f'<table style="margin:4px 0;border-collapse:collapse">{f"<tr>{top}</tr>" if top else ""}{body}</table>'
    if not wide:
        return made
    words = escape(wide, quote=True)  # a region that scrolls must be reachable by keyboard
    return f'<div role="region" aria-label="{words}" tabindex="0" style="overflow-x:auto">{made}</div>'


def curve(values: Iterable[float], words: str) -> str:
    """A small curve of values, oldest first, as SVG, with words for whoever cannot see it; empty below two values."""
    numbers = [value for value in map(float, values) if math.isfinite(value)]
    if len(numbers) < 2:
        return ""
    least, most = min(numbers), max(numbers)
    spread = (most - least) or 1.0
    points = " ".join(
        f"{4 + 232 * index / (len(numbers) - 1):.1f},{44 - 40 * (value - least) / spread:.1f}"
        for index, value in enumerate(numbers)
    )
    label = escape(f"{words}: from {numbers[0]:.6g} to {numbers[-1]:.6g}", quote=True)
    return (
        f'<svg role="img" aria-label="{label}" width="240" height="48" viewBox="0 0 240 48"><title>{label}</title>'
        f'<polyline points="{points}" fill="none" stroke="#0072B2" stroke-width="2"/></svg>'
    )


class NotebookStream(TextIOBase):
    """Where a live line goes in a notebook: a place in the cell's output that is written again and again."""

    def __init__(self) -> None:
        self._place: Any = None

    def isatty(self) -> bool:
        """It can be rewritten, as a terminal's line can."""
        return True

    def write(self, text: str) -> int:
        """Show a text in the place of the last one."""
        from IPython.display import display

        content = {"text/plain": text.strip()}
        if self._place is None:
            self._place = display(content, raw=True, display_id=True)
        else:
            self._place.update(content, raw=True)
        return len(text)


def in_notebook() -> bool:
    """Whether this program runs in Jupyter's kernel."""
    return type(sys.stderr).__module__.startswith("ipykernel.")


def live_stream() -> TextIO | TextIOBase:
    """Where live lines are written: a notebook's cell, or standard error."""
    return NotebookStream() if in_notebook() else sys.stderr
