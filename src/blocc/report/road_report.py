"""A design of roads, or an assignment, as a picture and as a page: how full links are, and the way to the answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.kit.charts import DIFFERENCE_SCALE, Chart, direction, steps_chart, tooltip
from blocc.kit.figure import add_heading, keep_figure, new_figure, style_axes
from blocc.kit.map_geometry import frame_places, link_widths, map_labels, width_samples
from blocc.kit.network_map import MARK, Layer, NetworkMap
from blocc.kit.page import (
    Block,
    KeyFigure,
    PageTable,
    Section,
    answer_page,
    chart,
    key,
    record_table,
    table,
    typed_table,
)
from blocc.kit.text import duration, number, percent, shortened
from blocc.roads.assign import RoadAssignment
from blocc.roads.checks import MEANINGS, certificate_checks
from blocc.roads.demand_estimate import DemandEstimate
from blocc.roads.documents import changed_links, design_link_rows
from blocc.roads.road_design import RoadDesign

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LINKS = 500  #: of the table of candidates
MOST_FULL = 200
TIMES = "at a time of link t0 (1 + b (volume / capacity)^power)"

_COLUMNS = {
    **{"link_id": ("Link", "text"), "from": ("From", "text"), "to": ("To", "text")},
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


# --- what is drawn ------------------------------------------------------------------------------------------------
def road_layers(answer: RoadDesign | RoadAssignment) -> list[Layer]:
    """Volume over capacity: of an assignment; or before and after a design, in the same colours, and the difference."""
    words = "volume over capacity"
    if isinstance(answer, RoadAssignment):
        full = _filled(answer)
        return [Layer.between(words, full, 0.0, _largest(full))]
    before, after = _filled(answer.before), _filled(answer.after)
    high, change = _largest(np.concatenate((before, after))), after - before
    most = float(np.max(np.abs(change), initial=0.0)) or 1.0
    widths = link_widths(answer.network.capacity)
    about = "difference (blue: emptier, orange: fuller)"
    return [
        Layer.between(f"{words} before", before, 0.0, high, words, widths=widths),
        Layer.between(f"{words} after", after, 0.0, high, words),
        Layer.between(about, change, -most, most, "difference", scale=DIFFERENCE_SCALE),
    ]


def _filled(assignment: RoadAssignment) -> Float[NDArray, "links"]:
    """How full links are; 0 where a connector has no capacity to fill."""
    return np.nan_to_num(assignment.volume_over_capacity, nan=0.0, posinf=0.0)


def _largest(values: Float[NDArray, "entries"]) -> float:
    """The end of the scale: one overloaded link among thousands shall not make all others pale."""
    return max(1.0, float(np.quantile(values, 0.995)))


def road_map(answer: RoadDesign | RoadAssignment) -> NetworkMap | None:
    """The map; None where the nodes have no places."""
    network, layers = answer.network, road_layers(answer)
    if not len(network.coordinates):
        return None
    design = answer if isinstance(answer, RoadDesign) else None
    return NetworkMap(
        frame_places(network.coordinates, network.geographic),
        network.tail,
        network.head,
        map_labels(network.labels, network.nodes),
        link_widths(answer.capacity if isinstance(answer, RoadAssignment) else answer.after.capacity),
        layers,
        link_words=(lambda: [_link_words(row, design.kind) for row in design_link_rows(design)]) if design else None,
        marked=np.flatnonzero(changed_links(design)).tolist() if design else (),
        active=len(layers) // 2,
    )


def _link_words(row: dict[str, Any], kind: str) -> str:
    added = f" + {number(row['expansion'])}" if row["expansion"] else ""
    ends = (f"{side} {number(row[f'{side}_before'])} → {number(row[f'{side}_after'])}" for side in ("volume", "time"))
    full = " → ".join(number(row[f"volume_over_capacity_{when}"], 3) for when in ("before", "after"))
    return tooltip(
        f"{direction(row['from'], row['to'])} (link {row['link_id']})",
        f"toll {number(row['toll'])}" if kind == "tolls" else f"capacity {number(row['capacity'])}{added}",
        next(ends),
        f"volume over capacity {full}",
        next(ends),
    )


def search_chart(answer: RoadDesign | DemandEstimate) -> Chart:
    """The objective by evaluation, and the bound; the range reaches to what changing nothing costs."""
    steps, bound = answer.history, answer.bound
    start = np.array([step.start for step in steps])
    exact = [step.value for step in steps if np.isinf(step.gamma)]
    low = min([answer.objective, *([] if bound is None else [bound])])
    high = exact[0] if exact and np.isinf(steps[0].gamma) else answer.objective
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return steps_chart(
        np.arange(1, len(steps) + 1),
        [step.value for step in steps],
        [step.gamma for step in steps],
        bound=bound,
        starts=(np.flatnonzero(np.diff(start)) + 2).tolist() if len(steps) else (),
        x="evaluation",
        y="objective",
        shown=(low - room, high + room),
    )


# --- on paper -----------------------------------------------------------------------------------------------------
def plot_design(design: RoadDesign, path: str | Path | None = None) -> Figure:
    """Draw how full links are before and after and the difference, and the objective against the bound.

    Links that the design widens or tolls have a green edge. Written when ``path`` is given (.png, .pdf, .svg).
    """
    figure = new_figure(13.0, 10.0)
    panels: Any = figure.subplots(2, 2)
    for choice, axes in enumerate((panels[0, 0], panels[0, 1], panels[1, 0])):
        _draw(axes, design, choice)
    search_chart(design).draw(panels[1, 1])
    proven = "" if design.gap is None else f"  ·  proven gap {percent(design.gap, 2)}"
    facts = (
        f"{design.status.value}  ·  objective {number(design.objective, 6)}{proven}  ·  "
        f"{int(changed_links(design).sum())} of {design.network.n_links} links changed (green edge)  ·  "
        f"{_saved(design)} of all time saved"
    )
    add_heading(figure, f"{shortened(design.network.name, 60)}: {design.kind}", facts)
    return keep_figure(figure, path)


def plot_assignment(assignment: RoadAssignment, path: str | Path | None = None) -> Figure:
    """Draw how full every link is. Written when ``path`` is given (.png, .pdf, .svg)."""
    figure = new_figure(9.0, 7.0)
    _draw(figure.add_subplot(), assignment, 0)
    facts = f"{assignment.status.value}  ·  total travel time {number(assignment.total_travel_time, 6)}"
    add_heading(figure, f"{shortened(assignment.network.name, 60)}: {assignment.principle}", facts)
    return keep_figure(figure, path)


def _draw(axes: Axes, answer: RoadDesign | RoadAssignment, choice: int) -> None:
    """A map, or where nodes have no places the figures in order of their size."""
    layer, drawn = road_layers(answer)[choice], road_map(answer)
    if drawn is not None:
        drawn.draw(axes, choice, title=layer.title)
        return
    from blocc.kit.charts import colour_map

    order = np.argsort(layer.values, kind="stable")
    axes.bar(np.arange(len(order)), layer.values[order], color=colour_map(layer.scale)(layer.values[order]), width=1.0)
    if isinstance(answer, RoadDesign) and changed_links(answer).any():
        at = np.flatnonzero(changed_links(answer)[order])
        axes.plot(at, layer.values[order][at], "v", color=MARK, markersize=5, label="changed by the design")
        axes.legend(frameon=False, fontsize=9)
    axes.set_yticks([0.0, 0.25, 0.5, 0.75, 1.0], list(layer.ticks))
    style_axes(axes, layer.title, x="links, in order (nodes have no places to draw a map of)", grid="y")


# --- on a page ----------------------------------------------------------------------------------------------------
def report_page(design: RoadDesign) -> str:
    """The page as text."""
    network, rows, is_toll = design.network, design_link_rows(design), design.kind == "tolls"
    decision = design.toll if is_toll else design.expansion
    candidates = np.flatnonzero(np.isfinite(design.marginal_value) | changed_links(design))
    candidates = candidates[np.argsort(-decision[candidates], kind="stable")]
    full = np.argsort(-np.nan_to_num(design.after.volume_over_capacity, posinf=0.0), kind="stable")[:MOST_FULL]
    verb = "tolled" if is_toll else "widened"
    widen = (
        "The marginal value is what one more unit of toll would save all drivers together; at an answer between its "
        "limits it is zero."
        if is_toll
        else "The marginal value is what one more unit of capacity would save all drivers together, their answer "
        "included; its own cost is not counted. At an answer between its limits it equals what that unit costs. It may "
        "be negative: more capacity can lead drivers astray."
    )
    reached = (
        ""
        if design.bound is None
        else " No decision at all can be below the dashed line: it is what could be reached if drivers did what suits "
        f"the planner. So the answer can be improved by {percent(design.gap, 2)} at most, and by less if drivers and "
        "planner cannot agree."
    )
    least = "" if design.bound is None else f"; no decision is below {number(design.bound, 6)}"
    started = "Where the search began, and the best exact value that each start reached."
    links = "Filter by name of link or node"
    sections = [
        _map_section(design),
        Section(
            "decision",
            f"What is {verb}",
            f"Links that may be {verb}. {widen}{_shown(len(candidates), MOST_LINKS, 'largest')}",
            [
                table(
                    _links_table(design, rows, candidates[:MOST_LINKS], "links"),
                    f"Links that may be {verb}",
                    "descending",
                    links,
                    3,
                )
            ],
            is_long=True,
        ),
        Section(
            "convergence",
            "The objective against the bound",
            "Every evaluation of the search. The penalised values are those of drivers who look after the planner a "
            "little; gamma grows until they look after themselves. Only exact values count, at which no driver has a "
            f"cheaper path.{reached}",
            [
                chart(
                    "convergence",
                    search_chart(design).plotly(),
                    f"The objective by evaluation, down to {number(design.objective, 6)}{least}.",
                )
            ],
        ),
        Section(
            "full",
            "Fullest links",
            f"How full links are with the design.{_shown(network.n_links, MOST_FULL, 'fullest')}",
            [table(_links_table(design, rows, full, "full-links"), "Fullest links", "descending", links, 3)],
            is_long=True,
        ),
    ]
    starts = Section(
        "starts",
        "Starts",
        started if design.starts else "No start came to its end.",
        is_long=True,
        blocks=[table(_starts_table(design), "Starts")] if design.starts else (),
    )
    return answer_page(
        design,
        kind=design.kind,
        name=network.name,
        kicker=f"Roads: {network.n_nodes:,} nodes, {network.n_links:,} links, {network.n_pairs:,} pairs with trips",
        figures=_key_figures(design),
        sections=sections,
        checks=certificate_checks(design),
        meanings=MEANINGS,
        measured="All are measured at the reported decision, with the drivers’ equilibrium assigned once more, and "
        "each "
        "should be below its limit.",
        assumed="Drivers know all times and take the cheapest path, time and toll; every trip is made, "
        f"{TIMES}. What was filled in, multiplied, dropped or left unused when the network was read:",
        assumptions=network.assumptions,
        after=[starts],
        files="design.json, summary.csv, links.csv, trips.csv and design.xlsx",
    ).html()


def _shown(count: int, most: int, which: str) -> str:
    return f" The {most} {which} of {count:,} are shown, links.csv has all." if count > most else ""


def _map_section(design: RoadDesign) -> Section:
    drawn = road_map(design)
    note = "The nodes have no places, so there is no map; the tables below have the figures of every link."
    blocks: list[Block] = []
    if drawn is not None:
        verb = "tolls" if design.kind == "tolls" else "widens"
        note = (
            "Width shows the capacity of a link with what is added, colour what the menu says: how full it is before "
            "or "
            f"after, or the difference. Links that the design {verb} have a green edge. Each direction runs on the "
            "right-hand side of its drivers. Point at a link for its figures; drag to move the map."
        )
        fullest = [number(_filled(one).max(), 3) for one in (design.before, design.after)]
        words = (
            f"Map of the roads: {int(changed_links(design).sum())} links are changed; the fullest link has "
            f"{fullest[0]} "
            f"times its capacity before and {fullest[1]} after."
        )
        samples = [(f"{width:.1f}", number(room, 3)) for width, room in width_samples(design.after.capacity)]
        blocks = [chart("map", drawn.plotly(), words, has_halo=drawn.has_halo), key("Capacity", samples)]
    return Section("map", "How full the roads are", note, blocks)


def _saved(design: RoadDesign) -> str:
    before = design.before.total_travel_time
    return percent((before - design.after.total_travel_time) / before, 1) if before else "–"


def _key_figures(design: RoadDesign) -> list[KeyFigure]:
    changed = number(int(changed_links(design).sum()))
    if design.kind == "tolls":
        counted = "total travel time"
        own = [
            ("Links tolled", changed, f"of {design.network.n_links:,}"),
            ("Revenue", number(design.after.revenue, 5), "a transfer, not counted"),
        ]
    else:
        counted = "travel time and construction"
        own = [
            ("Construction cost", number(design.cost, 5), "of all expansions"),
            ("Links widened", changed, f"capacity {number(float(design.expansion.sum()))} in all"),
        ]
    return [
        ("Objective", number(design.objective, 6), counted),
        ("Proven bound", number(design.bound, 6), "no decision is below"),
        ("Proven gap", percent(design.gap, 2), "more cannot be gained"),
        ("Time before", number(design.before.total_travel_time, 6), "total travel time"),
        ("Time after", number(design.after.total_travel_time, 6), f"{_saved(design)} saved"),
        *own,
        ("Relative gap", number(design.relative_gap), "of the drivers’ equilibrium"),
        ("Computed in", duration(design.seconds), f"{design.evaluations:,} evaluations"),
    ]


def _links_table(
    design: RoadDesign, rows: list[dict[str, Any]], links: Sequence[int] | NDArray, name: str
) -> PageTable:
    """These links, in this order; without columns that this kind of design does not have."""
    left_out = ("expansion", "cost") if design.kind == "tolls" else () if design.toll.any() else ("toll",)
    columns = {field: column for field, column in _COLUMNS.items() if field not in left_out}
    return record_table(name, [rows[int(a)] for a in links], columns)


def _starts_table(design: RoadDesign) -> PageTable:
    kinds = {"Start": "", "Objective": "fine", "Evaluations": "", "Seconds": "exact"}
    return typed_table("starts-table", kinds, [(k, *start) for k, start in enumerate(design.starts, start=1)])
