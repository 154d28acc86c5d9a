"""The travellers' answer to given capacities: Newton's method in the prices, while a temperature is lowered.

With D the travellers' least cost when prices p are added to the times, smoothed by a temperature, the prices solve

    minimise over p >= 0 of    sum p x - D(t + p)

The function is convex, its gradient is capacity less flow, and its Hessian is how flows answer to prices. In the limit
flows lie on cheapest paths, no link carries more than its capacity, and links with room have no price: the flows are
the travellers' own. Prices change in proportion to small temperatures, so that those of the next can be foretold from
the two before.

The answer is given by origins, nodes and links, like that of the interior point on links, so that the same equations
judge both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs
from scipy.optimize import minimize
from scipy.special import expit, xlogy

from blocc._lib.arrays import Float, NDArray
from blocc.transport.network.network import TransportNetwork
from blocc.transport.travellers.assignment import AssignmentPoint, LowerLevel
from blocc.transport.travellers.bush_response import response
from blocc.transport.travellers.bushes import Bushes, flow_by_origin, grow_bushes, load_bushes
from blocc.transport.travellers.flows import group_by_origin
from blocc.transport.travellers.path_loading import Market, load_paths
from blocc.transport.travellers.shortest_paths import Trees, shortest_trees, streets_of

#: Capacities below this multiple of a market's mean demand are none.
_CLOSED = 1e-10
#: Temperatures of the first ascent, in units of a link's time, and evaluations at each.
_TEMPERATURES, _EVALUATIONS = (0.05, 0.01), 40
#: Temperatures, likewise, at which prices of a problem nearby may serve, and how much of the capacity they may miss.
_WARM, _MISSED = (1e-5, 1e-4, 1e-3, 1e-2), 0.01
#: Links that flows miss have about so many temperatures to go in one step: farther away Newton's matrix says nothing.
#: After a whole step they have more, by the inverse of the second number.
_FAR, _LOOSER = 10.0, 0.1
#: Flows that miss no capacity by more than this part of it are good enough for lower temperatures.
#: Bushes that are made anew change flows by rounding.
_CLOSE, _ROUNDING = 1e-6, 1e-14
#: Temperatures fall by this factor at first, and by factors between these.
_FACTOR, _FASTEST, _SLOWEST = 0.3, 0.1, 0.7
#: Most steps at one temperature, and at all of them.
_MOST_STEPS, _MOST_ITERATIONS = 25, 250
#: At the last temperature, so many steps that do not halve an excess that is small already, and rounding is reached.
_PATIENCE, _SMALL = 8, 1e-4
#: So many capacities are added to the diagonal of Newton's matrix, because prices of links in a row are known in their
#: sum alone; more, relatively to the whole, where it is not positive definite in floating point.
_RIDGE, _MORE = 1e-4, (0.0, 1e-11, 1e-9, 1e-7, 1e-4, 1e-1)
#: Bushes serve for prices that differ by so many temperatures; at the last for more, since new ones are rounded anew.
_KEPT = 1.0, 20.0
#: Prices of so many temperatures are rounding.
_NOTHING = 1e-9
#: Most changes of which prices are 0 in one step.
_MOST_PIVOTS = 12


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


class _Point(NamedTuple):
    """Prices, and what the travellers do at them."""

    bushes: Bushes
    base: Float[NDArray, "open_links"]  #: prices of the bushes
    offset: Float[NDArray, "open_links"]  #: prices less these, kept apart because it may be less than their rounding
    excess: Float[NDArray, "open_links"]  #: by how much flow exceeds capacity: the way to go

    @property
    def price(self) -> Float[NDArray, "open_links"]:
        """The prices."""
        return self.base + self.offset


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
        self.demand = travellers.demand / self.unit
        # Nobody can fill a link beyond the whole demand; so much room is as good as any.
        self.whole = np.minimum(capacity / self.unit, 2.0 * self.demand.sum() + 1.0)
        self.open_links = np.flatnonzero(self.whole > _CLOSED)
        self.position = np.full(len(capacity), -1, dtype=np.int32)
        self.position[self.open_links] = np.arange(len(self.open_links))
        self.capacity = self.whole[self.open_links]
        self.iterations = 0
        self.last = tolerance * travellers.time_unit  #: temperature
        cost = self._trees(np.zeros(len(self.open_links))).cost[travellers.row, travellers.destination]
        self.able = some & np.isfinite(cost)  # the markets that can travel
        own = travellers.at_nodes(np.where(self.able, self.demand, 0.0))
        self.market = Market(own, travellers.at_nodes(alternative))
        self.scales = 1.0 + float(self.demand.max(initial=0.0)), 1.0 + float(travellers.time.max(initial=0.0))

    def run(self) -> LowerLevel:
        if not self.able.any():
            return self._conclude(np.zeros(len(self.open_links)), None)
        found = self._cool(self._begin())
        return self._conclude(found.price, found)

    def _trees(self, price: Float[NDArray, "open_links"]) -> Trees:
        return shortest_trees(self.travellers.streets, self._costs(price, 0.0))

    def _costs(self, price: Float[NDArray, "open_links"], temperature: float) -> Float[NDArray, "links"]:
        costs = np.full(len(self.travellers.time), np.inf)
        costs[self.open_links] = self.travellers.smoothed_time(temperature)[self.open_links] + price
        return costs

    # --- first prices ------------------------------------------------------------------------------------------------
    def _begin(self) -> _Point:
        """Prices that are right at some temperature: out of known ones, or of a few steps of ascent."""
        unit = self.travellers.time_unit
        for relative in _WARM if self.warm is not None else ():
            assert self.warm is not None
            point = self._at(np.maximum(self.warm[self.open_links], 0.0), relative * unit)
            if self._missed(point) <= _MISSED:
                steps, found = self._centre(point)
                if steps < _MOST_STEPS:
                    return found
        price = np.zeros(len(self.open_links)) if self.warm is None else self.warm[self.open_links]
        for relative in _TEMPERATURES[self.warm is not None :]:
            price = self._ascend(price, relative * unit)
        return self._at(price, relative * unit)

    def _ascend(self, price: Float[NDArray, "open_links"], temperature: float) -> Float[NDArray, "open_links"]:
        """Raise the dual function of the smoothed problem for a while."""
        streets = self.travellers.streets

        def descent(values: Float[NDArray, "open_links"]) -> tuple[float, Float[NDArray, "open_links"]]:
            found = load_paths(streets, self._costs(values, temperature), self.market, temperature)
            return values @ self.capacity - found.value, self.capacity - found.flow[self.open_links]

        options = {"maxiter": _EVALUATIONS, "maxfun": _EVALUATIONS, "maxcor": 20}
        bounds = [(0.0, float(np.max(self.alternative)) + 10.0)] * len(price)
        return np.asarray(minimize(descent, price, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x)

    # --- Newton's method ---------------------------------------------------------------------------------------------
    def _at(self, price: Float[NDArray, "open_links"], temperature: float) -> _Point:
        """Bushes at these prices, and their load."""
        bushes = grow_bushes(self.travellers.streets, self._costs(price, temperature), temperature)
        return self._moved(_Point(bushes, price, price, price), np.zeros(len(price)))

    def _moved(self, point: _Point, offset: Float[NDArray, "open_links"]) -> _Point:
        """A point not far from the bushes of another, or with bushes of its own."""
        temperature = point.bushes.temperature
        kept = _KEPT[temperature <= self.last]
        if np.max(np.abs(offset)) > kept * temperature:
            return self._at(point.base + offset, temperature)
        load = load_bushes(point.bushes, self._change(offset, temperature), self.market)
        return point._replace(offset=offset, excess=load.flow[self.open_links] - self.capacity)

    def _change(self, offset: Float[NDArray, "open_links"], temperature: float) -> Float[NDArray, "links"]:
        """What is added to the prices of the bushes, in units of the temperature."""
        change = np.zeros(len(self.position))
        change[self.open_links] = offset / temperature
        return change

    def _cool(self, point: _Point) -> _Point:
        """Lower the temperature to the last."""
        steps, now = self._centre(point)
        factor, slope = _FACTOR, self._tangent(now)
        while now.bushes.temperature > self.last and self.iterations < _MOST_ITERATIONS:
            price, temperature = now.price, now.bushes.temperature
            while True:
                following = max(self.last, factor * temperature)
                foretold = self._at(np.maximum(price + (following - temperature) * slope, 0.0), following)
                if factor >= _SLOWEST or self._missed(foretold) <= _MISSED:
                    break
                factor = float(np.sqrt(factor))
            steps, found = self._centre(foretold)
            if steps == _MOST_STEPS and factor < _SLOWEST:
                factor = float(np.sqrt(factor))
                continue
            now, slope = found, (found.price - price) / (following - temperature)
            factor = max(factor**1.5, _FASTEST) if steps <= 4 else factor
        return now

    def _tangent(self, now: _Point) -> Float[NDArray, "open_links"]:
        """How prices follow the temperature."""
        temperature = now.bushes.temperature
        cooler = self._at(now.price, 0.98 * temperature)
        self.iterations += 1
        return self._direction(cooler, 0.0) / (-0.02 * temperature)

    def _missed(self, point: _Point) -> float:
        """How far flows are from what they should be, relatively."""
        return float(np.abs(self._wrong(point)).sum() / self.capacity.sum())

    def _wrong(self, point: _Point) -> Float[NDArray, "open_links"]:
        """The excess, but for links that have room and no price."""
        has_price = point.price > _NOTHING * point.bushes.temperature
        return np.where(has_price | (point.excess > 0.0), point.excess, 0.0)

    def _centre(self, now: _Point) -> tuple[int, _Point]:
        """Minimise at one temperature, exactly at the last; returns the number of steps too."""
        temperature, enough = now.bushes.temperature, 0.3 * self.tolerance * self.scales[0]
        is_last, least, idle, held = temperature <= self.last, np.inf, 0, 1.0 / _FAR
        close = max(_CLOSE, _ROUNDING * self.scales[1] / temperature)
        for count in range(_MOST_STEPS):
            wrong = np.abs(self._wrong(now))
            size = float(np.max(wrong))
            least, idle = (size, 0) if size < 0.5 * least else (least, idle + 1)
            if is_last and (size <= enough or (idle > _PATIENCE and least < _SMALL)):
                return count, now
            if not is_last and np.all(wrong <= close * self.capacity):
                return count, now
            change = self._direction(now, held)
            self.iterations += 1
            step, moved = self._search(now, change)
            if moved is None:
                break
            now = moved
            held = held * _LOOSER if step == 1.0 else min(1.0, held / max(step, 0.2))
        return _MOST_STEPS, now

    def _direction(self, now: _Point, held: float) -> Float[NDArray, "open_links"]:
        """Newton's, to the minimum of the quadratic model over prices that are not negative.

        A term that vanishes where flows fill capacities holds it back: ``held`` is the inverse of how many
        temperatures a price may change by.
        """
        temperature = now.bushes.temperature
        change = self._change(now.offset, temperature)
        matrix = response(now.bushes, change, self.market, self.whole, self.position)
        wrong = np.abs(self._wrong(now))
        diagonal = np.einsum("ii->i", matrix)
        diagonal += wrong * (held / temperature)
        diagonal += _RIDGE * self.capacity
        least, excess = -now.price, now.excess
        free, best = (least < 0.0) | (excess > 0.0), np.zeros(len(least))
        symmetric = matrix + np.tril(matrix, -1).T
        for _ in range(_MOST_PIVOTS):
            best = np.where(free, 0.0, least)
            slope = excess - symmetric @ best
            if free.any():
                best[free] = _solve(symmetric[np.ix_(free, free)], slope[free])
            slope = excess - symmetric @ best
            following = np.where(free, best >= least, slope > 0.0)
            if np.array_equal(following, free):
                break
            free = following
        return np.maximum(best, least)

    def _search(self, now: _Point, change: Float[NDArray, "open_links"]) -> tuple[float, _Point | None]:
        """A step that has not gone far too far, and where it leads.

        The function is convex, so that it is lower wherever it still falls. Slopes tell more than values: at low
        temperatures what a step gains is less than the rounding of the whole.
        """
        step = 1.0
        while step > 1e-9:
            move = step * change
            trial = self._moved(now, now.offset + move)
            before, after = float(now.excess @ move), float(trial.excess @ move)
            if before > 0.0 and after >= -0.5 * before:
                return step, trial
            step *= float(np.clip(before / (before - after), 0.1, 0.7)) if before > 0.0 else 0.1
        return step, None

    # --- the answer --------------------------------------------------------------------------------------------------
    def _conclude(self, own_price: Float[NDArray, "open_links"], found: _Point | None) -> LowerLevel:
        travellers, streets = self.travellers, self.travellers.streets
        trees = self._trees(own_price)
        reached = np.isfinite(trees.cost)
        reached[np.arange(len(travellers.origins)), travellers.origins] = False
        potential = np.where(reached, trees.cost, 0.0)
        price = np.zeros(len(travellers.time))
        price[self.open_links] = own_price
        at_home = streets.tail == streets.origin[:, None]
        links = (self.position >= 0) & (streets.through[streets.tail] & reached[:, streets.tail] | at_home)
        links &= streets.head != streets.origin[:, None]
        rise = potential[:, streets.head] - potential[:, streets.tail]
        reduced = np.where(links, np.maximum(travellers.time + price - rise, 0.0), 1.0)
        alternative = travellers.at_nodes(self.alternative)
        somebody = reached & (self.market.demand > 0.0)
        share, taken = np.where(somebody, expit(alternative - potential), 0.0), np.zeros_like(potential)
        flow = np.zeros(reduced.shape)
        if found is not None:
            change = self._change(found.offset, found.bushes.temperature)
            flow, taken = flow_by_origin(found.bushes, change, self.market)
        slack = np.where(self.position >= 0, self.whole, 1.0)
        slack[self.open_links] = np.maximum(self.capacity - flow.sum(axis=0)[self.open_links], 0.0)
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
        numbers = np.asarray(value), np.asarray(bound), np.asarray(error), np.asarray(self.iterations)
        return LowerLevel(answer, *numbers, reached, links)

    def _error(self, flow: NDArray, reduced: NDArray, price: NDArray, apart: NDArray) -> float:
        """The largest residual, relative to the network's scales."""
        passengers, time = self.scales
        slack = self.whole - flow.sum(axis=0)
        count = max(1, len(self.open_links) + int(self.able.sum()))
        parts = (
            float(np.max(-slack, initial=0.0)) / passengers,
            float(np.max(np.abs(self.market.demand * apart), initial=0.0)) / passengers,
            float(np.sum(flow * reduced)) / count / (passengers * time),
            float(price @ np.abs(slack)) / count / (passengers * time),
        )
        return max(parts)

    def _values(self, flow: NDArray, share: NDArray, price: NDArray, potential: NDArray) -> tuple[float, float]:
        """The objective at the flows, and the dual objective at the prices: nothing can be cheaper."""
        everyone = float(self.demand @ (self.alternative - 1.0))
        demand, alternative = self.market
        choice = xlogy(share, share) + xlogy(1.0 - share, 1.0 - share) - alternative * share
        value = everyone + float(self.travellers.time @ flow.sum(axis=0) + np.sum(demand * choice))
        gain = float(np.sum(demand * np.logaddexp(0.0, alternative - potential)))
        return self.unit * value, self.unit * (everyone - gain - float(price @ self.whole))


def _solve(matrix: Float[NDArray, "n n"], right: Float[NDArray, "n"]) -> Float[NDArray, "n"]:
    """Solve with a positive definite matrix, or with one that nearly is."""
    diagonal = np.einsum("ii->i", matrix)
    whole = diagonal.copy()
    for more in _MORE:
        diagonal[:] = (1.0 + more) * whole
        factor, info = dpotrf(matrix, lower=1, overwrite_a=0)
        if info == 0:
            return np.asarray(dpotrs(factor, right, lower=1)[0])
    return right / whole
