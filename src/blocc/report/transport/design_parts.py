"""What the page and the PDF of a design both show: key figures, the verdict in words, tables of links and markets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from blocc.kit.checks import CertificateRow
from blocc.report.format import aligned, decimals, number, percent, sort_key
from blocc.report.page import Cell, PageTable
from blocc.report.transport.design_series import clear_prices
from blocc.transport.design.checks import withheld
from blocc.transport.design.design_result import Design
from blocc.transport.design.documents import market_rows, shown_answer, totals

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


def key_figures(design: Design) -> list[tuple[str, str, str]]:
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


def _indicators(design: Design) -> list[tuple[str, str, str]]:
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


def verdict(checks: list[CertificateRow]) -> str:
    """How many checks pass, and which do not."""
    failed = [check.name for check in checks if check.passed is False]
    missing = [check.name for check in checks if check.verdict == "not measured"]
    lines = [f"{sum(check.passed is True for check in checks)} checks pass."]
    lines += [f"FAILED: {', '.join(failed)}."] if failed else []
    lines += [f"Not measured, since the run was stopped: {', '.join(missing)}."] if missing else []
    return " ".join(lines)


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
    fields = ("demand", "served", "share", "time", "alternative_time", "path_cost", "revenue")
    rows = []
    for k in markets:
        names = (network.labels[network.origin[k]], network.labels[network.destination[k]])
        rows.append((*names, *(every[k][field] for field in fields)))
    kinds = {"Origin": "text", "Destination": "text", "Demand": "", "Served": "", "Share": "percent"}
    times = {"Travel time": "", "Existing network": "", "Time with prices": ""}
    return typed_table("markets", {**kinds, **times, _with_unit("Revenue", network.units.money): ""}, rows)


def _with_unit(title: str, unit: str) -> str:
    return f"{title} ({unit})" if unit else title


def typed_table(name: str, kinds: dict[str, str], rows: Sequence[Sequence[Any]]) -> PageTable:
    """A table whose columns are shown as "text", as "percent", or as numbers.

    Numbers of a column share their decimals; "exact" ones keep their own, "fine" ones show more digits.
    """
    columns = [_column(kind, [row[k] for row in rows]) for k, kind in enumerate(kinds.values())]
    cells = [list(row) for row in zip(*columns, strict=True)]
    return PageTable(name, [(title, kind != "text") for title, kind in kinds.items()], cells)


def _column(kind: str, values: list[Any]) -> list[Cell]:
    if kind == "text":
        return [Cell(str(value)) for value in values]
    figures = [float(value) for value in values]
    if kind == "percent":
        words = [percent(figure, 1) for figure in figures]
    elif kind == "exact":
        words = [number(figure) for figure in figures]
    else:
        places = decimals(figures, 7 if kind == "fine" else 4)
        words = [aligned(figure, places) for figure in figures]
    return [Cell(text, sort_key(figure)) for text, figure in zip(words, figures, strict=True)]
