"""Nodes that paths do not pass, and parallel links: the travellers' answer and a whole design."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from blocc.transport import DesignModel, TransportNetwork, design_network, verify_design
from transport_reference import random_network, solve_lower_level


def with_centroids(seed: int, n_nodes: int = 5) -> TransportNetwork:
    """A random network of which every other node is not passed; markets that this cuts off are left out."""
    drawn = random_network(seed, n_nodes)
    nodes = [{**row, "through": bool(k % 2)} for k, row in enumerate(drawn.node_rows())]
    return TransportNetwork.from_tables(nodes, drawn.link_rows(), drawn.market_rows(), drop_unreachable=True)


@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_travellers_do_not_pass_centroids(seed: int) -> None:
    network = with_centroids(seed)
    model = DesignModel(network)
    capacity = np.random.default_rng(seed).uniform(2.0, 20.0, network.n_links)
    found = model.capacities(capacity, 1e4)
    reference = solve_lower_level(network, capacity)
    np.testing.assert_allclose(np.asarray(found.follower.point.flow).sum(axis=0), reference.flow, atol=1e-4)
    assert float(found.follower.value) == pytest.approx(reference.value, rel=1e-7)
    residuals, size = model.lower_residuals(capacity, found.follower)
    worst = max(float(residuals.stationarity), float(residuals.feasibility), float(residuals.complementarity))
    assert worst <= 1e-6 * (1.0 + size)
    free = solve_lower_level(replace(network, through=np.ones(network.n_nodes, dtype=bool)), capacity)
    assert free.value < reference.value - 1e-3  # passing them would help


@pytest.mark.parametrize("engine", [pytest.param("dense", marks=pytest.mark.slow), "paths"])
def test_a_design_and_its_proof(engine: str) -> None:
    """One express beside a local line; the way through the centroid is shorter than both and may not be taken."""
    nodes = [{"id": k, "x": x, "y": 0, "through": k != "zone"} for x, k in enumerate(("a", "b", "zone"))]
    links = [
        {"link_id": "local", "from": "a", "to": "b", "time": 2.0, "cost": 0.5},
        {"link_id": "express", "from": "a", "to": "b", "time": 1.0, "cost": 1.2},
        {"from": "a", "to": "zone", "time": 0.1, "cost": 0.1},
        {"from": "zone", "to": "b", "time": 0.1, "cost": 0.1},
    ]
    figures = {"revenue": 3.0, "alternative_time": 3.0}
    markets = [
        {"origin": "a", "destination": "b", "demand": 10.0, **figures},
        {"origin": "zone", "destination": "b", "demand": 1.0, **figures},
    ]
    network = TransportNetwork.from_tables(nodes, links, markets)
    design = design_network(network, starts=1, engine=engine)
    assert design.success, design.message
    # The margin of the local line is 2.5 and brings sigmoid(1) of the market, the express 1.8 and sigmoid(2).
    assert design.capacity == pytest.approx([10 / (1 + np.exp(-1)), 0, 0, 1 / (1 + np.exp(-2.9))], rel=1e-3)
    assert verify_design(network, design).ok
