"""One page about the studies of a store, complete in itself: it opens from a disk, offline, and asks nobody."""

from __future__ import annotations

import base64
import html
import io
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blocc._lib.version import __version__
from blocc.report.html import page, write_html
from blocc.report.plots import DPI
from blocc.report.study.study_figures import draw_study
from blocc.report.study.study_page_assets import STUDY_STYLE
from blocc.report.study.study_page_tables import rows_table
from blocc.report.study.study_summary import summary_rows
from blocc.report.study.study_tables import VERDICTS, failure, shown
from blocc.report.study.study_views import ItemView, Report, StudyView, seconds_of
from blocc.report.transport.design_style import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = {True: "good", False: "bad", None: "warn"}
#: Errors of so many failed cells are shown in full.
_MOST_ERRORS = 50
_INCH = 96  #: pixels of a page


def write_page(report: Report, path: str | Path) -> Path:
    """Write the page (one HTML file) and return its path; needs ``blocc[plot]``."""
    return write_html(study_page(report), path)


def study_page(report: Report) -> str:
    """The page as text."""
    items = "\n".join(_item(item, place) for place, item in enumerate(report.items))
    alone = len(report.studies) == 1 and not report.items
    studies = "\n".join(_study(view, place, alone) for place, view in enumerate(report.studies))
    facts = _section("facts", "Machine and versions", facts_table(report.facts)) if report.facts else ""
    body = f"""{_header(report)}
<main>
<noscript><section><p>Sorting and filtering need JavaScript; all figures are here without it.</p></section></noscript>
{items}
{studies}
{facts}
</main>
<footer>Written by blocc {html.escape(__version__)} on {time.strftime("%Y-%m-%d at %H:%M")}. All rows are also in the
CSV files beside this page.</footer>"""
    return page(f"{report.title}: study", body, style=STUDY_STYLE)


# --- the head ------------------------------------------------------------------------------------------------------
def _header(report: Report) -> str:
    colour, state = state_of(report)
    seconds = sum(seconds_of(row) for view in report.studies for row in view.done)
    observed = [seen.holds for item in report.items if item.findings for seen in item.findings.observations]
    figures = [
        ("Cells", f"{report.total:,}", f"in {_plural(len(report.studies), 'study', 'studies')}"),
        ("Done", f"{report.done:,}", f"{100 * report.done / report.total:.0f} %" if report.total else ""),
        ("Failed", f"{report.failed:,}", "with an error"),
        ("Missing", f"{report.missing:,}", "not tried yet"),
    ]
    if observed:
        figures.append(("Statements that hold", f"{observed.count(True)}", f"of {len(observed)}"))
    if seconds:
        figures.append(("Computing", _duration(seconds), "of all cells together"))
    cells = "\n".join(
        f"<div><dt>{title}</dt><dd>{value}<small>{html.escape(detail)}</small></dd></div>"
        for title, value, detail in figures
    )
    return f"""<header><div>
<p class="kicker">Study</p>
<div class="headline"><h1>{html.escape(report.title)}</h1><span class="badge {colour}">{state}</span></div>
<dl class="figures">
{cells}
</dl>
{_contents(report)}
</div></header>"""


def state_of(report: Report | StudyView) -> tuple[str, str]:
    """Colour and word for how far a study is, or all of them."""
    failed = report.failed if isinstance(report.failed, int) else len(report.failed)
    if report.running:
        return "warn", "running"
    if report.missing:
        return "warn", "incomplete"
    return ("bad", "some cells failed") if failed else ("good", "complete")


def _contents(report: Report) -> str:
    links = [(f"item-{k}", item.title) for k, item in enumerate(report.items)]
    links += [(f"study-{k}", view.study.name) for k, view in enumerate(report.studies)]
    if len(links) < 2:
        return ""
    lines = "".join(f'<li><a href="#{name}">{html.escape(title)}</a></li>' for name, title in links)
    return f'<nav aria-label="Contents"><ul>{lines}</ul></nav>'


# --- items ---------------------------------------------------------------------------------------------------------
def _item(item: ItemView, place: int) -> str:
    name = f"item-{place}"
    if item.findings is None:
        return _section(name, item.title, f'<p class="note">Skipped: {html.escape(item.skipped)}</p>', "skipped")
    parts = []
    if item.findings.observations:
        parts.append('<ul class="observations">')
        for seen in item.findings.observations:
            measured = f"<small>{html.escape(seen.measured)}</small>" if seen.measured else ""
            parts.append(
                f'<li><span class="badge {_COLOURS[seen.holds]}">{VERDICTS[seen.holds]}</span>'
                f"<span>{html.escape(seen.statement)}</span>{measured}</li>"
            )
        parts.append("</ul>")
    for title, image in item.pictures.items():
        parts.append(_picture("image/png", image, f"{item.title}: {title}"))
    parts += [f'<p class="note">{html.escape(item.trouble)}</p>'] if item.trouble else []
    for k, table in enumerate(item.findings.tables):
        parts.append(f"<h3>{html.escape(table.title)}</h3>{rows_table(list(table.rows), f'{name}-table-{k}')}")
        parts += [f'<p class="note">{html.escape(note)}</p>' for note in table.notes]
    return _section(name, item.title, "\n".join(parts))


# --- studies -------------------------------------------------------------------------------------------------------
def _study(view: StudyView, place: int, alone: bool) -> str:
    """One study; where it is alone, the head of the page says its name and state."""
    name = f"study-{place}"
    done, failed, total = len(view.done), len(view.failed), view.total
    note = f"{total:,} cells: {done:,} done, {failed:,} failed, {view.missing:,} missing."
    bar = "".join(
        f'<span class="{kind}" style="width:{100 * count / total:.4g}%"></span>'
        for kind, count in (("done", done), ("failed", failed))
        if count
    )
    parts = [f'<p class="note">{note}</p><div class="bar" role="img" aria-label="{note}">{bar}</div>']
    figure = draw_study(view)
    if figure is not None:
        words = "Mean over the seeds; bars show the standard deviation." if len(view.study.seeds) > 1 else ""
        parts.append(_picture("image/svg+xml", _svg(figure), f"{view.study.name}: pictures", words))
    if view.done and len(view.study.seeds) > 1 and view.study.grid:
        parts.append(f"<h3>Means over the seeds</h3>{rows_table(summary_rows(view), f'{name}-means')}")
    headings = [*view.parameters, *view.columns]
    if view.done:
        table = rows_table(view.done, f"{name}-rows", headings=headings, tools=True)
        parts.append(f"<details{' open' if alone else ''}><summary>All {done:,} rows</summary>{table}</details>")
    if view.failed:
        parts.append(f"<h3>Failed cells</h3>{_failures(view, name)}")
    definition = {"function": view.study.function, "seeds": _seeds(view), **_grid(view), **view.study.fixed}
    parts.append(f"<details><summary>Settings of this study</summary>{facts_table(definition)}</details>")
    colour, state = state_of(view)
    title = "Results" if alone else view.study.name
    return _section(name, title, "\n".join(parts), "" if alone else state, colour)


def _failures(view: StudyView, name: str) -> str:
    rows = [failure(view, row) for row in view.failed]
    short = [{**row, "error": str(row["error"] or "").partition("\n")[0]} for row in rows]
    full = "".join(
        f"<tr><td><pre>{html.escape(str(row['error'] or ''))}</pre></td></tr>" for row in rows[:_MOST_ERRORS]
    )
    trace = f"<details><summary>Errors in full</summary><table><tbody>{full}</tbody></table></details>"
    return rows_table(short, f"{name}-failed") + trace


def _seeds(view: StudyView) -> str:
    seeds = list(view.study.seeds)
    together = len(seeds) > 2 and seeds == list(range(seeds[0], seeds[0] + len(seeds)))
    return f"{seeds[0]} to {seeds[-1]}" if together else ", ".join(map(str, seeds))


def _grid(view: StudyView) -> dict[str, str]:
    return {key: ", ".join(shown(value) for value in values) for key, values in view.study.grid.items()}


# --- parts ---------------------------------------------------------------------------------------------------------
def facts_table(facts: Mapping[str, Any]) -> str:
    """Names and values, as they are; tables inside become rows of their own."""
    flat: dict[str, Any] = {}
    for key, value in facts.items():
        flat |= {f"{key}: {name}": part for name, part in value.items()} if isinstance(value, Mapping) else {key: value}
    rows = "".join(
        f'<tr><th scope="row">{html.escape(str(key))}</th><td>{html.escape(shown(value)) or "not set"}</td></tr>'
        for key, value in flat.items()
    )
    return f'<table class="facts"><tbody>{rows}</tbody></table>'


def _section(name: str, title: str, content: str, badge: str = "", colour: str = "warn") -> str:
    mark = f'<span class="badge {colour}">{badge}</span>' if badge else ""
    return f'<section id="{name}" class="long"><h2>{html.escape(title)}{mark}</h2>\n{content}</section>'


def _picture(kind: str, image: bytes, words: str, caption: str = "") -> str:
    data = base64.b64encode(image).decode()
    size = f' width="{round(_width(image) * _INCH / DPI)}"' if kind == "image/png" else ""
    below = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    source = f"data:{kind};base64,{data}"
    return f'<figure><img src="{source}" alt="{html.escape(words)}"{size} loading="lazy">{below}</figure>'


def _width(image: bytes) -> int:
    """Pixels across a PNG file, from its header."""
    return int.from_bytes(image[16:20])


def _svg(figure: Figure) -> bytes:
    """Sharp at any size; without a date, so that the same rows give the same picture."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{number(seconds, 3)} s"
    return f"{number(seconds / 60, 3)} min" if seconds < 7200 else f"{number(seconds / 3600, 3)} h"


def _plural(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"
