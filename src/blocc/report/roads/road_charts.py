"""The charts of the page about roads as data for plotly.js: the map, and the objective against the bound."""

from __future__ import annotations

from typing import Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.report.figure import BLUE, INK, ORANGE
from blocc.report.map_parts import edge_traces, map_layout, scale_trace, shaded_traces
from blocc.report.roads.road_figures import MARK
from blocc.report.roads.road_series import DIFFERENCE_SCALE, Colouring, colourings, convergence
from blocc.report.transport import design_geometry as geometry
from blocc.report.transport.design_charts import (
    Figure,
    chart_text,
    make_figure,
    menu,
    plotly_numbers,
    styles,
)
from blocc.report.transport.design_geometry import UTILISATION_SCALE, link_widths
from blocc.report.transport.scenario_charts import node_trace
from blocc.roads.demand_estimate import DemandEstimate
from blocc.roads.documents import changed_links, design_link_rows
from blocc.roads.road_design import RoadDesign

Curves = list[Float[NDArray, "points 2"]]


def map_figure(design: RoadDesign) -> Figure | None:
    """The map, with a menu of what colours stand for; None where the nodes have no places."""
    network = design.network
    if not len(network.coordinates):
        return None
    frame = geometry.frame_network(network, 1060.0, 640.0)
    widths = link_widths(design.after.capacity)
    offsets = geometry.link_offsets(network, widths)
    ends = list(zip(network.tail.tolist(), network.head.tolist(), strict=True))
    curves = [geometry.link_curve(frame, *pair, float(offset)) for pair, offset in zip(ends, offsets, strict=True)]
    choices = colourings(design)
    layers = [[*_link_traces(curves, widths, choice), scale_trace(*_scaled(choice))] for choice in choices]
    for layer in (layers[0], layers[2]):
        for trace in layer:
            trace["visible"] = False
    edges = edge_traces(curves, widths, np.flatnonzero(changed_links(design)).tolist(), MARK, room=6.0)
    rest = [_hover_trace(design, frame, offsets)]
    rest.append(node_trace(network, frame, np.concatenate(curves)))
    data = [*edges, *(trace for layer in layers for trace in layer), *rest]
    entries = []
    for k, choice in enumerate(choices):
        shown = [True] * len(edges) + [k == other for other, layer in enumerate(layers) for _ in layer]
        change = [{"visible": [*shown, *(True for _ in rest)]}, {"annotations[0].text": _short(choice)}]
        entries.append({"label": choice.title, "change": change})
    return make_figure("map", data, map_layout(frame, menu("Colour", entries, active=1), _short(choices[1])))


def convergence_figure(design: RoadDesign | DemandEstimate) -> Figure:
    """Penalised and exact values by evaluation, the best so far, and the bound."""
    style, series = styles()["convergence"], convergence(design)
    curves = (
        ("penalised value, F", series.penalised, "lines", {"color": ORANGE, "width": 1.5}),
        ("exact value", series.exact, "markers", {"color": BLUE}),
        ("best exact value so far", series.best, "lines", {"color": BLUE, "width": 3, "shape": "hv"}),
    )
    data = [
        {
            **style["curve"],
            "mode": mode,
            "name": name,
            "x": plotly_numbers(series.evaluation),
            "y": plotly_numbers(values),
            "customdata": plotly_numbers(series.gamma),
            "line": line,
            "marker": {"color": line["color"], "size": 6},
        }
        for name, values, mode, line in curves
    ]
    if design.bound is not None and len(series.evaluation):
        across = plotly_numbers([1, len(series.evaluation)])
        line = {"color": INK, "width": 2, "dash": "6px,3px"}
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "proven bound",
                "x": across,
                "y": plotly_numbers([design.bound] * 2),
                "line": line,
                "hovertemplate": "%{y:.6g}<extra>proven bound</extra>",
            }
        )
    axis = {"title": {"text": "objective"}, "range": plotly_numbers(series.shown)}
    starts = [{**style["stage"], "x0": start, "x1": start} for start in series.starts]
    return make_figure("convergence", data, {"shapes": starts, "yaxis": axis})


# --- parts of the map ----------------------------------------------------------------------------------------------
def _short(choice: Colouring) -> str:
    return "difference" if choice.is_difference else "volume<br>over<br>capacity"


def _scaled(choice: Colouring) -> tuple[float, float, tuple[str, ...]]:
    return choice.low, choice.high, DIFFERENCE_SCALE if choice.is_difference else UTILISATION_SCALE


def _link_traces(curves: Curves, widths: Float[NDArray, "links"], choice: Colouring) -> list[dict[str, Any]]:
    low, high, scale = _scaled(choice)
    return shaded_traces(curves, widths, (choice.values - low) / (high - low), scale)


def _hover_trace(design: RoadDesign, frame: geometry.Frame, offsets: Float[NDArray, "links"]) -> dict[str, Any]:
    """Invisible points along every link: plotly.js answers near points, not near lines."""
    network = design.network
    points: Curves = []
    text: list[str] = []
    for a, row in enumerate(design_link_rows(design)):
        ends = int(network.tail[a]), int(network.head[a])
        count = geometry.curve_count(frame, *ends, spacing=24.0)
        points.append(geometry.link_curve(frame, *ends, max(float(offsets[a]), 4.0), count)[5:-5])
        text += [chart_text("road", row, design.kind)] * len(points[-1])
    x, y = np.concatenate(points).T
    return {**styles()["map"]["hover"], "x": plotly_numbers(x), "y": plotly_numbers(y), "text": text}
