"""The penalty function by the engine on paths: for networks with hundreds of nodes and thousands of links."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Bool, Float, NDArray
from blocc.transport.design.model import CapacityPenalty
from blocc.transport.design.prices import Loading, PricePenalty
from blocc.transport.network.network import TransportNetwork
from blocc.transport.travellers.path_assignment import PathTravellers
from blocc.transport.travellers.path_loading import Market, load_paths

#: Accuracy to which the lower level is solved, relative to the network's scales.
TOLERANCE = 1e-9
#: Evaluations in the capacities that are remembered: a search asks for the same one several times.
_REMEMBERED = 3


class WarmPair(NamedTuple):
    """Prices of both solutions of an evaluation, for the next one nearby."""

    follower: Float[NDArray, "links"]
    penalised: Float[NDArray, "links"]


class PathEngine:
    """Dijkstra's algorithm and columns in place of dense arrays."""

    def __init__(self, network: TransportNetwork) -> None:
        self.network = network
        self.travellers = PathTravellers(network)
        self.demand = self.travellers.at_nodes(network.demand)
        self.alternative = self.travellers.at_nodes(network.alternative_time)
        self.revenue = self.travellers.at_nodes(network.revenue)
        self._known: OrderedDict[tuple[bytes, float, int], tuple[CapacityPenalty, WarmPair | None]] = OrderedDict()

    def prices(
        self,
        values: Float[NDArray, "links"],
        gamma: float,
        is_open: Bool[NDArray, "links"],
        temperature: float,
        cost: Float[NDArray, "links"],
    ) -> PricePenalty:
        """The penalty function in the prices."""
        costs = np.where(is_open, self.travellers.smoothed_time(temperature) + values, np.inf)
        follower = self._load(costs, self.alternative, temperature)
        penalised = self._load(costs + cost / gamma, self.alternative + self.revenue / gamma, temperature)
        value = gamma * (penalised.value - follower.value) - float(self.network.demand @ self.network.revenue)
        return PricePenalty(np.asarray(value), gamma * (penalised.flow - follower.flow), follower, penalised)

    def _load(
        self, costs: Float[NDArray, "links"], alternative: Float[NDArray, "origins nodes"], temperature: float
    ) -> Loading:
        found = load_paths(self.travellers.streets, costs, Market(self.demand, alternative), temperature)
        return Loading(np.asarray(found.value), found.flow, found.potential, found.share)

    def capacities(self, capacity: Float[NDArray, "links"], gamma: float, warm: WarmPair | None) -> CapacityPenalty:
        """The penalty function in the capacities, with both answers."""
        values = np.asarray(capacity, dtype=float)
        key = (values.tobytes(), gamma, id(warm))
        if key not in self._known:
            self._known[key] = self._evaluate(values, gamma, warm), warm  # what is kept here keeps its identity
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return self._known[key][0]

    def _evaluate(self, capacity: Float[NDArray, "links"], gamma: float, warm: WarmPair | None) -> CapacityPenalty:
        network, answer = self.network, self.travellers.answer
        own, other = (None, None) if warm is None else warm
        follower = answer(capacity, network.alternative_time, own, TOLERANCE)
        later = network.alternative_time + network.revenue / gamma
        penalised = answer(capacity, later, np.asarray(follower.point.price) if other is None else other, TOLERANCE)
        earned, spent = self.demand * self.revenue, float(network.cost @ capacity)
        # Primal and dual values err in opposite directions.
        worth = [0.5 * (side.value + side.bound) for side in (follower, penalised)]
        return CapacityPenalty(
            value=spent + gamma * (worth[1] - worth[0]) - np.sum(earned),
            gradient=network.cost - gamma * (penalised.point.price - follower.point.price),
            utility=np.sum(earned * follower.point.share) - spent,
            utility_penalised=np.sum(earned * penalised.point.share) - spent,
            follower=follower,
            penalised=penalised,
            warm=WarmPair(np.asarray(follower.point.price), np.asarray(penalised.point.price)),
        )
