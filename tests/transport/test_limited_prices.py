"""The penalty function in the prices over limited capacities: its derivatives, weak duality, and its multipliers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from blocc.transport.design.capacity_set import CapacitySet
from blocc.transport.design.limited_prices import LimitedPrices, LimitMultipliers
from blocc.transport.design.model import DesignModel
from blocc.transport.design.prices import PricePenalty
from blocc.transport.network.network import TransportNetwork
from transport_compiled import six_nodes
from transport_reference import solve_lower_level

GAMMA, TEMPERATURE = 5.0, 0.02
LIMITS: dict[str, dict[str, Any]] = {
    "budget": {"budget": 6.0},
    "limits": {"limit": 1.5},
    "least": {"minimum": 0.7, "existing": 0.3},
    "ties": {"symmetric": True},
    "all": {"budget": 12.0, "limit": 2.5, "existing": 0.4, "symmetric": True},
}


@pytest.fixture(scope="module")
def model() -> DesignModel:
    return DesignModel(six_nodes(1))


def evaluated(model: DesignModel, limits: CapacitySet, prices: np.ndarray) -> tuple[PricePenalty, LimitMultipliers]:
    """With the multipliers found from scratch."""
    is_open = limits.limit > 0.0

    def free(p: np.ndarray, cost: np.ndarray) -> PricePenalty:
        return model.prices(p, GAMMA, is_open, TEMPERATURE, cost)

    limited = LimitedPrices(limits, LimitMultipliers.none(limits.size))
    for _ in range(3):  # a quasi-Newton ascent, begun again where it ended, is exact enough for differences
        found = limited.evaluate(free, prices, GAMMA)
    return found, limited.multipliers


@pytest.fixture(params=LIMITS.values(), ids=LIMITS)
def limits(model: DesignModel, request: pytest.FixtureRequest) -> CapacitySet:
    return CapacitySet(model.network, **request.param)


def test_gradient_by_finite_differences(model: DesignModel, limits: CapacitySet) -> None:
    random = np.random.default_rng(0)
    prices = random.uniform(0.1, 1.0, limits.size)
    gradient = np.asarray(evaluated(model, limits, prices)[0].gradient)
    for way in random.normal(size=(3, limits.size)):
        ahead, behind = (float(evaluated(model, limits, prices + step * way)[0].value) for step in (1e-3, -1e-3))
        assert (ahead - behind) / 2e-3 == pytest.approx(gradient @ way, rel=2e-2, abs=2e-2 * np.abs(gradient).max())


def penalty_by_reference(network: TransportNetwork, limits: CapacitySet, capacity: np.ndarray) -> float:
    """F_gamma out of two of Clarabel's lower levels."""
    plain = solve_lower_level(network, capacity)
    other = solve_lower_level(network, capacity, network.alternative_time + network.revenue / GAMMA)
    spent = float(network.cost @ (capacity - limits.existing))
    return spent + GAMMA * (other.value - plain.value) - float(network.demand @ network.revenue)


def test_no_member_is_better_than_the_prices_say(model: DesignModel, limits: CapacitySet) -> None:
    """At capacities x the prices p of its follower give at most F_gamma(x): weak duality, up to the smoothing."""
    network = model.network
    capacity = limits.cover(0.5 * limits.sample(3))
    prices = np.nan_to_num(solve_lower_level(network, capacity).price)
    found, _ = evaluated(model, limits, prices)
    slack = GAMMA * TEMPERATURE * float(network.demand.sum()) * 2.0
    assert float(found.value) <= penalty_by_reference(network, limits, capacity) + slack


@pytest.mark.parametrize("budget", [1.0, 6.0, 1e6])
def test_the_budget_is_spent_where_money_is_worth_more_than_itself(model: DesignModel, budget: float) -> None:
    network = model.network
    prices = np.random.default_rng(1).uniform(0.1, 1.0, network.n_links)
    found, multipliers = evaluated(model, CapacitySet(network, budget=budget), prices)
    spent = float(network.cost @ np.asarray(found.penalised.flow))
    if budget == 1e6:
        assert multipliers.budget == 0.0
        assert spent < budget
    else:
        assert multipliers.budget > 0.0
        assert spent == pytest.approx(budget, rel=2e-5)


def test_multipliers_keep_the_penalised_flows_within_bounds(model: DesignModel) -> None:
    """As the complementary slackness of the inner problem says."""
    limits = CapacitySet(model.network, limit=1.5, minimum=0.5)
    found, multipliers = evaluated(model, limits, np.full(limits.size, 0.3))
    flow = np.asarray(found.penalised.flow)
    assert (flow <= 1.5 + 1e-2).all()
    assert (np.abs(flow - 1.5)[multipliers.scarcity > 1e-2] < 1e-2).all()
    assert (flow[multipliers.idle > 1e-2] <= 0.5 + 1e-2).all()
    assert (multipliers.scarcity > 1e-2).any()
    assert (multipliers.idle > 1e-2).any()


def test_tied_links_share_what_they_pay(model: DesignModel) -> None:
    network = model.network
    limits = CapacitySet(network, symmetric=True)
    first = np.flatnonzero((limits.partner != limits.group) & (limits.group == np.arange(limits.size)))
    found, multipliers = evaluated(model, limits, np.full(limits.size, 0.3))
    flow = np.asarray(found.penalised.flow)
    inside = (multipliers.split[first] > 0.01) & (multipliers.split[first] < 0.99)
    np.testing.assert_allclose(flow[first[inside]], flow[limits.partner[first[inside]]], atol=2e-2)


def test_a_budget_that_is_met_roughly_is_extrapolated(model: DesignModel) -> None:
    """Fewer evaluations, with next to the same values and gradients, on a way of small steps."""
    limits, random = CapacitySet(model.network, budget=6.0), np.random.default_rng(2)
    prices, way = random.uniform(0.1, 1.0, limits.size), random.normal(size=limits.size)
    counts, found = {}, dict[bool, list[PricePenalty]]()
    for roughly in (False, True):
        limited, calls = LimitedPrices(limits, LimitMultipliers.none(limits.size), roughly=roughly), 0

        def free(p: np.ndarray, cost: np.ndarray) -> PricePenalty:
            nonlocal calls
            calls += 1
            return model.prices(p, GAMMA, limits.limit > 0.0, TEMPERATURE, cost)

        found[roughly] = [limited.evaluate(free, prices + 1e-3 * step * way, GAMMA) for step in range(12)]
        counts[roughly] = calls
    assert counts[True] <= 0.7 * counts[False]
    for exact, about in zip(found[False], found[True], strict=True):
        assert float(about.value) == pytest.approx(float(exact.value), abs=1e-5 * (1.0 + abs(float(exact.value))))
        scale = float(np.abs(np.asarray(exact.gradient)).max())
        np.testing.assert_allclose(np.asarray(about.gradient), np.asarray(exact.gradient), atol=5e-3 * scale)
