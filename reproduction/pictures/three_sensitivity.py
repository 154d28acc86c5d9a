"""The picture of three nodes: utility by gamma for every eta, the paper's beside ours, and the defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blocc.report.figure import BLUE, GREEN, ORANGE, RED, new_figure, style_axes
from blocc.report.study.study_views import Findings
from blocc.studies.study import select
from reproduction.item import RowsByStudy
from reproduction.pictures.style import PURPLE
from reproduction.summary import column, finished
from reproduction.three_sensitivity import DEFAULT_STUDY, PUBLISHED, PUBLISHED_STUDY

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(rows_by_study: RowsByStudy, findings: Findings) -> dict[str, Figure]:
    """Three panels with one scale: the paper's table, the published scheme emulated, the defaults."""
    rows, default = finished(rows_by_study, PUBLISHED_STUDY), finished(rows_by_study, DEFAULT_STUDY)
    figure = new_figure(13.0, 4.2)
    printed, ours, free = figure.subplots(1, 3, sharey=True)
    etas = sorted({row["eta"] for row in rows}, reverse=True)
    style: dict[str, Any] = {"marker": "o", "markersize": 4, "capsize": 2, "linewidth": 1.3}
    for eta, colour in zip(etas, (RED, ORANGE, GREEN, BLUE, PURPLE), strict=False):
        gammas = sorted({row["gamma"] for row in rows})
        found = {gamma: column(select(rows, eta=eta, gamma=gamma), "utility") for gamma in gammas}
        known = [gamma for gamma in gammas if (eta, gamma) in PUBLISHED]
        cells = [PUBLISHED[eta, gamma] for gamma in known]
        label = f"eta {eta:g}"
        means, spreads = [cell[0] for cell in cells], [cell[1] for cell in cells]
        printed.errorbar(known, means, spreads, color=colour, label=label, **style)
        means, spreads = [float(found[g].mean()) for g in gammas], [float(found[g].std()) for g in gammas]
        ours.errorbar(gammas, means, spreads, color=colour, label=label, **style)
    gammas = sorted({row["gamma"] for row in default if row["gamma"] != "auto"})
    series = [column(select(default, gamma=gamma), "utility") for gamma in gammas]
    free.errorbar(
        gammas, [s.mean() for s in series], [s.std() for s in series], color="black", label="gamma fixed", **style
    )
    automatic = column(select(default, gamma="auto"), "utility")
    if len(automatic):
        free.axhline(float(automatic.mean()), color=GREEN, linestyle="--", label="gamma by itself")
    titles = ("paper", "published scheme, emulated", "defaults: automatic steps")
    for axes, title in zip((printed, ours, free), titles, strict=True):
        axes.set_xlabel(r"$\gamma$")
        axes.set_title(title, fontsize=11)
        axes.legend(frameon=False, fontsize=8)
        style_axes(axes)
    printed.set_ylabel(r"utility $-f(x_T, y_g)$")
    return {"utility": figure}
