"""Assignments, designs and estimates of trips as files, and back again: what their tables and JSON files say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from blocc._lib.arrays import Bool, Float, NDArray
from blocc._lib.files import json_bytes
from blocc.kit.documents import Column, Columns, Document, Summary, Tables, layer_files, rows_of
from blocc.kit.records import column, decoded, picked
from blocc.kit.storage import ChangedError
from blocc.roads.assign import RoadAssignment
from blocc.roads.checks import answer_checks, assignment_checks, certificate_checks
from blocc.roads.demand_estimate import DemandEstimate
from blocc.roads.files import network_document, read_road_network
from blocc.roads.network import RoadNetwork
from blocc.roads.road_design import RoadDesign
from blocc.roads.verify_demand_estimate import verify_demand_estimate
from blocc.roads.verify_road_design import verify_road_design

Answer = RoadDesign | RoadAssignment | DemandEstimate

_TIME, _VOLUME, _WORTH = "time, as in the files", "vehicles, as in the files", "unit of the objective"


# --- tables --------------------------------------------------------------------------------------------------------
def _ends(name: str) -> Callable[[Answer], list[Any]]:
    return lambda answer: answer.network.ends(name)


def _twice(table: Mapping[str, tuple[str, str, str]], meanings: Mapping[str, str]) -> Columns:
    """Columns of both assignments; of what each is said by its whole name, or by its end."""
    return {
        f"{name}_{when}": Column(f"{when}.{source}", meanings.get(f"{name}_{when}", meanings.get(when, meaning)), unit)
        for name, (source, meaning, unit) in table.items()
        for when in ("before", "after")
    }


_FLOWS = {
    "volume": ("flow", "vehicles on it", _VOLUME),
    "volume_over_capacity": ("volume_over_capacity", "how full it is; above 1: overloaded", ""),
    "time": ("time", "at that volume, without tolls", _TIME),
}
_COSTS = {"path_cost": ("path_cost", "of the cheapest path, tolls and waiting included", _TIME)}
_DESIGNED = {
    "volume_before": "vehicles on it today",
    "volume_after": "vehicles on it with the design",
    "volume_over_capacity_before": "how full it is today; above 1: overloaded",
    "time_before": "at the volume of today, without tolls",
    "time_after": "at the volume with the design, without tolls",
    "path_cost_before": "of the cheapest path today, tolls included",
    "after": "the same with the design",
}
_ESTIMATED = {"before": "with the trips that were given", "after": "with the estimated trips"}
_COUNTED = Column("count", "as counted", _VOLUME)
_LINKS = {
    "link_id": Column("network.link_ids", "name of the link; its number in the table where the files have none"),
    "from": Column(_ends("tail"), "node where it begins"),
    "to": Column(_ends("head"), "node where it ends"),
    "length": Column("network.length", "as given; empty where it is not known", "as in the files"),
    "capacity": Column("network.capacity", "today", _VOLUME),
    "free_flow_time": Column("network.free_flow_time", "of the empty link", _TIME),
}
_PAIRS = {
    "origin": Column(_ends("origin"), "node where they begin"),
    "destination": Column(_ends("destination"), "node where they end"),
    "demand": Column("network.demand", "trips", _VOLUME),
}
_TOLL = {"toll": Column("toll", "what drivers pay, with what they paid before", _TIME)}
DESIGN_LINKS: Columns = {
    **_LINKS,
    "expansion": Column("expansion", "capacity that the design adds", _VOLUME),
    "cost": Column("cost_by_link", "of that expansion", _WORTH),
    **_TOLL,
    "marginal_value": Column(
        "marginal_value",
        "what one more unit of capacity (or of toll) on it would save, its cost not counted; empty: no candidate",
        _WORTH,
    ),
    **_twice(_FLOWS, _DESIGNED),
    "bound_expansion": Column(
        lambda design: _of_links(design, slice(None), design.bound_expansion),
        "what would be best if drivers did what suits the planner; it proves the bound",
        _VOLUME,
    ),
}
ESTIMATE_LINKS: Columns = {
    **_LINKS,
    "count": _COUNTED._replace(source=lambda estimate: _of_links(estimate, estimate.counted, estimate.count)),
    **_twice(_FLOWS, _ESTIMATED),
}
ASSIGNMENT_LINKS: Columns = {
    **_LINKS,
    "capacity": _LINKS["capacity"]._replace(source="capacity"),
    **_TOLL,
    **{name: Column(*said) for name, said in _FLOWS.items()},
    "waiting": Column("waiting", "before a link whose hard limit is reached", _TIME),
}
ESTIMATE_TRIPS: Columns = {
    **_PAIRS,
    "prior": Column("prior.demand", "trips that were given", _VOLUME),
    **_twice(_COSTS, _ESTIMATED),
}
COUNTS: Columns = {
    "link_id": Column(lambda one: [one.network.link_ids[place] for place in one.counted], "the counted link"),
    "count": _COUNTED,
    "prior": Column("fitted_before", "with the trips that were given", _VOLUME),
    "fitted": Column("fitted", "with the estimated trips", _VOLUME),
    "residual": Column("residual", "the volume with the estimated trips less the count", _VOLUME),
    "geh": Column("geh", "sqrt(2 residual^2 / (volume + count)); below 5 is usual for volumes of one hour"),
}


def _of_links(answer: Answer, at: Any, values: Any) -> Float[NDArray, "links"]:
    """Values of some links; NaN elsewhere, and everywhere where there are none."""
    found = np.full(answer.network.n_links, np.nan)
    found[at] = np.nan if values is None else values
    return found


def design_link_rows(design: RoadDesign) -> list[dict[str, Any]]:
    """Every link, before and after."""
    return rows_of(design, DESIGN_LINKS)


def changed_links(design: RoadDesign) -> Bool[NDArray, "links"]:
    """Which links the design changes."""
    return np.asarray((design.expansion > 0.0) | (design.toll != design.network.toll))


# --- what is said first --------------------------------------------------------------------------------------------
def _of_assignment(assignment: RoadAssignment) -> Summary:
    figures = picked(assignment, "objective", "total_travel_time", "revenue", "iterations", "n_paths")
    return _summary(assignment, figures, assignment_checks(assignment))


def _of_estimate(estimate: DemandEstimate) -> Summary:
    trips = {"trips_before": float(estimate.prior.demand.sum()), "trips_after": float(estimate.demand.sum())}
    figures = picked(estimate, "objective", "prior_distance", "count_distance") | trips
    return _summary(estimate, figures, answer_checks(estimate))


def _of_design(design: RoadDesign) -> Summary:
    before, after = design.before.total_travel_time, design.after.total_travel_time
    figures = {
        **picked(design, "objective", "bound", "gap"),
        "total_travel_time_before": before,
        "total_travel_time_after": after,
        "time_saved": before - after,
        "cost": design.cost,
        "revenue": design.after.revenue,
        "links_changed": int(changed_links(design).sum()),
    }
    return _summary(design, figures, certificate_checks(design))


def _summary(answer: Answer, figures: dict[str, Any], checks: list[Any]) -> Summary:
    return Summary(figures, checks, {"assumption": answer.network.assumptions})


# --- JSON ----------------------------------------------------------------------------------------------------------
#: Of an assignment, beside what its links and trips have.
_ASSIGNED = (
    *("objective", "total_travel_time", "revenue", "relative_gap", "wanted_gap", "principle", "message"),
    *("iterations", "n_paths", "seconds", "status", "gaps"),
)
_RUN = ("stationarity", "evaluations", "seconds", "settings", "versions")


def _head(answer: Answer, summary: Summary) -> dict[str, Any]:
    rows = {"checks": [check.row() for check in summary.checks], "assumptions": answer.network.assumptions}
    return {"network": answer.network.name, **picked(answer, "status", "message"), **summary.figures, **rows}


def _assigned(assignment: RoadAssignment) -> dict[str, Any]:
    return picked(assignment, *_ASSIGNED) | {"certificate": asdict(assignment.certificate)}


def _searched(answer: RoadDesign | DemandEstimate, summary: Summary, *more: str) -> dict[str, Any]:
    """What a search says: its head, and both assignments."""
    found = {"summary": _head(answer, summary) | picked(answer, *more, *_RUN), "history": answer.history}
    return found | {when: _assigned(getattr(answer, when)) for when in ("before", "after")}


def _files(answer: Answer, tables: Tables, stem: str) -> dict[str, bytes]:
    """The network, and its layers where nodes have places."""
    network = answer.network
    found = {"network.json": json_bytes(network_document(network), indent=None)}
    if not len(network.coordinates):
        return found
    layers = network.layers([{"id": key} for key in network.nodes], tables["links"])
    return found | layer_files(stem, layers)


def _design_files(design: RoadDesign, tables: Tables) -> dict[str, bytes]:
    from blocc.kit.figure import figure_image
    from blocc.report.road_report import (
        plot_design,  # that room stands on this one
        report_page,
    )

    files = _files(design, tables, "design") | {"report.html": report_page(design).encode(errors="replace")}
    return files | {"design.png": figure_image(plot_design(design))}


def _estimate_files(estimate: DemandEstimate, tables: Tables) -> dict[str, bytes]:
    from blocc.kit.figure import figure_image
    from blocc.report.estimate_report import plot_estimate, report_page

    files = _files(estimate, tables, "estimate") | {"report.html": report_page(estimate).encode(errors="replace")}
    return files | {"estimate.png": figure_image(plot_estimate(estimate))}


def _assignment_files(assignment: RoadAssignment, tables: Tables) -> dict[str, bytes]:
    from blocc.kit.figure import figure_image
    from blocc.report.road_report import plot_assignment

    picture = {"assignment.png": figure_image(plot_assignment(assignment))}
    return _files(assignment, tables, "assignment") | picture


# --- and back ------------------------------------------------------------------------------------------------------
def _network(document: Mapping[str, Any], source: Path, given: RoadNetwork | None) -> RoadNetwork:
    """The network that was given, or that beside a file; the document must be about its links and trips."""
    network = read_road_network(source.with_name("network.json")) if given is None else given
    named = {"links": ("link_id", "from", "to"), "trips": ("origin", "destination")}
    for table, own in (("links", network.link_rows()), ("trips", network.trip_rows())):
        ends = [[[row[end] for end in named[table]] for row in rows] for rows in (document[table], own)]
        if ends[0] != ends[1]:
            raise ChangedError(f"{source} is about another network: its links or its trips are others")
    return network


def _assignment(document: Mapping[str, Any], when: str, network: RoadNetwork, capacity: Any, toll: Any) -> Any:
    """An assignment out of a document."""
    links, said = document["links"], document[when]
    return decoded(
        RoadAssignment,
        said,
        network=network,
        capacity=capacity,
        toll=toll,
        flow=column(links, f"volume_{when}"),
        time=column(links, f"time_{when}"),
        path_cost=column(document["trips"], f"path_cost_{when}"),
        waiting=np.zeros(network.n_links),
        paths=None,
    )


def _design(document: Mapping[str, Any], source: Path, given: RoadNetwork | None = None) -> RoadDesign:
    links, network = document["links"], _network(document, source, given)
    expansion, toll, bound = (column(links, name) for name in ("expansion", "toll", "bound_expansion"))
    return decoded(
        RoadDesign,
        {**document["summary"], "starts": document["starts"], "history": document["history"]},
        {"gamma": np.inf},
        network=network,
        expansion=expansion,
        toll=toll,
        marginal_value=column(links, "marginal_value"),
        before=_assignment(document, "before", network, network.capacity, network.toll),
        after=_assignment(document, "after", network, network.capacity + expansion, toll),
        bound_expansion=None if np.isnan(bound).all() else bound,
    )


def _estimate(document: Mapping[str, Any], source: Path, given: RoadNetwork | None = None) -> DemandEstimate:
    summary, trips, network = document["summary"], document["trips"], _network(document, source, given)
    prior = replace(network, demand=column(trips, "prior"))
    after = replace(network, demand=column(trips, "demand"), assumptions=tuple(summary["assumptions"]))
    place = {key: position for position, key in enumerate(network.link_ids)}
    return decoded(
        DemandEstimate,
        {**summary, "history": document["history"]},
        {"gamma": np.inf},
        network=after,
        prior=prior,
        counted=np.array([place[row["link_id"]] for row in document["counts"]], dtype=np.int64),
        count=column(document["counts"], "count"),
        before=_assignment(document, "before", prior, network.capacity, network.toll),
        after=_assignment(document, "after", after, network.capacity, network.toll),
    )


# --- the three of them ---------------------------------------------------------------------------------------------
#: What is in the files and no check is about, and why.
_UNCHECKED = {
    "version": "of the format",
    "summary.evaluations": "of the run",
    "summary.seconds": "of the run",
    "summary.settings": "the question: limits and options are believed as they are stated",
    "summary.versions": "of the run",
    "starts": "of the run",
    "history": "of the run",
    **{
        f"{when}.{name}": reason
        for when in ("before", "after")
        for name, reason in {
            **dict.fromkeys(("iterations", "n_paths", "seconds", "gaps"), "of the run"),
            "wanted_gap": "the question",
            "certificate.complementarity": "of paths, which are not in the file",
        }.items()
    },
    "links.bound_expansion": "a witness: the bound is proven anew at it, whatever it is",
}
#: Held within a limit, since no other run leaves the same rounding.
_BOUNDED = {
    "summary.stationarity": "held within its limit",
    "links.marginal_value": "held within a thousandth of the largest",
    **{
        f"{when}.{name}": "held within its limit"
        for when in ("before", "after")
        for name in ("relative_gap", "certificate")
    },
}

ASSIGNMENT: Document[RoadAssignment] = Document(
    format="blocc-road-assignment",
    version=1,
    stem="assignment",
    writer="write_road_assignment",
    tables={"links": ASSIGNMENT_LINKS, "trips": {**_PAIRS, "path_cost": Column(*_COSTS["path_cost"])}},
    summary=_of_assignment,
    content=lambda one, summary: {"summary": _head(one, summary) | _assigned(one)},
    further=_assignment_files,
)
DESIGN: Document[RoadDesign] = Document(
    format="blocc-road-design",
    version=1,
    stem="design",
    writer="write_road_design",
    tables={"links": DESIGN_LINKS, "trips": {**_PAIRS, **_twice(_COSTS, _DESIGNED)}},
    summary=_of_design,
    content=lambda one, summary: _searched(one, summary, "kind") | {"starts": one.starts},
    further=_design_files,
    make=_design,
    check=verify_road_design,
    unchecked=_UNCHECKED,
    bounded=_BOUNDED,
)
ESTIMATE: Document[DemandEstimate] = Document(
    format="blocc-demand-estimate",
    version=1,
    stem="estimate",
    writer="write_demand_estimate",
    tables={"links": ESTIMATE_LINKS, "trips": ESTIMATE_TRIPS, "counts": COUNTS},
    summary=_of_estimate,
    content=_searched,
    further=_estimate_files,
    make=_estimate,
    check=verify_demand_estimate,
    unchecked=_UNCHECKED,
    bounded=_BOUNDED,
)
