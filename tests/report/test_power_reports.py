"""Answers about power systems as files and back again, and what their pictures show."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from browser import Page
from power_reference import written

pytest.importorskip("cvxpy", reason="CVXPY is not installed")
pytest.importorskip("matpowercaseframes", reason="matpowercaseframes is not installed")

from blocc.kit.storage import ChangedError, StorageError
from blocc.power import PowerDesign, bid_generators, expand_lines, read_case
from blocc.report.power_layout import places
from blocc.report.power_report import report_page


@pytest.fixture(scope="module")
def bids(tmp_path_factory: pytest.TempPathFactory) -> PowerDesign:
    """Offers in the ring of three buses."""
    return bid_generators(read_case(written(tmp_path_factory.mktemp("case"))), [2], offer_cap=70.0, starts=1)


@pytest.fixture(scope="module")
def folder(bids: PowerDesign, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is saved of them."""
    target = tmp_path_factory.mktemp("saved")
    bids.save(target)
    return target


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
