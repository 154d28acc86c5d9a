"""One page that puts the designs of several scenarios side by side; offline, as all pages."""

from __future__ import annotations

import math
from typing import Any

from blocc.report.format import number, value_text
from blocc.report.page import PageTable, plotly_script, render
from blocc.report.transport.design_geometry import labels_inside, map_labels
from blocc.report.transport.design_parts import typed_table
from blocc.report.transport.scenario_charts import (
    LESS,
    MORE,
    budget_curves,
    budget_figure,
    difference_data,
    difference_figure,
)
from blocc.transport.design.scenario_result import ScenarioDesign, ScenarioDesigns


def scenario_page(result: ScenarioDesigns) -> str:
    """The page as text."""
    network, count = result.network, len(result)
    curves = budget_curves(result)
    return render(
        "scenarios.html.j2",
        result=result,
        network=network,
        kicker=f"Scenarios of one network: {network.n_nodes:,} nodes, {network.n_links:,} candidate links, "
        f"{network.n_markets:,} markets",
        colour="good" if result.success else "warn",
        state=_state(result),
        figures=_figures(result),
        table=_table_of(result),
        differences=difference_figure(network) if count > 1 else None,
        data=difference_data(result) if count > 1 else None,
        halo=not labels_inside(map_labels(network)),
        more=MORE,
        less=LESS,
        budgets=budget_figure(result) if curves else None,
        budget_words=_budget_words(curves),
        changes={design.name: _changes(design) for design in result},
        assumptions=_assumptions(result),
        plotly=plotly_script(),
    )


def _state(result: ScenarioDesigns) -> str:
    if result.interrupted:
        return "interrupted"
    return "all converged" if result.success else "not all converged"


def _figures(result: ScenarioDesigns) -> list[tuple[str, str, str]]:
    certified = [design for design in result if not design.summary["withheld"]]
    figures = [("Scenarios", number(len(result)), f"{len(result.failed)} failed" if result.failed else "all here")]
    if certified:
        best = max(certified, key=lambda design: design.utility)
        cheapest = min(certified, key=lambda design: float(design.summary["construction_cost"]))
        figures += [
            ("Largest utility", number(best.utility, 5), best.name),
            ("Least cost", number(cheapest.summary["construction_cost"], 5), cheapest.name),
        ]
    return figures


def _table_of(result: ScenarioDesigns) -> PageTable:
    """A row for each scenario; what is not certified is left out."""
    kinds = {"Scenario": "text", "Status": "text", "Certificate": "text"}
    figures = {"Utility": "utility", "Revenue": "revenue", "Cost": "construction_cost", "Budget": "budget"}
    figures |= {"Links built": "links_built", "Passengers": "passengers", "Time saved": "passenger_time_saved"}
    if any(design.row()["passenger_hours_saved"] is not None for design in result):
        figures["Hours saved"] = "passenger_hours_saved"
    figures |= {"Consumer surplus": "consumer_surplus", "Revenue over cost": "revenue_cost_ratio", "Seconds": "seconds"}
    rows: list[tuple[Any, ...]] = []
    for design in result:
        row = design.row()
        values = (math.nan if row[name] is None else row[name] for name in figures.values())
        certificate = row["certificate"] + (" (not certified)" if design.summary["withheld"] else "")
        rows.append((design.name, row["status"], certificate, *values))
    return typed_table("scenarios", kinds | dict.fromkeys(figures, ""), rows)


def _changes(design: ScenarioDesign) -> str:
    words = (f"{name} {value_text(value)}" for name, value in design.scenario.changes.items())
    return ", ".join(words) or "nothing"


def _assumptions(result: ScenarioDesigns) -> dict[str, list[str]]:
    """What was assumed for all, and for single scenarios beyond that."""
    common = list(result.network.assumptions)
    own = {design.name: [line for line in design.summary["assumptions"] if line not in common] for design in result}
    return {"all scenarios": common} | own


def _budget_words(curves: dict[str, list[ScenarioDesign]]) -> str:
    """The curve in words, for those who do not see it."""
    parts = []
    for name, group in curves.items():
        budgets = (f"with {number(design.budget)}" if design.budget < math.inf else "unlimited" for design in group)
        points = (f"{number(design.utility)} {budget}" for design, budget in zip(group, budgets, strict=True))
        parts.append(f"{name or 'as it is'}: {', '.join(points)}")
    return f"Utility by budget. {'; '.join(parts)}."
