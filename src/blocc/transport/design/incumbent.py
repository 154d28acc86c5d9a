"""The best capacities that a search has met, judged by exact answers of the travellers, and the history on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from blocc._lib.arrays import Bool, Float, NDArray
from blocc._lib.compiled import clock
from blocc.outer.monitor import Monitor
from blocc.result import HistoryRow
from blocc.transport.design.capacity_descent import evaluate, worth_of_money
from blocc.transport.design.capacity_set import CapacitySet
from blocc.transport.design.model import CapacityPenalty, DesignModel, never
from blocc.transport.design.prices import FINEST, PricePenalty
from blocc.transport.design.search_state import SearchState

#: Capacities that differ by less than this part of the utility in what they cost are not judged once more: the second
#: number on networks of more links than the third, where that takes seconds.
SAVING, LARGE_SAVING, LARGE = 1e-8, 1e-4, 150
#: Links with less than these parts of the mean capacity are taken away where that costs no more than so much of the
#: utility.
DUST, WORTHLESS, _HOPELESS = (1e-2, 1e-3, 1e-4, 1e-5), 1e-6, 10.0
#: Of the seconds that a stopped run may take to its answer, so many may pass before the certificate is begun: this part
#: of the time limit, and no fewer than the second number.
CLOSING, LEAST_CLOSING = 0.04, 4.0
#: Flows below this part of a market's mean demand are none: capacities as small are taken for closed.
_NOTHING = 1e-9
#: At most so many halvings until what a stopped run had in hand fits the budget.
_HALVINGS = 14
#: Where a run was stopped before it met any prices, these multiples of the links' costs are tried.
MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
#: Of the flows that a stopped run ends with, those below this part of the largest are left out, where none misses them.
_DUSTY = 1e-6


class Met(NamedTuple):
    """Prices that a descent has met."""

    prices: Float[NDArray, "links"]
    is_open: Bool[NDArray, "links"]
    gamma: float


class Load(NamedTuple):
    """Flows on cheapest paths at some prices, and the capacities for them."""

    part: float  #: of the costs, in the prices
    utility: float  #: without what existing capacity would cost
    spent: float
    prices: Float[NDArray, "links"]
    capacity: Float[NDArray, "links"]


class Incumbent:
    """The best capacities met on one start's way."""

    def __init__(
        self, model: DesignModel, limits: CapacitySet, gamma: float, monitor: Monitor, *, fixed: bool = False
    ) -> None:
        self.model, self.limits, self.gamma, self.monitor = model, limits, gamma, monitor
        self.fixed = fixed  #: whether gamma is the user's: then F_gamma is what counts, otherwise the exact utility
        self.state = SearchState.initial(limits)
        self._met: Met | None = None  #: the prices of ``provisional``

    def judge(self, capacity: Float[NDArray, "links"], warm: Any = None, gamma: float | None = None) -> CapacityPenalty:
        """F_gamma and both answers; far from exact where the run is to end, which the next look at the clock says."""
        at = self.gamma if gamma is None else gamma
        return evaluate(self.model, self.limits, capacity, at, warm, self.monitor.is_over)

    def carrying(self, flow: Float[NDArray, "links"]) -> Float[NDArray, "links"]:
        """Capacities within the limits for these flows, without links that carry next to nothing."""
        return self.limits.cover(np.where(flow > self.model.threshold, flow, 0.0))

    def _score(self, found: CapacityPenalty) -> float:
        # The utility is the follower's matter alone.
        if not (found.error if self.fixed else float(found.follower.error)) < 1e-7:
            return -np.inf
        return -float(found.value) if self.fixed else float(found.utility)

    def keep(self, capacity: Float[NDArray, "links"], warm: Any = None) -> None:
        """Judge capacities and keep the best, also without what travellers leave idle, and with all money spent.

        :param warm: of an evaluation nearby
        """
        found = self.judge(capacity, warm)
        self._adopt(capacity, found, found)
        if self.fixed or self.monitor.is_over():
            return
        # Less capacity where it is idle gives the same answer for less money.
        carried = self.limits.cover(np.asarray(found.follower.point.flow).sum(axis=0))
        trimmed = np.where(carried > self.model.threshold, np.minimum(capacity, carried), 0.0)
        others = [np.maximum(trimmed, self.limits.least)]
        if self.limits.has_budget and worth_of_money(self.limits, capacity, found) > 0.0:
            others.append(self.limits.spend(others[0]))
        saving = (SAVING if self.limits.size <= LARGE else LARGE_SAVING) * (1.0 + abs(float(found.utility)))
        for other in others:
            if abs(float(self.limits.cost @ (capacity - other))) <= saving:
                continue
            side = self.judge(other, found.warm)
            self._adopt(other, side, side)

    def _adopt(
        self, capacity: Float[NDArray, "links"], found: CapacityPenalty, solution: CapacityPenalty | None
    ) -> None:
        if self._score(found) > self.state.score:
            self.state.score, self.state.best, self.state.solution = self._score(found), capacity, solution

    def settle(self) -> None:
        """Judge what a run that was stopped had in hand, within the seconds that are left for that.

        Smooth flows share many nearly cheapest paths, and their exact answer can take a minute. At the same prices, but
        the lowest temperature, flows fill their own cheapest paths: with those as capacities the prices are the
        travellers' own, and the exact answer is known.
        """
        limit = self.monitor.time_limit
        end = clock() + max(LEAST_CLOSING, 0.0 if limit is None else CLOSING * limit)

        def is_late() -> bool:
            return clock() > end

        if self.state.score == -np.inf:  # to build no more than must be is always possible
            found = evaluate(self.model, self.limits, self.limits.least, self.gamma, None, is_late)
            self._adopt(self.limits.least, found, found)
        if self.state.provisional_utility > self.state.score:
            self._answer_met(is_late)
        if self.is_idle and self.model.near(self.state.prices, self.gamma) is not None and not is_late():
            unpriced = Met(np.zeros(self.limits.size), self.limits.limit > 0.0, 1.0)
            self._try(*self._sharp(unpriced, is_late, MULTIPLES), is_late)
        self.trim(is_late)
        if (cut := self.answer()).error > 1e-9:  # the end came before both answers were exact
            found = evaluate(self.model, self.limits, self.state.best, self.gamma, cut.warm, is_late)
            if found.error < cut.error and self._score(found) > -np.inf:
                self.state.score, self.state.solution = self._score(found), found

    def _answer_met(self, is_late: Callable[[], bool]) -> None:
        """Judge the best that was met, from its prices."""
        met = self._met or Met(self.state.prices, self.state.is_open, self.gamma)
        prices, capacity = met.prices, self.state.provisional
        if self.model.near(prices, self.gamma) is not None:  # an engine that begins with prices
            prices, capacity = self._sharp(met, is_late)
        self._try(prices, capacity, is_late)

    def _try(
        self, prices: Float[NDArray, "links"], capacity: Float[NDArray, "links"], is_late: Callable[[], bool]
    ) -> None:
        near = self.model.near(prices, self.gamma)
        found = evaluate(self.model, self.limits, capacity, self.gamma, near, is_late)
        self._adopt(capacity, found, found)

    def _sharp(
        self, met: Met, is_late: Callable[[], bool], parts: tuple[float, ...] = (0.0, 1.0)
    ) -> tuple[Float[NDArray, "links"], Float[NDArray, "links"]]:
        """Prices, and the flows at them on cheapest paths alone: the best ones between what both sides pay.

        Higher prices keep flows within a budget, and are the travellers' own as well. Other limits cut the flows.

        :param parts: of the links' costs over gamma that are added to the prices, the smallest first
        """
        tried = [self._load(met, parts[0])]
        for part in parts[1:]:
            if not is_late():
                tried.append(self._load(met, part))
        affordable = [trial for trial in tried if trial.spent <= self.limits.allowance]
        if self.limits.is_simple and (not affordable or (len(parts) > 2 and len(affordable) < len(tried))):
            low = max(trial.part for trial in tried if trial.spent > self.limits.allowance)
            high = max(4.0 * low, 1.0)
            while (trial := self._load(met, high)).spent > self.limits.allowance and high < 1e9:
                low, high = high, 4.0 * high
            affordable.append(trial)
            for _ in range(_HALVINGS):
                if is_late():
                    break
                trial = self._load(met, 0.5 * (low + high))
                if trial.spent <= self.limits.allowance:
                    high, affordable = trial.part, [*affordable, trial]
                else:
                    low = trial.part
        best = max(affordable or tried, key=lambda trial: trial.utility)
        if self.limits.is_simple:
            best = self._without_dust(met, best)
        return best.prices, best.capacity

    def _load(self, met: Met, part: float, closed: Bool[NDArray, "links"] | None = None) -> Load:
        """Everybody on cheapest paths, at the prices met and so much of the costs."""
        is_open, cost = met.is_open | (self.limits.least > 0.0), self.limits.cost
        is_open = is_open if closed is None else is_open & ~closed
        lowest = self.model.lowest_temperature if self.limits.is_simple else FINEST[-1] * self.model.time_unit
        prices = met.prices + (part / met.gamma) * cost
        found = self.model.prices(prices, self.gamma, is_open, lowest, cost)
        flow = np.asarray(found.follower.flow)
        flow = np.where(is_open & (flow > _NOTHING * float(np.mean(self.model.network.demand))), flow, 0.0)
        capacity = flow if self.limits.is_simple else self.carrying(flow)
        # Where limits cut the flows down, income falls with them.
        left = float(np.minimum(capacity, flow).sum()) / max(float(flow.sum()), 1e-300)
        spent = float(cost @ capacity)
        return Load(part, left * self._earned(found)[0] - spent, spent, prices, capacity)

    def _without_dust(self, met: Met, best: Load) -> Load:
        """The same prices without links for next to nobody, whose few passengers find other ways, or none."""
        closed = np.zeros(self.limits.size, dtype=bool)
        for _ in range(3):
            is_dust = (best.capacity > 0.0) & (best.capacity < _DUSTY * float(np.max(best.capacity, initial=0.0)))
            if not is_dust.any():
                break
            closed = closed | is_dust
            trial = self._load(met, best.part, closed)
            worse = trial.utility < best.utility - WORTHLESS * (1.0 + abs(best.utility))
            if worse or trial.spent > self.limits.allowance:
                break
            best = trial
        return best

    def trim(self, stop: Callable[[], bool] = never) -> None:
        """Take links away that have next to no capacity, where their absence costs next to nothing."""
        best, found = self.state.best, self.answer()
        built = best[best > self.limits.least]
        if not len(built) or self.fixed:
            return
        allowed = WORTHLESS * (1.0 + abs(float(found.utility)))
        for part in DUST:
            is_dust = (best > self.limits.least) & (best < part * float(np.mean(built)))
            is_dust &= is_dust[self.limits.partner]
            if stop() or not is_dust.any():
                return
            # Passengers who would be lost with it may earn too much; on large networks a trial takes seconds.
            lost = float(best[is_dust].sum()) * float(np.mean(self.model.network.revenue))
            if self.limits.size > LARGE and lost > _HOPELESS * allowed:
                continue
            rest = np.where(is_dust, self.limits.least, best)
            without = evaluate(self.model, self.limits, rest, self.gamma, found.warm, stop)
            if self._score(without) >= self.state.score - allowed:
                self.state.score, self.state.best, self.state.solution = self._score(without), rest, without
                return

    @property
    def is_idle(self) -> bool:
        """Whether nothing is certified to earn more than no new capacity at all."""
        return bool(np.array_equal(self.state.best, self.limits.least))

    def answer(self) -> CapacityPenalty:
        """Both answers at the best capacities, solved once more only where they were judged at another gamma."""
        if self.state.solution is None:
            self.state.solution = self.judge(self.state.best)
        return self.state.solution

    # --- history ----------------------------------------------------------------------------------------------------
    def _earned(self, found: PricePenalty) -> list[float]:
        """Income at both answers."""
        graph = self.model.graph
        worth, sides = graph.demand * graph.revenue, (found.follower, found.penalised)
        return [float(np.sum(worth * np.asarray(side.share))) for side in sides]

    def observe_prices(
        self, gamma: float, prices: Float[NDArray, "links"], is_open: Bool[NDArray, "links"], found: PricePenalty
    ) -> None:
        """Record one evaluation in the prices, and remember where it seems the best so far."""
        cost, sides, earned = self.model.network.cost, (found.follower, found.penalised), self._earned(found)
        losses = [float(cost @ side.flow) - income for side, income in zip(sides, earned, strict=True)]
        flow = np.asarray(found.follower.flow)
        capacity = self.carrying(flow)
        # Where limits cut the flows down, income falls with them.
        left = float(np.minimum(capacity, flow).sum()) / max(float(flow.sum()), 1e-300)
        utility = left * earned[0] - float(cost @ capacity) + self.limits.refund
        if utility > self.state.provisional_utility:
            self.state.provisional_utility, self.state.provisional = utility, capacity
            self._met = Met(prices, is_open, gamma)
        self._append(
            flow,
            found,
            gamma=gamma,
            upper_value=losses[0],
            upper_value_penalty=losses[1],
            stationarity=float(np.max(np.abs(found.gradient), initial=0.0)),
            inner_residual=0.0,
            distance=float(np.linalg.norm(np.asarray(found.penalised.share) - np.asarray(found.follower.share))),
        )

    def observe(self, capacity: Float[NDArray, "links"], gamma: float, found: CapacityPenalty) -> None:
        """Record one evaluation of F_gamma in the capacities, and keep it if it is the best so far."""
        self.state.evaluations += 1
        inside = np.array_equal(self.limits.cover(capacity), capacity)
        if inside and (gamma == self.gamma or not self.fixed):
            self._adopt(capacity.copy(), found, found if gamma == self.gamma else None)
        step = capacity - np.clip(capacity - np.asarray(found.gradient), self.limits.least, self.limits.limit)
        self._append(
            capacity,
            found,
            gamma=gamma,
            upper_value=-float(found.utility),
            upper_value_penalty=-float(found.utility_penalised),
            stationarity=float(np.max(np.abs(step), initial=0.0)),
            inner_residual=found.error,
            distance=found.distance,
        )

    def _append(self, x: Float[NDArray, "links"], found: PricePenalty | CapacityPenalty, **figures: Any) -> None:
        shared: dict[str, Any] = {"time": self.monitor.elapsed(), "step": 0.0, "evaluations": self.state.evaluations}
        values: dict[str, Any] = {"lower_value": float(found.follower.value), "penalty_value": float(found.value)}
        self.monitor.append(HistoryRow(**shared, **values, **figures), x)
