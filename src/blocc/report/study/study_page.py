"""One page about the studies of a store, complete in itself: it opens from a disk, offline, and sends no request."""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from blocc.report.figure import DPI, figure_image
from blocc.report.format import duration, is_numeric, number_of, sort_key, value_text
from blocc.report.page import Cell, PageTable, flat_facts, render, write_html
from blocc.report.study.study_figures import draw_study
from blocc.report.study.study_summary import summary_rows
from blocc.report.study.study_tables import VERDICTS, failure
from blocc.report.study.study_views import ItemView, Report, StudyView, seconds_of

#: Longer tables are cut; the CSV files have all rows.
MOST_ROWS = 2000
#: Errors of so many failed cells are shown in full.
_MOST_ERRORS = 50
_LONG = 80  #: characters of a text that needs a wide column
_INCH = 96  #: pixels of a page


def write_page(report: Report, path: str | Path) -> Path:
    """Write the page (one HTML file) and return its path; needs ``blocc[plot]``."""
    return write_html(study_page(report), path)


def study_page(report: Report) -> str:
    """The page as text; where there is one study alone, the head says its name and state."""
    colour, state = state_of(report)
    return render(
        "study.html.j2",
        report=report,
        colour=colour,
        state=state,
        figures=_figures(report),
        items=[_item(view, f"item-{place}") for place, view in enumerate(report.items)],
        studies=[_study(view, f"study-{place}") for place, view in enumerate(report.studies)],
        alone=len(report.studies) == 1 and not report.items,
        verdicts=VERDICTS,
        most_errors=_MOST_ERRORS,
        facts=flat_facts(report.facts),
        written=time.strftime("%Y-%m-%d at %H:%M"),
    )


def state_of(report: Report | StudyView) -> tuple[str, str]:
    """Colour and word for how far a study is, or all of them."""
    if report.running:
        return "warn", "running"
    if report.missing:
        return "warn", "incomplete"
    return ("bad", "some cells failed") if report.failed else ("good", "complete")


def _figures(report: Report) -> list[tuple[str, str, str]]:
    seconds = sum(seconds_of(row) for view in report.studies for row in view.done)
    observed = [seen.holds for item in report.items if item.findings for seen in item.findings.observations]
    studies = "1 study" if len(report.studies) == 1 else f"{len(report.studies)} studies"
    figures = [
        ("Cells", f"{report.total:,}", f"in {studies}"),
        ("Done", f"{report.done:,}", f"{100 * report.done / report.total:.0f} %" if report.total else ""),
        ("Failed", f"{report.failed:,}", "with an error"),
        ("Missing", f"{report.missing:,}", "not tried yet"),
    ]
    figures += [("Statements that hold", f"{observed.count(True)}", f"of {len(observed)}")] if observed else []
    return figures + ([("Computing", duration(seconds), "of all cells together")] if seconds else [])


def _item(view: ItemView, name: str) -> dict[str, Any]:
    tables = view.findings.tables if view.findings else ()
    return {
        "view": view,
        "pictures": {title: _picture("png", image) for title, image in view.pictures.items()},
        "tables": [_table(table.rows, f"{name}-table-{k}") for k, table in enumerate(tables)],
    }


def _study(view: StudyView, name: str) -> dict[str, Any]:
    colour, state = state_of(view)
    figure, study, failed = draw_study(view), view.study, [failure(view, row) for row in view.failed]
    grid = {key: ", ".join(map(value_text, values)) for key, values in study.grid.items()}
    short = [{**row, "error": str(row["error"] or "").partition("\n")[0]} for row in failed]
    averaged = view.done and len(study.seeds) > 1 and study.grid
    return {
        "view": view,
        "colour": colour,
        "state": state,
        "parts": [
            (kind, f"{100 * len(rows) / view.total:.4g}" if rows else "")
            for kind, rows in (("done", view.done), ("failed", view.failed))
        ],
        "picture": None if figure is None else _picture("svg+xml", figure_image(figure, "svg")),
        "means": _table(summary_rows(view), f"{name}-means") if averaged else None,
        "rows": _table(view.done, f"{name}-rows", [*view.parameters, *view.columns]),
        "failed": _table(short, f"{name}-failed"),
        "settings": {"function": study.function, "seeds": _seeds(study.seeds), **grid, **flat_facts(study.fixed)},
    }


def _seeds(seeds: Sequence[int]) -> str:
    together = len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds)))
    return f"{seeds[0]} to {seeds[-1]}" if together else ", ".join(map(str, seeds))


def _picture(kind: str, image: bytes) -> dict[str, Any]:
    """A picture as data, with its width on the page where it is made of pixels."""
    across = int.from_bytes(image[16:20])  # from the header of a PNG file
    return {
        "source": f"data:image/{kind};base64,{base64.b64encode(image).decode()}",
        "width": round(across * _INCH / DPI) if kind == "png" else None,
    }


# --- tables --------------------------------------------------------------------------------------------------------
def _table(rows: Sequence[Mapping[str, Any]], name: str, headings: Sequence[str] = ()) -> PageTable:
    keys = list(headings) or list(dict.fromkeys(key for row in rows for key in row))
    numeric = {key: is_numeric(rows, key) for key in keys}
    visible = rows[:MOST_ROWS] if keys else []
    cut = "" if len(rows) == len(visible) else f"The first {MOST_ROWS:,} of {len(rows):,} rows."
    cells = [[_cell(row.get(key), numeric[key]) for key in keys] for row in visible]
    return PageTable(name, list(numeric.items()), cells, cut)


def _cell(value: Any, numeric: bool) -> Cell:
    words = value_text(value, 6)
    if not numeric:
        return Cell(words, style="long" if len(words) > _LONG else "no" if value is False else "")
    exact = repr(value) if isinstance(value, float) and math.isfinite(value) else ""
    return Cell(words or "–", sort_key(number_of(value)), exact)
