"""The interactive map: links in few traces, a layer of invisible points that answers the mouse, and a legend.

The figure is plain data for plotly.js. Its text may hold a few tags, so every word of the user's is escaped.
"""

from __future__ import annotations

import html
import math
from typing import Any

import numpy as np

from blocc.report.transport.design_geometry import (
    DENSE,
    GAP,
    Frame,
    candidate_offset,
    curve_count,
    draws_candidate,
    frame_network,
    labels_inside,
    link_curve,
    link_points,
    map_labels,
    node_size,
    place_labels,
)
from blocc.report.transport.design_style import (
    FAINT,
    INK,
    MUTED,
    UTILISATION_SCALE,
    link_widths,
    number,
    percent,
    shortened,
    utilisation_colour,
)
from blocc.transport.design.design_result import Design

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
MODEBAR = {"bgcolor": "rgba(0,0,0,0)", "color": FAINT, "activecolor": MUTED}
_SHADES = 20  # a trace has one colour and one width: figures are rounded so that few traces serve many links
_POSITIONS = {
    "right": "middle right",
    "left": "middle left",
    "above": "top center",
    "below": "bottom center",
    "above right": "top right",
    "below right": "bottom right",
    "above left": "top left",
    "below left": "bottom left",
}


def map_figure(design: Design) -> dict[str, Any]:
    """The map as ``{"data", "layout", "height", "halo"}`` for plotly.js; ``halo``: labels lie on lines."""
    frame = frame_network(design.network, 1060.0, 640.0)
    height = int(np.clip(1060.0 * frame.aspect, 380.0, 700.0))
    data = [_candidate_trace(design, frame), *_link_traces(design, frame), _hover_trace(design, frame)]
    data += [_scale_trace(), _node_trace(design, frame)]
    axis = {"visible": False, "fixedrange": False, "zeroline": False, "showgrid": False}
    layout = {
        "height": height,
        "margin": {"l": 0, "r": 0, "t": 0, "b": 0, "autoexpand": True},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "showlegend": False,
        "hovermode": "closest",
        "hoverdistance": 24,
        "dragmode": "pan",
        "modebar": MODEBAR,
        "font": {"family": FONT, "color": INK, "size": 12},
        "annotations": [bar_title("capacity<br>used", 0.8)],
        "hoverlabel": {"bgcolor": "#ffffff", "bordercolor": MUTED, "font": {"color": INK, "size": 13}, "align": "left"},
        "xaxis": {**axis, "range": _numbers(np.array([frame.low[0], frame.high[0]]))},
        "yaxis": {
            **axis,
            "range": _numbers(np.array([frame.low[1], frame.high[1]])),
            "scaleanchor": "x",
            "scaleratio": 1,
        },
    }
    halo = not labels_inside(map_labels(design.network))
    return {"data": data, "layout": layout, "height": height, "halo": halo}


def legend(design: Design) -> str:
    """Samples of lines with their meaning, as HTML: capacities by width, and what dotted means."""
    samples = []
    largest = float(design.capacity.max(initial=0.0))
    if largest > 0:
        widest = float(link_widths(design.capacity).max())
        for part in (1.0, 0.5, 0.2):
            samples.append(
                _sample(f'stroke="currentColor" stroke-width="{widest * part:.1f}"', number(largest * part, 3))
            )
    built = '<span class="key-title">Capacity</span>' + "".join(samples) if samples else ""
    dotted = _sample('stroke="currentColor" stroke-width="1.2" stroke-dasharray="1.5 3"', "candidate, not built")
    return f'<div class="key">{built}{dotted}</div>'


def link_text(design: Design, link: int) -> str:
    """What the map says about one link, in the tags that plotly.js knows."""
    network, follower = design.network, design.follower
    ends = (network.labels[network.tail[link]], network.labels[network.head[link]])
    lines = [f"<b>{plotly_text(ends[0])} → {plotly_text(ends[1])}</b>"]
    if design.built[link]:
        lines.append(f"capacity {number(design.capacity[link])}")
        lines.append(f"flow {number(follower.flow[link])} ({percent(float(design.utilisation[link]))} of capacity)")
    else:
        lines.append("not built")
    lines.append(f"price of capacity {number(follower.price[link])}")
    lines.append(f"time {number(network.time[link])}")
    lines.append(f"cost {number(network.cost[link])} per unit of capacity")
    return "<br>".join(lines)


def bar_title(words: str, top: float) -> dict[str, Any]:
    """The title of a colour bar that ends at ``top``; the one of plotly.js would touch the topmost tick."""
    return {
        "text": words,
        "xref": "paper",
        "x": 1.0,
        "xanchor": "left",
        "xshift": 9,
        "yref": "paper",
        "y": top,
        "yanchor": "bottom",
        "yshift": 8,
        "align": "left",
        "showarrow": False,
        "font": {"size": 12, "color": MUTED},
    }


def plotly_text(text: str) -> str:
    """A user's words inside plotly.js, which turns tags and entities of text into markup."""
    return html.escape(shortened(text, 60), quote=False)


def _link_traces(design: Design, frame: Frame) -> list[dict[str, Any]]:
    network, widths = design.network, link_widths(design.capacity)
    groups: dict[tuple[float, int], list[np.ndarray]] = {}
    for a in np.flatnonzero(design.built):
        used = float(design.utilisation[a])
        shade = round(min(max(used if math.isfinite(used) else 0.0, 0.0), 1.0) * _SHADES)
        curve = link_curve(frame, int(network.tail[a]), int(network.head[a]), widths[a] / 2 + GAP)
        groups.setdefault((round(2.0 * widths[a]) / 2.0, shade), []).append(curve)
    traces = []
    # Thin links on top of wide ones: none hides another.
    for (width, shade), curves in sorted(groups.items(), key=lambda item: -item[0][0]):
        line = {"width": width, "color": utilisation_colour(shade / _SHADES)}
        traces.append({**_lines(curves), "line": line, "hoverinfo": "skip"})
    return traces


def _candidate_trace(design: Design, frame: Frame) -> dict[str, Any]:
    network = design.network
    curves = [
        link_curve(frame, int(network.tail[a]), int(network.head[a]), candidate_offset(design, int(a)))
        for a in np.flatnonzero(~design.built)
        if draws_candidate(design, int(a))
    ]
    return {**_lines(curves), "line": {"width": 1, "color": FAINT, "dash": "1.5px,3px"}, "hoverinfo": "skip"}


def _hover_trace(design: Design, frame: Frame) -> dict[str, Any]:
    """Invisible points along every link: plotly.js answers near points, not near lines."""
    network, widths = design.network, link_widths(design.capacity)
    x: list[float] = []
    y: list[float] = []
    text: list[str] = []
    colour: list[str] = []
    for a in range(network.n_links):
        tail, head = int(network.tail[a]), int(network.head[a])
        count = curve_count(frame, tail, head, spacing=24.0)
        # Directions that are not built share a line; their points stand apart, so that either can be asked.
        curve = link_curve(frame, tail, head, max(widths[a] / 2 + GAP, 4.0), count)[5:-5]
        x += _numbers(curve[:, 0])
        y += _numbers(curve[:, 1])
        text += [link_text(design, a)] * len(curve)
        colour += [utilisation_colour(float(design.utilisation[a])) if design.built[a] else FAINT] * len(curve)
    return {
        "type": "scatter",
        "mode": "markers",
        "x": x,
        "y": y,
        "text": text,
        "hovertemplate": "%{text}<extra></extra>",
        "hoverlabel": {"bordercolor": colour},
        "marker": {"size": 8, "opacity": 0, "color": MUTED},
    }


def _scale_trace() -> dict[str, Any]:
    """A trace without a point, there for its colour bar."""
    steps = len(UTILISATION_SCALE) - 1
    bar = {
        "tickvals": [0, 0.25, 0.5, 0.75, 1],
        "ticktext": ["0 %", "25 %", "50 %", "75 %", "100 %"],
        "tickfont": {"size": 11, "color": MUTED},
        "thickness": 12,
        "len": 0.6,
        "outlinewidth": 0,
        "x": 1.0,
        "xpad": 8,
    }
    marker = {
        "color": [0],
        "cmin": 0,
        "cmax": 1,
        "colorscale": [[k / steps, colour] for k, colour in enumerate(UTILISATION_SCALE)],
        "showscale": True,
        "colorbar": bar,
    }
    return {"type": "scatter", "mode": "markers", "x": [None], "y": [None], "hoverinfo": "skip", "marker": marker}


def _node_trace(design: Design, frame: Frame) -> dict[str, Any]:
    """Nodes with their labels: short ones inside, as on a metro map, longer ones beside, where there is room."""
    network = design.network
    labels = map_labels(network)
    inside, dense, size = labels_inside(labels), len(labels) > DENSE, node_size(labels)
    letter = 12.0 if not dense else 10.0
    places = None
    if not inside:
        places = place_labels(frame, labels, link_points(design, frame), radius=size / 2, letter=letter)
    shown = [plotly_text(label) if places is None or places[k] else "" for k, label in enumerate(labels)]
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": _numbers(frame.points[:, 0]),
        "y": _numbers(frame.points[:, 1]),
        "text": shown,
        "textposition": [_POSITIONS[place or "right"] for place in places] if places else "middle center",
        "textfont": {"size": (11 if not dense else 8) if inside else letter, "color": INK},
        "customdata": [_node_text(design, k) for k in range(network.n_nodes)],
        "hovertemplate": "%{customdata}<extra></extra>",
        "marker": {"size": size, "color": "#ffffff", "line": {"color": INK, "width": 1.4}},
        "cliponaxis": False,
        "meta": "nodes",
    }


def _node_text(design: Design, node: int) -> str:
    network = design.network
    served = network.demand * design.follower.share
    leaving, arriving = network.origin == node, network.destination == node
    identifier, label = str(network.nodes[node]), network.labels[node]
    name = plotly_text(label) + (f" ({plotly_text(identifier)})" if label != identifier else "")
    return (
        f"<b>{name}</b><br>"
        f"departing: {number(np.nansum(served[leaving]))} of {number(network.demand[leaving].sum())} served<br>"
        f"arriving: {number(np.nansum(served[arriving]))} of {number(network.demand[arriving].sum())} served"
    )


def _lines(curves: list[np.ndarray]) -> dict[str, Any]:
    """Many curves in one trace, a gap between each two."""
    x: list[float | None] = []
    y: list[float | None] = []
    for curve in curves:
        x += [*_numbers(curve[:, 0]), None]
        y += [*_numbers(curve[:, 1]), None]
    return {"type": "scatter", "mode": "lines", "x": x, "y": y}


def _sample(stroke: str, words: str) -> str:
    line = f'<svg width="34" height="14" aria-hidden="true"><line x1="0" y1="7" x2="34" y2="7" {stroke}/></svg>'
    return f'<span class="sample">{line}{html.escape(words)}</span>'


def _numbers(values: np.ndarray) -> list[float]:
    """Eight digits: less than a pixel at any zoom, and half the size of the page."""
    return [float(f"{value:.8g}") for value in values]
