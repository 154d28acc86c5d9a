"""The page's tables: every word escaped, every number with the value to sort by."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from blocc.report.transport.design_rows import market_rows
from blocc.report.transport.design_style import aligned, decimals, number, percent
from blocc.transport.design.design_result import Design

MOST_MARKETS = 500
MOST_LINKS = 20


class Column(NamedTuple):
    """A column: its heading, and how its cells are shown (as "text", "percent", "exact", or as "number").

    Numbers of a column share their decimals; "exact" ones keep their own, "fine" ones show more digits.
    """

    title: str
    kind: str = "number"


def table(columns: Sequence[Column], rows: Sequence[Sequence[Any]], *, name: str = "", sortable: bool = True) -> str:
    """An HTML table; a click on a heading sorts it."""
    heads = "".join(_head(column, sortable) for column in columns)
    places = [_places(column.kind, [row[k] for row in rows]) for k, column in enumerate(columns)]
    lines = [
        "<tr>" + "".join(_cell(*cell) for cell in zip(row, (c.kind for c in columns), places, strict=True)) + "</tr>"
        for row in rows
    ]
    attributes = f' id="{name}"' if name else ""
    kind = ' class="sortable" data-first="descending"' if sortable else ""
    body = "\n".join(lines)
    content = f"<thead><tr>{heads}</tr></thead><tbody>\n{body}\n</tbody>"
    return f'<div class="scroll"><table{attributes}{kind}>{content}</table></div>'


def certificate_table(design: Design) -> str:
    """Every number of the certificate: what it is, how small it should be, and what it means."""
    c = design.certificate
    wanted = design.settings.get("tolerance")
    known = isinstance(wanted, (int, float)) and not isinstance(wanted, bool)
    tolerance = float(wanted) if isinstance(wanted, (int, float)) else math.nan
    outer = number(tolerance) if known else "not recorded"
    inner = "1e-6 × (1 + size)"
    utility = f"{outer} × (1 + |utility|)" if known else outer
    fixed = not isinstance(design.settings.get("gamma", "auto"), str)
    closed = "none, gamma is fixed" if fixed else utility
    rows = [
        (
            "Travellers’ choices: stationarity",
            c.stationarity,
            inner,
            "How far the flows are from the travellers’ own optimum. At 0 nobody gains by another route or mode.",
        ),
        (
            "Travellers’ choices: feasibility",
            c.feasibility,
            inner,
            "The largest overload of a link, or the largest number of passengers lost or invented at a station.",
        ),
        (
            "Travellers’ choices: complementarity",
            c.complementarity,
            inner,
            "Only full links may have a price. This is the largest price found on a link with room left "
            "(or the room left on a link with a price, if that is smaller).",
        ),
        (
            "Penalty gap",
            c.penalty_gap,
            closed,
            "The method optimises a penalised utility. This is how much that still differs from the true one.",
        ),
        (
            "Distance of the two answers",
            c.distance,
            "none",
            "How far the penalised answer yF is from what travellers really do, yg. It shrinks as gamma grows.",
        ),
        (
            "Capacities: stationarity",
            c.stationarity_x,
            utility,
            "How much a descent that began at these capacities still gained, in units of utility. At 0 no small change "
            "of the links that are built helps.",
        ),
        (
            "Capacities: radius",
            c.radius,
            "none",
            "Slopes within this distance of the capacities were combined, since the utility has kinks "
            "(0: just at the capacities).",
        ),
        (
            "Operator’s own limits",
            c.leader_violation,
            outer,
            "The largest violation of a constraint that the operator has besides the capacities (0: none).",
        ),
    ]
    columns = (
        Column("Check", "text"),
        Column("Value", "exact"),
        Column("Tolerance", "text"),
        Column("Meaning", "text"),
    )
    return table(columns, rows, sortable=False)


def valuable_links(design: Design) -> tuple[str, int]:
    """The links with the largest prices, and how many there are."""
    network, follower = design.network, design.follower
    order = [int(a) for a in np.argsort(-np.nan_to_num(follower.price), kind="stable") if follower.price[a] > 0]
    rows = [
        (
            network.labels[network.tail[a]],
            network.labels[network.head[a]],
            follower.price[a],
            design.capacity[a],
            follower.flow[a],
            design.utilisation[a],
            network.cost[a],
        )
        for a in order[:MOST_LINKS]
    ]
    columns = (
        Column("From", "text"),
        Column("To", "text"),
        Column("Price"),
        Column("Capacity"),
        Column("Flow"),
        Column("Used", "percent"),
        Column("Cost per unit"),
    )
    return table(columns, rows, name="links"), len(order)


def markets_table(design: Design) -> tuple[str, int]:
    """The markets with the largest demand, and how many markets are shown."""
    network = design.network
    order = np.argsort(-network.demand, kind="stable")[:MOST_MARKETS]
    every = market_rows(design)
    rows = []
    for k in order:
        row = every[int(k)]
        names = (network.labels[network.origin[k]], network.labels[network.destination[k]])
        figures = ("demand", "served", "share", "time", "alternative_time", "path_cost", "revenue")
        rows.append((*names, *(row[figure] for figure in figures)))
    columns = (
        Column("Origin", "text"),
        Column("Destination", "text"),
        Column("Demand"),
        Column("Served"),
        Column("Share", "percent"),
        Column("Travel time"),
        Column("Existing network"),
        Column("Time with prices"),
        Column("Revenue"),
    )
    return table(columns, rows, name="markets"), len(order)


def what_if_table(design: Design) -> str:
    """What other values of gamma would have given."""
    columns = (
        Column("Gamma", "exact"),
        Column("Utility at yg", "fine"),
        Column("Utility at yF", "fine"),
        Column("Distance yF to yg", "exact"),
        Column("Links built"),
        Column("Seconds", "exact"),
    )
    return table(columns, design.what_if)


def starts_table(design: Design) -> str:
    """Every random start and where it ended."""
    columns = (
        Column("Start"),
        Column("Utility", "fine"),
        Column("Status", "text"),
        Column("Links built"),
        Column("Evaluations"),
        Column("Seconds", "exact"),
    )
    rows = [(k, s.utility, s.status.value, *s[2:]) for k, s in enumerate(design.starts, start=1)]
    return table(columns, rows)


def facts_table(facts: dict[str, Any]) -> str:
    """Names and values, as they are."""
    rows = "".join(
        f'<tr><th scope="row">{html.escape(str(name))}</th><td>{html.escape(_words(value))}</td></tr>'
        for name, value in facts.items()
    )
    return f'<table class="facts"><tbody>{rows}</tbody></table>' if rows else '<p class="note">None recorded.</p>'


def _words(value: Any) -> str:
    if value is None:
        return "not set"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _head(column: Column, sortable: bool) -> str:
    kind = ' class="text"' if column.kind == "text" else ""
    title = html.escape(column.title)
    inner = f'<button type="button">{title}</button>' if sortable else title
    return f'<th scope="col"{kind}>{inner}</th>'


def _places(kind: str, values: list[Any]) -> int:
    if kind not in ("number", "fine"):
        return 0
    return decimals([float(value) for value in values], 7 if kind == "fine" else 4)


def _cell(value: Any, kind: str, places: int) -> str:
    if kind == "text":
        return f'<td class="text">{html.escape(str(value))}</td>'
    figure = float(value)
    shown = percent(figure, 1) if kind == "percent" else number(figure) if kind == "exact" else aligned(figure, places)
    key = "" if math.isnan(figure) else "Infinity" if figure == math.inf else f"{figure:.12g}"
    return f'<td data-v="{key}">{shown}</td>'
