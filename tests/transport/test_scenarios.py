"""Scenarios: how they are written, what they change, and that finished designs are kept, whoever computes them."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blocc._lib.files import json_bytes
from blocc.errors import OptionError
from blocc.kit.documents import Document
from blocc.kit.storage import write_files
from blocc.result import Status
from blocc.transport import Design, Scenario, TransportNetwork, design_network, design_scenarios, read_network
from blocc.transport.design import scenario_runs
from blocc.transport.design.documents import DESIGN
from blocc.transport.design.scenario import cases_of
from transport_designs import fake_design, one_market, small_network


# --- what a scenario is --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "name", "changes"),
    [
        ("base", "base", {}),
        ("budget=100", "budget=100", {"budget": 100}),
        (" growth : budget=200, demand=1.1", "growth", {"budget": 200, "demand": 1.1}),
        ("max-capacity=[1, 2,3],symmetric=true", "max-capacity=[1, 2,3],symmetric=true", None),
        ("engine=paths", "engine=paths", {"engine": "paths"}),
    ],
)
def test_parse(text: str, name: str, changes: dict[str, Any] | None) -> None:
    found = Scenario.parse(text)
    assert found.name == name
    assert found.changes == ({"max_capacity": [1, 2, 3], "symmetric": True} if changes is None else changes)


@pytest.mark.parametrize(
    ("scenarios", "words"),
    [
        (["bugdet=1"], "bugdet"),
        (["demand=-1"], "demand must be a number >= 0"),
        (["demand=1.1,demand=2"], "each name once"),
        (["budget="], "NAME=VALUE"),
        (["budget"], "'budget' has no value"),
        (["max-capacity"], "'max-capacity' has no value"),
        (["base", "base"], "two scenarios"),
        ([], "empty"),
        ([""], "a name"),
        ("base", "sequence"),
        ([{"budget": 1}], "Scenario"),
        ({"one": 3}, "changes"),
        (["min_capacity=1,budget=0"], "budget must be at least"),
        (["budget=-1"], "budget"),
        (["starts=0"], "starts"),
    ],
)
def test_mistakes_are_named_before_any_work(scenarios: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        design_scenarios(small_network(), scenarios)


def test_factors_multiply_and_are_told() -> None:
    network = small_network()
    changes = {"demand": 1.1, "cost": 0.5, "revenue": 2, "time": 3.0, "alternative_time": 1.0, "budget": 4}
    case = cases_of(network, {"growth": changes}, {"seed": 3})[0]
    for name in ("demand", "cost", "revenue", "time", "alternative_time"):
        np.testing.assert_array_equal(getattr(case.network, name), getattr(network, name) * changes[name])
    assert case.options == {"seed": 3, "budget": 4}
    assert case.network.assumptions[-4:][0] == "Scenario growth: demand was multiplied by 1.1."
    assert len(case.network.assumptions) == len(network.assumptions) + 4
    assert cases_of(network, ["base"], {})[0].network is network


def test_fingerprints_tell_networks_and_options_apart() -> None:
    network = small_network()
    scenarios = ["base", "demand=1.1", "budget=3", "time_limit=5", "seed=1"]
    first = [case.fingerprint() for case in cases_of(network, scenarios, {})]
    assert len(set(first)) == len(scenarios)
    assert first == [case.fingerprint() for case in cases_of(small_network(), scenarios, {})]
    assert cases_of(network, {"another name": {"budget": 3}}, {})[0].fingerprint() == first[2]


@pytest.fixture(autouse=True)
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a design's files the first one alone: pictures take long."""

    def write(kind: Document, design: Design, folder: Path) -> list[Path]:
        return write_files(folder, {"design.json": json_bytes(DESIGN.document(design))})

    monkeypatch.setattr(Document, "write", write)


# --- runs ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Designs that take no time: the budget is what they earn. Collects what was asked for."""
    calls: list[dict[str, Any]] = []

    def design(network: TransportNetwork, **options: Any) -> Design:
        calls.append({"network": network, **options})
        made = fake_design(network)
        earned = options.get("budget")
        settings = {**made.settings, "budget": earned}
        return (
            replace(made, settings=settings)
            if earned is None
            else with_utility(replace(made, settings=settings), earned)
        )

    monkeypatch.setattr(scenario_runs, "design_network", design)
    return calls


def with_utility(design: Design, utility: float) -> Design:
    return replace(design, follower=design.follower._replace(utility=utility))


def test_finished_designs_are_kept(tmp_path: Path, computed: list[dict[str, Any]]) -> None:
    told: list[tuple[str, str]] = []
    options: dict[str, Any] = {"out": tmp_path, "on_progress": lambda *words: told.append(words)}
    first = design_scenarios(one_market(), ["budget=1", "budget=2"], **options)
    assert [design.utility for design in first] == [1.0, 2.0]
    assert [words for _, words in told] == [
        word for earned in (1, 2) for word in ("begun", f"converged, utility {earned}, 6.1 s")
    ]
    again = design_scenarios(one_market(), ["base", "budget=2", "budget=1"], **options)
    assert [call.get("budget") for call in computed] == [1, 2, None]
    assert [design.name for design in again] == ["base", "budget=2", "budget=1"]
    assert again["budget=1"].document == first["budget=1"].document
    assert ("budget=1", "kept from an earlier run: converged, utility 1, 6.1 s") in told
    # Another network, another option, a damaged file: computed again.
    design_scenarios(one_market(7.0), ["budget=1"], **options)
    design_scenarios(one_market(7.0), ["budget=1"], tolerance=1e-2, **options)
    (tmp_path / "budget=1" / "design.json").write_text("{", encoding="utf-8")
    design_scenarios(one_market(7.0), ["budget=1"], tolerance=1e-2, **options)
    assert len(computed) == 6
    design_scenarios(one_market(7.0), ["budget=1"], tolerance=1e-2, **options)
    assert len(computed) == 6


def test_a_kill_loses_only_what_was_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def design(network: TransportNetwork, **options: Any) -> Design:
        asked.append((options.get("budget"), options["resume"]))
        if options.get("budget") == 2 and len(asked) < 3:
            options["checkpoint"].write_bytes(b"half a run")
            raise SystemExit(9)  # the process is gone
        return fake_design(network)

    monkeypatch.setattr(scenario_runs, "design_network", design)
    scenarios = ["base", "budget=2"]
    with pytest.raises(SystemExit):
        design_scenarios(one_market(), scenarios, out=tmp_path)
    assert (tmp_path / "base" / "scenario.json").is_file()
    result = design_scenarios(one_market(), scenarios, out=tmp_path)
    assert [budget for budget, _ in asked] == [None, 2, 2]
    assert asked[0][1] is asked[1][1] is None
    assert asked[2][1].parent == tmp_path / "budget=2"  # goes on where it stood
    assert not list((tmp_path / "budget=2").glob("run-*.npz"))
    assert len(result) == 2


def test_ctrl_c_keeps_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = [True]
    made = []

    def design(network: TransportNetwork, **options: Any) -> Design:
        made.append(options.get("budget"))
        if not stopped[0] or options.get("budget") != 1:
            return fake_design(network)
        signal.raise_signal(signal.SIGTERM)
        return fake_design(network, status=Status.INTERRUPTED)

    monkeypatch.setattr(scenario_runs, "design_network", design)
    scenarios = ["base", "budget=1", "budget=2"]
    result = design_scenarios(one_market(), scenarios, out=tmp_path)
    assert result.interrupted
    assert not result.success
    assert [(design.name, design.status.value) for design in result] == [
        ("base", "converged"),
        ("budget=1", "interrupted"),
    ]
    assert "Interrupted" in (tmp_path / "scenarios.html").read_text(encoding="utf-8")
    stopped[0] = False
    assert design_scenarios(one_market(), scenarios, out=tmp_path).success
    assert made == [None, 1, 1, 2]


def test_a_failure_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def design(network: TransportNetwork, **options: Any) -> Design:
        if options.get("budget") == 1:
            raise OptionError("would not fit")
        return fake_design(network)

    monkeypatch.setattr(scenario_runs, "design_network", design)
    result = design_scenarios(one_market(), ["budget=1", "base"], out=tmp_path)
    assert [design.name for design in result] == ["base"]
    assert "would not fit" in result.failed["budget=1"]
    assert not result.success
    assert "would not fit" in (tmp_path / "scenarios.html").read_text(encoding="utf-8")


def test_more_money_never_earns_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that finds less with more money begins again from the smaller budget's design."""
    calls: list[tuple[Any, Any]] = []
    found = {1: 5.0, 2: 3.0, 3: 4.0}

    def design(network: TransportNetwork, x0: Any = None, **options: Any) -> Design:
        calls.append((options["budget"], x0))
        made = with_utility(fake_design(network), found[options["budget"]] if x0 is None else 6.0)
        return replace(made, settings={**made.settings, "budget": options["budget"]})

    monkeypatch.setattr(scenario_runs, "design_network", design)
    result = design_scenarios(one_market(), ["budget=3", "budget=1", "budget=2"])
    assert [design.utility for design in result] == [6.0, 5.0, 6.0]
    assert [budget for budget, _ in calls] == [3, 1, 2, 2, 3]
    np.testing.assert_array_equal(calls[3][1], result["budget=1"].capacity)
    assert "smaller budget" in result["budget=2"].summary["message"]
    # A gamma of the user's maximises something else, and other factors are another network.
    calls.clear()
    design_scenarios(one_market(), ["budget=1", "budget=2"], gamma=4.0)
    design_scenarios(one_market(), ["budget=1", "budget=2,demand=1.1"])
    assert [x0 for _, x0 in calls] == [None] * 4


def test_folders_have_plain_names(tmp_path: Path, computed: list[dict[str, Any]]) -> None:
    names = ["../up", "up", "a/b: budget=1", "a b: budget=1", "…"]
    result = design_scenarios(one_market(), names, out=tmp_path)
    folders = [design.folder for design in result]
    assert all(folder is not None and folder.parent == tmp_path and folder.is_dir() for folder in folders)
    assert len(set(folders)) == len(names)


def test_tables(tmp_path: Path, computed: list[dict[str, Any]]) -> None:
    result = design_scenarios(small_network(), ["base", "budget=2,demand=1.1"], out=tmp_path)
    document = json.loads((tmp_path / "scenarios.json").read_text(encoding="utf-8"))
    assert [row["utility"] for row in document["scenarios"]] == [design.utility for design in result]
    assert document["changes"]["budget=2,demand=1.1"] == {"budget": 2, "demand": 1.1}
    lines = (tmp_path / "scenarios.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("scenario,status,certificate,budget,utility,revenue,construction_cost,links_built")
    assert len(lines) == 3
    row = result["base"].row()
    made = fake_design(small_network())
    assert row["passengers"] == pytest.approx(made.indicators.passengers)
    assert row["certificate"] == "pass"


# --- real designs --------------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("executor", ["serial", pytest.param("processes", marks=pytest.mark.slow)])
def test_designs_are_those_of_design_network(executor: str) -> None:
    network = read_network("three")
    workers = 2 if executor == "processes" else None
    result = design_scenarios(network, ["base", "demand=2"], starts=1, executor=executor, workers=workers)
    own = design_network(network, starts=1)
    np.testing.assert_array_equal(result["base"].capacity, own.capacity)
    assert result["base"].utility == own.utility
    assert result.success
    # Twice the travellers on twice the capacities earn twice as much.
    assert result["demand=2"].utility == pytest.approx(2 * own.utility, rel=1e-6)
