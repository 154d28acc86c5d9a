"""The figures of the networks: the upper objective and the lower-level gap of every variant, over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from blocc.kit.figure import new_figure, style_axes
from blocc.studies.study import Row, select
from reproduction.curves import COLOURS, band, curve
from reproduction.item import RowsByStudy
from reproduction.summary import finished
from reproduction.transport_statements import (
    GAMMAS,
    LV_HBA,
    LV_HBA_PROGRAM,
    NETWORKS,
    default_study,
    exact_study,
    published_study,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {published_study: "program emulated", exact_study: "Algorithm 1, exact", default_study: "our method"}


def draw_networks(rows_by_study: RowsByStudy) -> dict[str, Figure]:
    """Two figures for every network that was studied."""
    figures = {}
    for network in NETWORKS:
        if default_study(network) in rows_by_study:
            figures[f"upper-{network}"] = _upper(rows_by_study, network)
            figures[f"gap-{network}"] = _gap(rows_by_study, network)
    return figures


def _panels(rows_by_study: RowsByStudy, network: str, title: str) -> tuple[Figure, list[tuple[Axes, Sequence[Row]]]]:
    """One panel for every variant that has rows, each over its own seconds."""
    found = [(name, finished(rows_by_study, study(network))) for study, name in TITLES.items()]
    found = [(name, rows) for name, rows in found if rows]
    figure = new_figure(5.2 * max(len(found), 1), 4.6)
    figure.suptitle(title, fontsize=12, fontweight="bold")
    panels: list[tuple[Axes, Sequence[Row]]] = []
    for axes, (name, rows) in zip(figure.subplots(1, max(len(found), 1), squeeze=False)[0], found, strict=False):
        axes.set_title(name, fontsize=11)
        axes.set_xlabel("seconds since the first record")
        style_axes(axes)
        panels.append((axes, rows))
    return figure, panels


def _curves(axes: Axes, rows: Sequence[Row], name: str, *, labelled: bool = True, **style: Any) -> None:
    for gamma in (*GAMMAS, "auto"):
        chosen = list(select(rows, gamma=gamma))
        label = r"$\gamma$ by itself" if gamma == "auto" else rf"$\gamma = {gamma:g}$"
        curves = [curve(row, name, timed=True) for row in chosen]
        band(axes, curves, COLOURS[gamma], label if labelled else "", **style)


def _lv_hba(rows_by_study: RowsByStudy, network: str, axes: Axes, name: str) -> None:
    """LV-HBA's own way, in the panel of the emulated program; the paper has it on three nodes."""
    rows = finished(rows_by_study, LV_HBA) if network == "three" else []
    band(axes, [curve(row, name, timed=True) for row in rows], COLOURS["lv-hba"], "LV-HBA")


def _lv_hba_program(rows_by_study: RowsByStudy, network: str, axes: Axes) -> None:
    """What LV-HBA's own program reports on its way."""
    rows = finished(rows_by_study, LV_HBA_PROGRAM) if network == "three" else []
    curves = [curve(row, "upper_value", timed=True) for row in rows]
    band(axes, curves, COLOURS["lv-hba"], "LV-HBA, program emulated", linestyle=":")


def _upper(rows_by_study: RowsByStudy, network: str) -> Figure:
    title = f"{network}: upper objective f, solid at $y_g$, dashed at $y_F$"
    figure, panels = _panels(rows_by_study, network, title)
    for place, (axes, rows) in enumerate(panels):
        _curves(axes, rows, "upper_value")
        _curves(axes, rows, "upper_value_penalised", labelled=False, linestyle="--")
        if place == 0:
            _lv_hba(rows_by_study, network, axes, "upper_value_penalised")
            _lv_hba_program(rows_by_study, network, axes)
            axes.set_ylabel("$f(x, y)$")
        if network != "three":
            axes.set_yscale("symlog", linthresh=100.0)
        elif place == 0:
            axes.set_yscale("symlog", linthresh=2.0)  # the starts' first values are larger than all that follows
        axes.legend(frameon=False, fontsize=8)
    return figure


def _gap(rows_by_study: RowsByStudy, network: str) -> Figure:
    figure, panels = _panels(rows_by_study, network, f"{network}: lower-level gap $g(x, y_F) - g(x, y_g)$")
    for place, (axes, rows) in enumerate(panels):
        _curves(axes, rows, "lower_gap")
        if place == 0:
            _lv_hba(rows_by_study, network, axes, "lower_gap")
            axes.set_ylabel("$g(x, y_F) - g(x, y_g)$")
        axes.set_yscale("symlog", linthresh=1e-3)  # inexact loops also leave it negative
        axes.legend(frameon=False, fontsize=8)
    return figure
