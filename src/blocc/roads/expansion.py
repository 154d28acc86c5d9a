"""Widening links while drivers answer with a user equilibrium: continuous network design.

For BPR times t = t0 (1 + b (v / c)^p) the penalised problem is an assignment of the same kind: the derivative of
sum t v + gamma (Beckmann's objective) in v is (1 + gamma) t0 (1 + b (1 + p / (1 + gamma)) (v / c)^p).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.roads.question import Question, unit_of


def affordable(cost: Float[NDArray, "n"], exponent: Float[NDArray, "n"], budget: float | None) -> Float[NDArray, "n"]:
    """The most of each link that a budget pays if it pays nothing else; infinite where links cost nothing."""
    most = np.full(len(cost), np.inf)
    if budget is not None:
        most[cost > 0.0] = (budget / cost[cost > 0.0]) ** (1.0 / exponent[cost > 0.0])
    return most


@dataclass(frozen=True, eq=False)
class Expansion(Question):
    """Capacity added to candidate links; the leader pays total travel time and construction."""

    cost: Float[NDArray, "n"]  #: coefficient of each link's cost
    exponent: Float[NDArray, "n"]  #: cost x^exponent
    sizes: Float[NDArray, "n sizes"] | None = None  #: what can be built

    def capacity(self, x: Float[NDArray, "n"]) -> Float[NDArray, "links"]:
        """The capacity of every link, what is added included."""
        capacity = self.network.capacity.copy()
        capacity[self.candidates] += x
        return capacity

    @property
    def units(self) -> Float[NDArray, "n"]:
        """The capacity that a link has, or all that it may get where that is less."""
        return unit_of(np.minimum(self.network.capacity[self.candidates], self.upper - self.lower))

    def own(self, x: Float[NDArray, "n"]) -> tuple[float, Float[NDArray, "n"]]:
        """What construction costs, and its gradient."""
        at = np.maximum(x, 0.0)
        return float(self.cost @ at**self.exponent), self.cost * self.exponent * at ** (self.exponent - 1.0)

    def _thinning(self, x: Float[NDArray, "n"], volume: Float[NDArray, "links"]) -> Float[NDArray, "n"]:
        """Derivative of each candidate's time in its capacity."""
        network, at = self.network, self.candidates
        room = network.capacity[at] + x
        growing = network.free_flow_time[at] * network.b[at] * network.power[at]
        return -growing * (volume[at] / room) ** network.power[at] / room

    def direct(self, x: Float[NDArray, "n"], volume: Float[NDArray, "links"]) -> Float[NDArray, "n"]:
        """Time saved at these volumes."""
        return volume[self.candidates] * self._thinning(x, volume)

    def turned(
        self, x: Float[NDArray, "n"], volume: Float[NDArray, "links"], per_cost: Float[NDArray, "links"]
    ) -> Float[NDArray, "n"]:
        """Each candidate's time falls with its capacity."""
        return per_cost[self.candidates] * self._thinning(x, volume)

    def integral_slope(
        self, x: Float[NDArray, "n"], gamma: float, volume: Float[NDArray, "links"]
    ) -> Float[NDArray, "n"]:
        """Of the integral of t0 b (v / c)^p, weighted."""
        power = self.network.power[self.candidates]
        factor = 1.0 if np.isinf(gamma) else (1.0 + gamma) + power
        return factor * volume[self.candidates] * self._thinning(x, volume) / (power + 1.0)
