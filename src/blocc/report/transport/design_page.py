"""One page about a design, complete in itself: it opens from a disk, offline, and sends no request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from blocc._lib.files import write_file
from blocc.kit.figure import PlotError
from blocc.kit.map_geometry import width_samples
from blocc.kit.page import (
    Block,
    KeyFigure,
    PageTable,
    Section,
    answer_page,
    chart,
    fragment,
    key,
    record_table,
    table,
    typed_table,
    words,
)
from blocc.kit.text import number, percent
from blocc.networks.readers.raw import INVENTED
from blocc.report.transport.design_charts import clear_prices, demand_figure, demand_matrices, design_map, utility_chart
from blocc.report.transport.design_ways import flows_data
from blocc.transport.design.checks import certificate_checks, withheld
from blocc.transport.design.design_result import Design
from blocc.transport.design.documents import hints, market_rows, shown_answer, totals

MOST_MARKETS = 500
MOST_LINKS = 20  #: by price
MOST_BUSY = 200

MEANINGS = {
    "travellers: stationarity": "How far the flows are from the travellers’ own optimum. At 0 nobody gains by "
    "another route or mode.",
    "travellers: feasibility": "The largest overload of a link, or the largest number of passengers lost or invented "
    "at a station.",
    "travellers: complementarity": "Only full links may have a price. This is the largest price found on a link with "
    "room left (or the room left on a link with a price, if that is smaller).",
    "penalty gap": "The method optimises a penalised utility. This is how much that still differs from the true one.",
    "distance of yF to y": "How far the penalised answer yF is from what travellers really do, yg. It shrinks as gamma "
    "grows.",
    "capacities: gain left": "How much a descent that began at these capacities still gained, in units of utility. "
    "At 0 no small change of the links that are built helps.",
    "operator's own limits": "The largest violation of a constraint that the operator has besides the capacities.",
}


def write_report(design: Design, path: str | Path) -> Path:
    """Write the interactive page (one HTML file) and return its path; needs ``blocc[plot]``."""
    return write_file(path, report_page(design).encode(errors="replace"), PlotError)


def report_page(design: Design) -> str:
    """The page as text."""
    network, priced, busy = design.network, largest_prices(design), largest_flows(design)
    markets = np.argsort(-network.demand, kind="stable")[:MOST_MARKETS].tolist()
    rows: dict[str, Sequence[int]] = {"links": priced[:MOST_LINKS], "busy-links": busy[:MOST_BUSY]}
    flows = flows_data(design, markets, rows)
    alerts = [("withheld", "Not certified", [withheld(design)] if withheld(design) else [])]
    alerts.append(("hints", "Why nothing is built", hints(design)))
    sections = [
        *(
            Section(name, title, blocks=[words(line, "") for line in lines], is_alert=True)
            for name, title, lines in alerts
            if lines
        ),
        _map_section(design, has_flows=flows is not None),
        *_demand_sections(design),
        _valuable_section(design, priced),
        *([_busy_section(design, busy)] if flows else []),
        _market_section(design, markets, has_flows=flows is not None),
    ]
    return answer_page(
        design,
        kind="network design",
        name=network.name,
        kicker=about(design),
        figures=key_figures(design),
        sections=sections,
        checks=certificate_checks(design),
        meanings=MEANINGS,
        measured="All are measured at the reported design, and each should be below its limit.",
        assumed="What was filled in, multiplied, dropped, invented or left unused when the network was read.",
        assumptions=network.assumptions,
        after=_search_sections(design),
        versions={**design.versions, **{f"seconds: {name}": number(value) for name, value in design.seconds.items()}},
        files="design.json, summary.csv, links.csv, markets.csv and design.xlsx",
        scripts=["flows.js"] if flows else (),
        data={"flows-data": flows} if flows else {},
    ).html()


# --- sections -----------------------------------------------------------------------------------------------------
def about(design: Design) -> str:
    """What a design is about, in a line."""
    network = design.network
    sizes = f"{network.n_nodes:,} nodes, {network.n_links:,} candidate links, {network.n_markets:,} markets"
    return f"Network design: {sizes}"


def _map_section(design: Design, *, has_flows: bool) -> Section:
    network, drawn = design.network, design_map(design)
    largest = int(np.argmax(design.capacity))
    ends = f"{network.labels[network.tail[largest]]} to {network.labels[network.head[largest]]}"
    most = f", the largest from {ends} with capacity {number(design.capacity[largest])}" if design.built.any() else ""
    note = (
        "Width shows the capacity of a link, colour what the menu says: how much of it is used, its flow or its price. "
        "Each direction runs on the right-hand side of its travellers. Point at a link or a station for its figures; "
        "drag to move the map."
    )
    if has_flows:
        note += (
            " Click a link to see who uses it, here or in a table below; click a market in its table (or press Enter "
            "there) to see its ways; Escape clears."
        )
    note += "" if design.built.any() else " Nothing is built."
    note = " ".join([note, *(line for line in network.assumptions if line.startswith(INVENTED))])
    shown = f"Map of the network: {int(design.built.sum())} of {network.n_links} links are built{most}."
    samples = [(f"{width:.1f}", number(capacity, 3)) for width, capacity in width_samples(design.capacity)]
    blocks: list[Block] = [chart("map", drawn.plotly(), shown, has_halo=drawn.has_halo)]
    blocks.append(key("Capacity", samples, "candidate, not built"))
    blocks += [fragment("flow_tools.html.j2")] if has_flows else []
    return Section("map", "The network", note, blocks)


def _demand_sections(design: Design) -> list[Section]:
    """Who travels, and how the utility was reached."""
    sums, utility = totals(design), -design.history.upper_value
    rise = f" from {number(utility[0])} to {number(utility[-1])}" if len(utility) else ""
    left_out = demand_matrices(design).left_out
    few = f" {left_out} nodes with the least demand are left out." if left_out else ""
    demand = (
        f"Two tables of passengers by origin and destination: a demand of {number(sums['demand'])}, of which "
        f"{number(sums['served'])} travel on the new network. The table of markets has the figures."
    )
    return [
        Section(
            "demand",
            "Who wants to travel, and who does",
            f"Passengers from each origin to each destination, in the same colours. Grey: there is no market.{few}",
            [chart("demand", demand_figure(design), demand)],
        ),
        Section(
            "convergence",
            "How the utility was reached",
            "The operator’s utility while the capacities were improved. The method looks at a penalised answer of the "
            "travellers (yF) and drives it to their own (yg) by raising gamma; at the end the two curves should meet.",
            [chart("convergence", utility_chart(design).plotly(), f"The operator's utility by evaluation{rise}.")],
        ),
    ]


def _valuable_section(design: Design, priced: list[int]) -> Section:
    name, title = "valuable", "Most valuable links"
    if withheld(design):
        return Section(name, title, "Left out: the travellers’ answer is not certified, so prices are not theirs.")
    if not priced:
        return Section(name, title, "No link has a price: nowhere does capacity hold travellers up.")
    measured = (
        "Of a link that is not built it was measured: what the travellers save, per unit, when a capacity of "
        f"{design.price_unit:.3g} is added there and their answer is solved again. Only the most promising of these "
        "links were measured; the others are not listed."
        if design.price_unit
        else "Links that are not built were not measured, and are not listed."
    )
    cut = f" The {MOST_LINKS} largest of {len(priced):,} are shown, links.csv has all."
    note = (
        "The price of a link is what one more unit of its capacity would save the travellers. It is the multiplier of "
        f"the capacity, and zero where there is room left. {measured}{cut if len(priced) > MOST_LINKS else ''}"
    )
    shown = links_table(design, "links", priced[:MOST_LINKS])
    return Section(name, title, note, [table(shown, title, "descending")], is_long=True)


def _busy_section(design: Design, busy: list[int]) -> Section:
    cut = f" The {MOST_BUSY} with the largest flow are shown, links.csv has all." if len(busy) > MOST_BUSY else ""
    note = (
        "Passengers on each link that is built. Choose a link to see the markets that use it most, and on the map the "
        f"ways of those that are listed below.{cut}"
    )
    shown = links_table(design, "busy-links", busy[:MOST_BUSY])
    block = table(shown, "Busiest links", "descending", "Filter by name of link or station", 3)
    return Section("busy", "Busiest links", note, [block], is_long=True)


def _market_section(design: Design, markets: Sequence[int], *, has_flows: bool) -> Section:
    count, note = (
        design.network.n_markets,
        (
            "Travel time is the mean of those who use the new network; time with prices adds what full links cost. A "
            "dash "
            "means that nobody travels, ∞ that there is no path."
        ),
    )
    if count > len(markets):
        note += f" The {len(markets):,} with the largest demand are shown, markets.csv has all {count:,}."
        note += " Ways are known of these alone." if has_flows else ""
    if has_flows:
        note += (
            " Only the sums over the destinations of one origin decide times and prices, so ways are one division of "
            "these sums among many: passengers who meet at a node have come over its links in the same proportions, "
            "wherever they go. Ways of less than 0.1 % of a market are left out."
        )
    block = table(markets_table(design, markets), "Markets", "descending", "Filter by origin or destination", 2)
    return Section("market-list", "Markets", note, [block], is_long=True)


def _search_sections(design: Design) -> list[Section]:
    """Other values of gamma that were tried, and the starts."""
    gammas = {"Gamma": "exact", "Utility at yg": "fine", "Utility at yF": "fine", "Distance yF to yg": "exact"}
    what_if = typed_table("what-if-table", {**gammas, "Links built": "", "Seconds": "exact"}, design.what_if)
    rows = [(k, s.utility, s.status.value, *s[2:]) for k, s in enumerate(design.starts, start=1)]
    kinds = {"Start": "", "Utility": "fine", "Status": "text", "Links built": "", "Evaluations": "", "Seconds": "exact"}
    tried = (
        "What the design would have been for other values of gamma, each continued from the one before. Where gamma is "
        "too small, the method believes in a utility (at yF) that the travellers (at yg) do not deliver."
    )
    begun = "The search began at several random link prices; the best end is the design above."
    return [
        Section(
            "what-if",
            "Another gamma",
            tried if design.what_if else "No other gamma was tried.",
            [table(what_if, "Another gamma", "descending")] if design.what_if else (),
        ),
        Section(
            "starts",
            "Starts",
            begun if design.starts else "No start was recorded.",
            [table(typed_table("starts-table", kinds, rows), "Starts", "descending")] if design.starts else (),
            is_long=True,
        ),
    ]


# --- what the page and the PDF both show --------------------------------------------------------------------------
def key_figures(design: Design) -> list[KeyFigure]:
    """Each with its title, its value and a detail."""
    sums, compiled = totals(design), design.seconds.get("compile")
    served = percent(sums["served"] / sums["demand"]) if sums["demand"] else "–"
    compiling = "" if compiled is None else f"and {number(compiled, 3)} s to compile"
    money = design.network.units.money
    certified = "not certified" if withheld(design) else ""
    return [
        ("Operator’s utility", number(design.utility, 5), certified or f"revenue less cost {money}"),
        ("Revenue", number(design.follower.revenue, 5), certified or f"paid by passengers {money}"),
        ("Construction cost", number(design.follower.construction_cost, 5), f"of all capacities {money}"),
        ("Links built", number(int(design.built.sum())), f"of {design.network.n_links:,} candidates"),
        ("Demand served", served, f"{number(sums['served'])} of {number(sums['demand'])}"),
        *([] if certified else _indicators(design)),
        ("Gamma", number(design.gamma), "weight of the penalty"),
        ("Time", f"{number(design.seconds.get('run'), 3)} s", compiling),
    ]


def _indicators(design: Design) -> list[KeyFigure]:
    found = design.indicators
    saved = ("Passenger time saved", number(found.passenger_time_saved), "disutility, against the existing network")
    if math.isfinite(found.passenger_hours_saved):
        saved = ("Passenger-hours saved", number(found.passenger_hours_saved), "against the existing network")
    return [
        ("Passengers", number(found.passengers), "on the new network"),
        saved,
        ("Consumer surplus", number(found.consumer_surplus), "of the logit, in disutility"),
        ("Revenue over cost", number(found.revenue_cost_ratio), "1: construction is just paid"),
    ]


def largest_prices(design: Design) -> list[int]:
    """The links that have a price, the largest first."""
    price = np.nan_to_num(clear_prices(design))
    return [int(a) for a in np.argsort(-price, kind="stable") if price[a] > 0.0]


def largest_flows(design: Design) -> list[int]:
    """The links that are built, the largest flow first."""
    return [int(a) for a in np.argsort(-np.nan_to_num(shown_answer(design).flow), kind="stable") if design.built[a]]


def links_table(design: Design, name: str, links: Sequence[int]) -> PageTable:
    """These links, in this order; lengths only where some are known."""
    network, found, price = design.network, shown_answer(design), clear_prices(design)
    lengths = (network.length,) if np.isfinite(network.length).any() else ()
    columns = (price, design.capacity, found.flow, found.utilisation, *lengths, network.cost)
    ends = (network.tail, network.head)
    rows = [
        (network.link_ids[a], *(network.labels[end[a]] for end in ends), *(column[a] for column in columns))
        for a in links
    ]
    words, units = dict.fromkeys(("Link", "From", "To"), "text"), network.units
    kinds = {**words, "Price": "", "Capacity": "", "Flow": "", "Used": "percent"}
    kinds |= {_with_unit("Length", units.length): ""} if lengths else {}
    kinds |= {_with_unit("Cost per unit", units.money): ""}
    return typed_table(name, kinds, rows)


def markets_table(design: Design, markets: Sequence[int]) -> PageTable:
    """These markets, in this order."""
    network, every = design.network, market_rows(design)
    rows = [
        {
            **every[k],
            "origin": network.labels[network.origin[k]],
            "destination": network.labels[network.destination[k]],
        }
        for k in markets
    ]
    columns = {
        **{"origin": ("Origin", "text"), "destination": ("Destination", "text"), "demand": ("Demand", "")},
        **{"served": ("Served", ""), "share": ("Share", "percent"), "time": ("Travel time", "")},
        **{"alternative_time": ("Existing network", ""), "path_cost": ("Time with prices", "")},
        "revenue": (_with_unit("Revenue", network.units.money), ""),
    }
    return record_table("markets", rows, columns)


def _with_unit(title: str, unit: str) -> str:
    return f"{title} ({unit})" if unit else title
