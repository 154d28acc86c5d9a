"""``blocc design --scenario``: lines and files of scenarios, what is printed and written, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import blocc

from blocc.kit.documents import Document
from blocc.result import Status
from blocc.transport import Design, TransportNetwork
from blocc.transport.design import scenario_runs
from transport_designs import fake_design


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Designs that take no time and write nothing; collects what was asked for."""
    calls: list[dict[str, Any]] = []

    def design(network: TransportNetwork, **options: Any) -> Design:
        calls.append({"demand": network.demand.sum(), **options})
        status = Status.TIME_LIMIT if options.get("time_limit") else Status.CONVERGED
        return fake_design(network, status=status)

    monkeypatch.setattr(scenario_runs, "design_network", design)
    monkeypatch.setattr(Document, "write", lambda kind, design, folder: [])
    return calls


def test_every_scenario_is_designed_told_and_written(tmp_path: Path, made: list[dict[str, Any]]) -> None:
    lines = ("--scenario", "base", "--scenario", "growth: budget=200,demand=1.1")
    found = blocc("design", "three", *lines, "--budget", 100, "--starts", 2, "--out", tmp_path)
    assert found.exit_code == 0, found.output
    assert [(call["budget"], call["starts"]) for call in made] == [(100.0, 2), (200, 2)]
    assert made[1]["demand"] == pytest.approx(1.1 * made[0]["demand"])
    for words in ("blocc: growth: begun", "blocc: growth: converged, utility", f"written: {tmp_path}/scenarios.html"):
        assert words in found.output
    assert "growth" in (tmp_path / "scenarios.html").read_text(encoding="utf-8")


def test_scenarios_from_a_file(tmp_path: Path, made: list[dict[str, Any]]) -> None:
    file = tmp_path / "plans.toml"
    file.write_text('[small]\nbudget = 1\n["two lines"]\nsymmetric = true\nmax_capacity = [1, 1, 1, 1, 1, 1]\n')
    found = blocc("design", "three", "--scenarios", file, "--scenario", "budget=2", "--json", "--quiet")
    assert [row["scenario"] for row in json.loads(found.output)] == ["small", "two lines", "budget=2"]
    assert made[1]["symmetric"] is True
    assert [call.get("budget") for call in made] == [1, None, 2]


def test_the_exit_code_is_that_of_the_worst() -> None:
    assert blocc("design", "three", "--scenario", "base", "--scenario", "time_limit=1", "--quiet").exit_code == 8


def test_files_that_are_no_scenarios(tmp_path: Path) -> None:
    file = tmp_path / "plans.toml"
    for text, words in (("budget = 3", "'budget' must be a table"), ("[", "is not a TOML file")):
        file.write_text(text)
        found = blocc("design", "three", "--scenarios", file)
        assert found.exit_code == 2
        assert words in found.output
