"""Newton's method in the prices of links, while a temperature is lowered: prices at which flows fill the capacities.

With D the travellers' least cost when prices p are added to the times, smoothed by a temperature, the prices solve

    minimise over p >= 0 of    sum p x - D(t + p)

The function is convex, its gradient is capacity less flow, and its Hessian is how flows answer to prices. In the limit
flows lie on cheapest paths, no link carries more than its capacity, and links with room have no price: the flows are
the travellers' own. Prices change in proportion to small temperatures, so that those of the next can be predicted from
the two before, or from the path of a problem nearby.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


@dataclass(frozen=True)
class NewtonSettings:
    """Numbers of the search.

    ``benchmarks/transport_ablation.py`` takes each of them times and by three. What costs more than a tenth then, or
    leaves an answer unsolved, says so here; of the others any will do.
    """

    first_temperature: float = 0.01  #: in units of a link's time
    ascent: int = 10  #: evaluations of an ascent there, to begin with
    #: How much of the capacity predicted prices may miss, in all; with 0.03 links that were opened take a fifth more.
    missed: float = 0.01
    #: Known prices serve at temperatures of which they are, in the mean over the capacities, no more than so many away:
    #: without that the way down from there ended nowhere in 2 of 160 answers.
    near: float = 10.0
    #: Flows that miss no capacity by more than this part of it are good enough for lower temperatures.
    close: float = 1e-6
    #: Temperatures fall by this factor while that goes well, and by its root (again and again) where it does not.
    fastest: float = 0.1
    slowest: float = 0.5
    most_steps: int = 25  #: at one temperature
    most_iterations: int = 150  #: at all of them
    #: At the last temperature, so many steps that do not halve the excess: rounding is reached; with 3 too early.
    patience: int = 10
    kept: float = 1.0  #: bushes serve for prices that differ by so many temperatures, since weights change by e then
    most_pivots: int = 10  #: changes of which prices are 0 in one step


SETTINGS = NewtonSettings()
#: So many capacities are added to the diagonal of Newton's matrix, because prices of links in a row are known in their
#: sum alone: half of the digits that a double has.
_RIDGE = float(np.sqrt(np.finfo(float).eps))
#: Added, relatively to the whole, where the matrix is not positive definite in floating point: from rounding upwards.
_MORE = (0.0, *(10.0 ** np.arange(-11, 0, 2)).tolist())
#: Bushes that are made anew change flows by rounding: some units in the last place of a cost.
_ROUNDING = 50.0 * np.finfo(float).eps
#: Prices of so many temperatures are rounding.
_NOTHING = 1e-9
#: Rows of every path, so that all paths of a network have one shape; the last ones of a longer way are kept.
_ROWS = 24
#: Temperatures, in units of a link's time, at which prices of an unknown way may serve.
_ANYWHERE = (1e-2, 1e-3, 1e-4, 1e-5)


class PricePath(NamedTuple):
    """Prices of all links while the temperature fell; rows that are not used have the temperature NaN.

    At the last temperature flows split over paths of equal cost, and prices that are a little off send everybody to
    one of them: the last prices alone say little about other capacities. The prices at every temperature on the way
    say more: an answer nearby joins them at the first temperature that is not small compared with what has changed.
    """

    temperature: Float[NDArray, "rows"]
    price: Float[NDArray, "rows links"]  #: NaN for links that were closed

    def steps(self) -> list[tuple[float, Float[NDArray, "links"]]]:
        """Temperatures and prices, the hottest first."""
        used = np.isfinite(self.temperature)
        return [(float(t), price) for t, price in zip(self.temperature[used], self.price[used], strict=True)]


def price_path(steps: Sequence[tuple[float, Float[NDArray, "links"]]], links: int) -> PricePath:
    """The path with these temperatures, which fall, and prices."""
    path = PricePath(np.full(_ROWS, np.nan), np.full((_ROWS, links), np.nan))
    for row, (temperature, price) in enumerate(steps[-_ROWS:]):
        path.temperature[row], path.price[row] = temperature, price
    return path


def known_prices(price: Float[NDArray, "links"], time_unit: float, tolerance: float) -> PricePath:
    """The same prices at several temperatures, where nobody knows to which of them they belong."""
    return price_path([(relative * time_unit, price) for relative in (*_ANYWHERE, tolerance)], len(price))


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
        self.task, self.tolerance, self.stop = task, tolerance, stop
        self._known = [] if warm is None else warm.steps()  #: of the problem nearby, the hottest first
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
        for place, (temperature, known) in reversed(list(enumerate(self._known))):
            if temperature < hot_enough:
                continue
            point, is_last = self._at(self._with_opened(known[self.task.open_links], temperature), temperature), False
            if temperature <= self.last:  # here prices serve where they are right already
                is_last = self._missed(point) <= self.tolerance
            elif self._missed(point) <= SETTINGS.missed:
                away = np.average(np.abs(self._direction(point)), weights=self.task.capacity)
                self.iterations, hot_enough = self.iterations + 1, float(away) / SETTINGS.near
            if is_last or 0.0 < hot_enough <= temperature:
                steps, found = self._centre(point)
                if steps < SETTINGS.most_steps:
                    self._steps = self._known[:place]
                    return found
        price = np.zeros(len(self.task.open_links))
        if self._known:
            temperature, known = self._known[0]
            price = self._with_opened(known[self.task.open_links], temperature)
        temperature = SETTINGS.first_temperature * self.task.time_unit
        return self._at(self._ascend(price, temperature), temperature)

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

        options = {"maxiter": SETTINGS.ascent, "maxfun": SETTINGS.ascent}
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
        if np.max(np.abs(offset)) > SETTINGS.kept * temperature:
            return self._at(point.base + offset, temperature)
        load = load_bushes(point.bushes, self.task.change(offset, temperature), self.task.market)
        return point._replace(offset=offset, excess=load.flow[self.task.open_links] - self.task.capacity)

    def _cool(self, point: PricePoint) -> PricePoint:
        """Lower the temperature to the last; prices change in proportion to it, and are predicted by their slope."""
        _, now = self._centre(point)
        self._note(now)
        factor, slope = SETTINGS.fastest, np.zeros(len(now.base))
        while now.bushes.temperature > self.last and self.iterations < SETTINGS.most_iterations and not self.stop():
            price, temperature = now.price, now.bushes.temperature
            following = max(self.last, factor * temperature)
            ahead = self._at(np.maximum(price + (following - temperature) * slope, 0.0), following)
            is_slow = factor >= SETTINGS.slowest
            if not is_slow and self._missed(ahead) > SETTINGS.missed:
                factor = float(np.sqrt(factor))
                continue
            steps, found = self._centre(ahead)
            if steps == SETTINGS.most_steps and not is_slow:
                factor = float(np.sqrt(factor))
                continue
            now, slope = found, (found.price - price) / (found.bushes.temperature - temperature)
            self._note(now)
            factor = max(factor**2, SETTINGS.fastest) if steps <= 4 else factor
        return now

    def _note(self, point: PricePoint) -> None:
        price = np.full(len(self.task.time), np.nan)
        price[self.task.open_links] = point.price
        self._steps.append((point.bushes.temperature, price))

    def _missed(self, point: PricePoint) -> float:
        """How far flows are from what they should be, relatively."""
        return float(np.abs(self._wrong(point)).sum() / self.task.capacity.sum())

    def _wrong(self, point: PricePoint) -> Float[NDArray, "open_links"]:
        """The excess, but for links that have room and no price."""
        has_price = point.price > _NOTHING * point.bushes.temperature
        return np.where(has_price | (point.excess > 0.0), point.excess, 0.0)

    def _centre(self, now: PricePoint) -> tuple[int, PricePoint]:
        """Minimise at one temperature, exactly at the last; returns the number of steps too."""
        temperature, enough = now.bushes.temperature, 0.5 * self.tolerance * self.task.scales[0]
        is_last, least, idle = temperature <= self.last, np.inf, 0
        close = max(SETTINGS.close, _ROUNDING * self.task.scales[1] / temperature)
        for count in range(SETTINGS.most_steps):
            wrong = np.abs(self._wrong(now))
            size = float(np.max(wrong))
            least, idle = (size, 0) if size < 0.5 * least else (least, idle + 1)
            if is_last and (size <= enough or idle > SETTINGS.patience):
                return count, now
            if not is_last and np.all(wrong <= close * self.task.capacity):
                return count, now
            if self.stop():
                break
            moved = self._search(now, self._direction(now))
            self.iterations += 1
            if moved is None:
                break
            now = moved
        return SETTINGS.most_steps, now

    def _direction(self, now: PricePoint) -> Float[NDArray, "open_links"]:
        """Newton's, to the minimum of the quadratic model over prices that are not negative."""
        change = self.task.change(now.offset, now.bushes.temperature)
        matrix = response(now.bushes, change, self.task.market, self.task.whole, self.task.position)
        diagonal = np.einsum("ii->i", matrix)
        diagonal += _RIDGE * self.task.capacity
        least, excess = -now.price, now.excess
        free, best = (least < 0.0) | (excess > 0.0), np.zeros(len(least))
        for _ in range(SETTINGS.most_pivots):
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

    def _search(self, now: PricePoint, change: Float[NDArray, "open_links"]) -> PricePoint | None:
        """Where a step leads that has not gone far too far; None where none is found.

        The function is convex, so that it is lower wherever it still falls. Slopes tell more than values: at low
        temperatures what a step gains is less than the rounding of the whole.
        """
        step = 1.0
        while step > 1e-9:
            move = step * change
            trial = self._moved(now, now.offset + move)
            before, after = float(now.excess @ move), float(trial.excess @ move)
            if before > 0.0 and after >= -0.5 * before:
                return trial
            step *= float(np.clip(before / (before - after), 0.1, 0.5)) if before > 0.0 else 0.1
        return None


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
