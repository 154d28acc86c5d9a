"""The picture of v(x) and its two gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from blocc.report.figure import BLUE, GREY, ORANGE, RED, new_figure, style_axes
from blocc.report.study.study_views import Findings
from reproduction.gradient_of_v import STUDY
from reproduction.item import RowsByStudy
from reproduction.summary import column, finished

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(rows_by_study: RowsByStudy, findings: Findings) -> dict[str, Figure]:
    """v(x), the gradient with and without the multiplier, and the closed forms as thin lines."""
    rows = sorted(finished(rows_by_study, STUDY), key=lambda row: row["x"])
    figure = new_figure(6.5, 4.5)
    axes = figure.subplots()
    x = column(rows, "x")
    line = np.linspace(0.0, x.max(initial=1.0), 200)
    for closed in (line**2, 2.0 * line, -4.0 * line):
        axes.plot(line, closed, color=GREY, linewidth=0.8)
    axes.plot(x, column(rows, "value"), "o-", color=BLUE, markersize=3, label="$v(x)$")
    axes.plot(x, column(rows, "gradient"), "s--", color=RED, markersize=3, label=r"$\nabla v(x)$ with the multiplier")
    axes.plot(
        x,
        column(rows, "gradient_without"),
        "^--",
        color=ORANGE,
        markersize=3,
        label=r"$\nabla_x g(x, y)$ alone: the opposite way",
    )
    axes.set_xlabel("$x$")
    axes.set_title("$g = (y - 2x)^2$ subject to $3x - y \\leq 0$; thin: closed forms", fontsize=11)
    axes.legend(frameon=False, fontsize=9)
    style_axes(axes)
    return {"gradient": figure}
