"""Words from outside stay words: in pages, pictures and tables."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from blocc.report.transport.design_figures import picture_files

from blocc.kit.gis import geojson
from blocc.methods.compare import Comparison, MethodRow
from blocc.report.comparison import comparison_markdown
from blocc.report.study.study_page import study_page
from blocc.report.study.study_tables import markdown_findings, markdown_rows, study_files
from blocc.report.study.study_views import Findings, ItemView, Observation, Report, StudyView, Table
from blocc.report.transport.design_page import report_page
from blocc.report.transport.design_pdf import report_pdf
from blocc.studies.study import Study
from blocc.transport.design.documents import DESIGN, design_layers
from blocc.transport.network.files import read_network, write_network
from browser import Page, needs_browser, visit
from transport_designs import fake_design, small_network

#: Each of them says RAN on the console where it is run.
RUN = "console.log('RAN')"
HOSTILE = (
    f"<script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f'"onmouseover="{RUN}" autofocus onfocus="{RUN}',
    f'\'><img src=x onerror="{RUN}">',
    f'<svg onload="{RUN}">',
    f'<a href="javascript:{RUN}">x</a>',
    f"</style></title></textarea><script>{RUN}</script>",
    f"<!--<script>{RUN}</script>-->",
    f"&lt;script&gt;{RUN}&lt;/script&gt;",
    "{{7*7}} ${7*7} %{x} $\\frac{a $",
    "\u2028\u2029\u202e\x07\ufeff",
)
ALL = " ".join(HOSTILE)


def hostile_designs() -> list[str]:
    """Pages of designs whose every word is hostile."""
    pages = []
    for start in range(0, len(HOSTILE), 4):
        names = tuple((HOSTILE + HOSTILE)[start : start + 4])
        network = small_network(names, name=names[0] + ALL, notes=ALL)
        words: dict[str, Any] = {"settings": {ALL: ALL}, "versions": {ALL: ALL}, "message": ALL}
        pages.append(report_page(fake_design(network, **words)))
    return pages


def hostile_study() -> str:
    """A page about a study whose every word is hostile."""
    study = Study("small", f"a.b:{ALL}", {ALL: [1.0, 2.0], "kind": list(HOSTILE)}, [0], {f"fixed {ALL}": ALL})
    rows = []
    for cell in study.cells():
        failed = cell.parameters[ALL] == 2.0
        ending = {"status": "failed", "error": f"{ALL}\n{ALL}"} if failed else {"status": "done", "error": None}
        rows.append({**cell.parameters, **({} if failed else {"value": 1.0, f"words {ALL}": ALL}), **ending})
    findings = Findings([Table(ALL, [{ALL: ALL, "x": 1.0}], [ALL])], [Observation(ALL, True, ALL)])
    items = [ItemView(ALL, ALL, findings, trouble=ALL), ItemView(ALL, ALL, skipped=ALL)]
    facts = {ALL: {ALL: ALL}, "machine": ALL}
    return study_page(Report(ALL, [StudyView(study, rows, [ALL, "value"])], items, facts))


def test_pages_hold_no_foreign_elements() -> None:
    plain_scripts = Page(report_page(fake_design(small_network()))).count("script")
    for page in map(Page, hostile_designs()):
        assert page.foreign() == []
        assert page.count("script") == plain_scripts
    page = Page(hostile_study())
    assert (page.foreign(), page.count("script")) == ([], 1)


@needs_browser
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", [pytest.param("design", marks=pytest.mark.slow), "study"])
def test_no_script_of_a_stranger_runs(kind: str, tmp_path: Path) -> None:
    """Pages after their own scripts have drawn everything, with the security policy left out so that it cannot help."""
    page = hostile_designs()[0] if kind == "design" else hostile_study()
    found = visit(page.replace('http-equiv="Content-Security-Policy"', 'name="nothing"'), tmp_path)
    assert not any("RAN" in line for line in found.console), found.console
    assert found.requests == []


@pytest.mark.slow
@needs_browser
@pytest.mark.timeout(90)
def test_the_browser_test_notices_a_script(tmp_path: Path) -> None:
    page = hostile_study().replace("</main>", f"{HOSTILE[3]}</main>")
    unguarded = page.replace('http-equiv="Content-Security-Policy"', 'name="nothing"')
    assert any("RAN" in line for line in visit(unguarded, tmp_path).console)


def test_pictures_take_any_words() -> None:
    """Half a formula, control characters and right-to-left marks among them."""
    network = small_network(("$a", "\\frac{", "{{$", HOSTILE[-1]), name="$\\frac{a $ " + ALL)
    assert all(image for image in picture_files(fake_design(network)).values())
    assert report_pdf(fake_design(network))


def test_markdown_holds_no_tags() -> None:
    findings = Findings([Table(ALL, [{ALL: ALL}], [ALL])], [Observation(ALL, None, ALL)])
    for text in (markdown_rows([{ALL: ALL, "b": "a|b\nc"}]), markdown_findings(ALL, findings)):
        assert "<script" not in text
        assert "<img" not in text
    assert markdown_rows([{"a": "x|y\nz"}]).count("\n") == 3


def test_comparisons_are_words_in_markdown() -> None:
    """By a reader of Markdown: the same words come out, and no element but the page's own."""
    reader = pytest.importorskip("markdown_it").MarkdownIt("gfm-like", {"linkify": False})
    marked = "**a** ![x](y) [z](http://b) <b> `c` | # d _e_ ~~f~~ &lt; \\* 1. - g"
    row = MethodRow(marked, f"# {marked}", status="does not apply", why_not=f"{marked}\n- # {marked}\n\n1. h")
    text = reader.render(comparison_markdown(Comparison(marked[:60], (row,))))
    assert set(re.findall(r"<(\w+)", text)) <= {"h1", "p", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"}
    assert text.count("<li>") == text.count("<h1>") == 1
    assert html.escape(marked, quote=False) in text


def test_geojson_keeps_every_word() -> None:
    network = small_network(HOSTILE[:4])
    document = json.loads(json.dumps(geojson(design_layers(fake_design(network)))))
    names = [part["properties"]["name"] for part in document["features"] if part["properties"]["kind"] == "node"]
    assert names == list(HOSTILE[:4])


# --- formulas in tables -----------------------------------------------------------------------------------------------
FORMULAS = ("=cmd|' /C calc'!A0", "+1+cmd|x", "-2+3+cmd|' /C calc'!A0", "@SUM(1)")


def test_a_carriage_return_survives_a_network(tmp_path: Path) -> None:
    text = "a\r=1+1"
    again = read_network(write_network(small_network((text, "b", "c", "d")), tmp_path / "net"))
    assert again.labels[0] == text


def test_tables_of_designs_and_studies_are_guarded(tmp_path: Path) -> None:
    DESIGN.write(fake_design(small_network((*FORMULAS[:3], "East"))), tmp_path)
    for file in ("links.csv", "markets.csv"):
        for row in csv.reader(io.StringIO((tmp_path / file).read_text(), newline="")):
            assert not any(cell.startswith("=") for cell in row), row
    study = Study("small", "a.b:c", {"kind": [FORMULAS[0]]})
    rows = [{**cell.parameters, "value": FORMULAS[3], "status": "done", "error": None} for cell in study.cells()]
    text = study_files(StudyView(study, rows))["small.csv"].decode()
    assert f"'{FORMULAS[3]}" in text
    assert f"'{FORMULAS[0]}" in text
