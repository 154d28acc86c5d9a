"""Flows of single markets out of flows of origins: conservation, the sum, cycles and unused nodes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocc.errors import ProblemError
from blocc.transport.travellers.flows import market_flows, market_ways, travel_times
from transport_reference import random_network, three_nodes


def routed(network, seed):
    """Random shares, each sent over two random ways: flows by origin that branch and meet again."""
    generator = np.random.default_rng(seed)
    origins, row = network.by_origin
    share = generator.uniform(0.0, 1.0, network.n_markets) * (generator.uniform(size=network.n_markets) < 0.8)
    flow = np.zeros((len(origins), network.n_links))
    for origin_row, origin in enumerate(origins):
        # All paths from one origin climb the same potential, so that their sum has no cycle.
        potential = np.where(np.arange(network.n_nodes) == origin, -1.0, generator.uniform(size=network.n_nodes))
        for k in np.flatnonzero(row == origin_row):
            for part in (0.25, 0.75):
                costs = generator.uniform(0.0, 1.0, network.n_links)
                path = _climbing_path(network, potential, costs, int(origin), int(network.destination[k]))
                if path is None:
                    share[k] = 0.0
                    break
                flow[origin_row, path] += part * network.demand[k] * share[k]
    return flow, share


def _climbing_path(network, potential, costs, origin, destination):
    """The cheapest way from the origin along links that climb; None if there is none."""
    order = np.argsort(potential)
    best = np.full(network.n_nodes, np.inf)
    came = np.full(network.n_nodes, -1)
    best[origin] = 0.0
    for node in order:
        for a in np.flatnonzero(network.tail == node):
            end = network.head[a]
            if potential[end] > potential[node] and best[node] + costs[a] < best[end]:
                best[end], came[end] = best[node] + costs[a], a
    if not np.isfinite(best[destination]):
        return None
    path, node = [], destination
    while node != origin:
        path.append(came[node])
        node = network.tail[came[node]]
    return path


def check(network, flow, share, apart, tolerance=1e-9):
    """The promises of market_flows."""
    _, row = network.by_origin
    assert apart.shape == (network.n_markets, network.n_links)
    assert (apart >= 0).all()
    incidence = np.zeros((network.n_links, network.n_nodes))
    np.add.at(incidence, (np.arange(network.n_links), network.tail), 1.0)
    np.add.at(incidence, (np.arange(network.n_links), network.head), -1.0)
    net = apart @ incidence
    net[np.arange(network.n_markets), network.origin] -= share
    net[np.arange(network.n_markets), network.destination] += share
    assert (np.abs(net) <= 1e-9 * share[:, None] + 1e-15).all()
    summed = np.zeros_like(flow)
    np.add.at(summed, row, network.demand[:, None] * apart)
    assert np.abs(summed - flow).max() <= tolerance * max(1.0, flow.max())


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), n_nodes=st.integers(2, 8), density=st.floats(0.0, 1.0))
def test_decomposition_of_random_flows(seed, n_nodes, density):
    network = random_network(seed, n_nodes=n_nodes, density=density)
    flow, share = routed(network, seed)
    check(network, flow, share, market_flows(network, flow, share).toarray())


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), size=st.sampled_from([1e-14, 1e-12, 1e-11]))
def test_rounding_everywhere_does_no_harm(seed, size):
    """An interior-point method leaves a little flow on every link, in circles too, and conserves it only nearly."""
    network = random_network(seed, n_nodes=6)
    flow, share = routed(network, seed)
    noise = size * np.random.default_rng(seed).uniform(-0.2, 1.0, flow.shape)
    check(network, flow, share, market_flows(network, flow + noise, share).toarray())


def test_branches_are_shared_in_proportion():
    """Origin 1 reaches node 3 directly and over 2; those who go on would divide alike."""
    network = three_nodes()
    share = np.array([0.5, 0.8, 0.0, 0.0, 0.0, 0.0])  # markets 1-2 and 1-3
    flow = np.zeros((3, 6))
    flow[0, [0, 1, 3]] = [0.5 + 0.6, 0.2, 0.6]  # links 1-2, 1-3, 2-3
    apart = market_flows(network, flow, share).toarray()
    assert np.allclose(apart[0], [0.5, 0, 0, 0, 0, 0])
    assert np.allclose(apart[1], [0.6, 0.2, 0, 0.6, 0, 0])
    assert travel_times(network, apart, share)[:2] == pytest.approx([1.0, (0.6 * 3 + 0.2 * 10) / 0.8])
    assert np.isnan(travel_times(network, apart, share)[2:]).all()


def test_large_cycles_are_taken_out():
    network = three_nodes()
    share = np.array([0.5, 0.0, 0.0, 0.0, 0.0, 0.0])
    flow = np.zeros((3, 6))
    flow[0, 0] = 0.5
    clean = market_flows(network, flow, share).toarray()
    flow[0, [3, 5]] += 0.7  # 2-3-2, away from the origin
    flow[0, [0, 2]] += 0.3  # 1-2-1, through the origin
    flow[1, [0, 2]] += 0.9  # an origin whose passengers all stay at home
    apart = market_flows(network, flow, share).toarray()
    assert np.allclose(apart, clean, atol=1e-12)


def test_nobody_arrives_where_no_flow_does():
    network = three_nodes()
    apart = market_flows(network, np.zeros((3, 6)), np.full(6, 1e-13))
    assert apart.nnz == 0
    assert np.isnan(travel_times(network, apart, np.full(6, 1e-13))).all()


def test_demands_of_very_different_size():
    network = random_network(5, n_nodes=6)
    demand = network.demand * np.logspace(-6, 3, network.n_markets)
    object.__setattr__(network, "demand", demand)
    flow, share = routed(network, 1)
    check(network, flow, share, market_flows(network, flow, share).toarray())


def test_origins_are_in_ascending_order():
    origins, row = random_network(2).by_origin
    assert (np.diff(origins) > 0).all()
    assert (origins[row] == random_network(2).origin).all()


def test_wrong_shapes_are_named():
    network = three_nodes()
    with pytest.raises(ProblemError, match="origin_flow must have shape"):
        market_flows(network, np.zeros((6, 3)), np.zeros(6))
    with pytest.raises(ProblemError, match="share must have shape"):
        market_flows(network, np.zeros((3, 6)), np.zeros(3))
    with pytest.raises(ProblemError, match="finite"):
        market_flows(network, np.full((3, 6), np.nan), np.zeros(6))


@pytest.mark.parametrize("seed", range(4))
def test_ways_add_up_to_the_flow(seed):
    network = random_network(seed)
    flow, share = routed(network, seed)
    apart = market_flows(network, flow, share)
    for k in range(network.n_markets):
        together, ways = np.zeros(network.n_links), market_ways(network, apart, k, least=0.0)
        for way in ways:
            assert network.tail[way.links[0]] == network.origin[k]
            assert network.head[way.links[-1]] == network.destination[k]
            assert (network.head[way.links[:-1]] == network.tail[way.links[1:]]).all()
            together[way.links] += way.part
        np.testing.assert_allclose(together, apart[[k]].toarray()[0], atol=1e-9)
        assert [way.part for way in ways] == sorted((way.part for way in ways), reverse=True)
        assert sum(way.part for way in market_ways(network, apart, k, least=0.3)) <= sum(way.part for way in ways)
