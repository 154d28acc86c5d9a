"""An answer about a power system as rows: decisions, buses, generators, lines, the summary, and what columns mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.tables import table_rows
from blocc.power.checks import certificate_checks
from blocc.power.dispatch import Dispatch
from blocc.power.power_design import PowerDesign

_MONEY = "per hour, as in the file"
_PRICE = "per MWh, as in the file"
#: A column: its unit, and what it holds.
COLUMNS: dict[str, dict[str, tuple[str, str]]] = {
    "decisions": {
        "name": ("", "what is decided"),
        "number": ("", "its number in the file"),
        "value": ("see the summary", "the decision"),
        "before": ("the same", "without a decision"),
        "low": ("the same", "least"),
        "high": ("the same", "most"),
    },
    "buses": {
        "bus": ("", "its number in the file"),
        "demand": ("MW", "today"),
        "served": ("MW", "with the decision"),
        "price_before": (_PRICE, "locational price today"),
        "price_after": (_PRICE, "the same with the decision"),
    },
    "generators": {
        "generator": ("", "its row in mpc.gen"),
        "bus": ("", "where it feeds in"),
        "output_min": ("MW", "least"),
        "output_max": ("MW", "most"),
        "output_before": ("MW", "today"),
        "output_after": ("MW", "with the decision"),
        "profit_before": (_MONEY, "what it is paid less its cost, today"),
        "profit_after": (_MONEY, "the same with the decision"),
    },
    "lines": {
        "line": ("", "its row in mpc.branch"),
        "from": ("", "bus"),
        "to": ("", "bus"),
        "capacity_before": ("MW", "today; empty: no limit"),
        "capacity_after": ("MW", "with the decision"),
        "flow_before": ("MW", "from the first bus to the second, today"),
        "flow_after": ("MW", "the same with the decision"),
        "loading_before": ("", "flow over capacity, today"),
        "loading_after": ("", "the same with the decision"),
        "value_before": (_PRICE, "what one more MW of capacity would save, today"),
        "value_after": (_PRICE, "the same with the decision"),
    },
}


def decision_rows(design: PowerDesign) -> list[dict[str, Any]]:
    """Every decision."""
    return [one._asdict() for one in design.decisions]


def bus_rows(design: PowerDesign) -> list[dict[str, Any]]:
    """Every bus."""
    before, after = design.before, design.after
    return table_rows(
        {
            "bus": design.case.bus_number,
            "demand": before.demand,
            "served": after.served,
            "price_before": before.price,
            "price_after": after.price,
        }
    )


def generator_rows(design: PowerDesign) -> list[dict[str, Any]]:
    """Every generator."""
    case, before, after = design.case, design.before, design.after
    return table_rows(
        {
            "generator": case.generator_number,
            "bus": case.bus_number[case.generator_bus],
            "output_min": case.output_min,
            "output_max": case.output_max,
            "output_before": before.output,
            "output_after": after.output,
            "profit_before": before.profit(),
            "profit_after": after.profit(),
        }
    )


def loading(dispatch: Dispatch) -> Float[NDArray, " lines"]:
    """How full lines are; 0 where there is no limit."""
    limit = np.where(np.isfinite(dispatch.capacity) & (dispatch.capacity > 0.0), dispatch.capacity, np.inf)
    return np.asarray(np.abs(dispatch.flow) / limit)


def line_rows(design: PowerDesign) -> list[dict[str, Any]]:
    """Every line."""
    case, before, after = design.case, design.before, design.after
    return table_rows(
        {
            "line": case.line_number,
            "from": case.bus_number[case.line_from],
            "to": case.bus_number[case.line_to],
            "capacity_before": before.capacity,
            "capacity_after": after.capacity,
            "flow_before": before.flow,
            "flow_after": after.flow,
            "loading_before": loading(before),
            "loading_after": loading(after),
            "value_before": np.abs(before.flow_price),
            "value_after": np.abs(after.flow_price),
        }
    )


def figures_of(design: PowerDesign) -> dict[str, float]:
    """The figures of an answer by their names."""
    return {
        design.goal: design.objective,
        f"{design.goal}, before": design.objective_before,
        **design.figures,
        "cost of generation": design.after.cost,
        "cost of generation, before": design.before.cost,
        "congestion rent": design.after.congestion_rent,
        "congestion rent, before": design.before.congestion_rent,
        "not served, MW": float(design.after.shed.sum()),
    }


def summary_rows(design: PowerDesign) -> list[dict[str, Any]]:
    """An answer in a table: status, figures, the certificate with its verdicts, and what was assumed."""
    rows: list[dict[str, Any]] = [
        {"kind": "result", "name": "status", "value": design.status.value},
        {"kind": "result", "name": "message", "value": design.message},
        {"kind": "result", "name": "unit of the decisions", "value": design.unit},
    ]
    rows += [{"kind": "figure", "name": name, "value": value} for name, value in figures_of(design).items()]
    for check in certificate_checks(design):
        row = {"kind": "certificate", "name": check.name, "value": check.value}
        rows.append({**row, "limit": check.limit, "verdict": check.verdict})
    return rows + [{"kind": "assumption", "name": one} for one in (*design.assumptions, *design.case.assumptions)]


def tables_of(design: PowerDesign) -> dict[str, list[dict[str, Any]]]:
    """All tables by the names of their files."""
    tables = {
        "decisions": decision_rows(design),
        "buses": bus_rows(design),
        "generators": generator_rows(design),
        "lines": line_rows(design),
    }
    columns = [
        {"file": f"{file}.csv", "column": name, "unit": unit, "meaning": meaning}
        for file, known in COLUMNS.items()
        for name, (unit, meaning) in known.items()
    ]
    return {"summary": summary_rows(design), **tables, "columns": columns}
