"""Pictures: how a run converged, where many starts ended, and the toy's surface with the ends of its runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc.kit.figure import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    add_note,
    keep_figure,
    line_style,
    new_figure,
    positive,
    style_axes,
)
from blocc.multi_result import MultiResult
from blocc.problems.toy import LOWER, UPPER, ToyRun, true_value, upper_value
from blocc.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_PLACES = 6  #: where starts ended, that a picture names


def plot_result(result: Result, path: str | Path | None = None) -> Figure:
    """Draw how a run converged, iteration by iteration; write it when ``path`` is given (.png, .pdf, .svg).

    Above: the upper objective at the follower's answer and at yF. Middle: distances that should vanish. Below: gamma.
    """
    figure = new_figure(8.0, 7.5)
    history = result.history
    values, errors, gamma = figure.subplots(3, 1, sharex=True, height_ratios=(3.0, 3.0, 1.3))
    figure.suptitle(f"{result.name}: {result.status.value}", fontsize=13, fontweight="bold")
    iterations = np.arange(1, len(history) + 1)
    style: dict[str, Any] = {"linewidth": 1.6, "marker": "o" if len(history) <= 60 else None, "markersize": 3.5}

    values.plot(iterations, history.upper_value, color=BLUE, label="$f(x, y)$ at the follower's answer", **style)
    penalised = {"color": ORANGE, "linestyle": "--", "label": "$f(x, y_F)$, penalised"}
    values.plot(iterations, history.upper_value_penalty, **penalised, **style)
    values.axhline(result.upper_value, color=GREY, linewidth=0.8, linestyle=":")
    _final_value(values, result.upper_value)

    # An exact zero is drawn at the smallest number that means anything.
    for column, colour, label in (
        ("stationarity", RED, "stationarity of $x$"),
        ("distance", GREEN, r"$\|y_F - y\|$"),
        ("inner_residual", GREY, "inner residual"),
    ):
        errors.plot(iterations, positive(getattr(history, column), 1e-17), color=colour, label=label, **style)
    errors.set_yscale("log")

    # Where f(x, y(x)) itself was descended, gamma is infinite: there is nothing to draw.
    finite = np.where(np.isfinite(history.gamma), history.gamma, np.nan)
    gamma.step(iterations, finite, where="mid", color=BLUE, linewidth=1.6)
    if np.isfinite(finite).any() or not len(finite):
        gamma.set_yscale("log")
    gamma.xaxis.get_major_locator().set_params(integer=True)
    gamma.margins(y=0.25)
    gamma.minorticks_off()
    if np.isfinite(result.gamma):
        _final_value(gamma, result.gamma)

    style_axes(values, y="upper objective")
    style_axes(errors, y="should vanish")
    style_axes(gamma, x="outer iteration", y=r"$\gamma$")
    if len(history) == 0:
        add_note(values, "no iteration was recorded")
    else:
        values.legend(frameon=False, fontsize=9)
        errors.legend(frameon=False, fontsize=9)
    return keep_figure(figure, path)


def plot_starts(many: MultiResult, path: str | Path | None = None) -> Figure:
    """Draw the upper value of every start, the best first; write it when ``path`` is given (.png, .pdf, .svg).

    Each place where starts ended has a colour and a mark of its own, the best few by name; a grey cross ended without
    the follower's exact answer. Starts without a finite value are counted, not drawn.
    """
    figure = new_figure(8.0, 4.6)
    axes = figure.add_subplot()
    values, places = many.upper_values, many.basins
    drawn = sorted(np.flatnonzero(np.isfinite(values)).tolist(), key=lambda start: many.sign * values[start])
    rank = {start: place for place, start in enumerate(drawn, start=1)}
    named = [(f"f = {place.value:.6g}: {_counted(len(place))}", place.starts) for place in places[:_MOST_PLACES]]
    groups = [(label, starts, {**line_style(k), "markersize": 6}) for k, (label, starts) in enumerate(named)]
    others = [start for place in places[_MOST_PLACES:] for start in place.starts]
    if others:
        label = f"{len(places) - _MOST_PLACES} more places: {_counted(len(others))}"
        groups.append((label, tuple(others), {"color": GREY, "marker": ".", "markersize": 7}))
    placed = {start for place in places for start in place.starts}
    rest = tuple(start for start in range(len(many)) if start not in placed)
    if rest:
        label = f"without an exact answer: {_counted(len(rest))}"
        groups.append((label, rest, {"color": GREY, "marker": "x", "markersize": 6}))
    for label, starts, style in groups:
        shown = [start for start in starts if start in rank]
        axes.plot(
            [rank[start] for start in shown], values[shown], **{**style, "linestyle": "none"}, label=label, zorder=3
        )
    solved = sum(result.success for result in many.results)
    title = f"{many.best.name}: {solved} of {_counted(len(many))} converged, best f = {many.best.upper_value:.6g}"
    axes.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
    axes.ticklabel_format(axis="y", useOffset=False)
    style_axes(axes, title, x="start, the best first", y="$f(x, y)$ at the end")
    if not drawn:
        add_note(axes, "no start has a finite value")
    axes.legend(frameon=False, fontsize=9)
    return keep_figure(figure, path)


def plot_toy_surface(run: ToyRun, path: str | Path | None = None) -> Figure:
    """Draw the toy as the paper does: the surface f(x, y), the line y = x on it, and where the starts ended.

    Beside the surface, the same along the line alone: f(x, x), its local minimisers and how many starts ended at each.
    """
    figure = new_figure(12.0, 5.4)
    # Two parts of their own: the room that the 3-D axes claim must not move the other picture.
    parts: Any = figure.subfigures(1, 2, width_ratios=(1.05, 1.0))
    _surface(parts[0], run)
    _along_the_line(parts[1], run)
    title = (
        f"{len(run.results)} starts, gamma = {run.gamma:g}, {run.preset} settings: "
        f"largest distance to a local minimiser {run.largest_distance:.1e}"
    )
    figure.suptitle(title, fontsize=12, fontweight="bold")
    return keep_figure(figure, path)


def _counted(starts: int) -> str:
    return f"{starts} start{'s' * (starts != 1)}"


def _surface(part: Any, run: ToyRun) -> None:
    axes = part.add_subplot(projection="3d", computed_zorder=False)
    x, y = np.meshgrid(np.linspace(LOWER, UPPER, 121), np.linspace(LOWER, UPPER, 121))
    fine = {"linewidth": 0, "rstride": 1, "cstride": 1, "antialiased": False}
    axes.plot_surface(x, y, upper_value(x, y), cmap="viridis", alpha=0.9, zorder=1, **fine)
    line, ends = np.linspace(LOWER, UPPER, 400), run.end_points
    axes.plot(line, line, true_value(line), color=RED, linestyle="--", linewidth=2.0, label="$y = x$", zorder=2)
    dots = {"color": RED, "edgecolor": "white", "s": 42, "depthshade": False}
    axes.scatter(ends, ends, true_value(ends), label="end points", zorder=3, **dots)
    axes.set_xlabel("$x$")
    axes.set_ylabel("$y$")
    axes.set_zlabel("$f(x, y)$")
    axes.view_init(elev=33, azim=125)  # the line runs in front of the ridges at small y
    axes.set_box_aspect((4.0, 4.0, 2.6), zoom=0.95)
    axes.legend(loc="upper left", frameon=False, fontsize=9)


def _along_the_line(part: Any, run: ToyRun) -> None:
    axes = part.add_subplot()
    line, ends, least = np.linspace(LOWER, UPPER, 600), run.end_points, run.minimisers
    axes.plot(line, true_value(line), color=BLUE, linewidth=1.8, label="$f(x, x)$")
    axes.plot(least, true_value(least), "o", mfc="none", mec=GREY, ms=12, label="local minimisers (grid)")
    axes.plot(ends, true_value(ends), "o", color=RED, mec="white", ms=7, label="end points")
    below: dict[str, Any] = {"xytext": (0, -19), "textcoords": "offset points", "ha": "center", "fontsize": 10}
    for x, count in zip(least, run.counts, strict=True):
        axes.annotate(f"{count}", (x, float(true_value(x))), **below)
    axes.margins(y=0.12)
    axes.legend(frameon=False, fontsize=9, loc="upper right")
    style_axes(axes, "starts that ended at each local minimiser", x="$x$", y="$f(x, x)$")


def _final_value(axes: Axes, value: float) -> None:
    """The final value, at the right edge of its curve."""
    place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "xytext": (4, 0), "textcoords": "offset points"}
    axes.annotate(f"{value:.6g}", (1.0, value), va="center", fontsize=8, color=GREY, **place)
