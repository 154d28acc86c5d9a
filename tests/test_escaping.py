"""Words from outside stay words: in pages, pictures and tables."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from pathlib import Path

import pytest

from blocc.kit.gis import geojson
from blocc.methods.compare import Comparison, MethodRow
from blocc.report.comparison import comparison_markdown
from blocc.report.study.study_tables import markdown_findings, markdown_rows, study_files
from blocc.report.study.study_views import Findings, Observation, StudyView, Table
from blocc.report.transport.design_charts import picture_files
from blocc.report.transport.design_pdf import report_pdf
from blocc.studies.study import Study
from blocc.transport.design.documents import DESIGN, design_layers
from blocc.transport.network.files import read_network, write_network
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
