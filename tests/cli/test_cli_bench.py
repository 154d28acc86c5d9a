"""``blocc bench``: what it writes, how it goes on, and what it refuses."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from command_line import blocc as call
from typer.testing import Result as Outcome


def blocc(*arguments: object) -> Outcome:
    return call("bench", *arguments)


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
