"""Road networks out of files: what is read, in which units, what is said of it; and what is refused, with its line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blocc._lib.files import json_bytes
from blocc.errors import BloccError, OptionError
from blocc.roads import RoadNetwork, assign, read_road_network
from blocc.roads.files import network_document

NODE = (
    "node_id,x_coord,y_coord,zone_id,node_type\n1,0,0,10,centroid\n2,1,0,,\n3,2,0,,\n4,2,1,20,\n5,3,1,20,\n6,9,9,30,\n"
)
LINK = """link_id,from_node_id,to_node_id,directed,length,free_speed,capacity,lanes,VDF_alpha1,VDF_beta1,toll,name
a,1,2,1,0,50,1000,1,0,1,,
b,2,3,0,10,60,800,2,0.15,4,0.5,Main Street
c,2,4,1,6,30,900,,0.3,2,,
d,3,5,1,5,60,500,1,0.15,4,,
e,6,2,1,1,60,500,1,0.15,4,,
"""
DEMAND = "o_zone_id,d_zone_id,volume\n10,20,1200\n10,10,7\n30,20,100\n"
NET = """<NUMBER OF NODES> 4
<FIRST THRU NODE> 3
<NUMBER OF LINKS> 5
<TOLL FACTOR> 0.02
<END OF METADATA>
~ init term capacity length fft b power speed toll type ;
1 3 10 1 0 0 0 0 0 1 ;
3 4 10 1 2 0.15 4 0 0.5 1 ;
4 2 10 1 0 0 0 0 0 1 ;
3 2 10 1 9 0.15 4 0 0 1 ;
2 4 10 1 0.1 0.15 4 0 0 1 ;
"""
TRIPS = "<NUMBER OF ZONES> 2\n<END OF METADATA>\nOrigin 1\n2 : 4.0;\n"


def gmns(folder: Path, *, node: str = NODE, link: str = LINK, demand: str = DEMAND, config: str = "") -> Path:
    for name, text in (("node", node), ("link", link), ("demand", demand), ("config", config)):
        if text:
            (folder / f"{name}.csv").write_text(text)
    return folder


def tntp(folder: Path, *, net: str = NET, trips: str = TRIPS) -> Path:
    (folder / "town_net.tntp").write_text(net)
    (folder / "town_trips.tntp").write_text(trips)
    return folder / "town_net.tntp"


# --- GMNS ----------------------------------------------------------------------------------------------------------
def test_gmns(tmp_path: Path) -> None:
    network = read_road_network(gmns(tmp_path))
    of = dict(zip(network.link_ids, range(network.n_links), strict=True))
    assert list(of)[:6] == ["a", "b", "b back", "c", "d", "e"]
    np.testing.assert_allclose(network.free_flow_time[[of[key] for key in "abcd"]], [0.0, 10.0, 12.0, 5.0])
    np.testing.assert_allclose(network.capacity[[of[key] for key in "abcd"]], [1000.0, 1600.0, 900.0, 500.0])
    assert network.free_flow_time[of["b back"]] == 10.0
    assert (network.b[of["c"]], network.power[of["c"]], network.toll[of["b"]]) == (0.3, 2.0, 0.5)
    # Zone 10 is its centroid, zone 20 a new one with connectors to both of its nodes, zone 30 its only node.
    assert not network.through[network.nodes.index(1)]
    assert not network.through[network.nodes.index("zone 20")]
    assert network.coordinates[network.nodes.index("zone 20")].tolist() == [2.5, 1.0]
    assert network.free_flow_time[of["4 > zone 20"]] == 0.0
    ends = {(network.nodes[o], network.nodes[d]) for o, d in zip(network.origin, network.destination, strict=True)}
    assert ends == {(1, "zone 20"), (6, "zone 20")}
    for words in (
        "Dropped: demand 7 within a node",
        "Not used: name of link.csv",
        "6 links are 60 * length / free_speed: minutes if speeds are in that unit of length per hour",
        "6 links are capacity * lanes, for one hour; 1 links that name no lanes have one",
        "Tolls of 2 links are taken as minutes",
        "centroids of 1 zones",
        "Trips are taken to be of the period",
    ):
        assert any(words in note for note in network.assumptions), words
    found = assign(network)
    assert found.success
    assert found.flow[of["a"]] == pytest.approx(1200.0)
    used = 0.3 * (found.flow[of["c"]] / 900.0) ** 2  # both ways cost the same
    other = 10.5 + 1.5 * (found.flow[of["b"]] / 1600.0) ** 4 + 5.0 + 0.75 * (found.flow[of["d"]] / 500.0) ** 4
    assert 12.0 * (1.0 + used) == pytest.approx(other)


@pytest.mark.parametrize(
    ("config", "minutes"),
    [
        ("", 10.0),
        ("long_length,speed\nkm,mph\n", 10.0 / 1.609344),
        ("long_length,speed\nm,km/h\n", 0.01),
        ("long_length\nmi\n", 10.0),
        ("speed\nmph\n", 10.0),
        ("long_length\nft\n", 10.0 * 0.3048 / 1609.344),
    ],
)
def test_units_of_gmns(tmp_path: Path, config: str, minutes: float) -> None:
    network = read_road_network(gmns(tmp_path, config=config))
    assert network.free_flow_time[1] == pytest.approx(minutes)


def test_figures_of_volume_delay_functions_win(tmp_path: Path) -> None:
    link = "link_id,from_node_id,to_node_id,VDF_fftt1,VDF_cap1,VDF_alpha1,VDF_beta1,capacity,lanes,length,free_speed\n"
    link += "1,1,2,3.5,1700,0.2,3,500,2,1,1\n2,2,4,0,1000,0.2,3,,,,\n"
    network = read_road_network(gmns(tmp_path, link=link, demand="o_zone_id,d_zone_id,volume\n10,20,5\n"))
    assert (network.free_flow_time[0], network.capacity[0], network.b[0], network.power[0]) == (3.5, 1700.0, 0.2, 3.0)
    assert any("VDF_cap" in note and "all lanes" in note for note in network.assumptions)
    assert read_road_network(tmp_path / "link.csv").n_links == network.n_links


def test_missing_bpr_is_filled_in_on_request_only(tmp_path: Path) -> None:
    link = "\n".join(",".join(line.split(",")[:8]) for line in LINK.splitlines()) + "\n"
    folder = gmns(tmp_path, link=link)
    with pytest.raises(BloccError, match=r"link.csv line 2: b None is missing"):
        read_road_network(folder)
    network = read_road_network(folder, default_bpr=(0.15, 4))
    assert set(network.b[:6].tolist()) == {0.15}
    assert "Filled in: b = 0.15 of 6 links that have none." in network.assumptions
    short = "\n".join(line.rsplit(" ", 6)[0] if line[:1].isdigit() else line for line in NET.splitlines())
    net = tntp(tmp_path, net=short)
    with pytest.raises(BloccError, match=r"town_net.tntp line 7: b None is missing"):
        read_road_network(net)
    assert set(read_road_network(net, default_bpr=(0.15, 4)).power.tolist()) == {4.0}


def test_trips_out_of_a_matrix(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "trips.omx", "w") as stream:
        stream["data/car"] = np.array([[7.0, 30.0, 0.0], [0.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
        stream["lookup/zones"] = np.array([10, 20, 30])
    network = read_road_network(gmns(tmp_path), demand_omx=tmp_path / "trips.omx")
    assert sorted(network.demand.tolist()) == [2.0, 30.0]
    with pytest.raises(OptionError, match="give demand_omx too"):
        read_road_network(tmp_path, matrix="car")
    with pytest.raises(OptionError, match=r"not those of a .json"):
        read_road_network("sioux-falls", demand_omx=tmp_path / "trips.omx")


# --- the other formats ---------------------------------------------------------------------------------------------
def test_names_of_tntp_files(tmp_path: Path) -> None:
    net = tntp(tmp_path)
    for source in (net, tmp_path / "town", tmp_path):
        assert read_road_network(source).name == "town"
    notes = read_road_network(net).assumptions
    assert any("<TOLL FACTOR> 0.02; a link costs its time and its toll" in note for note in notes)
    gmns(tmp_path)
    with pytest.raises(BloccError, match="several networks"):
        read_road_network(tmp_path)


def test_a_document_is_read_as_it_was_written(tmp_path: Path) -> None:
    network = read_road_network(tntp(tmp_path))
    path = tmp_path / "town.json"
    path.write_bytes(json_bytes(network_document(network)))
    again = read_road_network(path)
    for name in ("capacity", "free_flow_time", "b", "power", "toll", "length", "demand", "through", "coordinates"):
        np.testing.assert_array_equal(getattr(again, name), getattr(network, name), err_msg=name)
    assert (again.link_ids, again.assumptions) == (network.link_ids, network.assumptions)


def test_the_heading_of_a_tntp_file_tells_the_order_of_its_columns(tmp_path: Path) -> None:
    usual = read_road_network(tntp(tmp_path))
    heading, rows = NET[NET.index("~") :].splitlines()[0], NET[NET.index("~") :].splitlines()[1:]
    order = [1, 0, 4, 2, 3, 8, 5, 6, 7, 9]
    turned = [" ".join(np.array(row.split()[:-1])[order]) + " ;" for row in rows]
    words = (
        "~ Term node\tInit node\tFree Flow Time (min)\tCapacity (veh/h)\tLength\tToll\tB\tPower\tSpeed limit\tType ;"
    )
    other = NET[: NET.index("~")] + "\n".join([words, *turned]) + "\n"
    read = read_road_network(tntp(tmp_path, net=other))
    for name in ("tail", "head", "capacity", "free_flow_time", "b", "power", "toll", "length"):
        np.testing.assert_array_equal(getattr(read, name), getattr(usual, name), err_msg=name)
    for known in (
        "~ \tInit node \tTerm node \tCapacity \tLength \tFree Flow Time \tB\tPower\tSpeed limit \tToll \tType\t;",
        "~ init_node term_node capacity length free_flow_time b power speed toll link_type ;",
        "~ Tail Head Capacity (veh/h) Length (ft) Free Flow Time (min) B Power Speed (ft/min) Toll Type",
        "~ made from a map of the town, with capacity and length to be checked in the field",
        "~ init term capacity length fft b power speed toll type lanes",
    ):
        again = read_road_network(tntp(tmp_path, net=NET.replace(heading, known)))
        np.testing.assert_array_equal(again.capacity, usual.capacity, err_msg=known)


@pytest.mark.parametrize(
    "tag", ["<NUMBER_OF_LINKS> 5", "<Number of  Links>: 5", "< NUMBER OF LINKS >\t5\t~ of them", "<NUMBER OF LINKS>5;"]
)
def test_names_of_metadata_are_spaced_in_many_ways(tmp_path: Path, tag: str) -> None:
    odd = NET.replace("<NUMBER OF LINKS> 5", tag).replace("<FIRST THRU NODE> 3", "<First through node> 3")
    assert read_road_network(tntp(tmp_path, net=odd)).through.tolist() == [False, False, True, True]
    with pytest.raises(BloccError, match="NUMBER OF LINKS> says 6, but there are 5"):
        read_road_network(tntp(tmp_path, net=odd.replace(tag, tag.replace("5", "6"))))


# --- what is refused -----------------------------------------------------------------------------------------------
def replaced(text: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new, 1)
    return text


Make = Callable[[Path], Path]


def with_link(old: str, new: str) -> Make:
    return lambda folder: gmns(folder, link=replaced(LINK, (old, new)))


def with_demand(row: str) -> Make:
    return lambda folder: gmns(folder, demand=DEMAND + row)


BAD: list[tuple[Make, str]] = [
    (with_link("60,800", "60,0"), r"link.csv line 3: capacity 0.* must be positive"),
    (with_link("800,2", "800,0"), r"line 3: capacity 0.* must be positive"),
    (with_link("60,800", "60,-800"), r"line 3: capacity '-800' is below 0"),
    (with_link("60,800", "60,nan"), r"line 3: capacity 'nan' is not a finite number"),
    (with_link("60,800", "60,1e300"), r"line 3: capacity .* beyond 1e\+12"),
    (with_link("60,800", "60,"), r"line 3: capacity '' is missing: give it \(for one lane\), or VDF_cap1"),
    (with_link("10,60", "10,0"), r"line 3: free_speed '0' must be above 0"),
    (with_link("10,60", "10,"), r"line 3: time None is missing: give VDF_fftt1, or length and free_speed"),
    (with_link("10,60", "-10,60"), r"line 3: length '-10' is below 0"),
    (with_link("0.15,4,0.5", "-0.15,4,0.5"), r"line 3: b '-0.15' is below 0"),
    (with_link("0.15,4,0.5", "0.15,4,-1"), r"line 3: toll '-1' is below 0"),
    (with_link("0.15,4,0.5", "0.15,400,0.5"), r"line 3: power '400' must not be above 50"),
    (with_link("0.15,4,0.5", "0.15,0.5,0.5"), r"line 3: power '0.5' must be at least 1"),
    (with_link("0.15,4,0.5", "0.15,,0.5"), r"line 3: power '' is missing"),
    (with_link("b,2,3", "b,2,33"), r"line 3: to '33' is not the id of a node"),
    (with_link("b,2,3", "b,2,2"), r"line 3: to '2' makes a link from a node to itself"),
    (with_link("c,2,4", "a,2,4"), r"line 4: link_id 'a' names link.csv line 2 too"),
    (with_link("2,3,0,", "2,3,maybe,"), r"line 3: directed 'maybe'"),
    (with_link("link_id,from_node_id", "link_id,from"), r"link.csv line 1: missing column from_node_id"),
    (with_demand("10,99,5\n"), r"demand.csv line 5: destination '99' is not a zone"),
    (with_demand("20,10,5\n"), r"demand.csv line 5: destination .* cannot be reached"),
    (with_demand("10,20,-5\n"), r"demand.csv line 5: demand '-5' is below 0"),
    (with_demand("10,20,many\n"), r"demand.csv line 5: demand 'many' is not a finite number"),
    (with_demand("10,20\n"), r"demand.csv line 5: has 2 cells"),
    (lambda folder: gmns(folder, demand="o_zone_id,d_zone_id,volume\n10,10,5\n"), "needs at least 1 rows"),
    (lambda folder: gmns(folder, demand="o_zone_id,d_zone_id,volume\n10,20,0\n"), "no trips between different nodes"),
    (lambda folder: gmns(folder, demand=""), "no trips; expected demand.csv"),
    (lambda folder: gmns(folder, node=NODE + "2,5,5,,\n"), r"node.csv line 8: id '2' is a duplicate"),
    (lambda folder: gmns(folder, config="speed\nfurlongs\n"), "config.csv: speed 'furlongs' must be one of"),
    (lambda folder: tntp(folder, net=replaced(NET, ("3 4 10", "3 4 -1"))), r"town_net.tntp line 8: capacity '-1'"),
    (
        lambda folder: tntp(folder, net=replaced(NET, ("3 4 10", "3 4 1e-90"))),
        r"line 8: capacity .* raised to this power",
    ),
    (
        lambda folder: tntp(folder, net=replaced(NET, ("capacity length", "length room"))),
        r"town_net.tntp line 6: the columns .* are neither in the format's order nor understood",
    ),
    (
        lambda folder: tntp(folder, net=replaced(NET, ("capacity length", "length capacity lanes"))),
        r"town_net.tntp line 6: the columns .* are neither",
    ),
    (
        lambda folder: tntp(folder, net=replaced(NET, ("init term", "term init"), ("toll type", "toll"))),
        r"town_net.tntp line 7: has 10 figures, but the heading names 9 columns",
    ),
    (
        lambda folder: tntp(folder, net=replaced(NET, ("LINKS> 5", "LINKS> five"))),
        r"LINKS> must be a count, got 'five'",
    ),
    (lambda folder: tntp(folder, trips=TRIPS + "9 : 4.0;\n"), r"town_trips.tntp line 5: destination '9' is not"),
    (lambda folder: tntp(folder, trips=TRIPS.replace("4.0", "inf")), r"town_trips.tntp line 4: demand 'inf'"),
    (lambda folder: folder / "nothing", "there is no road network"),
    (lambda folder: folder, "holds no road network"),
]


@pytest.mark.parametrize(("make", "words"), BAD, ids=[words for _, words in BAD])
def test_bad_files_are_refused_with_their_line(tmp_path: Path, make: Make, words: str) -> None:
    with pytest.raises(BloccError, match=words):
        read_road_network(make(tmp_path))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not a JSON file"),
        ("[1]", "is not a road network"),
        (json.dumps({"format": "blocc-roads", "version": 1, "nodes": 3}), "'nodes' must be a list"),
    ],
)
def test_bad_documents_are_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(BloccError, match=words):
        read_road_network(tmp_path / "a.json")
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(BloccError, match="not a road network file that blocc knows"):
        read_road_network(tmp_path / "a.txt")


def test_rows_that_can_be_used_with_a_note() -> None:
    nodes = [{"id": i} for i in range(3)]
    figures = {"capacity": 10, "free_flow_time": 1, "b": 0.15, "power": 4}
    links = [{"from": i, "to": j, **figures} for i, j in ((0, 1), (1, 2))]
    trips = [{"origin": 0, "destination": 2, "demand": d} for d in (3.0, 4.0, 0.0)]
    trips += [{"origin": 1, "destination": 1, "demand": 5.0}, {"origin": 2, "destination": 0, "demand": 1.0}]
    network = RoadNetwork.from_tables(nodes, links, trips, drop_unreachable=True)
    assert network.demand.tolist() == [7.0]
    assert network.assumptions == (
        "Dropped: 5 trips that begin and end at one node.",
        "Added up: 1 rows of trips of a pair that has one before.",
        "Dropped: 1 trips of 1 pairs that no path joins.",
    )
    with pytest.raises(BloccError, match="no path joins any pair"):
        RoadNetwork.from_tables(nodes, links, trips[-1:], drop_unreachable=True)
    wrong: tuple[Any, ...] = ((0.15,), (0.15, -4), "0.15, 4", (None, 4))
    for default in wrong:
        with pytest.raises(OptionError, match="default_bpr"):
            RoadNetwork.from_tables(nodes, links, trips, default_bpr=default)
