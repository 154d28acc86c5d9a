"""``blocc design``: the files it writes, what it prints, its exit codes, and its report in a browser."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import blocc, strict

from blocc.cli import design as cli_design
from blocc.kit.documents import Document
from blocc.kit.storage import StorageError
from blocc.transport import Design, DesignModel, design_network, read_network, write_network
from transport_designs import fake_design, one_market


@pytest.fixture(scope="module")
def model() -> DesignModel:
    return DesignModel(read_network("three"))


@pytest.fixture
def quick(model: DesignModel, monkeypatch: pytest.MonkeyPatch) -> list[Design]:
    """Lets the command design the three nodes without compiling them again; collects the designs."""
    made: list[Design] = []

    def design(network: Any, **options: Any) -> Design:
        assert network.name == model.network.name
        made.append(design_network(model.network, model=model, **options))
        return made[-1]

    monkeypatch.setattr(cli_design, "design_network", design)
    return made


def test_checkpoint_and_resume(tmp_path: Path, quick: list[Design]) -> None:
    file = tmp_path / "run.npz"
    assert blocc("design", "three", "--starts", 1, "--checkpoint", file, "--quiet").exit_code == 0
    assert blocc("design", "three", "--starts", 1, "--resume", file, "--quiet").exit_code == 0
    np.testing.assert_array_equal(quick[0].capacity, quick[1].capacity)
    other = blocc("design", "three", "--starts", 1, "--seed", 5, "--resume", file)
    assert other.exit_code == 2
    assert "--seed 0" in other.output


# --- what it writes ------------------------------------------------------------------------------------------------
def test_a_signal_while_files_are_written_costs_neither_answer_nor_files(
    tmp_path: Path, quick: list[Design], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    if before is not signal.SIG_DFL:
        pytest.skip("this process has a handler of its own for SIGTERM")

    def write(kind: Document, design: Design, target: Path) -> list[Path]:
        os.kill(os.getpid(), signal.SIGTERM)  # would end the process
        (target / "design.json").write_text("whole", encoding="utf-8")
        raise StorageError("no space left")

    monkeypatch.setattr(Document, "write", write)
    run = blocc("design", "three", "--starts", 1, "--out", tmp_path)
    assert (tmp_path / "design.json").read_text() == "whole"
    assert "utility" in run.stdout  # printed before anything is written
    assert run.exit_code == 2
    assert "no space left" in run.stderr
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("name", ["study.json", "study"], ids=["json", "gmns"])
def test_network_from_a_file(tmp_path: Path, quick: list[Design], name: str) -> None:
    source = write_network(read_network("three"), tmp_path / name)
    # GMNS files carry no name; the folder's is taken, so it is called like the network
    source = source.rename(tmp_path / "three") if source.is_dir() else source
    outcome = blocc("design", source, "--starts", 1)
    assert outcome.exit_code == 0, outcome.output
    assert quick[0].success


# --- what it prints ------------------------------------------------------------------------------------------------
def test_json_says_where_there_is_no_path(quick: list[Design]) -> None:
    """Most markets have no path here, and an infinite cost is no JSON number."""
    shown = strict(blocc("design", "three", "--starts", 1, "--json").stdout)
    assert np.isinf(quick[0].follower.path_cost).any()
    assert any(row.get("path_cost") is None for row in shown["markets"])


# --- options reach the design --------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize(("given", "last"), [("0.3", 0.3), ("[0.3, 0, 0.2, 0, 0, 0]", 0.2)])
def test_max_capacity_as_a_number_and_as_a_list(quick: list[Design], given: str, last: float) -> None:
    assert blocc("design", "three", "--starts", 1, "--max-capacity", given).exit_code == 0
    np.testing.assert_allclose(quick[0].capacity, [0.3, 0, last, 0, 0, 0], atol=1e-9)


def test_symmetric_within_a_budget(quick: list[Design]) -> None:
    assert blocc("design", "three", "--starts", 1, "--symmetric", "--budget", 1).exit_code == 0
    (design,) = quick
    assert design.network.cost @ design.capacity <= 1.0 + 1e-9
    np.testing.assert_array_equal(design.capacity, design.capacity[design.network.reverse])


def test_other_options(quick: list[Design]) -> None:
    outcome = blocc("design", "three", "--starts", 2, "--seed", 7, "--gamma", 300, "--method", "prices")
    assert outcome.exit_code in (0, 3)
    settings = quick[0].settings
    assert (settings["starts"], settings["seed"], settings["gamma"], settings["method"]) == (2, 7, 300.0, "prices")


def test_time_limit_has_its_own_code(quick: list[Design]) -> None:
    assert blocc("design", "three", "--time-limit", 1e-3).exit_code == 8


def test_lack_of_memory_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (MemoryError("Unable to allocate 37 GiB"), RuntimeError("RESOURCE_EXHAUSTED: Out of memory\nat")):

        def fail(*_: Any, error: Exception = error, **__: Any) -> None:
            raise error

        monkeypatch.setattr(cli_design, "design_network", fail)
        outcome = blocc("design", "three")
        assert outcome.exit_code == 10
        assert outcome.stderr.startswith("blocc: out of memory (")
        assert outcome.stderr.count("\n") == 1


def test_nothing_built_says_why(tmp_path: Path, quick: list[Design], monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the work, and with the answer."""
    made = fake_design(replace(one_market(), cost=np.array([7.0])), build=False)
    monkeypatch.setattr(cli_design, "design_network", lambda *_, **__: made)
    monkeypatch.setattr(cli_design.NetworkSource, "read", lambda self: made.network)
    outcome = blocc("design", "three")
    assert "blocc: No market can pay for any path: a to b comes closest" in outcome.stderr
    assert "why nothing is built" in outcome.stdout


# --- bad input -----------------------------------------------------------------------------------------------------
def _changed_file(tmp_path: Path, **of_document: Any) -> Path:
    """The three nodes as a file, with entries of the document put in place of its own."""
    path = write_network(read_network("three"), tmp_path / "three.json")
    document = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(document | of_document), "utf-8")
    return path


def test_contradictions_in_a_file_are_not_blamed_on_options(tmp_path: Path) -> None:
    document = json.loads(write_network(read_network("three"), tmp_path / "three.json").read_text("utf-8"))
    links = [dict(row) for row in document["links"]]
    links[0] |= {"existing_capacity": 5, "max_capacity": 2}
    result = blocc("design", _changed_file(tmp_path, links=links))
    assert result.exit_code == 2
    assert "three.json links row 1: existing_capacity 5 is above max_capacity 2" in result.stderr
    del links[0]["max_capacity"]
    result = blocc("design", _changed_file(tmp_path, links=links), "--max-capacity", 2)
    assert '--max-capacity of link 1 -> 2 is 2, less than the 5 it must have (the column "existing_' in result.stderr
    assert "--existing-capacity" not in result.stderr


def test_entries_of_a_file_that_nothing_reads_are_told_aloud(tmp_path: Path, quick: list[Design]) -> None:
    result = blocc("design", _changed_file(tmp_path, bugdet=5), "--starts", 1)
    assert "blocc: NOT USED: bugdet of three.json." in result.stderr
    assert len(quick) == 1
