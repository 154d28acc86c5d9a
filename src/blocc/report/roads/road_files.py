"""Assignments and designs of roads on disk, and designs back again.

Every file is plain data. In JSON what is not finite is null, in tables an empty cell. A JSON file carries a digest of
what it says, so that a careless change is noticed; who recomputes the digest can write anything, and
:func:`blocc.roads.verify_road_design` is there for that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.digests import sealed
from blocc._lib.files import json_bytes
from blocc._lib.tables import csv_bytes
from blocc.report.gis import geojson, geopackage_bytes
from blocc.report.roads.road_tables import Answer, checks_of, figures_of, layers_of, tables_of
from blocc.report.storage import ChangedError, StorageError, read_document, write_files
from blocc.report.workbook import workbook_bytes
from blocc.result import Status
from blocc.roads.assign import AssignmentCertificate, RoadAssignment
from blocc.roads.files import network_document, read_road_network
from blocc.roads.network import RoadNetwork
from blocc.roads.road_design import RoadDesign
from blocc.roads.search import Start, Step

A = TypeVar("A", bound=Answer)

DESIGN, ASSIGNMENT = "blocc-road-design", "blocc-road-assignment"
VERSION = 1

#: Of an assignment, beside what its links and trips have.
_PLAIN = ("objective", "total_travel_time", "revenue", "relative_gap", "wanted_gap", "principle", "message")
_COUNTS = ("iterations", "n_paths", "seconds")


# --- writing -------------------------------------------------------------------------------------------------------
def write_road_design(design: RoadDesign, folder: str | Path) -> list[Path]:
    """Write everything about a design into ``folder`` (created where missing) and return the paths.

    ``design.json`` holds it all, ``network.json`` the network as it was designed, ``links.csv`` and ``trips.csv`` its
    tables, ``summary.csv`` its figures, certificate and assumptions, ``columns.csv`` what the columns mean,
    ``design.xlsx`` all of these in one workbook, ``report.html`` the interactive page, ``design.png`` the picture; and
    where the nodes have places ``design.geojson`` and ``design.gpkg`` for a GIS. Each file appears complete or not at
    all; needs ``blocc[plot]``.
    """
    from blocc.report.figure import figure_image
    from blocc.report.roads.road_figures import plot_design
    from blocc.report.roads.road_page import report_page

    files = files_of(design, "design", design_document(design))
    files |= {"report.html": report_page(design).encode(errors="replace")}
    return write_files(folder, files | {"design.png": figure_image(plot_design(design))}, "the design")


def write_road_assignment(assignment: RoadAssignment, folder: str | Path) -> list[Path]:
    """Write everything about an assignment into ``folder`` (created where missing) and return the paths.

    The same files as of a design, called ``assignment``, without the page; needs ``blocc[plot]``.
    """
    from blocc.report.figure import figure_image
    from blocc.report.roads.road_figures import plot_assignment

    files = files_of(assignment, "assignment", assignment_document(assignment))
    return write_files(folder, files | {"assignment.png": figure_image(plot_assignment(assignment))}, "the assignment")


def files_of(answer: Answer, name: str, document: dict[str, Any]) -> dict[str, bytes]:
    """Everything about an answer but its picture and its page."""
    tables = tables_of(answer)
    files = {
        f"{name}.json": json_bytes(document),
        "network.json": json_bytes(network_document(answer.network), indent=None),
        **{f"{table}.csv": csv_bytes(rows) for table, rows in tables.items()},
        f"{name}.xlsx": workbook_bytes(tables),
    }
    if len(answer.network.coordinates):
        layers = layers_of(answer, tables["links"])
        files |= {
            f"{name}.geojson": json_bytes(geojson(layers), indent=None),
            f"{name}.gpkg": geopackage_bytes(layers),
        }
    return files


def design_document(design: RoadDesign) -> dict[str, Any]:
    """A design as JSON values, the content of ``design.json``."""
    tables = tables_of(design)
    document = {
        "format": DESIGN,
        "version": VERSION,
        "summary": {
            **head_of(design),
            "kind": design.kind,
            "stationarity": design.stationarity,
            "evaluations": design.evaluations,
            "seconds": design.seconds,
            "settings": design.settings,
            "versions": design.versions,
        },
        "before": assignment_figures(design.before),
        "after": assignment_figures(design.after),
        "links": tables["links"],
        "trips": tables["trips"],
        "starts": [start._asdict() for start in design.starts],
        "history": [step._asdict() for step in design.history],
    }
    return sealed(document)


def assignment_document(assignment: RoadAssignment) -> dict[str, Any]:
    """An assignment as JSON values, the content of ``assignment.json``."""
    tables = tables_of(assignment)
    document = {
        "format": ASSIGNMENT,
        "version": VERSION,
        "summary": head_of(assignment) | assignment_figures(assignment),
        "links": tables["links"],
        "trips": tables["trips"],
    }
    return sealed(document)


def head_of(answer: Answer) -> dict[str, Any]:
    """What every document says first."""
    return {
        "network": answer.network.name,
        "status": answer.status.value,
        "message": answer.message,
        **figures_of(answer),
        "checks": [{**check._asdict(), "verdict": check.verdict} for check in checks_of(answer)],
        "assumptions": list(answer.network.assumptions),
    }


def assignment_figures(assignment: RoadAssignment) -> dict[str, Any]:
    """An assignment within a document, beside what its links and trips have."""
    found = {name: getattr(assignment, name) for name in (*_PLAIN, *_COUNTS)}
    certificate = asdict(assignment.certificate)
    return found | {"status": assignment.status.value, "certificate": certificate, "gaps": list(assignment.gaps)}


# --- reading -------------------------------------------------------------------------------------------------------
def load_design(path: str | Path, network: RoadNetwork | None = None) -> RoadDesign:
    """Read a design back.

    :param path: its folder, or the ``design.json`` in it
    :param network: in place of the ``network.json`` beside it
    """
    return load_answer(path, "design", DESIGN, "write_road_design", network, _design)


def load_answer(
    path: str | Path,
    name: str,
    known_format: str,
    writer: str,
    network: RoadNetwork | None,
    make: Callable[[dict[str, Any], RoadNetwork], A],
) -> A:
    """What a document says, made into an answer.

    :raises StorageError: where it is damaged; a ``ChangedError`` where it was changed, or is about another network
    """
    source = Path(path)
    source = source / f"{name}.json" if source.is_dir() else source
    document = read_document(source, known_format, VERSION, writer)
    roads = read_road_network(source.with_name("network.json")) if network is None else network
    try:
        named = {"links": ("link_id", "from", "to"), "trips": ("origin", "destination")}
        for table, own in (("links", roads.link_rows()), ("trips", roads.trip_rows())):
            ends = [[[row[end] for end in named[table]] for row in rows] for rows in (document[table], own)]
            if ends[0] != ends[1]:
                raise ChangedError(f"{source} is about another network: its links or its trips are others")
        return make(document, roads)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"{source} is damaged: {type(error).__name__}: {error!s:.200}") from error


def _design(document: dict[str, Any], network: RoadNetwork) -> RoadDesign:
    summary, links, trips = (document[name] for name in ("summary", "links", "trips"))
    expansion, toll, bound = (column(links, name) for name in ("expansion", "toll", "bound_expansion"))
    given = {"before": (network.capacity, network.toll), "after": (network.capacity + expansion, toll)}
    figures: dict[str, Any] = {
        name: read_number(summary[name]) for name in ("objective", "cost", "stationarity", "seconds")
    }
    figures |= {name: None if summary[name] is None else read_number(summary[name]) for name in ("bound", "gap")}
    for when, (capacity, tolls) in given.items():
        figures[when] = read_assignment(document[when], network, links, trips, when, capacity, tolls)
    return RoadDesign(
        network=network,
        kind=str(summary["kind"]),
        expansion=expansion,
        toll=toll,
        marginal_value=column(links, "marginal_value"),
        **figures,
        status=Status(summary["status"]),
        message=str(summary["message"]),
        starts=tuple(_start(row) for row in document["starts"]),
        history=tuple(read_step(row) for row in document["history"]),
        evaluations=int(summary["evaluations"]),
        settings=dict(summary["settings"]),
        versions=dict(summary["versions"]),
        bound_expansion=None if np.isnan(bound).all() else bound,
    )


def read_assignment(
    said: dict[str, Any],
    network: RoadNetwork,
    links: list[dict[str, Any]],
    trips: list[dict[str, Any]],
    when: str,
    capacity: Float[NDArray, "links"],
    toll: Float[NDArray, "links"],
) -> RoadAssignment:
    """An assignment out of a document."""
    words = {"principle": str(said["principle"]), "message": str(said["message"])}
    numbers: dict[str, Any] = {name: read_number(said[name]) for name in (*_PLAIN, *_COUNTS) if name not in words}
    counts = {name: int(said[name]) for name in ("iterations", "n_paths")}
    return RoadAssignment(
        network=network,
        capacity=capacity,
        toll=toll,
        flow=column(links, f"volume_{when}"),
        time=column(links, f"time_{when}"),
        path_cost=column(trips, f"path_cost_{when}"),
        waiting=np.zeros(network.n_links),
        certificate=AssignmentCertificate(**{name: read_number(value) for name, value in said["certificate"].items()}),
        status=Status(said["status"]),
        gaps=tuple(read_number(gap) for gap in said["gaps"]),
        paths=None,
        **(numbers | counts | words),
    )


def _start(row: dict[str, Any]) -> Start:
    return Start(read_number(row["objective"]), int(row["evaluations"]), read_number(row["seconds"]))


def read_step(row: dict[str, Any]) -> Step:
    """One evaluation."""
    gamma = np.inf if row["gamma"] is None else float(row["gamma"])
    return Step(read_number(row["seconds"]), int(row["start"]), gamma, read_number(row["value"]))


def column(rows: list[dict[str, Any]], name: str) -> Float[NDArray, "rows"]:
    """A column of figures; NaN where there is none."""
    return np.array([read_number(row[name]) for row in rows])


def read_number(value: Any) -> float:
    """A figure; NaN for null."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise TypeError(f"{value!r:.60} is no number")
    return np.nan if value is None else float(value)
