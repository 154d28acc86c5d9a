"""Networks in and out of files: built-in figures, the choice of a format, round trips and writing."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blocc.errors import BloccError, OptionError
from blocc.networks.model import OPTIONAL_LINK_COLUMNS, Units
from blocc.networks.readers import raw as text
from blocc.transport.network.files import BUILT_IN, read_network, write_network
from blocc.transport.network.network import TransportNetwork
from blocc.transport.network.readers.rules import FillRules
from transport_reference import random_network

NAMES = ("link_ids", "zone_ids", "units", "assumptions")
ARRAYS = ("coordinates", "tail", "head", "time", "cost", "origin", "destination", "demand", "revenue")


def assert_same(one: TransportNetwork, other: TransportNetwork) -> None:
    for field in ("name", "nodes", "labels", "geographic", "start_range", "notes", *NAMES):
        assert getattr(one, field) == getattr(other, field), field
    for field in (*ARRAYS, "alternative_time", "through", *OPTIONAL_LINK_COLUMNS):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field), field)
    for line, again in zip(one.geometry, other.geometry, strict=True):
        np.testing.assert_array_equal(line, again)


# --- the built-in networks -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "counts", "totals", "start_range"),
    [
        ("three", (3, 6, 6), (26.0, 28.0, 6.0, 18.0, 18.0), (0.3, 1.0)),
        ("nine", (9, 30, 72), (21.5, 76.0, 104.4, 322.5, 126.7), (3.0, 15.0)),
        ("seville", (24, 88, 552), (70.060236, 76.725794, 1465.085, 1638.296325, 1368.678752), (15.0, 40.0)),
    ],
)
def test_built_in_totals(name: str, counts: Any, totals: Any, start_range: Any) -> None:
    network = read_network(name)
    assert network.name == name
    assert (network.n_nodes, network.n_links, network.n_markets) == counts
    columns = (network.time, network.cost, network.demand, network.revenue, network.alternative_time)
    assert [column.sum() for column in columns] == pytest.approx(totals, rel=1e-12)
    assert network.start_range == start_range
    assert "BLOCC paper" in network.notes


def test_built_in_rows() -> None:
    nine, seville = read_network("nine"), read_network("seville")
    assert nine.link_rows()[5] == {"from": 2, "to": 4, "time": 1.1, "cost": 3.0}
    assert nine.market_rows()[2] == {
        "origin": 1,
        "destination": 4,
        "demand": 1.9,
        "revenue": 5.0,
        "alternative_time": 2.0,
    }
    assert seville.geographic
    assert not nine.geographic
    assert seville.node_rows()[5] == {"id": 6, "lon": -5.8930689, "lat": 37.419895}
    assert seville.link_rows()[17] == {"from": 6, "to": 22, "time": 1.21052, "cost": 1.325689}
    assert seville.market_rows()[-1] == {
        "origin": 24,
        "destination": 23,
        "demand": 3.3,
        "revenue": 3.529555,
        "alternative_time": 3.249639,
    }


# --- which network is meant ----------------------------------------------------------------------------------------
def test_unknown_names_are_answered_with_what_there_is() -> None:
    with pytest.raises(
        BloccError, match=r"no network 'sevile' \(did you mean 'seville'\?\).*three, nine, seville.*tntp"
    ):
        read_network("sevile")
    with pytest.raises(BloccError, match="no network 'zzz'; built in"):
        read_network("zzz")


def test_built_in_names_win_over_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_network(read_network("nine"), tmp_path / "three")
    assert read_network("three").n_nodes == 3
    assert read_network("./three").n_nodes == 9
    assert read_network(Path("three")).n_nodes == 9


def test_folders_with_no_network_or_several(tmp_path: Path) -> None:
    with pytest.raises(BloccError, match=r"holds no network: neither node.csv nor"):
        read_network(tmp_path)
    write_network(read_network("three"), tmp_path)
    (tmp_path / "a_net.tntp").write_text("")
    with pytest.raises(BloccError, match=r"several networks \(node.csv, a_net.tntp\)"):
        read_network(tmp_path)
    assert read_network(tmp_path / "link.csv").n_nodes == 3


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "network.xlsx"
    path.write_text("")
    with pytest.raises(BloccError, match=r"network.xlsx is not a network file.*\.json"):
        read_network(path)


@pytest.mark.parametrize("source", ["", "a\0b", "x" * 5000, "/", "no/such/place.json", "."])
def test_impossible_paths(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BloccError):
        read_network(source)


def test_options_that_contradict() -> None:
    with pytest.raises(OptionError, match="give demand_omx too"):
        read_network("three", matrix="AM")
    with pytest.raises(OptionError, match="source must be a built-in name or a path, got int"):
        read_network(5)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="name must be a text"):
        read_network("three", name=" ")


def test_large_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_network(read_network("three"), tmp_path / "three.json")
    monkeypatch.setattr(text, "MAX_BYTES", 1000)
    with pytest.raises(BloccError, match=r"three.json is too large: more than 1,000 bytes"):
        read_network(path)


def test_long_tables_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_network(read_network("three"), tmp_path)
    monkeypatch.setattr(text, "MAX_ROWS", 4)
    with pytest.raises(BloccError, match=r"link.csv: more than 4 rows"):
        read_network(tmp_path)
    with pytest.raises(BloccError, match="three: links: more than 4 rows"):
        read_network("three")


# --- writing -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", BUILT_IN)
def test_json_to_csv_to_json(name: str, tmp_path: Path) -> None:
    network = read_network(name)
    folder = write_network(network, tmp_path / "deep" / "csv")
    through = read_network(folder)
    assert_same(through, network)
    assert_same(read_network(write_network(through, tmp_path / "again.json")), network)
    assert sorted(file.name for file in folder.iterdir()) == ["config.csv", "demand.csv", "link.csv", "node.csv"]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1000), name=st.text("aß ,\"'\n0", min_size=1), label=st.text('é;," \t', max_size=4))
def test_round_trips_of_odd_names(seed: int, name: str, label: str, tmp_path: Path) -> None:
    drawn = random_network(seed, n_nodes=4)
    nodes = [{**row, "name": label.strip()} for row in drawn.node_rows()]
    network = TransportNetwork.from_tables(
        nodes, drawn.link_rows(), drawn.market_rows(), name=name.strip() or "n", notes="two\nlines"
    )
    assert_same(read_network(write_network(network, tmp_path / "n.json")), network)
    assert_same(read_network(write_network(network, tmp_path / "n")), network)


def test_everything_that_is_optional_comes_back(tmp_path: Path) -> None:
    nodes = [{"id": k, "x": k, "y": 0.0, "zone_id": f"z{k}", "through": k != 2} for k in (1, 2, 3)]
    links = [
        {"from": 1, "to": 2, "time": 1.0, "cost": 1.0, "link_id": "old", "length": 2.5, "existing_capacity": 4.0},
        {"from": 1, "to": 2, "time": 0.5, "cost": 1.0, "link_id": "new", "min_capacity": 1.0, "max_capacity": 9.0},
        {"from": 1, "to": 3, "time": 0.5, "cost": 1.0, "geometry": [[1, 0], [2, 0.125], [3, 0]], "max_capacity": 0.0},
    ]
    figures = {"demand": 1.0, "revenue": 1.0, "alternative_time": 1.0}
    network = TransportNetwork.from_tables(
        nodes,
        links,
        [{"origin": 1, "destination": k, **figures} for k in (2, 3)],
        crs="EPSG:25832",
        units=Units("min", 0.1, "km", "EUR"),
        assumptions=("Filled in: something, with a comma.", "Not used: anything."),
    )
    assert network.link_ids == ("old", "new", 3)
    np.testing.assert_array_equal(network.max_capacity, [np.inf, 9.0, 0.0])
    for target in ("all.json", "all"):
        again = read_network(write_network(network, tmp_path / target), name=network.name)
        assert again.crs == "EPSG:25832"
        # Reading says once more what it sees; what was known before comes first.
        assert again.assumptions[:2] == network.assumptions
        assert_same(replace(again, assumptions=network.assumptions), network)


def test_writing_elsewhere_is_refused(tmp_path: Path) -> None:
    network = read_network("three")
    with pytest.raises(OptionError, match=r"end the name in \.json"):
        write_network(network, tmp_path / "three.xml")
    (tmp_path / "file").write_text("")
    with pytest.raises(BloccError, match="cannot write"):
        write_network(network, tmp_path / "file" / "three.json")
    for target in ("three.json", "three"):
        with pytest.raises(BloccError, match="half a surrogate pair"):
            write_network(replace(network, name="\ud800"), tmp_path / target)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_network(read_network("three"), tmp_path / "net.json")
    before = path.read_text(encoding="utf-8")

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(BloccError, match="No space left"):
        write_network(read_network("nine"), path)
    assert path.read_text(encoding="utf-8") == before
    assert [file.name for file in tmp_path.iterdir()] == ["net.json"]


def test_rules_apply_to_every_format() -> None:
    plain = read_network("nine")
    scaled = read_network("nine", name="n", rules=FillRules(demand_factor=2, time_factor=3, geographic=True))
    assert scaled.demand == pytest.approx(2 * plain.demand)
    assert scaled.time == pytest.approx(3 * plain.time)
    assert scaled.alternative_time == pytest.approx(3 * plain.alternative_time)
    assert scaled.revenue == pytest.approx(plain.revenue)
    assert scaled.start_range == (6, 30)
    assert scaled.geographic
    assert scaled.name == "n"
    assert scaled.assumptions == ("Times were multiplied by 3.", "Demand was multiplied by 2.")
    assert scaled.units.time_factor == 3
    assert not read_network("seville", rules=FillRules(geographic=False)).geographic


def test_json_rows_are_filled_too(tmp_path: Path) -> None:
    path = write_network(read_network("three"), tmp_path / "net.json")
    document = json.loads(path.read_text(encoding="utf-8"))
    del document["links"][3]["cost"], document["markets"][0]["alternative_time"]
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(BloccError, match=r"net.json links row 4: 1 of 6 links have no cost.*cost_per_length"):
        read_network(path)
    network = read_network(path, rules=FillRules(cost_per_time=5))
    assert network.cost.tolist() == [1, 10, 1, 10, 10, 3]
    assert network.alternative_time[0] == 1.5


def test_entries_of_a_document_that_nobody_reads_are_told(tmp_path: Path) -> None:
    file = tmp_path / "three.json"
    write_network(read_network("three"), file)
    document = json.loads(file.read_text()) | {"bugdet": 3, "tolls": []}
    file.write_text(json.dumps(document))
    assert any("bugdet, tolls of three.json" in line for line in read_network(file).assumptions)
