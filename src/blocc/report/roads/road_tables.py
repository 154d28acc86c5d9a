"""An assignment, a design or an estimate of trips as rows: links, trips, the summary, and what the columns mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from blocc._lib.arrays import Bool, NDArray
from blocc.report.gis import Layers
from blocc.roads.assign import RoadAssignment
from blocc.roads.checks import answer_checks, assignment_checks, certificate_checks
from blocc.roads.demand_estimate import DemandEstimate
from blocc.roads.road_design import RoadDesign
from blocc.transport.design.checks import Check

Answer = RoadDesign | RoadAssignment | DemandEstimate

#: A column: its unit, and what it holds.
_TIME, _VOLUME = "time, as in the files", "vehicles, as in the files"
LINKS = {
    "link_id": ("", "name of the link; its number in the table where the files have none"),
    "from": ("", "node where it begins"),
    "to": ("", "node where it ends"),
    "length": ("as in the files", "as given; empty where it is not known"),
    "capacity": (_VOLUME, "today"),
    "free_flow_time": (_TIME, "of the empty link"),
    "expansion": (_VOLUME, "capacity that the design adds"),
    "cost": ("unit of the objective", "of that expansion"),
    "toll": (_TIME, "what drivers pay, with what they paid before"),
    "marginal_value": (
        "unit of the objective",
        "what one more unit of capacity (or of toll) on it would save, its cost not counted; empty: no candidate",
    ),
    "volume": (_VOLUME, "vehicles on it"),
    "volume_over_capacity": ("", "how full it is; above 1: overloaded"),
    "time": (_TIME, "at that volume, without tolls"),
    "waiting": (_TIME, "before a link whose hard limit is reached"),
    "volume_before": (_VOLUME, "vehicles on it today"),
    "volume_after": (_VOLUME, "vehicles on it with the design"),
    "volume_over_capacity_before": ("", "how full it is today; above 1: overloaded"),
    "volume_over_capacity_after": ("", "the same with the design"),
    "time_before": (_TIME, "at the volume of today, without tolls"),
    "time_after": (_TIME, "at the volume with the design, without tolls"),
    "bound_expansion": (
        _VOLUME,
        "what would be best if drivers did what suits the planner; it proves the bound",
    ),
}
COUNTS = {
    "link_id": ("", "the counted link"),
    "count": (_VOLUME, "as counted"),
    "prior": (_VOLUME, "with the trips that were given"),
    "fitted": (_VOLUME, "with the estimated trips"),
    "residual": (_VOLUME, "the volume with the estimated trips less the count"),
    "geh": ("", "sqrt(2 residual^2 / (volume + count)); below 5 is usual for volumes of one hour"),
}
#: In estimates, before and after are two sets of trips.
_ESTIMATE = {"before": "with the trips that were given", "after": "with the estimated trips"}
TRIPS = {
    "origin": ("", "node where they begin"),
    "destination": ("", "node where they end"),
    "demand": (_VOLUME, "trips"),
    "prior": (_VOLUME, "trips that were given"),
    "path_cost": (_TIME, "of the cheapest path, tolls and waiting included"),
    "path_cost_before": (_TIME, "of the cheapest path today, tolls included"),
    "path_cost_after": (_TIME, "the same with the design"),
}


def design_link_rows(design: RoadDesign) -> list[dict[str, Any]]:
    """Every link, before and after."""
    network, before, after = design.network, design.before, design.after
    nothing = np.full(network.n_links, np.nan)
    return network.link_rows(
        length=network.length,
        capacity=network.capacity,
        free_flow_time=network.free_flow_time,
        expansion=design.expansion,
        cost=design.cost_by_link,
        toll=design.toll,
        marginal_value=design.marginal_value,
        volume_before=before.flow,
        volume_after=after.flow,
        volume_over_capacity_before=before.volume_over_capacity,
        volume_over_capacity_after=after.volume_over_capacity,
        time_before=before.time,
        time_after=after.time,
        bound_expansion=nothing if design.bound_expansion is None else design.bound_expansion,
    )


def estimate_link_rows(estimate: DemandEstimate) -> list[dict[str, Any]]:
    """Every link, with the trips that were given and with the estimated ones."""
    network, before, after = estimate.network, estimate.before, estimate.after
    count = np.full(network.n_links, np.nan)
    count[estimate.counted] = estimate.count
    return network.link_rows(
        length=network.length,
        capacity=network.capacity,
        free_flow_time=network.free_flow_time,
        count=count,
        volume_before=before.flow,
        volume_after=after.flow,
        volume_over_capacity_before=before.volume_over_capacity,
        volume_over_capacity_after=after.volume_over_capacity,
        time_before=before.time,
        time_after=after.time,
    )


def assignment_link_rows(assignment: RoadAssignment) -> list[dict[str, Any]]:
    """Every link of an assignment."""
    network = assignment.network
    return network.link_rows(
        length=network.length,
        capacity=assignment.capacity,
        free_flow_time=network.free_flow_time,
        toll=assignment.toll,
        volume=assignment.flow,
        volume_over_capacity=assignment.volume_over_capacity,
        time=assignment.time,
        waiting=assignment.waiting,
    )


def figures_of(answer: Answer) -> dict[str, Any]:
    """The figures of an answer by their names."""
    if isinstance(answer, RoadAssignment):
        figures = ("objective", "total_travel_time", "revenue", "iterations", "n_paths")
        return {name: getattr(answer, name) for name in figures}
    if isinstance(answer, DemandEstimate):
        names = ("objective", "prior_distance", "count_distance")
        trips = {"trips_before": float(answer.prior.demand.sum()), "trips_after": float(answer.demand.sum())}
        return {name: getattr(answer, name) for name in names} | trips
    before, after = answer.before.total_travel_time, answer.after.total_travel_time
    return {
        "objective": answer.objective,
        "bound": answer.bound,
        "gap": answer.gap,
        "total_travel_time_before": before,
        "total_travel_time_after": after,
        "time_saved": before - after,
        "cost": answer.cost,
        "revenue": answer.after.revenue,
        "links_changed": int(changed_links(answer).sum()),
    }


def changed_links(design: RoadDesign) -> Bool[NDArray, "links"]:
    """Which links the design changes."""
    return np.asarray((design.expansion > 0.0) | (design.toll != design.network.toll))


def checks_of(answer: Answer) -> list[Check]:
    """The certificate, number by number."""
    if isinstance(answer, RoadAssignment):
        return assignment_checks(answer)
    return answer_checks(answer) if isinstance(answer, DemandEstimate) else certificate_checks(answer)


def summary_rows(answer: Answer) -> list[dict[str, Any]]:
    """An answer in a table: status, figures, the certificate with its verdicts, and what was assumed."""
    rows: list[dict[str, Any]] = [
        {"kind": "result", "name": "status", "value": answer.status.value},
        {"kind": "result", "name": "message", "value": answer.message},
    ]
    rows += [{"kind": "figure", "name": name, "value": value} for name, value in figures_of(answer).items()]
    for check in checks_of(answer):
        row = {"kind": "certificate", "name": check.name, "value": check.value}
        rows.append({**row, "limit": check.limit, "verdict": check.verdict})
    return rows + [{"kind": "assumption", "name": line} for line in answer.network.assumptions]


def tables_of(answer: Answer) -> dict[str, list[dict[str, Any]]]:
    """All tables by the names of their files."""
    tables: dict[str, list[dict[str, Any]]] = {}
    known = {"links": LINKS, "trips": TRIPS, "counts": COUNTS}
    if isinstance(answer, RoadAssignment):
        tables["links"] = assignment_link_rows(answer)
        tables["trips"] = answer.network.trip_rows(path_cost=answer.path_cost)
    elif isinstance(answer, DemandEstimate):
        tables |= {
            "links": estimate_link_rows(answer),
            "trips": answer.demand_rows(),
            "counts": answer.count_rows(),
        }
    else:
        costs = {"path_cost_before": answer.before.path_cost, "path_cost_after": answer.after.path_cost}
        tables |= {"links": design_link_rows(answer), "trips": answer.network.trip_rows(**costs)}
    columns = []
    for file, rows in tables.items():
        for name in rows[0]:
            unit, meaning = (known[file] | {"count": COUNTS["count"]})[name]
            when = _ESTIMATE.get(name.rpartition("_")[2]) if isinstance(answer, DemandEstimate) else None
            columns.append({"file": f"{file}.csv", "column": name, "unit": unit, "meaning": when or meaning})
    return {"summary": summary_rows(answer), **tables, "columns": columns}


def layers_of(answer: Answer, links: list[dict[str, Any]]) -> Layers:
    """What a GIS is told; only networks with coordinates have layers."""
    network = answer.network
    places = network.coordinates.tolist()
    ends = zip(network.tail.tolist(), network.head.tolist(), strict=True)
    return Layers(
        name=network.name,
        places=network.coordinates,
        geographic=network.geographic,
        crs="",
        nodes=[{"id": key} for key in network.nodes],
        links=links,
        lines=[[places[i], places[j]] for i, j in ends],
        assumptions=network.assumptions,
        units={},
    )
