"""Answers about power systems as files: tables, arrays, the picture, the page, and back again."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from browser import Page, needs_browser, visit
from power_reference import THREE, written

pytest.importorskip("cvxpy", reason="CVXPY is not installed")
pytest.importorskip("matpowercaseframes", reason="matpowercaseframes is not installed")

from blocc.report.power.power_layout import places
from blocc.report.power.power_page import report_page

from blocc.kit.storage import ChangedError, StorageError
from blocc.power import PowerDesign, bid_generators, expand_lines, read_case


@pytest.fixture(scope="module")
def bids(tmp_path_factory: pytest.TempPathFactory) -> PowerDesign:
    """Offers in the ring of three buses, whose name is no markup."""
    case = read_case(written(tmp_path_factory.mktemp("case"), THREE.replace("3 1 100.0", "3 1 101.0")))
    object.__setattr__(case, "name", "<b>ring</b>")
    return bid_generators(case, [2], offer_cap=70.0, starts=1)


@pytest.fixture(scope="module")
def folder(bids: PowerDesign, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is saved of them."""
    target = tmp_path_factory.mktemp("saved")
    bids.save(target)
    return target


def test_all_files_are_written_and_say_the_same(bids: PowerDesign, folder: Path) -> None:
    tables = {"summary", "decisions", "buses", "generators", "lines", "columns"}
    names = {f"{name}.csv" for name in tables}
    names |= {"design.json", "design.xlsx", "design.npz", "design.png", "report.html"}
    assert {path.name for path in folder.iterdir()} == names
    with (folder / "buses.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    np.testing.assert_allclose([float(row["price_after"]) for row in rows], bids.after.price)
    with np.load(folder / "design.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["flow_after"], bids.after.flow)
    with (folder / "columns.csv").open(encoding="utf-8-sig", newline="") as file:
        known = {(row["file"], row["column"]) for row in csv.DictReader(file)}
    for table in tables - {"summary", "columns"}:
        with (folder / f"{table}.csv").open(encoding="utf-8-sig", newline="") as file:
            headings = next(csv.reader(file))
        assert {(f"{table}.csv", one) for one in headings} <= known


def test_a_design_comes_back_and_verifies(bids: PowerDesign, folder: Path) -> None:
    found = PowerDesign.load(folder)
    assert repr(found) == repr(bids)
    assert found.verify().ok
    np.testing.assert_array_equal(found.case.capacity, bids.case.capacity)


def test_changed_and_damaged_files_are_refused(folder: Path, tmp_path: Path) -> None:
    text = (folder / "design.json").read_text(encoding="utf-8")
    document = json.loads(text)
    document["summary"]["objective"] *= 2.0
    target = tmp_path / "design.json"
    target.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ChangedError, match="was changed after it was saved"):
        PowerDesign.load(target)
    target.write_text(text[:300], encoding="utf-8")
    with pytest.raises(StorageError):
        PowerDesign.load(target)


def test_the_page_escapes_names_and_has_every_section(bids: PowerDesign) -> None:
    text = report_page(bids)
    page = Page(text)
    assert not page.foreign()
    assert "<b>ring</b>" not in text.partition("<script")[0]
    assert {"map-section", "decision-section", "certificate-section", "assumptions-section"} <= set(page.values("id"))
    words = " ".join(page.words)
    assert "no coordinates" in words
    assert "generator 2 at bus 3" in words
    assert len(page.figure("map")["data"]) >= 4


@needs_browser
def test_the_page_opens_without_errors_or_requests(bids: PowerDesign, tmp_path: Path) -> None:
    seen = visit(report_page(bids), tmp_path)
    assert seen.console == []
    assert seen.requests == []
    assert seen.picture.std() > 5.0


def test_lines_that_are_enlarged_have_an_edge(tmp_path: Path) -> None:
    case = read_case(written(tmp_path))
    design = expand_lines(case, [3], cost=4.0, goal="cost", starts=1)
    assert design.decision["line 3 (1-3)"] > 1.0
    widest = max(trace["line"]["width"] for trace in Page(report_page(design)).figure("map")["data"] if "line" in trace)
    assert widest > 7.0
    figure = design.plot(tmp_path / "design.svg")
    assert len(figure.axes) == 5  # four panels and a bar of colours
    assert (tmp_path / "design.svg").stat().st_size > 10_000


def test_a_ring_is_laid_out_as_a_triangle(tmp_path: Path) -> None:
    points = places(read_case(written(tmp_path)))
    sides = [np.linalg.norm(points[a] - points[b]) for a, b in ((0, 1), (1, 2), (0, 2))]
    np.testing.assert_allclose(sides, np.mean(sides), rtol=0.02)
