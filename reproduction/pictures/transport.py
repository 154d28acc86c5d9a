"""The pictures of the networks: the upper objective on the way, for both answers, and the lower-level gap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc.report.plots import new_figure
from blocc.report.study.study_views import Findings
from blocc.studies.study import Row, select
from reproduction.pictures.style import COLOURS, band, dress
from reproduction.summary import finished, mean
from reproduction.transport import GAMMAS, LV_HBA, NETWORKS, default_study, paper_study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curves = list[tuple[np.ndarray, np.ndarray]]


def draw(rows_by_study: Mapping[str, Sequence[Row]], findings: Findings) -> dict[str, Figure]:
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
        dress(axes)
    paper.set_xlabel("step of $x$")
    default.set_xlabel("evaluation of $F_\\gamma$")
    return figure, paper, default


def _variants(
    rows_by_study: Mapping[str, Sequence[Row]], network: str, paper: Axes, default: Axes
) -> list[tuple[Axes, Any, list[Row]]]:
    found = []
    for axes, study in ((paper, paper_study(network)), (default, default_study(network))):
        rows = finished(rows_by_study, study)
        found += [(axes, gamma, list(select(rows, gamma=gamma))) for gamma in (*GAMMAS, "auto")]
    return [(axes, gamma, rows) for axes, gamma, rows in found if rows]


def _upper(rows_by_study: Mapping[str, Sequence[Row]], network: str) -> Figure:
    figure, paper, default = _panels(f"{network}: upper objective f, solid at $y_g$, dashed at $y_F$")
    for axes, gamma, rows in _variants(rows_by_study, network, paper, default):
        label = r"$\gamma$ by itself" if gamma == "auto" else rf"$\gamma = {gamma:g}$"
        band(axes, _curves(rows, "upper_value"), COLOURS[gamma], label)
        band(axes, _curves(rows, "upper_value_penalised"), COLOURS[gamma], "", linestyle="--")
    rivals = finished(rows_by_study, LV_HBA) if network == "three" else []
    if rivals:
        paper.axhline(-mean(rivals, "utility"), color=COLOURS["lv-hba"], label="LV-HBA, at its end")
    for axes in (paper, default):
        axes.legend(frameon=False, fontsize=8)
    if network == "three":
        paper.set_ylim(-5.0, 3.0)  # the starts' first values are larger than all that follows
    else:
        paper.set_yscale("symlog", linthresh=100.0)
    paper.set_ylabel("$f(x, y)$")
    return figure


def _gap(rows_by_study: Mapping[str, Sequence[Row]], network: str) -> Figure:
    figure, paper, default = _panels(f"{network}: lower-level gap $g(x, y_F) - g(x, y_g)$")
    for axes, gamma, rows in _variants(rows_by_study, network, paper, default):
        label = r"$\gamma$ by itself" if gamma == "auto" else rf"$\gamma = {gamma:g}$"
        band(axes, _curves(rows, "lower_gap"), COLOURS[gamma], label)
    rivals = finished(rows_by_study, LV_HBA) if network == "three" else []
    if rivals:
        paper.axhline(mean(rivals, "lower_gap"), color=COLOURS["lv-hba"], label="LV-HBA, at its end")
    for axes in (paper, default):
        axes.set_yscale("symlog", linthresh=1e-3)  # inexact loops also leave it negative
        axes.legend(frameon=False, fontsize=8)
    paper.set_ylabel("$g(x, y_F) - g(x, y_g)$")
    return figure


def _curves(rows: Sequence[Row], name: str) -> Curves:
    """A column of every row's way against its iterations."""
    found = []
    for row in rows:
        iteration, values = (
            np.array([np.nan if value is None else value for value in row["curves"][key]], dtype=np.float64)
            for key in ("iteration", name)
        )
        found.append((iteration, values))
    return found
