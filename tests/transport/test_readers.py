"""The readers: small files of each format, every complaint with its line, and no surprise on arbitrary input."""

from __future__ import annotations

import builtins
import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from blocc.errors import BloccError, OptionError, ProblemError
from blocc.networks.checked_rows import PLACE
from blocc.networks.readers.omx import read_omx
from blocc.transport.network.files import read_network, write_network
from blocc.transport.network.network import TransportNetwork
from blocc.transport.network.readers.rules import FillRules

RULES = FillRules(cost_per_length=2.0, revenue_flat=1.0, revenue_per_time=0.5)
FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(folder: Path, **texts: str) -> Path:
    for name, content in texts.items():
        (folder / f"{name}.csv").write_text(content, encoding="utf-8", newline="")
    return folder


# --- our own JSON --------------------------------------------------------------------------------------------------
def native(**changes: Any) -> str:
    document = {
        "format": "blocc-network",
        "version": 1,
        "name": "pair",
        "nodes": [{"id": 1, "x": 0, "y": 0}, {"id": 2, "x": 1, "y": 0}],
        "links": [{"from": 1, "to": 2, "time": 1, "cost": 1}],
        "markets": [{"origin": 1, "destination": 2, "demand": 1, "revenue": 1, "alternative_time": 2}],
    }
    return json.dumps({**document, **changes})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "net.json line 1: not JSON"),
        ("[1]", 'net.json is not a network: it must be an object with "format"'),
        (native(format="other"), "is not a network"),
        (native(version=2), "has version 2 of the format; this blocc reads 1"),
        (native(nodes=None), '"nodes" is missing; it must be a list of objects'),
        (native(links={}), '"links" is dict'),
        (native(links=[3]), "net.json links row 1: must be an object"),
        (native(name=5), '"name" must be a text'),
        (native(start_range=[2, 1]), "start_range"),
        (native(links=[{"from": 1, "to": 3, "time": 1, "cost": 1}]), "net.json links row 1: to 3 is not the id"),
        (native(links=[{"from": 1, "to": 2, "time": float("nan"), "cost": 1}]), "time nan is not a finite number"),
        (native(links=[{"from": 1, "to": 2, "cost": 1}]), "net.json links row 1: time None is missing"),
        (native(links=[{"from": 2, "to": 1, "time": 1, "cost": 1}]), "net.json markets row 1: destination 2 cannot"),
        ("[" * 100_000, "not JSON"),
        ("9" * 5000, "not JSON"),
        (native().replace('"time": 1', '"time": 1, "time": 2'), "an object has the key 'time' more than once"),
    ],
)
def test_native_complaints(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "net.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ProblemError) as error:
        read_network(path)
    assert message in str(error.value)


def test_native_tells_what_it_does_not_read(tmp_path: Path) -> None:
    rows = [{"from": 1, "to": 2, "time": 1, "cost": 1, "toll": 3, "bpr_alpha": 0.15, "link_id": "a"}]
    (tmp_path / "net.json").write_text(native(links=[*rows, {**rows[0], "link_id": "b"}]), encoding="utf-8")
    network = read_network(tmp_path / "net.json")
    told = (
        "Not used: toll, bpr_alpha of links in net.json (times do not grow with the flow, nobody pays a toll).",
        "Parallel links: 1 beside another from the same node to the same node.",
    )
    assert network.assumptions == told
    write_network(network, tmp_path / "again.json")
    assert read_network(tmp_path / "again.json").assumptions == told


# --- GMNS ----------------------------------------------------------------------------------------------------------
NODE = 'node_id,name,x_coord,y_coord,zone_id\n10,North,0,1,1\n20,"South, old",0,0,2\n30,,1,0,\n'
LINK = "link_id,from_node_id,to_node_id,directed,length,free_speed\n1,10,20,0,5,10\n2,20,30,1,4,8\n3,30,10,true,6,6\n"
DEMAND = "o_zone_id,d_zone_id,volume\n1,2,7\n2,1,3\n1,1,4\n"


def test_gmns(tmp_path: Path) -> None:
    network = read_network(write(tmp_path, node=NODE, link=LINK, demand=DEMAND), rules=RULES, name="town")
    assert network.name == "town"
    assert network.nodes == (10, 20, 30)
    assert network.labels == ("North", "South, old", "30")
    assert list(zip(network.tail.tolist(), network.head.tolist(), strict=True)) == [(0, 1), (1, 0), (1, 2), (2, 0)]
    assert network.time.tolist() == [0.5, 0.5, 0.5, 1.0]
    assert network.cost.tolist() == [10, 10, 8, 12]
    assert network.demand.tolist() == [7, 3]
    assert network.revenue.tolist() == [1.25, 1.25]
    assert network.alternative_time.tolist() == [0.75, 0.75]
    assert network.assumptions == (
        "Dropped: demand 4 within a node (1 row holds it).",
        "Filled in: time of 4 links, length over free_speed, in the unit that these two make.",
        "Filled in: cost of 4 links, 2 * length.",
        "Filled in: revenue of 2 markets, 1 + 0.5 * time of the shortest path.",
        "Filled in: alternative_time of 2 markets, 1.5 * time of the shortest path.",
    )
    assert network.length.tolist() == [5, 5, 4, 6]
    assert network.link_ids == (1, 1, 2, 3)
    assert network.zone_ids == (1, 2, None)


def test_gmns_in_full(tmp_path: Path) -> None:
    """Centroids, lines, parallel links, units and a reference system; and what is left unused is told."""
    node = "node_id,x_coord,y_coord,zone_id,node_type,ctrl_type\n1,500000,4100000,a,centroid,\n"
    node += "2,500900,4100100,b,,signal\n3,501800,4100000,c,CENTROID,\n"
    link = "link_id,from_node_id,to_node_id,directed,length,free_speed,lanes,toll,geometry,geometry_id\n"
    link += 'old,1,2,0,1,20,2,,"LINESTRING (500000 4100000, 500500 4100200, 500900 4100100)",\n'
    link += "new,1,2,1,1,40,1,1.5,,\nside,2,3,0,1,20,,,,g7\n"
    write(
        tmp_path,
        node=node,
        link=link,
        demand="o_zone_id,d_zone_id,volume,purpose\na,c,7,work\n",
        geometry='geometry_id,geometry\ng7,"linestring(500900 4100100, 501800 4100000)"\ng8,POINT (1 1)\n',
        config="dataset_name,crs,long_length,speed,currency\nTown,EPSG:25830,km,kph,EUR\n",
    )
    network = read_network(tmp_path, rules=RULES)
    assert network.through.tolist() == [False, True, False]
    assert network.zone_ids == ("a", "b", "c")
    assert network.link_ids == ("old", "old", "new", "side", "side")
    assert (network.crs, network.geographic) == ("EPSG:25830", False)
    assert network.units == ("h", 1.0, "km", "EUR")
    first, back = network.geometry[:2]
    assert first is not None
    assert back is not None
    assert first[1].tolist() == [500500, 4100200]
    assert np.array_equal(back, first[::-1])
    assert [line is None for line in network.geometry] == [False, False, True, False, False]
    assert network.free_flow_times == pytest.approx([1 / 40 + 1 / 20])
    assert network.assumptions[:5] == (
        "Not used: ctrl_type of node.csv.",
        "Not used: lanes, toll of link.csv (capacities of roads that exist do not limit a design, nobody pays a toll).",
        "Not used: the geometry of 1 links, which is not a LINESTRING; they are drawn straight.",
        "Not used: purpose of demand.csv.",
        "Parallel links: 1 beside another from the same node to the same node.",
    )


@pytest.mark.parametrize(
    ("places", "geographic"),
    [
        ([(-5.9871, 37.3912), (-5.9812, 37.3955)], True),
        ([(13.40512, 52.52017), (13.71234, 52.31415)], True),
        ([(0.12345, 0.54321), (1.98765, 0.12345)], False),  # begins at the origin, as a plane does
        ([(10, 50), (11, 51)], False),  # no decimals
        ([(500123.4567, 4100.1234), (500999.1234, 4101.4321)], False),
    ],
)
def test_longitudes_and_latitudes_are_recognised(places: Any, geographic: bool, tmp_path: Path) -> None:
    node = "".join(f"{k},{x},{y}\n" for k, (x, y) in enumerate(places, 1))
    link, demand = "from_node_id,to_node_id,time,cost\n1,2,1,1\n", "origin,destination,demand,revenue\n1,2,1,1\n"
    write(tmp_path, node="node_id,x_coord,y_coord\n" + node, link=link, demand=demand)
    network = read_network(tmp_path)
    assert network.geographic == geographic
    assert any("look like longitude" in line for line in network.assumptions) == geographic
    assert not read_network(tmp_path, rules=FillRules(geographic=False)).geographic


def test_gmns_with_byte_order_mark_and_windows_lines(tmp_path: Path) -> None:
    for name, content in (("node", NODE), ("link", LINK), ("demand", DEMAND)):
        write(tmp_path, **{name: "\ufeff" + content.replace("\n", "\r\n") + "\r\n"})
    assert read_network(tmp_path / "node.csv", rules=RULES).labels[1] == "South, old"


def test_gmns_figures_in_the_files_win(tmp_path: Path) -> None:
    link = "from_node_id,to_node_id,vdf_fftt,cost\n10,20,0,3\n20,10,2,\n"
    demand = "origin,destination,demand,revenue,alternative_time\n10,20,1,9,\n20,10,0,,8\n"
    config = "dataset_name,crs\nOld town,EPSG:4326\n"
    node = NODE.replace("zone_id", "other")
    write(tmp_path, node=node, link=link, demand=demand, config=config)
    network = read_network(tmp_path, rules=FillRules(cost_per_time=4, revenue_flat=1, alternative_factor=3))
    assert (network.name, network.geographic) == ("Old town", True)
    assert network.time.tolist() == [0, 2]
    assert network.cost.tolist() == [3, 8]
    assert network.revenue.tolist() == [9, 1]
    assert network.alternative_time.tolist() == pytest.approx([0, 8])


def test_first_node_of_a_zone_takes_its_demand(tmp_path: Path) -> None:
    write(tmp_path, node=NODE.replace("30,,1,0,", "30,,1,0,2"), link=LINK, demand=DEMAND)
    network = read_network(tmp_path, rules=RULES)
    assert network.destination[0] == 1
    assert "Demand of 1 zones with several nodes in node.csv: the first node takes it." in network.assumptions


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"node": ""}, "node.csv is empty"),
        ({"node": "id,x\n1,2\n"}, "node.csv line 1: missing column node_id, x_coord, y_coord; found: id, x"),
        ({"node": "node_id;x_coord;y_coord\n"}, "separate the cells by commas"),
        ({"node": NODE.replace("name", "node_id")}, "the column 'node_id' occurs more than once"),
        ({"node": NODE + "40,West\n"}, "node.csv line 5: has 2 cells, but the header names 5 columns"),
        ({"node": NODE + '40,"West,1,1,\n'}, "node.csv line 5: not CSV"),
        ({"node": NODE.replace("20,", "10,", 1)}, "node.csv line 3: id '10' is a duplicate of node.csv line 2"),
        ({"node": NODE.replace("30,,1", "30,,east")}, "node.csv line 4: x 'east' is not a finite number"),
        ({"link": "from_node_id,length\n"}, "link.csv line 1: missing column to_node_id; found: from_node_id, length"),
        ({"link": LINK + "\n4,10,99,1,1,1\n"}, "link.csv line 6: to '99' is not the id of a node"),
        (
            {"link": LINK + "1,20,10,1,1,1\n"},
            "link.csv line 5: from '20' to '10' repeats link.csv line 2 (the way back",
        ),
        ({"link": LINK.replace(",6,6", ",6,6e13")}, "link.csv line 4: free_speed '6e13' is beyond 1e+12"),
        ({"node": NODE.replace("name", "through")}, "node.csv line 2: through 'North' must be true or false"),
        ({"demand": DEMAND.replace("7", "1e300")}, "demand.csv line 2: demand '1e300' is beyond 1e+12"),
        ({"config": "time_factor\n0\n"}, "config.csv: time_factor must be a number above 0, got '0'"),
        ({"link": LINK + "4,30,30,1,1,1\n"}, "link.csv line 5: to '30' makes a link from a node to itself"),
        ({"link": LINK + "4,30,20,2,1,1\n"}, "link.csv line 5: directed '2' must be 1 or true"),
        ({"link": LINK + "4,30,20,1,,1\n"}, "link.csv line 5: time None is missing: give it, or length and free_speed"),
        ({"link": LINK + "4,30,20,1,1,0\n"}, "link.csv line 5: free_speed '0' must be above 0"),
        ({"link": LINK + "4,30,20,1,-1,1\n"}, "link.csv line 5: length '-1' is below 0"),
        ({"link": LINK + "4,30,20,1,nan,1\n"}, "link.csv line 5: length 'nan' is not a finite number"),
        ({"demand": "o_zone_id,d_zone_id\n"}, "demand.csv line 1: missing column volume or demand"),
        ({"demand": DEMAND + "1,5,1\n"}, "demand.csv line 5: destination '5' is not a zone: no row of node.csv"),
        ({"demand": DEMAND.replace("7", "-7")}, "demand.csv line 2: demand '-7' is below 0"),
        ({"demand": DEMAND.replace("7", "many")}, "demand.csv line 2: demand 'many' is not a finite number"),
        ({"demand": "o_zone_id,d_zone_id,volume\n"}, "markets: needs at least 1 rows"),
        ({"config": "start_low,start_high\n3,1\n"}, "start_range"),
    ],
)
def test_gmns_complaints(files: dict[str, str], message: str, tmp_path: Path) -> None:
    write(tmp_path, **{"node": NODE, "link": LINK, "demand": DEMAND, **files})
    with pytest.raises(BloccError) as error:
        read_network(tmp_path, rules=RULES)
    assert message in str(error.value)


def test_gmns_without_rules_says_which_are_needed(tmp_path: Path) -> None:
    with pytest.raises(ProblemError) as error:
        read_network(write(tmp_path, node=NODE, link=LINK, demand=DEMAND))
    assert "link.csv line 2: 4 of 4 links have no cost, from here on; give cost_per_length or cost_per_time" in str(
        error.value
    )
    assert "demand.csv line 2: 2 of 2 markets have no revenue" in str(error.value)


def test_missing_files_are_named(tmp_path: Path) -> None:
    write(tmp_path, node=NODE)
    with pytest.raises(BloccError, match=r"there is no file .*link.csv"):
        read_network(tmp_path)
    write(tmp_path, link=LINK)
    with pytest.raises(BloccError, match=r"has no demand: expected demand.csv in .*, or an OMX file"):
        read_network(tmp_path)


def test_other_encodings_are_named_with_their_line(tmp_path: Path) -> None:
    write(tmp_path, node=NODE, link=LINK, demand=DEMAND)
    (tmp_path / "node.csv").write_bytes(NODE.replace("South", "Süd").encode("latin-1"))
    with pytest.raises(ProblemError, match=r"node.csv line 3: byte 0xfc is not UTF-8"):
        read_network(tmp_path)


# --- TNTP ----------------------------------------------------------------------------------------------------------
NET = """<NUMBER OF ZONES> 3
<NUMBER OF NODES> 4
<FIRST THRU NODE> 4
<NUMBER OF LINKS> 6
<ORIGINAL HEADER>~ Init node  Term node ;
<END OF METADATA>


~\tinit_node\tterm_node\tcapacity\tlength\tfree_flow_time\tb\tpower\tspeed\ttoll\tlink_type\t;
\t1\t4\t9000\t0\t0\t0.15\t4\t0\t0\t1\t;
\t4\t1\t9000\t0\t0\t0.15\t4\t0\t0\t1\t;
\t2\t4\t9000\t3\t6\t0.15\t4\t0\t0\t1\t;
\t4\t2\t9000\t3\t6\t0.15\t4\t0\t0\t1\t;
\t3\t4\t9000\t2\t4\t0.15\t4\t0\t0\t1\t;
\t4\t3\t9000\t2\t4\t0.15\t4\t0\t0\t1;
"""
TRIPS = """<NUMBER OF ZONES> 3
<TOTAL OD FLOW> 60.5
<END OF METADATA>


Origin \t1
    1 :     5.0;     2 :    10.0;
    3 :     20.0;

Origin  2
    1 :     10.0;    2 :    0.0;    3 :     0.0;
origin  3
    1 :     15.5;
"""
COORDINATES = "Node\tX\tY\t;\n1\t0\t10\t;\n2\t-5.5\t0\t;\n3\t5\t0\t;\n4\t0\t1\t;\n"


def tntp(folder: Path, net: str = NET, trips: str | None = TRIPS, node: str | None = None) -> Path:
    for what, content in (("net", net), ("trips", trips), ("node", node)):
        if content is not None:
            (folder / f"Cross_{what}.tntp").write_text(content, encoding="utf-8")
    return folder / "Cross_net.tntp"


def test_tntp(tmp_path: Path) -> None:
    network = read_network(tntp(tmp_path, node=COORDINATES), rules=RULES)
    assert network.name == "Cross"
    assert network.nodes == (1, 2, 3, 4)
    assert network.coordinates[1].tolist() == [-5.5, 0]
    assert network.time.tolist() == [0, 0, 6, 6, 4, 4]
    assert network.cost.tolist() == [0, 0, 6, 6, 4, 4]
    assert network.demand.tolist() == [10, 20, 10, 15.5]
    assert network.free_flow_times == pytest.approx([6, 4, 6, 4])
    assert network.revenue == pytest.approx([4, 3, 4, 3])
    assert network.through.tolist() == [False, False, False, True]
    assert network.assumptions[:3] == (
        "Not used: capacity, b, power, speed, toll, link type of Cross_net.tntp (capacities of roads that exist do not "
        "limit a design, times do not grow with the flow, nobody pays a toll).",
        "Paths do not pass the 3 nodes below number 4 (<FIRST THRU NODE>).",
        "Dropped: demand 5 within a node (2 rows hold it).",
    )


def test_tntp_paths_do_not_pass_zones(tmp_path: Path) -> None:
    """A short cut through zone 2, which only those who start or end there may use; alternative times know that."""
    more = "\t1\t2\t1\t1\t1\t0\t0\t0\t0\t1;\n\t2\t3\t1\t1\t1\t0\t0\t0\t0\t1;\n"
    net = NET.replace("LINKS> 6", "LINKS> 8") + more
    network = read_network(tntp(tmp_path, net=net, node=COORDINATES), rules=RULES)
    assert network.free_flow_times == pytest.approx([1, 4, 6, 4])
    assert network.alternative_time == pytest.approx([1.5, 6, 9, 6])
    open_to_all = tntp(tmp_path, net=net.replace("<FIRST THRU NODE> 4", "<FIRST THRU NODE> 1"), node=COORDINATES)
    assert read_network(open_to_all, rules=RULES).free_flow_times == pytest.approx([1, 2, 5, 4])


def test_tntp_trips_may_follow_their_origin_and_are_added_up(tmp_path: Path) -> None:
    one_line = TRIPS.replace("Origin \t1\n    1 :     5.0;", "Origin 1  1 : 5.0;").replace("60.5", "70")
    network = read_network(tntp(tmp_path, trips=one_line), rules=RULES)
    assert network.demand.tolist() == [10, 20, 10, 15.5]
    (said,) = [line for line in network.assumptions if "TOTAL OD FLOW" in line]
    assert said == "Cross_trips.tntp: <TOTAL OD FLOW> says 70, but the trips add up to 60.5."


def test_tntp_factors_are_named(tmp_path: Path) -> None:
    path = tntp(tmp_path, net="<TOLL FACTOR> 0.02\n<DISTANCE FACTOR> 0\n" + NET)
    told = [line for line in read_network(path, rules=RULES).assumptions if "FACTOR" in line]
    assert told == ["Not used: <TOLL FACTOR> 0.02; a link costs its time alone."]


def test_tntp_by_folder_and_by_stem(tmp_path: Path) -> None:
    tntp(tmp_path)
    for source in (tmp_path, tmp_path / "Cross"):
        assert read_network(source, rules=RULES).n_links == 6


def test_tntp_without_coordinates_stands_on_a_circle(tmp_path: Path) -> None:
    network = read_network(tntp(tmp_path), rules=RULES)
    assert np.linalg.norm(network.coordinates, axis=1) == pytest.approx(1)
    assert len({tuple(place) for place in network.coordinates.round(6)}) == 4
    circle = "Invented: coordinates, on a circle in the order of the numbers, since there is no Cross_node.tntp."
    assert circle in network.assumptions
    uncounted = tntp(tmp_path, net=NET.replace("<NUMBER OF NODES> 4", ""))
    assert read_network(uncounted, rules=RULES).nodes == (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"net": NET.replace("\t4\t3\t9000\t2\t4", "\t4\t3")}, "line 15: has 7 figures, but the first link has 10"),
        ({"net": NET + "4 5 6 ;"}, "Cross_net.tntp line 16: has 3 figures; a link begins with init node, term node"),
        (
            {"net": NET.replace("\t4\t3\t9000", "\t4\t7\t9000")},
            "Cross_net.tntp line 15: to '7' is not the id of a node",
        ),
        ({"net": NET.replace("9000\t3\t6", "9000\t3\t-6")}, "Cross_net.tntp line 12: time '-6' is below 0"),
        ({"net": NET.replace("LINKS> 6", "LINKS> 7")}, "<NUMBER OF LINKS> says 7, but there are 6"),
        ({"net": NET.replace("NODE> 4", "NODE> four")}, "<FIRST THRU NODE> must be the number of a node, got 'four'"),
        ({"net": NET.replace("NODES> 4", "NODES> 99999999999")}, "more than 2,000,000 rows"),
        ({"net": NET[: NET.index("\t4\t3")].replace("LINKS> 6", "LINKS> 5")}, "destination '3' cannot be reached"),
        ({"trips": None}, "has no demand: expected Cross_trips.tntp beside Cross_net.tntp"),
        (
            {"trips": TRIPS.replace(":     20.0", "20.0")},
            "Cross_trips.tntp line 8: '3 20.0' is not 'destination : flow'",
        ),
        ({"trips": "1 : 2;\n"}, "Cross_trips.tntp line 1: stands before the first line 'Origin NUMBER'"),
        ({"trips": TRIPS.replace("15.5", "nan")}, "Cross_trips.tntp line 13: demand 'nan' is not a finite number"),
        ({"trips": TRIPS.replace("3 :     20.0", "9 :     20.0")}, "Cross_trips.tntp line 8: destination '9' is not"),
        ({"node": COORDINATES + "5;\n"}, "Cross_node.tntp line 6: has 1 figures; a node has its number, x and y"),
        ({"node": COORDINATES + "4 1 1;\n"}, "Cross_node.tntp line 6: id '4' is a duplicate of Cross_node.tntp line 5"),
    ],
)
def test_tntp_complaints(files: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(BloccError) as error:
        read_network(tntp(tmp_path, **files), rules=RULES)
    assert message in " ".join(str(error.value).split())


# --- OMX -----------------------------------------------------------------------------------------------------------
def write_omx(path: Path, matrices: dict[str, Any], lookups: dict[str, Any] | None = None) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as stream:
        stream.attrs["OMX_VERSION"] = b"0.2"
        for name, cells in matrices.items():
            stream.create_dataset(f"data/{name}", data=np.asarray(cells))
        for name, ids in (lookups or {}).items():
            stream.create_dataset(f"lookup/{name}", data=ids)
    return path


def test_omx(tmp_path: Path) -> None:
    path = write_omx(tmp_path / "trips.omx", {"AM": [[1, 2], [0, 3]], "PM": np.eye(2)}, {"zone": [20, 10]})
    demand = read_omx(path, "AM")
    assert [tuple(row.values())[:3] for row in demand.rows] == [(20, 20, 1.0), (20, 10, 2.0), (10, 10, 3.0)]
    assert demand.rows[1][PLACE] == "trips.omx AM[20, 10]"
    plain = write_omx(tmp_path / "plain.omx", {"AM": [[0, 2.5], [0, 0]]})
    assert read_omx(plain).rows == [{"origin": 1, "destination": 2, "demand": 2.5, PLACE: "plain.omx AM[1, 2]"}]
    texts = write_omx(tmp_path / "texts.omx", {"AM": [[0, 1], [0, 0]]}, {"zone": np.array([b"a", b"b"])})
    assert read_omx(texts).rows == [{"origin": "a", "destination": "b", "demand": 1.0, PLACE: "texts.omx AM[a, b]"}]


def test_omx_demand_for_a_network(tmp_path: Path) -> None:
    path = write_omx(tmp_path / "trips.omx", {"AM": [[4.0, 2.0], [0, 0]]})
    network = read_network(write(tmp_path, node=NODE, link=LINK), rules=RULES, demand_omx=path)
    assert [network.nodes[network.origin[0]], network.nodes[network.destination[0]]] == [10, 20]  # zones 1 and 2
    assert network.demand.tolist() == [2.0]
    assert network.assumptions[:2] == ("Demand: trips.omx AM.", "Dropped: demand 4 within a node (1 row holds it).")
    assert sum("within a node" in line for line in network.assumptions) == 1  # none about what was replaced


def test_omx_keeps_the_other_figures_of_known_markets(tmp_path: Path) -> None:
    path = write_omx(tmp_path / "trips.omx", {"AM": [[0, 0, 8.0], [0, 0, 0], [0, 0, 0]]})
    network = read_network("three", demand_omx=path)
    assert network.market_rows() == [
        {"origin": 1, "destination": 3, "demand": 8.0, "revenue": 6.0, "alternative_time": 3.0}
    ]


@pytest.mark.parametrize(
    ("matrices", "lookups", "options", "message"),
    [
        ({}, {}, {}, "t.omx has no matrix"),
        ({"AM": np.eye(2), "PM": np.eye(2)}, {}, {}, "t.omx has several: AM, PM; choose one with matrix=NAME"),
        ({"AM": np.eye(2)}, {}, {"matrix": "am"}, "t.omx has no matrix 'am'; it has: AM"),
        ({"AM": np.eye(2)}, {}, {"mapping": "taz"}, "t.omx has no mapping 'taz'; it has: none"),
        ({"AM": np.eye(2)}, {"a": [1, 2], "b": [3, 4]}, {}, "t.omx has several: a, b; choose one with mapping=NAME"),
        ({"AM": np.eye(2)}, {"a": [1, 2, 3]}, {}, "mapping must have 2 entries"),
        ({"AM": np.ones((2, 3))}, {}, {}, "must be square, got the shape (2, 3)"),
        ({"AM": np.array([[b"a"]])}, {}, {}, "must hold numbers"),
        ({"AM": np.array([[0, np.nan], [0, 0]])}, {}, {}, "put 0 where there is none: t.omx AM[1, 2] is nan"),
    ],
)
def test_omx_complaints(matrices: Any, lookups: Any, options: Any, message: str, tmp_path: Path) -> None:
    path = write_omx(tmp_path / "t.omx", matrices, lookups)
    with pytest.raises(BloccError) as error:
        read_omx(path, **options)
    assert message in str(error.value)


def test_omx_complaints_of_the_model_name_the_cell(tmp_path: Path) -> None:
    path = write_omx(tmp_path / "t.omx", {"AM": [[0, -1.0], [0, 0]]}, {"zone": [2, 3]})
    with pytest.raises(ProblemError, match=r"t.omx AM\[2, 3\]: demand -1.0 is below 0"):
        read_network("three", demand_omx=path)


def test_omx_follows_no_link_to_another_file(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    secret = write_omx(tmp_path / "other.omx", {"AM": np.eye(2)})
    with h5py.File(tmp_path / "t.omx", "w") as stream:
        stream.create_group("data")["AM"] = h5py.ExternalLink(str(secret), "/data/AM")
    with pytest.raises(ProblemError, match="is stored in another file"):
        read_omx(tmp_path / "t.omx")


def test_omx_without_h5py_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name == "h5py":
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(BloccError, match=r"reading OMX needs h5py: pip install 'blocc\[omx\]'"):
        read_omx(tmp_path / "t.omx")


# --- rules ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cost_per_length": -1}, "cost_per_length must be a finite number not below 0, got -1"),
        ({"time_factor": 0}, "time_factor must be a finite number above 0, got 0"),
        ({"demand_factor": float("nan")}, "demand_factor must be"),
        ({"alternative_factor": -1}, "alternative_factor must be"),
        ({"time_unit": "days"}, "time_unit must be h, min or s, got 'days'"),
        ({"length_unit": ""}, "length_unit must be a text, got ''"),
        ({"drop_unreachable": None}, "drop_unreachable must be True, False or False, got None"),
        ({"revenue_flat": "2"}, "revenue_flat must be"),
        ({"revenue_per_time": True}, "revenue_per_time must be"),
        ({"geographic": "yes"}, "geographic must be True, False or None"),
    ],
)
def test_rules_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        FillRules(**options)


def test_rules_that_overflow() -> None:
    with pytest.raises(ProblemError, match="the rules make time overflow"):
        read_network("three", rules=FillRules(time_factor=1e308))


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"cost_per_length": 1}, "cost_per_length fills in what a file leaves out, but every link has its cost"),
        ({"revenue_per_time": 1}, "revenue_per_time fills in .* every market has its revenue"),
        ({"alternative_factor": 1.5}, "alternative_factor fills in .* every market has its alternative_time"),
    ],
)
def test_rules_without_a_use_are_refused(rule: dict[str, Any], words: str) -> None:
    with pytest.raises(ProblemError, match=words):
        read_network("three", rules=FillRules(**rule))


def test_costs_add_up(tmp_path: Path) -> None:
    rules = FillRules(cost_per_length=2.0, cost_per_time=10.0, revenue_per_time=1.0, time_factor=2.0)
    network = read_network(write(tmp_path, node=NODE, link=LINK, demand=DEMAND), rules=rules)
    assert network.cost.tolist() == [20, 20, 18, 32]
    assert network.revenue == pytest.approx(network.free_flow_times)


# --- anything at all -----------------------------------------------------------------------------------------------
def read_or_complain(source: Path, **options: Any) -> None:
    """Arbitrary input gives a network or a BloccError, never another exception."""
    with contextlib.suppress(BloccError):
        assert isinstance(read_network(source, rules=RULES, **options), TransportNetwork)


def damaged(text: str) -> st.SearchStrategy[bytes]:
    """Bytes, text, or a good file with a piece of it replaced."""
    piece = st.one_of(
        st.text(max_size=6), st.sampled_from([",", "\n", '"', "\0", ";", ":", "-", "nan", "1e999", "<", "~"])
    )
    cuts = st.tuples(st.integers(0, len(text)), st.integers(0, 12), piece)
    spoilt = cuts.map(lambda cut: text[: cut[0]] + cut[2] + text[cut[0] + cut[1] :])
    any_text = st.one_of(spoilt, spoilt, st.text(max_size=80))
    return st.one_of(any_text.map(lambda drawn: drawn.encode("utf-8", "surrogatepass")), st.binary(max_size=60))


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=6,
)


@FUZZ
@given(content=damaged(native()))
def test_any_bytes_as_json(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "net.json").write_bytes(content)
    read_or_complain(tmp_path / "net.json")


@FUZZ
@given(
    table=st.sampled_from(
        ["nodes", "links", "markets", "start_range", "name", "notes", "crs", "unit_names", "assumptions"]
    ),
    column=st.sampled_from(
        [
            *("id", "x", "name", "zone_id", "through", "from", "to", "time", "cost", "length", "link_id", "geometry"),
            *("existing_capacity", "min_capacity", "max_capacity", "origin", "demand", "revenue"),
        ]
    ),
    value=json_values,
    whole=st.booleans(),
)
def test_any_values_in_json(table: str, column: str, value: Any, whole: bool, tmp_path: Path) -> None:
    document = json.loads(native())
    if whole or table not in ("nodes", "links", "markets"):
        document[table] = value
    else:
        document[table][0][column] = value
    (tmp_path / "net.json").write_text(json.dumps(document), encoding="utf-8")
    read_or_complain(tmp_path / "net.json")


@FUZZ
@given(name=st.sampled_from(["node", "link", "demand", "config"]), data=st.data())
def test_any_bytes_as_csv(name: str, data: st.DataObject, tmp_path: Path) -> None:
    write(tmp_path, node=NODE, link=LINK, demand=DEMAND, config="dataset_name,crs\nx,\n")
    good = (tmp_path / f"{name}.csv").read_text(encoding="utf-8")
    (tmp_path / f"{name}.csv").write_bytes(data.draw(damaged(good)))
    read_or_complain(tmp_path)


@FUZZ
@given(name=st.sampled_from(["net", "trips", "node"]), data=st.data())
def test_any_bytes_as_tntp(name: str, data: st.DataObject, tmp_path: Path) -> None:
    path = tntp(tmp_path, node=COORDINATES)
    file = tmp_path / f"Cross_{name}.tntp"
    file.write_bytes(data.draw(damaged(file.read_text(encoding="utf-8"))))
    if data.draw(st.booleans()):
        (tmp_path / "Cross_node.tntp").unlink()
    read_or_complain(path)


@FUZZ
@given(content=damaged("node_id,x,y\n10,0.5,1\n20,2,3\n30,1,1\n"))
def test_any_bytes_as_coordinates(content: bytes, tmp_path: Path) -> None:
    write(tmp_path, node=NODE, link=LINK, demand=DEMAND)
    (tmp_path / "places.csv").write_bytes(content)
    read_or_complain(tmp_path, coordinates=tmp_path / "places.csv")


@FUZZ
@given(content=st.binary(max_size=200))
@example(content=b"\x89HDF\r\n\x1a\n")
def test_any_bytes_as_omx(content: bytes, tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    (tmp_path / "t.omx").write_bytes(content)
    with pytest.raises(BloccError):
        read_omx(tmp_path / "t.omx")
