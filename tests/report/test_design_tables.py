"""A design on disk: every file parses, and says what the design says."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blocc.errors import BloccError
from blocc.report.transport.design_tables import read_design_json, write_design
from blocc.result import History, Status
from blocc.transport.design.design_result import Design
from transport_designs import fake_design, geographic_network, one_market, small_network

NAMES = [
    "design.json",
    "links.csv",
    "markets.csv",
    "design.geojson",
    "report.html",
    "map.png",
    "demand.png",
    "convergence.png",
    "report.pdf",
]


def strict(path: Path) -> Any:
    """JSON without the extensions of Python."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{path.name} holds {word}")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


@pytest.fixture(scope="module")
def design() -> Design:
    """North to East has no passenger, and the link from Centre to East is not built."""
    made = fake_design(settings={"tolerance": 1e-5, "x0": np.array([1.0, np.nan]), "solver": object()})
    made.follower.travel_time[2] = np.nan
    made.follower.path_cost[2] = np.inf
    return made


@pytest.fixture(scope="module")
def folder(design: Design, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("reports") / "not" / "there yet"
    assert write_design(design, target) == [target / name for name in NAMES]
    return target


def test_every_file_is_there_and_nothing_else(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == sorted(NAMES)
    assert (folder / "report.pdf").read_bytes()[:5] == b"%PDF-"
    for name in ("map", "demand", "convergence"):
        assert (folder / f"{name}.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_summary(design: Design, folder: Path) -> None:
    document = strict(folder / "design.json")
    assert (document["format"], document["version"]) == ("blocc-design", 1)
    summary = document["summary"]
    assert summary["utility"] == pytest.approx(summary["revenue"] - summary["construction_cost"])
    assert summary["revenue"] == design.follower.revenue
    assert summary["utility_penalised"] == design.penalised.utility
    assert summary["status"] == "converged"
    assert summary["links_built"] == int(design.built.sum()) < design.network.n_links
    assert summary["demand"] == 29.0
    assert summary["served"] == pytest.approx(float(design.network.demand @ design.follower.share))
    assert summary["certificate"]["stationarity"] == 2e-9
    assert summary["settings"]["x0"] == [1.0, None]
    assert "object" in summary["settings"]["solver"]
    assert [row["status"] for row in document["starts"]] == ["converged", "stalled", "stalled", "stalled"]
    assert [row["gamma"] for row in document["what_if"]] == [1.0, 4.0, 16.0, 64.0]
    assert set(document["history"]) == set(History.columns)
    assert document["history"]["upper_value"] == design.history.upper_value.tolist()


def test_links(design: Design, folder: Path) -> None:
    links = strict(folder / "design.json")["links"]
    assert [row["capacity"] for row in links] == design.capacity.tolist()
    assert [(row["from"], row["to"]) for row in links] == [(r["from"], r["to"]) for r in design.network.link_rows()]
    for row in links:
        if row["capacity"] == 0:
            assert row["utilisation"] is None
        else:
            assert row["utilisation"] == pytest.approx(row["flow"] / row["capacity"])


def test_markets(folder: Path) -> None:
    document = strict(folder / "design.json")
    for row in document["markets"]:
        assert row["served"] == pytest.approx(row["demand"] * row["share"])
        assert row["revenue"] == pytest.approx(row["served"] * row["revenue_per_passenger"])
    assert sum(row["revenue"] for row in document["markets"]) == pytest.approx(document["summary"]["revenue"])
    assert document["markets"][2]["time"] is None
    assert document["markets"][2]["path_cost"] is None


@pytest.mark.parametrize("part", ["links", "markets"])
def test_csv_is_the_json_again(folder: Path, part: str) -> None:
    expected = strict(folder / "design.json")[part]
    with (folder / f"{part}.csv").open(encoding="utf-8", newline="") as stream:
        found = list(csv.DictReader(stream))
    assert list(found[0]) == list(expected[0])
    for row, wanted in zip(found, expected, strict=True):
        assert {name: float(value) if value else None for name, value in row.items()} == wanted


def test_geojson_of_a_plane(design: Design, folder: Path) -> None:
    document = strict(folder / "design.geojson")
    assert document["type"] == "FeatureCollection"
    assert document["coordinates"] == "planar"
    network = design.network
    nodes, links = document["features"][: network.n_nodes], document["features"][network.n_nodes :]
    assert [node["geometry"]["coordinates"] for node in nodes] == network.coordinates.tolist()
    assert nodes[0]["properties"] == {"kind": "node", "id": 1, "name": "North"}
    assert [link["properties"]["capacity"] for link in links] == design.capacity.tolist()
    for k, link in enumerate(links):
        assert link["type"] == "Feature"
        ends = network.coordinates[[network.tail[k], network.head[k]]].tolist()
        assert link["geometry"] == {"type": "LineString", "coordinates": ends}


@pytest.fixture
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures take a second; most tests look at the tables."""
    monkeypatch.setattr("blocc.report.transport.design_figures.picture_files", lambda design: {})


@pytest.mark.usefixtures("_no_pictures")
def test_geojson_of_the_earth(tmp_path: Path) -> None:
    write_design(fake_design(geographic_network()), tmp_path)
    document = strict(tmp_path / "design.geojson")
    assert "coordinates" not in document
    assert document["features"][0]["geometry"]["coordinates"] == [10.0, 60.0]


@pytest.mark.usefixtures("_no_pictures")
def test_rewriting_replaces(design: Design, tmp_path: Path) -> None:
    (tmp_path / "links.csv").write_text("old")
    write_design(design, tmp_path)
    assert (tmp_path / "links.csv").read_text().startswith("from,to,capacity")


@pytest.mark.parametrize(
    "design",
    [
        fake_design(build=False, status=Status.INFEASIBLE),
        fake_design(one_market()),
        fake_design(one_market(demand=0.0), iterations=0, what_if=(), starts=(), settings={}, versions={}),
        fake_design(iterations=1, seconds={}),
    ],
    ids=["nothing built", "one market", "no demand", "one iteration"],
)
@pytest.mark.usefixtures("_no_pictures")
def test_odd_designs(design: Design, tmp_path: Path) -> None:
    write_design(design, tmp_path)
    for name in ("design.json", "design.geojson"):
        strict(tmp_path / name)
    assert read_design_json(tmp_path / "design.json")["summary"]["links_built"] == int(design.built.sum())


@pytest.mark.filterwarnings("ignore:Glyph")
def test_odd_names(tmp_path: Path) -> None:
    names = ("日本", "$x_1$", "\ud800", '<b>, "quoted"\n')
    write_design(fake_design(small_network(names, name="$5 & \udfff"), message="\u2028"), tmp_path)
    features = strict(tmp_path / "design.geojson")["features"]
    assert tuple(feature["properties"]["name"] for feature in features[:4]) == names


@pytest.mark.usefixtures("_no_pictures")
def test_unwritable_folder(design: Design, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BloccError, match="file"):
        write_design(design, tmp_path / "file" / "folder")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.usefixtures("_no_pictures")
def test_folder_without_permission(design: Design, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(BloccError, match="locked"):
        write_design(design, tmp_path / "locked")


@pytest.mark.usefixtures("_no_pictures")
def test_a_full_disk_leaves_no_half_files(design: Design, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "design.json").write_text("old")

    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(BloccError, match=f"{tmp_path.name}.*No space left"):
        write_design(design, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["design.json"]
    assert (tmp_path / "design.json").read_text() == "old"


def test_read_back(folder: Path) -> None:
    assert read_design_json(folder / "design.json") == strict(folder / "design.json")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "blocc-result"}, "not written by write_design"),
        ({"version": 2}, "upgrade blocc"),
        ({"version": True}, "damaged"),
        ({"links": {}}, "'links'"),
        ({"markets": [{"origin": 1}]}, "row 1 of 'markets'"),
        ({"history": None}, "'history'"),
    ],
)
def test_wrong_documents(folder: Path, tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = tmp_path / "design.json"
    path.write_text(json.dumps({**strict(folder / "design.json"), **change}))
    with pytest.raises(BloccError, match=words):
        read_design_json(path)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe", b"{", b"[" * 100_000])
def test_files_that_are_no_design(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "design.json"
    path.write_bytes(content)
    with pytest.raises(BloccError, match=r"design\.json"):
        read_design_json(path)
    with pytest.raises(BloccError, match="there is no file"):
        read_design_json(tmp_path / "other.json")
