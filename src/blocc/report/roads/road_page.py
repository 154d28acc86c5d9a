"""One page about a design of roads, complete in itself: it opens from a disk, offline, and sends no request."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blocc.report.format import duration, number, percent
from blocc.report.page import PageTable, plotly_script, render, write_html
from blocc.report.roads.road_charts import convergence_figure, map_figure
from blocc.report.roads.road_series import colourings
from blocc.report.transport.design_geometry import labels_inside, map_labels, width_samples
from blocc.report.transport.design_parts import typed_table, verdict
from blocc.result import Status
from blocc.roads.checks import MEANINGS, certificate_checks
from blocc.roads.documents import changed_links, design_link_rows
from blocc.roads.road_design import RoadDesign

MOST_LINKS = 500  #: of the table of candidates
MOST_FULL = 200

_COLUMNS = {
    "expansion": ("Expansion", ""),
    "toll": ("Toll", ""),
    "cost": ("Cost", ""),
    "marginal_value": ("Marginal value", ""),
    "volume_over_capacity_before": ("Volume / capacity before", "percent"),
    "volume_over_capacity_after": ("after", "percent"),
    "volume_before": ("Volume before", ""),
    "volume_after": ("Volume after", ""),
    "time_before": ("Time before", ""),
    "time_after": ("Time after", ""),
}


def write_report(design: RoadDesign, path: str | Path) -> Path:
    """Write the interactive page (one HTML file) and return its path; needs ``blocc[plot]``."""
    return write_html(report_page(design), path)


def report_page(design: RoadDesign) -> str:
    """The page as text."""
    network, checks, rows = design.network, certificate_checks(design), design_link_rows(design)
    decision = design.toll if design.kind == "tolls" else design.expansion
    candidates = np.flatnonzero(np.isfinite(design.marginal_value) | changed_links(design))
    candidates = candidates[np.argsort(-decision[candidates], kind="stable")]
    full = np.argsort(-np.nan_to_num(design.after.volume_over_capacity, posinf=0.0), kind="stable")
    chart = map_figure(design)
    return render(
        "road_design.html.j2",
        design=design,
        kicker=f"Roads: {network.n_nodes:,} nodes, {network.n_links:,} links, {network.n_pairs:,} pairs with trips",
        colour="good" if design.success else "bad" if design.status is Status.INFEASIBLE else "warn",
        figures=_key_figures(design),
        map=chart,
        map_halo=chart is not None and not labels_inside(map_labels(network)),
        widths=[(f"{width:.1f}", number(room, 3)) for width, room in width_samples(design.after.capacity)],
        convergence=convergence_figure(design),
        links=_links_table(design, rows, candidates[:MOST_LINKS], "links"),
        n_candidates=len(candidates),
        full=_links_table(design, rows, full[:MOST_FULL], "full-links"),
        words=_alternatives(design),
        checks=[(check, MEANINGS[check.name]) for check in checks],
        all_pass=all(check.verdict in ("pass", "no limit") for check in checks),
        verdict=verdict(checks),
        starts=_starts_table(design),
        plotly=plotly_script(),
    )


def _key_figures(design: RoadDesign) -> list[tuple[str, str, str]]:
    """Each with its title, its value and a detail."""
    before, after = design.before.total_travel_time, design.after.total_travel_time
    saved = percent((before - after) / before, 1) if before else "–"
    changed = int(changed_links(design).sum())
    if design.kind == "tolls":
        counted = "total travel time"
        own = [
            ("Links tolled", number(changed), f"of {design.network.n_links:,}"),
            ("Revenue", number(design.after.revenue, 5), "a transfer, not counted"),
        ]
    else:
        counted = "travel time and construction"
        own = [
            ("Construction cost", number(design.cost, 5), "of all expansions"),
            ("Links widened", number(changed), f"capacity {number(float(design.expansion.sum()))} in all"),
        ]
    return [
        ("Objective", number(design.objective, 6), counted),
        ("Proven bound", number(design.bound, 6), "no decision is below"),
        ("Proven gap", percent(design.gap, 2), "more cannot be gained"),
        ("Time before", number(before, 6), "total travel time"),
        ("Time after", number(after, 6), f"{saved} saved"),
        *own,
        ("Relative gap", number(design.relative_gap), "of the drivers’ equilibrium"),
        ("Computed in", duration(design.seconds), f"{design.evaluations:,} evaluations"),
    ]


def _links_table(
    design: RoadDesign, rows: list[dict[str, Any]], links: Sequence[int] | np.ndarray, name: str
) -> PageTable:
    """These links, in this order; without columns that this kind of design does not have."""
    left_out = ("expansion", "cost") if design.kind == "tolls" else () if design.toll.any() else ("toll",)
    columns = {field: column for field, column in _COLUMNS.items() if field not in left_out}
    kinds = dict.fromkeys(("Link", "From", "To"), "text") | dict(columns.values())
    return typed_table(
        name, kinds, [[rows[a][field] for field in ("link_id", "from", "to", *columns)] for a in map(int, links)]
    )


def _starts_table(design: RoadDesign) -> PageTable:
    kinds = {"Start": "", "Objective": "fine", "Evaluations": "", "Seconds": "exact"}
    return typed_table("starts-table", kinds, [(k, *start) for k, start in enumerate(design.starts, start=1)])


def _alternatives(design: RoadDesign) -> dict[str, str]:
    """What each chart shows, in a sentence for those who do not see it."""
    fullest = [choice.values.max() for choice in colourings(design)[:2]]
    bound = "" if design.bound is None else f"; no decision is below {number(design.bound, 6)}"
    return {
        "map": f"Map of the roads: {int(changed_links(design).sum())} links are changed; the fullest link has "
        f"{number(fullest[0], 3)} times its capacity before and {number(fullest[1], 3)} after.",
        "convergence": f"The objective by evaluation, down to {number(design.objective, 6)}{bound}.",
    }
