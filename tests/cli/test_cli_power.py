"""``blocc power``: what it computes, prints and writes, exit codes, and ``blocc verify`` afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from power_reference import THREE, written

pytest.importorskip("cvxpy", reason="CVXPY is not installed")
pytest.importorskip("matpowercaseframes", reason="matpowercaseframes is not installed")

from command_line import blocc

from blocc.power import PowerDesign


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    """Three buses."""
    return written(tmp_path)


def test_bids_are_written_and_verified(ring: Path, tmp_path: Path) -> None:
    out = tmp_path / "bids"
    done = blocc("power", "bid", ring, "--generators", 2, "--offer-cap", 70, "--starts", 1, "--out", out)
    assert done.exit_code == 0, done.output
    assert "three, strategic bids: converged" in done.output
    assert "generator 2 at bus 3" in done.output
    assert f"written: {out / 'report.html'}" in done.output.splitlines()
    assert PowerDesign.load(out).decision["generator 2 at bus 3"] == pytest.approx(70.0)
    assert blocc("verify", out / "design.json", ring).exit_code == 0
    other = written(tmp_path, THREE.replace("1 200 0;", "1 190 0;"))
    assert blocc("verify", out / "design.json", other).exit_code == 6


def test_the_other_model_of_branches_is_verified_too(tmp_path: Path) -> None:
    path, out = written(tmp_path, THREE.replace("60 60 60 0 0 1", "60 60 60 0.9 5 1")), tmp_path / "bids"
    arguments = ("--generators", 2, "--offer-cap", 70, "--starts", 1, "--quiet", "--out", out)
    assert blocc("power", "bid", path, "--branch-model", "matpower", *arguments).exit_code == 0
    assert blocc("verify", out / "design.json", path).exit_code == 0


def test_expansions_and_tariffs_as_json(ring: Path) -> None:
    arguments = ("--lines", 3, "--cost", 4, "--goal", "cost", "--starts", 1, "--json")
    document = json.loads(blocc("power", "expand", ring, *arguments).stdout)
    assert document["summary"]["status"] == "converged"
    assert document["decisions"][0]["name"] == "line 3 (1-3)"
    zones = json.dumps({"end": [3]})
    done = blocc("power", "tariff", ring, "--zones", zones, "--starts", 1, "--demand-factor", 0.5, "--json")
    document = json.loads(done.stdout)
    assert document["summary"]["goal"] == "revenue of the charges"
    assert "all demand is multiplied by 0.5" in document["case"]["assumptions"]


def test_validate_and_time_limits(ring: Path) -> None:
    done = blocc("power", "validate", ring)
    assert done.exit_code == 0
    assert done.output.startswith("ok: three, 3 buses, 2 generators, 3 lines, 150 MW of demand")
    limited = blocc("power", "bid", ring, "--generators", 2, "--time-limit", 1e-3, "--quiet")
    assert limited.exit_code == 8
    assert limited.output == ""
