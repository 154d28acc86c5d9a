"""An estimate of trips as a picture (matplotlib): counts and volumes, trips, residuals, and the way to the answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc.report.figure import BLUE, FAINT, MUTED, add_heading, keep_figure, new_figure, style_axes
from blocc.report.format import number, shortened
from blocc.report.roads.road_figures import draw_convergence
from blocc.roads.demand_estimate import DemandEstimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_estimate(estimate: DemandEstimate, path: str | Path | None = None) -> Figure:
    """Draw counted against modelled volumes, prior against estimated trips, residuals, and the way to the answer.

    Written when ``path`` is given (.png, .pdf, .svg).
    """
    figure = new_figure(13.0, 10.0)
    panels: Any = figure.subplots(2, 2)
    before, after = estimate.fitted_before, estimate.fitted
    style_axes(panels[0, 0], "Volumes of counted links", x="counted", y="modelled")
    _draw_equality(panels[0, 0], np.concatenate((estimate.count, before, after)))
    panels[0, 0].plot(estimate.count, before, "o", color=MUTED, markersize=4, alpha=0.7, label="prior trips")
    panels[0, 0].plot(estimate.count, after, "o", color=BLUE, markersize=4, alpha=0.8, label="estimated trips")
    style_axes(panels[0, 1], "Trips of pairs", x="prior", y="estimated")
    _draw_equality(panels[0, 1], np.concatenate((estimate.prior.demand, estimate.demand)))
    panels[0, 1].plot(estimate.prior.demand, estimate.demand, "o", color=BLUE, markersize=3, alpha=0.6, label="pairs")
    style_axes(
        panels[1, 0], "Residuals: modelled less counted", x="counts, in order of their residual before", y="volume"
    )
    order = np.argsort(before - estimate.count, kind="stable")
    places = np.arange(1, len(order) + 1)
    panels[1, 0].plot(places, (before - estimate.count)[order], ".", color=MUTED, label="prior trips")
    panels[1, 0].plot(places, estimate.residual[order], ".", color=BLUE, label="estimated trips")
    for panel in (panels[0, 0], panels[0, 1], panels[1, 0]):
        panel.legend(frameon=False, fontsize=9, labelcolor=MUTED)
    draw_convergence(panels[1, 1], estimate)
    facts = (
        f"{estimate.status.value}  ·  {number(estimate.prior.demand.sum(), 6)} trips before, "
        f"{number(estimate.demand.sum(), 6)} estimated  ·  GEH at most {number(estimate.geh.max(), 3)}"
    )
    add_heading(figure, f"{shortened(estimate.network.name, 60)}: trips from {len(estimate.count)} counts", facts)
    return keep_figure(figure, path)


def _draw_equality(axes: Axes, values: Any) -> None:
    """The line on which both are the same."""
    most = 1.05 * float(np.max(values, initial=0.0)) or 1.0
    axes.plot([0.0, most], [0.0, most], color=FAINT, linewidth=1.0, zorder=0)
