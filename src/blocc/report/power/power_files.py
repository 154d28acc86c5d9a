"""Answers about power systems on disk, and back again.

Every file is plain data. A JSON file carries a digest of what it says, so that a careless change is noticed; who
recomputes the digest can write anything, and :meth:`blocc.power.PowerDesign.verify` is there for that.
"""

from __future__ import annotations

import io
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from blocc._lib.digests import sealed
from blocc._lib.files import json_bytes
from blocc._lib.tables import csv_bytes
from blocc.power.case import PowerCase, Segments
from blocc.power.checks import certificate_checks
from blocc.power.dispatch import Dispatch
from blocc.power.power_design import KINDS, Decision, PowerCertificate, PowerDesign
from blocc.power.power_options import Step
from blocc.power.search import Start
from blocc.report.power.power_tables import figures_of, tables_of
from blocc.report.storage import StorageError, read_document, write_files
from blocc.report.workbook import workbook_bytes
from blocc.result import Status

FORMAT, VERSION = "blocc-power-design", 1

_ARRAYS = {
    "bus_number": int,
    "demand": float,
    "generator_number": int,
    "generator_bus": int,
    "output_min": float,
    "output_max": float,
    "cost_square": float,
    "cost_linear": float,
    "cost_fixed": float,
    "line_number": int,
    "line_from": int,
    "line_to": int,
    "susceptance": float,
    "shift": float,
    "capacity": float,
    "angle_min": float,
    "angle_max": float,
}
_DISPATCH = ("output", "flow", "demand", "shed", "price", "flow_price", "capacity")
#: In JSON what is not finite is null; these columns have no other meaning for it.
_UNLIMITED = {"capacity": np.inf, "angle_min": -np.inf, "angle_max": np.inf}


# --- writing -------------------------------------------------------------------------------------------------------
def write_power_design(design: PowerDesign, folder: str | Path) -> list[Path]:
    """Write everything about an answer into ``folder`` (created where missing) and return the paths.

    ``design.json`` holds it all, the case included; ``decisions.csv``, ``buses.csv``, ``generators.csv`` and
    ``lines.csv`` its tables, ``summary.csv`` its figures, certificate and assumptions, ``columns.csv`` what the columns
    mean, ``design.xlsx`` all of these in one workbook, ``design.npz`` the arrays, ``report.html`` the interactive page,
    ``design.png`` the picture. Each file appears complete or not at all; needs ``blocc[plot]``.
    """
    from blocc.report.figure import figure_image
    from blocc.report.power.power_figures import plot_design
    from blocc.report.power.power_page import report_page

    tables = tables_of(design)
    files = {
        "design.json": json_bytes(design_document(design)),
        **{f"{table}.csv": csv_bytes(rows) for table, rows in tables.items()},
        "design.xlsx": workbook_bytes(tables),
        "design.npz": _arrays(design),
        "report.html": report_page(design).encode(errors="replace"),
        "design.png": figure_image(plot_design(design)),
    }
    return write_files(folder, files, "the design")


def _arrays(design: PowerDesign) -> bytes:
    found = {
        f"{name}_{when}": getattr(dispatch, name)
        for when, dispatch in (("before", design.before), ("after", design.after))
        for name in _DISPATCH
    }
    found |= {name: getattr(design.case, name) for name in ("bus_number", "generator_number", "line_number")}
    found["decision"] = np.array([one.value for one in design.decisions])
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **found)
    return buffer.getvalue()


def design_document(design: PowerDesign) -> dict[str, Any]:
    """An answer as JSON values, the content of ``design.json``."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "summary": {
            "case": design.case.name,
            "kind": design.kind,
            "unit": design.unit,
            "goal": design.goal,
            "status": design.status.value,
            "message": design.message,
            "objective": design.objective,
            "objective_before": design.objective_before,
            "figures": figures_of(design),
            "own_figures": design.figures,
            "checks": [{**one._asdict(), "verdict": one.verdict} for one in certificate_checks(design)],
            "certificate": design.certificate._asdict(),
            "evaluations": design.evaluations,
            "cleared": design.cleared,
            "seconds": design.seconds,
            "price_range": {name: list(ends) for name, ends in design.price_range.items()},
            "assumptions": list(design.assumptions),
            "settings": design.settings,
            "versions": design.versions,
        },
        "decisions": [one._asdict() for one in design.decisions],
        "before": _dispatch_document(design.before),
        "after": _dispatch_document(design.after),
        "starts": [one._asdict() for one in design.starts],
        "history": [one._asdict() for one in design.history],
        "case": case_document(design.case),
    }
    return sealed(document)


def _dispatch_document(dispatch: Dispatch) -> dict[str, Any]:
    return {"value": dispatch.value, **{name: getattr(dispatch, name) for name in _DISPATCH}}


def case_document(case: PowerCase) -> dict[str, Any]:
    """A case as JSON values."""
    segments = {str(place): {"slope": one.slope, "intercept": one.intercept} for place, one in case.segments.items()}
    return {
        "name": case.name,
        "base": case.base,
        "reference": case.reference,
        "assumptions": list(case.assumptions),
        "segments": segments,
        **{name: getattr(case, name) for name in _ARRAYS},
    }


# --- reading -------------------------------------------------------------------------------------------------------
def load_power_design(path: str | Path) -> PowerDesign:
    """Read an answer back: its folder, or the ``design.json`` in it."""
    source = Path(path)
    source = source / "design.json" if source.is_dir() else source
    document = read_document(source, FORMAT, VERSION, "PowerDesign.save")
    try:
        return _design(document)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise StorageError(f"{source} is damaged: {type(error).__name__}: {error!s:.200}") from error


def _design(document: dict[str, Any]) -> PowerDesign:
    summary, case = document["summary"], _case(document["case"])
    if summary["kind"] not in KINDS:
        raise ValueError(f"a design of kind {summary['kind']!r:.60}")
    return PowerDesign(
        case=case,
        kind=str(summary["kind"]),
        unit=str(summary["unit"]),
        decisions=tuple(_decision(row) for row in document["decisions"]),
        objective=_number(summary["objective"]),
        objective_before=_number(summary["objective_before"]),
        goal=str(summary["goal"]),
        figures={str(name): _number(value) for name, value in summary["own_figures"].items()},
        before=_dispatch(document["before"], case),
        after=_dispatch(document["after"], case),
        status=Status(summary["status"]),
        message=str(summary["message"]),
        certificate=PowerCertificate(*(_number(summary["certificate"][name]) for name in PowerCertificate._fields)),
        starts=tuple(
            Start(_number(row["objective"]), int(row["evaluations"]), _number(row["seconds"]), str(row["status"]))
            for row in document["starts"]
        ),
        history=tuple(_step(row) for row in document["history"]),
        evaluations=int(summary["evaluations"]),
        cleared=int(summary["cleared"]),
        seconds=_number(summary["seconds"]),
        price_range={str(name): (_number(low), _number(high)) for name, (low, high) in summary["price_range"].items()},
        assumptions=tuple(str(one) for one in summary["assumptions"]),
        settings=dict(summary["settings"]),
        versions=dict(summary["versions"]),
    )


def _decision(row: dict[str, Any]) -> Decision:
    figures = _column([row[name] for name in Decision._fields[2:]], "a decision")
    return Decision(str(row["name"]), int(row["number"]), *figures.tolist())


def _case(said: dict[str, Any]) -> PowerCase:
    arrays = {name: _column(said[name], name).astype(kind) for name, kind in _ARRAYS.items()}
    segments = {
        int(place): Segments(tuple(map(float, one["slope"])), tuple(map(float, one["intercept"])))
        for place, one in said["segments"].items()
    }
    sizes = {len(arrays[name]) for name in ("line_number", "line_from", "line_to", "susceptance", "capacity")}
    n_buses = len(arrays["bus_number"])
    places = np.concatenate([arrays[name] for name in ("line_from", "line_to", "generator_bus")])
    if len(sizes) > 1 or np.any((places < 0) | (places >= n_buses)) or len(arrays["demand"]) != n_buses:
        raise ValueError("the tables of the case do not fit together")
    known = {"name": str(said["name"]), "base": _number(said["base"]), "reference": int(said["reference"])}
    assumptions = tuple(str(one) for one in said["assumptions"])
    return PowerCase(**known, **arrays, segments=segments, assumptions=assumptions)  # type: ignore[arg-type]


def _dispatch(said: dict[str, Any], case: PowerCase) -> Dispatch:
    arrays: dict[str, Any] = {name: _column(said[name], name) for name in _DISPATCH}
    sizes = {"output": case.n_generators, "flow": case.n_lines, "price": case.n_buses, "demand": case.n_buses}
    for name, size in sizes.items():
        if len(arrays[name]) != size:
            raise ValueError(f"{name} has {len(arrays[name])} entries for {size}")
    assert {one.name for one in fields(Dispatch)} == {"case", "value", *_DISPATCH}
    return Dispatch(case=case, value=_number(said["value"]), **arrays)


def _step(row: dict[str, Any]) -> Step:
    gamma = np.inf if row["gamma"] is None else float(row["gamma"])
    return Step(_number(row["seconds"]), int(row["start"]), gamma, _number(row["value"]))


def _column(values: list[Any], name: str) -> Any:
    missing = _UNLIMITED.get(name, np.nan)
    found = np.array([missing if value is None else _number(value) for value in values], dtype=float)
    if np.isnan(found).any():
        raise ValueError(f"{name} has gaps")
    return found


def _number(value: Any) -> float:
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise TypeError(f"{value!r:.60} is no number")
    return np.nan if value is None else float(value)
