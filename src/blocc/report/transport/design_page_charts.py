"""The page's charts as data for plotly.js: demand and served demand, and the convergence of the utility."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from blocc.report.transport.design_page_map import FONT, MODEBAR, bar_title, plotly_text
from blocc.report.transport.design_series import convergence, demand_matrices, labelled_stages
from blocc.report.transport.design_style import DEMAND_SCALE, EXACT, FAINT, INK, MUTED, PENALISED, number, shortened
from blocc.transport.design.design_result import Design

_GRID = "#e6e9ed"


def demand_figure(design: Design) -> dict[str, Any]:
    """Two heat maps over the same pairs and with the same colours, so that they compare; grey: no market."""
    matrices = demand_matrices(design)
    count = len(matrices.labels)
    largest = float(np.nanmax(matrices.demand, initial=0.0)) or 1.0
    ticks = list(range(0, count, max(1, math.ceil(count / 30))))
    names = [plotly_text(shortened(matrices.labels[k], 16)) for k in ticks]
    axis: dict[str, Any] = {
        "tickmode": "array",
        "tickvals": ticks,
        "ticktext": names,
        "tickfont": {"size": 10, "color": MUTED},
        "ticks": "",
        "showgrid": False,
        "zeroline": False,
        "constrain": "domain",
        "range": [-0.5, count - 0.5],
    }
    down = {**axis, "range": [count - 0.5, -0.5], "automargin": True}
    across = {**axis, "tickangle": 0 if max(map(len, names), default=0) <= 3 else -90, "automargin": True}
    pairs = [
        [f"{plotly_text(shortened(o, 24))} → {plotly_text(shortened(d, 24))}" for d in matrices.labels]
        for o in matrices.labels
    ]
    steps = len(DEMAND_SCALE) - 1
    shared = {
        "type": "heatmap",
        "text": pairs,
        "zmin": 0,
        "zmax": largest,
        "colorscale": [[k / steps, colour] for k, colour in enumerate(DEMAND_SCALE)],
        "hoverongaps": False,
        "xgap": 1 if count <= 40 else 0,
        "ygap": 1 if count <= 40 else 0,
    }
    bar = {
        "x": 1.0,
        "xpad": 8,
        "tickfont": {"size": 11, "color": MUTED},
        "thickness": 12,
        "len": 0.8,
        "outlinewidth": 0,
    }
    data = [
        {
            **shared,
            "z": _matrix(matrices.demand),
            "hovertemplate": "<b>%{text}</b><br>demand %{z:.4g}<extra></extra>",
            "showscale": False,
        },
        {
            **shared,
            "z": _matrix(matrices.served),
            "hovertemplate": "<b>%{text}</b><br>served %{z:.4g}<extra></extra>",
            "colorbar": bar,
            "xaxis": "x2",
            "yaxis": "y2",
        },
    ]
    layout = {
        **_layout(560),
        "margin": {"l": 40, "r": 84, "t": 38, "b": 44},
        "plot_bgcolor": "#eef0f2",
        "xaxis": {**across, "domain": [0.0, 0.48], "title": _title("destination")},
        "yaxis": {**down, "scaleanchor": "x", "title": _title("origin")},
        "xaxis2": {**across, "domain": [0.52, 1.0], "title": _title("destination"), "anchor": "y2", "matches": "x"},
        "yaxis2": {**down, "anchor": "x2", "matches": "y", "showticklabels": False},
        "annotations": [
            _heading(f"Demand: {number(np.nansum(matrices.demand))}", 0.0, "x domain"),
            _heading(f"Served by the new network: {number(np.nansum(matrices.served))}", 0.0, "x2 domain"),
            bar_title("passengers", 0.9),
        ],
    }
    return {"data": data, "layout": layout, "height": 560, "left_out": matrices.left_out}


def convergence_figure(design: Design) -> dict[str, Any]:
    """The operator's utility by evaluation at both answers; dashed lines where gamma grew."""
    series = convergence(design)
    x = _list(series.evaluation)
    gammas = _list(series.gamma)
    curves = (
        ("at the travellers’ own answer, y<sub>g</sub>", series.exact, {"color": EXACT, "width": 3}),
        (
            "at the penalised answer, y<sub>F</sub>",
            series.penalised,
            {"color": PENALISED, "width": 2, "dash": "6px,3px"},
        ),
    )
    data = [
        {
            "type": "scatter",
            "mode": "lines" if len(x) > 1 else "markers",
            "name": name,
            "x": x,
            "y": _list(values),
            "customdata": gammas,
            "line": line,
            "marker": {"color": line["color"], "size": 8},
            "hovertemplate": "%{y:.6g} (gamma %{customdata:.4g})<extra>%{fullData.name}</extra>",
        }
        for name, values, line in curves
    ]
    shapes = [
        {
            "type": "line",
            "x0": start,
            "x1": start,
            "y0": 0,
            "y1": 1,
            "yref": "paper",
            "layer": "below",
            "line": {"color": FAINT, "width": 1, "dash": "4px,3px"},
        }
        for start, _ in series.stages[1:]
    ]
    notes = [
        {
            "x": start,
            "y": 1.0,
            "yref": "paper",
            "text": f"γ = {number(gamma)}",
            "showarrow": False,
            "xanchor": "left",
            "yanchor": "bottom",
            "font": {"size": 11, "color": MUTED},
        }
        for start, gamma in labelled_stages(series, room=0.08)
    ]
    plain = {"exponentformat": "none", "separatethousands": True}
    if not x:
        notes = [{**_heading("no iteration was recorded", 0.5), "y": 0.5}]
    layout = {
        **_layout(400),
        "margin": {"l": 70, "r": 20, "t": 26, "b": 84},
        "hovermode": "x unified",
        "legend": {
            "orientation": "h",
            "x": 0.5,
            "xanchor": "center",
            "y": -0.16,
            "yanchor": "top",
            "font": {"size": 12},
        },
        "xaxis": {"title": _title("evaluation"), "showgrid": False, "zeroline": False, "color": MUTED},
        "yaxis": {
            "title": _title("operator’s utility"),
            "gridcolor": _GRID,
            "zeroline": False,
            "color": MUTED,
            **plain,
        },
        "shapes": shapes,
        "annotations": notes,
    }
    return {"data": data, "layout": layout, "height": 400}


def _layout(height: int) -> dict[str, Any]:
    return {
        "height": height,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "color": INK, "size": 12},
        "hoverlabel": {"bgcolor": "#ffffff", "bordercolor": MUTED, "font": {"color": INK, "size": 13}},
        "dragmode": "zoom",
        "modebar": MODEBAR,
    }


def _title(words: str) -> dict[str, Any]:
    return {"text": words, "font": {"size": 12, "color": MUTED}, "standoff": 8}


def _heading(words: str, x: float, xref: str = "paper") -> dict[str, Any]:
    return {
        "text": f"<b>{words}</b>",
        "x": x,
        "xref": xref,
        "xanchor": "center" if xref == "paper" else "left",
        "y": 1.0,
        "yref": xref.replace("x", "y", 1) if xref != "paper" else xref,
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"size": 13, "color": INK},
    }


def _list(values: np.ndarray) -> list[float | None]:
    """Numbers that JSON knows; what is not finite becomes a gap."""
    return [float(f"{value:.8g}") if math.isfinite(value) else None for value in np.asarray(values, dtype=float)]


def _matrix(values: np.ndarray) -> list[list[float | None]]:
    return [_list(row) for row in values]
