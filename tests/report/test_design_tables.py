"""A design on disk: every file parses, and says what the design says."""

from __future__ import annotations

import csv
import json
import os
import sqlite3
import struct
import zipfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from blocc._lib.digests import sealed
from blocc.errors import BloccError
from blocc.kit.storage import ChangedError
from blocc.networks.model import Units
from blocc.result import Certificate, History, Status
from blocc.transport.design.design_result import Design
from blocc.transport.design.documents import DESIGN, link_rows, read_design_json
from blocc.transport.network.files import read_network
from transport_designs import fake_design, one_market, small_network

NAMES = [
    "design.json",
    "summary.csv",
    "links.csv",
    "markets.csv",
    "columns.csv",
    "design.xlsx",
    "network.json",
    "design.geojson",
    "design.gpkg",
    "report.html",
    "map.png",
    "demand.png",
    "convergence.png",
    "report.pdf",
]


ASSUMED = ("Filled in: cost of 10 links, 2 * length.", "Not used: capacity, toll of link.csv.")


def strict(path: Path) -> Any:
    """JSON without the extensions of Python."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{path.name} holds {word}")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


@pytest.fixture(scope="module")
def design() -> Design:
    """North to East has no passenger, and the link from Centre to East is not built."""
    network = replace(small_network(), assumptions=ASSUMED, units=Units("min", 0.1, "km", "EUR"))
    made = fake_design(network, settings={"tolerance": 1e-5, "x0": np.array([1.0, np.nan]), "solver": object()})
    made.follower.travel_time[2] = np.nan
    made.follower.path_cost[2] = np.inf
    return made


@pytest.fixture(scope="module")
def folder(design: Design, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("reports") / "not" / "there yet"
    assert DESIGN.write(design, target) == [target / name for name in NAMES]
    return target


def test_summary(design: Design, folder: Path) -> None:
    document = strict(folder / "design.json")
    assert (document["format"], document["version"]) == ("blocc-design", 2)
    summary = document["summary"]
    assert summary["utility"] == pytest.approx(summary["revenue"] - summary["construction_cost"])
    assert summary["revenue"] == design.follower.revenue
    assert summary["utility_penalised"] == design.penalised.utility
    assert summary["status"] == "converged"
    assert summary["links_built"] == int(design.built.sum()) < design.network.n_links
    assert summary["demand"] == 29.0
    assert summary["served"] == pytest.approx(float(design.network.demand @ design.follower.share))
    assert summary["certificate"]["stationarity"] == 2e-9
    assert summary["assumptions"] == list(ASSUMED)
    assert summary["units"] == {"time": "min", "time_factor": 0.1, "length": "km", "money": "EUR"}
    assert (summary["withheld"], summary["hints"]) == ("", [])
    assert summary["indicators"]["passengers"] == pytest.approx(summary["served"])
    assert [check["verdict"] for check in summary["checks"]] == ["pass"] * 4 + ["no limit", "pass"]
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


def test_what_exists_is_told_apart() -> None:
    design = fake_design()
    told = replace(design, settings={"existing_capacity": 1.0})
    for row, capacity in zip(link_rows(told), design.capacity.tolist(), strict=True):
        assert (row["existing_capacity"], row["new_capacity"]) == (1.0, max(capacity - 1.0, 0.0))
    own = replace(design, network=replace(design.network, existing_capacity=np.arange(10.0)))
    assert [row["existing_capacity"] for row in link_rows(own)] == list(range(10))


def test_markets(folder: Path) -> None:
    document = strict(folder / "design.json")
    for row in document["markets"]:
        assert row["served"] == pytest.approx(row["demand"] * row["share"])
        assert row["revenue"] == pytest.approx(row["served"] * row["revenue_per_passenger"])
    assert sum(row["revenue"] for row in document["markets"]) == pytest.approx(document["summary"]["revenue"])
    assert document["markets"][2]["time"] is None
    assert document["markets"][2]["path_cost"] is None


def test_the_network_as_it_was_designed(design: Design, folder: Path) -> None:
    again = read_network(folder / "network.json")
    assert again.link_rows() == design.network.link_rows()
    assert again.market_rows() == design.network.market_rows()
    assert (again.assumptions, again.units) == (ASSUMED, design.network.units)


def test_every_column_is_explained(folder: Path) -> None:
    with (folder / "columns.csv").open(encoding="utf-8", newline="") as stream:
        told = [(row["file"], row["column"]) for row in csv.DictReader(stream)]
    for file in ("links.csv", "markets.csv"):
        with (folder / file).open(encoding="utf-8", newline="") as stream:
            assert [name for where, name in told if where == file] == next(csv.reader(stream))
    assert "EUR per unit of capacity" in (folder / "columns.csv").read_text(encoding="utf-8")


def test_workbook_is_the_tables_again(folder: Path) -> None:
    """Read with the standard library alone: sheets are XML in a ZIP archive."""
    space = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
    with zipfile.ZipFile(folder / "design.xlsx") as archive:
        assert archive.testzip() is None
        book = ElementTree.fromstring(archive.read("xl/workbook.xml"))
        names = [sheet.attrib["name"] for sheet in book.iter(f"{space}sheet")]
        sheets = [archive.read(f"xl/worksheets/sheet{k}.xml") for k in range(1, 5)]
    assert names == ["summary", "links", "markets", "columns"]
    for name, sheet in zip(names, sheets, strict=True):
        cells = [
            ["".join(cell.itertext()) for cell in row.iter(f"{space}c")]
            for row in ElementTree.fromstring(sheet).iter(f"{space}row")
        ]
        with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
            assert cells == list(csv.reader(stream))


def test_geopackage(design: Design, folder: Path) -> None:
    with closing(sqlite3.connect(folder / "design.gpkg")) as file:
        assert file.execute("PRAGMA application_id").fetchone() == (0x47504B47,)
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert file.execute("PRAGMA foreign_key_check").fetchall() == []
        layers = file.execute("SELECT table_name, data_type, srs_id FROM gpkg_contents").fetchall()
        assert layers == [("nodes", "features", -1), ("links", "features", -1), ("assumptions", "attributes", None)]
        rows = file.execute("SELECT geom, capacity, length, link_id FROM links ORDER BY fid").fetchall()
        assert [row[1] for row in rows] == design.capacity.tolist()
        assert [row[3] for row in rows] == [str(k) for k in range(1, 11)]
        assert rows[0][2] is None
        blob = rows[1][0]
        assert struct.unpack("<2sBBiBII4d", blob) == (b"GP", 0, 1, -1, 1, 2, 2, 0.0, 1.0, 0.0, 2.0)
        assert [row[0] for row in file.execute("SELECT sentence FROM assumptions")] == list(ASSUMED)
        assert file.execute("SELECT id, name, zone_id FROM nodes").fetchone() == ("1", "North", None)


@pytest.mark.usefixtures("_no_pictures")
def test_lines_and_reference_system_reach_the_gis(tmp_path: Path) -> None:
    plain = small_network()
    bent = np.array([[0.0, 2.0], [0.25, 1.5], [0.0, 1.0]])
    network = replace(plain, geometry=(bent, *plain.geometry[1:]), crs="EPSG:25832")
    DESIGN.write(fake_design(network), tmp_path)
    document = strict(tmp_path / "design.geojson")
    assert document["features"][4]["geometry"]["coordinates"] == bent.tolist()
    assert document["crs"]["properties"]["name"] == "urn:ogc:def:crs:EPSG::25832"
    with closing(sqlite3.connect(tmp_path / "design.gpkg")) as file:
        assert file.execute("SELECT srs_id FROM gpkg_geometry_columns").fetchall() == [(25832,), (25832,)]
        (blob,) = file.execute("SELECT geom FROM links").fetchone()
    assert struct.unpack("<6d", blob[-48:]) == tuple(bent.ravel())


@pytest.mark.usefixtures("_no_pictures")
def test_what_is_not_the_travellers_own_is_left_out(tmp_path: Path) -> None:
    failed = Certificate(1.3e3, 3e-10, 1e-9, 4e-6, 2e-5, np.nan)
    design = fake_design(status=Status.TIME_LIMIT, certificate=failed, lower_level_error=130.0)
    DESIGN.write(design, tmp_path)
    document = strict(tmp_path / "design.json")
    assert "solved only to 1.3e+02" in document["summary"]["withheld"]
    assert document["summary"]["served"] is None
    assert document["summary"]["indicators"] is None
    verdicts = {check["name"]: (check["verdict"], check["limit"]) for check in document["summary"]["checks"]}
    assert verdicts["travellers: stationarity"] == ("FAIL", pytest.approx(1e-5))
    assert verdicts["capacities: gain left"][0] == "not measured"
    for row in document["links"]:
        assert (row["flow"], row["price"], row["utilisation"]) == (None, None, None)
        assert row["capacity"] is not None
    for row in document["markets"]:
        assert {row[name] for name in ("share", "served", "time", "path_cost", "revenue", "consumer_surplus")} == {None}
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Not certified" in page
    assert '<tr class="failed"><td class="text">FAIL</td>' in page
    assert "so prices are not theirs" in page
    assert "3 checks pass. FAILED: travellers: stationarity. Not measured, since the run was stopped: capac" in page
    assert "<details open>" in page
    words = repr(design)
    assert "NOT CERTIFIED: The travellers' answer" in words
    assert "FAIL          travellers: stationarity" in words
    assert "time saved" not in words


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
    assert nodes[0]["properties"] == {"kind": "node", "id": 1, "name": "North", "zone_id": None}
    assert document["assumptions"] == list(ASSUMED)
    assert "crs" not in document
    assert [link["properties"]["capacity"] for link in links] == design.capacity.tolist()
    for k, link in enumerate(links):
        assert link["type"] == "Feature"
        ends = network.coordinates[[network.tail[k], network.head[k]]].tolist()
        assert link["geometry"] == {"type": "LineString", "coordinates": ends}


@pytest.fixture
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures take a second; most tests look at the tables."""
    monkeypatch.setattr("blocc.report.transport.design_charts.picture_files", lambda design: {})


@pytest.mark.slow
@pytest.mark.parametrize(
    "design",
    [
        fake_design(build=False, status=Status.INFEASIBLE),
        pytest.param(fake_design(one_market()), marks=pytest.mark.slow),
        fake_design(one_market(demand=0.0), iterations=0, what_if=(), starts=(), settings={}, versions={}),
        pytest.param(fake_design(iterations=1, seconds={}), marks=pytest.mark.slow),
    ],
    ids=["nothing built", "one market", "no demand", "one iteration"],
)
@pytest.mark.usefixtures("_no_pictures")
def test_odd_designs(design: Design, tmp_path: Path) -> None:
    DESIGN.write(design, tmp_path)
    for name in ("design.json", "design.geojson"):
        strict(tmp_path / name)
    assert read_design_json(tmp_path / "design.json")["summary"]["links_built"] == int(design.built.sum())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Glyph")
def test_odd_names(tmp_path: Path) -> None:
    names = ("日本", "$x_1$", "\ud800", '<b>, "quoted"\n')
    DESIGN.write(fake_design(small_network(names, name="$5 & \udfff"), message="\u2028"), tmp_path)
    features = strict(tmp_path / "design.geojson")["features"]
    assert tuple(feature["properties"]["name"] for feature in features[:4]) == names


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.usefixtures("_no_pictures")
def test_folder_without_permission(design: Design, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(BloccError, match="locked"):
        DESIGN.write(design, tmp_path / "locked")


@pytest.mark.slow
@pytest.mark.usefixtures("_no_pictures")
def test_a_full_disk_leaves_no_half_files(design: Design, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "design.json").write_text("old")

    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(BloccError, match=f"{tmp_path.name}.*No space left"):
        DESIGN.write(design, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["design.json"]
    assert (tmp_path / "design.json").read_text() == "old"


def test_read_back(folder: Path) -> None:
    assert read_design_json(folder / "design.json") == strict(folder / "design.json")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "blocc-result"}, "not written by write_design"),
        ({"version": 3}, "upgrade blocc"),
        ({"version": True}, "damaged"),
        ({"links": {}}, "'links'"),
        ({"markets": [{"origin": 1}]}, "row 1 of 'markets'"),
        ({"history": None}, "'history'"),
    ],
)
def test_wrong_documents(folder: Path, tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = tmp_path / "design.json"
    path.write_text(json.dumps(sealed({**strict(folder / "design.json"), **change})))
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


def test_a_careless_edit_is_noticed_and_an_older_file_is_read(folder: Path, tmp_path: Path) -> None:
    path, document = tmp_path / "design.json", strict(folder / "design.json")
    del document["sha256"]
    for said in (document, {**document, "sha256": "0" * 64}):
        path.write_text(json.dumps(said))
        with pytest.raises(ChangedError, match="was changed after it was saved"):
            read_design_json(path)
    path.write_text(json.dumps({**document, "version": 1}))
    with pytest.warns(UserWarning, match="no digest: saved by an older version"):
        assert read_design_json(path)["summary"] == document["summary"]
