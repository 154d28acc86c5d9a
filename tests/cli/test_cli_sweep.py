"""``blocc sweep`` and ``blocc report``: what they print and write, going on, Ctrl-C, exit codes, what they refuse."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from command_line import blocc

from blocc.studies import sweep_cells
from blocc.studies.store import Store

ROOT = Path(__file__).parents[2]
STUDY = """
name = "small"
problem = "toy"
seeds = 2
[options]
tolerance = 1e-3
[grid]
gamma = [5.0, 10.0]
[output]
columns = ["upper_value", "distance"]
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """Cells are computed at once, and listed here."""
    computed: list[dict] = []

    def solve_cell(**parameters: object) -> dict:
        computed.append(parameters)
        return {"upper_value": 1.5, "distance": 0.0, "success": True, "seconds": 0.1}

    monkeypatch.setattr(sweep_cells, "solve_cell", solve_cell)
    return computed


@pytest.mark.slow
def test_the_example(tmp_path: Path) -> None:
    outcome = blocc("sweep", ROOT / "examples" / "study.toml", "--out", tmp_path / "run")
    assert outcome.exit_code == 0, outcome.output
    assert "complete: 30 cells, 30 done, 0 failed, 0 missing" in outcome.stdout
    assert "30 of 30 runs converged" in outcome.stdout
    assert max(map(len, outcome.stdout.splitlines())) <= 120
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"study.sqlite", "study.toml", "report.json", "index.html", "toy-gamma.csv", "toy-gamma.md"} <= names
    rows = list(csv.DictReader((tmp_path / "run" / "toy-gamma.csv").read_text().splitlines()))
    assert len(rows) == 30
    assert {row["outcome"] for row in rows} == {"converged"}


def test_it_goes_on_where_it_stopped(study: Path, tmp_path: Path, cells: list[dict]) -> None:
    assert blocc("sweep", study, "--out", tmp_path / "run").exit_code == 0
    assert len(cells) == 4
    assert blocc("sweep", study, "--out", tmp_path / "run").exit_code == 0
    assert len(cells) == 4
    study.write_text(STUDY.replace("seeds = 2", "seeds = 3"))
    assert blocc("sweep", study, "--out", tmp_path / "run").exit_code == 0
    assert len(cells) == 6
    assert blocc("sweep", study, "--out", tmp_path / "run", "--fresh").exit_code == 0
    assert len(cells) == 12


def test_ctrl_c_keeps_what_is_done(
    study: Path, tmp_path: Path, cells: list[dict], monkeypatch: pytest.MonkeyPatch
) -> None:
    solve_cell = sweep_cells.solve_cell

    def interrupted(**parameters: object) -> dict:
        if len(cells) == 3:
            raise KeyboardInterrupt
        return solve_cell(**parameters)  # type: ignore[arg-type]

    monkeypatch.setattr(sweep_cells, "solve_cell", interrupted)
    outcome = blocc("sweep", study, "--out", tmp_path / "run")
    assert outcome.exit_code == 130
    assert "3 of 4 cells of small are done and kept" in outcome.stderr
    assert "incomplete: 4 cells, 3 done, 0 failed, 1 missing" in outcome.stdout
    assert "incomplete" in (tmp_path / "run" / "index.html").read_text()
    monkeypatch.setattr(sweep_cells, "solve_cell", solve_cell)
    assert blocc("sweep", study, "--out", tmp_path / "run").exit_code == 0
    assert len(cells) == 4


def test_failed_cells_are_counted_and_shown(
    study: Path, tmp_path: Path, cells: list[dict], monkeypatch: pytest.MonkeyPatch
) -> None:
    solve_cell = sweep_cells.solve_cell

    def failing(**parameters: object) -> dict:
        if parameters["gamma"] == 10.0:
            raise ValueError("too large <b>")
        return solve_cell(**parameters)  # type: ignore[arg-type]

    monkeypatch.setattr(sweep_cells, "solve_cell", failing)
    outcome = blocc("sweep", study, "--out", tmp_path / "run")
    assert outcome.exit_code == 3
    assert "some cells failed: 4 cells, 2 done, 2 failed, 0 missing" in outcome.stdout
    assert "failed: gamma 10, seed 1: ValueError: too large <b>" in outcome.stdout
    page = (tmp_path / "run" / "index.html").read_text()
    assert "too large &lt;b&gt;" in page
    monkeypatch.setattr(sweep_cells, "solve_cell", solve_cell)
    assert blocc("sweep", study, "--out", tmp_path / "run").exit_code == 0


def test_where_the_output_goes(study: Path, tmp_path: Path, cells: list[dict], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert blocc("sweep", study).exit_code == 0
    assert (tmp_path / "runs" / "small" / "index.html").is_file()
    study.write_text(STUDY + 'folder = "beside"\n')
    outcome = blocc("sweep", study, "--quiet")
    assert (outcome.exit_code, outcome.output) == (0, "")
    assert (tmp_path / "beside" / "index.html").is_file()


def test_report_of_a_run(study: Path, tmp_path: Path, cells: list[dict]) -> None:
    run = tmp_path / "run"
    blocc("sweep", study, "--out", run)
    (run / "index.html").unlink()
    outcome = blocc("report", run)
    assert outcome.exit_code == 0, outcome.output
    assert f"written: {run / 'index.html'}" in outcome.stdout
    assert "<h1>small</h1>" in (run / "index.html").read_text()
    (run / "report.json").write_text("[not json")
    assert blocc("report", run / "study.sqlite", "--out", tmp_path / "page.html").exit_code == 0
    assert (tmp_path / "page.html").is_file()


@pytest.mark.slow
def test_workers_compute_the_same(tmp_path: Path, study: Path) -> None:
    shutil.copy(ROOT / "examples" / "toy.py", tmp_path)
    study.write_text(STUDY.replace('problem = "toy"', 'problem = "toy.py"'))
    one, two = tmp_path / "one", tmp_path / "two"
    assert blocc("sweep", study, "--out", one, "--quiet").exit_code == 0
    assert blocc("sweep", study, "--out", two, "--executor", "processes", "--workers", 2, "--quiet").exit_code == 0

    def rows(folder: Path) -> list[dict]:
        found = list(csv.DictReader((folder / "small.csv").read_text().splitlines()))
        return [{key: value for key, value in row.items() if "seconds" not in key} for row in found]

    assert rows(one) == rows(two)
    with Store(two / "study.sqlite", read_only=True) as store:
        assert store.studies()[0].settings["executor"] == "processes"


def test_settings_of_a_report(study: Path, tmp_path: Path, cells: list[dict]) -> None:
    blocc("sweep", study, "--out", tmp_path / "run")
    settings = json.loads((tmp_path / "run" / "report.json").read_text())
    assert settings == {"title": "small", "shown": {"small": ["upper_value", "distance"]}}
