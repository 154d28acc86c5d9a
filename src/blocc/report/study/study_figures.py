"""The picture of any study: its columns against a parameter, mean and deviation over the seeds."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from blocc.report.figure import add_legend, add_note, line_style, new_figure, style_axes
from blocc.report.format import Spread, shortened, value_text
from blocc.report.study.study_summary import Group, groups
from blocc.report.study.study_views import StudyView, is_number
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
