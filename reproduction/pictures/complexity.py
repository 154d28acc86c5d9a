"""The picture of the costs: seconds of one iteration against the number of variables and of constraints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocc.report.figure import new_figure, style_axes
from blocc.report.study.study_views import Findings
from reproduction.complexity import STUDIES
from reproduction.complexity_costs import METHODS
from reproduction.item import RowsByStudy
from reproduction.summary import finished

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABELS = {"d_y": "lower-level variables $d_y$", "d_c": "coupled constraints $d_c$"}


def draw(rows_by_study: RowsByStudy, findings: Findings) -> dict[str, Figure]:
    """Both axes side by side."""
    figure = new_figure(11.0, 4.4)
    for axes, (axis, study) in zip(figure.subplots(1, 2, sharey=True), STUDIES.items(), strict=True):
        for row in finished(rows_by_study, study):
            place = METHODS.index(row["method"])
            axes.loglog(
                row["step_sizes"], row["step_seconds"], "o-", markersize=3.5, color=f"C{place}", label=row["method"]
            )
        axes.set_xlabel(LABELS[axis])
        style_axes(axes)
        if axis == "d_y":
            axes.set_ylabel("seconds of one iteration")
        if axes.lines:
            axes.legend(frameon=False, fontsize=8)
    return {"cost": figure}
