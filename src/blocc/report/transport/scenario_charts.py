"""The charts of the page of scenarios: the map of differences between two of them, and utility by budget."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.report.figure import BLUE, GREEN, INK, MUTED, ORANGE
from blocc.report.format import number
from blocc.report.transport import design_geometry as geometry
from blocc.report.transport.design_charts import (
    Figure,
    line_trace,
    make_figure,
    plotly_numbers,
    plotly_text,
    styles,
    text_position,
)
from blocc.transport.design.scenario_result import ScenarioDesign, ScenarioDesigns
from blocc.transport.network.network import TransportNetwork

if TYPE_CHECKING:
    from blocc.networks.model import Network

#: Blue and orange stay apart for the colour-blind; dashes tell them apart in grey as well.
MORE, LESS = BLUE, ORANGE
#: Of links on the map of differences, in pixels.
WIDTHS = (1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5)
#: Differences below this part of the largest capacity are rounding.
LEAST = 1e-6
_CURVES = ((BLUE, "circle"), (GREEN, "square"), ("#8C6D1F", "diamond"), ("#CC79A7", "triangle-up"))


def difference_figure(network: TransportNetwork) -> Figure:
    """The map without any difference: a script fills in those of the two scenarios that are chosen.

    In this order: all links, a trace of links with more capacity for each width, one with less likewise, invisible
    points that answer the mouse, and the nodes.
    """
    style = styles()["map"]
    frame = geometry.frame_network(network, 1060.0, 640.0)
    curves = link_curves(network, frame)
    nothing: dict[str, Any] = {"x": [], "y": []}
    changed = [
        {**style["lines"], **nothing, "line": {"width": width, "color": colour, "dash": dash}}
        for colour, dash in ((MORE, "solid"), (LESS, "6px,2px"))
        for width in WIDTHS
    ]
    middle = np.array([curve[len(curve) // 2] for curve in curves])
    points = {"x": plotly_numbers(middle[:, 0]), "y": plotly_numbers(middle[:, 1]), "text": [""] * len(curves)}
    data = [
        {**line_trace(curves), **style["candidates"]},
        *changed,
        {**style["hover"], **points},
        node_trace(network, frame, np.concatenate(curves)),
    ]
    layout = {
        "height": int(np.clip(1060.0 * frame.aspect, 380.0, 700.0)),
        "xaxis": {"range": plotly_numbers([frame.low[0], frame.high[0]])},
        "yaxis": {"range": plotly_numbers([frame.low[1], frame.high[1]])},
    }
    return make_figure("map", data, layout)


def difference_data(result: ScenarioDesigns) -> dict[str, Any]:
    """What the script needs: the line and the name of each link, and its capacity in every scenario."""
    network = result.network
    curves = link_curves(network, geometry.frame_network(network, 1060.0, 640.0))
    labels = [plotly_text(label) for label in network.labels]
    ends = zip(network.tail.tolist(), network.head.tolist(), strict=True)
    return {
        "names": [plotly_text(design.name) for design in result],
        "links": [f"{labels[tail]} → {labels[head]}" for tail, head in ends],
        "x": [plotly_numbers(curve[:, 0]) for curve in curves],
        "y": [plotly_numbers(curve[:, 1]) for curve in curves],
        "capacities": [plotly_numbers(design.capacity) for design in result],
        "widths": WIDTHS,
        "least": LEAST,
    }


def link_curves(network: TransportNetwork, frame: geometry.Frame) -> list[Float[NDArray, "points 2"]]:
    """The line of each link, the two directions of a street and parallel links beside each other."""
    seen: defaultdict[tuple[int, int], int] = defaultdict(int)
    curves = []
    for ends in zip(network.tail.tolist(), network.head.tolist(), strict=True):
        curves.append(geometry.link_curve(frame, *ends, geometry.GAP + WIDTHS[-1] * (0.5 + seen[ends])))
        seen[ends] += 1
    return curves


def budget_curves(result: ScenarioDesigns) -> dict[str, list[ScenarioDesign]]:
    """Designs that differ in the budget alone, the smallest budget first, under what they have in common.

    The last of them may have no budget. Where no two budgets differ there is no curve.
    """
    groups: defaultdict[str, list[ScenarioDesign]] = defaultdict(list)
    for design in result:
        others = {name: value for name, value in design.scenario.changes.items() if name != "budget"}
        groups[", ".join(f"{name} {value}" for name, value in others.items())].append(design)
    ordered = {name: sorted(group, key=lambda design: design.budget) for name, group in groups.items()}
    return {name: group for name, group in ordered.items() if len({design.budget for design in group}) > 1}


def budget_figure(result: ScenarioDesigns) -> Figure:
    """Utility by budget; a design without a budget stands at what it costs, beyond which money buys nothing more."""
    data = []
    for (name, group), (colour, symbol) in zip(budget_curves(result).items(), _CURVES * len(result), strict=False):
        limited = [float(np.isfinite(design.budget)) for design in group]
        places = [
            design.budget if np.isfinite(design.budget) else design.summary["construction_cost"] for design in group
        ]
        order = np.argsort(places, kind="stable")
        certified = [not design.summary["withheld"] for design in group]
        words = [
            f"{plotly_text(design.name)}: {number(design.utility)}" + ("" if limited[k] else " (no budget)")
            for k, design in enumerate(group)
        ]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": plotly_text(name or "as it is"),
                "x": plotly_numbers(np.array(places)[order]),
                "y": plotly_numbers(np.array([design.utility for design in group])[order]),
                "text": [words[k] + ("" if certified[k] else ", not certified") for k in order],
                "hovertemplate": "%{text}<extra></extra>",
                "line": {"color": colour, "width": 2},
                "marker": {
                    "color": colour,
                    "size": 9,
                    "symbol": [symbol + ("" if certified[k] else "-open") for k in order],
                },
            }
        )
    money = plotly_text(result.network.units.money)
    title = f"budget ({money})" if money else "budget"
    return make_figure("convergence", data, {"xaxis": {"title": {"text": title}}, "showlegend": len(data) > 1})


def node_trace(network: Network, frame: geometry.Frame, obstacles: Float[NDArray, "points 2"]) -> dict[str, Any]:
    """Nodes with their labels, which keep clear of these points where they can."""
    labels = geometry.map_labels(network)
    size, inside = geometry.node_size(labels), geometry.labels_inside(labels)
    places: list[str | None] = ["inside"] * len(labels)
    if not inside:
        places = geometry.place_labels(frame, labels, obstacles, radius=size / 2, letter=11.0)
    return {
        **styles()["map"]["nodes"],
        "x": plotly_numbers(frame.points[:, 0]),
        "y": plotly_numbers(frame.points[:, 1]),
        "text": [plotly_text(label) if place else "" for label, place in zip(labels, places, strict=True)],
        "textposition": [text_position(place or "right") for place in places],
        "textfont": {"size": 10 if inside else 11, "color": INK},
        "customdata": [plotly_text(label) for label in network.labels],
        "marker": {"size": size, "color": "#ffffff", "line": {"color": MUTED, "width": 1.4}},
    }
