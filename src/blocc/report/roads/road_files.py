"""Assignments and designs of roads on disk, and designs back again.

Every file is plain data. In JSON what is not finite is null, in tables an empty cell. A JSON file carries a digest of
what it says, so that a careless change is noticed; who recomputes the digest can write anything, and
:func:`blocc.roads.verify_road_design` is there for that.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.files import json_bytes, parse_json, plain, read_limited
from blocc._lib.tables import csv_bytes
from blocc.report.gis import geojson, geopackage_bytes
from blocc.report.roads.road_tables import checks_of, figures_of, layers_of, tables_of
from blocc.report.storage import ChangedError, StorageError, check_format, digest, write_files
from blocc.report.workbook import workbook_bytes
from blocc.result import Status
from blocc.roads.assign import AssignmentCertificate, RoadAssignment
from blocc.roads.files import network_document, read_road_network
from blocc.roads.network import RoadNetwork
from blocc.roads.road_design import RoadDesign
from blocc.roads.search import Start, Step

DESIGN, ASSIGNMENT = "blocc-road-design", "blocc-road-assignment"
VERSION = 1
MOST_BYTES = 500 * 2**20  #: of a JSON file

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

    files = _files(design, "design", design_document(design))
    files |= {"report.html": report_page(design).encode(errors="replace")}
    return write_files(folder, files | {"design.png": figure_image(plot_design(design))}, "the design")


def write_road_assignment(assignment: RoadAssignment, folder: str | Path) -> list[Path]:
    """Write everything about an assignment into ``folder`` (created where missing) and return the paths.

    The same files as of a design, called ``assignment``, without the page; needs ``blocc[plot]``.
    """
    from blocc.report.figure import figure_image
    from blocc.report.roads.road_figures import plot_assignment

    files = _files(assignment, "assignment", assignment_document(assignment))
    return write_files(folder, files | {"assignment.png": figure_image(plot_assignment(assignment))}, "the assignment")


def _files(answer: RoadDesign | RoadAssignment, name: str, document: dict[str, Any]) -> dict[str, bytes]:
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
            **_head(design),
            "kind": design.kind,
            "stationarity": design.stationarity,
            "evaluations": design.evaluations,
            "seconds": design.seconds,
            "settings": design.settings,
            "versions": design.versions,
        },
        "before": _assignment(design.before),
        "after": _assignment(design.after),
        "links": tables["links"],
        "trips": tables["trips"],
        "starts": [start._asdict() for start in design.starts],
        "history": [step._asdict() for step in design.history],
    }
    return _with_digest(document)


def assignment_document(assignment: RoadAssignment) -> dict[str, Any]:
    """An assignment as JSON values, the content of ``assignment.json``."""
    tables = tables_of(assignment)
    document = {
        "format": ASSIGNMENT,
        "version": VERSION,
        "summary": _head(assignment) | _assignment(assignment),
        "links": tables["links"],
        "trips": tables["trips"],
    }
    return _with_digest(document)


def _head(answer: RoadDesign | RoadAssignment) -> dict[str, Any]:
    return {
        "network": answer.network.name,
        "status": answer.status.value,
        "message": answer.message,
        **figures_of(answer),
        "checks": [{**check._asdict(), "verdict": check.verdict} for check in checks_of(answer)],
        "assumptions": list(answer.network.assumptions),
    }


def _assignment(assignment: RoadAssignment) -> dict[str, Any]:
    found = {name: getattr(assignment, name) for name in (*_PLAIN, *_COUNTS)}
    certificate = asdict(assignment.certificate)
    return found | {"status": assignment.status.value, "certificate": certificate, "gaps": list(assignment.gaps)}


def _with_digest(document: dict[str, Any]) -> dict[str, Any]:
    said = dict(plain(document))
    return said | {"sha256": digest(said)}


# --- reading -------------------------------------------------------------------------------------------------------
def load_design(path: str | Path, network: RoadNetwork | None = None) -> RoadDesign:
    """Read a design back.

    :param path: its folder, or the ``design.json`` in it
    :param network: in place of the ``network.json`` beside it
    """
    source = Path(path)
    source = source / "design.json" if source.is_dir() else source
    document = parse_json(read_limited(source, MOST_BYTES, StorageError), str(source), StorageError)
    document = check_format(document, source, DESIGN, VERSION, "write_road_design")
    if document.get("sha256") != digest(document):
        raise ChangedError(f"{source} is damaged: it was changed after it was saved, its digest differs")
    roads = read_road_network(source.with_name("network.json")) if network is None else network
    try:
        return _design(document, roads, source)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"{source} is damaged: {type(error).__name__}: {error!s:.200}") from error


def _design(document: dict[str, Any], network: RoadNetwork, source: Path) -> RoadDesign:
    summary, links, trips = (document[name] for name in ("summary", "links", "trips"))
    ends = [("link_id", "from", "to"), ("origin", "destination")]
    for rows, own, names in ((links, network.link_rows(), ends[0]), (trips, network.trip_rows(), ends[1])):
        if [[row[name] for name in names] for row in rows] != [[row[name] for name in names] for row in own]:
            raise ChangedError(f"{source} is a design of another network: its links or its trips are others")
    expansion, toll, bound = (_column(links, name) for name in ("expansion", "toll", "bound_expansion"))
    given = {"before": (network.capacity, network.toll), "after": (network.capacity + expansion, toll)}
    figures: dict[str, Any] = {
        name: _number(summary[name]) for name in ("objective", "cost", "stationarity", "seconds")
    }
    figures |= {name: None if summary[name] is None else _number(summary[name]) for name in ("bound", "gap")}
    for when, (capacity, tolls) in given.items():
        figures[when] = _read_assignment(document[when], network, links, trips, when, capacity, tolls)
    return RoadDesign(
        network=network,
        kind=str(summary["kind"]),
        expansion=expansion,
        toll=toll,
        marginal_value=_column(links, "marginal_value"),
        **figures,
        status=Status(summary["status"]),
        message=str(summary["message"]),
        starts=tuple(_start(row) for row in document["starts"]),
        history=tuple(_step(row) for row in document["history"]),
        evaluations=int(summary["evaluations"]),
        settings=dict(summary["settings"]),
        versions=dict(summary["versions"]),
        bound_expansion=None if np.isnan(bound).all() else bound,
    )


def _read_assignment(
    said: dict[str, Any],
    network: RoadNetwork,
    links: list[dict[str, Any]],
    trips: list[dict[str, Any]],
    when: str,
    capacity: Float[NDArray, "links"],
    toll: Float[NDArray, "links"],
) -> RoadAssignment:
    words = {"principle": str(said["principle"]), "message": str(said["message"])}
    numbers: dict[str, Any] = {name: _number(said[name]) for name in (*_PLAIN, *_COUNTS) if name not in words}
    counts = {name: int(said[name]) for name in ("iterations", "n_paths")}
    return RoadAssignment(
        network=network,
        capacity=capacity,
        toll=toll,
        flow=_column(links, f"volume_{when}"),
        time=_column(links, f"time_{when}"),
        path_cost=_column(trips, f"path_cost_{when}"),
        waiting=np.zeros(network.n_links),
        certificate=AssignmentCertificate(**{name: _number(value) for name, value in said["certificate"].items()}),
        status=Status(said["status"]),
        gaps=tuple(_number(gap) for gap in said["gaps"]),
        paths=None,
        **(numbers | counts | words),
    )


def _start(row: dict[str, Any]) -> Start:
    return Start(_number(row["objective"]), int(row["evaluations"]), _number(row["seconds"]))


def _step(row: dict[str, Any]) -> Step:
    gamma = np.inf if row["gamma"] is None else float(row["gamma"])
    return Step(_number(row["seconds"]), int(row["start"]), gamma, _number(row["value"]))


def _column(rows: list[dict[str, Any]], name: str) -> Float[NDArray, "rows"]:
    return np.array([_number(row[name]) for row in rows])


def _number(value: Any) -> float:
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise TypeError(f"{value!r:.60} is no number")
    return np.nan if value is None else float(value)
