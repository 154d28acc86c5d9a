"""One page that puts the designs of several scenarios side by side; offline, as all pages."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np

from blocc.kit.charts import Chart, Figure, Series, direction, plotly_numbers, plotly_text, styles
from blocc.kit.figure import BLUE, GREEN, ORANGE
from blocc.kit.map_geometry import frame_places, map_labels
from blocc.kit.network_map import NetworkMap, line_trace
from blocc.kit.page import (
    Block,
    KeyFigure,
    Page,
    PageTable,
    Section,
    chart,
    facts,
    fragment,
    sentences,
    table,
    typed_table,
    words,
)
from blocc.kit.text import number, value_text
from blocc.transport.design.scenario_result import ScenarioDesign, ScenarioDesigns
from blocc.transport.network.network import TransportNetwork

#: Blue and orange stay apart for the colour-blind; dashes tell them apart in grey as well.
MORE, LESS = BLUE, ORANGE
#: Of links on the map of differences, in pixels.
WIDTHS = (1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5)
#: Differences below this part of the largest capacity are rounding.
LEAST = 1e-6
_CURVES = ((BLUE, "circle"), (GREEN, "square"), ("#8C6D1F", "diamond"), ("#CC79A7", "triangle-up"))


def scenario_page(result: ScenarioDesigns) -> str:
    """The page as text."""
    network, curves = result.network, budget_curves(result)
    return Page(
        title=f"{network.name}: scenarios",
        heading=network.name,
        kicker=f"Scenarios of one network: {network.n_nodes:,} nodes, {network.n_links:,} candidate links, "
        f"{network.n_markets:,} markets",
        state=_state(result),
        colour="good" if result.success else "warn",
        figures=_figures(result),
        sections=[*_alerts(result), *_sections(result, curves)],
        footer="All figures are also in scenarios.csv and scenarios.json, each design in its own folder.",
        scripts=["scenarios.js"] if len(result) > 1 else (),
        data={"capacities-data": difference_data(result)} if len(result) > 1 else {},
    ).html()


def _alerts(result: ScenarioDesigns) -> list[Section]:
    again = "Not every scenario is done. The same call goes on from here."
    failed = [words(f"{name}: {error.splitlines()[0]}", "") for name, error in result.failed.items()]
    alerts = (("interrupted", [words(again, "")] if result.interrupted else []), ("failed", failed))
    return [Section(name, name.capitalize(), blocks=lines, is_alert=True) for name, lines in alerts if lines]


def _sections(result: ScenarioDesigns, curves: dict[str, list[ScenarioDesign]]) -> list[Section]:
    network = result.network
    money = f" (money: {network.units.money})" if network.units.money else ""
    sections = [
        Section(
            "table",
            "Side by side",
            f"Money and time as in the network{money}. A dash: not known, or withheld since the travellers’ answer is "
            "not certified. Each folder has the page of its own design, report.html.",
            [table(_table_of(result), "Scenarios side by side", "descending", "Filter", 1)],
            is_long=True,
        )
    ]
    if len(result) > 1:
        drawn = difference_map(network)
        shown = "Map of the links whose capacity differs between the two scenarios; the sentence above it counts them."
        sections.append(
            Section(
                "differences",
                "What is built differently",
                "Links whose capacity differs between two scenarios. Width shows the difference, the widest the "
                "largest "
                "one of the pair. Point at the middle of a link for its figures.",
                [
                    fragment("difference_tools.html.j2", names=[design.name for design in result]),
                    chart("difference", drawn.plotly(), shown, has_halo=drawn.has_halo),
                    fragment("difference_key.html.j2", more=MORE, less=LESS),
                ],
            )
        )
    if curves:
        note = (
            "The operator’s utility by budget, for scenarios that differ in the budget alone. A design without a "
            "budget "
            "stands at what it costs. A hollow mark: not certified."
        )
        sections.append(
            Section("money", "What money earns", note, [chart("budget", budget_figure(result), _budget_words(curves))])
        )
    changes = {design.name: _changes(design) for design in result}
    about = "What each of them changes: factors of the network’s figures, and options of the design."
    assumed: list[Block] = []
    for name, lines in _assumptions(result).items():
        assumed += [words(name, "h3"), sentences(lines)] if lines else []
    return [
        *sections,
        Section("changes", "The scenarios", about, [facts(changes)]),
        Section("assumptions", "What was assumed", blocks=assumed or [sentences(())]),
    ]


# --- charts -------------------------------------------------------------------------------------------------------
def difference_map(network: TransportNetwork) -> NetworkMap:
    """The map without any difference: a script fills in those of the two scenarios that are chosen.

    The traces of its own, in this order: all links, one of links with more capacity for each width, one with less
    likewise, and invisible points that answer the mouse.
    """
    style = styles()["map"]
    plain = NetworkMap(
        frame_places(network.coordinates, network.geographic),
        network.tail,
        network.head,
        map_labels(network.labels, network.nodes),
        np.full(network.n_links, WIDTHS[-1]),
        layers=(),
    )
    nothing: dict[str, Any] = {"x": [], "y": []}
    changed = [
        {**style["lines"], **nothing, "line": {"width": width, "color": colour, "dash": dash}}
        for colour, dash in ((MORE, "solid"), (LESS, "6px,2px"))
        for width in WIDTHS
    ]
    middle = np.array([curve[len(curve) // 2] for curve in plain.curves])
    points = {"x": plotly_numbers(middle[:, 0]), "y": plotly_numbers(middle[:, 1]), "text": [""] * network.n_links}
    own = [{**line_trace(plain.curves), **style["candidates"]}, *changed, {**style["hover"], **points}]
    return replace(plain, further=own)


def difference_data(result: ScenarioDesigns) -> dict[str, Any]:
    """What the script needs: the line and the name of each link, and its capacity in every scenario."""
    network = result.network
    curves = difference_map(network).curves
    ends = zip(network.tail.tolist(), network.head.tolist(), strict=True)
    return {
        "names": [plotly_text(design.name) for design in result],
        "links": [plotly_text(direction(network.labels[tail], network.labels[head]), 160) for tail, head in ends],
        "x": [plotly_numbers(curve[:, 0]) for curve in curves],
        "y": [plotly_numbers(curve[:, 1]) for curve in curves],
        "capacities": [plotly_numbers(design.capacity) for design in result],
        "widths": WIDTHS,
        "least": LEAST,
    }


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
    series = []
    for (name, group), (colour, symbol) in zip(budget_curves(result).items(), _CURVES * len(result), strict=False):
        points = []
        for design in group:
            is_limited, is_certified = math.isfinite(design.budget), not design.summary["withheld"]
            said = f"{plotly_text(design.name)}: {number(design.utility)}"
            said += ("" if is_limited else " (no budget)") + ("" if is_certified else ", not certified")
            place = design.budget if is_limited else design.summary["construction_cost"]
            points.append((place, design.utility, said, symbol + ("" if is_certified else "-open")))
        points.sort(key=lambda point: point[0])
        places, values, details, symbols = zip(*points, strict=True)
        style = {"mode": "lines+markers", "size": 9.0, "hover": "%{customdata}", "details": details}
        series.append(Series(name or "as it is", places, values, colour, symbols=list(symbols), **style))
    money = result.network.units.money
    return Chart(series, f"budget ({money})" if money else "budget", "operator’s utility", is_unified=False).plotly()


# --- words and figures -------------------------------------------------------------------------------------------
def _state(result: ScenarioDesigns) -> str:
    if result.interrupted:
        return "interrupted"
    return "all converged" if result.success else "not all converged"


def _figures(result: ScenarioDesigns) -> list[KeyFigure]:
    certified = [design for design in result if not design.summary["withheld"]]
    figures = [("Scenarios", number(len(result)), f"{len(result.failed)} failed" if result.failed else "all here")]
    if certified:
        best = max(certified, key=lambda design: design.utility)
        cheapest = min(certified, key=lambda design: float(design.summary["construction_cost"]))
        figures += [
            ("Largest utility", number(best.utility, 5), best.name),
            ("Least cost", number(cheapest.summary["construction_cost"], 5), cheapest.name),
        ]
    return figures


def _table_of(result: ScenarioDesigns) -> PageTable:
    """A row for each scenario; what is not certified is left out."""
    kinds = {"Scenario": "text", "Status": "text", "Certificate": "text"}
    figures = {"Utility": "utility", "Revenue": "revenue", "Cost": "construction_cost", "Budget": "budget"}
    figures |= {"Links built": "links_built", "Passengers": "passengers", "Time saved": "passenger_time_saved"}
    if any(design.row()["passenger_hours_saved"] is not None for design in result):
        figures["Hours saved"] = "passenger_hours_saved"
    figures |= {"Consumer surplus": "consumer_surplus", "Revenue over cost": "revenue_cost_ratio", "Seconds": "seconds"}
    rows: list[tuple[Any, ...]] = []
    for design in result:
        row = design.row()
        values = (math.nan if row[name] is None else row[name] for name in figures.values())
        certificate = row["certificate"] + (" (not certified)" if design.summary["withheld"] else "")
        rows.append((design.name, row["status"], certificate, *values))
    return typed_table("scenarios", kinds | dict.fromkeys(figures, ""), rows)


def _changes(design: ScenarioDesign) -> str:
    words = (f"{name} {value_text(value)}" for name, value in design.scenario.changes.items())
    return ", ".join(words) or "nothing"


def _assumptions(result: ScenarioDesigns) -> dict[str, list[str]]:
    """What was assumed for all, and for single scenarios beyond that."""
    common = list(result.network.assumptions)
    own = {design.name: [line for line in design.summary["assumptions"] if line not in common] for design in result}
    return {"all scenarios": common} | own


def _budget_words(curves: dict[str, list[ScenarioDesign]]) -> str:
    """The curve in words, for those who do not see it."""
    parts = []
    for name, group in curves.items():
        budgets = (f"with {number(design.budget)}" if design.budget < math.inf else "unlimited" for design in group)
        points = (f"{number(design.utility)} {budget}" for design, budget in zip(group, budgets, strict=True))
        parts.append(f"{name or 'as it is'}: {', '.join(points)}")
    return f"Utility by budget. {'; '.join(parts)}."
