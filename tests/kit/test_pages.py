"""What every page keeps to, whatever it is about: nothing foreign, nothing from outside, words for who cannot see."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cvxpy")
pytest.importorskip("matpowercaseframes")
pytest.importorskip("numba")
pytest.importorskip("jinja2")

from blocc.methods.compare import Comparison, MethodRow
from blocc.power import bid_generators, expand_lines, read_case
from blocc.report.comparison_page import comparison_page
from blocc.report.estimate_report import report_page as estimate_page
from blocc.report.power_report import report_page as power_page
from blocc.report.road_report import report_page as road_page
from blocc.report.study.study_page import study_page
from blocc.report.study.study_views import Findings, ItemView, Observation, Report, StudyView, Table
from blocc.report.transport.design_page import report_page as design_page
from blocc.report.transport.scenario_page import scenario_page
from blocc.roads import estimate_demand, expand_network
from blocc.studies.study import Study
from blocc.transport import Scenario, ScenarioDesign, ScenarioDesigns
from blocc.transport.design.documents import DESIGN
from browser import Page, needs_browser, visit
from power_reference import written
from road_designs import OPTIONS, small_roads
from transport_designs import fake_design, small_network

#: Each of them says RAN on the console where it is run.
RUN = "console.log('RAN')"
NAMES = (
    f"</script><script>{RUN}</script>",
    f'\'><img src=x onerror="{RUN}">',
    f'<svg onload="{RUN}">',
    f'"onmouseover="{RUN}" autofocus onfocus="{RUN}',
)
EVIL = " ".join((f"<script>{RUN}</script>", *NAMES, f'<a href="javascript:{RUN}">x</a>', "&lt;i&gt; {{7*7}} %{x} $a$"))


def _design(folder: Path) -> str:
    return design_page(fake_design(small_network(NAMES, name=EVIL), message=EVIL, settings={EVIL: EVIL}))


def _scenarios(folder: Path) -> str:
    designs = []
    for name, changes in (("base", {}), (EVIL, {"budget": 5.0})):
        design = fake_design(small_network(NAMES, name=EVIL), settings={"budget": changes.get("budget")})
        designs.append(ScenarioDesign(Scenario(name[:80], changes), design.network, DESIGN.document(design)))
    return scenario_page(ScenarioDesigns(designs[0].network, tuple(designs), {"bad": EVIL}, True))


def _roads(folder: Path) -> str:
    return road_page(expand_network(small_roads(names=NAMES), **{**OPTIONS}))


def _estimate(folder: Path) -> str:
    return estimate_page(estimate_demand(small_roads(names=NAMES), {"b>c": 1.0, 1: 5.0}, prior_weight=0.1, starts=1))


def _power(folder: Path) -> str:
    case = read_case(written(folder))
    object.__setattr__(case, "name", EVIL)
    return power_page(bid_generators(case, [2], offer_cap=70.0, starts=1))


def _lines(folder: Path) -> str:
    return power_page(expand_lines(read_case(written(folder)), [3], cost=4.0, goal="cost", starts=1))


def _study(folder: Path) -> str:
    study = Study("small", "a.b:c", {"gamma": [1.0, 2.0, 4.0], EVIL: list(NAMES)}, [0], {f"fixed {EVIL}": EVIL})
    rows: list[dict[str, Any]] = [
        {**cell.parameters, "value": 1.0, EVIL: EVIL, "status": "done", "error": None} for cell in study.cells()
    ]
    rows[-1] |= {"status": "failed", "error": EVIL}
    findings = Findings([Table(EVIL, [{EVIL: EVIL, "x": 1.0}], [EVIL])], [Observation(EVIL, True, EVIL)])
    items = [ItemView("one", EVIL, findings, trouble=EVIL), ItemView("two", EVIL, skipped=EVIL)]
    return study_page(Report(EVIL, [StudyView(study, rows)], items, {EVIL: {EVIL: EVIL}}))


def _comparison(folder: Path) -> str:
    rows = (MethodRow("gam", EVIL, status="error", message=EVIL), MethodRow("blocc", "", False, EVIL, "does not apply"))
    return comparison_page(Comparison(EVIL, rows, {EVIL: EVIL}), b"\x89PNG" + bytes(40))


MADE: dict[str, Callable[[Path], str]] = {
    **{"design": _design, "scenarios": _scenarios, "roads": _roads, "estimate": _estimate, "power": _power},
    **{"lines": _lines, "study": _study, "comparison": _comparison},
}


@pytest.fixture(scope="module", params=MADE)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A page by its name."""
    return request.param, MADE[request.param](tmp_path_factory.mktemp("page"))


def test_nothing_is_foreign_or_from_outside(made: tuple[str, str]) -> None:
    text = re.sub(r'<script type="text/plain" id="plotly">.*?</script>', "", made[1], flags=re.DOTALL)
    assert EVIL not in text
    assert not re.search(r"https?://(?!www\.w3\.org)|@import|url\(", re.sub(r"data:image/[^\"]*", "", text))
    page = Page(text)
    assert page.foreign() == []
    assert "b" not in {tag for tag, _ in page.tags}
    assert EVIL not in str(page.data)  # plotly.js turns tags of texts into markup
    (policy,) = [a["content"] or "" for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    assert not re.search(r"eval|https?:|\*", policy)


def test_places_and_regions_have_names(made: tuple[str, str]) -> None:
    """Links lead to places of the page, and whoever hears it is told what a region holds."""
    page = Page(made[1])
    places = page.values("id")
    assert len(places) == len(set(places))
    assert all(link is not None and link.removeprefix("#") in places for link in page.values("href"))
    labels = [a["aria-label"] or "" for _, a in page.tags if a.get("role") in ("region", "img")]
    assert labels
    assert all(labels)
    assert not set(labels) & set(places)
    assert all(page.values("alt"))
    assert {"settings-section", "versions-section"} <= set(places) or made[0] in ("scenarios", "study")


@needs_browser
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_browser_draws_it_runs_no_script_of_a_name_and_asks_nobody(made: tuple[str, str], tmp_path: Path) -> None:
    """With the policy left out, so that it cannot help."""
    seen = visit(made[1].replace('http-equiv="Content-Security-Policy"', 'name="nothing"'), tmp_path)
    assert seen.console == []
    assert seen.requests == []
    assert seen.picture.std() > 5.0


@needs_browser
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_browser_test_notices_a_script(tmp_path: Path) -> None:
    page = _study(tmp_path).replace("</main>", f"{NAMES[1]}</main>")
    unguarded = page.replace('http-equiv="Content-Security-Policy"', 'name="nothing"')
    assert any("RAN" in line for line in visit(unguarded, tmp_path).console)
