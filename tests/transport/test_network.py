"""The network model: what it checks, what it counts and what it derives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_array

from blocc.errors import ProblemError
from blocc.networks.checked_rows import PLACE, NetworkError
from blocc.transport.network.files import read_network
from blocc.transport.network.network import TransportNetwork
from transport_reference import random_network

Row = dict[str, Any]

NODES: list[Row] = [{"id": 1, "x": 0, "y": 0}, {"id": 2, "x": 1, "y": 0}, {"id": "c", "x": 1, "y": 1, "name": "Centre"}]
LINKS: list[Row] = [
    {"from": 1, "to": 2, "time": 1.0, "cost": 2.0},
    {"from": 2, "to": 1, "time": 1.0, "cost": 2.0},
    {"from": 2, "to": "c", "time": 0.5, "cost": 1.0},
]
MARKETS: list[Row] = [
    {"origin": 1, "destination": 2, "demand": 3, "revenue": 4, "alternative_time": 2},
    {"origin": 1, "destination": "c", "demand": 1, "revenue": 4, "alternative_time": 2},
]


def build(nodes: list[Row] = NODES, links: list[Row] = LINKS, markets: list[Row] = MARKETS, **more: Any) -> Any:
    return TransportNetwork.from_tables(nodes, links, markets, **more)


def changed(rows: list[Row], number: int, **figures: Any) -> list[Row]:
    """The rows with one of them (counted from 1) changed."""
    return [{**row, **figures} if position == number else row for position, row in enumerate(rows, 1)]


@pytest.mark.parametrize(
    ("tables", "complaint"),
    [
        ({"links": changed(LINKS, 3, to=9)}, "links row 3: to 9 is not the id of a node"),
        ({"markets": changed(MARKETS, 2, origin="d")}, "markets row 2: origin 'd' is not the id of a node"),
        ({"nodes": changed(NODES, 2, id=1)}, "nodes row 2: id 1 is a duplicate of nodes row 1"),
        ({"nodes": changed(NODES, 2, id="")}, "nodes row 2: id '' is not an id"),
        ({"nodes": changed(NODES, 2, id=[1])}, "nodes row 2: id [1] is not an id"),
        ({"links": [*LINKS, LINKS[0]]}, "links row 4: from 1 to 2 repeats links row 1; give each link_id of its own"),
        ({"links": changed(LINKS, 1, min_capacity=2, max_capacity=1)}, "row 1: min_capacity 2 is above max_capacity"),
        (
            {"links": changed(LINKS, 1, existing_capacity=3, max_capacity=2)},
            "links row 1: existing_capacity 3 is above max_capacity 2",
        ),
        (
            {"links": changed(changed(LINKS, 1, link_id="a"), 3, link_id="a")},
            "links row 3: link_id 'a' is a duplicate of links row 1: give each link its own",
        ),
        ({"links": changed(LINKS, 1, existing_capacity=-1)}, "links row 1: existing_capacity -1 is below 0"),
        ({"links": changed(LINKS, 1, length="far")}, "links row 1: length 'far' is not a finite number"),
        ({"links": changed(LINKS, 1, geometry=[[0, 0]])}, "links row 1: geometry [[0, 0]] is not a line"),
        ({"nodes": changed(NODES, 1, through="perhaps")}, "nodes row 1: through 'perhaps' must be true or false"),
        ({"markets": changed(MARKETS, 1, demand=1e300)}, "markets row 1: demand 1e+300 is beyond 1e+12"),
        (
            {"nodes": changed(NODES, 2, through=0)},
            "'c' cannot be reached from the origin over the candidate links (paths",
        ),
        ({"links": changed(LINKS, 2, to=2)}, "links row 2: to 2 makes a link from a node to itself"),
        ({"markets": [*MARKETS, MARKETS[1]]}, "markets row 3: origin 1 to 'c' repeats markets row 2"),
        ({"markets": changed(MARKETS, 1, destination=1)}, "markets row 1: destination 1 makes a market from a node"),
        ({"links": changed(LINKS, 2, time=-1)}, "links row 2: time -1 is below 0"),
        ({"links": changed(LINKS, 2, cost=-0.5)}, "links row 2: cost -0.5 is below 0"),
        ({"markets": changed(MARKETS, 2, demand=-3)}, "markets row 2: demand -3 is below 0"),
        ({"markets": changed(MARKETS, 2, revenue=math.nan)}, "markets row 2: revenue nan is not a finite number"),
        ({"markets": changed(MARKETS, 1, alternative_time=math.inf)}, "markets row 1: alternative_time inf is not"),
        ({"links": changed(LINKS, 1, time="fast")}, "links row 1: time 'fast' is not a finite number"),
        ({"links": changed(LINKS, 1, time="1_0")}, "links row 1: time '1_0' is not a finite number"),
        ({"links": changed(LINKS, 1, time=True)}, "links row 1: time True is not a finite number"),
        ({"links": changed(LINKS, 1, time=10**400)}, "is not a finite number"),
        ({"links": changed(LINKS, 1, time=None)}, "links row 1: time None is missing"),
        ({"nodes": changed(NODES, 3, x="")}, "nodes row 3: x '' is missing"),
        ({"nodes": [{"id": k, "lon": 0, "lat": 95} for k in (1, 2, "c")]}, "nodes row 1: lat 95 must lie between"),
        ({"markets": changed(MARKETS, 1, origin="c", destination=1)}, "markets row 1: destination 1 cannot be reached"),
        ({"markets": []}, "markets: needs at least 1 rows, has 0"),
        ({"nodes": NODES[:1], "links": [], "markets": []}, "nodes: needs at least 2 rows, has 1"),
    ],
)
def test_every_wrong_row_is_named(tables: dict[str, list[Row]], complaint: str) -> None:
    with pytest.raises(NetworkError) as error:
        build(**tables, name="town")
    assert "network 'town'" in str(error.value)
    assert complaint in str(error.value)


def test_all_complaints_come_at_once_and_under_given_places() -> None:
    links = changed(changed(LINKS, 1, time=-1, **{PLACE: "a.csv line 2"}), 3, to=7, **{PLACE: "a.csv line 9"})
    with pytest.raises(NetworkError) as error:
        build(links=links, markets=changed(MARKETS, 1, demand="x"))
    assert error.value.complaints == (
        "a.csv line 2: time -1 is below 0",
        "a.csv line 9: to 7 is not the id of a node",
        "markets row 1: demand 'x' is not a finite number",
    )


def test_long_lists_of_complaints_are_cut_in_the_message_alone() -> None:
    with pytest.raises(NetworkError, match="50 entries are wrong") as error:
        build(markets=[{**MARKETS[0], "demand": -1}] + [{**MARKETS[0], "origin": 99} for _ in range(49)])
    assert "and 30 more" in str(error.value)
    assert len(error.value.complaints) == 50


@pytest.mark.parametrize("wrong", ["15", (1,), (2, 1), (-1, 1), (0, math.nan), 3, (10**400, 1)])
def test_start_range_is_checked(wrong: Any) -> None:
    with pytest.raises(ProblemError, match="start_range"):
        build(start_range=wrong)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("three", (48, 24, 126)), ("nine", (2262, 678, 6654)), ("seville", (49216, 13336, 146920))],
)
def test_sizes_are_those_of_the_paper(name: str, sizes: tuple[int, int, int]) -> None:
    assert read_network(name).sizes == sizes


@pytest.mark.parametrize("name", ["three", "nine"])
def test_sizes_count_the_matrix_itself(name: str) -> None:
    """The constraints' matrix, built entry by entry over flows, shares and capacities."""
    network = read_network(name)
    a, k, s = network.n_links, network.n_markets, network.n_nodes
    entries: list[tuple[int, int, float]] = []
    for market in range(k):
        for link in range(a):
            entries.append((market * s + network.tail[link], market * a + link, 1.0))
            entries.append((market * s + network.head[link], market * a + link, -1.0))
            entries.append((k * s + link, market * a + link, network.demand[market]))
        entries.append((market * s + network.origin[market], k * a + market, -1.0))
        entries.append((market * s + network.destination[market], k * a + market, 1.0))
    entries += [(k * s + link, k * a + k + link, -1.0) for link in range(a)]
    rows, columns, values = zip(*entries, strict=True)
    matrix = coo_array((values, (rows, columns))).tocsr()
    assert (matrix.shape[1], matrix.shape[0], matrix.nnz) == network.sizes


def test_derived_figures() -> None:
    network = build(name="town")
    assert network.free_flow_times.tolist() == [1.0, 1.5]
    assert network.reverse.tolist() == [1, 0, -1]
    assert network.labels == ("1", "2", "Centre")
    assert math.isinf(network.path_costs(network.time, np.array([True, True, False]))[1])
    assert "3 nodes, 3 candidate links, 2 markets" in repr(network)
    starts = network.random_starts(4, seed=1)
    assert starts.shape == (4, 3)
    assert (starts > 0).all()


def test_links_without_time_are_links() -> None:
    network = build(links=changed(LINKS, 3, time=0))
    assert network.free_flow_times == pytest.approx([1.0, 1.0])


def test_free_paths_cost_nothing() -> None:
    network = build(links=[{**row, "time": 0} for row in LINKS])
    assert network.free_flow_times.tolist() == [0.0, 0.0]


def test_of_parallel_links_the_cheapest_counts() -> None:
    slow, fast = {**LINKS[0], "link_id": "local", "time": 3}, {**LINKS[0], "link_id": "express", "time": 0.25}
    network = build(links=[slow, fast, {**LINKS[1], "link_id": "express"}, LINKS[2]])
    assert network.link_ids == ("local", "express", "express", 4)
    assert network.free_flow_times.tolist() == [0.25, 0.75]
    assert network.path_costs(network.time, np.array([True, False, True, True])).tolist() == [3.0, 3.5]
    assert network.reverse.tolist() == [-1, 2, 1, -1]


def brute_force(network: TransportNetwork, start: int, end: int) -> float:
    """The cheapest path by trying all that visit no node twice."""
    best = math.inf

    def walk(node: int, seen: tuple[int, ...], cost: float) -> None:
        nonlocal best
        if node == end:
            best = min(best, cost)
            return
        if node != start and not network.through[node]:
            return
        for a in np.flatnonzero(network.tail == node).tolist():
            if network.head[a] not in seen:
                walk(int(network.head[a]), (*seen, int(network.head[a])), cost + float(network.time[a]))

    walk(start, (start,), 0.0)
    return best


@pytest.mark.parametrize("seed", range(4))
def test_paths_begin_and_end_at_nodes_they_do_not_pass(seed: int) -> None:
    drawn = random_network(seed, n_nodes=6)
    through = np.random.default_rng(seed).random(6) < 0.5
    nodes = [{**row, "through": bool(value)} for row, value in zip(drawn.node_rows(), through, strict=True)]
    network = TransportNetwork.from_tables(nodes, drawn.link_rows(), drawn.market_rows(), drop_unreachable=True)
    assert network.through.tolist() == through.tolist()
    ends = zip(network.origin.tolist(), network.destination.tolist(), strict=True)
    assert network.free_flow_times == pytest.approx([brute_force(network, *pair) for pair in ends])
    lost = drawn.n_markets - network.n_markets
    pairs = zip(drawn.origin.tolist(), drawn.destination.tolist(), strict=True)
    assert lost == sum(math.isinf(brute_force(network, *pair)) for pair in pairs)
    assert (f"Dropped: {lost} markets" in " ".join(network.assumptions)) == (lost > 0)


def test_rows_build_the_same_network_again() -> None:
    network = build(start_range=(1, 2))
    again = build(network.node_rows(), network.link_rows(), network.market_rows(), start_range=network.start_range)
    assert again.nodes == network.nodes
    assert again.labels == network.labels
    for field in ("coordinates", "tail", "head", "time", "cost", "origin", "destination", "demand", "revenue"):
        assert np.array_equal(getattr(again, field), getattr(network, field))
