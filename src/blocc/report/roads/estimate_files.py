"""Estimates of trips on disk: tables of trips and counts, and the network that carries the estimate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from blocc._lib.files import json_bytes, plain
from blocc._lib.tables import csv_bytes
from blocc.report.storage import digest, write_files
from blocc.report.workbook import workbook_bytes
from blocc.roads.checks import answer_checks
from blocc.roads.demand_estimate import DemandEstimate
from blocc.roads.files import network_document

FORMAT, VERSION = "blocc-demand-estimate", 1


def write_demand_estimate(estimate: DemandEstimate, folder: str | Path) -> list[Path]:
    """Write an estimate into ``folder`` (created where missing) and return the paths.

    ``estimate.json`` holds it all, ``network.json`` the network with the estimated trips, ``trips.csv`` prior and
    estimated trips of every pair, ``counts.csv`` every count with volumes before and after, ``summary.csv`` figures,
    certificate and assumptions, ``estimate.xlsx`` these tables in one workbook.
    """
    tables = _tables(estimate)
    files = {
        "estimate.json": json_bytes(estimate_document(estimate)),
        "network.json": json_bytes(network_document(estimate.network), indent=None),
        **{f"{name}.csv": csv_bytes(rows) for name, rows in tables.items()},
        "estimate.xlsx": workbook_bytes(tables),
    }
    return write_files(folder, files, "the estimate")


def estimate_document(estimate: DemandEstimate) -> dict[str, Any]:
    """An estimate as JSON values, the content of ``estimate.json``."""
    checks = [{**check._asdict(), "verdict": check.verdict} for check in answer_checks(estimate)]
    said = {
        "format": FORMAT,
        "version": VERSION,
        "summary": {
            "network": estimate.network.name,
            "status": estimate.status.value,
            "message": estimate.message,
            **_figures(estimate),
            "checks": checks,
            "assumptions": list(estimate.assumptions),
            "settings": estimate.settings,
            "versions": estimate.versions,
        },
        "counts": estimate.count_rows(),
        "trips": estimate.demand_rows(),
        "history": [step._asdict() for step in estimate.history],
    }
    document = dict(plain(said))
    return document | {"sha256": digest(document)}


def _figures(estimate: DemandEstimate) -> dict[str, Any]:
    names = ("objective", "prior_distance", "count_distance", "stationarity", "evaluations", "seconds")
    trips = {"trips_before": estimate.prior.demand.sum(), "trips_after": estimate.demand.sum()}
    return {name: getattr(estimate, name) for name in names} | {name: float(total) for name, total in trips.items()}


def _tables(estimate: DemandEstimate) -> dict[str, list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = [
        {"kind": "result", "name": "status", "value": estimate.status.value},
        {"kind": "result", "name": "message", "value": estimate.message},
    ]
    rows += [{"kind": "figure", "name": name, "value": value} for name, value in _figures(estimate).items()]
    for check in answer_checks(estimate):
        row = {"kind": "certificate", "name": check.name, "value": check.value}
        rows.append({**row, "limit": check.limit, "verdict": check.verdict})
    rows += [{"kind": "assumption", "name": line} for line in estimate.assumptions]
    return {"summary": rows, "trips": estimate.demand_rows(), "counts": estimate.count_rows()}
