"""A design on disk: JSON, tables and maps for other programs, a page and pictures for people.

Every file is plain data. In JSON what is not finite is null (a time where nobody travels, a path cost where there is
no path), in tables an empty cell. Where the travellers' answer is not certified, whatever follows from it is left out
in the same way, and a sentence says so.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from blocc._lib.digests import sealed
from blocc._lib.files import json_bytes
from blocc._lib.tables import csv_bytes
from blocc.kit.gis import geojson, geopackage_bytes
from blocc.kit.storage import StorageError, read_document, write_files
from blocc.kit.workbook import workbook_bytes
from blocc.report.transport.design_columns import LINK_FIELDS, MARKET_FIELDS, column_rows
from blocc.report.transport.design_gis import design_layers
from blocc.report.transport.design_series import hints, link_rows, market_rows, summary_rows, totals
from blocc.result import History
from blocc.transport.design.checks import certificate_checks, withheld
from blocc.transport.design.design_result import Design
from blocc.transport.design.indicators import indicators
from blocc.transport.network.readers import native

FORMAT = "blocc-design"
VERSION = 2  #: from 2 on with a digest
DIGEST_FROM = 2

_PARTS: dict[str, type] = {
    **dict.fromkeys(("summary", "history"), dict),
    **dict.fromkeys(("links", "markets", "starts", "what_if"), list),
}


def write_design(design: Design, folder: str | Path) -> list[Path]:
    """Write everything about a design into ``folder`` (created where missing) and return the paths.

    ``design.json`` holds it all, ``network.json`` the network as it was designed, ``links.csv`` and ``markets.csv`` its
    tables, ``summary.csv`` its figures, certificate and assumptions, ``columns.csv`` what the columns mean,
    ``design.xlsx`` all of these in one workbook, ``design.geojson`` and ``design.gpkg`` the network for a GIS,
    ``report.html`` the interactive page, ``report.pdf`` the same for print, ``map.png``, ``demand.png`` and
    ``convergence.png`` the pictures. Each file appears complete or not at all; needs ``blocc[plot]``.
    """
    from blocc.report.transport.design_figures import picture_files
    from blocc.report.transport.design_page import report_page
    from blocc.report.transport.design_pdf import report_pdf

    # Everything is made before anything is written: a failure leaves the old files of a folder together.
    tables = {"summary": summary_rows(design), "links": link_rows(design), "markets": market_rows(design)}
    tables["columns"] = column_rows(design.network.units)
    layers = design_layers(design)
    files = {
        "design.json": json_bytes(design_document(design)),
        "network.json": native.render(design.network),
        **{f"{name}.csv": csv_bytes(rows) for name, rows in tables.items()},
        "design.xlsx": workbook_bytes(tables),
        "design.geojson": json_bytes(geojson(layers), indent=None),
        "design.gpkg": geopackage_bytes(layers),
        "report.html": report_page(design).encode(errors="replace"),
        **picture_files(design),
        "report.pdf": report_pdf(design),
    }
    return write_files(folder, files, "the design")


def design_document(design: Design) -> dict[str, Any]:
    """A design as JSON values, the content of ``design.json``."""
    follower = design.follower
    document = {
        "format": FORMAT,
        "version": VERSION,
        "summary": {
            "network": design.network.name,
            "utility": design.utility,
            "revenue": follower.revenue,
            "construction_cost": follower.construction_cost,
            "status": design.status.value,
            "message": design.message,
            "gamma": design.gamma,
            "links_built": int(design.built.sum()),
            **totals(design),
            "indicators": None if withheld(design) else indicators(design)._asdict(),
            "certificate": asdict(design.certificate),
            "checks": [{**check._asdict(), "verdict": check.verdict} for check in certificate_checks(design)],
            "withheld": withheld(design),
            "hints": hints(design),
            "assumptions": list(design.network.assumptions),
            "units": design.network.units._asdict(),
            "utility_penalised": design.penalised.utility,
            "seconds": design.seconds,
            "settings": design.settings,
            "versions": design.versions,
        },
        "links": link_rows(design),
        "markets": market_rows(design),
        "starts": [{**start._asdict(), "status": start.status.value} for start in design.starts],
        "what_if": [row._asdict() for row in design.what_if],
        "history": {name: getattr(design.history, name) for name in History.columns},
    }
    return sealed(document)


def read_design_json(path: str | Path) -> dict[str, Any]:
    """Read a ``design.json``: the document as it is, once its format, version and parts were checked."""
    source = Path(path)
    document = read_document(source, FORMAT, VERSION, "write_design", digest_from=DIGEST_FROM)
    for name, kind in _PARTS.items():
        if not isinstance(document.get(name), kind):
            raise StorageError(f"{source} is damaged: {name!r} is missing or not a {kind.__name__}")
    for name, fields in (("links", LINK_FIELDS), ("markets", MARKET_FIELDS)):
        for position, row in enumerate(document[name], start=1):
            missing = [field for field in fields if not isinstance(row, dict) or field not in row]
            if missing:
                raise StorageError(f"{source} is damaged: row {position} of {name!r} has no {', '.join(missing)}")
    return document
