"""The penalty function by the engine on paths: for networks with hundreds of nodes and thousands of links."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Bool, Float, Int, NDArray
from blocc._lib.compiled import counted_as_compilation
from blocc.networks.kernels import both
from blocc.networks.shortest_paths import unknown_orders
from blocc.transport.design.model import CapacityPenalty
from blocc.transport.design.prices import Loading, PricePenalty
from blocc.transport.network.generators import grid_network
from blocc.transport.network.network import TransportNetwork
from blocc.transport.travellers.assignment import LowerLevel
from blocc.transport.travellers.path_assignment import PathTravellers
from blocc.transport.travellers.path_loading import Market, load_paths
from blocc.transport.travellers.price_newton import PricePath, known_prices

#: Accuracy to which the lower level is solved, relative to the network's scales.
TOLERANCE = 1e-9
#: Origins times nodes and links from which on both sides of an evaluation in the prices are computed at once.
_WORTH_A_HELPER = 20_000
#: Evaluations in the capacities that are remembered: a search asks for the same one several times.
_REMEMBERED = 3


class WarmPair(NamedTuple):
    """The ways of both sides' prices, where the next evaluation begins."""

    follower: PricePath
    penalised: PricePath


@cache
def _rehearse() -> None:
    """Have every kernel compiled, or read from where it is kept, on four nodes: no run's time is spent on that."""
    network = grid_network(2, 2)
    with counted_as_compilation():
        own = PathTravellers(network)
        answer, _ = own.answer(network.demand.mean() * np.ones(network.n_links), network.alternative_time)
        market = Market(own.at_nodes(network.demand), own.at_nodes(network.alternative_time))
        load_paths(own.streets, network.time + np.asarray(answer.point.price), market, 0.1, unknown_orders(own.streets))


class PathEngine:
    """Dijkstra's algorithm and columns in place of dense arrays."""

    def __init__(self, network: TransportNetwork) -> None:
        _rehearse()
        self.network = network
        self._own = PathTravellers(network)
        self.demand = self._own.at_nodes(network.demand)
        self.alternative = self._own.at_nodes(network.alternative_time)
        self.revenue = self._own.at_nodes(network.revenue)
        #: Orders of the nodes that evaluations have left behind; several threads may evaluate at once.
        self._orders: list[tuple[Int[NDArray, "origins nodes"], Int[NDArray, "origins nodes"]]] = []
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
        costs = np.where(is_open, self._own.smoothed_time(temperature) + values, np.inf)
        try:
            orders = self._orders.pop()
        except IndexError:
            orders = unknown_orders(self._own.streets), unknown_orders(self._own.streets)
        raised, better = costs + cost / gamma, self.alternative + self.revenue / gamma
        follower, penalised = both(
            lambda: self._load(costs, self.alternative, temperature, orders[0]),
            lambda: self._load(raised, better, temperature, orders[1]),
            at_once=self.demand.size + len(self.demand) * len(values) >= _WORTH_A_HELPER,
        )
        self._orders.append(orders)
        value = gamma * (penalised.value - follower.value) - float(self.network.demand @ self.network.revenue)
        return PricePenalty(np.asarray(value), gamma * (penalised.flow - follower.flow), follower, penalised)

    def _load(
        self,
        costs: Float[NDArray, "links"],
        alternative: Float[NDArray, "origins nodes"],
        temperature: float,
        orders: Int[NDArray, "origins nodes"],
    ) -> Loading:
        found = load_paths(self._own.streets, costs, Market(self.demand, alternative), temperature, orders)
        return Loading(np.asarray(found.value), found.flow, found.potential, found.share)

    def capacities(
        self, capacity: Float[NDArray, "links"], gamma: float, warm: WarmPair | None, stop: Callable[[], bool]
    ) -> CapacityPenalty:
        """The penalty function in the capacities, with both answers."""
        values = np.asarray(capacity, dtype=float)
        key = (values.tobytes(), gamma, id(warm))
        if (known := self._known.get(key)) is not None:
            return known[0]
        found = self._evaluate(values, gamma, warm, stop)
        if not stop():
            self._known[key] = found, warm  # what is kept here keeps its identity
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return found

    def _answers(
        self,
        capacity: Float[NDArray, "links"],
        penalised: Float[NDArray, "markets"],
        warm: WarmPair | None,
        stop: Callable[[], bool],
    ) -> tuple[tuple[LowerLevel, PricePath], tuple[LowerLevel, PricePath]]:
        """The follower's answer, and that to other times of the existing network: side by side, or one by the other."""
        answer, own = self._own.answer, self.network.alternative_time
        if warm is None:
            first = answer(capacity, own, None, TOLERANCE, stop)
            return first, answer(capacity, penalised, first[1], TOLERANCE, stop)
        with ThreadPoolExecutor(1, thread_name_prefix="blocc-answer") as aside:
            second = aside.submit(answer, capacity, penalised, warm.penalised, TOLERANCE, stop)
            return answer(capacity, own, warm.follower, TOLERANCE, stop), second.result()

    def travellers(
        self, capacity: Float[NDArray, "links"], gamma: float, warm: WarmPair | None, stop: Callable[[], bool]
    ) -> LowerLevel:
        """The follower's answer alone."""
        known = None if warm is None else warm.follower
        return self._own.answer(capacity, self.network.alternative_time, known, TOLERANCE, stop)[0]

    def near(self, prices: Float[NDArray, "links"], gamma: float) -> WarmPair:
        """Both prices, as they are related where the search in prices has ended."""
        both = (prices, prices + self.network.cost / gamma)
        return WarmPair(*(known_prices(side, self._own.time_unit, TOLERANCE) for side in both))

    def _evaluate(
        self, capacity: Float[NDArray, "links"], gamma: float, warm: WarmPair | None, stop: Callable[[], bool]
    ) -> CapacityPenalty:
        network = self.network
        ended = self._answers(capacity, network.alternative_time + network.revenue / gamma, warm, stop)
        (follower, own), (penalised, other) = ended
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
            warm=WarmPair(own, other),
        )
