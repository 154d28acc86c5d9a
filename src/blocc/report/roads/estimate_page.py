"""One page about an estimate of trips, complete in itself: it opens from a disk, offline, and sends no request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from blocc.report.figure import BLUE, FAINT, MUTED
from blocc.report.format import duration, number, percent
from blocc.report.page import PageTable, plotly_script, render, write_html
from blocc.report.roads.road_charts import convergence_figure
from blocc.report.transport.design_charts import Figure, make_figure, plotly_numbers, plotly_text
from blocc.report.transport.design_parts import typed_table, verdict
from blocc.roads.checks import MEANINGS, answer_checks
from blocc.roads.demand_estimate import GOOD_GEH, DemandEstimate, geh

MOST_ROWS = 500  #: of a table


def write_report(estimate: DemandEstimate, path: str | Path) -> Path:
    """Write the interactive page (one HTML file) and return its path; needs ``blocc[plot]``."""
    return write_html(report_page(estimate), path)


def report_page(estimate: DemandEstimate) -> str:
    """The page as text."""
    network, checks = estimate.network, answer_checks(estimate)
    return render(
        "demand_estimate.html.j2",
        estimate=estimate,
        kicker=f"Roads: {network.n_nodes:,} nodes, {network.n_links:,} links, {network.n_pairs:,} pairs with trips, "
        f"{len(estimate.count):,} counts",
        colour="good" if estimate.success else "warn",
        figures=_key_figures(estimate),
        fit=fit_figure(estimate),
        convergence=convergence_figure(estimate),
        counts=_counts_table(estimate),
        totals=_totals_table(estimate),
        trips=_trips_table(estimate),
        words=_alternatives(estimate),
        checks=[(check, MEANINGS[check.name]) for check in checks],
        all_pass=all(check.verdict in ("pass", "no limit") for check in checks),
        verdict=verdict(checks),
        plotly=plotly_script(),
    )


def fit_figure(estimate: DemandEstimate) -> Figure:
    """Counted against modelled volumes, with the prior trips and with the estimated ones."""
    names = [plotly_text(str(estimate.network.link_ids[a])) for a in estimate.counted.tolist()]
    volumes = {
        "prior trips": (MUTED, estimate.fitted_before),
        "estimated trips": (BLUE, estimate.fitted),
    }
    most = 1.05 * float(max(estimate.count.max(), *(values.max() for _, values in volumes.values()))) or 1.0
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "as counted",
            "x": plotly_numbers([0.0, most]),
            "y": plotly_numbers([0.0, most]),
            "line": {"color": FAINT, "width": 1.5},
            "hoverinfo": "skip",
        }
    ]
    for words, (colour, values) in volumes.items():
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": words,
                "x": plotly_numbers(estimate.count),
                "y": plotly_numbers(values),
                "customdata": names,
                "marker": {"color": colour, "size": 7, "opacity": 0.8},
                "hovertemplate": "link %{customdata}: %{x:.6g} counted, %{y:.6g} modelled<extra></extra>",
            }
        )
    across = {"title": {"text": "counted volume"}, "exponentformat": "none", "separatethousands": True}
    axes = {"xaxis": across, "yaxis": {"title": {"text": "modelled volume"}}}
    return make_figure("convergence", data, {**axes, "hovermode": "closest"})


def _key_figures(estimate: DemandEstimate) -> list[tuple[str, str, str]]:
    """Each with its title, its value and a detail."""
    before, after = float(estimate.prior.demand.sum()), float(estimate.demand.sum())
    was, now = geh(estimate.fitted_before, estimate.count), estimate.geh
    changed = "more" if after >= before else "fewer"
    good = [int((values < GOOD_GEH).sum()) for values in (was, now)]
    return [
        ("Objective", number(estimate.objective, 6), "distance from prior and counts"),
        ("Distance from the prior", number(estimate.prior_distance, 5), "part of the objective"),
        ("Distance from the counts", number(estimate.count_distance, 5), "part of the objective"),
        ("Trips before", number(before, 6), "the prior"),
        (
            "Trips estimated",
            number(after, 6),
            f"{percent(abs(after / before - 1.0), 1)} {changed}",
        ),
        ("Largest GEH", number(now.max(), 3), f"before {number(was.max(), 3)}"),
        (f"Counts with GEH below {GOOD_GEH:g}", number(good[1]), f"before {good[0]}, of {len(estimate.count):,}"),
        ("Bound", "none", "none is known for estimates"),
        ("Relative gap", number(estimate.relative_gap), "of the drivers’ equilibrium"),
        ("Computed in", duration(estimate.seconds), f"{estimate.evaluations:,} evaluations"),
    ]


def _counts_table(estimate: DemandEstimate) -> PageTable:
    kinds = {
        "Link": "text",
        "Counted": "",
        "With prior trips": "",
        "With estimated trips": "",
        "Residual": "",
        "GEH": "",
    }
    rows = sorted(estimate.count_rows(), key=lambda row: -row["geh"])[:MOST_ROWS]
    return typed_table("counts-table", kinds, [list(row.values()) for row in rows])


def _totals_table(estimate: DemandEstimate) -> PageTable:
    """Trips that begin at each origin."""
    network = estimate.network
    before, after = (
        np.bincount(network.origin, trips, network.n_nodes) for trips in (estimate.prior.demand, estimate.demand)
    )
    rows = [
        (network.nodes[node], before[node], after[node], after[node] / before[node] - 1.0)
        for node in np.unique(network.origin).tolist()
    ]
    kinds = {"Origin": "text", "Prior trips": "", "Estimated trips": "", "Change": "percent"}
    return typed_table("totals-table", kinds, rows[:MOST_ROWS])


def _trips_table(estimate: DemandEstimate) -> PageTable:
    """The pairs whose trips changed most."""
    change = estimate.demand - estimate.prior.demand
    order = np.argsort(-np.abs(change), kind="stable")[:MOST_ROWS]
    rows = estimate.demand_rows()
    kinds = {"Origin": "text", "Destination": "text", "Prior trips": "", "Estimated trips": "", "Change": ""}
    cells = [
        (rows[k]["origin"], rows[k]["destination"], rows[k]["prior"], rows[k]["demand"], float(change[k]))
        for k in order.tolist()
    ]
    return typed_table("trips-table", kinds, cells)


def _alternatives(estimate: DemandEstimate) -> dict[str, str]:
    """What each chart shows, in a sentence for those who do not see it."""
    worst = [np.abs(values - estimate.count).max() for values in (estimate.fitted_before, estimate.fitted)]
    return {
        "fit": f"Counted against modelled volumes: off by at most {number(worst[0], 4)} with the prior trips and by "
        f"{number(worst[1], 4)} with the estimated ones.",
        "convergence": f"The objective by evaluation, down to {number(estimate.objective, 6)}.",
    }
