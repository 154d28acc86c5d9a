"""A comparison of methods as a picture and as files: a page and a table for people, for spreadsheets and for programs.

In JSON what is not finite is null, in CSV an empty cell.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.digests import sealed
from blocc._lib.files import json_bytes, plain
from blocc._lib.tables import csv_bytes
from blocc.kit.figure import (
    INK,
    MUTED,
    add_heading,
    add_legend,
    add_note,
    figure_image,
    keep_figure,
    line_style,
    new_figure,
    positive,
    style_axes,
)
from blocc.kit.storage import write_files
from blocc.kit.text import markdown_table, markdown_text, number, shortened
from blocc.methods.compare import CLOCK, Comparison, MethodRow, cells, legend_of
from blocc.methods.registry import NAMES
from blocc.report.comparison_page import comparison_page
from blocc.run.conclude import versions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: A method has the same colour, dashes and marker in every picture.
_STYLES = {name: line_style(position) for position, name in enumerate((*NAMES, "algorithm-1"))}
#: An application's own solver is called "blocc ..."; it looks like blocc, with a marker of its own.
_OWN_STYLE = {**_STYLES["blocc"], "marker": "*"}
#: Between two markers of a curve, as a part of the panel's diagonal.
_SPACING = 0.06
#: What is smaller is drawn here: a logarithmic axis knows no zero. The excess is relative to the best value.
_SMALLEST_EXCESS, _SMALLEST_DISTANCE = 1e-9, 1e-12
#: Triangles mark exact zeros there, at most so many on one curve; the panel's title says so.
_MOST_ZEROS, _ZERO_WORDS = 20, " (▽: exactly 0)"
_SHORTEST = 1e-5  #: seconds, for the same reason
#: Beyond this the follower's answer is none, and f there no value.
_MOST_RESIDUAL = 1e-3


def method_style(method: str) -> dict[str, Any]:
    """The look of a method: that of its name, also where another package declares it."""
    if method in _STYLES or method.startswith("blocc "):
        return _STYLES.get(method, _OWN_STYLE)
    return line_style(len(NAMES) + sum(method.encode()) % 19)


# --- picture -------------------------------------------------------------------------------------------------------
def plot_comparison(comparison: Comparison, path: str | Path | None = None) -> Figure:
    """Draw values and distances of every method against time, and where each ended.

    Written when ``path`` is given (.png, .pdf, .svg).
    """
    count = len(comparison)
    figure = new_figure(12.0, max(6.4, 2.6 + 0.5 * count))
    _heading(figure, comparison)
    grid = figure.add_gridspec(2, 2, width_ratios=(1.5, 1.0))
    values: Any = figure.add_subplot(grid[0, 0])
    distances: Any = figure.add_subplot(grid[1, 0], sharex=values)
    ends: Any = figure.add_subplot(grid[:, 1])
    ran = [row for row in comparison.entries if row.result is not None]
    reference = _reference(comparison)
    exact = [_curves(values, distances, row, reference) for row in ran]
    zeros = [_ZERO_WORDS if any(panel) else "" for panel in zip(*exact, strict=True)] or ["", ""]
    above = "" if comparison.best is None else f", minus the best ({number(reference, 7)})"
    style_axes(values, "f at the follower's exact answer" + above + zeros[0])
    style_axes(distances, "distance of the method's own y from that answer" + zeros[1], x=CLOCK)
    values.tick_params(labelbottom=False)
    for axes in (values, distances):
        if not ran:
            add_note(axes, "no method gave a result")
        elif np.isfinite(np.concatenate([np.asarray(line.get_ydata(), dtype=np.float64) for line in axes.lines])).any():
            axes.set_yscale("log")  # which cannot be drawn of nothing
    if ran:
        _time_axis(values)
        add_legend(figure, [values], most=len(ran))
    _ends(ends, comparison)
    return keep_figure(figure, path)


def _reference(comparison: Comparison) -> float:
    """What values are measured from: the best of all."""
    best = comparison.best
    return 0.0 if best is None else best.upper_value


def _curves(values: Axes, distances: Axes, row: MethodRow, reference: float) -> tuple[bool, bool]:
    """The way of one method on both panels; a ring marks its answer. Whether there are exact zeros on each."""
    result = row.result
    assert result is not None
    history = result.history
    times = np.maximum(history.time, _SHORTEST)
    end = max(row.run_seconds, _SHORTEST)
    look = method_style(row.method)
    ring: dict[str, Any] = {"color": look["color"], "marker": look["marker"], "linestyle": "none", "zorder": 4}
    ring |= {"mfc": "white", "mew": 1.8, "markersize": 7.5}
    feasible = np.where(history.inner_residual <= _MOST_RESIDUAL, history.upper_value, np.nan)
    final = row.upper_value if row.eligible else math.nan
    least = _SMALLEST_EXCESS * (1.0 + abs(reference))
    ways = (
        (values, feasible - reference, final - reference, least),
        (distances, history.distance, row.distance, _SMALLEST_DISTANCE),
    )
    exact = []
    for axes, way, answer, floor in ways:
        spacing = _SPACING if np.isfinite(way).sum() > 3 else None  # matplotlib cannot space what it does not draw
        shown = positive(way, floor)
        axes.plot(times, shown, label=row.method, linewidth=1.6, markersize=4.5, markevery=spacing, **look)
        axes.plot([end], positive(np.array([answer]), floor), **ring)
        exact.append(_mark_zeros(axes, np.append(times, end), np.append(way, answer), floor, look["color"]))
    return exact[0], exact[1]


def _mark_zeros(
    axes: Axes, places: Float[NDArray, "points"], values: Float[NDArray, "points"], floor: float, color: Any
) -> bool:
    """Triangles at the bottom where values are exactly 0; whether there are any."""
    zeros = places[values == 0.0]
    if len(zeros):
        some = zeros[np.unique(np.linspace(0, len(zeros) - 1, _MOST_ZEROS).astype(int))]
        axes.plot(some, np.full(len(some), floor), label="_exactly zero", **_zero_mark(color))
    return bool(len(zeros))


def _zero_mark(color: Any) -> dict[str, Any]:
    return {"marker": "v", "linestyle": "none", "color": color, "mfc": "white", "zorder": 5, "markersize": 6}


def _time_axis(axes: Axes) -> None:
    """Plain numbers of seconds, also where the runs span less than a decade."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.margins(x=0.06)


def _ends(axes: Axes, comparison: Comparison) -> None:
    """Where each method ended: a full mark for a converged run, an empty one for any other end."""
    rows = comparison.entries
    reference = _reference(comparison)
    least = _SMALLEST_EXCESS * (1.0 + abs(reference))
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), [row.method for row in rows])
    for place, row in enumerate(rows):
        look = method_style(row.method)
        words = row.status
        if row.eligible:
            mark = {"marker": look["marker"], "color": look["color"], "mew": 1.6, "markersize": 8}
            filled = look["color"] if row.success else "white"
            excess = row.upper_value - reference
            axes.plot(positive(np.array([excess]), least), [place], mfc=filled, **mark)
            if excess == 0.0:
                axes.plot([least], [place], label="_exactly zero", **{**_zero_mark(look["color"]), "markersize": 4})
            words = f"{number(row.upper_value, 6)}   {row.status}, {number(row.run_seconds, 3)} s"
            words += "   never moved" if row.moved == 0.0 else ""
        best = comparison.is_best(row)
        font: dict[str, Any] = {"color": INK if best else MUTED, "fontweight": "bold" if best else "normal"}
        words += "   best" if best else ""
        axes.text(0.01, place - 0.28, words, transform=axes.get_yaxis_transform(), va="center", fontsize=8.5, **font)
    if any(row.eligible for row in rows):
        axes.set_xscale("log")
        axes.set_xlabel(f"f minus the best ({number(least)} and less at the left)", color=MUTED)
        low, high = axes.get_xlim()
        axes.set_xlim(0.3 * low, 3.0 * high)
    else:
        axes.set_xticks([])
    zero = any(row.eligible and row.upper_value == reference for row in rows)
    style_axes(axes, "where each ended" + _ZERO_WORDS * zero, grid="x")
    axes.tick_params(axis="y", labelcolor=INK, length=0)


def _heading(figure: Figure, comparison: Comparison) -> None:
    best = comparison.best
    converged = sum(row.success for row in comparison.entries)
    facts = [f"{converged} of {len(comparison)} methods converged"]
    facts += [] if best is None else [f"best upper value {number(best.upper_value, 7)} ({best.method})"]
    facts += ["ended early"] if comparison.interrupted else []
    add_heading(figure, f"{shortened(comparison.name, 70)}: every method from the same start", "  ·  ".join(facts))


# --- files ---------------------------------------------------------------------------------------------------------
def describe_comparison(comparison: Comparison) -> dict[str, Any]:
    """The comparison as JSON values: the table, and of every result its x and the way there."""
    best = comparison.best
    rows = comparison.rows()
    document = {
        "name": comparison.name,
        "settings": dict(comparison.settings),
        "clock": CLOCK,
        "versions": versions(),
        "interrupted": comparison.interrupted,
        "best": None if best is None else best.method,
        "rows": rows,
    }
    for row, entry in zip(rows, comparison.entries, strict=True):
        result = entry.result
        if result is not None:
            columns = ("time", "upper_value", "distance", "inner_residual")
            row["x"] = result.x
            row["numbers"] = result.settings.get("numbers", {})
            row["history"] = {column: getattr(result.history, column) for column in columns}
    return dict(plain(document))


def comparison_markdown(comparison: Comparison) -> str:
    """The printed table in Markdown, with the methods' authors below and why some gave no answer."""
    head, *body = [[cell.strip() for cell in row] for row in cells(comparison)]
    lines = [f"# {markdown_text(shortened(comparison.name, 70))}", ""]
    lines += [markdown_table(head, body, [column > 1 for column in range(len(head))])]
    lines += ["A star marks the best values; a value in parentheses is not that of a feasible answer. f is"]
    lines += ["evaluated at the follower's exact answer; gap, violation and distance are those of the method's own y."]
    lines += [markdown_text("; ".join(legend_of(comparison)) + "."), ""]
    for row in comparison.entries:
        note = "" if row.success else f": {row.why_not or row.message}"
        lines.append(f"- {markdown_text(f'{row.method}, {row.title}{note}')}")
    return "\n".join(lines) + "\n"


def write_comparison(comparison: Comparison, folder: str | Path) -> list[Path]:
    """Write ``comparison.csv``, ``.json``, ``.md``, ``.png`` and ``.html`` (needs ``blocc[plot]``) into ``folder``.

    The folder is created where it is missing. Each file appears complete or not at all. Returns the paths.
    """
    # Everything is made before anything is written: a failure leaves the old files of a folder together.
    picture = figure_image(plot_comparison(comparison))
    files = {
        "comparison.csv": csv_bytes(comparison.rows()),
        "comparison.json": json_bytes(sealed(describe_comparison(comparison))),
        "comparison.md": comparison_markdown(comparison).encode(errors="replace"),
        "comparison.png": picture,
        "comparison.html": comparison_page(comparison, picture).encode(errors="replace"),
    }
    return write_files(folder, files, "the comparison")
