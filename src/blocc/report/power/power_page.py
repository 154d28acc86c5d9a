"""One page about an answer, complete in itself: it opens from a disk, offline, and sends no request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from blocc.kit.documents import rows_of
from blocc.power.checks import MEANINGS, certificate_checks
from blocc.power.documents import BUSES, DECISIONS, GENERATORS, LINES
from blocc.power.power_design import KINDS, PowerDesign
from blocc.report.format import duration, number
from blocc.report.page import PageTable, plotly_script, render, write_html
from blocc.report.power.power_charts import map_figure, price_figure, way_figure
from blocc.report.power.power_layout import SAID
from blocc.report.transport.design_parts import typed_table, verdict
from blocc.result import Status

MOST_ROWS = 500  #: of a table


def write_report(design: PowerDesign, path: str | Path) -> Path:
    """Write the interactive page (one HTML file) and return its path; needs ``blocc[plot]``."""
    return write_html(report_page(design), path)


def report_page(design: PowerDesign) -> str:
    """The page as text."""
    case, checks = design.case, certificate_checks(design)
    return render(
        "power_design.html.j2",
        design=design,
        title=KINDS[design.kind],
        kicker=f"Electricity: {case.n_buses:,} buses, {case.n_generators:,} generators, {case.n_lines:,} lines",
        colour="good" if design.success else "bad" if design.status is Status.INFEASIBLE else "warn",
        figures=_key_figures(design),
        map=map_figure(design),
        placed=SAID,
        prices=price_figure(design),
        way=way_figure(design),
        words=_alternatives(design),
        tables=_tables(design),
        checks=[(check, MEANINGS[check.name]) for check in checks],
        all_pass=all(check.verdict == "pass" for check in checks),
        verdict=verdict(checks),
        plotly=plotly_script(),
    )


def _key_figures(design: PowerDesign) -> list[tuple[str, str, str]]:
    """Each with its title, its value and a detail."""
    before, after = design.before, design.after
    return [
        (_headed(design.goal), number(design.objective, 6), "per hour"),
        ("Before", number(design.objective_before, 6), "per hour"),
        *((_headed(name), number(value, 6), "with the decision") for name, value in design.figures.items()),
        ("Cost of generation", number(after.cost, 6), f"before {number(before.cost, 6)}"),
        (
            "Prices",
            f"{number(after.price.min(), 4)} to {number(after.price.max(), 4)}",
            f"before {number(before.price.min(), 4)} to {number(before.price.max(), 4)}",
        ),
        ("Congested lines", number(len(after.congested)), f"before {len(before.congested)}"),
        ("Computed in", duration(design.seconds), f"{design.evaluations:,} evaluations"),
    ]


def _headed(words: str) -> str:
    return words[:1].upper() + words[1:]


def _tables(design: PowerDesign) -> dict[str, PageTable]:
    decisions, lines = rows_of(design, DECISIONS), rows_of(design, LINES)
    full = np.argsort([-row["loading_after"] for row in lines], kind="stable")[:MOST_ROWS]
    return {
        "decisions": _table(
            "decisions",
            decisions,
            {"name": ("Decision", "text"), "value": ("Value", "fine"), "before": ("Before", ""), "high": ("Most", "")},
        ),
        "generators": _table(
            "generators",
            rows_of(design, GENERATORS)[:MOST_ROWS],
            {
                "generator": ("Generator", "text"),
                "bus": ("Bus", "text"),
                "output_max": ("Most, MW", ""),
                "output_before": ("Output before", ""),
                "output_after": ("after", ""),
                "profit_before": ("Profit before", ""),
                "profit_after": ("after ", ""),
            },
        ),
        "buses": _table(
            "buses",
            rows_of(design, BUSES)[:MOST_ROWS],
            {
                "bus": ("Bus", "text"),
                "demand": ("Demand, MW", ""),
                "served": ("Served, MW", ""),
                "price_before": ("Price before", ""),
                "price_after": ("Price after", ""),
            },
        ),
        "lines": _table(
            "lines",
            [lines[k] for k in full],
            {
                "line": ("Line", "text"),
                "from": ("From", "text"),
                "to": ("To", "text"),
                "capacity_after": ("Capacity, MW", ""),
                "flow_before": ("Flow before", ""),
                "flow_after": ("after", ""),
                "loading_before": ("Load before", "percent"),
                "loading_after": ("after ", "percent"),
                "value_after": ("Value of a MW", ""),
            },
        ),
    }


def _table(name: str, rows: list[dict[str, Any]], columns: dict[str, tuple[str, str]]) -> PageTable:
    kinds = dict(columns.values())
    return typed_table(f"{name}-table", kinds, [[row[field] for field in columns] for row in rows])


def _alternatives(design: PowerDesign) -> dict[str, str]:
    """What each chart shows, in a sentence for those who do not see it."""
    before, after = design.before, design.after
    low, high = number(after.price.min(), 4), number(after.price.max(), 4)
    return {
        "map": f"One-line diagram: prices from {low} to {high} per MWh, {len(after.congested)} congested lines.",
        "prices": f"Prices by bus: up to {number(before.price.max(), 4)} before, up to {high} with the decision.",
        "way": f"The leader's value over time, up to {number(design.objective, 6)} per hour.",
    }
