"""The picture of the toy: its surface, the line y = x, and where the starts ended with both settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.problems.toy import LOWER, UPPER, local_minimisers, true_value, upper_value
from blocc.report.figure import BLUE, GREY, RED, new_figure, style_axes
from blocc.report.study.study_views import Findings
from blocc.studies.study import Row, select
from reproduction.item import RowsByStudy
from reproduction.summary import column, finished
from reproduction.toy_surface import PRESETS, STUDY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = {"paper": "paper's settings", "default": "defaults"}


def draw(rows_by_study: RowsByStudy, findings: Findings) -> dict[str, Figure]:
    """The surface with the end points, and f(x, x) with the number of starts that ended at each minimum."""
    rows = finished(rows_by_study, STUDY)
    figures = {}
    for preset in PRESETS:
        chosen = list(select(rows, preset=preset))
        figure = new_figure(12.0, 5.2)
        parts: Any = figure.subfigures(1, 2, width_ratios=(1.05, 1.0))
        _surface(parts[0], column(chosen, "x"), column(chosen, "y_penalised"))
        _line(parts[1], chosen)
        figure.suptitle(f"{len(chosen)} starts, {TITLES[preset]}", fontsize=12, fontweight="bold")
        figures[preset] = figure
    return figures


def _surface(part: Any, x: Float[NDArray, "runs"], y: Float[NDArray, "runs"]) -> None:
    axes = part.add_subplot(projection="3d", computed_zorder=False)
    across, up = np.meshgrid(np.linspace(LOWER, UPPER, 101), np.linspace(LOWER, UPPER, 101))
    height = upper_value(across, up)
    axes.plot_surface(across, up, height, cmap="viridis", alpha=0.9, linewidth=0, antialiased=False, zorder=1)
    line = np.linspace(LOWER, UPPER, 400)
    axes.plot(line, line, true_value(line), color=RED, linestyle="--", linewidth=2.0, label="$y = x$", zorder=2)
    axes.scatter(
        x, y, upper_value(x, y), color=RED, edgecolor="white", s=42, depthshade=False, label="$(x_T, y_F)$", zorder=3
    )
    axes.set_xlabel("$x$")
    axes.set_ylabel("$y$")
    axes.set_zlabel("$f(x, y)$")
    axes.view_init(elev=33, azim=125)  # the line runs in front of the ridges at small y
    axes.legend(loc="upper left", frameon=False, fontsize=9)


def _line(part: Any, rows: Sequence[Row]) -> None:
    axes = part.add_subplot()
    line = np.linspace(LOWER, UPPER, 600)
    axes.plot(line, true_value(line), color=BLUE, linewidth=1.8, label="$f(x, x)$")
    x = column(rows, "x")
    axes.plot(x, true_value(x), "o", color=RED, mec="white", ms=7, label="end points")
    for minimiser in local_minimisers():
        height = float(true_value(minimiser))
        count = len([row for row in rows if abs(row["minimiser"] - minimiser) < 1e-9])
        axes.plot(minimiser, height, "o", mfc="none", mec=GREY, ms=12)
        axes.annotate(f"{count}", (minimiser, height), xytext=(0, -19), textcoords="offset points", ha="center")
    axes.set_xlabel("$x$")
    axes.set_ylabel("$f(x, x)$")
    axes.margins(y=0.12)
    axes.set_title("starts that ended at each local minimiser", fontsize=10)
    axes.legend(frameon=False, fontsize=9)
    style_axes(axes)
