"""One page about a design, complete in itself: it opens from a disk, offline, and sends no request."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blocc.report.figure import PlotError
from blocc.report.format import aligned, decimals, number, percent, sort_key
from blocc.report.page import Cell, PageTable, render, write_html
from blocc.report.transport.design_charts import convergence_figure, demand_figure, map_figure
from blocc.report.transport.design_geometry import labels_inside, map_labels, width_samples
from blocc.report.transport.design_series import demand_matrices, market_rows, totals
from blocc.result import Status
from blocc.transport.design.design_result import Design

MOST_MARKETS = 500
MOST_LINKS = 20
_FAILURES = (Status.INFEASIBLE, Status.UNBOUNDED, Status.NOT_CONVEX, Status.NOT_FINITE)


def write_report(design: Design, path: str | Path) -> Path:
    """Write the interactive page (one HTML file) and return its path; needs ``blocc[plot]``."""
    return write_html(report_page(design), path)


def report_page(design: Design) -> str:
    """The page as text."""
    network = design.network
    wanted = design.settings.get("tolerance")
    known = isinstance(wanted, (int, float)) and not isinstance(wanted, bool)
    tolerance = number(wanted) if known else "not recorded"
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
        links=_links_table(design),
        priced=int((design.follower.price > 0).sum()),
        markets=_markets_table(design),
        tolerance=tolerance,
        utility_tolerance=f"{tolerance} × (1 + |utility|)" if known else tolerance,
        gamma_fixed=not isinstance(design.settings.get("gamma", "auto"), str),
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
    return [
        ("Operator’s utility", number(design.utility, 5), "revenue less cost"),
        ("Revenue", number(design.follower.revenue, 5), "paid by passengers"),
        ("Construction cost", number(design.follower.construction_cost, 5), "of all capacities"),
        ("Links built", number(int(design.built.sum())), f"of {design.network.n_links:,} candidates"),
        ("Demand served", served, f"{number(sums['served'])} of {number(sums['demand'])}"),
        ("Gamma", number(design.gamma), "weight of the penalty"),
        ("Time", f"{number(design.seconds.get('run'), 3)} s", compiling),
    ]


# --- tables --------------------------------------------------------------------------------------------------------
def _links_table(design: Design) -> PageTable:
    """The links with the largest prices."""
    network, follower = design.network, design.follower
    order = [int(a) for a in np.argsort(-np.nan_to_num(follower.price), kind="stable") if follower.price[a] > 0]
    columns = (follower.price, design.capacity, follower.flow, design.utilisation, network.cost)
    rows = [
        (network.labels[network.tail[a]], network.labels[network.head[a]], *(column[a] for column in columns))
        for a in order[:MOST_LINKS]
    ]
    kinds = {"From": "text", "To": "text", "Price": "", "Capacity": "", "Flow": "", "Used": "percent"}
    return _table("links", {**kinds, "Cost per unit": ""}, rows)


def _markets_table(design: Design) -> PageTable:
    """The markets with the largest demand."""
    network, every = design.network, market_rows(design)
    fields = ("demand", "served", "share", "time", "alternative_time", "path_cost", "revenue")
    rows = []
    for k in np.argsort(-network.demand, kind="stable")[:MOST_MARKETS].tolist():
        names = (network.labels[network.origin[k]], network.labels[network.destination[k]])
        rows.append((*names, *(every[k][field] for field in fields)))
    kinds = {"Origin": "text", "Destination": "text", "Demand": "", "Served": "", "Share": "percent"}
    times = {"Travel time": "", "Existing network": "", "Time with prices": ""}
    return _table("markets", {**kinds, **times, "Revenue": ""}, rows)


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
