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
