"""The charts of the page about a power system as data for plotly.js: the one-line diagram, prices, and the way."""

from __future__ import annotations

from typing import Any

import numpy as np

from blocc.kit.documents import rows_of
from blocc.power.dispatch import Dispatch
from blocc.power.documents import BUSES, GENERATORS, LINES, loading
from blocc.power.power_design import PowerDesign
from blocc.report.figure import BLUE, GREEN, INK, MUTED, ORANGE
from blocc.report.map_parts import edge_traces, map_layout, scale_trace, shaded_traces
from blocc.report.power.power_figures import PRICE_SCALE, price_range, touched, way
from blocc.report.power.power_layout import Diagram, diagram
from blocc.report.transport import design_geometry as geometry
from blocc.report.transport.design_charts import (
    Figure,
    chart_text,
    make_figure,
    menu,
    plotly_numbers,
    plotly_text,
    styles,
)
from blocc.report.transport.design_geometry import UTILISATION_SCALE, link_widths, scale_colour


def map_figure(design: PowerDesign) -> Figure:
    """The one-line diagram, with a menu: after, or before."""
    drawn = diagram(design.case)
    frame = drawn.framed(1060.0, 640.0)
    layers = [_layer(design, drawn, frame, one) for one in (design.after, design.before)]
    for trace in layers[1]:
        trace["visible"] = False
    rest = [_hover_trace(design, drawn, frame), scale_trace(*price_range(design), PRICE_SCALE)]
    edges = edge_traces(_curves(drawn, frame), _widths(design.after), touched(design)[1], GREEN, room=7.0)
    entries = []
    for k, words in enumerate(("with the decision", "before")):
        shown = [True] * len(edges) + [k == other for other, layer in enumerate(layers) for _ in layer]
        change = [{"visible": [*shown, *(True for _ in rest)]}]
        entries.append({"label": words, "change": change})
    data = [*edges, *(trace for layer in layers for trace in layer), *rest]
    return make_figure("map", data, map_layout(frame, menu("Show", entries), "price"))


def _curves(drawn: Diagram, frame: geometry.Frame) -> list[Any]:
    return [frame.points[[tail, head]] for tail, head in zip(drawn.tail, drawn.head, strict=True)]


def _widths(dispatch: Dispatch) -> Any:
    """Of lines, in pixels; a line without a limit is thin."""
    return np.maximum(link_widths(np.where(np.isfinite(dispatch.capacity), dispatch.capacity, 0.0)), 1.5)


def _layer(design: PowerDesign, drawn: Diagram, frame: geometry.Frame, dispatch: Dispatch) -> list[dict[str, Any]]:
    traces = shaded_traces(_curves(drawn, frame), _widths(dispatch), loading(dispatch), UTILISATION_SCALE)
    return [*traces, _bus_trace(design, drawn, frame, dispatch)]


def _bus_trace(design: PowerDesign, drawn: Diagram, frame: geometry.Frame, dispatch: Dispatch) -> dict[str, Any]:
    low, high = price_range(design)
    small = design.case.n_buses > geometry.DENSE
    buses, _ = touched(design)
    own = [k in buses for k in range(design.case.n_buses)]
    generators: dict[int, list[dict[str, Any]]] = {}
    for row in rows_of(design, GENERATORS):
        generators.setdefault(int(row["bus"]), []).append(row)
    texts = [chart_text("bus", row, generators.get(int(row["bus"]), [])) for row in rows_of(design, BUSES)]
    parts = np.clip((dispatch.price - low) / (high - low), 0.0, 1.0)
    return {
        **styles()["map"]["nodes"],
        "x": plotly_numbers(frame.points[:, 0]),
        "y": plotly_numbers(frame.points[:, 1]),
        "text": ["" if small else plotly_text(label) for label in drawn.labels],
        "textposition": "middle center",
        "textfont": {"size": 11, "color": INK},
        "customdata": texts,
        "marker": {
            "size": 10 if small else 24,
            "color": [scale_colour(float(part), PRICE_SCALE) for part in parts],
            "line": {"color": [GREEN if one else MUTED for one in own], "width": [4.0 if one else 1.2 for one in own]},
        },
    }


def _hover_trace(design: PowerDesign, drawn: Diagram, frame: geometry.Frame) -> dict[str, Any]:
    """Invisible points along every line: plotly.js answers near points, not near lines."""
    points, text = [], []
    for row, tail, head in zip(rows_of(design, LINES), drawn.tail, drawn.head, strict=True):
        count = geometry.curve_count(frame, int(tail), int(head), spacing=24.0)
        share = np.linspace(0.15, 0.85, count)[:, None]
        points.append((1.0 - share) * frame.points[tail] + share * frame.points[head])
        text += [chart_text("power_line", row)] * count
    x, y = np.concatenate(points).T
    return {**styles()["map"]["hover"], "x": plotly_numbers(x), "y": plotly_numbers(y), "text": text}


def price_figure(design: PowerDesign) -> Figure:
    """Prices before and after, by bus."""
    order = np.argsort(design.after.price, kind="stable")
    names = [str(one) for one in design.case.bus_number[order].tolist()]
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": words,
            "x": list(range(1, len(order) + 1)),
            "y": plotly_numbers(dispatch.price[order]),
            "customdata": names,
            "line": {"color": colour, "width": 2},
            "marker": {"size": 5},
            "hovertemplate": "bus %{customdata}: %{y:.6g}<extra>%{fullData.name}</extra>",
        }
        for dispatch, colour, words in ((design.before, MUTED, "before"), (design.after, BLUE, "with the decision"))
    ]
    axes = {
        "xaxis": {"title": {"text": "buses, in order of their price with the decision"}},
        "yaxis": {"title": {"text": "price per MWh"}},
    }
    return make_figure("convergence", data, axes)


def way_figure(design: PowerDesign) -> Figure:
    """Penalised and best exact values by seconds."""
    exact, penalised = way(design)
    data = [
        {
            "type": "scatter",
            "mode": mode,
            "name": words,
            "x": plotly_numbers(values[:, 0]),
            "y": plotly_numbers(values[:, 1]),
            "line": {"color": colour, "width": 2, "shape": shape},
            "hovertemplate": "%{y:.6g} after %{x:.3g} s<extra>%{fullData.name}</extra>",
        }
        for values, words, colour, mode, shape in (
            (penalised, "penalised value, F", ORANGE, "lines", "linear"),
            (exact, "best exact value", BLUE, "lines+markers", "hv"),
        )
        if len(values)
    ]
    layout: dict[str, Any] = {"xaxis": {"title": {"text": "seconds"}}, "yaxis": {"title": {"text": design.goal}}}
    if len(exact):
        low, high = float(exact[:, 1].min()), float(exact[:, 1].max())
        room = 0.3 * (high - low) or 0.05 * abs(high) or 1.0
        layout["yaxis"]["range"] = plotly_numbers([low - room, high + room])
    return make_figure("convergence", data, layout)
