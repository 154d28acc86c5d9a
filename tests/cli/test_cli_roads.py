"""``blocc roads``: what it computes, prints and writes, exit codes, checkpoints, and ``blocc verify`` afterwards."""

from __future__ import annotations

import csv
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import blocc

from blocc._lib.digests import digest
from blocc._lib.files import json_bytes
from blocc.kit.records import Step
from blocc.result import Status
from blocc.roads import RoadDesign, assign, expand_network, read_road_network
from blocc.roads.files import network_document
from road_designs import OPTIONS, small_design, small_roads


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network, a file of candidates, and a design of them."""
    target = tmp_path_factory.mktemp("roads")
    (target / "square.json").write_bytes(json_bytes(network_document(small_roads())))
    (target / "links.csv").write_text("link_id,cost,exponent\n2,0.3,2\nb>c,0.5,2\n")
    outcome = blocc(
        *("roads", "expand", target / "square.json", "--candidates", target / "links.csv", "--starts", 1),
        *("--out", target / "made"),
    )
    assert outcome.exit_code == 0, outcome.output
    assert "proven bound" in outcome.output
    assert "pass          drivers: relative gap" in outcome.output
    assert "Made up." in outcome.output
    assert f"written: {target / 'made' / 'report.html'}" in outcome.output.splitlines()
    return target


# --- what it computes ----------------------------------------------------------------------------------------------
def test_expand_gives_what_python_gives(folder: Path) -> None:
    found = RoadDesign.load(folder / "made")
    np.testing.assert_allclose(found.expansion, small_design().expansion, rtol=1e-6)
    assert found.objective == pytest.approx(small_design().objective)


def test_assign(folder: Path) -> None:
    network = folder / "square.json"
    outcome = blocc("roads", "assign", network, "--json")
    assert outcome.exit_code == 0
    document = json.loads(outcome.stdout)
    assert document["summary"]["total_travel_time"] == pytest.approx(assign(small_roads()).total_travel_time)
    optimum = json.loads(blocc("roads", "assign", network, "--principle", "system-optimum", "--json").stdout)
    assert optimum["summary"]["total_travel_time"] < document["summary"]["total_travel_time"]
    fullest = max(row["volume_over_capacity"] for row in document["links"])
    limited = blocc("roads", "assign", network, "--limit-factor", 0.95 * fullest, "--json")
    assert max(row["waiting"] for row in json.loads(limited.stdout)["links"]) > 0.0
    assert blocc("roads", "assign", network, "--limit-factor", 0.01).exit_code == 4
    assert blocc("roads", "assign", network, "--relative-gap", 1e-300, "--time-limit", 1e-9).exit_code == 8
    assert blocc("roads", "assign", network, "--quiet", "--out", folder / "flows").output == ""
    assert {"assignment.json", "links.csv", "assignment.gpkg"} <= {path.name for path in (folder / "flows").iterdir()}


def test_factors_and_tolls(folder: Path) -> None:
    network = folder / "square.json"
    plain = json.loads(blocc("roads", "assign", network, "--json").stdout)
    factors = ("--demand-factor", 0.5, "--capacity-factor", 0.5, "--time-factor", 0.1)
    scaled = json.loads(blocc("roads", "assign", network, *factors, "--json").stdout)
    assert scaled["summary"]["total_travel_time"] == pytest.approx(0.05 * plain["summary"]["total_travel_time"])
    assert "Multiplied: all capacities by 0.5." in scaled["summary"]["assumptions"]
    tolls = json.loads(blocc("roads", "toll", network, "--candidates", "1,b>c", "--starts", 1, "--json").stdout)
    assert tolls["summary"]["kind"] == "tolls"
    assert tolls["summary"]["objective"] <= plain["summary"]["total_travel_time"] + 1e-9


def test_estimate(folder: Path) -> None:
    """Counts of an assignment with more trips: they are found again."""
    more = small_roads().scaled(demand=1.2)
    volume = assign(more).flow
    lines = [f"{link},{count!r}" for link, count in zip(more.link_ids, volume.tolist(), strict=True)]
    (folder / "counts.csv").write_text("\n".join(["link_id,count", *lines]))
    common = ("roads", "estimate", folder / "square.json", "--counts", folder / "counts.csv")
    outcome = blocc(*common, "--prior-weight", 1e-6, "--out", folder / "trips")
    assert outcome.exit_code == 0, outcome.output
    assert "GEH" in outcome.output
    np.testing.assert_allclose(read_road_network(folder / "trips" / "network.json").demand, more.demand, rtol=1e-3)
    document = json.loads((folder / "trips" / "estimate.json").read_text())
    assert document["sha256"] == digest(document)
    assert {"trips.csv", "counts.csv", "summary.csv"} <= {path.name for path in (folder / "trips").iterdir()}
    verified = blocc("verify", folder / "trips" / "estimate.json", folder / "square.json", "--json")
    assert verified.exit_code == 0, verified.output
    assert "no bound is known for estimates" in verified.stdout
    other = blocc("verify", folder / "trips" / "estimate.json", folder / "trips" / "network.json")
    assert other.exit_code == 6  # its trips are not the prior ones
    (folder / "counts.csv").write_text("link_id,count\n2,5\n2,6\n")
    assert "counts.csv line 3: link '2' was counted before" in blocc(*common).stderr
    (folder / "counts.csv").write_text("link_id,count\n2,many\n")
    assert "counts.csv line 2: count 'many' is not a finite number" in blocc(*common).stderr


def test_validate(folder: Path) -> None:
    outcome = blocc("roads", "validate", folder / "square.json")
    assert outcome.exit_code == 0
    assert "ok: square, 4 nodes, 5 links, 2 pairs, 11 trips" in outcome.output
    document = network_document(small_roads())
    document["links"][1]["capacity"] = -1.0
    document["trips"].append({"origin": "d", "destination": "a", "demand": 1.0})
    (folder / "wrong.json").write_bytes(json_bytes(document))
    wrong = blocc("roads", "validate", folder / "wrong.json")
    assert wrong.exit_code == 2
    assert "row 2: capacity" in wrong.output
    document["links"][1]["capacity"] = 6.0
    (folder / "wrong.json").write_bytes(json_bytes(document))
    assert "--drop-unreachable" in blocc("roads", "validate", folder / "wrong.json").output
    dropped = blocc("roads", "validate", folder / "wrong.json", "--drop-unreachable")
    assert dropped.exit_code == 0
    assert "Dropped" in dropped.output


# --- stops and checkpoints -----------------------------------------------------------------------------------------
def test_a_stopped_run_is_resumed(folder: Path) -> None:
    file = folder / "run.npz"
    common = ("roads", "expand", folder / "square.json", "--candidates", folder / "links.csv", "--starts", 1, "--json")
    stopped = blocc(*common, "--checkpoint", file, "--time-limit", 1e-4)
    assert stopped.exit_code == 8
    document = json.loads(stopped.stdout)
    assert document["summary"]["status"] == "time limit"
    assert document["summary"]["checks"][0]["verdict"] == "pass"
    assert document["summary"]["bound"] is not None
    resumed = json.loads(blocc(*common, "--resume", file).stdout)
    whole = json.loads(blocc(*common).stdout)
    assert [row["expansion"] for row in resumed["links"]] == [row["expansion"] for row in whole["links"]]
    assert [step["value"] for step in resumed["history"]] == [step["value"] for step in whole["history"]]
    other = blocc(*common, "--resume", file, "--seed", 3)
    assert other.exit_code == 2
    assert "--seed 0" in other.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_return_the_best_so_far(number: signal.Signals) -> None:
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}[number]
    before = signal.signal(number, usual)  # tests that run in the background have SIGINT ignored
    try:
        _stopped_by(number)
    finally:
        signal.signal(number, before)


def test_sigterm_is_heeded_where_ctrl_c_is_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _stopped_by(signal.SIGTERM)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def _stopped_by(number: signal.Signals) -> None:
    seen: list[Step] = []

    def press(step: Step) -> None:
        seen.append(step)
        if len(seen) == 4:
            os.kill(os.getpid(), number)

    design = expand_network(small_roads(), **OPTIONS, report=press)
    assert design.status is Status.INTERRUPTED
    assert design.objective <= design.before.total_travel_time
    assert design.relative_gap <= 1e-10
    assert np.isnan(design.stationarity)
    assert signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL)


# --- what was written, verified ------------------------------------------------------------------------------------
def test_verified(folder: Path) -> None:
    outcome = blocc("verify", folder / "made" / "design.json", folder / "square.json")
    assert outcome.exit_code == 0, outcome.output
    assert "square: verified" in outcome.output
    with open(folder / "made" / "links.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["link_id"] for row in rows if float(row["expansion"]) > 0] == ["2"]


def _summary(name: str, factor: float) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        document["summary"][name] *= factor

    return change


def _link(name: str, factor: float) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        document["links"][1][name] *= factor

    return change


def _gap(document: dict[str, Any]) -> None:
    """A better bound, with the gap that belongs to it."""
    summary = document["summary"]
    summary["bound"] = 0.5 * (summary["bound"] + summary["objective"])
    summary["gap"] = 1.0 - summary["bound"] / summary["objective"]


def _detour(document: dict[str, Any]) -> None:
    """Drivers on the bridge: conserved at every node, and not the cheapest paths."""
    for link, sign in ((0, 1), (1, -1), (2, 1)):
        document["links"][link]["volume_after"] += 0.5 * sign


@pytest.mark.parametrize(
    ("forge", "claim"),
    [
        (_summary("objective", 0.99), "objective"),
        (_summary("cost", 0.9), "construction cost"),
        (_gap, "bound"),
        (_summary("gap", 0.5), "proven gap"),
        (_link("expansion", 1.3), "after: relative gap"),
        (_link("volume_before", 1.01), "before: volumes of links"),
        (_link("marginal_value", 2.0), "marginal values"),
        (_link("time_after", 0.9), "after: times of links"),
        (_detour, "after: relative gap"),
    ],
)
def test_forged(folder: Path, tmp_path: Path, forge: Callable[[dict[str, Any]], None], claim: str) -> None:
    document = json.loads((folder / "made" / "design.json").read_text())
    forge(document)
    forged = tmp_path / "design.json"
    forged.write_text(json.dumps(document))
    careless = blocc("verify", forged, folder / "square.json")
    assert careless.exit_code == 6
    assert "was changed after it was saved" in careless.output
    forged.write_text(json.dumps({**document, "sha256": digest(document)}))
    outcome = blocc("verify", forged, folder / "square.json", "--json")
    assert outcome.exit_code == 6
    failed = {check["name"] for check in json.loads(outcome.stdout)["checks"] if not check["ok"]}
    assert claim in failed


def test_another_network(folder: Path) -> None:
    outcome = blocc("verify", folder / "made" / "design.json", "sioux-falls")
    assert outcome.exit_code == 6
    assert "another network" in outcome.output
