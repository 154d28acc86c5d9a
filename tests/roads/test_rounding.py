"""Sizes that can be built: against enumeration, budgets, and the bound without sizes."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from blocc._lib.arrays import Float, NDArray
from blocc.errors import OptionError
from blocc.result import Status
from blocc.roads import RoadNetwork, assign, expand_network
from blocc.roads.descents import Budget
from blocc.roads.expansion import Expansion
from blocc.roads.leader import Leader
from blocc.roads.rounding import round_to_sizes, size_lists, size_table
from blocc.roads.verify_road_design import verify_road_design


def square(seed: int) -> RoadNetwork:
    """Four nodes, ten links, congested, with two pairs that share some of them."""
    random = np.random.default_rng(seed)
    ends = [(i, j) for i in range(4) for j in range(4) if i != j and (i, j) not in ((3, 0), (0, 3))]
    links = [
        {
            "from": i,
            "to": j,
            "capacity": random.uniform(1.0, 2.0),
            "free_flow_time": random.uniform(0.5, 1.5),
            "b": random.uniform(0.3, 1.0),
            "power": 4.0,
        }
        for i, j in ends
    ]
    trips = [{"origin": o, "destination": d, "demand": random.uniform(3.0, 5.0)} for o, d in ((0, 3), (1, 2))]
    return RoadNetwork.from_tables([{"id": i} for i in range(4)], links, trips)


def value(network: RoadNetwork, chosen: list[int], x: Float[NDArray, "n"], rate: float) -> float:
    capacity = network.capacity.copy()
    capacity[chosen] += x
    return assign(network, capacity=capacity).total_travel_time + rate * float((x**1.5).sum())


@pytest.mark.parametrize("budget", [None, 0.5])
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_enumeration(seed: int, budget: float | None) -> None:
    network, rate = square(seed), 0.1
    chosen = np.argsort(-assign(network).volume_over_capacity)[:4].tolist()
    design = expand_network(
        network,
        candidates=[network.link_ids[a] for a in chosen],
        cost=rate,
        exponent=1.5,
        sizes=[0.5, 1.5, 2.0],
        budget=budget,
        starts=1,
    )
    allowed = [np.array(x) for x in product((0.0, 0.5, 1.5, 2.0), repeat=4)]
    within = [x for x in allowed if budget is None or rate * (x**1.5).sum() <= budget]
    best = min(value(network, chosen, x, rate) for x in within)
    assert design.success
    assert any(np.array_equal(design.expansion[chosen], x) for x in within)
    assert design.objective == pytest.approx(best, rel=1e-9)
    assert design.bound is not None
    assert design.bound <= best
    assert design.gap == pytest.approx(1.0 - design.bound / design.objective)
    assert design.relative_gap <= 1e-10
    assert budget is None or design.cost <= budget


def test_multiples_and_sizes_of_each_link() -> None:
    network = square(0)
    free = expand_network(network, candidates=[1, 2, 3], cost=0.1, exponent=2.0, starts=1)
    lanes = expand_network(network, candidates=[1, 2, 3], cost=0.1, exponent=2.0, starts=1, sizes=0.25)
    np.testing.assert_allclose(lanes.expansion % 0.25, 0.0, atol=1e-12)
    assert free.objective <= lanes.objective <= free.objective * 1.02
    assert lanes.bound == pytest.approx(free.bound, rel=1e-6)
    sizes = {1: [1.0], 2: 0.3, 3: [0.2, 0.9]}
    mixed = expand_network(network, candidates=[1, 2, 3], cost=0.1, exponent=2.0, starts=1, sizes=sizes)
    assert mixed.expansion[0] in (0.0, 1.0)
    assert mixed.expansion[1] / 0.3 == pytest.approx(round(mixed.expansion[1] / 0.3))
    assert mixed.expansion[2] in (0.0, 0.2, 0.9)
    assert mixed.objective >= free.objective - 1e-9


def test_sizes_are_verified() -> None:
    network = square(0)
    design = expand_network(network, candidates=[1, 2, 3], cost=0.1, sizes={1: [1.0], 2: 0.3, 3: [0.2, 0.9]}, starts=1)
    assert verify_road_design(network, design).ok
    worse = replace(design, settings=design.settings | {"sizes": [[0.7], [0.7], [0.7]]})
    assert verify_road_design(network, worse).failed[0].name == "sizes"


def test_nothing_in_between_even_after_a_stop() -> None:
    stopped = expand_network(square(0), candidates=[1, 2], cost=0.1, sizes=[1.0], max_expansion=5.0, time_limit=1e-9)
    assert stopped.status is Status.TIME_LIMIT
    assert set(stopped.expansion.tolist()) <= {0.0, 1.0}


def test_moves_of_two_links_leave_what_moves_of_one_cannot() -> None:
    """A budget for one of two links: the worse one is full, and only an exchange helps."""
    network = square(1)
    links = np.argsort(-assign(network).volume_over_capacity)[:2]
    sizes = size_table(size_lists([1.0], (1, 2)), np.ones(2))
    question = Expansion(network, links, np.zeros(2), np.ones(2), np.full(2, 0.01), np.ones(2), sizes)
    leader = Leader(question)
    budget = Budget(question.own, 0.01)
    ends = [round_to_sizes(leader, x, budget).value for x in np.eye(2)]
    assert ends[0] == pytest.approx(ends[1], rel=1e-12)
    assert ends[0] == pytest.approx(min(leader.exact(x).value for x in np.eye(2)), rel=1e-12)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        (0.0, "multiples of 0"),
        (-1.0, "sizes must be a list"),
        ([], "sizes must be a list"),
        ([[1.0]], "sizes must be a list"),
        ([1.0, float("nan")], "sizes must be a list"),
        ("wide", "sizes must be a list"),
        (True, "multiples of True"),
        ({1: [1.0]}, "look at 2"),
        ({1: [1.0], 2: [1.0], 3: [1.0]}, "look at 3"),
        (1e-9, "give max_expansion"),
    ],
)
def test_wrong_sizes(sizes: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        expand_network(square(0), candidates=[1, 2], sizes=sizes)
