"""The page of scenarios: its figures, its map of differences, its curve, and its safety."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blocc.report.transport.scenario_charts import WIDTHS, budget_figure, difference_data, difference_figure

from blocc.report.transport.scenario_page import scenario_page
from blocc.transport import Scenario, ScenarioDesign, ScenarioDesigns
from blocc.transport.design.documents import DESIGN
from browser import Page, needs_browser, visit
from transport_designs import fake_design, small_network

EVIL = "<script>alert(1)</script>"


def made(name: str, *, scale: float = 1.0, **changes: Any) -> ScenarioDesign:
    design = fake_design(small_network((EVIL, "Centre", "South", "East")))
    settings = {**design.settings, "budget": changes.get("budget")}
    follower = design.follower._replace(utility=scale * design.utility)
    design = replace(design, capacity=scale * design.capacity, settings=settings, follower=follower)
    return ScenarioDesign(Scenario(name, changes), design.network, DESIGN.document(design))


@pytest.fixture(scope="module")
def result() -> ScenarioDesigns:
    designs = (made("base"), made(f"small {EVIL}", scale=0.5, budget=5), made("middle", scale=0.75, budget=8))
    return ScenarioDesigns(designs[0].network, designs)


@pytest.fixture(scope="module")
def text(result: ScenarioDesigns) -> str:
    return scenario_page(result)


def test_table_has_every_scenario(result: ScenarioDesigns, text: str) -> None:
    page = Page(re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL))
    words = " ".join(page.words)
    for expected in ("Four stations", "all converged", "middle", "Consumer surplus", "63.41", "31.71", "budget 8"):
        assert expected in words


def test_names_cannot_run(text: str) -> None:
    assert EVIL not in text
    page = Page(text)
    assert page.foreign() == []
    assert EVIL not in str(page.data)  # plotly.js turns tags of texts into markup


def test_map_has_all_links_and_capacities(result: ScenarioDesigns) -> None:
    network, figure, data = result.network, difference_figure(result.network), difference_data(result)
    assert len(figure["data"]) == 1 + 2 * len(WIDTHS) + 2
    assert len(data["x"]) == len(data["y"]) == len(data["links"]) == network.n_links
    np.testing.assert_allclose(np.array(data["capacities"][1]), 0.5 * np.array(data["capacities"][0]), rtol=1e-6)
    colours = {trace["line"]["color"] for trace in figure["data"][1 : 1 + 2 * len(WIDTHS)]}
    dashes = {trace["line"]["dash"] for trace in figure["data"][1 : 1 + 2 * len(WIDTHS)]}
    assert len(colours) == len(dashes) == 2  # told apart by colour, and without it


def test_curve_rises_with_the_budget(result: ScenarioDesigns) -> None:
    (curve,) = budget_figure(result)["data"]
    cost = result["base"].summary["construction_cost"]
    assert curve["x"] == pytest.approx([5.0, 8.0, cost], rel=1e-6)
    assert curve["y"] == pytest.approx(
        [design.utility for design in (result.designs[1], result.designs[2], result.designs[0])], rel=1e-6
    )
    assert curve["text"][2].endswith("(no budget)")


def test_no_curve_where_budgets_do_not_differ() -> None:
    designs = (made("base"), made("growth", demand=1.1))
    page = Page(scenario_page(ScenarioDesigns(designs[0].network, designs)))
    assert "budget-data" not in page.data
    assert "difference-data" in page.data
    alone = Page(scenario_page(ScenarioDesigns(designs[0].network, designs[:1])))
    assert "difference-data" not in alone.data


def test_what_is_not_certified_looks_so() -> None:
    design = fake_design(lower_level_error=1.0)
    bad = ScenarioDesign(Scenario("bad"), design.network, DESIGN.document(design))
    other = made("small", scale=0.5, budget=5)
    text = scenario_page(ScenarioDesigns(design.network, (other, bad)))
    assert "not certified" in " ".join(Page(text).words)
    assert bad.row()["passengers"] is None
    (curve,) = budget_figure(ScenarioDesigns(design.network, (other, bad)))["data"]
    assert sum(symbol.endswith("-open") for symbol in curve["marker"]["symbol"]) == 1


READER = """<script>
var to = document.getElementById('difference-to'), holder = document.getElementById('difference');
function look() {
  var drawn = holder.data.map(function (trace) { return trace.x.filter(function (x) { return x === null; }).length; });
  console.log(JSON.stringify({
    words: document.getElementById('difference-words').textContent,
    drawn: drawn, text: holder.data[holder.data.length - 2].text[0]
  }));
}
drawing.then(function () {
  look();
  to.value = '0';
  to.dispatchEvent(new Event('change'));
  look();
});
</script></body>"""


@pytest.mark.slow
@needs_browser
def test_differences_in_a_browser(result: ScenarioDesigns, text: str, tmp_path: Path) -> None:
    """From the first scenario to the last one every link loses a quarter; from the first to itself nothing changes."""
    found = visit(text.replace("</body>", READER), tmp_path)
    assert found.requests == []
    first, second = (json.loads(re.search(r"\{.*\}", line)[0].replace('\\"', '"')) for line in found.console)
    capacity = result["base"].capacity
    built = int((capacity > 0).sum())
    assert first["words"] == f"0 links have more capacity, {built} have less."
    assert sum(first["drawn"][1 : 1 + len(WIDTHS)]) == 0
    assert sum(first["drawn"][1 + len(WIDTHS) : 1 + 2 * len(WIDTHS)]) == built
    assert f"capacity {float(f'{capacity[0]:.4g}'):g} → {float(f'{0.75 * capacity[0]:.4g}'):g}" in first["text"]
    assert second["words"] == "0 links have more capacity, 0 have less."
    assert sum(second["drawn"][1 : 1 + 2 * len(WIDTHS)]) == 0
