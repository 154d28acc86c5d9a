"""Reports of studies: tables in files, the picture, the page, its safety and how it looks in a browser."""

from __future__ import annotations

import csv
import io
import math
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from blocc.errors import BloccError
from blocc.kit.figure import figure_image, new_figure
from blocc.kit.storage import write_files
from blocc.report.study.study_page import draw_study, main_parameter, study_page
from blocc.report.study.study_tables import (
    item_files,
    latex_table,
    markdown_findings,
    naming_columns,
    parts,
    study_files,
    table_csv,
)
from blocc.report.study.study_views import (
    Findings,
    ItemView,
    Observation,
    Report,
    StudyView,
    Table,
    read_report,
    spread,
    summary_rows,
)
from blocc.studies.engine import Progress, run_study
from blocc.studies.study import Study
from browser import Page, needs_browser, visit

EVIL = "<script>alert(1)</script>"
MARKUP = '"><img src=x onerror=alert(2)> $a$ | \\'


def compute(gamma: float, kind: str, seed: int) -> dict:
    """The function of the studies here."""
    if kind == EVIL and gamma > 50.0:
        raise ValueError(EVIL)
    return {"value": 1.0 / gamma + 0.01 * seed, "success": seed != 1, "words": MARKUP, "x": [1.0, None], "seconds": 0.5}


def make_study(**given: object) -> Study:
    defaults: dict = {
        "name": "small",
        "function": "test_study_page:compute",
        "grid": {"gamma": [1.0, 10.0, 100.0], "kind": ["plain", EVIL]},
        "seeds": [0, 1, 2],
        "fixed": {},
    }
    return Study(**{**defaults, **given})


def make_view(study: Study | None = None, count: int | None = None, **given: object) -> StudyView:
    """Rows as the engine gives them, without the engine."""
    study = study or make_study()
    rows = []
    for cell in study.cells()[:count]:
        try:
            rows.append({**cell.parameters, **compute(**cell.parameters), "status": "done", "error": None})
        except ValueError as error:
            rows.append({**cell.parameters, "status": "failed", "error": f"ValueError: {error}\n  at {MARKUP}"})
    return StudyView(study, rows, **given)  # type: ignore[arg-type]


def make_item() -> ItemView:
    figure = new_figure(4.0, 2.0)
    figure.subplots().plot([0, 1], [0, 1])
    findings = Findings(
        [Table("Table 1 " + EVIL, [{"eta": 0.1, "gap": 1e-3, "words": MARKUP}, {"eta": 1.0}], ["a note " + EVIL])],
        [
            Observation("It falls " + EVIL, True, "from 3 to 1"),
            Observation("It rises", False),
            Observation("Who knows", None),
        ],
    )
    return ItemView("toy", "The toy " + EVIL, findings, {"surface": figure_image(figure)})


def make_report(**given: object) -> Report:
    skipped = ItemView("svm", "The SVM", skipped="there is no data " + EVIL)
    defaults: dict = {"items": [make_item(), skipped], "facts": {"machine": {"system": EVIL}, "python": "3"}}
    return Report("A report " + EVIL, [make_view(shown=["value", "success"])], **{**defaults, **given})


# --- views, summary, files -------------------------------------------------------------------------------------------
def test_counts() -> None:
    view = make_view(count=15)
    assert (view.total, len(view.done), len(view.failed), view.missing) == (18, 15, 0, 3)
    view = make_view()
    assert (view.total, len(view.done), len(view.failed), view.missing) == (18, 15, 3, 0)
    assert view.columns == ["value", "success", "words", "x", "seconds"]
    assert view.drawn == ["value", "success", "seconds"]
    assert make_view(shown=["seconds", "words"]).drawn == ["seconds"]


def test_spread() -> None:
    found = spread([1.0, 3.0, None, "x", float("nan")])
    assert (found.mean, found.count) == (2.0, 2)
    assert found.deviation == pytest.approx(2.0**0.5)
    assert np.isnan(spread([]).mean)
    rows = summary_rows(make_view(shown=["value"]))
    assert len(rows) == 5
    assert rows[0]["seeds"] == 3
    assert rows[0]["value"].mean == pytest.approx(1.01)
    assert summary_rows(make_view(make_study(seeds=[0])))[0]["value"] == 1.0


def test_study_files() -> None:
    files = study_files(make_view())
    assert list(files) == ["small.csv", "small-summary.csv", "small.md", "small.sha256"]
    listed = dict(line.split("  ")[::-1] for line in files["small.sha256"].decode().splitlines())
    assert listed == {name: sha256(files[name]).hexdigest() for name in list(files)[:3]}
    rows = list(csv.DictReader(io.StringIO(files["small.csv"].decode())))
    assert len(rows) == 18
    assert rows[0]["value"] == "1.0"
    assert rows[0]["x"] == "[1.0, null]"
    assert rows[-1]["status"] == "failed"
    assert rows[-1]["error"].startswith("ValueError: <script>")
    summary = list(csv.DictReader(io.StringIO(files["small-summary.csv"].decode())))
    assert float(summary[0]["value mean"]) == pytest.approx(1.01)
    text = files["small.md"].decode()
    assert "18 cells: 15 done, 3 failed, 0 missing." in text
    assert "<script>" not in text
    assert "| 1 | plain | 3 | 1.01 ± 0.01 |" in text


def test_item_files(tmp_path: Path) -> None:
    item = make_item()
    files = item_files(item, [make_view()])
    assert list(files) == ["toy.csv", "toy.tex", "toy.md", "toy-surface.png", "toy-rows-small.csv", "toy.sha256"]
    assert files["toy.csv"].decode().splitlines()[0] == "eta,gap,words"
    assert item.findings is not None
    text = markdown_findings(item.title, item.findings)
    assert "- **does not hold**: It rises" in text
    assert "- **inconclusive**: Who knows" in text
    assert write_files(tmp_path / "made", files)[0].read_bytes() == files["toy.csv"]
    with pytest.raises(BloccError, match="cannot write into"):
        write_files(tmp_path / "made" / "toy.csv", files)


def test_tables_of_differing_rows() -> None:
    assert table_csv([{"a": 1}, {"b": float("nan")}]).decode() == "a,b\n1,\n,\n"
    assert table_csv([]).decode() == ""


def test_wide_tables_are_printed_in_parts() -> None:
    rows = [{"a": 1, "b": k, **{f"column{j}": 1.0 for j in range(9)}} for k in range(3)]
    assert naming_columns(rows, list(rows[0])) == ["a", "b"]
    packed = parts(rows, list(rows[0]), 60)
    assert len(packed) > 1
    assert all(part[:2] == ["a", "b"] for part in packed)
    assert [key for part in packed for key in part[2:]] == list(rows[0])[2:]


# --- pictures --------------------------------------------------------------------------------------------------------
def test_picture() -> None:
    figure = draw_study(make_view(shown=["value", "success"]))
    assert figure is not None
    assert figure_image(figure, "svg").startswith(b"<?xml")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["value", "success"]
    assert len(figure.axes[0].containers) == 2  # a line for each kind
    assert figure.axes[0].get_xscale() == "log"


@pytest.mark.parametrize(
    ("grid", "seeds", "parameter"),
    [
        ({"gamma": [1.0, 2.0], "kind": ["plain", MARKUP, "c"]}, [0], "gamma"),
        ({"gamma": [1.0], "kind": ["plain", MARKUP]}, [0], "kind"),
        ({"gamma": [1.0], "kind": ["plain"]}, [0, 1], "seed"),
        ({"gamma": [1.0], "kind": ["plain"]}, [0], None),
    ],
)
def test_what_is_drawn_against_what(grid: dict, seeds: list[int], parameter: str | None) -> None:
    view = make_view(make_study(grid=grid, seeds=seeds))
    assert main_parameter(view) == parameter
    figure = draw_study(view)
    assert (figure is None) == (parameter is None)
    if figure is not None:
        assert figure_image(figure, "svg")  # a dollar in a name is no formula


def test_no_picture_of_nothing() -> None:
    assert draw_study(make_view(count=0)) is None


# --- the page --------------------------------------------------------------------------------------------------------
def test_page_says_what_the_rows_say() -> None:
    words = " ".join(Page(study_page(make_report())).words)
    for expected in ("18 cells: 15 done, 3 failed, 0 missing.", "some cells failed", "1.01 ± 0.01", "Failed cells"):
        assert expected in words
    for expected in (
        "It falls",
        "from 3 to 1",
        "holds",
        "does not hold",
        "inconclusive",
        "Skipped: there is no data",
    ):
        assert expected in words


def test_the_picture_is_described() -> None:
    view = make_view(make_study(grid={"gamma": [1.0, 10.0], "kind": ["plain", "odd"]}), shown=["value"])
    page = Page(study_page(Report("one", [view])))
    assert page.values("alt") == [
        "small, against gamma: value from 0.11 to 1.01; one line for each of kind plain, kind odd."
    ]
    labels = [attributes["aria-label"] for _, attributes in page.tags if attributes.get("role") == "region"]
    assert labels == ["Means over the seeds: small", "All rows: small"]


def test_running_and_incomplete() -> None:
    running = Report("one", [make_view(count=3, running=True)])
    assert 'class="badge warn">running<' in study_page(running)
    assert 'class="badge warn">incomplete<' in study_page(Report("one", [make_view(count=3)]))
    complete = Report("one", [make_view(make_study(grid={"gamma": [1.0], "kind": ["plain"]}))])
    assert 'class="badge good">complete<' in study_page(complete)
    assert "No rows" not in study_page(Report("none", []))
    assert "18 missing" in study_page(Report("none", [make_view(count=0)]))


def test_long_tables_are_cut() -> None:
    view = make_view(make_study(seeds=list(range(800))))
    text = study_page(Report("long", [view]))
    assert "The first 2,000 of 4,000 rows." in text
    assert len(text) < 3e6


def test_from_a_store(tmp_path: Path) -> None:
    store = tmp_path / "kept" / "study.sqlite"
    run_study(make_study(), store)
    report = read_report(store, shown={"small": ["value"]})
    assert report.title == "small"
    assert (report.total, report.done, report.failed, report.running) == (18, 15, 3, False)
    assert report.studies[0].drawn == ["value"]
    assert report.facts["executor"] == "serial"
    words = " ".join(Page(study_page(report)).words)
    assert "version: jax" in words
    with pytest.raises(BloccError, match="does not exist"):
        read_report(tmp_path / "none.sqlite")


def test_a_running_study_is_labelled(tmp_path: Path) -> None:
    store = tmp_path / "study.sqlite"
    seen: list[Report] = []

    def look(progress: Progress) -> None:
        if progress.done == 4:
            seen.append(read_report(store))

    run_study(make_study(), store, on_progress=look)
    (report,) = seen
    assert report.running
    assert report.done == 4
    assert not read_report(store).running


# --- in a browser ----------------------------------------------------------------------------------------------------
#: Uses the page as a reader would: sorts the rows by value twice, filters them, and says what came of it.
READER = """<script>
setTimeout(function () {
  document.querySelectorAll('details').forEach(function (part) { part.open = true; });
  var table = document.getElementById('study-0-rows'), said = [], body = table.tBodies[0];
  var index = Array.from(table.tHead.rows[0].cells).findIndex(function (cell) { return cell.textContent === 'value'; });
  var head = table.tHead.rows[0].cells[index], button = head.querySelector('button');
  button.focus();
  said.push(document.activeElement === button);
  button.click();
  said.push(head.getAttribute('aria-sort') + ' ' + body.rows[0].cells[index].textContent);
  button.click();
  said.push(head.getAttribute('aria-sort') + ' ' + body.rows[0].cells[index].textContent);
  var filter = document.querySelector('input[data-filters="study-0-rows"]');
  filter.value = 'ALERT(1) 0.12';
  filter.dispatchEvent(new Event('input'));
  said.push(document.getElementById('study-0-rows-count').textContent);
  filter.value = '';
  filter.dispatchEvent(new Event('input'));
  said.push(Array.from(document.images).every(function (image) { return image.naturalWidth > 100; }));
  said.push(document.documentElement.scrollWidth <= window.innerWidth);
  console.log('READER ' + said.join(' | '));
}, 1500);
</script></body>"""


@needs_browser
def test_browser_shows_the_page_and_asks_nobody(tmp_path: Path) -> None:
    """With hostile words, so that a script of theirs would be noticed, too."""
    text = study_page(make_report()).replace('loading="lazy"', "")
    found = visit(text.replace("</body>", READER), tmp_path)
    assert found.requests == []
    (line,) = found.console
    said = line.partition("READER ")[2].rpartition('", source:')[0].split(" | ")
    assert said == ["true", "ascending 0.01", "descending 1.02", "1 of 15 rows", "true", "true"]
    blue = (np.abs(found.picture - np.array([0, 114, 178])) <= 6).all(axis=2)
    assert int(blue.sum()) > 100  # lines of a picture


@needs_browser
def test_browser_draws_in_light_ink_on_dark_pages(tmp_path: Path) -> None:
    report = Report("one", [make_view(make_study(grid={"gamma": [1.0, 10.0]}, fixed={"kind": "plain"}))])
    text = study_page(report).replace('loading="lazy"', "")
    shades = [visit(text, tmp_path, dark=dark).picture[330:600, 60:500].mean(axis=2) for dark in (False, True)]
    assert np.median(shades[0]) > 240
    assert np.median(shades[1]) < 60
    assert (shades[1] > 120).sum() > 500  # the curve and its axes


def test_tables_for_latex() -> None:
    wide = {f"column {k}": f"{k}.5 ± 0.1" for k in range(12)}
    table = Table("100% of a_b & c", [{"name": "x^2", **wide}, {"name": "y<1", **wide}], ["a note: $5"])
    text = latex_table(table)
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") > 1  # too wide for one
    assert all(f"column {k} " in text or f"column {k}\n" in text for k in range(12))
    assert r"100\% of a\_b \& c" in text
    assert r"x\textasciicircum{}2" in text
    assert r"$<$" in text
    assert r"0.5 $\pm$ 0.1" in text
    assert r"a note: \$5" in text
    assert latex_table(Table("empty", [])) == ""
    numbers = latex_table(Table("numbers", [{"value": value} for value in (-1.5, -math.inf)]))
    assert r"$-$1.5 \\" in numbers
    assert r"$-$$\infty$ \\" in numbers
    assert numbers.isascii()  # pdflatex knows no other minus sign
