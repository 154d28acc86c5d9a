"""Second-best tolls: tolls on some links only, chosen so that drivers who pay them lose least time.

Tolls are transfers: the leader counts travel time alone. The system optimum bounds it from below, and tolls on all
links reach it where the network has none of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.roads.question import Question, unit_of


@dataclass(frozen=True, eq=False)
class Tolling(Question):
    """Tolls on candidate links, on top of those the network has."""

    def toll(self, x: Float[NDArray, "n"]) -> Float[NDArray, "links"]:
        """The toll of every link."""
        toll = self.network.toll.copy()
        toll[self.candidates] += x
        return toll

    @property
    def units(self) -> Float[NDArray, "n"]:
        """What a trip costs on empty roads, or the highest toll where that is less."""
        network = self.network
        trip = float(network.demand @ network.free_costs) / float(network.demand.sum())
        width = self.upper - self.lower
        return unit_of(np.minimum(width, trip) if trip > 0.0 else width)

    def direct(self, x: Float[NDArray, "n"], volume: Float[NDArray, "links"]) -> Float[NDArray, "n"]:
        """Nothing: at fixed volumes tolls change no time."""
        return np.zeros(len(x))

    def turned(
        self, x: Float[NDArray, "n"], volume: Float[NDArray, "links"], per_cost: Float[NDArray, "links"]
    ) -> Float[NDArray, "n"]:
        """A toll is a cost."""
        return per_cost[self.candidates]

    def integral_slope(
        self, x: Float[NDArray, "n"], gamma: float, volume: Float[NDArray, "links"]
    ) -> Float[NDArray, "n"]:
        """Volumes, times the weight of what drivers pay."""
        return (1.0 if np.isinf(gamma) else gamma) * volume[self.candidates]
