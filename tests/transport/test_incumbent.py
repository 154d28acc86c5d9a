"""The best capacities of a search: links with next to no capacity are taken away, unless they matter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from blocc.outer.monitor import State
from blocc.transport import CapacitySet, DesignModel, DesignOptions, TransportNetwork, design_network, verify_design
from transport_reference import random_network, three_nodes


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"budget": 0.7}, marks=pytest.mark.slow),
        {"symmetric": True},
        pytest.param({"symmetric": True, "budget": 0.9, "max_capacity": 0.6}, marks=pytest.mark.slow),
    ],
)
def test_more_evaluations_never_earn_less(limits: dict[str, Any]) -> None:
    """A run that is stopped after one evaluation more has met everything that it had met before."""
    model = DesignModel(three_nodes())
    members = DesignOptions.from_names(limits).capacity_set(model.network)
    before = design_network(model.network, starts=1, model=model, time_limit=1e-9, **limits).utility
    assert before > 0.0
    for count in (1, 2, 3, 5, 8, 13, 21, 34, 55, 89):

        def enough(state: State, count: int = count) -> bool:
            return state.iteration >= count

        design = design_network(model.network, starts=1, model=model, callback=enough, **limits)
        assert design.utility >= before - 1e-6 * (1.0 + before)
        assert design.lower_level_error < 1e-6
        assert (design.capacity >= members.least).all()
        assert (design.capacity <= members.limit).all()
        assert design.follower.construction_cost <= members.budget * (1.0 + 1e-9)
        np.testing.assert_array_equal(design.capacity, design.capacity[members.partner])
        before = design.utility


@pytest.mark.slow
def test_what_is_reported_keeps_the_budget() -> None:
    """Also while the search still looks at designs without limits, which would earn 1.76."""
    model, utilities = DesignModel(three_nodes()), list[float]()
    design = design_network(
        model.network, starts=1, model=model, budget=0.5, report=lambda _, row: utilities.append(-row.upper_value)
    )
    assert max(utilities) <= design.utility * 1.02
    assert int(design.built.sum()) == design.starts[0].links_built


def within(network: TransportNetwork, seed: int) -> dict[str, np.ndarray]:
    """What exists on some links, what some must have, and what some may have at most."""
    random = np.random.default_rng(seed)
    size = float(network.demand.sum()) / network.n_links
    some = random.uniform(size=(3, network.n_links)) < np.array([[0.3], [0.2], [0.4]])
    existing, least = (np.where(chosen, random.uniform(0.0, size, network.n_links), 0.0) for chosen in some[:2])
    most = np.where(some[2], np.maximum(existing, least) + random.uniform(0.0, size, network.n_links), np.inf)
    return {"existing_capacity": existing, "min_capacity": least, "max_capacity": most}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 4])
def test_limits_of_all_kinds_hold_and_are_verified(seed: int) -> None:
    """On random networks, with a budget as well; nothing simple earns more."""
    network = random_network(seed, n_nodes=3)
    limits, model = within(network, seed), DesignModel(network)
    budget = float(network.cost @ np.maximum(limits["min_capacity"] - limits["existing_capacity"], 0.0)) + 5.0
    design = design_network(network, starts=1, model=model, budget=budget, **limits)
    assert (design.capacity >= np.maximum(limits["existing_capacity"], limits["min_capacity"]) - 1e-12).all()
    assert (design.capacity <= limits["max_capacity"] + 1e-12).all()
    assert design.follower.construction_cost <= budget * (1.0 + 1e-9)
    verification = verify_design(network, design)
    assert verification.ok, str(verification)
    names = {"max_capacity": "limit", "min_capacity": "minimum", "existing_capacity": "existing"}
    members = CapacitySet(network, budget=budget, **{names[name]: value for name, value in limits.items()})
    random = np.random.default_rng(seed)
    for _ in range(20):
        rival = members.cover(design.capacity * random.uniform(0.5, 1.5, network.n_links))
        found = model.capacities(rival, design.gamma)
        assert float(found.utility) + members.refund <= design.utility + 1e-3 * (1.0 + abs(design.utility))
