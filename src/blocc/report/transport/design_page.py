"""One page about a design, complete in itself: it opens from a disk, offline, and sends no request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blocc.report.figure import PlotError
from blocc.report.format import aligned, decimals, number, percent, sort_key
from blocc.report.page import Cell, PageTable, render, write_html
from blocc.report.transport.design_charts import convergence_figure, demand_figure, map_figure
from blocc.report.transport.design_geometry import labels_inside, map_labels, width_samples
from blocc.report.transport.design_series import (
    LEAST_PRICE,
    demand_matrices,
    hints,
    market_rows,
    shown_answer,
    totals,
)
from blocc.report.transport.design_ways import flows_data
from blocc.result import Status
from blocc.transport.design.checks import Check, certificate_checks, withheld
from blocc.transport.design.design_result import Design
from blocc.transport.network.readers.raw import INVENTED

MOST_MARKETS = 500
MOST_LINKS = 20  #: by price
MOST_BUSY = 200
_MEANINGS = {
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
_FAILURES = (Status.INFEASIBLE, Status.UNBOUNDED, Status.NOT_CONVEX, Status.NOT_FINITE)


def write_report(design: Design, path: str | Path) -> Path:
    """Write the interactive page (one HTML file) and return its path; needs ``blocc[plot]``."""
    return write_html(report_page(design), path)


def report_page(design: Design) -> str:
    """The page as text."""
    network, missing, checks = design.network, withheld(design), certificate_checks(design)
    priced, busy = largest_prices(design), largest_flows(design)
    markets = np.argsort(-network.demand, kind="stable")[:MOST_MARKETS].tolist()
    seconds = {f"seconds: {name}": number(value) for name, value in design.seconds.items()}
    return render(
        "design.html.j2",
        design=design,
        kicker=f"Network design: {network.n_nodes:,} nodes, {network.n_links:,} candidate links, "
        f"{network.n_markets:,} markets",
        colour="good" if design.success else "bad" if design.status in _FAILURES else "warn",
        figures=_figures(design),
        map=map_figure(design),
        map_halo=not labels_inside(map_labels(network)),
        widths=[(f"{width:.1f}", number(capacity, 3)) for width, capacity in width_samples(design.capacity)],
        demand=demand_figure(design),
        left_out=demand_matrices(design).left_out,
        convergence=convergence_figure(design),
        links=_links_table(design, "links", priced[:MOST_LINKS]),
        priced=len(priced),
        busy=_links_table(design, "busy-links", busy[:MOST_BUSY]),
        markets=_markets_table(design, markets),
        flows=flows_data(design, markets, {"links": priced[:MOST_LINKS], "busy-links": busy[:MOST_BUSY]}),
        words=_alternatives(design),
        invented=" ".join(line for line in network.assumptions if line.startswith(INVENTED)),
        withheld=missing,
        hints=hints(design),
        checks=[(check, _MEANINGS[check.name]) for check in checks],
        all_pass=all(check.verdict in ("pass", "no limit") for check in checks),
        verdict=_verdict(checks),
        what_if=_what_if_table(design),
        starts=_starts_table(design),
        versions={**design.versions, **seconds},
        plotly=_plotly(),
    )


def _plotly() -> Any:
    """plotly.js as text that is not escaped: it is trusted, but must not end its own element (a string in it may)."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise PlotError("the interactive page needs plotly: pip install 'blocc[plot]'") from error
    from markupsafe import Markup

    return Markup(get_plotlyjs().replace("</script", "<\\/script"))


def _figures(design: Design) -> list[tuple[str, str, str]]:
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


def _verdict(checks: list[Check]) -> str:
    """How many checks pass, and which do not."""
    failed = [check.name for check in checks if check.passed is False]
    missing = [check.name for check in checks if check.verdict == "not measured"]
    lines = [f"{sum(check.passed is True for check in checks)} checks pass."]
    lines += [f"FAILED: {', '.join(failed)}."] if failed else []
    lines += [f"Not measured, since the run was stopped: {', '.join(missing)}."] if missing else []
    return " ".join(lines)


def _alternatives(design: Design) -> dict[str, str]:
    """What each chart shows, in a sentence for those who do not see it."""
    network, sums = design.network, totals(design)
    largest = int(np.argmax(design.capacity))
    ends = f"{network.labels[network.tail[largest]]} to {network.labels[network.head[largest]]}"
    most = f", the largest from {ends} with capacity {number(design.capacity[largest])}" if design.built.any() else ""
    utility = -design.history.upper_value
    rise = f" from {number(utility[0])} to {number(utility[-1])}" if len(utility) else ""
    return {
        "map": f"Map of the network: {int(design.built.sum())} of {network.n_links} links are built{most}.",
        "demand": f"Two tables of passengers by origin and destination: a demand of {number(sums['demand'])}, of which "
        f"{number(sums['served'])} travel on the new network. The table of markets has the figures.",
        "convergence": f"The operator's utility by evaluation{rise}.",
    }


# --- tables --------------------------------------------------------------------------------------------------------
def largest_prices(design: Design) -> list[int]:
    """The links that have a price, the largest first."""
    price = np.nan_to_num(shown_answer(design).price)
    return [int(a) for a in np.argsort(-price, kind="stable") if price[a] > LEAST_PRICE]


def largest_flows(design: Design) -> list[int]:
    """The links that are built, the largest flow first."""
    return [int(a) for a in np.argsort(-np.nan_to_num(shown_answer(design).flow), kind="stable") if design.built[a]]


def _links_table(design: Design, name: str, links: Sequence[int]) -> PageTable:
    network, found = design.network, shown_answer(design)
    columns = (found.price, design.capacity, found.flow, found.utilisation, network.length, network.cost)
    ends = (network.tail, network.head)
    rows = [
        (network.link_ids[a], *(network.labels[end[a]] for end in ends), *(column[a] for column in columns))
        for a in links
    ]
    words, units = dict.fromkeys(("Link", "From", "To"), "text"), network.units
    kinds = {**words, "Price": "", "Capacity": "", "Flow": "", "Used": "percent"}
    kinds |= {_with_unit("Length", units.length): "", _with_unit("Cost per unit", units.money): ""}
    return _table(name, kinds, rows)


def _markets_table(design: Design, markets: Sequence[int]) -> PageTable:
    network, every = design.network, market_rows(design)
    fields = ("demand", "served", "share", "time", "alternative_time", "path_cost", "revenue")
    rows = []
    for k in markets:
        names = (network.labels[network.origin[k]], network.labels[network.destination[k]])
        rows.append((*names, *(every[k][field] for field in fields)))
    kinds = {"Origin": "text", "Destination": "text", "Demand": "", "Served": "", "Share": "percent"}
    times = {"Travel time": "", "Existing network": "", "Time with prices": ""}
    return _table("markets", {**kinds, **times, _with_unit("Revenue", network.units.money): ""}, rows)


def _with_unit(title: str, unit: str) -> str:
    return f"{title} ({unit})" if unit else title


def _what_if_table(design: Design) -> PageTable:
    kinds = {"Gamma": "exact", "Utility at yg": "fine", "Utility at yF": "fine", "Distance yF to yg": "exact"}
    return _table("what-if-table", {**kinds, "Links built": "", "Seconds": "exact"}, design.what_if)


def _starts_table(design: Design) -> PageTable:
    rows = [(k, s.utility, s.status.value, *s[2:]) for k, s in enumerate(design.starts, start=1)]
    kinds = {"Start": "", "Utility": "fine", "Status": "text", "Links built": "", "Evaluations": "", "Seconds": "exact"}
    return _table("starts-table", kinds, rows)


def _table(name: str, kinds: dict[str, str], rows: Sequence[Sequence[Any]]) -> PageTable:
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
