"""An estimate of trips as a picture and as a page: counts and volumes, trips, residuals, the way to the answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc.kit.charts import Chart, Series, plotly_text
from blocc.kit.figure import BLUE, FAINT, MUTED, add_heading, keep_figure, new_figure
from blocc.kit.page import KeyFigure, PageTable, Section, answer_page, chart, record_table, table, typed_table
from blocc.kit.text import duration, number, percent, shortened
from blocc.report.road_report import TIMES, search_chart
from blocc.roads.checks import MEANINGS, answer_checks
from blocc.roads.demand_estimate import GOOD_GEH, DemandEstimate, geh

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 500  #: of a table
_WAYS = (("prior trips", MUTED), ("estimated trips", BLUE))


def plot_estimate(estimate: DemandEstimate, path: str | Path | None = None) -> Figure:
    """Draw counted against modelled volumes, prior against estimated trips, residuals, and the way to the answer.

    Written when ``path`` is given (.png, .pdf, .svg).
    """
    figure = new_figure(13.0, 10.0)
    panels: Any = figure.subplots(2, 2)
    for axes, one in zip(
        panels.ravel(),
        (fit_chart(estimate), _trips(estimate), _residuals(estimate), search_chart(estimate)),
        strict=True,
    ):
        one.draw(axes)
    facts = (
        f"{estimate.status.value}  ·  {number(estimate.prior.demand.sum(), 6)} trips before, "
        f"{number(estimate.demand.sum(), 6)} estimated  ·  GEH at most {number(estimate.geh.max(), 3)}"
    )
    add_heading(figure, f"{shortened(estimate.network.name, 60)}: trips from {len(estimate.count)} counts", facts)
    return keep_figure(figure, path)


def fit_chart(estimate: DemandEstimate) -> Chart:
    """Counted against modelled volumes, with the prior trips and with the estimated ones."""
    names = [plotly_text(str(estimate.network.link_ids[a])) for a in estimate.counted.tolist()]
    volumes = (estimate.fitted_before, estimate.fitted)
    hover = "link %{customdata}: %{x:.6g} counted, %{y:.6g} modelled"
    points = [
        Series(words, estimate.count, values, colour, "markers", size=7.0, hover=hover, details=names)
        for (words, colour), values in zip(_WAYS, volumes, strict=True)
    ]
    same = _diagonal("as counted", estimate.count, *volumes)
    return Chart([same, *points], "counted volume", "modelled volume", "Volumes of counted links", is_unified=False)


def _trips(estimate: DemandEstimate) -> Chart:
    pairs = Series("pairs", estimate.prior.demand, estimate.demand, BLUE, "markers", size=5.0)
    same = _diagonal("as before", estimate.prior.demand, estimate.demand)
    return Chart([same, pairs], "prior", "estimated", "Trips of pairs")


def _residuals(estimate: DemandEstimate) -> Chart:
    before = estimate.fitted_before - estimate.count
    order = np.argsort(before, kind="stable")
    places = np.arange(1, len(order) + 1)
    series = [
        Series(words, places, values[order], colour, "markers", size=5.0)
        for (words, colour), values in zip(_WAYS, (before, estimate.residual), strict=True)
    ]
    title, across = "Residuals: modelled less counted", "counts, in order of their residual before"
    return Chart(series, across, "volume", title, has_whole_x=True)


def _diagonal(words: str, *values: Any) -> Series:
    """The line on which both are the same."""
    most = 1.05 * max(float(np.max(one, initial=0.0)) for one in values) or 1.0
    return Series(words, [0.0, most], [0.0, most], FAINT, width=1.5, hover="")


# --- on a page ----------------------------------------------------------------------------------------------------
def report_page(estimate: DemandEstimate) -> str:
    """The page as text."""
    network, count = estimate.network, len(estimate.count)
    worst = [number(np.abs(one - estimate.count).max(), 4) for one in (estimate.fitted_before, estimate.fitted)]
    fit_words = (
        f"Counted against modelled volumes: off by at most {worst[0]} with the prior trips and by {worst[1]} with the "
        "estimated ones."
    )
    sections = [
        Section(
            "fit",
            "Counted and modelled volumes",
            "Every counted link, with the volume of the prior trips and with that of the estimated ones. On the line "
            "both are as counted. Point at a link for its figures.",
            [chart("fit", fit_chart(estimate).plotly(), fit_words)],
        ),
        Section(
            "counts",
            "Counts and residuals",
            "The worst fit first. The residual is the modelled volume less the count. GEH is made for volumes of one "
            f"hour; below 5 is a good fit.{_rest(count, 'counts')}",
            [table(_counts_table(estimate), "Counts and residuals", filter="Filter by name of link", cells=1)],
            is_long=True,
        ),
        Section(
            "totals",
            "Trips by origin",
            "Prior and estimated trips that begin at each node.",
            [table(_totals_table(estimate), "Trips by origin", filter="Filter by name of node", cells=1)],
            is_long=True,
        ),
        Section(
            "trips",
            "Trips by pair",
            f"The pairs whose trips changed most.{_rest(network.n_pairs, 'trips')}",
            [table(_trips_table(estimate), "Trips by pair", filter="Filter by name of node", cells=2)],
            is_long=True,
        ),
        Section(
            "convergence",
            "The way to the answer",
            "Every evaluation of the search. Only exact values count, at which no driver has a cheaper path. There "
            "is no "
            "bound: the problem is not convex, and other trips may explain the counts as well or better. What is "
            "certain "
            "is that no trips nearby do, and that drivers are in equilibrium.",
            [
                chart(
                    "convergence",
                    search_chart(estimate).plotly(),
                    f"The objective by evaluation, down to {number(estimate.objective, 6)}.",
                )
            ],
        ),
    ]
    return answer_page(
        estimate,
        kind="trips from counts",
        name=network.name,
        kicker=f"Roads: {network.n_nodes:,} nodes, {network.n_links:,} links, {network.n_pairs:,} pairs with trips, "
        f"{count:,} counts",
        figures=_key_figures(estimate),
        sections=sections,
        checks=answer_checks(estimate),
        meanings=MEANINGS,
        measured="All are measured at the estimated trips, with the drivers’ equilibrium assigned once more, and each "
        "should be below its limit.",
        assumed=f"Drivers know all times and take the cheapest path, time and toll, {TIMES}. What was filled in, "
        "multiplied, dropped or left unused:",
        assumptions=estimate.assumptions,
        files="estimate.json, summary.csv, trips.csv, counts.csv, links.csv and estimate.xlsx",
    ).html()


def _rest(count: int, table: str) -> str:
    return f" {table}.csv has all {count:,}." if count > MOST_ROWS else ""


def _key_figures(estimate: DemandEstimate) -> list[KeyFigure]:
    before, after = float(estimate.prior.demand.sum()), float(estimate.demand.sum())
    was, now = geh(estimate.fitted_before, estimate.count), estimate.geh
    changed = "more" if after >= before else "fewer"
    good = [int((values < GOOD_GEH).sum()) for values in (was, now)]
    return [
        ("Objective", number(estimate.objective, 6), "distance from prior and counts"),
        ("Distance from the prior", number(estimate.prior_distance, 5), "part of the objective"),
        ("Distance from the counts", number(estimate.count_distance, 5), "part of the objective"),
        ("Trips before", number(before, 6), "the prior"),
        ("Trips estimated", number(after, 6), f"{percent(abs(after / before - 1.0), 1)} {changed}"),
        ("Largest GEH", number(now.max(), 3), f"before {number(was.max(), 3)}"),
        (f"Counts with GEH below {GOOD_GEH:g}", number(good[1]), f"before {good[0]}, of {len(estimate.count):,}"),
        ("Bound", "none", "none is known for estimates"),
        ("Relative gap", number(estimate.relative_gap), "of the drivers’ equilibrium"),
        ("Computed in", duration(estimate.seconds), f"{estimate.evaluations:,} evaluations"),
    ]


def _counts_table(estimate: DemandEstimate) -> PageTable:
    figures = ("Counted", "With prior trips", "With estimated trips", "Residual", "GEH")
    rows = sorted(estimate.count_rows(), key=lambda row: -row["geh"])[:MOST_ROWS]
    kinds = {"Link": "text", **dict.fromkeys(figures, "")}
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
    order = np.argsort(-np.abs(change), kind="stable")[:MOST_ROWS].tolist()
    rows = estimate.demand_rows()
    columns = {
        **{"origin": ("Origin", "text"), "destination": ("Destination", "text"), "prior": ("Prior trips", "")},
        **{"demand": ("Estimated trips", ""), "change": ("Change", "")},
    }
    return record_table("trips-table", [{**rows[k], "change": float(change[k])} for k in order], columns)
