"""The application in one file, through its own commands: plan, files, page, checkpoint, verification."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from blocc.cli.common import make_app

FILE = Path(__file__).parents[2] / "examples" / "parking.py"


@pytest.fixture(scope="module")
def parking() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("parking", FILE)
    assert spec is not None
    assert spec.loader is not None
    sys.modules["parking"] = found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    yield found
    del sys.modules["parking"]


@pytest.fixture(scope="module")
def folder(parking: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan, as the command writes it."""
    found = tmp_path_factory.mktemp("plan")
    kept = found / "run.npz"
    given = ["plan", "town", "--starts", "1", "--quiet", "--checkpoint", str(kept), "--out", str(found / "out")]
    ended = CliRunner().invoke(_app(parking), given)
    assert ended.exit_code == 0, ended.output
    assert kept.exists()
    return found


def _app(parking: Any) -> Any:
    return make_app("", parking.plan_command, parking.verify_command)


def test_files_are_written_and_read_back(parking: Any, folder: Path) -> None:
    out = folder / "out"
    names = {"parking-plan.json", "parking-plan.xlsx", "garages.csv", "summary.csv", "columns.csv", "report.html"}
    assert {path.name for path in out.iterdir()} == names
    plan = parking.PLAN.load(out)
    assert plan.success
    assert plan.objective == pytest.approx(
        plan.city.worth(plan.fee, plan.opened, plan.city.choices(plan.fee, plan.opened))
    )
    assert "<script" in (out / "report.html").read_text(encoding="utf-8")


def test_plan_is_better_than_a_grid_of_fees(parking: Any, folder: Path) -> None:
    """Brute force by the drivers' dual: all spaces that are needed are open, fees on a grid."""
    plan, city = parking.PLAN.load(folder / "out"), parking.TOWN
    best = -np.inf
    for one in np.linspace(0.0, 12.0, 13):
        for other in np.linspace(0.0, 12.0, 13):
            fee = np.array([one, other])
            shares = city.choices(fee, city.spaces)
            best = max(best, city.worth(fee, city.drivers @ shares[:, 1:], shares))
    assert best <= plan.objective + 1e-6 * abs(best)
    assert plan.objective <= 1.05 * best  # the grid is coarse, and not far away


def test_verification_tells_an_honest_plan_from_a_changed_one(parking: Any, folder: Path) -> None:
    out, app = folder / "out", _app(parking)
    honest = CliRunner().invoke(app, ["verify", str(out), "town"])
    assert honest.exit_code == 0, honest.output
    file = out / "parking-plan.json"
    kept = file.read_text(encoding="utf-8")
    said = json.loads(kept)
    said["summary"]["objective"] *= 1.1
    file.write_text(json.dumps(said), encoding="utf-8")
    assert CliRunner().invoke(app, ["verify", str(out), "town"]).exit_code == 2  # its digest is another
    file.write_text(kept, encoding="utf-8")
    plan = parking.PLAN.load(out)
    for field, value in (("fee", 1.2 * plan.fee), ("share", plan.share[::-1]), ("objective", 1.1 * plan.objective)):
        forged = type(plan)(**{**vars(plan), field: value})
        assert not parking.verify_plan(parking.TOWN, forged).ok


def test_a_run_goes_on_from_its_checkpoint(parking: Any, folder: Path) -> None:
    again = parking.plan_parking(parking.TOWN, starts=1, resume=folder / "run.npz")
    assert np.array_equal(again.fee, parking.PLAN.load(folder / "out").fee)


def test_bad_cities_are_refused_by_name(parking: Any, tmp_path: Path) -> None:
    ended = CliRunner().invoke(_app(parking), ["plan", str(tmp_path / "none.json")])
    assert ended.exit_code == 2
    assert "none.json" in ended.output
