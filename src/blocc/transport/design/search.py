"""From one start to one design: the homotopy in prices, polishing, sharpening, and limits on the capacities."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from blocc.outer.monitor import Monitor
from blocc.result import HistoryRow
from blocc.transport.design.capacity_set import CapacitySet
from blocc.transport.design.design_result import WhatIf
from blocc.transport.design.limited import Limited, descend_built, descend_limited
from blocc.transport.design.model import DesignModel, Penalty
from blocc.transport.design.polish import polish
from blocc.transport.design.prices import FINEST, GAMMAS, Descent, Prices, descend, temperature_of

#: gammas of the homotopy whose designs are solved exactly, for the table of what another gamma would have given.
WHAT_IF = (2.0, 4.5, 10.0, 100.0, 1e3)
#: Links are closed and reopened at these gammas of the homotopy: early, while moves are large, and once more later.
POLISHED_AT = (10.0, 100.0)
#: Where capacities are limited, the homotopy in prices ends here and the descent in the capacities takes over. With
#: tied links it sees each direction pay for itself alone, so it hands over early.
HANDED_OVER_AT, TIED_HANDED_OVER_AT = 100.0, 10.0


@dataclass
class Search:
    """One start's way to its design, and the best capacities met on it."""

    model: DesignModel
    limits: CapacitySet
    gamma: float
    monitor: Monitor
    fixed: bool = False  #: whether gamma is the user's: then F_gamma is what counts, otherwise the exact utility
    evaluations: int = 0
    what_if: list[WhatIf] = field(default_factory=list)
    score: float = -np.inf  #: of the best capacities so far
    best: Limited = field(init=False)
    solution: Penalty | None = None  #: both answers at the best capacities, as they were judged
    promise: float = -np.inf  #: the best utility that the descent in prices has met, not yet checked
    promising: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        links = self.model.network.n_links
        self.best = Limited(np.zeros(links), 0.0)
        self.promising = np.zeros(links)
        # Ten descents before a polishing gives up suit a city; on large networks every descent is dear.
        self.tries, self.rounds = (10, 100) if links <= 150 else (3, 4)

    # --- the homotopy -----------------------------------------------------------------------------------------------
    def run(self, prices: np.ndarray) -> None:
        """Follow gamma upwards and the temperature downwards, then fit the limits if there are any."""
        self.model.cost = self.model.network.cost
        unlimited = self.limits.is_orthant
        end = TIED_HANDED_OVER_AT if self.limits.symmetric else HANDED_OVER_AT
        last = self.gamma if unlimited else min(self.gamma, end)
        gammas = [gamma for gamma in GAMMAS if gamma < last] + [last]
        early = max((gamma for gamma in gammas if gamma <= POLISHED_AT[0]), default=gammas[0])
        is_open, unit = self.limits.limit > 0, self.model.time_unit
        budget_price = 0.0
        for gamma in gammas:
            began = self.monitor.elapsed()
            found = self._descend(prices, gamma, is_open, temperature_of(gamma, unit))
            if gamma == early:
                found, budget_price = self._afford(found, gamma, is_open)
            if gamma in (early, POLISHED_AT[1]):
                found, is_open = self._polish(found, gamma, is_open)
            prices = found.prices
            if unlimited and gamma in (*WHAT_IF, last):
                self._note(found.capacity, gamma, self.monitor.elapsed() - began)
        if unlimited and self.fixed:
            self._settle_at_gamma(found)
        elif unlimited:
            self._sharpen(found, is_open)
        else:
            self._fit(found.capacity, budget_price)

    def _descend(self, prices: np.ndarray, gamma: float, is_open: np.ndarray, temperature: float) -> Descent:
        ceiling, group = self.model.ceiling, self.limits.group
        return descend(self._prices, prices, gamma, is_open, temperature, ceiling, self._watch_prices, group)

    def _prices(self, values: np.ndarray, gamma: float, is_open: np.ndarray, temperature: float) -> Prices:
        self.evaluations += 1
        return self.model.prices(values, gamma, is_open, temperature)

    def _polish(self, found: Descent, gamma: float, is_open: np.ndarray) -> tuple[Descent, np.ndarray]:
        polished = polish(
            self._prices,
            found,
            is_open,
            gamma=gamma,
            temperature=temperature_of(gamma, self.model.time_unit),
            ceiling=self.model.ceiling,
            threshold=self.model.threshold,
            tries=self.tries,
            rounds=self.rounds,
            group=self.limits.group,
            allowed=self.limits.limit > 0,
            watch=self._watch_prices,
        )
        return polished.descent, polished.is_open

    def _sharpen(self, found: Descent, is_open: np.ndarray) -> None:
        """Lower the temperature until flows split over equally cheap paths exactly."""
        unit, prices = self.model.time_unit, found.prices
        for temperature in FINEST:
            if temperature * unit < temperature_of(self.gamma, unit):
                found = self._descend(prices, self.gamma, is_open, temperature * unit)
                prices = found.prices
        self.keep(Limited(self._carrying(found.capacity), 0.0))

    def _settle_at_gamma(self, found: Descent) -> None:
        """The minimiser of F_gamma at the user's gamma: the penalised flows, and a descent without smoothing."""
        start = Limited(self._carrying(found.penalised), 0.0)
        self.keep(start)
        capacity, _ = descend_built(self.model, self.limits, start, self.gamma, self.watch, iterations=400)
        self.keep(Limited(capacity, 0.0))

    # --- limits -----------------------------------------------------------------------------------------------------
    def _afford(self, found: Descent, gamma: float, is_open: np.ndarray) -> tuple[Descent, float]:
        """Make every link dearer in proportion until what the flows need fits the budget."""
        cost, budget = self.model.network.cost, self.limits.budget
        low, high, price = 0.0, np.inf, 0.0
        for _ in range(14):
            spent = float(cost @ np.maximum(found.capacity, found.capacity[self.limits.partner]))
            if (spent <= budget and price == 0.0) or 0.9 * budget <= spent <= 1.05 * budget:
                break
            low, high = (price, high) if spent > budget else (low, price)
            price = 0.5 * (low + high) if np.isfinite(high) else 2.0 * price + 0.1
            self.model.cost = cost * (1.0 + price)
            found = self._descend(found.prices, gamma, is_open, temperature_of(gamma, self.model.time_unit))
        return found, price

    def _fit(self, flow: np.ndarray, budget_price: float) -> None:
        """Descend within the limits from where the prices led, then try to close what hardly pays."""
        start = self.limits.cover(np.where(flow > self.model.threshold, flow, 0.0))
        best = descend_limited(self.model, self.limits, Limited(start, budget_price), self.gamma, self.watch)
        self.keep(best)
        for _ in range(8):
            shut = self._closing(best.capacity)
            if shut is None:
                return
            best = descend_limited(
                self.model, self.limits, Limited(shut, best.budget_price), self.gamma, self.watch, self.gamma
            )
            self.keep(best)

    def _closing(self, capacity: np.ndarray) -> np.ndarray | None:
        """The capacities without the group of links whose closing raises the exact utility most, if any does."""
        leaders = np.unique(self.limits.group[capacity > 0])
        smallest = sorted(leaders, key=lambda leader: capacity[leader])[: 2 * self.tries]
        found = []
        for leader in smallest:
            trial = np.where(self.limits.group == leader, 0.0, capacity)
            found.append((self._score(self.model.capacities(trial, self.gamma)), int(leader)))
            self.evaluations += 1
        if not found or max(found)[0] <= self.score + 1e-6 * (1.0 + abs(self.score)):
            return None
        return np.where(self.limits.group == max(found)[1], 0.0, capacity)

    # --- what was found ---------------------------------------------------------------------------------------------
    def _carrying(self, flow: np.ndarray) -> np.ndarray:
        return self.limits.cover(np.where(flow > self.model.threshold, flow, 0.0))

    def _score(self, found: Penalty) -> float:
        if not float(max(found.follower.error, found.penalised.error)) < 1e-7:
            return -np.inf
        return -float(found.value) if self.fixed else float(found.utility)

    def keep(self, candidate: Limited) -> None:
        """Judge capacities and keep the best, also without what travellers leave idle."""
        found = self.model.capacities(candidate.capacity, self.gamma)
        sides = [(candidate.capacity, found)]
        if not self.fixed:
            # Less capacity where it is idle gives the same answer for less money.
            carried = self.limits.cover(np.asarray(found.follower.point.flow).sum(axis=0))
            trimmed = np.where(carried > self.model.threshold, np.minimum(candidate.capacity, carried), 0.0)
            sides.append((trimmed, self.model.capacities(trimmed, self.gamma, found.warm)))
        for capacity, side in sides:
            if self._score(side) > self.score:
                self.score, self.best = self._score(side), Limited(capacity, candidate.budget_price)
                self.solution = side

    def settle(self) -> None:
        """Judge what a run that was stopped had in hand."""
        if self.promise > self.score:
            self.keep(Limited(self._carrying(self.promising), 0.0))

    def _note(self, flow: np.ndarray, gamma: float, seconds: float) -> None:
        capacity = self._carrying(flow)
        side = self.model.capacities(capacity, gamma)
        shares = np.asarray(side.penalised.point.share) - np.asarray(side.follower.point.share)
        row = (float(side.utility), float(side.utility_penalised), float(np.linalg.norm(shares)))
        self.what_if.append(WhatIf(gamma, *row, int((capacity > 0).sum()), seconds))

    # --- who looks on -----------------------------------------------------------------------------------------------
    def _watch_prices(self, found: Prices, gamma: float) -> None:
        cost, graph = self.model.network.cost, self.model.graph
        earned = graph.demand * graph.revenue
        losses = [float(cost @ side.flow - np.sum(earned * side.share)) for side in (found.follower, found.penalised)]
        if -losses[0] > self.promise:
            self.promise, self.promising = -losses[0], np.asarray(found.follower.flow)
        distance = float(np.linalg.norm(found.penalised.share - found.follower.share))
        row = HistoryRow(
            time=self.monitor.elapsed(),
            gamma=gamma,
            upper_value=losses[0],
            upper_value_penalty=losses[1],
            lower_value=float(found.follower.value),
            penalty_value=float(found.value),
            stationarity=float(np.max(np.abs(found.gradient), initial=0.0)),
            inner_residual=0.0,
            distance=distance,
            step=0.0,
            evaluations=self.evaluations,
        )
        self.monitor.append(row, np.asarray(found.follower.flow))

    def watch(self, capacity: np.ndarray, gamma: float, found: Penalty) -> None:
        """See one evaluation of F_gamma in the capacities: record it, and keep it if it is the best so far."""
        self.evaluations += 1
        inside = np.array_equal(self.limits.cover(capacity), capacity)
        if inside and (gamma == self.gamma or not self.fixed) and self._score(found) > self.score:
            self.score, self.best = self._score(found), Limited(capacity.copy(), self.best.budget_price)
            self.solution = found if gamma == self.gamma else None
        shares = np.asarray(found.penalised.point.share) - np.asarray(found.follower.point.share)
        step = capacity - np.clip(capacity - np.asarray(found.gradient), 0.0, self.limits.limit)
        row = HistoryRow(
            time=self.monitor.elapsed(),
            gamma=gamma,
            upper_value=-float(found.utility),
            upper_value_penalty=-float(found.utility_penalised),
            lower_value=float(found.follower.value),
            penalty_value=float(found.value),
            stationarity=float(np.max(np.abs(step), initial=0.0)),
            inner_residual=float(max(found.follower.error, found.penalised.error)),
            distance=float(np.linalg.norm(shares)),
            step=0.0,
            evaluations=self.evaluations,
        )
        self.monitor.append(row, capacity)
