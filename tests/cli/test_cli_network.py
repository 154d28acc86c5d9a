"""``blocc network``: what it prints, what it writes, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from blocc.cli.network import build_network_app
from blocc.transport import read_network, write_network

NET = "<NUMBER OF LINKS> 2\n<END OF METADATA>\n1 2 900 3 6 ;\n2 1 900 3 6 ;\n"
TRIPS = "Origin 1\n 1 : 2.0; 2 : 5.0;\n"


def network(*arguments: object) -> Result:
    return CliRunner().invoke(build_network_app(), [str(argument) for argument in arguments])


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    (tmp_path / "pair_trips.tntp").write_text(TRIPS)
    path = tmp_path / "pair_net.tntp"
    path.write_text(NET)
    return path


def test_describe() -> None:
    shown = network("describe", "seville")
    assert shown.exit_code == 0
    for words in ("seville", "24", "88", "552", "1465.09", "49,216", "13,336", "146,920", "0.187116 to 1.7462"):
        assert words in shown.output


def test_describe_as_json() -> None:
    facts = json.loads(network("describe", "nine", "--json").output)
    assert (facts["nodes"], facts["links"], facts["markets"]) == (9, 30, 72)
    assert (facts["variables"], facts["constraints"], facts["nonzeros"]) == (2262, 678, 6654)
    assert facts["cost_range"] == [1.7, 3.2]
    assert facts["demand"] == pytest.approx(104.4)
    assert facts["engine"] == "dense"
    assert 0.1 < facts["memory_in_gb"] < 2.0
    assert 1.0 < facts["seconds_for_a_start"] < 60.0


def test_describe_free_paths(tmp_path: Path) -> None:
    (tmp_path / "free_net.tntp").write_text(NET.replace("3 6 ;", "3 0 ;"))
    (tmp_path / "free_trips.tntp").write_text(TRIPS)
    rules = ("--cost-per-length", 2, "--revenue-flat", 1)
    shown = network("describe", tmp_path / "free_net.tntp", *rules).output
    assert "shortest path range" in shown
    assert "e-30" not in shown


def test_describe_with_rules(pair: Path) -> None:
    options = ("--cost-per-length", 2, "--revenue-flat", 1, "--time-factor", 0.5, "--json")
    facts = json.loads(network("describe", pair, *options).output)
    assert facts["cost_range"] == [6.0, 6.0]
    assert facts["time_range"] == [3.0, 3.0]
    assert facts["alternative_time_range"] == [4.5, 4.5]
    assert "Dropped: demand 2 within a node (1 row holds it)." in facts["assumptions"]


def test_validate() -> None:
    good = network("validate", "three")
    assert (good.exit_code, good.output) == (0, "ok: three, 3 nodes, 6 links, 6 markets\n")


def test_validate_names_every_row(tmp_path: Path) -> None:
    folder = write_network(read_network("seville"), tmp_path / "bad")
    text = (folder / "demand.csv").read_text()
    (folder / "demand.csv").write_text(text.replace("\n", "\n-")[:-1])  # every origin becomes an unknown number
    bad = network("validate", folder)
    assert bad.exit_code == 2
    for line in (2, 300, 553):
        assert f"demand.csv line {line}: origin '-" in bad.output
    assert "seville: 552 wrong" in bad.stderr


@pytest.mark.parametrize("command", ["describe", "validate"])
def test_bad_input_is_one_sentence_and_exit_code_2(command: str, pair: Path) -> None:
    unknown = network(command, "sevilla")
    assert unknown.exit_code == 2
    assert "did you mean 'seville'?" in unknown.output
    assert network(command, pair, "--cost-per-time", -1).exit_code == 2
    unfilled = network(command, pair)
    assert unfilled.exit_code == 2
    assert "give --cost-per-length or --cost-per-time" in unfilled.output


def test_validate_says_loudly_what_is_not_used(pair: Path) -> None:
    shown = network("validate", pair, "--cost-per-length", 100, "--revenue-flat", 1, "--time-factor", 0.1)
    assert shown.exit_code == 0
    lines = shown.output.splitlines()
    assert lines[0] == "ok: pair, 2 nodes, 2 links, 1 markets"
    assert lines[1].startswith("  NOT USED: capacity of pair_net.tntp (capacities of roads")
    assert (
        "  Invented: coordinates, on a circle in the order of the numbers, since there is no pair_node.tntp." in lines
    )
    assert "  Times were multiplied by 0.1." in lines
    assert "  Filled in: cost of 2 links, 100 * length." in lines
    assert lines[-1].startswith("  WARNING: No market can pay for any path: 1 to 2 comes closest")
    assert "by a factor of 300 at least" in lines[-1]


def test_rules_without_a_use_are_refused() -> None:
    shown = network("validate", "three", "--cost-per-length", 2)
    assert shown.exit_code == 2
    assert "--cost-per-length fills in what a file leaves out, but every link has its cost" in shown.output


def test_coordinates_from_another_file(pair: Path, tmp_path: Path) -> None:
    (tmp_path / "places.csv").write_text("node_id,x_coord,y_coord\n1,-5.9871,37.3912\n2,-5.9812,37.3955\n")
    rules = ("--cost-per-length", 2, "--revenue-flat", 1, "--coordinates", tmp_path / "places.csv")
    assert network("convert", pair, tmp_path / "placed.json", *rules).exit_code == 0
    placed = read_network(tmp_path / "placed.json")
    assert placed.geographic
    assert placed.coordinates.tolist() == [[-5.9871, 37.3912], [-5.9812, 37.3955]]
    assert "Coordinates look like longitude and latitude, and were taken as such." in placed.assumptions
    assert not any(line.startswith("Invented") for line in placed.assumptions)
    assert network("convert", pair, tmp_path / "plane.json", *rules, "--plane").exit_code == 0
    assert not read_network(tmp_path / "plane.json").geographic
    (tmp_path / "places.csv").write_text("id,x,y\n1,0,0\n")
    missing = network("validate", pair, *rules)
    assert missing.exit_code == 2
    assert "pair_net.tntp node 2: id 2 has no row in places.csv" in missing.output


def test_unreachable_markets_are_dropped_on_request(tmp_path: Path) -> None:
    (tmp_path / "one_net.tntp").write_text(NET.replace("LINKS> 2", "LINKS> 1").replace("2 1 900 3 6 ;\n", ""))
    (tmp_path / "one_trips.tntp").write_text("Origin 1\n 2 : 5.0;\nOrigin 2\n 1 : 3.0;\n")
    rules = (tmp_path / "one_net.tntp", "--cost-per-length", 0.1, "--revenue-flat", 1)
    assert network("validate", *rules).exit_code == 2
    shown = network("validate", *rules, "--drop-unreachable")
    assert shown.exit_code == 0
    assert "Dropped: 1 markets with demand 3, which no path over the candidate links serves." in shown.output


def test_convert(pair: Path, tmp_path: Path) -> None:
    target = tmp_path / "out" / "pair.json"
    options = ("--cost-per-time", 2, "--revenue-per-time", 1, "--alternative-factor", 2, "--demand-factor", 3)
    done = network("convert", pair, target, *options, "--name", "Pair")
    assert done.exit_code == 0
    assert f"written: {target}" in done.output.replace("\n", "")
    written = read_network(target)
    assert written.name == "Pair"
    assert written.market_rows() == [
        {"origin": 1, "destination": 2, "demand": 15.0, "revenue": 6.0, "alternative_time": 12.0}
    ]
    assert network("convert", target, tmp_path / "csv").exit_code == 0
    assert read_network(tmp_path / "csv").market_rows() == written.market_rows()
    refused = network("convert", target, tmp_path / "x.csv")
    assert refused.exit_code == 2
    assert "end the name in .json" in refused.output


def test_convert_with_demand_from_omx(pair: Path, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "t.omx", "w") as stream:
        stream["data/AM"] = np.array([[0.0, 4.0], [0.0, 0.0]])
        stream["data/PM"] = np.array([[0.0, 0.0], [8.0, 0.0]])
        stream["lookup/taz"] = [1, 2]
    options = ("--demand-omx", tmp_path / "t.omx", "--matrix", "PM", "--mapping", "taz")
    rules = ("--cost-per-time", 1, "--revenue-flat", 1)
    assert network("convert", pair, tmp_path / "pm.json", *options, *rules, "--plane").exit_code == 0
    assert read_network(tmp_path / "pm.json").demand.tolist() == [8.0]
    assert network("convert", pair, tmp_path / "no.json", *rules, "--matrix", "PM").exit_code == 2
