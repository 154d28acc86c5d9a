"""Links that nobody of an origin needs: rings with a market on each link, and networks with few markets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from blocc.transport import DesignModel, TransportNetwork, design_network, verify_design
from selections import few
from transport_reference import solve_lower_level


def ring(n_nodes: int) -> TransportNetwork:
    """One-way, with one market on each link: no origin's passengers go on to the node after the next."""
    ends = [(k, (k + 1) % n_nodes) for k in range(n_nodes)]
    nodes = [{"id": k, "x": k, "y": k * k} for k in range(n_nodes)]
    links = [{"from": i, "to": j, "time": 1.0, "cost": 0.5} for i, j in ends]
    figures = {"demand": 10.0, "revenue": 2.0, "alternative_time": 2.0}
    return TransportNetwork.from_tables(nodes, links, [{"origin": i, "destination": j, **figures} for i, j in ends])


def few_markets(seed: int) -> TransportNetwork:
    """A ring of three to five nodes with chords, most of them both ways, and six in ten of the possible markets."""
    generator = np.random.default_rng(seed)
    n_nodes = int(generator.integers(3, 5, endpoint=True))
    place, order = generator.uniform(size=(n_nodes, 2)), generator.permutation(n_nodes).tolist()
    pairs = set(zip(order, [*order[1:], order[0]], strict=True))
    pairs |= {(i, j) for i in range(n_nodes) for j in range(i) if generator.uniform() < 0.3}
    links: list[dict[str, Any]] = []
    for i, j in sorted(pairs):
        length = float(np.linalg.norm(place[i] - place[j])) + 0.05
        for tail, head in ((i, j), (j, i)) if generator.uniform() < 0.5 else ((i, j),):
            time, cost = length * generator.uniform([1.0, 0.3], [3.0, 2.0])
            if not any((row["from"], row["to"]) == (tail, head) for row in links):
                links.append({"from": tail, "to": head, "time": float(time), "cost": float(cost)})
    markets = []
    for i, j in ((i, j) for i in range(n_nodes) for j in range(n_nodes) if i != j and generator.uniform() < 0.6):
        demand, revenue, alternative = generator.uniform([0.2, 0.3, 0.5], [20.0, 3.0, 4.0]).tolist()
        figures = {"demand": demand, "revenue": revenue, "alternative_time": alternative}
        markets.append({"origin": i, "destination": j, **figures})
    nodes = [{"id": k, "x": float(x), "y": float(y)} for k, (x, y) in enumerate(place)]
    return TransportNetwork.from_tables(nodes, links, markets, drop_unreachable=True)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [pytest.param("dense", marks=pytest.mark.slow), "paths"])
def test_a_ring_is_designed_and_verified(engine: str) -> None:
    network = ring(3)
    design = design_network(network, starts=1, engine=engine)
    assert design.success, design.message
    share = expit(2.0 - 1.0)  # every market for itself: as much capacity as comes without a price
    np.testing.assert_allclose(design.follower.share, share, atol=1e-4)
    assert design.utility == pytest.approx(3 * 10.0 * (2.0 - 0.5) * share, rel=1e-6)
    verification = verify_design(network, design)
    assert verification.ok, str(verification)


@pytest.mark.slow
@pytest.mark.parametrize("seed", few(range(8), 2))
def test_travellers_of_few_markets(seed: int) -> None:
    network = few_markets(seed)
    model = DesignModel(network, engine="dense")
    generator = np.random.default_rng(seed)
    scarce = generator.uniform(0.1, 0.8, network.n_links) * network.demand.sum() / 3.0
    for capacity in (scarce, np.where(generator.uniform(size=network.n_links) < 0.3, 0.0, scarce)):
        found = model.capacities(capacity, 1e4)
        for side in (found.follower, found.penalised):
            assert (np.asarray(side.point.reduced_cost) >= -1e-8).all()
        residuals, size = model.lower_residuals(capacity, found.follower)
        worst = max(float(residuals.stationarity), float(residuals.feasibility), float(residuals.complementarity))
        assert worst <= 1e-6 * (1.0 + size)
        reference = solve_lower_level(network, capacity)
        assert float(found.follower.value) == pytest.approx(reference.value, rel=1e-6)


@pytest.mark.slow
def test_a_design_of_few_markets_verifies() -> None:
    network = few_markets(3)
    design = design_network(network, starts=1)
    assert design.success, design.message
    verification = verify_design(network, design)
    assert verification.ok, str(verification)
