"""The pictures of the networks: the upper objective on the way, for both answers, and the lower-level gap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blocc.report.figure import new_figure, style_axes
from blocc.report.study.study_views import Findings
from blocc.studies.study import Row, select
from reproduction.item import RowsByStudy
from reproduction.pictures.style import COLOURS, band
from reproduction.summary import curve, finished, mean
from reproduction.transport import GAMMAS, LV_HBA, NETWORKS, default_study, paper_study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(rows_by_study: RowsByStudy, findings: Findings) -> dict[str, Figure]:
    """For every network that was studied: the upper objective and the lower-level gap, for both variants."""
    figures = {}
    for network in NETWORKS:
        if default_study(network) in rows_by_study:
            figures[f"upper-{network}"] = _upper(rows_by_study, network)
            figures[f"gap-{network}"] = _gap(rows_by_study, network)
    return figures


def _panels(title: str) -> tuple[Figure, Axes, Axes]:
    figure = new_figure(12.0, 4.6)
    paper, default = figure.subplots(1, 2)
    figure.suptitle(title, fontsize=12, fontweight="bold")
    for axes, name in ((paper, "paper's settings"), (default, "defaults")):
        axes.set_title(name, fontsize=11)
        style_axes(axes)
    paper.set_xlabel("step of $x$")
    default.set_xlabel("evaluation of $F_\\gamma$")
    return figure, paper, default


def _variants(
    rows_by_study: RowsByStudy, network: str, paper: Axes, default: Axes
) -> list[tuple[Axes, Any, list[Row]]]:
    found = []
    for axes, study in ((paper, paper_study(network)), (default, default_study(network))):
        rows = finished(rows_by_study, study)
        found += [(axes, gamma, list(select(rows, gamma=gamma))) for gamma in (*GAMMAS, "auto")]
    return [(axes, gamma, rows) for axes, gamma, rows in found if rows]


def _upper(rows_by_study: RowsByStudy, network: str) -> Figure:
    figure, paper, default = _panels(f"{network}: upper objective f, solid at $y_g$, dashed at $y_F$")
    for axes, gamma, rows in _variants(rows_by_study, network, paper, default):
        label = r"$\gamma$ by itself" if gamma == "auto" else rf"$\gamma = {gamma:g}$"
        band(axes, [curve(row, "upper_value") for row in rows], COLOURS[gamma], label)
        band(axes, [curve(row, "upper_value_penalised") for row in rows], COLOURS[gamma], "", linestyle="--")
    lv_hba = finished(rows_by_study, LV_HBA) if network == "three" else []
    if lv_hba:
        paper.axhline(-mean(lv_hba, "utility"), color=COLOURS["lv-hba"], label="LV-HBA, at its end")
    for axes in (paper, default):
        axes.legend(frameon=False, fontsize=8)
    if network == "three":
        paper.set_ylim(-5.0, 3.0)  # the starts' first values are larger than all that follows
    else:
        paper.set_yscale("symlog", linthresh=100.0)
    paper.set_ylabel("$f(x, y)$")
    return figure


def _gap(rows_by_study: RowsByStudy, network: str) -> Figure:
    figure, paper, default = _panels(f"{network}: lower-level gap $g(x, y_F) - g(x, y_g)$")
    for axes, gamma, rows in _variants(rows_by_study, network, paper, default):
        label = r"$\gamma$ by itself" if gamma == "auto" else rf"$\gamma = {gamma:g}$"
        band(axes, [curve(row, "lower_gap") for row in rows], COLOURS[gamma], label)
    lv_hba = finished(rows_by_study, LV_HBA) if network == "three" else []
    if lv_hba:
        paper.axhline(mean(lv_hba, "lower_gap"), color=COLOURS["lv-hba"], label="LV-HBA, at its end")
    for axes in (paper, default):
        axes.set_yscale("symlog", linthresh=1e-3)  # inexact loops also leave it negative
        axes.legend(frameon=False, fontsize=8)
    paper.set_ylabel("$g(x, y_F) - g(x, y_g)$")
    return figure
