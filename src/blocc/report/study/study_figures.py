"""The picture of any study: its columns against a parameter, mean and deviation over the seeds."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from blocc.report.plots import BLUE, GREEN, GREY, ORANGE, RED, new_figure
from blocc.report.study.study_summary import Group, Spread, groups
from blocc.report.study.study_tables import shown
from blocc.report.study.study_views import StudyView, is_number
from blocc.report.transport.design_style import INK, MUTED, shortened
from blocc.studies.study import SEED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LINES = 10
_COLOURS = (BLUE, ORANGE, GREEN, RED, "#56B4E9", "#8C6D1F", "#CC79A7", "#4B3F8F")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
_DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (2, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
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
        place: dict[str, Any] = {"loc": "outside lower center", "ncols": min(len(lines), 4), "frameon": False}
        legend = figure.legend(*panels[0].get_legend_handles_labels(), fontsize=9, labelcolor=MUTED, **place)
        for text in legend.get_texts():
            text.set_parse_math(False)
    return figure


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
        label = ", ".join(f"{other} {shown(group.parameters.get(other))}" for other in others)
        found.setdefault(key, (shortened(label, 40), []))[1].append(group)
    return list(found.values())[:MOST_LINES]


def _points(view: StudyView, axis: str) -> list[Group]:
    if axis != SEED:
        return groups(view)
    return [Group({SEED: row.get(SEED)}, [row]) for row in view.done]


def _panel(axes: Axes, view: StudyView, axis: str, column: str, lines: Sequence[tuple[str, list[Group]]]) -> None:
    values = [group.parameters.get(axis) for _, line in lines for group in line]
    numeric = all(_is_figure(value) for value in values)
    words = list(dict.fromkeys(shown(value) for value in values))
    means: list[float] = []
    for place, (label, line) in enumerate(lines):
        points = [
            (group.parameters[axis] if numeric else words.index(shown(group.parameters[axis])), group.spread(column))
            for group in line
        ]
        points = sorted((point for point in points if point[1].count), key=lambda point: point[0])
        means += [found.mean for _, found in points]
        axes.errorbar(
            [x for x, _ in points],
            [found.mean for _, found in points],
            yerr=[found.deviation for _, found in points] if any(found.count > 1 for _, found in points) else None,
            label=label,
            color=_COLOURS[place % 8],
            marker=_MARKERS[place % 8],
            linestyle=_DASHES[place % 4] if axis != SEED and numeric else "none",
            markersize=5,
            linewidth=1.6,
            elinewidth=1.0,
            capsize=3,
        )
    axes.set_title(shortened(column, 50), fontsize=10.5, loc="left", color=INK, parse_math=False)
    axes.set_xlabel(shortened(axis, 50), color=MUTED, fontsize=9.5, parse_math=False)
    if not means:
        axes.text(0.5, 0.5, "no numbers yet", transform=axes.transAxes, ha="center", color=GREY)
    if not numeric:
        labels = axes.set_xticks(range(len(words)), [shortened(word, 16) for word in words])
        for tick in labels:
            tick.label1.set_parse_math(False)
        axes.set_xlim(-0.5, len(words) - 0.5)
    elif _spans_decades(values):
        axes.set_xscale("log")
    elif all(isinstance(value, int) for value in values):
        locator: Any = axes.xaxis.get_major_locator()
        locator.set_params(integer=True)
    if _spans_decades(means):
        axes.set_yscale("log", nonpositive="clip")
    else:
        ends = [end for _, line in lines for group in line for end in _ends(group.spread(column))]
        if ends and max(ends) - min(ends) < 1e-9 * max(map(abs, ends)):
            axes.set_ylim(*_room(ends[0]))  # rounding is no shape
        axes.ticklabel_format(axis="y", useOffset=False)
    axes.grid(True, color="#e3e6e9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelcolor=MUTED, labelsize=9, length=3)


def _ends(found: Spread) -> tuple[float, ...]:
    """The ends of an error bar."""
    return (found.mean - found.deviation, found.mean + found.deviation) if found.count else ()


def _room(value: float) -> tuple[float, float]:
    """Limits around a single value."""
    half = 0.1 * abs(value) or 1.0
    return value - half, value + half


def _spans_decades(values: Sequence[Any]) -> bool:
    positive = bool(values) and all(value > 0 for value in values)
    return positive and max(values) / min(values) >= _DECADES


def _is_figure(value: Any) -> bool:
    return is_number(value) and not isinstance(value, bool)
