"""One page about the studies of a store, complete in itself: it opens from a disk, offline, and sends no request.

The picture of a study shows its columns against a parameter, mean and deviation over the seeds.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blocc.kit.figure import add_legend, add_note, figure_image, line_style, new_figure, style_axes
from blocc.kit.page import (
    Block,
    Cell,
    KeyFigure,
    Page,
    PageTable,
    Section,
    embedded_picture,
    facts,
    flat_facts,
    folded,
    picture,
    table,
    words,
)
from blocc.kit.text import Spread, duration, is_numeric, number, number_of, shortened, sort_key, value_text
from blocc.report.study.study_tables import VERDICTS, failure
from blocc.report.study.study_views import (
    Group,
    ItemView,
    Report,
    StudyView,
    groups,
    is_number,
    seconds_of,
    summary_rows,
)
from blocc.studies.study import SEED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MOST_LINES = 10
#: An axis is logarithmic where all its numbers are positive and the largest is so many times the smallest.
_DECADES = 50.0


def draw_study(view: StudyView) -> Figure | None:
    """One panel for each column to be shown; None where no parameter varies, or nothing is done yet."""
    axis, columns = main_parameter(view), view.drawn
    if axis is None or not columns or not view.done:
        return None
    lines = _lines(view, axis)
    across = min(len(columns), 2)
    down = math.ceil(len(columns) / across)
    figure = new_figure(5.4 * across, 3.1 * down + (0.5 if len(lines) > 1 else 0.0))
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for panel in panels[len(columns) :]:
        panel.set_visible(False)
    for panel, column in zip(panels, columns, strict=False):
        _panel(panel, view, axis, column, lines)
    if len(lines) > 1:
        add_legend(figure, [panels[0]], most=4)
    return figure


def picture_words(view: StudyView) -> str:
    """What the picture of a study shows, in a sentence for those who do not see it."""
    axis = main_parameter(view)
    if axis is None:
        return ""
    found = _lines(view, axis)
    ranges = []
    for column in view.drawn:
        means = [spread.mean for _, line in found for group in line if (spread := group.spread(column)).count]
        ends = f" from {number(min(means))} to {number(max(means))}" if means else " without numbers yet"
        ranges.append(f"{column}{ends}")
    labels = [label for label, _ in found if label]
    apart = f"; one line for each of {', '.join(labels)}" if len(labels) > 1 else ""
    return f"{view.study.name}, against {axis}: {'; '.join(ranges)}{apart}."


def main_parameter(view: StudyView) -> str | None:
    """The parameter to draw against: the numeric one with most values, else any that varies, else the seed."""
    varying = {key: values for key, values in view.study.grid.items() if len(values) > 1}
    numeric = {key: values for key, values in varying.items() if all(_is_figure(value) for value in values)}
    for candidates in (numeric, varying):
        if candidates:
            return max(candidates, key=lambda key: len(candidates[key]))
    return SEED if len(view.study.seeds) > 1 else None


def _lines(view: StudyView, axis: str) -> list[tuple[str, list[Group]]]:
    """The groups of each line, under its label: the values of all other parameters that vary."""
    others = [key for key, values in view.study.grid.items() if len(values) > 1 and key != axis]
    found: dict[str, tuple[str, list[Group]]] = {}
    for group in _points(view, axis):
        key = json.dumps([group.parameters.get(other) for other in others], default=str)
        label = ", ".join(f"{other} {value_text(group.parameters.get(other))}" for other in others)
        found.setdefault(key, (shortened(label, 40), []))[1].append(group)
    return list(found.values())[:MOST_LINES]


def _points(view: StudyView, axis: str) -> list[Group]:
    if axis != SEED:
        return groups(view)
    return [Group({SEED: row.get(SEED)}, [row]) for row in view.done]


def _panel(axes: Axes, view: StudyView, axis: str, column: str, lines: Sequence[tuple[str, list[Group]]]) -> None:
    values = [group.parameters.get(axis) for _, line in lines for group in line]
    numeric = all(_is_figure(value) for value in values)
    words = list(dict.fromkeys(map(value_text, values)))
    spreads = [group.spread(column) for _, line in lines for group in line]
    for place, (label, line) in enumerate(lines):
        given = [group.parameters[axis] for group in line]
        across = given if numeric else [words.index(value_text(value)) for value in given]
        found = [(x, group.spread(column)) for x, group in zip(across, line, strict=True)]
        points = sorted((point for point in found if point[1].count), key=lambda point: point[0])
        style = line_style(place) | ({} if axis != SEED and numeric else {"linestyle": "none"})
        axes.errorbar(
            [x for x, _ in points],
            [spread.mean for _, spread in points],
            yerr=[spread.deviation for _, spread in points] if any(spread.count > 1 for _, spread in points) else None,
            label=label,
            **{**style, "markersize": 5, "linewidth": 1.6, "elinewidth": 1.0, "capsize": 3},
        )
    if not any(spread.count for spread in spreads):
        add_note(axes, "no numbers yet")
    if numeric:
        _scale_across(axes, values)
    else:
        for tick in axes.set_xticks(range(len(words)), [shortened(word, 16) for word in words]):
            tick.label1.set_parse_math(False)
        axes.set_xlim(-0.5, len(words) - 0.5)
    _scale_up(axes, [spread for spread in spreads if spread.count])
    style_axes(axes, shortened(column, 50))
    axes.set_xlabel(shortened(axis, 50), fontsize=9.5, parse_math=False)


def _scale_across(axes: Axes, values: Sequence[Any]) -> None:
    if _spans_decades(values):
        axes.set_xscale("log")
    elif all(isinstance(value, int) for value in values):
        locator: Any = axes.xaxis.get_major_locator()
        locator.set_params(integer=True)


def _scale_up(axes: Axes, spreads: Sequence[Spread]) -> None:
    if _spans_decades([spread.mean for spread in spreads]):
        axes.set_yscale("log", nonpositive="clip")
        return
    ends = [spread.mean + sign * spread.deviation for spread in spreads for sign in (-1.0, 1.0)]
    if ends and max(ends) - min(ends) < 1e-9 * max(map(abs, ends)):  # rounding is no shape
        room = 0.1 * abs(ends[0]) or 1.0
        axes.set_ylim(ends[0] - room, ends[0] + room)
    axes.ticklabel_format(axis="y", useOffset=False)


def _spans_decades(values: Sequence[Any]) -> bool:
    positive = bool(values) and all(value > 0 for value in values)
    return positive and max(values) / min(values) >= _DECADES


def _is_figure(value: Any) -> bool:
    return is_number(value) and not isinstance(value, bool)


#: Longer tables are cut; the CSV files have all rows.
MOST_ROWS = 2000
#: Errors of so many failed cells are shown in full.
_MOST_ERRORS = 50
_LONG = 80  #: characters of a text that needs a wide column


def write_page(report: Report, path: str | Path) -> Path:
    """Write the page (one HTML file) and return its path; needs ``blocc[plot]``."""
    return _page(report).write(path)


def study_page(report: Report) -> str:
    """The page as text."""
    return _page(report).html()


def _page(report: Report) -> Page:
    """Items, then studies; where there is one study alone, the head says its name and state."""
    colour, state = state_of(report)
    is_alone = len(report.studies) == 1 and not report.items
    items = [_item_section(view, f"item-{place}") for place, view in enumerate(report.items)]
    studies = [_study_section(view, f"study-{place}", is_alone) for place, view in enumerate(report.studies)]
    about = [Section("facts", "Machine and versions", blocks=[facts(flat_facts(report.facts))], is_long=True)]
    named = [*((one, one.title) for one in items), *zip(studies, (v.study.name for v in report.studies), strict=True)]
    return Page(
        title=f"{report.title}: study",
        heading=report.title,
        kicker="Study",
        state=state,
        colour=colour,
        figures=_figures(report),
        sections=[*items, *studies, *(about if report.facts else [])],
        footer=f"Written on {time.strftime('%Y-%m-%d at %H:%M')}. All rows are also in the CSV files beside this page.",
        contents=[(f"{section.name}-section", title) for section, title in named] if len(named) > 1 else (),
        is_dense=True,
    )


def state_of(report: Report | StudyView) -> tuple[str, str]:
    """Colour and word for how far a study is, or all of them."""
    if report.running:
        return "warn", "running"
    if report.missing:
        return "warn", "incomplete"
    return ("bad", "some cells failed") if report.failed else ("good", "complete")


def _figures(report: Report) -> list[KeyFigure]:
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


def _item_section(view: ItemView, name: str) -> Section:
    findings, blocks = view.findings, []
    if findings is None:
        skipped = words(f"Skipped: {view.skipped}")
        return Section(name, view.title, blocks=[skipped], is_long=True, badge="skipped")
    colours = {True: "good", False: "bad", None: "warn"}
    seen = [
        (
            colours[one.holds],
            VERDICTS[one.holds],
            one.statement + (f" [{one.source}]" if one.source else ""),
            one.measured,
        )
        for one in findings.observations
    ]
    blocks += [Block("observations", {"statements": seen})] if seen else []
    images = {title: embedded_picture("png", image) for title, image in view.pictures.items()}
    blocks += [picture(image, f"{view.title}: {title}") for title, image in images.items()]
    blocks += [words(view.trouble)] if view.trouble else []
    for k, one in enumerate(findings.tables):
        blocks += [words(one.title, "h3"), table(_table(one.rows, f"{name}-table-{k}"), one.title)]
        blocks += [words(note) for note in one.notes]
    return Section(name, view.title, view.notice, blocks, is_long=True)


def _study_section(view: StudyView, name: str, is_alone: bool) -> Section:
    colour, state = state_of(view)
    figure, study, failed = draw_study(view), view.study, [failure(view, row) for row in view.failed]
    parts = [
        (kind, f"{100 * len(rows) / view.total:.4g}" if rows else "")
        for kind, rows in (("done", view.done), ("failed", view.failed))
    ]
    counts = f"{view.total:,} cells: {len(view.done):,} done, {len(view.failed):,} failed, {view.missing:,} missing."
    blocks = [Block("bar", {"words": counts, "parts": parts})]
    if figure is not None:
        spread = "Mean over the seeds; bars show the standard deviation." if len(study.seeds) > 1 else ""
        image = embedded_picture("svg+xml", figure_image(figure, "svg"))
        blocks.append(picture(image, picture_words(view), spread))
    if view.done and len(study.seeds) > 1 and study.grid:
        means = _table(summary_rows(view), f"{name}-means")
        blocks += [words("Means over the seeds", "h3"), table(means, f"Means over the seeds: {study.name}")]
    if view.done:
        rows = _table(view.done, f"{name}-rows", [*view.parameters, *view.columns])
        shown = table(rows, f"All rows: {study.name}", filter="Filter rows")
        blocks.append(folded(f"All {len(view.done):,} rows", [shown], is_open=is_alone))
    if failed:
        short = [{**row, "error": str(row["error"] or "").partition("\n")[0]} for row in failed]
        texts = [row.get("error") or "" for row in view.failed[:_MOST_ERRORS]]
        blocks += [words("Failed cells", "h3"), table(_table(short, f"{name}-failed"), f"Failed cells: {study.name}")]
        blocks.append(folded("Errors in full", [Block("errors", {"texts": texts})]))
    grid = {key: ", ".join(map(value_text, values)) for key, values in study.grid.items()}
    settings = {"function": study.function, "seeds": _seeds(study.seeds), **grid, **flat_facts(study.fixed)}
    blocks.append(folded("Settings of this study", [facts(settings)]))
    title, badge = ("Results", "") if is_alone else (study.name, state)
    return Section(name, title, blocks=blocks, is_long=True, badge=badge, colour=colour)


def _seeds(seeds: Sequence[int]) -> str:
    together = len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds)))
    return f"{seeds[0]} to {seeds[-1]}" if together else ", ".join(map(str, seeds))


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
