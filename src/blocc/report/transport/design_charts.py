"""The charts of the page as data for plotly.js: the map, demand and served demand, convergence.

What never changes about them is in ``assets/charts.json``, and the words that need tags in
``assets/chart_text.html.j2``. plotly.js reads tags in every text, so every name from outside is escaped.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from blocc._lib.arrays import NDArray
from blocc.report.figure import BLUE, FAINT, GREEN, INK
from blocc.report.format import number, shortened
from blocc.report.page import environment
from blocc.report.transport import design_geometry as geometry
from blocc.report.transport.design_geometry import (
    DEMAND_SCALE,
    EXACT,
    PENALISED,
    UTILISATION_SCALE,
    link_widths,
    utilisation_colour,
)
from blocc.report.transport.design_series import Colouring, colourings, convergence, demand_matrices, labelled_stages
from blocc.transport.design.design_result import Design
from blocc.transport.design.documents import link_rows, shown_answer

Figure = dict[str, Any]  #: ``{"data", "layout"}``

#: Of the ways of a market on the page, the widest first; none is a colour of links.
_WAY_COLOURS = (BLUE, GREEN, "#56B4E9", "#8C6D1F", "#111111")
_SHADES = 20  # a trace has one colour and one width: figures are rounded so that few traces serve many links


def map_figure(design: Design) -> Figure:
    """The map: links in few traces, a layer of invisible points that answers the mouse, and the nodes."""
    style = styles()["map"]
    frame = geometry.frame_network(design.network, 1060.0, 640.0)
    drawn = [a for a in np.flatnonzero(~design.built).tolist() if geometry.draws_candidate(design, a)]
    candidates = {**line_trace(geometry.candidate_curves(design, frame)), **style["candidates"], "meta": drawn}
    ways = [{**style["lines"], **style["ways"], "line": {"width": 1, "color": colour}} for colour in _WAY_COLOURS]
    choices = colourings(design)
    layers = [[*_link_traces(design, frame, choice), _scale_trace(choice)] for choice in choices]
    for layer in layers[1:]:
        for trace in layer:
            trace["visible"] = False
    links = [trace for layer in layers for trace in layer]
    data = [candidates, *links, *ways, _hover_trace(design, frame), _node_trace(design, frame)]
    entries = []
    for k, choice in enumerate(choices):
        shown = [
            True,
            *(k == number for number, layer in enumerate(layers) for _ in layer),
            *(True for _ in ways),
            True,
            True,
        ]
        change = [{"visible": shown}, {"annotations[0].text": choice.title.replace(" ", "<br>")}]
        entries.append({"label": choice.title, "change": change})
    layout = {
        "height": int(np.clip(1060.0 * frame.aspect, 380.0, 700.0)),
        "annotations": [{**bar_title("map"), "text": choices[0].title.replace(" ", "<br>")}],
        "meta": menu("Colour", entries),
        "xaxis": {"range": plotly_numbers([frame.low[0], frame.high[0]])},
        "yaxis": {"range": plotly_numbers([frame.low[1], frame.high[1]])},
    }
    return make_figure("map", data, layout)


def demand_figure(design: Design) -> Figure:
    """Two heat maps over the same pairs and with the same colours, so that they compare; grey: no market."""
    style, matrices = styles()["demand"], demand_matrices(design)
    count = len(matrices.labels)
    ticks = list(range(0, count, max(1, math.ceil(count / 30))))
    names = [plotly_text(shortened(matrices.labels[k], 16)) for k in ticks]
    axis = {**style["axis"], "tickvals": ticks, "ticktext": names}
    across = {**axis, "range": [-0.5, count - 0.5], "tickangle": 0 if max(map(len, names), default=0) <= 3 else -90}
    down = {**axis, "range": [count - 0.5, -0.5]}
    labels = [plotly_text(shortened(label, 24)) for label in matrices.labels]
    gap = 1 if count <= 40 else 0
    shared = {
        "text": [[f"{origin} → {destination}" for destination in labels] for origin in labels],
        "zmax": float(np.nanmax(matrices.demand, initial=0.0)) or 1.0,
        "colorscale": colour_scale(DEMAND_SCALE),
        **{"xgap": gap, "ygap": gap},
    }
    data = [
        {**style[name], **shared, "z": [plotly_numbers(row) for row in values]}
        for name, values in (("demand", matrices.demand), ("served", matrices.served))
    ]
    headings = [_heading(title, axis) for title, axis in zip(matrices.titles, ("x", "x2"), strict=True)]
    axes = {"xaxis": across, "yaxis": down, "xaxis2": across, "yaxis2": down}
    return make_figure("demand", data, {**axes, "annotations": [*headings, bar_title("demand")]})


def convergence_figure(design: Design) -> Figure:
    """The operator's utility by evaluation at both answers; dashed lines where gamma grew."""
    style, series = styles()["convergence"], convergence(design)
    curves = (
        ("exact", series.exact, {"color": EXACT, "width": 3}),
        ("penalised", series.penalised, {"color": PENALISED, "width": 2, "dash": "6px,3px"}),
    )
    data = [
        {
            **style["curve"],
            "mode": "lines" if len(series.evaluation) > 1 else "markers",
            "name": chart_text(name),
            "x": plotly_numbers(series.evaluation),
            "y": plotly_numbers(values),
            "customdata": plotly_numbers(series.gamma),
            "line": line,
            "marker": {"color": line["color"], "size": 8},
        }
        for name, values, line in curves
    ]
    stages = [{**style["stage"], "x0": start, "x1": start} for start, _ in series.stages[1:]]
    notes = [
        {**style["gamma"], "x": start, "text": f"γ = {number(gamma)}"}
        for start, gamma in labelled_stages(series, room=0.08)
    ]
    if not len(series.evaluation):
        notes = [_heading("no iteration was recorded")]
    return make_figure("convergence", data, {"shapes": stages, "annotations": notes})


def plotly_text(text: str) -> str:
    """A name from outside inside plotly.js, which turns tags and entities of text into markup."""
    from markupsafe import escape

    return str(escape(shortened(text, 60)))


# --- parts of the map ----------------------------------------------------------------------------------------------
def _scale_trace(choice: Colouring) -> dict[str, Any]:
    """The bar that explains the colours."""
    parts = (0.0, 0.25, 0.5, 0.75, 1.0)
    bar = {"tickvals": list(parts), "ticktext": [choice.tick(part) for part in parts]}
    return merged(
        styles()["map"]["scale"], {"marker": {"colorscale": colour_scale(UTILISATION_SCALE), "colorbar": bar}}
    )


def _link_traces(design: Design, frame: geometry.Frame, choice: Colouring) -> list[dict[str, Any]]:
    network, widths = design.network, link_widths(design.capacity)
    offsets = geometry.link_offsets(network, widths)
    used = np.round(_SHADES * np.clip(np.nan_to_num(choice.values, nan=-1.0, posinf=0.0), -1.0, 1.0))
    groups: dict[tuple[float, int], list[tuple[int, NDArray]]] = {}
    for a in np.flatnonzero(design.built):
        curve = geometry.link_curve(frame, int(network.tail[a]), int(network.head[a]), float(offsets[a]))
        groups.setdefault((round(2.0 * widths[a]) / 2.0, int(used[a])), []).append((int(a), curve))
    # Thin links on top of wide ones: none hides another.
    return [
        {
            **line_trace([curve for _, curve in drawn]),
            "line": {"width": width, "color": utilisation_colour(shade / _SHADES if shade >= 0 else math.nan)},
            "meta": [link for link, _ in drawn],
        }
        for (width, shade), drawn in sorted(groups.items(), key=lambda item: -item[0][0])
    ]


def _hover_trace(design: Design, frame: geometry.Frame) -> dict[str, Any]:
    """Invisible points along every link: plotly.js answers near points, not near lines."""
    network, used = design.network, shown_answer(design).utilisation
    offsets = geometry.link_offsets(network, link_widths(design.capacity))
    ends_of = list(zip(network.tail.tolist(), network.head.tolist(), strict=True))
    count = Counter(ends_of)
    twins = {a for a, pair in enumerate(ends_of) if count[pair] > 1}
    curves: list[NDArray] = []
    text: list[str] = []
    colour: list[str] = []
    links: list[int] = []
    for a, figures in enumerate(link_rows(design)):
        ends = int(network.tail[a]), int(network.head[a])
        # Directions that are not built share a line; their points stand apart, so that either can be asked.
        offset = max(float(offsets[a]), 4.0)
        curve = geometry.link_curve(frame, *ends, offset, geometry.curve_count(frame, *ends, spacing=24.0))[5:-5]
        curves.append(curve)
        names = [shortened(network.labels[node], 60) for node in ends]
        parallel = network.link_ids[a] if a in twins else ""
        text += [chart_text("link", *names, bool(design.built[a]), figures, parallel)] * len(curve)
        colour += [utilisation_colour(float(used[a])) if design.built[a] else FAINT] * len(curve)
        links += [a] * len(curve)
    x, y = np.concatenate(curves).T
    points = {
        "x": plotly_numbers(x),
        "y": plotly_numbers(y),
        "text": text,
        "customdata": links,
        "hoverlabel": {"bordercolor": colour},
    }
    return {**styles()["map"]["hover"], **points}


def _node_trace(design: Design, frame: geometry.Frame) -> dict[str, Any]:
    """Nodes with their labels: short ones inside, as on a metro map, longer ones beside, where there is room."""
    labels = geometry.map_labels(design.network)
    inside, dense, size = geometry.labels_inside(labels), len(labels) > geometry.DENSE, geometry.node_size(labels)
    letter = 12.0 if not dense else 10.0
    places: list[str | None] = ["inside"] * len(labels)
    if not inside:
        places = geometry.place_labels(
            frame, labels, geometry.link_points(design, frame), radius=size / 2, letter=letter
        )
    return {
        **styles()["map"]["nodes"],
        "x": plotly_numbers(frame.points[:, 0]),
        "y": plotly_numbers(frame.points[:, 1]),
        "text": [plotly_text(label) if place else "" for label, place in zip(labels, places, strict=True)],
        "textposition": [text_position(place or "right") for place in places],
        "textfont": {"size": (11 if not dense else 8) if inside else letter, "color": INK},
        "customdata": _node_texts(design),
        "marker": {"size": size, "color": "#ffffff", "line": {"color": INK, "width": 1.4}},
    }


def text_position(place: str) -> str:
    """One of the places of ``design_geometry``, as plotly.js calls it."""
    vertical = "top" if "above" in place else "bottom" if "below" in place else "middle"
    return f"{vertical} {'right' if 'right' in place else 'left' if 'left' in place else 'center'}"


def _node_texts(design: Design) -> list[str]:
    """What the map says about each node: how many depart and arrive, and how many want to."""
    network = design.network
    amounts = (network.demand * shown_answer(design).share, network.demand)
    sums = [
        [np.bincount(ends, amount, minlength=network.n_nodes) for amount in amounts]
        for ends in (network.origin, network.destination)
    ]
    names = zip(network.labels, map(str, network.nodes), strict=True)
    return [
        chart_text(
            "node", shortened(label, 60), shortened(key, 60), *((served[k], wanted[k]) for served, wanted in sums)
        )
        for k, (label, key) in enumerate(names)
    ]


def line_trace(curves: list[NDArray]) -> dict[str, Any]:
    """Many curves in one trace, a gap between each two."""
    gap = np.full((1, 2), np.nan)
    x, y = np.concatenate([np.zeros((0, 2)), *(part for curve in curves for part in (curve, gap))]).T
    return {**styles()["map"]["lines"], "x": plotly_numbers(x), "y": plotly_numbers(y)}


# --- parts of every chart ------------------------------------------------------------------------------------------
@cache
def styles() -> dict[str, Any]:
    """What never changes about charts."""
    found: dict[str, Any] = json.loads(files("blocc.report").joinpath("assets/charts.json").read_text("utf-8"))
    return found


def make_figure(name: str, data: list[dict[str, Any]], layout: dict[str, Any]) -> Figure:
    """A chart of this style, with what the layout says beside it."""
    everywhere = {"template": {"layout": styles()["all"]["layout"]}}
    return {"data": data, "layout": {**merged(styles()[name]["layout"], layout), **everywhere}}


def merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Both, and where both have an entry the second one; dictionaries inside are merged alike."""
    both = {key: merged(first[key], second[key]) for key in first if isinstance(second.get(key), dict)}
    return {**first, **second, **both}


def chart_text(macro: str, *values: Any) -> str:
    """Words for plotly.js out of the template for them; every value is escaped."""
    return str(getattr(environment().get_template("chart_text.html.j2").module, macro)(*values))


def _heading(words: str, axis: str = "") -> dict[str, Any]:
    """Above the panel of an axis; in the middle of a chart with nothing else in it where none is given."""
    place: dict[str, Any] = {"x": 0.5, "xref": "paper", "y": 0.5, "yref": "paper", "xanchor": "center"}
    if axis:
        place = {"x": 0.0, "xref": f"{axis} domain", "yref": f"{axis.replace('x', 'y')} domain", "xanchor": "left"}
    return {**styles()["all"]["heading"], **place, "text": words}


def menu(label: str, choices: list[dict[str, Any]], active: int = 0) -> dict[str, Any]:
    """A menu above a map: each choice has a label, and the change that ``Plotly.update`` makes of it."""
    return {"label": label, "choices": choices, "active": active}


def bar_title(name: str) -> dict[str, Any]:
    """The title of a colour bar; the one of plotly.js would touch the topmost tick."""
    return {**styles()["all"]["bar_title"], **styles()[name]["bar_title"]}


def colour_scale(colours: tuple[str, ...]) -> list[list[Any]]:
    """Colours at equal distances, as plotly.js takes them."""
    return [[k / (len(colours) - 1), colour] for k, colour in enumerate(colours)]


def plotly_numbers(values: ArrayLike) -> list[float | None]:
    """Eight digits: less than a pixel at any zoom, and half the size of the page; what is not finite is a gap."""
    return [float(f"{value:.8g}") if math.isfinite(value) else None for value in np.asarray(values, dtype=float)]
