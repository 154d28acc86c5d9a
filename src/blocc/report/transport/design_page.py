"""One page about a design, complete in itself: it opens from a disk, offline, and sends no request."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from blocc.networks.readers.raw import INVENTED
from blocc.report.format import number
from blocc.report.page import PageTable, plotly_script, render, write_html
from blocc.report.transport.design_charts import convergence_figure, demand_figure, map_figure
from blocc.report.transport.design_geometry import labels_inside, map_labels, width_samples
from blocc.report.transport.design_parts import (
    MEANINGS,
    key_figures,
    largest_flows,
    largest_prices,
    links_table,
    markets_table,
    typed_table,
    verdict,
)
from blocc.report.transport.design_series import demand_matrices
from blocc.report.transport.design_ways import flows_data
from blocc.result import Status
from blocc.transport.design.checks import certificate_checks, withheld
from blocc.transport.design.design_result import Design
from blocc.transport.design.documents import hints, totals

MOST_MARKETS = 500
MOST_LINKS = 20  #: by price
MOST_BUSY = 200
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
        figures=key_figures(design),
        map=map_figure(design),
        map_halo=not labels_inside(map_labels(network)),
        widths=[(f"{width:.1f}", number(capacity, 3)) for width, capacity in width_samples(design.capacity)],
        demand=demand_figure(design),
        left_out=demand_matrices(design).left_out,
        convergence=convergence_figure(design),
        links=links_table(design, "links", priced[:MOST_LINKS]),
        priced=len(priced),
        busy=links_table(design, "busy-links", busy[:MOST_BUSY]),
        markets=markets_table(design, markets),
        flows=flows_data(design, markets, {"links": priced[:MOST_LINKS], "busy-links": busy[:MOST_BUSY]}),
        words=_alternatives(design),
        invented=" ".join(line for line in network.assumptions if line.startswith(INVENTED)),
        withheld=missing,
        hints=hints(design),
        checks=[(check, MEANINGS[check.name]) for check in checks],
        all_pass=all(check.verdict in ("pass", "no limit") for check in checks),
        verdict=verdict(checks),
        what_if=_what_if_table(design),
        starts=_starts_table(design),
        versions={**design.versions, **seconds},
        plotly=plotly_script(),
    )


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
def _what_if_table(design: Design) -> PageTable:
    kinds = {"Gamma": "exact", "Utility at yg": "fine", "Utility at yF": "fine", "Distance yF to yg": "exact"}
    return typed_table("what-if-table", {**kinds, "Links built": "", "Seconds": "exact"}, design.what_if)


def _starts_table(design: Design) -> PageTable:
    rows = [(k, s.utility, s.status.value, *s[2:]) for k, s in enumerate(design.starts, start=1)]
    kinds = {"Start": "", "Utility": "fine", "Status": "text", "Links built": "", "Evaluations": "", "Seconds": "exact"}
    return typed_table("starts-table", kinds, rows)
