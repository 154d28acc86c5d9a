"""Answers about power systems as files, and back again: what their tables and their JSON file say."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.judge.verification import Verification
from blocc.kit.documents import Column, Columns, Document, Summary, Tables
from blocc.kit.records import decoded, picked
from blocc.power.case import PowerCase, Segments
from blocc.power.checks import certificate_checks
from blocc.power.dispatch import Dispatch
from blocc.power.power_design import KINDS, PowerDesign
from blocc.power.verify_power_design import verify_power_design

_DISPATCH = ("output", "flow", "demand", "shed", "price", "flow_price", "capacity")
_CASE = tuple(one.name for one in fields(PowerCase) if one.name != "segments")
#: In JSON what is not finite is null; these have no other meaning for it.
_UNLIMITED = {"capacity": np.inf, "angle_min": -np.inf, "angle_max": np.inf, "gamma": np.inf}
_MONEY, _PRICE = "per hour, as in the file", "per MWh, as in the file"


# --- tables --------------------------------------------------------------------------------------------------------
def loading(dispatch: Dispatch) -> Float[NDArray, " lines"]:
    """How full lines are; 0 where there is no limit."""
    limit = np.where(np.isfinite(dispatch.capacity) & (dispatch.capacity > 0.0), dispatch.capacity, np.inf)
    return np.asarray(np.abs(dispatch.flow) / limit)


def _decided(name: str) -> Any:
    return lambda design: [getattr(one, name) for one in design.decisions]


DECISIONS: Columns = {
    "name": Column(_decided("name"), "what is decided"),
    "number": Column(_decided("number"), "its number in the file"),
    "value": Column(_decided("value"), "the decision", "see the summary"),
    "before": Column(_decided("before"), "without a decision", "the same"),
    "low": Column(_decided("low"), "least", "the same"),
    "high": Column(_decided("high"), "most", "the same"),
}
BUSES: Columns = {
    "bus": Column("case.bus_number", "its number in the file"),
    "demand": Column("before.demand", "today", "MW"),
    "served": Column("after.served", "with the decision", "MW"),
    "price_before": Column("before.price", "locational price today", _PRICE),
    "price_after": Column("after.price", "the same with the decision", _PRICE),
}
GENERATORS: Columns = {
    "generator": Column("case.generator_number", "its row in mpc.gen"),
    "bus": Column(lambda design: design.case.bus_number[design.case.generator_bus], "where it feeds in"),
    "output_min": Column("case.output_min", "least", "MW"),
    "output_max": Column("case.output_max", "most", "MW"),
    "output_before": Column("before.output", "today", "MW"),
    "output_after": Column("after.output", "with the decision", "MW"),
    "profit_before": Column(lambda design: design.before.profit(), "what it is paid less its cost, today", _MONEY),
    "profit_after": Column(lambda design: design.after.profit(), "the same with the decision", _MONEY),
}
LINES: Columns = {
    "line": Column("case.line_number", "its row in mpc.branch"),
    "from": Column(lambda design: design.case.bus_number[design.case.line_from], "bus"),
    "to": Column(lambda design: design.case.bus_number[design.case.line_to], "bus"),
    "capacity_before": Column("before.capacity", "today; empty: no limit", "MW"),
    "capacity_after": Column("after.capacity", "with the decision", "MW"),
    "flow_before": Column("before.flow", "from the first bus to the second, today", "MW"),
    "flow_after": Column("after.flow", "the same with the decision", "MW"),
    "loading_before": Column(lambda design: loading(design.before), "flow over capacity, today"),
    "loading_after": Column(lambda design: loading(design.after), "the same with the decision"),
    "value_before": Column(
        lambda design: np.abs(design.before.flow_price), "what one more MW of capacity would save, today", _PRICE
    ),
    "value_after": Column(lambda design: np.abs(design.after.flow_price), "the same with the decision", _PRICE),
}


def _summary(design: PowerDesign) -> Summary:
    figures = {
        design.goal: design.objective,
        f"{design.goal}, before": design.objective_before,
        **design.figures,
        "cost of generation": design.after.cost,
        "cost of generation, before": design.before.cost,
        "congestion rent": design.after.congestion_rent,
        "congestion rent, before": design.before.congestion_rent,
        "not served, MW": float(design.after.shed.sum()),
    }
    assumed = {"assumption": (*design.assumptions, *design.case.assumptions)}
    return Summary(figures, certificate_checks(design), assumed, results={"unit of the decisions": design.unit})


# --- JSON ----------------------------------------------------------------------------------------------------------
_SAID = (
    *("kind", "unit", "goal", "status", "message", "objective", "objective_before", "certificate", "evaluations"),
    *("cleared", "seconds", "price_range", "assumptions", "settings", "versions"),
)


def _content(design: PowerDesign, summary: Summary) -> dict[str, Any]:
    case = design.case
    segments = {str(place): picked(one, "slope", "intercept") for place, one in case.segments.items()}
    said = {"case": case.name, "figures": summary.figures, "own_figures": design.figures}
    return {
        "summary": {**said, **picked(design, *_SAID), "checks": [check.row() for check in summary.checks]},
        **picked(design, "starts", "history"),
        **{when: picked(getattr(design, when), "value", *_DISPATCH) for when in ("before", "after")},
        "case": picked(case, *_CASE) | {"segments": segments},
    }


def _design(document: Mapping[str, Any], source: Path, case: PowerCase | None = None) -> PowerDesign:
    summary, own = document["summary"], _case(document["case"])
    if summary["kind"] not in KINDS:
        raise ValueError(f"a design of kind {summary['kind']!r:.60}")
    return decoded(
        PowerDesign,
        {**document, **summary, "figures": summary["own_figures"]},
        _UNLIMITED,
        case=own,
        **{when: _dispatch(document[when], own) for when in ("before", "after")},
    )


def _case(said: Mapping[str, Any]) -> PowerCase:
    segments = {int(place): decoded(Segments, one) for place, one in said["segments"].items()}
    case = decoded(PowerCase, said, _UNLIMITED, segments=segments)
    sizes = {len(getattr(case, name)) for name in ("line_number", "line_from", "line_to", "susceptance", "capacity")}
    places = np.concatenate([case.line_from, case.line_to, case.generator_bus])
    if len(sizes) > 1 or np.any((places < 0) | (places >= case.n_buses)) or len(case.demand) != case.n_buses:
        raise ValueError("the tables of the case do not fit together")
    return case


def _dispatch(said: Mapping[str, Any], case: PowerCase) -> Dispatch:
    found = decoded(Dispatch, said, _UNLIMITED, case=case)
    sizes = {"output": case.n_generators, "flow": case.n_lines, "price": case.n_buses, "demand": case.n_buses}
    for name, size in sizes.items():
        if len(getattr(found, name)) != size:
            raise ValueError(f"{name} has {len(getattr(found, name))} entries for {size}")
    return found


# --- files ---------------------------------------------------------------------------------------------------------
def _arrays(design: PowerDesign) -> bytes:
    """The arrays of both dispatches and the decision, for NumPy."""
    found = picked(design.case, "bus_number", "generator_number", "line_number")
    for when in ("before", "after"):
        found |= {f"{name}_{when}": value for name, value in picked(getattr(design, when), *_DISPATCH).items()}
    found["decision"] = np.array([one.value for one in design.decisions])
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **found)
    return buffer.getvalue()


def _files(design: PowerDesign, tables: Tables) -> dict[str, bytes]:
    from blocc.kit.figure import figure_image
    from blocc.report.power_report import (
        plot_design,  # that room stands on this one
        report_page,
    )

    page, picture = report_page(design).encode(errors="replace"), figure_image(plot_design(design))
    return {"design.npz": _arrays(design), "report.html": page, "design.png": picture}


def _verify(case: PowerCase, design: PowerDesign, **given: Any) -> Verification:
    return verify_power_design(design, case=case, **given)


DESIGN: Document[PowerDesign] = Document(
    format="blocc-power-design",
    version=1,
    stem="design",
    writer="PowerDesign.save",
    tables={"decisions": DECISIONS, "buses": BUSES, "generators": GENERATORS, "lines": LINES},
    summary=_summary,
    content=_content,
    kept=("decisions",),
    further=_files,
    make=_design,
    check=_verify,
    unchecked={
        "version": "of the format",
        **dict.fromkeys(
            ("summary.evaluations", "summary.cleared", "summary.seconds", "summary.versions", "starts", "history"),
            "of the run",
        ),
        "summary.settings": "the question: limits and options are believed as they are stated",
        "summary.price_range": "prices that are not unique: others would do as well",
    },
    bounded={
        f"summary.certificate.{name}": "held within its limit"
        for name in ("balance", "limits", "market_difference", "difference", "gain_left", "violation")
    },
)
