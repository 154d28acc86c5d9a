"""The travellers' answer to given capacities on paths: an interior point on columns, generated as they are needed.

Prices come first, from a few steps of ascent of the dual function, smoothed as in the search in prices. The cheapest
paths at those prices are the first columns. Then every step of the interior point is followed by Dijkstra's algorithm
at its prices, and paths that are cheaper than all known ones of their market become columns. A column that comes late
would find the iteration close to the boundary, so the iteration goes back to where it was well inside.

At the end no path is cheaper than the columns, which Dijkstra's algorithm shows. The answer is given by origins, nodes
and links, like that of the interior point on links, so that the same equations judge both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, xlogy

from blocc._lib.arrays import Float, Int, NDArray
from blocc.transport.network.network import TransportNetwork
from blocc.transport.travellers.assignment import AssignmentPoint, LowerLevel
from blocc.transport.travellers.columns import Columns, cheapest_columns
from blocc.transport.travellers.flows import group_by_origin
from blocc.transport.travellers.path_loading import Market, load_paths
from blocc.transport.travellers.path_newton import PathCase, PathPoint, centred, corrected_step, with_columns
from blocc.transport.travellers.shortest_paths import Trees, shortest_trees, streets_of

#: Capacities below this multiple of a market's mean demand are none.
_CLOSED = 1e-10
#: Temperatures of the first ascent, in units of a link's time, and evaluations at each.
_TEMPERATURES, _EVALUATIONS = (0.05, 0.01), 40
#: The least reduced cost at the first point.
_ROOM = 0.3
#: A column whose reduced cost is this many times the complementary products below 0 has come late.
_LATE = 100.0
_MOST_ITERATIONS = 150
#: So many steps that do not lower an error that is small already to this multiple of the least so far, and rounding has
#: been reached.
_PATIENCE, _PROGRESS, _SMALL = 6, 0.7, 1e-4


class _Snapshot(NamedTuple):
    """A point of the iteration with its columns."""

    case: PathCase
    point: PathPoint
    product: float  #: its mean complementary product


class PathTravellers:
    """The travellers of one network, who answer to any capacities."""

    def __init__(self, network: TransportNetwork) -> None:
        self.streets = streets_of(network)
        self.time, self.demand = network.time, network.demand
        self.origins, self.row = group_by_origin(network)
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
        return np.maximum(self.time, temperature * (1.0 + np.log(self.most_leaving)))

    def answer(
        self,
        capacity: Float[NDArray, "links"],
        alternative: Float[NDArray, "markets"],
        warm: Float[NDArray, "links"] | None = None,
        tolerance: float = 1e-9,
    ) -> LowerLevel:
        """Who travels where at these capacities, with these times of the existing network.

        :param warm: prices of a problem nearby
        """
        return _Answer(self, capacity, alternative, warm, tolerance).run()


class _Answer:
    """One lower level."""

    def __init__(
        self,
        travellers: PathTravellers,
        capacity: Float[NDArray, "links"],
        alternative: Float[NDArray, "markets"],
        warm: Float[NDArray, "links"] | None,
        tolerance: float,
    ) -> None:
        self.travellers, self.alternative, self.warm, self.tolerance = travellers, alternative, warm, tolerance
        some = travellers.demand > 0.0
        self.unit = float(travellers.demand[some].mean()) if some.any() else 1.0
        demand = travellers.demand / self.unit
        # Nobody can fill a link beyond the whole demand; so much room is as good as any.
        self.capacity = np.minimum(capacity / self.unit, 2.0 * demand.sum() + 1.0)
        self.open_links = np.flatnonzero(self.capacity > _CLOSED)
        self.position = np.full(len(capacity), -1, dtype=np.int32)
        self.position[self.open_links] = np.arange(len(self.open_links))
        self.time = travellers.time[self.open_links]
        self.iterations = 0
        cost = self._trees(np.zeros(len(self.open_links))).cost[travellers.row, travellers.destination]
        self.markets = np.flatnonzero(some & np.isfinite(cost))  # those that can travel
        self.row, self.destination = travellers.row[self.markets], travellers.destination[self.markets]
        self.own_demand, self.own_alternative = demand[self.markets], alternative[self.markets]
        self.scales = 1.0 + float(demand.max(initial=0.0)), 1.0 + float(travellers.time.max(initial=0.0))

    def run(self) -> LowerLevel:
        if not len(self.markets):
            nobody = np.zeros(0)
            empty = Columns(np.zeros(0, dtype=np.int64), np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int32), 0, 0)
            price = np.zeros(len(self.open_links))
            point = PathPoint(nobody, nobody, price, self.capacity[self.open_links], *[nobody] * 5)
            return self._conclude(_Snapshot(self._case(empty), point, 0.0), 0.0)
        price = np.maximum(self._ascend(), 1e-3 * _ROOM)
        trees = self._trees(price)
        columns = self._cheapest(trees, np.arange(len(self.markets)))
        case = self._case(columns)
        start = centred(case, price, trees.cost[self.row, self.destination], _ROOM)
        return self._conclude(*self._iterate(_Snapshot(case, start, case.average(start))))

    # --- columns -----------------------------------------------------------------------------------------------------
    def _trees(self, price: Float[NDArray, "open_links"]) -> Trees:
        costs = np.full(len(self.travellers.time), np.inf)
        costs[self.open_links] = self.time + price
        return shortest_trees(self.travellers.streets, costs)

    def _cheapest(self, trees: Trees, which: Int[NDArray, "chosen"]) -> Columns:
        found = cheapest_columns(self.travellers.streets, trees, self.row, self.destination, which)
        return self._within(found)

    def _within(self, columns: Columns) -> Columns:
        """Columns with the positions of their links among the open ones."""
        links = self.position[columns.links]
        return Columns(columns.market, columns.first, links, columns.n_markets, len(self.open_links))

    def _case(self, columns: Columns) -> PathCase:
        capacity = self.capacity[self.open_links]
        return PathCase(columns, self.time, capacity, self.own_demand, self.own_alternative, self.scales)

    # --- first prices ------------------------------------------------------------------------------------------------
    def _ascend(self) -> Float[NDArray, "open_links"]:
        """Raise the dual function of the smoothed problem for a while, from prices of 0 or from known ones."""
        travellers, capacity = self.travellers, self.capacity[self.open_links]
        price = np.zeros(len(self.open_links)) if self.warm is None else self.warm[self.open_links]
        market = Market(travellers.at_nodes(travellers.demand / self.unit), travellers.at_nodes(self.alternative))
        ceiling = float(np.max(self.own_alternative)) + 10.0
        for relative in _TEMPERATURES[self.warm is not None :]:
            temperature = relative * travellers.time_unit
            time = travellers.smoothed_time(temperature)[self.open_links]

            def descent(
                values: Float[NDArray, "open_links"], time: NDArray = time, temperature: float = temperature
            ) -> tuple[float, Float[NDArray, "open_links"]]:
                costs = np.full(len(travellers.time), np.inf)
                costs[self.open_links] = time + values
                found = load_paths(travellers.streets, costs, market, temperature)
                return values @ capacity - found.value, capacity - found.flow[self.open_links]

            options = {"maxiter": _EVALUATIONS, "maxfun": _EVALUATIONS, "maxcor": 20}
            bounds = [(0.0, ceiling)] * len(price)
            price = minimize(descent, price, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
        return price

    # --- the iteration -----------------------------------------------------------------------------------------------
    def _iterate(self, now: _Snapshot) -> tuple[_Snapshot, float]:
        """The best point met at which no path is missing, and its error."""
        best, least, idle = now, np.inf, 0
        earlier: list[_Snapshot] = []
        while self.iterations < _MOST_ITERATIONS:
            moved = corrected_step(now.case, now.point)
            self.iterations += 1
            if moved is None:
                break
            now = _Snapshot(now.case, moved, now.case.average(moved))
            error = now.case.error(moved)
            missing, short = self._missing(now, max(self.tolerance * self.scales[1], now.product))
            if error < _PROGRESS * least or error > _SMALL:
                idle = 0
            else:
                idle += 1
            if missing is None:
                if error < least:
                    best, least = now, error
                if error <= self.tolerance or idle >= _PATIENCE:
                    missing, short = self._missing(now, self.tolerance * self.scales[1])
                    if missing is None:
                        break
            if missing is None:
                if now.product > 1e-8:
                    earlier.append(now)
                continue
            wider = self._case(now.case.columns.joined(missing)[0])
            if short > _LATE * now.product and earlier:
                inside = [one for one in earlier if _LATE * one.product >= min(short, 1.0)] or earlier[:1]
                now, earlier = inside[-1], inside[:-1]
            point = with_columns(now.case, now.point, wider)
            now, least, idle = _Snapshot(wider, point, now.product), np.inf, 0
        return best, least

    def _missing(self, now: _Snapshot, allowed: float) -> tuple[Columns | None, float]:
        """Paths that are cheaper, by more than is allowed, than all known ones of their market; and by how much."""
        # A link with room to spare will have no price in the end; paths over it are found before that.
        price = now.point.price**2 / (now.point.price + now.point.slack)
        trees = self._trees(price)
        known = now.case.columns.least(now.case.times + now.case.columns.costs(price))
        short = known - trees.cost[self.row, self.destination]
        which = np.flatnonzero(short > allowed)
        return (self._cheapest(trees, which) if len(which) else None), float(np.max(short, initial=0.0))

    # --- the answer --------------------------------------------------------------------------------------------------
    def _conclude(self, found: _Snapshot, error: float) -> LowerLevel:
        travellers, case, point = self.travellers, found.case, found.point
        streets, columns = travellers.streets, case.columns
        trees = self._trees(point.price)
        reached = np.isfinite(trees.cost)
        reached[np.arange(len(travellers.origins)), travellers.origins] = False
        potential = np.where(reached, trees.cost, 0.0)
        price = np.zeros(len(travellers.time))
        price[self.open_links] = point.price
        at_home = streets.tail == streets.origin[:, None]
        links = (self.position >= 0) & (streets.through[streets.tail] & reached[:, streets.tail] | at_home)
        links &= streets.head != streets.origin[:, None]
        rise = potential[:, streets.head] - potential[:, streets.tail]
        alternative = travellers.at_nodes(self.alternative)
        everywhere = self._everywhere(columns, self.markets)
        value, bound = self._values(case, point, trees.cost[self.row, self.destination])
        slack = np.where(self.position >= 0, self.capacity, 1.0)
        slack[self.open_links] = point.slack
        nothing = np.zeros_like(potential)
        answer = AssignmentPoint(
            flow=self.unit * everywhere.flow_by_origin(point.flow, travellers.row, len(travellers.origins)),
            reduced_cost=np.where(links, np.maximum(travellers.time + price - rise, 0.0), 1.0),
            price=price,
            slack=self.unit * slack,
            potential=potential,
            share=np.where(reached, expit(alternative - potential), 0.0),
            stay=np.where(reached, expit(potential - alternative), 1.0),
            low=nothing,
            high=nothing,
        )
        numbers = np.asarray(value), np.asarray(bound), np.asarray(error), np.asarray(self.iterations)
        return LowerLevel(answer, *numbers, reached, links)

    def _everywhere(self, columns: Columns, markets: Int[NDArray, "own_markets"]) -> Columns:
        """Columns with the numbers of links and markets in the network."""
        links = self.open_links[columns.links].astype(np.int32)
        return Columns(markets[columns.market], columns.first, links, len(self.alternative), len(self.position))

    def _values(self, case: PathCase, point: PathPoint, cheapest: Float[NDArray, "markets"]) -> tuple[float, float]:
        """The objective at the flows, and the dual objective at the prices: nothing can be cheaper."""
        demand = self.travellers.demand / self.unit
        everyone = float(demand @ (self.alternative - 1.0))
        share = np.clip(case.columns.totals(point.flow) / case.demand, 0.0, 1.0)
        choice = xlogy(share, share) + xlogy(1.0 - share, 1.0 - share) - case.alternative * share
        value = everyone + float(case.times @ point.flow + case.demand @ choice)
        gain = float(case.demand @ np.logaddexp(0.0, case.alternative - cheapest))
        return self.unit * value, self.unit * (everyone - gain - float(point.price @ case.capacity))
