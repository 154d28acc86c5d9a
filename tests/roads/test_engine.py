"""The assignment engine: gaps down to rounding, generated cities, answers to changes, memory that follows the paths."""

from __future__ import annotations

import numpy as np
import pytest

from blocc.errors import OptionError
from blocc.networks import kernels
from blocc.roads import RoadNetwork, assign, leader, read_road_network
from blocc.roads.equilibrium import assign_paths, cost_answer
from blocc.roads.expansion import Expansion
from blocc.roads.generators import city_roads


@pytest.fixture(scope="module")
def town() -> RoadNetwork:
    """Of Anaheim's size: 416 nodes, 914 links, 1,406 pairs."""
    return city_roads(38, 378, 914, seed=1)


def test_sioux_falls_is_assigned_down_to_rounding() -> None:
    found = assign(read_road_network("sioux-falls"), relative_gap=1e-12)
    assert found.relative_gap <= 1e-12
    assert found.iterations <= 10
    assert np.diff(np.log(np.maximum(found.gaps, 1e-15)))[1:].max() <= 0.0  # the gap never grows


def test_a_generated_town_has_its_size_and_its_congestion(town: RoadNetwork) -> None:
    assert (town.n_nodes, town.n_links, town.n_pairs) == (416, 914, 1406)
    found = assign(town, relative_gap=1e-10)
    assert found.success
    assert 0.5 < np.median(found.volume_over_capacity[town.b > 0.0]) < 1.5
    assert found.total_travel_time > 1.05 * float(town.free_costs @ town.demand)
    assert assign(city_roads(38, 378, 914, seed=1)).total_travel_time == pytest.approx(
        found.total_travel_time, rel=1e-8
    )
    with pytest.raises(OptionError, match="congestion"):
        city_roads(4, 12, 40, congestion=0.0)


@pytest.mark.parametrize("congestion", [0.3, 1.5, 2.5])
def test_little_and_much_congestion(congestion: float) -> None:
    network = city_roads(12, 60, 220, seed=3, congestion=congestion)
    found = assign(network, relative_gap=1e-12)
    assert found.success
    assert found.certificate.conservation < 1e-13
    assert found.certificate.complementarity < 1e-6
    # Weak duality from cheapest paths alone: Beckmann's value is within the excess of the best.
    assert found.certificate.average_excess_cost <= 1e-11 * found.path_cost.mean()


def test_memory_follows_the_paths_in_use(town: RoadNetwork) -> None:
    columns, flow = assign(town, relative_gap=1e-10).paths
    assert (flow > 0.0).all()
    assert len(columns) < 2 * town.n_pairs
    assert columns.links.nbytes < 4 * len(columns) * 80


def test_answers_of_volumes_and_costs_agree_with_differences(town: RoadNetwork) -> None:
    """The derivative of a sum over volumes in the links' costs and in the trips."""
    costs, random = town.bpr(), np.random.default_rng(0)
    found = assign_paths(town.streets, town.pairs, costs, gap=1e-14)
    values = random.random(town.n_links)
    to_costs, to_trips = cost_answer(found, costs, values)
    step = 1e-5
    for link in np.argsort(-np.abs(to_costs))[[0, 5, 50]].tolist():
        ends = []
        for sign in (1.0, -1.0):
            constant = costs.constant.copy()
            constant[link] += sign * step
            near = assign_paths(
                town.streets, town.pairs, costs._replace(constant=constant), gap=1e-14, warm=found.paths
            )
            ends.append(float(values @ near.volume))
        assert to_costs[link] == pytest.approx((ends[0] - ends[1]) / (2.0 * step), rel=1e-4)
    demand = town.pairs.demand.copy()
    demand[7] *= 1.0 + 1e-4
    more = assign_paths(town.streets, town.pairs._replace(demand=demand), costs, gap=1e-14, warm=found.paths)
    change = float(values @ (more.volume - found.volume)) / (demand - town.pairs.demand)[7]
    assert to_trips[7] == pytest.approx(change, rel=1e-3)


def test_a_steep_way_round_a_crowded_link_is_taken_at_once() -> None:
    """A Newton step would fill the way round far beyond its capacity; a chord from there is next to nothing."""
    figures = [(1.3, 1.5, 5.0, 2.0), (1.0, 3.0, 0.5, 8.0)]
    network = RoadNetwork.from_tables(
        [{"id": "a"}, {"id": "b"}],
        [
            {"from": "a", "to": "b", "link_id": k, "capacity": c, "free_flow_time": t, "b": b, "power": p}
            for k, (c, t, b, p) in enumerate(figures)
        ],
        [{"origin": "a", "destination": "b", "demand": 10.0}],
    )
    found = assign(network, principle="system optimum")
    assert found.success, found.message
    assert found.iterations < 20
    marginal = [t * (1.0 + b * (1.0 + p) * (v / c) ** p) for (c, t, b, p), v in zip(figures, found.flow, strict=True)]
    assert marginal[0] == pytest.approx(marginal[1], rel=1e-8)


def test_two_assignments_at_once_are_those_of_one_after_the_other(
    town: RoadNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    streets = np.flatnonzero(town.b > 0.0)[:2]
    question = Expansion(town, streets, np.zeros(2), np.full(2, 100.0), cost=np.ones(2), exponent=np.ones(2))
    monkeypatch.setattr(kernels, "thread_count", lambda: 2)
    found = []
    for least in (0, town.n_pairs + 1):
        monkeypatch.setattr(leader, "MANY_PAIRS", least)
        asked = leader.Leader(question)
        found.append([asked.penalty(x, 100.0) for x in (np.zeros(2), np.array([10.0, 20.0]))])
    for (value, slope), (again, same) in zip(*found, strict=True):
        assert value == again
        np.testing.assert_array_equal(slope, same)
    with pytest.raises(ZeroDivisionError):
        kernels.both(lambda: 1, lambda: 1 // 0)
