"""The charts of the page about roads as data for plotly.js: the map, and the objective against the bound."""

from __future__ import annotations

from typing import Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.report.figure import BLUE, INK, ORANGE
from blocc.report.format import number
from blocc.report.roads.road_figures import MARK
from blocc.report.roads.road_series import DIFFERENCE_SCALE, Colouring, colourings, convergence
from blocc.report.roads.road_tables import changed_links, design_link_rows
from blocc.report.transport import design_geometry as geometry
from blocc.report.transport.design_charts import (
    Figure,
    bar_title,
    chart_text,
    colour_scale,
    line_trace,
    make_figure,
    merged,
    plotly_numbers,
    styles,
)
from blocc.report.transport.design_geometry import UTILISATION_SCALE, link_widths, scale_colour
from blocc.report.transport.scenario_charts import node_trace
from blocc.roads.road_design import RoadDesign

_SHADES = 20  # a trace has one colour and one width: figures are rounded so that few traces serve many links
Curves = list[Float[NDArray, "points 2"]]


def map_figure(design: RoadDesign) -> Figure | None:
    """The map, with a menu of what colours stand for; None where the nodes have no places."""
    network, style = design.network, styles()["map"]
    if not len(network.coordinates):
        return None
    frame = geometry.frame_network(network, 1060.0, 640.0)
    widths = link_widths(design.after.capacity)
    offsets = geometry.link_offsets(network, widths)
    ends = list(zip(network.tail.tolist(), network.head.tolist(), strict=True))
    curves = [geometry.link_curve(frame, *pair, float(offset)) for pair, offset in zip(ends, offsets, strict=True)]
    choices = colourings(design)
    layers = [[*_link_traces(curves, widths, choice), _scale_trace(choice)] for choice in choices]
    for layer in (layers[0], layers[2]):
        for trace in layer:
            trace["visible"] = False
    edges, rest = _edges(design, curves, widths), [_hover_trace(design, frame, offsets)]
    rest.append(node_trace(network, frame, np.concatenate(curves)))
    data = [*edges, *(trace for layer in layers for trace in layer), *rest]
    buttons = []
    for k, choice in enumerate(choices):
        shown = [True] * len(edges) + [k == other for other, layer in enumerate(layers) for _ in layer]
        change = [{"visible": [*shown, *(True for _ in rest)]}, {"annotations[0].text": _short(choice)}]
        buttons.append({"label": f"Colour: {choice.title}", "method": "update", "args": change})
    layout = {
        "height": int(np.clip(1060.0 * frame.aspect, 380.0, 760.0)),
        "annotations": [{**bar_title("map"), "text": _short(choices[1])}],
        "updatemenus": [{**style["menu"], "buttons": buttons, "active": 1, "yanchor": "bottom"}],
        "margin": {"t": 44},  # for the menu
        "xaxis": {"range": plotly_numbers([frame.low[0], frame.high[0]])},
        "yaxis": {"range": plotly_numbers([frame.low[1], frame.high[1]])},
    }
    return make_figure("map", data, layout)


def convergence_figure(design: RoadDesign) -> Figure:
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


def _link_traces(curves: Curves, widths: Float[NDArray, "links"], choice: Colouring) -> list[dict[str, Any]]:
    scale = DIFFERENCE_SCALE if choice.is_difference else UTILISATION_SCALE
    parts = np.clip((choice.values - choice.low) / (choice.high - choice.low), 0.0, 1.0)
    groups: dict[tuple[float, int], Curves] = {}
    for curve, width, part in zip(curves, widths.tolist(), parts.tolist(), strict=True):
        groups.setdefault((round(2.0 * width) / 2.0, round(_SHADES * part)), []).append(curve)
    # Thin links on top of wide ones: none hides another.
    return [
        {**line_trace(drawn), "line": {"width": width, "color": scale_colour(shade / _SHADES, scale)}}
        for (width, shade), drawn in sorted(groups.items(), key=lambda item: -item[0][0])
    ]


def _scale_trace(choice: Colouring) -> dict[str, Any]:
    """The bar that explains the colours."""
    parts = (0.0, 0.25, 0.5, 0.75, 1.0)
    words = [number(choice.low + part * (choice.high - choice.low), 3) for part in parts]
    scale = DIFFERENCE_SCALE if choice.is_difference else UTILISATION_SCALE
    bar = {"colorscale": colour_scale(scale), "colorbar": {"tickvals": list(parts), "ticktext": words}}
    return merged(styles()["map"]["scale"], {"marker": bar})


def _edges(design: RoadDesign, curves: Curves, widths: Float[NDArray, "links"]) -> list[dict[str, Any]]:
    """A green edge around every link that the design changes."""
    groups: dict[float, Curves] = {}
    for link in np.flatnonzero(changed_links(design)).tolist():
        groups.setdefault(round(2.0 * float(widths[link])) / 2.0, []).append(curves[link])
    return [{**line_trace(drawn), "line": {"width": width + 6.0, "color": MARK}} for width, drawn in groups.items()]


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
