"""``blocc bench``: what it writes, how it goes on, and what it refuses."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner
from typer.testing import Result as Outcome

from blocc.cli import commands as cli


def blocc(*arguments: object) -> Outcome:
    return CliRunner().invoke(cli.build_app(), ["bench", *(str(argument) for argument in arguments)])


def test_files_and_going_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["--problems", "moving_lower_bound", "--methods", "gam,aipod", "--out", tmp_path]
    outcome = blocc(*given)
    assert outcome.exit_code == 0, outcome.output
    assert "complete: 2 cells, 2 done" in outcome.output
    assert "Performance profiles" in (tmp_path / "index.html").read_text()
    document = json.loads((tmp_path / "bench.json").read_text())
    assert document["best"] == {"moving_lower_bound": 0.9}
    assert [row["applies"] for row in document["rows"]] == [True, False]
    with (tmp_path / "profiles-curves.csv").open() as file:
        curves = list(csv.DictReader(file))
    assert {row["method"] for row in curves} == {"gam"}
    assert (tmp_path / "profiles-profiles.png").stat().st_size > 1000
    assert (tmp_path / "profiles-derivatives.pdf").read_bytes().startswith(b"%PDF")
    assert "\\begin{groupplot}" in (tmp_path / "profiles-derivatives.tex").read_text()
    assert "gam & 1 & " in (tmp_path / "methods.tex").read_text()
    again = (tmp_path / "profiles-1.csv").read_text()

    def never(**parameters: object) -> None:
        raise AssertionError("every cell is done already")

    monkeypatch.setattr("blocc.studies.benchmark.bench_cell", never)
    assert blocc(*given, "--quiet").exit_code == 0
    assert (tmp_path / "profiles-1.csv").read_text() == again


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--problems", "nowhere"], "'nowhere' is not in the collection"),
        (["--problems", ","], "--problems must be names such as toy,three"),
        (["--problems", "toy", "--full"], "--problems and --full exclude each other"),
        (["--methods", "newton"], "--methods must be names among blocc, lv-hba"),
        (["--time-limit", "0"], "--time-limit must be positive and finite"),
        (["--preset", "best"], "--preset must be default or paper, got 'best'"),
        (["--executor", "threads"], "--executor must be one of"),
    ],
)
def test_bad_input(arguments: list[str], words: str, tmp_path: Path) -> None:
    outcome = blocc(*arguments, "--out", tmp_path / "bench")
    assert outcome.exit_code == 2, outcome.output
    assert words in outcome.output
    assert not (tmp_path / "bench").exists()
