"""What a link costs one driver, as a function of its volume: one shape that serves every question asked of it.

    cost(v) = constant + coefficient v^power + linear v + max(0, offset + stiffness v)

BPR travel times, tolls, the penalised costs of the leader's questions, deviations from counts and queues before a hard
capacity are all of this shape, so that one compiled engine assigns for all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.networks.kernels import kernel


class LinkCosts(NamedTuple):
    """Cost functions of all links; costs must not be negative at volumes that can occur."""

    constant: Float[NDArray, "links"]
    coefficient: Float[NDArray, "links"]
    power: Float[NDArray, "links"]
    linear: Float[NDArray, "links"]
    offset: Float[NDArray, "links"]
    stiffness: Float[NDArray, "links"]

    def at(self, volume: Float[NDArray, "links"]) -> Float[NDArray, "links"]:
        """The cost of each link at these volumes."""
        found, slope = np.empty_like(volume), np.empty_like(volume)
        evaluate(self, volume, found, slope)
        return found

    def integral(self, volume: Float[NDArray, "links"]) -> Float[NDArray, "links"]:
        """Beckmann's terms: each cost, integrated from zero to the volume."""
        grown = self.constant * volume + 0.5 * self.linear * volume**2
        grown += self.coefficient * volume ** (self.power + 1.0) / (self.power + 1.0)
        stiff = self.stiffness > 0.0
        if stiff.any():
            rate = np.where(stiff, self.stiffness, 1.0)
            queue = np.maximum(self.offset + self.stiffness * volume, 0.0) ** 2 - np.maximum(self.offset, 0.0) ** 2
            grown += np.where(stiff, 0.5 * queue / rate, 0.0)
        return grown


def power_costs(
    constant: Float[NDArray, "links"], coefficient: Float[NDArray, "links"], power: Float[NDArray, "links"]
) -> LinkCosts:
    """Costs without linear terms and queues."""
    zero = np.zeros_like(constant)
    return LinkCosts(constant, coefficient, power, zero, zero, zero)


# --- compiled ------------------------------------------------------------------------------------------------------
@kernel
def raised(value, power):  # type: ignore[no-untyped-def]
    """``value ** power`` for a value that is not negative; whole powers as products."""
    if power == 4.0:
        square = value * value
        return square * square
    if power == 3.0:
        return value * value * value
    if power == 1.0:
        return value
    return value**power


@kernel
def cost_of(costs, link, volume):  # type: ignore[no-untyped-def]
    """The cost of one link."""
    cost = costs.constant[link] + costs.linear[link] * volume
    if costs.coefficient[link] > 0.0:
        cost += costs.coefficient[link] * raised(volume, costs.power[link])
    if costs.stiffness[link] > 0.0:
        cost += max(0.0, costs.offset[link] + costs.stiffness[link] * volume)
    return cost


@kernel
def slope_of(costs, link, volume):  # type: ignore[no-untyped-def]
    """Its derivative in the volume."""
    slope = costs.linear[link]
    if costs.coefficient[link] > 0.0 and (volume > 0.0 or costs.power[link] >= 1.0):
        slope += costs.coefficient[link] * costs.power[link] * raised(volume, costs.power[link] - 1.0)
    if costs.stiffness[link] > 0.0 and costs.offset[link] + costs.stiffness[link] * volume > 0.0:
        slope += costs.stiffness[link]
    return slope


@kernel
def evaluate(costs, volume, cost, slope):  # type: ignore[no-untyped-def]
    """Costs and slopes of all links."""
    for link in range(len(volume)):
        cost[link] = cost_of(costs, link, volume[link])
        slope[link] = slope_of(costs, link, volume[link])
