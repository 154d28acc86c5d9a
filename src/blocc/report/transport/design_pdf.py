"""A design as one document for print: figures and verdict, pictures, tables, certificate and assumptions."""

from __future__ import annotations

import io
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from blocc._lib.version import __version__
from blocc.kit.checks import verdict
from blocc.kit.figure import FAINT, GREEN, INK, MUTED, RED, new_figure
from blocc.kit.page import PageTable
from blocc.kit.text import number, shortened, value_text, visible
from blocc.report.transport.design_charts import draw_convergence, draw_demand, draw_map, title_figure
from blocc.report.transport.design_page import (
    MEANINGS,
    about,
    key_figures,
    largest_flows,
    largest_prices,
    links_table,
    markets_table,
)
from blocc.transport.design.checks import certificate_checks, withheld
from blocc.transport.design.design_result import Design
from blocc.transport.design.documents import hints

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH, _HEIGHT = 11.69, 8.27  # inches: A4, as charts and tables are wider than high
_LEFT, _RIGHT, _TOP, _BOTTOM = 0.24, _WIDTH - 0.24, _HEIGHT - 0.95, 0.55
_ROW = 0.245  # height of a row of a table
_CHARACTERS = 128  # of a line of text
_MOST_ROWS = 25  # of a table: what is larger is for links.csv and markets.csv


def report_pdf(design: Design) -> bytes:
    """The document; needs ``blocc[plot]``."""
    figures = report_pages(design)
    from matplotlib.backends.backend_pdf import PdfPages  # where matplotlib is missing, the figures have said so

    buffer = io.BytesIO()
    about = {"Title": shortened(design.network.name, 200), "Creator": f"blocc {__version__}"}
    with PdfPages(buffer, metadata=about) as pages:
        for figure in figures:
            pages.savefig(figure)
    return buffer.getvalue()


def report_pages(design: Design) -> list[Figure]:
    """The pages in their order, numbered."""
    pages = [_first_page(design)]
    for draw in (draw_map, draw_demand, draw_convergence):
        pages.append(new_figure(_WIDTH, _HEIGHT))
        draw(pages[-1], design)
        engine: Any = pages[-1].get_layout_engine()
        engine.set(rect=(0.0, _BOTTOM / _HEIGHT, 1.0, (_TOP + 0.2 - _BOTTOM) / _HEIGHT))  # room for the page's number
    pages += _table_pages(design)
    pages += _written(design, "certificate and assumptions", _proof(design))
    for position, page in enumerate(pages, start=1):
        words = f"blocc {__version__}  ·  page {position} of {len(pages)}"
        _text(page, _RIGHT, 0.25, words, size=7.5, color=MUTED, ha="right")
    return pages


def _first_page(design: Design) -> Figure:
    """Name, status and verdict in words, and the key figures."""
    page = new_figure(_WIDTH, _HEIGHT)
    _text(page, _LEFT, 7.6, about(design), size=10, color=MUTED)
    _text(page, _LEFT, 7.15, shortened(design.network.name, 60), size=24, weight="bold")
    _text(page, _LEFT, 6.75, design.status.value, size=13, weight="bold", color=GREEN if design.success else RED)
    checks = certificate_checks(design)
    failed = any(check.passed is False for check in checks)
    y = 6.45
    lines = [
        (design.message, INK),
        (f"Certificate: {verdict(checks)}", RED if failed else INK),
        (withheld(design), RED),
    ]
    lines += [(line, INK) for line in hints(design)]
    for words, colour in lines:
        for line in textwrap.wrap(visible(words), 118):
            _text(page, _LEFT, y, line, size=10, color=colour)
            y -= 0.22
    for position, (title, value, detail) in enumerate(key_figures(design)):
        row, column = divmod(position, 4)
        x, top = _LEFT + 2.75 * column, y - 0.5 - 1.1 * row
        _text(page, x, top, title, size=9.5, color=MUTED)
        _text(page, x, top - 0.33, value, size=18, weight="bold")
        _text(page, x, top - 0.55, detail, size=8.5, color=MUTED)
    return page


def _table_pages(design: Design) -> list[Figure]:
    """The largest links and markets, one table below the other where they fit on a page."""
    markets = np.argsort(-design.network.demand, kind="stable").tolist()
    tables = [("Markets with the largest demand", markets_table(design, markets[:_MOST_ROWS]), len(markets))]
    if not withheld(design):
        for title, links in (("Busiest links", largest_flows(design)), ("Most valuable links", largest_prices(design))):
            tables.insert(len(tables) - 1, (title, links_table(design, "links", links[:_MOST_ROWS]), len(links)))
    pages: list[Figure] = []
    y = -1.0
    for title, table, count in tables:
        if not table.rows:
            continue
        if y - _ROW * (len(table.rows) + 3) < _BOTTOM:
            y = _TOP
            pages.append(new_figure(_WIDTH, _HEIGHT))
            title_figure(pages[-1], design, "links and markets" + (", continued" if len(pages) > 1 else ""))
        more = f" ({len(table.rows)} of {count:,})" if count > len(table.rows) else ""
        _text(pages[-1], _LEFT, y, title + more, size=10.5, weight="bold")
        y = _draw_table(pages[-1], table, y - 1.3 * _ROW) - _ROW
    return pages


def _draw_table(page: Figure, table: PageTable, y: float) -> float:
    """Columns as wide as their longest words need, rows downwards from ``y``; where the next one would stand."""
    rows = [[shortened(cell.text, 30) for cell in row] for row in table.rows]
    titles = [title for title, _ in table.headings]
    wide = np.array([max(len(line[k]) for line in [titles, *rows]) + 3 for k in range(len(titles))], dtype=float)
    edges = _LEFT + np.concatenate([[0.0], np.cumsum(wide)]) * min((_RIGHT - _LEFT) / wide.sum(), 0.13)
    for position, line in enumerate([titles, *rows]):
        for k, (_, numeric) in enumerate(table.headings):
            x = edges[k + 1] - 0.1 if numeric else edges[k]
            weight, side = "normal" if position else "bold", "right" if numeric else "left"
            _text(page, x, y, line[k], size=9, weight=weight, ha=side)
        if position == 0:
            _rule(page, y - 0.35 * _ROW, edges[-1])
        y -= _ROW * (1.0 if position else 1.15)
    return y


class _Line(NamedTuple):
    words: str
    indent: float = 0.0
    color: str = INK
    weight: str = "normal"


def _proof(design: Design) -> list[_Line]:
    """The certificate with its verdicts and what they mean, what was assumed, and the settings."""
    checks = certificate_checks(design)
    lines = [_Line("Certificate", weight="bold"), _Line(verdict(checks)), _Line("")]
    for check in checks:
        limit = "" if check.limit is None else f", limit {number(check.limit)}"
        colour = RED if check.passed is False else INK
        lines.append(_Line(f"{check.verdict}: {check.name} {number(check.value)}{limit}", 0.2, colour, "bold"))
        lines.append(_Line(MEANINGS[check.name], 0.4, MUTED))
    lines += [_Line(""), _Line("What was assumed", weight="bold")]
    lines += [
        _Line(sentence, 0.2) for sentence in design.network.assumptions or ("Nothing: every figure is the file’s own.",)
    ]
    settings = ", ".join(f"{name} {value_text(value)}" for name, value in design.settings.items() if value is not None)
    return [*lines, _Line(""), _Line("Settings", weight="bold"), _Line(settings or "None recorded.", 0.2)]


def _written(design: Design, title: str, lines: list[_Line]) -> list[Figure]:
    """Pages of text, as many as it needs."""
    step, pages, y = 0.21, [], -1.0
    for line in lines:
        for part in textwrap.wrap(visible(line.words), _CHARACTERS - int(12 * line.indent)) or [""]:
            if y < _BOTTOM:
                y = _TOP
                pages.append(new_figure(_WIDTH, _HEIGHT))
                title_figure(pages[-1], design, title + (", continued" if len(pages) > 1 else ""))
            _text(pages[-1], _LEFT + line.indent, y, part, size=9.5, color=line.color, weight=line.weight)
            y -= step
    return pages


def _text(page: Figure, x: float, y: float, words: str, *, size: float, color: str = INK, **style: Any) -> None:
    """Words at a place in inches from the lower left; never a formula."""
    page.text(x / _WIDTH, y / _HEIGHT, words, fontsize=size, color=color, parse_math=False, **style)


def _rule(page: Figure, y: float, right: float) -> None:
    from matplotlib.lines import Line2D

    across = [_LEFT / _WIDTH, right / _WIDTH]
    page.add_artist(Line2D(across, [y / _HEIGHT] * 2, color=FAINT, linewidth=0.8))
