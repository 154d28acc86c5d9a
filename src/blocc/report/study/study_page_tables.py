"""Tables of the page from plain rows: every word escaped, every number with the value to sort by."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from blocc.report.study.study_tables import figure_of, is_numeric, shown

#: Longer tables are cut; the CSV files have all rows.
MOST_ROWS = 2000
_LONG = 80  #: characters of a text that needs a wide column


def rows_table(
    rows: Sequence[Mapping[str, Any]], name: str, *, headings: Sequence[str] = (), tools: bool = False
) -> str:
    """A table that can be sorted, and with ``tools`` filtered; ``name`` is its id."""
    keys = list(headings) or list(dict.fromkeys(key for row in rows for key in row))
    if not rows or not keys:
        return '<p class="note">No rows.</p>'
    visible = rows[:MOST_ROWS]
    numeric = {key for key in keys if is_numeric(rows, key)}
    heads = "".join(_head(key, key in numeric) for key in keys)
    body = "\n".join("<tr>" + "".join(_cell(row.get(key), key in numeric) for key in keys) + "</tr>" for row in visible)
    content = f"<thead><tr>{heads}</tr></thead><tbody>\n{body}\n</tbody>"
    cut = "" if len(rows) == len(visible) else f'<p class="note">The first {MOST_ROWS:,} of {len(rows):,} rows.</p>'
    filters = _tools(name, len(visible)) if tools else ""
    # A region that scrolls must be reachable by keyboard.
    return (
        f'{filters}{cut}<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(name)}">'
        f'<table id="{html.escape(name)}" class="sortable">{content}</table></div>'
    )


def _tools(name: str, count: int) -> str:
    identity = html.escape(name)
    return (
        f'<p class="tools"><input type="search" data-filters="{identity}" data-count="{identity}-count" '
        'placeholder="Filter rows" aria-label="Filter rows">'
        f'<span id="{identity}-count" role="status">{count} rows</span></p>'
    )


def _head(key: str, numeric: bool) -> str:
    kind = "" if numeric else ' class="text"'
    return f'<th scope="col"{kind}><button type="button">{html.escape(str(key))}</button></th>'


def _cell(value: Any, numeric: bool) -> str:
    if numeric:
        found = figure_of(value)
        figure = math.nan if found is None else found
        key = "" if math.isnan(figure) else f"{figure:.12g}" if math.isfinite(figure) else f"{figure:.0f}"
        key = key.replace("inf", "Infinity")
        exact = f' title="{figure!r}"' if isinstance(value, float) and math.isfinite(figure) else ""
        return f'<td data-v="{key}"{exact}>{html.escape(shown(value, 6) or "–")}</td>'
    words = shown(value, 6)
    kind = "text long" if len(words) > _LONG else "text no" if value is False else "text"
    return f'<td class="{kind}">{html.escape(words)}</td>'
