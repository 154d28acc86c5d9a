"""The travellers' answer to given capacities, on paths: the prices that fill them, and what is known once these are.

The answer is given by origins, nodes and links, like that of the interior point on links, so that the same equations
judge both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.special import expit, xlogy

from blocc._lib.arrays import Float, NDArray
from blocc.networks.shortest_paths import Trees, shortest_trees, streets_of
from blocc.transport.network.network import TransportNetwork
from blocc.transport.travellers.assignment import AssignmentPoint, LowerLevel
from blocc.transport.travellers.bushes import flow_by_origin
from blocc.transport.travellers.path_loading import Market
from blocc.transport.travellers.price_newton import (
    PriceNewton,
    PricePath,
    PricePoint,
    PriceTask,
    price_path,
    smoothed_time,
)

#: Capacities below this multiple of a market's mean demand are none.
_CLOSED = 1e-10


class PathTravellers:
    """The travellers of one network, who answer to any capacities."""

    def __init__(self, network: TransportNetwork) -> None:
        self.streets = streets_of(network)
        self.time, self.demand = network.time, network.demand
        self.origins, self.row = network.by_origin
        self.destination = network.destination
        positive = network.time[network.time > 0]
        self.time_unit = min(1.0, float(np.median(positive))) if len(positive) else 1.0
        self.most_leaving = int(np.max(np.diff(self.streets.leaving_first), initial=1))

    def at_nodes(self, values: Float[NDArray, "markets"]) -> Float[NDArray, "origins nodes"]:
        """Figures of the markets at (origin, destination)."""
        table = np.zeros((len(self.origins), len(self.streets.through)))
        table[self.row, self.destination] = values
        return table

    def smoothed_time(self, temperature: float) -> Float[NDArray, "links"]:
        """Times with a floor that vanishes with the temperature; on a cycle without one the sum of paths diverges."""
        return smoothed_time(self.time, temperature, self.most_leaving)

    def answer(
        self,
        capacity: Float[NDArray, "links"],
        alternative: Float[NDArray, "markets"],
        warm: PricePath | None = None,
        tolerance: float = 1e-9,
        stop: Callable[[], bool] = lambda: False,
    ) -> tuple[LowerLevel, PricePath]:
        """Who travels where at these capacities, with these times of the existing network, and how prices got there.

        :param warm: the path of a problem nearby
        :param stop: asked now and then whether to end with what is there; the error then says how far that is
        """
        own = _Answer(self, capacity, alternative)
        if not own.able.any():
            return own.conclude(None, 0), price_path([], len(self.time))
        newton = PriceNewton(own.task, warm, tolerance, stop)
        return own.conclude(newton.run(), newton.iterations), newton.path


class _Answer:
    """One lower level."""

    def __init__(
        self, travellers: PathTravellers, capacity: Float[NDArray, "links"], alternative: Float[NDArray, "markets"]
    ) -> None:
        self.travellers, self.alternative = travellers, alternative
        some = travellers.demand > 0.0
        self.unit = float(travellers.demand[some].mean()) if some.any() else 1.0
        self.demand = travellers.demand / self.unit
        # Nobody can fill a link beyond the whole demand; so much room is as good as any.
        whole = np.minimum(capacity / self.unit, 2.0 * self.demand.sum() + 1.0)
        open_links = np.flatnonzero(whole > _CLOSED)
        position = np.full(len(capacity), -1, dtype=np.int32)
        position[open_links] = np.arange(len(open_links))
        nothing, figures = np.zeros(0), (travellers.streets, travellers.time, travellers.time_unit)
        scales = 1.0 + float(self.demand.max(initial=0.0)), 1.0 + float(travellers.time.max(initial=0.0))
        links = whole, open_links, position
        self.task = PriceTask(*figures, travellers.most_leaving, *links, Market(nothing, nothing), scales)
        cost = self._trees(np.zeros(len(open_links))).cost[travellers.row, travellers.destination]
        self.able = some & np.isfinite(cost)  # the markets that can travel
        own = travellers.at_nodes(np.where(self.able, self.demand, 0.0))
        self.task = replace(self.task, market=Market(own, travellers.at_nodes(alternative)))

    def _trees(self, price: Float[NDArray, "open_links"]) -> Trees:
        return shortest_trees(self.travellers.streets, self.task.costs(price, 0.0))

    def conclude(self, found: PricePoint | None, iterations: int) -> LowerLevel:
        """The answer at these prices, whether they are right or not."""
        travellers, streets, task = self.travellers, self.travellers.streets, self.task
        own_price = np.zeros(len(task.open_links)) if found is None else found.price
        trees = self._trees(own_price)
        reached = np.isfinite(trees.cost)
        reached[np.arange(len(travellers.origins)), travellers.origins] = False
        potential = np.where(reached, trees.cost, 0.0)
        price = np.zeros(len(travellers.time))
        price[task.open_links] = own_price
        at_home = streets.tail == streets.origin[:, None]
        links = (task.position >= 0) & (streets.through[streets.tail] & reached[:, streets.tail] | at_home)
        links &= streets.head != streets.origin[:, None]
        rise = potential[:, streets.head] - potential[:, streets.tail]
        reduced = np.where(links, np.maximum(travellers.time + price - rise, 0.0), 1.0)
        alternative = travellers.at_nodes(self.alternative)
        somebody = reached & (task.market.demand > 0.0)
        share, taken = np.where(somebody, expit(alternative - potential), 0.0), np.zeros_like(potential)
        flow = np.zeros(reduced.shape)
        if found is not None:
            flow, taken = flow_by_origin(found.bushes, task.change(found.offset, found.bushes.temperature), task.market)
        slack = np.where(task.position >= 0, task.whole, 1.0)
        slack[task.open_links] = np.maximum(task.capacity - flow.sum(axis=0)[task.open_links], 0.0)
        error = self._error(flow, reduced, price, share - taken)
        value, bound = self._values(flow, taken, price, potential)
        nothing = np.zeros_like(potential)
        answer = AssignmentPoint(
            flow=self.unit * flow,
            reduced_cost=reduced,
            price=price,
            slack=self.unit * slack,
            potential=potential,
            share=share,
            stay=np.where(reached, expit(potential - alternative), 1.0),
            low=nothing,
            high=nothing,
        )
        numbers = np.asarray(value), np.asarray(bound), np.asarray(error), np.asarray(iterations)
        return LowerLevel(answer, *numbers, reached, links)

    def _error(self, flow: NDArray, reduced: NDArray, price: NDArray, apart: NDArray) -> float:
        """The largest residual, relative to the network's scales."""
        (passengers, time), task = self.task.scales, self.task
        slack = task.whole - flow.sum(axis=0)
        count = max(1, len(task.open_links) + int(self.able.sum()))
        parts = (
            float(np.max(-slack, initial=0.0)) / passengers,
            float(np.max(np.abs(task.market.demand * apart), initial=0.0)) / passengers,
            float(np.sum(flow * reduced)) / count / (passengers * time),
            float(price @ np.abs(slack)) / count / (passengers * time),
        )
        return max(parts)

    def _values(self, flow: NDArray, share: NDArray, price: NDArray, potential: NDArray) -> tuple[float, float]:
        """The objective at the flows, and the dual objective at the prices: nothing can be cheaper."""
        everyone = float(self.demand @ (self.alternative - 1.0))
        demand, alternative = self.task.market
        choice = xlogy(share, share) + xlogy(1.0 - share, 1.0 - share) - alternative * share
        value = everyone + float(self.travellers.time @ flow.sum(axis=0) + np.sum(demand * choice))
        gain = float(np.sum(demand * np.logaddexp(0.0, alternative - potential)))
        return self.unit * value, self.unit * (everyone - gain - float(price @ self.task.whole))
