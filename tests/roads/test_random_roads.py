"""Random small networks with tolls, links without time and constant times: enumerated paths, grids, and other units."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from blocc._lib.arrays import Float, NDArray
from blocc.result import Status
from blocc.roads import RoadDesign, RoadNetwork, assign, expand_network, second_best_tolls, verify_road_design
from road_designs import all_paths, random_roads, small_design, small_roads

UNITS = ((1.0, 1.0), (1e-4, 1e5), (1e5, 1e-6), (3600.0, 1.0))


def travel_times(
    network: RoadNetwork, volume: Float[NDArray, "links"], capacity: Float[NDArray, "links"], factor: float = 0.0
) -> Float[NDArray, "links"]:
    """BPR times, or with 1 as factor the marginal costs of all drivers together."""
    rate = network.b * (1.0 + factor * network.power)
    return network.free_flow_time * (1.0 + rate * (volume / capacity) ** network.power)


@pytest.mark.parametrize("seed", range(12))
def test_nobody_has_a_cheaper_path(seed: int) -> None:
    """By enumeration of all paths; the other question is the same at marginal costs."""
    network = random_roads(seed, *UNITS[seed % 4])
    for principle, factor in (("user equilibrium", 0.0), ("system optimum", 1.0)):
        found = assign(network, principle=principle)
        assert found.success, found.message
        toll = network.toll * (1.0 - factor)
        costs = travel_times(network, found.flow, network.capacity, factor) + toll
        cheapest = [min(costs[path].sum() for path in paths) for paths in all_paths(network)]
        paid = float(costs @ found.flow)
        assert paid - network.demand @ cheapest <= 1.01e-10 * paid
        times = travel_times(network, found.flow, network.capacity)
        assert found.total_travel_time == pytest.approx(times @ found.flow, rel=1e-12)
        assert network.lost_trips(found.flow) < 1e-12


def asked(seed: int, units: tuple[float, float] = (1.0, 1.0)) -> tuple[RoadNetwork, dict[str, Any]]:
    """A network, and what to widen: one or two links that somebody may use, with costs worth a part of all time."""
    random = np.random.default_rng(1000 + seed)
    reached: set[int] = set()
    while not reached:  # a network may have no link to widen
        network = random_roads(seed, *units)
        grows = (network.b > 0.0) & (network.free_flow_time > 0.0)
        reached = {a for paths in all_paths(network) for path in paths for a in path if grows[a]}
        seed += 1000
    chosen = random.choice(sorted(reached), min(int(random.integers(1, 3)), len(reached)), replace=False)
    exponent = random.choice([1.0, 1.5, 2.0, 3.0], len(chosen))
    most = random.uniform(0.2, 3.0, len(chosen)) * network.capacity[chosen]
    share = random.choice([0.02, 0.1, 0.4], len(chosen)) * random.uniform(0.2, 1.0, len(chosen))
    cost = share * assign(network).total_travel_time / most**exponent
    budget = None if random.random() < 0.5 else float(cost @ most**exponent) * float(random.choice([1e-6, 0.1, 0.5]))
    names = [network.link_ids[a] for a in chosen]
    given = {"candidates": names, "cost": cost, "exponent": exponent, "max_expansion": most, "budget": budget}
    return network, given


@pytest.mark.parametrize("seed", range(100, 108))
def test_expansions_hold_against_a_grid(seed: int) -> None:
    network, given = asked(seed)
    design = expand_network(network, **given)
    assert design.success, design.message
    assert verify_road_design(network, design).ok
    chosen = np.array([network.link_ids.index(name) for name in given["candidates"]])
    values = []
    for x in product(*(np.linspace(0.0, most, 7) for most in given["max_expansion"])):
        spent = float(given["cost"] @ np.array(x) ** given["exponent"])
        if given["budget"] is None or spent <= given["budget"]:
            capacity = network.capacity.copy()
            capacity[chosen] += x
            values.append(assign(network, capacity=capacity).total_travel_time + spent)
    assert design.objective <= min(values) * (1.0 + 1e-6)
    assert design.bound is not None
    assert design.bound <= min(values) * (1.0 + 1e-9)


@pytest.mark.parametrize("seed", [2, 19, 100, 101, 120])
def test_answers_do_not_depend_on_units(seed: int) -> None:
    plain = expand_network(asked(seed)[0], **asked(seed)[1])
    for time, trips in UNITS[1:3]:
        network, given = asked(seed, (time, trips))
        design = expand_network(network, **given)
        assert design.status is plain.status is Status.CONVERGED
        assert design.objective == pytest.approx(plain.objective * time * trips, rel=1e-7)
        assert design.bound == pytest.approx(plain.bound * time * trips, rel=1e-4)
        assert verify_road_design(network, design).ok


def test_nothing_to_spend_leaves_everything_as_it_is() -> None:
    network = small_roads()
    given: dict[str, Any] = {"candidates": [2, "b>c"], "cost": [0.3, 0.0], "max_expansion": 5.0, "starts": 1}
    free = expand_network(network, **given, budget=0.0)
    assert free.success
    assert free.cost == 0.0
    assert free.expansion[1] == 0.0  # the other costs nothing
    assert verify_road_design(network, free).ok
    given["cost"] = [0.3, 0.1]
    for sizes in (None, [1.0, 2.0]):
        nothing = expand_network(network, **given, budget=0, sizes=sizes)
        assert nothing.success
        assert not nothing.expansion.any()
        assert nothing.objective == pytest.approx(nothing.before.total_travel_time)
        assert verify_road_design(network, nothing).ok


@pytest.mark.parametrize("seed", range(6))
def test_tolls_are_between_the_optimum_and_today(seed: int) -> None:
    network = random_roads(seed)
    used = np.flatnonzero(assign(network).flow > 0.0)[:2]
    design = second_best_tolls(network, candidates=[network.link_ids[a] for a in used], max_toll=3.0, starts=1)
    best = assign(network, principle="system optimum").total_travel_time
    assert best * (1.0 - 1e-9) <= design.objective <= design.before.total_travel_time * (1.0 + 1e-9)
    again = assign(network, toll=design.toll, relative_gap=1e-12)
    assert again.total_travel_time == pytest.approx(design.objective, rel=1e-7)
    assert verify_road_design(network, design).ok


# --- what verify accepts -------------------------------------------------------------------------------------------
def forged(design: RoadDesign) -> dict[str, RoadDesign]:
    """Claims that are wrong, by the check that has to say so."""
    after, better = design.after, 0.5 * ((design.bound or 0.0) + design.objective)
    round_trip = np.array([0.0, 0.0, 0.5, 0.0, 0.0])  # drivers who appear at one node and vanish at another
    return {
        "after: no limits": replace(design, after=replace(after, waiting=after.waiting + 5.0)),
        "limits": replace(design, kind="toll"),
        "bound": replace(design, bound=None, gap=None),
        "proven gap": replace(design, bound=-np.inf, gap=np.inf),
        "after: conservation": replace(design, after=replace(after, flow=after.flow + round_trip)),
        "after: relative gap": replace(design, after=design.before),
        "before: total travel time": replace(
            design, before=replace(design.before, total_travel_time=1.1 * design.before.total_travel_time)
        ),
        "after: costs of pairs": replace(design, after=replace(after, path_cost=0.9 * after.path_cost)),
        "marginal values": replace(design, marginal_value=2.0 * design.marginal_value),
        "objective": replace(design, bound=better, objective=design.objective * (1.0 - 5e-6)),
    }


@pytest.mark.parametrize("claim", sorted(forged(small_design())))
def test_forged_claims_are_told(claim: str) -> None:
    found = verify_road_design(small_roads(), forged(small_design())[claim])
    assert not found.ok
    assert claim in {check.name for check in found.checks if not check.ok}


def test_half_a_design_is_no_answer() -> None:
    network, design = small_roads(), small_design()
    x = 0.5 * design.expansion
    after = assign(network, capacity=network.capacity + x)
    half = replace(design, expansion=x, after=after)
    cost = float(half.cost_by_link.sum())
    value = after.total_travel_time + cost
    found = verify_road_design(
        network, replace(half, cost=cost, objective=value, gap=1.0 - (design.bound or 0.0) / value)
    )
    assert "gain left" in {check.name for check in found.checks if not check.ok}
