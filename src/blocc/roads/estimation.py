"""Trips estimated from counts: a matrix near a prior one whose equilibrium passes as many drivers as were counted.

    minimise over trips d    sum over pairs of  prior_weight (d - prior)^2 / prior
                           + sum over counts of count_weight (v - count)^2,    v the equilibrium volumes of d

On counted links the penalised costs are gamma t + 2 count_weight (v - count): costs of a link like any others, as long
as gamma t0 is above 2 count_weight count, so that no path is worth driving for its own sake.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blocc._lib.arrays import Float, Int, NDArray
from blocc.roads.equilibrium import Pairs
from blocc.roads.link_costs import LinkCosts
from blocc.roads.network import RoadNetwork
from blocc.roads.question import Question

#: A pair keeps at least this share of its prior trips, so that it keeps a path to return to.
LEAST_FACTOR = 1e-4
#: A count below this share of the largest is weighted as if it were that share: nobody counts nothing exactly.
LEAST_COUNT = 0.01
#: Steps of the continuation, as multiples of the least gamma whose costs are not negative.
STEPS = (1.0, 10.0, 100.0)


@dataclass(frozen=True, eq=False)
class Estimation(Question):
    """Trips of every pair, as multiples of the prior ones; the leader pays for distance from prior and counts."""

    prior_weight: Float[NDArray, "pairs"]
    counted: Int[NDArray, "counts"]  #: links
    count: Float[NDArray, "counts"]
    count_weight: Float[NDArray, "counts"]

    @property
    def is_about_links(self) -> bool:
        """No."""
        return False

    @property
    def present(self) -> Float[NDArray, "pairs"]:
        """The prior."""
        return np.ones(len(self.candidates))

    def size(self, value: float) -> float:
        """Distances count drivers, and may be zero: one more of them is something."""
        return 1.0 + abs(value)

    @property
    def gammas(self) -> tuple[float, ...]:
        """From the least gamma that can be assigned on; then, or where none can, the exact value."""
        pull = 2.0 * self.count_weight * self.count
        with np.errstate(divide="ignore", invalid="ignore"):
            needed = pull / (self.network.free_flow_time + self.network.toll)[self.counted]
        least = float(np.max(needed[pull > 0.0], initial=0.0))
        return (*(step * least for step in STEPS), np.inf) if 0.0 < least < np.inf else (np.inf,)

    def accuracy(self, gamma: float) -> float:
        """On the way there, less is enough."""
        return 1e-13 if np.isinf(gamma) else 1e-8

    def pairs(self, x: Float[NDArray, "pairs"]) -> Pairs:
        """The prior's pairs with other trips."""
        return self.network.pairs._replace(demand=self.network.demand * x)

    def demand_slope(self, x: Float[NDArray, "pairs"], per_trip: Float[NDArray, "pairs"]) -> Float[NDArray, "pairs"]:
        """Trips grow with x in proportion to the prior."""
        return self.network.demand * per_trip

    def own(self, x: Float[NDArray, "pairs"]) -> tuple[float, Float[NDArray, "pairs"]]:
        """Distance from the prior; and the squares of the counts, which :meth:`worth` leaves out."""
        weight = self.prior_weight * self.network.demand
        return float(weight @ (x - 1.0) ** 2 + self.count_weight @ self.count**2), 2.0 * weight * (x - 1.0)

    def worth(self, x: Float[NDArray, "pairs"], volume: Float[NDArray, "links"]) -> float:
        """Distance from the counts, less their squares."""
        fitted = volume[self.counted]
        return float(self.count_weight @ (fitted * (fitted - 2.0 * self.count)))

    def marginal(self, x: Float[NDArray, "pairs"], volume: Float[NDArray, "links"]) -> Float[NDArray, "links"]:
        """Its derivative in the volumes."""
        pull = np.zeros(self.network.n_links)
        pull[self.counted] = 2.0 * self.count_weight * (volume[self.counted] - self.count)
        return pull

    def penalised_costs(self, x: Float[NDArray, "pairs"], gamma: float) -> LinkCosts:
        """gamma times what drivers pay, and the pull of the counts."""
        paid = self.follower_costs(x)
        constant, linear = gamma * paid.constant, np.zeros(self.network.n_links)
        constant[self.counted] -= 2.0 * self.count_weight * self.count
        linear[self.counted] += 2.0 * self.count_weight
        return paid._replace(constant=constant, coefficient=gamma * paid.coefficient, linear=linear)

    def direct(self, x: Float[NDArray, "pairs"], volume: Float[NDArray, "links"]) -> Float[NDArray, "pairs"]:
        """Nothing: at fixed volumes trips change no distance from the counts."""
        return np.zeros(len(x))

    def turned(
        self, x: Float[NDArray, "pairs"], volume: Float[NDArray, "links"], per_cost: Float[NDArray, "links"]
    ) -> Float[NDArray, "pairs"]:
        """Nothing: trips change no link's cost at a given volume."""
        return np.zeros(len(x))

    def integral_slope(
        self, x: Float[NDArray, "pairs"], gamma: float, volume: Float[NDArray, "links"]
    ) -> Float[NDArray, "pairs"]:
        """Nothing, for the same reason; :meth:`demand_slope` has all of it."""
        return np.zeros(len(x))


def estimation(
    network: RoadNetwork,
    counted: Int[NDArray, "counts"],
    count: Float[NDArray, "counts"],
    prior_weight: Float[NDArray, "pairs"],
    count_weight: Float[NDArray, "counts"],
    max_factor: float,
) -> Estimation:
    """The question, with the weights as users give them: relative to the prior's trips and to counts."""
    n, largest = network.n_pairs, float(count.max()) or 1.0
    bounds = np.full(n, LEAST_FACTOR), np.full(n, max_factor)
    by_count = count_weight / np.maximum(count, LEAST_COUNT * largest)
    return Estimation(network, np.arange(n), *bounds, prior_weight, counted, count, by_count)
