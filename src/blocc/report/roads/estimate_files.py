"""Estimates of trips on disk: tables, layers, a picture and a page, the network that carries the estimate, and back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from blocc._lib.digests import sealed
from blocc.report.roads.road_files import (
    VERSION,
    assignment_figures,
    column,
    files_of,
    head_of,
    load_answer,
    read_assignment,
    read_number,
    read_step,
)
from blocc.report.roads.road_tables import tables_of
from blocc.report.storage import write_files
from blocc.result import Status
from blocc.roads.demand_estimate import DemandEstimate
from blocc.roads.network import RoadNetwork

FORMAT = "blocc-demand-estimate"


def write_demand_estimate(estimate: DemandEstimate, folder: str | Path) -> list[Path]:
    """Write an estimate into ``folder`` (created where missing) and return the paths.

    ``estimate.json`` holds it all, ``network.json`` the network with the estimated trips, ``trips.csv`` prior and
    estimated trips of every pair, ``counts.csv`` every count with volumes before and after, ``links.csv`` every link
    likewise, ``summary.csv`` figures, certificate and assumptions, ``columns.csv`` what the columns mean,
    ``estimate.xlsx`` these tables in one workbook, ``report.html`` the interactive page, ``estimate.png`` the picture;
    and where the nodes have places ``estimate.geojson`` and ``estimate.gpkg``. Needs ``blocc[plot]``.
    """
    from blocc.report.figure import figure_image
    from blocc.report.roads.estimate_figures import plot_estimate
    from blocc.report.roads.estimate_page import report_page

    files = files_of(estimate, "estimate", estimate_document(estimate))
    files |= {"report.html": report_page(estimate).encode(errors="replace")}
    return write_files(folder, files | {"estimate.png": figure_image(plot_estimate(estimate))}, "the estimate")


def estimate_document(estimate: DemandEstimate) -> dict[str, Any]:
    """An estimate as JSON values, the content of ``estimate.json``."""
    tables = tables_of(estimate)
    document = {
        "format": FORMAT,
        "version": VERSION,
        "summary": {
            **head_of(estimate),
            "stationarity": estimate.stationarity,
            "evaluations": estimate.evaluations,
            "seconds": estimate.seconds,
            "settings": estimate.settings,
            "versions": estimate.versions,
        },
        "before": assignment_figures(estimate.before),
        "after": assignment_figures(estimate.after),
        **{name: tables[name] for name in ("links", "trips", "counts")},
        "history": [step._asdict() for step in estimate.history],
    }
    return sealed(document)


def load_estimate(path: str | Path, prior: RoadNetwork | None = None) -> DemandEstimate:
    """Read an estimate back.

    :param path: its folder, or the ``estimate.json`` in it
    :param prior: the roads with the trips that were given, in place of the ``network.json`` beside it
    """
    return load_answer(path, "estimate", FORMAT, "write_demand_estimate", prior, _estimate)


def _estimate(document: dict[str, Any], network: RoadNetwork) -> DemandEstimate:
    summary, links, trips = (document[name] for name in ("summary", "links", "trips"))
    roads = {"before": replace(network, demand=column(trips, "prior"))}
    roads["after"] = replace(network, demand=column(trips, "demand"), assumptions=tuple(summary["assumptions"]))
    place = {key: position for position, key in enumerate(network.link_ids)}
    assigned = {
        when: read_assignment(document[when], own, links, trips, when, network.capacity, network.toll)
        for when, own in roads.items()
    }
    names = ("objective", "prior_distance", "count_distance", "stationarity", "seconds")
    figures: dict[str, Any] = {name: read_number(summary[name]) for name in names}
    return DemandEstimate(
        network=roads["after"],
        prior=roads["before"],
        counted=np.array([place[row["link_id"]] for row in document["counts"]], dtype=np.int64),
        count=column(document["counts"], "count"),
        before=assigned["before"],
        after=assigned["after"],
        **figures,
        status=Status(summary["status"]),
        message=str(summary["message"]),
        history=tuple(read_step(row) for row in document["history"]),
        evaluations=int(summary["evaluations"]),
        settings=dict(summary["settings"]),
        versions=dict(summary["versions"]),
    )
