"""Pictures: how a run converged, and the toy's surface with the points where its runs ended.

matplotlib is imported only when a picture is drawn, and through its object interface: no global state, no window, and
no display needed.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc._lib.files import write_atomically
from blocc.errors import BloccError
from blocc.problems.toy import LOWER, UPPER, ToyRun, true_value, upper_value
from blocc.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 150
BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#C8102E", "#666666"  # told apart by everyone


class PlotError(BloccError):
    """A picture cannot be drawn or written."""


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
    values.plot(
        iterations, history.upper_value_penalty, color=ORANGE, linestyle="--", label="$f(x, y_F)$, penalised", **style
    )
    values.axhline(result.upper_value, color=GREY, linewidth=0.8, linestyle=":")
    values.set_ylabel("upper objective")
    _note(values, result.upper_value)

    for column, colour, label in (
        ("stationarity", RED, "stationarity of $x$"),
        ("distance", GREEN, r"$\|y_F - y\|$"),
        ("inner_residual", GREY, "inner residual"),
    ):
        errors.plot(iterations, _positive(getattr(history, column)), color=colour, label=label, **style)
    errors.set_yscale("log")
    errors.set_ylabel("should vanish")

    gamma.step(iterations, history.gamma, where="mid", color=BLUE, linewidth=1.6)
    gamma.set_yscale("log")
    gamma.set_ylabel(r"$\gamma$")
    gamma.set_xlabel("outer iteration")
    gamma.xaxis.get_major_locator().set_params(integer=True)
    gamma.margins(y=0.25)
    gamma.minorticks_off()
    _note(gamma, result.gamma)

    for axes in (values, errors, gamma):
        _dress(axes)
    if len(history) == 0:
        values.text(0.5, 0.5, "no iteration was recorded", transform=values.transAxes, ha="center", color=GREY)
    else:
        values.legend(frameon=False, fontsize=9)
        errors.legend(frameon=False, fontsize=9)
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
    figure.suptitle(
        f"{len(run.results)} starts, gamma = {run.gamma:g}, {run.preset} settings: "
        f"largest distance to a local minimiser {run.largest_distance:.1e}",
        fontsize=12,
        fontweight="bold",
    )
    return keep_figure(figure, path)


def _surface(part: Any, run: ToyRun) -> None:
    axes = part.add_subplot(projection="3d", computed_zorder=False)
    x, y = np.meshgrid(np.linspace(LOWER, UPPER, 121), np.linspace(LOWER, UPPER, 121))
    axes.plot_surface(
        x,
        y,
        upper_value(x, y),
        cmap="viridis",
        alpha=0.9,
        linewidth=0,
        rstride=1,
        cstride=1,
        antialiased=False,
        zorder=1,
    )
    line = np.linspace(LOWER, UPPER, 400)
    axes.plot(line, line, true_value(line), color=RED, linestyle="--", linewidth=2.0, label="$y = x$", zorder=2)
    ends = run.end_points
    axes.scatter(
        ends, ends, true_value(ends), color=RED, edgecolor="white", s=42, depthshade=False, label="end points", zorder=3
    )
    axes.set_xlabel("$x$")
    axes.set_ylabel("$y$")
    axes.set_zlabel("$f(x, y)$")
    axes.view_init(elev=33, azim=125)  # the line runs in front of the ridges at small y
    axes.set_box_aspect((4.0, 4.0, 2.6), zoom=0.95)
    axes.legend(loc="upper left", frameon=False, fontsize=9)


def _along_the_line(part: Any, run: ToyRun) -> None:
    axes = part.add_subplot()
    line = np.linspace(LOWER, UPPER, 600)
    axes.plot(line, true_value(line), color=BLUE, linewidth=1.8, label="$f(x, x)$")
    axes.plot(
        run.minimisers, true_value(run.minimisers), "o", mfc="none", mec=GREY, ms=12, label="local minimisers (grid)"
    )
    axes.plot(run.end_points, true_value(run.end_points), "o", color=RED, mec="white", ms=7, label="end points")
    for x, count in zip(run.minimisers, run.counts, strict=True):
        axes.annotate(
            f"{count}", (x, float(true_value(x))), xytext=(0, -19), textcoords="offset points", ha="center", fontsize=10
        )
    axes.set_xlabel("$x$")
    axes.set_ylabel("$f(x, x)$")
    axes.margins(y=0.12)
    axes.legend(frameon=False, fontsize=9, loc="upper right")
    axes.set_title("starts that ended at each local minimiser", fontsize=10)
    _dress(axes)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches, without matplotlib's global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlotError("pictures need matplotlib: pip install 'blocc[plot]'") from error
    return Figure(figsize=(width, height), layout="constrained")


def figure_image(figure: Figure, suffix: str = "png") -> bytes:
    """A figure as the content of a file of this kind."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix, dpi=DPI)
    return buffer.getvalue()


def keep_figure(figure: Figure, path: str | Path | None) -> Figure:
    """The figure itself, written to ``path`` where one is given (.png, .pdf, .svg)."""
    if path is None:
        return figure
    target = Path(path)
    try:
        image = figure_image(figure, target.suffix.removeprefix(".") or "png")
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, image)
    except ValueError as error:  # matplotlib does not know the suffix
        raise PlotError(f"cannot write {target}: {str(error).splitlines()[0]}; use .png, .pdf or .svg") from error
    except OSError as error:
        raise PlotError(f"cannot write {target}: {error.strerror or error}") from error
    return figure


def _dress(axes: Axes) -> None:
    axes.grid(True, color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _note(axes: Axes, value: float) -> None:
    """The final value, at the right edge of its curve."""
    axes.annotate(
        f"{value:.6g}",
        (1.0, value),
        xycoords=("axes fraction", "data"),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
        color=GREY,
    )


def _positive(column: np.ndarray) -> np.ndarray:
    """What a logarithmic axis can show; an exact zero is drawn at the smallest number that means anything."""
    return np.where(np.isfinite(column), np.maximum(column, 1e-17), np.nan)
