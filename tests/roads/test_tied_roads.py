"""Grids of identical links, where all ways are tied, and a city so full that one assignment outlasts a time limit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba")

from blocc.roads import RoadNetwork, assign, expand_network, verify_road_design
from blocc.roads.generators import city_roads
from clocks import counted


def grid(side: int, power: float = 4.0) -> RoadNetwork:
    """Trips from everywhere to everywhere, on a square of links that are all alike."""
    nodes = [{"id": k, "x": k % side, "y": k // side} for k in range(side * side)]
    steps = [(0, 1), (1, 0), (0, -1), (-1, 0)]
    ends = [
        (row * side + column, (row + down) * side + column + right)
        for row in range(side)
        for column in range(side)
        for down, right in steps
        if 0 <= row + down < side and 0 <= column + right < side
    ]
    alike = {"capacity": 100.0, "free_flow_time": 2.0, "b": 0.15, "power": power}
    links = [{"from": a, "to": b, "link_id": k, **alike} for k, (a, b) in enumerate(ends)]
    pairs = [(a, b) for a in range(side * side) for b in range(side * side) if a != b]
    trips = 80.0 * len(links) / (0.667 * side) / len(pairs)
    return RoadNetwork.from_tables(nodes, links, [{"origin": a, "destination": b, "demand": trips} for a, b in pairs])


def time_saved(network: RoadNetwork, expansion: np.ndarray, link: int, by: float = 0.5) -> float:
    """By one more unit of capacity on a link, from two assignments."""
    step = by * (np.arange(network.n_links) == link)
    room = [network.capacity + expansion + sign * step for sign in (-1.0, 1.0)]
    before, after = (assign(network, capacity=value).total_travel_time for value in room)
    return (before - after) / (2.0 * by)


@pytest.mark.parametrize(
    "options",
    [
        {"cost": 0.4},
        {"cost": 0.004, "exponent": 2.0},
        {"cost": 100.0},
        {"candidates": [13], "cost": 0.004, "exponent": 2.0},
    ],
    ids=["linear", "quadratic", "nothing pays", "one link"],
)
def test_values_of_links_are_differences_of_assignments(options: dict) -> None:
    """Where paths are tied, all that is left to answer is rounding, and the answer to that is nothing."""
    network = grid(3)
    design = expand_network(network, max_expansion=60.0, starts=1, **options)
    assert design.success
    assert verify_road_design(network, design).ok
    for link in options.get("candidates", [0, 3, 13, 20]):
        saved = time_saved(network, design.expansion, link)
        assert design.marginal_value[link] == pytest.approx(saved, rel=1e-3, abs=1e-4)


@pytest.mark.slow  # the smaller grids above take the same steps
def test_a_larger_grid_by_newton_steps() -> None:
    network = grid(5)
    design = expand_network(network, cost=0.4, max_expansion=60.0, starts=1)
    assert design.success
    assert verify_road_design(network, design).ok
    assert design.marginal_value[7] == pytest.approx(time_saved(network, design.expansion, 7), rel=1e-3)


@pytest.fixture(scope="module")
def full_city() -> RoadNetwork:
    city = city_roads(20, 20, 100, seed=1)
    return replace(city, b=np.ones(city.n_links), demand=6.0 * city.demand)


def test_a_time_limit_ends_assignments_too(full_city: RoadNetwork) -> None:
    """The bound holds whatever was reached."""
    with counted(step=0.01) as clock:
        design = expand_network(full_city, candidates=full_city.link_ids[::3], cost=1.0, starts=1, time_limit=0.5)
    assert clock.passed < 0.8
    assert design.status.value == "time limit"
    assert design.bound is None or design.bound <= design.objective


def test_a_run_that_was_stopped_at_once_is_continued(tmp_path: Path) -> None:
    options = {"cost": 0.4, "max_expansion": 60.0, "starts": 1}
    stopped = expand_network(grid(3), **options, time_limit=1e-4, checkpoint=tmp_path / "run.npz")
    assert stopped.status.value == "time limit"
    resumed = expand_network(grid(3), **options, resume=tmp_path / "run.npz")
    np.testing.assert_array_equal(resumed.expansion, expand_network(grid(3), **options).expansion)
