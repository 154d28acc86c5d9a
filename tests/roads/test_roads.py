"""Assignments, expansions and tolls against published figures, closed forms, a conic solver and finite differences."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from blocc.errors import BloccError, OptionError
from blocc.result import Status
from blocc.roads import RoadNetwork, assign, expand_network, read_road_network, second_best_tolls
from blocc.roads.descents import largest_price
from blocc.roads.expansion import Expansion
from blocc.roads.leader import Leader
from blocc.roads.question import Question
from blocc.roads.tolls import Tolling

#: The ten candidate links of the continuous network design problem on Sioux Falls, and their costs.
TEN = (16, 17, 19, 20, 25, 26, 29, 39, 48, 74)
COSTS = 1e-3 * np.array([26, 40, 26, 40, 25, 25, 48, 34, 48, 34.0])


@pytest.fixture(scope="module")
def sioux() -> RoadNetwork:
    return read_road_network("sioux-falls")


@pytest.fixture(scope="module")
def variant(sioux: RoadNetwork) -> RoadNetwork:
    """In the units of the network design literature, with F(0) = 99.9413."""
    return replace(
        sioux,
        capacity=1e-3 * sioux.capacity,
        free_flow_time=1e-2 * sioux.free_flow_time,
        demand=1.1e-3 * sioux.demand,
    )


def random_network(seed: int, *, power: float = 4.0) -> RoadNetwork:
    random = np.random.default_rng(seed)
    ends = [(i, j) for i in range(6) for j in range(6) if i != j and random.random() < 0.6] + [
        (i, (i + 1) % 6) for i in range(6)
    ]
    links = [
        {
            "from": i,
            "to": j,
            "capacity": random.uniform(1.0, 3.0),
            "free_flow_time": random.uniform(0.5, 2.0),
            "b": random.uniform(0.1, 1.0),
            "power": power,
        }
        for i, j in dict.fromkeys(ends)
    ]
    trips = [{"origin": o, "destination": d, "demand": random.uniform(0.5, 2.0)} for o, d in ((0, 3), (1, 4), (5, 2))]
    return RoadNetwork.from_tables([{"id": i} for i in range(6)], links, trips)


def beckmann(network: RoadNetwork, limit: float = np.inf) -> float:
    """Beckmann's objective by a conic solver, over flows by origin."""
    origins = np.unique(network.origin)
    flow = cp.Variable((len(origins), network.n_links), nonneg=True)
    rows = []
    for row, origin in enumerate(origins):
        wanted = np.zeros(network.n_nodes)
        mine = network.origin == origin
        np.add.at(wanted, network.destination[mine], network.demand[mine])
        wanted[origin] -= network.demand[mine].sum()
        incidence = np.zeros((network.n_nodes, network.n_links))
        incidence[network.head, np.arange(network.n_links)] += 1.0
        incidence[network.tail, np.arange(network.n_links)] -= 1.0
        rows.append(incidence @ flow[row] == wanted)
    volume = cp.sum(flow, axis=0)
    if np.isfinite(limit):
        rows.append(volume <= limit * network.capacity)
    p = float(network.power[0])
    rate = network.free_flow_time * network.b / network.capacity**p / (p + 1.0)
    value = network.free_flow_time @ volume + rate @ cp.power(volume, p + 1.0)
    return float(cp.Problem(cp.Minimize(value), rows).solve(solver=cp.CLARABEL))


# --- assignment ----------------------------------------------------------------------------------------------------
def test_sioux_falls_has_its_published_digits(sioux: RoadNetwork) -> None:
    found = assign(sioux, relative_gap=1e-13)
    assert found.success
    assert found.relative_gap <= 1e-13
    assert found.objective == pytest.approx(42.3133528710744e5, rel=1e-14)
    assert found.certificate.conservation < 1e-14
    assert found.certificate.complementarity < 1e-10
    optimum = assign(sioux, principle="system optimum")
    assert optimum.total_travel_time == pytest.approx(7194256.05, abs=0.1)
    assert optimum.total_travel_time < found.total_travel_time


@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_a_conic_solver(seed: int) -> None:
    network = random_network(seed)
    assert assign(network, relative_gap=1e-12).objective == pytest.approx(beckmann(network), rel=1e-6)


def test_hard_limits_agree_with_a_conic_solver() -> None:
    network = random_network(1)
    free = assign(network)
    factor = 0.8 * float(free.volume_over_capacity.max())
    found = assign(network, limit=factor * network.capacity, relative_gap=1e-12)
    assert found.success
    assert (found.flow <= factor * network.capacity * (1.0 + 1e-8)).all()
    assert found.waiting.max() > 0.0
    assert (found.waiting[found.flow < factor * network.capacity * (1.0 - 1e-6)] < 1e-6).all()
    assert found.objective == pytest.approx(beckmann(network, factor), rel=1e-5)
    impossible = assign(network, limit=1e-3)
    assert impossible.status is Status.INFEASIBLE


def braess(bridge: bool) -> RoadNetwork:
    congested, wide = {"b": 1.0, "free_flow_time": 1.0}, {"b": 0.0, "free_flow_time": 3.0}
    figures = {"capacity": 1.0, "power": 1.0}
    links = [("s", "a", congested), ("a", "t", wide), ("s", "b", wide), ("b", "t", congested)]
    links += [("a", "b", {"b": 0.0, "free_flow_time": 0.1})] if bridge else []
    rows = [{"from": i, "to": j, **figures, **more} for i, j, more in links]
    return RoadNetwork.from_tables(
        [{"id": i} for i in "sabt"], rows, [{"origin": "s", "destination": "t", "demand": 2}]
    )


def test_braess() -> None:
    """Closed form: 5 without the bridge; with it 1.9 take each congested link, and everyone pays 5.9."""
    without, with_bridge = assign(braess(False)), assign(braess(True))
    assert without.path_cost[0] == pytest.approx(5.0)
    assert with_bridge.path_cost[0] == pytest.approx(5.9)
    np.testing.assert_allclose(with_bridge.flow, [1.9, 0.1, 0.1, 1.9, 1.8], atol=1e-9)
    closed = assign(braess(True), toll=[0, 0, 0, 0, 10.0])
    assert closed.total_travel_time == pytest.approx(10.0)


def test_a_warm_start_and_a_stop(sioux: RoadNetwork) -> None:
    first = assign(sioux)
    again = assign(sioux, toll=0.01, warm=first)
    assert again.iterations < first.iterations
    stopped = assign(sioux, relative_gap=1e-30, time_limit=1e-9)
    assert stopped.status is Status.TIME_LIMIT
    assert stopped.certificate.conservation < 1e-12


# --- design --------------------------------------------------------------------------------------------------------
def ten_links(network: RoadNetwork) -> Expansion:
    ten = np.array(TEN) - 1
    return Expansion(network, ten, np.zeros(10), np.full(10, 25.0), COSTS, np.full(10, 2.0))


@pytest.mark.parametrize("kind", ["expansion", "tolls"])
def test_derivatives_agree_with_differences(variant: RoadNetwork, kind: str) -> None:
    question: Question = ten_links(variant)
    if kind == "tolls":
        question = Tolling(variant, question.candidates, question.lower, np.full(10, 1.0))
    x, step = np.linspace(0.02, 0.2, 10) * (10.0 if kind == "expansion" else 1.0), 1e-5
    leader = Leader(question)
    for gamma in (0.0, 1.0, 50.0):
        slope = leader.penalty(x, gamma)[1]
        for i in (0, 3):
            ahead = step * np.eye(10)[i]
            difference = (leader.penalty(x + ahead, gamma)[0] - leader.penalty(x - ahead, gamma)[0]) / (2.0 * step)
            assert slope[i] == pytest.approx(difference, rel=1e-4, abs=1e-6)
    slope = leader.exact(x, 1e-14).slope
    for i in (0, 3):
        ahead = step * np.eye(10)[i]
        difference = (leader.exact(x + ahead, 1e-14).value - leader.exact(x - ahead, 1e-14).value) / (2.0 * step)
        assert slope[i] == pytest.approx(difference, rel=1e-4, abs=1e-6)


def test_sioux_falls_is_widened_with_a_proven_gap(variant: RoadNetwork) -> None:
    design = expand_network(variant, candidates=TEN, cost=COSTS, exponent=2.0, max_expansion=25.0, starts=1)
    assert design.success
    assert design.before.total_travel_time == pytest.approx(99.9413, abs=1e-4)
    assert design.objective <= 79.9
    assert design.bound is not None
    assert 77.69 < design.bound < design.objective
    assert design.gap == pytest.approx(1.0 - design.bound / design.objective)
    assert design.relative_gap <= 1e-10
    again = assign(variant, capacity=variant.capacity + design.expansion, relative_gap=1e-12)
    cost = float(COSTS @ design.expansion[np.array(TEN) - 1] ** 2)
    assert design.objective == pytest.approx(again.total_travel_time + cost, rel=1e-9)
    leader, random = Leader(ten_links(variant)), np.random.default_rng(0)
    assert all(leader.exact(random.uniform(0.0, 10.0, 10)).value >= design.bound for _ in range(5))


def test_a_budget_is_kept_and_spent(variant: RoadNetwork) -> None:
    design = expand_network(variant, candidates=TEN, cost=COSTS, exponent=2.0, max_expansion=25.0, budget=1.0, starts=1)
    assert design.success
    assert 0.999 <= design.cost <= 1.0 + 1e-9
    assert design.bound is not None
    assert design.bound < design.objective < 85.0


def test_the_price_of_money_is_finite_where_widening_costs_nothing_at_first() -> None:
    assert largest_price(np.array([-3.0, -1e9]), np.array([2.0, 0.0])) == 1.5
    assert largest_price(np.array([-3.0, -1e9]), np.array([0.0, 0.0])) == 0.0


@pytest.mark.parametrize(("exponent", "budget"), [(1.0, None), ([1.5, 2.5], None), (1.0, 0.3), ([1.5, 2.5], 0.1)])
def test_two_links_against_a_grid(exponent: Any, budget: float | None) -> None:
    network, cost, most = random_network(1), np.array([0.2, 0.3]), np.array([1.5, 1.0])
    given = {"candidates": [2, 6], "cost": cost, "exponent": exponent, "max_expansion": most, "budget": budget}
    design = expand_network(network, **given, starts=4)
    assert design.success
    question = Expansion(
        network, np.array([1, 5]), np.zeros(2), most, cost=cost, exponent=np.broadcast_to(exponent, 2).astype(float)
    )
    leader = Leader(question)
    grid = [np.array(x) for x in product(*(np.linspace(0.0, top, 21) for top in most))]
    values = [leader.exact(x).value for x in grid if budget is None or question.own(x)[0] <= budget + 1e-12]
    assert design.objective <= min(values) + 1e-9
    assert design.objective >= min(values) - 0.02 * (values[0] - min(values)) - 1e-9
    assert design.bound is not None
    assert design.bound <= min(values) + 1e-9
    assert (design.expansion[[1, 5]] <= most + 1e-12).all()


@pytest.mark.slow
@pytest.mark.parametrize("links", [TEN[::2], TEN])
def test_tolls_on_some_links_of_sioux_falls(sioux: RoadNetwork, links: tuple[int, ...]) -> None:
    optimum = assign(sioux, principle="system optimum", relative_gap=1e-12).total_travel_time
    design = second_best_tolls(sioux, candidates=links, starts=1)
    assert design.success
    assert design.bound == pytest.approx(optimum, rel=1e-9)
    assert optimum <= design.objective < design.before.total_travel_time - 1e4
    again = assign(sioux, toll=design.toll, relative_gap=1e-12)
    assert again.total_travel_time == pytest.approx(design.objective, rel=1e-8)
    assert set(np.flatnonzero(design.toll) + 1) <= set(links)
    leader = Leader(Tolling(sioux, np.array(links) - 1, np.zeros(len(links)), np.full(len(links), 5.0)))
    random = np.random.default_rng(1)
    assert min(leader.exact(random.uniform(0.0, 5.0, len(links))).value for _ in range(20)) >= design.objective


def test_one_link_against_a_scan() -> None:
    network = random_network(2)
    design = expand_network(network, candidates=[1], cost=0.05, exponent=2.0, starts=6)  # there are two minima
    values = []
    for added in np.linspace(0.0, 6.0, 301):
        capacity = network.capacity.copy()
        capacity[0] += added
        values.append(assign(network, capacity=capacity).total_travel_time + 0.05 * added**2)
    assert design.objective <= min(values) + 1e-9
    assert design.bound is not None
    assert design.bound <= min(values) + 1e-9


def test_tolls_on_all_links_reach_the_system_optimum() -> None:
    network = random_network(0)
    design = second_best_tolls(network, starts=1)
    assert design.objective == pytest.approx(assign(network, principle="system optimum").total_travel_time, rel=1e-7)
    assert design.gap is not None
    assert design.gap < 1e-7
    few = second_best_tolls(network, candidates=[1, 2], starts=2)
    assert design.objective <= few.objective <= few.before.total_travel_time + 1e-9


# --- files and arguments -------------------------------------------------------------------------------------------
NET = """<NUMBER OF NODES> 4
<FIRST THRU NODE> 3
<NUMBER OF LINKS> 5
<END OF METADATA>
~ init term capacity length fft b power speed toll type ;
1 3 10 1 0 0 0 0 0 1 ;
3 4 10 1 2 0.15 4 0 0.5 1 ;
4 2 10 1 0 0 0 0 0 1 ;
3 2 10 1 9 0.15 4 0 0 1 ;
2 4 10 1 0.1 0.15 4 0 0 1 ;
"""


def test_tntp(tmp_path: Path) -> None:
    (tmp_path / "town_net.tntp").write_text(NET)
    (tmp_path / "town_trips.tntp").write_text("<NUMBER OF ZONES> 2\n<END OF METADATA>\nOrigin 1\n2 : 4.0; 1 : 3.0;\n")
    network = read_road_network(tmp_path / "town_net.tntp")
    assert network.through.tolist() == [False, False, True, True]
    assert network.toll.tolist() == [0, 0.5, 0, 0, 0]
    assert any("FIRST THRU" in note for note in network.assumptions)
    found = assign(network)
    np.testing.assert_allclose(found.flow, [4, 4, 4, 0, 0])
    assert found.revenue == pytest.approx(2.0)


def test_bad_input(tmp_path: Path, sioux: RoadNetwork) -> None:
    with pytest.raises(BloccError, match="no road network"):
        read_road_network(tmp_path / "nothing_net.tntp")
    (tmp_path / "town_net.tntp").write_text(NET.replace("3 4 10", "3 4 0"))
    (tmp_path / "town_trips.tntp").write_text("<END OF METADATA>\nOrigin 1\n2 : 4.0;\n")
    with pytest.raises(BloccError, match=r"town_net.tntp line 7: capacity .* must be positive"):
        read_road_network(tmp_path / "town_net.tntp")
    nodes, link = [{"id": 1}, {"id": 2}], {"from": 1, "to": 2, "capacity": 1, "free_flow_time": 1, "b": 1, "power": 4}
    back = [{"origin": 2, "destination": 1, "demand": 1.0}, {"origin": 1, "destination": 2, "demand": 2.0}]
    with pytest.raises(BloccError, match="cannot be reached"):
        RoadNetwork.from_tables(nodes, [link], back)
    kept = RoadNetwork.from_tables(nodes, [link], back, drop_unreachable=True)
    assert kept.demand.tolist() == [2.0]
    assert "1 pairs that no path joins" in kept.assumptions[-1]
    for wrong in (
        {"candidates": [99]},
        {"exponent": 0.5},
        {"cost": -1.0},
        {"starts": 0},
        {"budget": -1.0},
        {"cost": 0.0},
    ):
        with pytest.raises(OptionError, match=next(iter(wrong)) if wrong != {"cost": 0.0} else "max_expansion"):
            expand_network(sioux, **wrong)
    with pytest.raises(OptionError, match="principle"):
        assign(sioux, principle="anarchy")
