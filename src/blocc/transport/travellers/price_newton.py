"""Newton's method in the prices of links, while a temperature is lowered: prices at which flows fill the capacities.

With D the travellers' least cost when prices p are added to the times, smoothed by a temperature, the prices solve

    minimise over p >= 0 of    sum p x - D(t + p)

The function is convex, its gradient is capacity less flow, and its Hessian is how flows answer to prices. In the limit
flows lie on cheapest paths, no link carries more than its capacity, and links with room have no price: the flows are
the travellers' own. Prices change in proportion to small temperatures, so that those of the next can be predicted from
the two before, or from the path of a problem nearby.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dsymv
from scipy.linalg.lapack import dpotrf, dpotrs
from scipy.optimize import minimize

from blocc._lib.arrays import Float, Int, NDArray
from blocc.networks.shortest_paths import Streets, shortest_trees, unknown_orders
from blocc.transport.travellers.bush_response import response
from blocc.transport.travellers.bushes import Bushes, grow_bushes, load_bushes
from blocc.transport.travellers.path_loading import Market, load_paths
from blocc.transport.travellers.price_path import PricePath, price_path

#: Temperatures of the first ascent, in units of a link's time, and evaluations at each.
_TEMPERATURES, _EVALUATIONS = (0.05, 0.01), 40
#: How much of the capacity predicted prices may miss, and known ones that serve at the last temperature.
_MISSED, _RIGHT = 0.01, 1e-9
#: Known prices serve at temperatures of which they are, in the mean over the capacities, no more than so many away, and
#: lead the way to temperatures that are lower by no more than the second number.
_NEAR, _FARTHEST = 20.0, 0.05
#: Links that flows miss have about so many temperatures to go in one step: farther away Newton's matrix says nothing.
#: After a whole step they have more, by the inverse of the second number.
_FAR, _LOOSER = 10.0, 0.1
#: Flows that miss no capacity by more than this part of it are good enough for lower temperatures.
#: Bushes that are made anew change flows by rounding.
_CLOSE, _ROUNDING = 1e-6, 1e-14
#: Temperatures fall by this factor at first, and by factors between these.
_FACTOR, _FASTEST, _SLOWEST = 0.3, 0.1, 0.7
#: Most steps at one temperature, and at all of them.
_MOST_STEPS, _MOST_ITERATIONS = 25, 150
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


class PricePoint(NamedTuple):
    """Prices, and what the travellers do at them."""

    bushes: Bushes
    base: Float[NDArray, "open_links"]  #: prices of the bushes
    offset: Float[NDArray, "open_links"]  #: prices less these, kept apart because it may be less than their rounding
    excess: Float[NDArray, "open_links"]  #: by how much flow exceeds capacity: the way to go

    @property
    def price(self) -> Float[NDArray, "open_links"]:
        """The prices."""
        return self.base + self.offset


@dataclass(frozen=True)
class PriceTask:
    """Capacities to be filled, in units of a market's mean demand."""

    streets: Streets
    time: Float[NDArray, "links"]
    time_unit: float
    most_leaving: int  #: links that leave one node
    whole: Float[NDArray, "links"]  #: capacities, also of closed links
    open_links: Int[NDArray, "open_links"]
    position: Int[NDArray, "links"]  #: of each link among the open ones, or -1
    market: Market
    scales: tuple[float, float]  #: of passengers and of times

    @property
    def capacity(self) -> Float[NDArray, "open_links"]:
        """Capacities of the open links."""
        return self.whole[self.open_links]

    def costs(self, price: Float[NDArray, "open_links"], temperature: float) -> Float[NDArray, "links"]:
        """What passing each link costs, infinite where it is closed."""
        costs = np.full(len(self.time), np.inf)
        costs[self.open_links] = smoothed_time(self.time, temperature, self.most_leaving)[self.open_links] + price
        return costs

    def change(self, offset: Float[NDArray, "open_links"], temperature: float) -> Float[NDArray, "links"]:
        """What is added to the prices of bushes, in units of the temperature."""
        change = np.zeros(len(self.time))
        change[self.open_links] = offset / temperature
        return change


def smoothed_time(time: Float[NDArray, "links"], temperature: float, most_leaving: int) -> Float[NDArray, "links"]:
    """Times with a floor that vanishes with the temperature; on a cycle without one the sum of paths diverges."""
    return np.maximum(time, temperature * (1.0 + np.log(most_leaving)))


class PriceNewton:
    """One search for prices.

    :param warm: the path of a problem nearby
    :param stop: asked between steps whether to end with what is there
    """

    def __init__(self, task: PriceTask, warm: PricePath | None, tolerance: float, stop: Callable[[], bool]) -> None:
        self.task, self._warm, self.tolerance, self.stop = task, warm, tolerance, stop
        known = [] if warm is None else warm.steps()
        #: Temperatures and prices of the problem nearby, the hottest first; those that lie ahead, once it is joined.
        self._guide = [(temperature, price[task.open_links]) for temperature, price in known]
        #: The way so far, and before it that of the problem nearby, up to where it was joined.
        self._steps: list[tuple[float, Float[NDArray, "links"]]] = []
        self.iterations = 0
        self.last = tolerance * task.time_unit  #: temperature
        self._orders = unknown_orders(task.streets)  #: of the nodes at the prices that were looked at last

    def run(self) -> PricePoint:
        """Prices, and what the travellers do at them."""
        return self._cool(self._begin())

    @property
    def path(self) -> PricePath:
        """The way that was taken."""
        return price_path(self._steps, len(self.task.time))

    # --- first prices ------------------------------------------------------------------------------------------------
    def _begin(self) -> PricePoint:
        """Prices that are right at some temperature: out of known ones, or of a few steps of ascent."""
        hot_enough = 0.0
        for place in reversed(range(len(self._guide))):
            temperature, price = self._guide[place]
            if temperature < hot_enough:
                continue
            point = self._at(self._with_opened(price, temperature), temperature)
            missed, is_last = self._missed(point), temperature <= self.last
            if missed > (_RIGHT if is_last else _MISSED):  # at the last one prices serve where they are right already
                continue
            if not is_last:
                self.iterations += 1
                hot_enough = float(np.average(np.abs(self._direction(point, 0.0)), weights=self.task.capacity)) / _NEAR
                if temperature < hot_enough:
                    continue
            steps, found = self._centre(point)
            if steps < _MOST_STEPS:
                assert self._warm is not None
                self._steps, self._guide = self._warm.steps()[:place], self._guide[place:]
                return found
        warmest, self._guide = self._guide[:1], []
        price = np.zeros(len(self.task.open_links))
        for temperature, known in warmest:
            price = self._with_opened(known, temperature)
        for relative in _TEMPERATURES[len(warmest) :]:
            price = self._ascend(price, relative * self.task.time_unit)
        return self._at(price, relative * self.task.time_unit)

    def _with_opened(self, price: Float[NDArray, "open_links"], temperature: float) -> Float[NDArray, "open_links"]:
        """Known prices, and for links that were closed then, those that just nobody pays."""
        price, is_new = np.maximum(price, 0.0), np.isnan(price)
        if is_new.any():
            links, streets = self.task.open_links[is_new], self.task.streets
            price[is_new] = np.inf
            cost = shortest_trees(streets, self.task.costs(price, temperature)).cost
            before, beyond = cost[:, streets.tail[links]], cost[:, streets.head[links]]
            saved = np.where(np.isfinite(before), beyond - np.where(np.isfinite(before), before, 0.0), 0.0)
            most = float(np.max(self.task.market.alternative)) + 10.0
            price[is_new] = np.clip(np.max(saved, axis=0) - self.task.time[links], 0.0, most)
        return price

    def _ascend(self, price: Float[NDArray, "open_links"], temperature: float) -> Float[NDArray, "open_links"]:
        """Raise the dual function of the smoothed problem for a while."""
        streets = self.task.streets

        def descent(values: Float[NDArray, "open_links"]) -> tuple[float, Float[NDArray, "open_links"]]:
            costs = self.task.costs(values, temperature)
            found = load_paths(streets, costs, self.task.market, temperature, self._orders)
            return values @ self.task.capacity - found.value, self.task.capacity - found.flow[self.task.open_links]

        def look_up(_: Float[NDArray, "open_links"]) -> None:
            if self.stop():
                raise StopIteration

        options = {"maxiter": _EVALUATIONS, "maxfun": _EVALUATIONS, "maxcor": 20}
        bounds = [(0.0, float(np.max(self.task.market.alternative)) + 10.0)] * len(price)
        ended = minimize(descent, price, (), "L-BFGS-B", True, bounds=bounds, callback=look_up, options=options)
        return np.asarray(ended.x)

    # --- Newton's method ---------------------------------------------------------------------------------------------
    def _at(self, price: Float[NDArray, "open_links"], temperature: float) -> PricePoint:
        """Bushes at these prices, and their load."""
        costs = self.task.costs(price, temperature)
        bushes = grow_bushes(self.task.streets, costs, temperature, self._orders)
        return self._moved(PricePoint(bushes, price, price, price), np.zeros(len(price)))

    def _moved(self, point: PricePoint, offset: Float[NDArray, "open_links"]) -> PricePoint:
        """A point not far from the bushes of another, or with bushes of its own."""
        temperature = point.bushes.temperature
        kept = _KEPT[temperature <= self.last]
        if np.max(np.abs(offset)) > kept * temperature:
            return self._at(point.base + offset, temperature)
        load = load_bushes(point.bushes, self.task.change(offset, temperature), self.task.market)
        return point._replace(offset=offset, excess=load.flow[self.task.open_links] - self.task.capacity)

    def _cool(self, point: PricePoint) -> PricePoint:
        """Lower the temperature to the last."""
        steps, now = self._centre(point)
        self._note(now)
        if now.bushes.temperature <= self.last or self.stop():
            return now
        factor, slope = _FACTOR, self._tangent(now)
        while now.bushes.temperature > self.last and self.iterations < _MOST_ITERATIONS and not self.stop():
            price, temperature = now.price, now.bushes.temperature
            predicted = self._predicted(now, slope)
            while predicted is None:
                following = max(self.last, factor * temperature)
                ahead = self._at(np.maximum(price + (following - temperature) * slope, 0.0), following)
                if factor >= _SLOWEST or self._missed(ahead) <= _MISSED:
                    predicted = ahead
                else:
                    factor = float(np.sqrt(factor))
            steps, found = self._centre(predicted)
            if steps == _MOST_STEPS and factor < _SLOWEST:
                factor, self._guide = float(np.sqrt(factor)), []
                continue
            now, slope = found, (found.price - price) / (found.bushes.temperature - temperature)
            self._note(now)
            factor = max(factor**1.5, _FASTEST) if steps <= 4 else factor
        return now

    def _predicted(self, now: PricePoint, slope: Float[NDArray, "open_links"]) -> PricePoint | None:
        """Prices at the next temperature of the problem nearby: by its own change, or by the slope here.

        None where there is no path, or it leads astray.
        """
        (_, near), (temperature, ahead) = self._guide[:2] if len(self._guide) > 1 else ((0.0, slope), (0.0, slope))
        before, self._guide = now.bushes.temperature, self._guide[1:]
        if temperature < _FARTHEST * before:
            self._guide = []
            return None
        changes = np.nan_to_num(ahead - near), (temperature - before) * slope
        points = [self._at(np.maximum(now.price + change, 0.0), temperature) for change in changes]
        best = min(points, key=self._missed)
        if self._missed(best) <= _MISSED:
            return best
        self._guide = []
        return None

    def _note(self, point: PricePoint) -> None:
        price = np.full(len(self.task.time), np.nan)
        price[self.task.open_links] = point.price
        self._steps.append((point.bushes.temperature, price))

    def _tangent(self, now: PricePoint) -> Float[NDArray, "open_links"]:
        """How prices follow the temperature."""
        temperature = now.bushes.temperature
        cooler = self._at(now.price, 0.98 * temperature)
        self.iterations += 1
        return self._direction(cooler, 0.0) / (-0.02 * temperature)

    def _missed(self, point: PricePoint) -> float:
        """How far flows are from what they should be, relatively."""
        return float(np.abs(self._wrong(point)).sum() / self.task.capacity.sum())

    def _wrong(self, point: PricePoint) -> Float[NDArray, "open_links"]:
        """The excess, but for links that have room and no price."""
        has_price = point.price > _NOTHING * point.bushes.temperature
        return np.where(has_price | (point.excess > 0.0), point.excess, 0.0)

    def _centre(self, now: PricePoint) -> tuple[int, PricePoint]:
        """Minimise at one temperature, exactly at the last; returns the number of steps too."""
        temperature, enough = now.bushes.temperature, 0.3 * self.tolerance * self.task.scales[0]
        is_last, least, idle, held = temperature <= self.last, np.inf, 0, 1.0 / _FAR
        close = max(_CLOSE, _ROUNDING * self.task.scales[1] / temperature)
        for count in range(_MOST_STEPS):
            wrong = np.abs(self._wrong(now))
            size = float(np.max(wrong))
            least, idle = (size, 0) if size < 0.5 * least else (least, idle + 1)
            if is_last and (size <= enough or (idle > _PATIENCE and least < _SMALL)):
                return count, now
            if not is_last and np.all(wrong <= close * self.task.capacity):
                return count, now
            if self.stop():
                break
            change = self._direction(now, held)
            self.iterations += 1
            step, moved = self._search(now, change)
            if moved is None:
                break
            now = moved
            held = held * _LOOSER if step == 1.0 else min(1.0, held / max(step, 0.2))
        return _MOST_STEPS, now

    def _direction(self, now: PricePoint, held: float) -> Float[NDArray, "open_links"]:
        """Newton's, to the minimum of the quadratic model over prices that are not negative.

        A term that vanishes where flows fill capacities holds it back: ``held`` is the inverse of how many
        temperatures a price may change by.
        """
        temperature = now.bushes.temperature
        change = self.task.change(now.offset, temperature)
        matrix = response(now.bushes, change, self.task.market, self.task.whole, self.task.position)
        wrong = np.abs(self._wrong(now))
        diagonal = np.einsum("ii->i", matrix)
        diagonal += wrong * (held / temperature)
        diagonal += _RIDGE * self.task.capacity
        least, excess = -now.price, now.excess
        free, best = (least < 0.0) | (excess > 0.0), np.zeros(len(least))
        for _ in range(_MOST_PIVOTS):
            best = np.where(free, 0.0, least)
            if free.any():
                slope = excess - _times(matrix, best)
                best[free] = _solve(matrix if free.all() else matrix[np.ix_(free, free)], slope[free])
            slope = excess - _times(matrix, best)
            following = np.where(free, best >= least, slope > 0.0)
            if np.array_equal(following, free):
                break
            free = following
        return np.maximum(best, least)

    def _search(self, now: PricePoint, change: Float[NDArray, "open_links"]) -> tuple[float, PricePoint | None]:
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


def _times(matrix: Float[NDArray, "n n"], vector: Float[NDArray, "n"]) -> Float[NDArray, "n"]:
    """A symmetric matrix, given by its lower triangle in rows, times a vector."""
    return np.asarray(dsymv(1.0, matrix.T, vector)) if vector.any() else np.zeros(len(vector))


def _solve(matrix: Float[NDArray, "n n"], right: Float[NDArray, "n"]) -> Float[NDArray, "n"]:
    """Solve with a positive definite matrix, or with one that nearly is, given by its lower triangle in rows."""
    diagonal = np.einsum("ii->i", matrix)
    whole = diagonal.copy()
    try:
        for more in _MORE:
            diagonal[:] = (1.0 + more) * whole
            # LAPACK reads columns: to it this is the upper triangle, and nothing has to be copied beforehand.
            factor, info = dpotrf(matrix.T, lower=0, clean=0, overwrite_a=0)
            if info == 0:
                return np.asarray(dpotrs(factor, right, lower=0)[0])
    finally:
        diagonal[:] = whole
    return right / whole
