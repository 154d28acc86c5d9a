"""From one start to one design: the homotopy in prices, polishing, sharpening, and limits on the capacities.

A search is a row of stages. Between two of them its whole state is plain data (:class:`SearchState`), so that it can be
kept, and another run can go on from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from blocc._lib.arrays import Bool, Float, NDArray
from blocc.outer.monitor import Monitor
from blocc.result import HistoryRow
from blocc.transport.design.capacity_descent import LEVELS, Candidate, descend_built, descend_level
from blocc.transport.design.capacity_set import CapacitySet
from blocc.transport.design.design_result import WhatIf
from blocc.transport.design.model import CapacityPenalty, DesignModel
from blocc.transport.design.prices import (
    FINEST,
    GAMMAS,
    Descent,
    PricePenalty,
    PriceProblem,
    descend,
    polish,
    temperature_of,
)

#: gammas of the homotopy whose designs are solved exactly, for the table of what another gamma would have given.
WHAT_IF = (2.0, 4.5, 10.0, 100.0, 1e3)
#: Links are closed and reopened at these gammas of the homotopy: early, while moves are large, and once more later.
POLISHED_AT = (10.0, 100.0)
#: Where capacities are limited, the homotopy in prices ends here and the descent in the capacities takes over. With
#: tied links it sees each direction pay for itself alone, so it hands over early.
HANDED_OVER_AT, TIED_HANDED_OVER_AT = 100.0, 10.0
#: Closing one link after the other ends after so many.
MOST_CLOSED = 8


#: Does one piece of work; True ends the search.
Stage = Callable[[], bool | None]


@dataclass
class SearchState:
    """Where a search stands between two stages."""

    is_open: Bool[NDArray, "links"]  #: links that the descent in prices may use
    cost: Float[NDArray, "links"]  #: of a unit of capacity, the multiplier of the budget included
    prices: Float[NDArray, "links"]
    flow: Float[NDArray, "links"]  #: the follower's, at these prices
    penalised_flow: Float[NDArray, "links"]
    provisional_flow: Float[NDArray, "links"]  #: where the descent in prices has met its best
    best: Candidate  #: the best capacities so far, judged by exact answers of the travellers
    score: float = -np.inf  #: of the best capacities
    solution: CapacityPenalty | None = None  #: both answers at the best capacities, as they were judged
    budget_price: float = 0.0
    provisional_utility: float = -np.inf  #: the best that the descent in prices has met, without an exact answer
    evaluations: int = 0
    stage: int = 0  #: stages done
    what_if: list[WhatIf] = field(default_factory=list)
    seconds: float = 0.0  #: spent so far, without compiling

    @classmethod
    def initial(cls, model: DesignModel, limits: CapacitySet) -> SearchState:
        """Nothing found yet."""
        zero = np.zeros(model.network.n_links)
        return cls(limits.limit > 0, model.network.cost, zero, zero, zero, zero, Candidate(zero))


class Search:
    """One start's way to its design, and the best capacities met on it."""

    def __init__(
        self, model: DesignModel, limits: CapacitySet, gamma: float, monitor: Monitor, *, fixed: bool = False
    ) -> None:
        self.model, self.limits, self.gamma, self.monitor = model, limits, gamma, monitor
        self.fixed = fixed  #: whether gamma is the user's: then F_gamma is what counts, otherwise the exact utility
        self.state = SearchState.initial(model, limits)
        # Ten descents before a polishing gives up suit a city; on large networks every descent is costly.
        self.max_failures, self.max_moves = (10, 100) if model.network.n_links <= 150 else (3, 4)

    # --- stages -----------------------------------------------------------------------------------------------------
    def begin(self, prices: Float[NDArray, "links"]) -> None:
        """Start at these prices; to build nothing is always possible."""
        self.keep(Candidate(np.zeros(self.model.network.n_links)))
        self.state.prices = prices

    def run(self, stages: list[Stage], after_stage: Callable[[], None]) -> None:
        """Work off the stages that are not done yet."""
        while self.state.stage < len(stages):
            is_last = stages[self.state.stage]()
            self.state.stage = len(stages) if is_last else self.state.stage + 1
            after_stage()

    def stages(self) -> list[Stage]:
        """Follow gamma upwards and the temperature downwards, then fit the limits if there are any."""
        unlimited = self.limits.is_orthant
        end = TIED_HANDED_OVER_AT if self.limits.symmetric else HANDED_OVER_AT
        last = self.gamma if unlimited else min(self.gamma, end)
        gammas = [gamma for gamma in GAMMAS if gamma < last] + [last]
        early = max((gamma for gamma in gammas if gamma <= POLISHED_AT[0]), default=gammas[0])
        stages: list[Stage] = []
        for gamma in gammas:
            stages.append(partial(self._follow, gamma, noted=unlimited and gamma in (*WHAT_IF, last), early=early))
        if not unlimited:
            levels = [level for level in LEVELS if level < self.gamma] + [self.gamma]
            stages += [partial(self._fit, level, is_first=level == levels[0]) for level in levels]
            return stages + [self._close] * MOST_CLOSED
        if self.fixed:
            return [*stages, self._settle_at_gamma]
        unit = self.model.time_unit
        finer = [value * unit for value in FINEST if value * unit < temperature_of(self.gamma, unit)]
        return [*stages, *(partial(self._sharpen, temperature) for temperature in finer), self._keep_flow]

    def _follow(self, gamma: float, *, noted: bool, early: float) -> None:
        """One gamma of the homotopy: descend, perhaps polish, and perhaps note what its design is worth."""
        began = self.monitor.elapsed()
        temperature = temperature_of(gamma, self.model.time_unit)
        descent = self._descend(gamma, temperature)
        if gamma == early:
            descent = self._afford(descent, gamma)
        if gamma in (early, POLISHED_AT[1]):
            descent, self.state.is_open = polish(
                self._price_problem(gamma, temperature),
                descent,
                self.state.is_open,
                self.limits.limit > 0,
                threshold=self.model.threshold,
                max_failures=self.max_failures,
                max_moves=self.max_moves,
            )
            self._reach(descent)
        if noted:
            seconds, capacity = self.monitor.elapsed() - began, self._carrying(descent.capacity)
            found = self.model.capacities(capacity, gamma)
            row = (float(found.utility), float(found.utility_penalised), found.distance, int((capacity > 0).sum()))
            self.state.what_if.append(WhatIf(gamma, *row, seconds))

    def _price_problem(self, gamma: float, temperature: float) -> PriceProblem:
        def evaluate(prices: Float[NDArray, "links"], is_open: Bool[NDArray, "links"]) -> PricePenalty:
            self.state.evaluations += 1
            return self.model.prices(prices, gamma, is_open, temperature, self.state.cost)

        return PriceProblem(evaluate, self.model.ceiling, self.limits.group, partial(self._observe_prices, gamma))

    def _descend(self, gamma: float, temperature: float) -> Descent:
        descent = descend(self._price_problem(gamma, temperature), self.state.prices, self.state.is_open)
        self._reach(descent)
        return descent

    def _sharpen(self, temperature: float) -> None:
        self._descend(self.gamma, temperature)

    def _reach(self, descent: Descent) -> None:
        self.state.prices, self.state.flow, self.state.penalised_flow, _ = descent

    def _keep_flow(self) -> None:
        """At the lowest temperature flows split over equally cheap paths exactly: they are the design."""
        self.keep(Candidate(self._carrying(self.state.flow)))

    def _settle_at_gamma(self) -> None:
        """The minimiser of F_gamma at the user's gamma: the penalised flows, and a descent without smoothing."""
        start = Candidate(self._carrying(self.state.penalised_flow))
        self.keep(start)
        capacity, _ = descend_built(self.model, self.limits, start, self.gamma, self.observe, iterations=400)
        self.keep(Candidate(capacity))

    # --- limits -----------------------------------------------------------------------------------------------------
    def _afford(self, descent: Descent, gamma: float) -> Descent:
        """Make every link cost more, in proportion, until what the flows need fits the budget."""
        state, cost, budget = self.state, self.model.network.cost, self.limits.budget
        low, high, price = 0.0, np.inf, 0.0
        for _ in range(14):
            spent = float(cost @ np.maximum(descent.capacity, descent.capacity[self.limits.partner]))
            if (spent <= budget and price == 0.0) or 0.9 * budget <= spent <= 1.05 * budget:
                break
            low, high = (price, high) if spent > budget else (low, price)
            price = 0.5 * (low + high) if np.isfinite(high) else 2.0 * price + 0.1
            state.cost = cost * (1.0 + price)
            descent = self._descend(gamma, temperature_of(gamma, self.model.time_unit))
        state.budget_price = price
        return descent

    def _fit(self, level: float, *, is_first: bool) -> None:
        """Descend within the limits from where the prices led; ``flow`` then holds the capacities."""
        is_last, state = level == self.gamma, self.state
        start = Candidate(self._carrying(state.flow) if is_first else state.flow, state.budget_price)
        found = descend_level(self.model, self.limits, start, level, self.observe, is_first=is_first, is_last=is_last)
        if is_last:
            found = found._replace(capacity=self.limits.cover(found.capacity))
            self.keep(found)
        state.flow, state.budget_price = found

    def _close(self) -> bool:
        """Close the group of links whose closing raises the exact utility most, and descend; True where none does."""
        capacity = self.state.flow
        leaders = np.unique(self.limits.group[capacity > 0])
        smallest = sorted(leaders, key=lambda leader: capacity[leader])[: 2 * self.max_failures]
        found = []
        for leader in smallest:
            trial = np.where(self.limits.group == leader, 0.0, capacity)
            found.append((self._score(self.model.capacities(trial, self.gamma)), int(leader)))
            self.state.evaluations += 1
        if not found or max(found)[0] <= self.state.score + 1e-6 * (1.0 + abs(self.state.score)):
            return True
        self.state.flow = np.where(self.limits.group == max(found)[1], 0.0, capacity)
        self._fit(self.gamma, is_first=True)
        return False

    # --- what was found ---------------------------------------------------------------------------------------------
    def _carrying(self, flow: Float[NDArray, "links"]) -> Float[NDArray, "links"]:
        return self.limits.cover(np.where(flow > self.model.threshold, flow, 0.0))

    def _score(self, found: CapacityPenalty) -> float:
        if not found.error < 1e-7:
            return -np.inf
        return -float(found.value) if self.fixed else float(found.utility)

    def keep(self, candidate: Candidate) -> None:
        """Judge capacities and keep the best, also without what travellers leave idle."""
        found = self.model.capacities(candidate.capacity, self.gamma)
        sides = [(candidate.capacity, found)]
        if not self.fixed:
            # Less capacity where it is idle gives the same answer for less money.
            carried = self.limits.cover(np.asarray(found.follower.point.flow).sum(axis=0))
            trimmed = np.where(carried > self.model.threshold, np.minimum(candidate.capacity, carried), 0.0)
            sides.append((trimmed, self.model.capacities(trimmed, self.gamma, found.warm)))
        for capacity, side in sides:
            self._adopt(Candidate(capacity, candidate.budget_price), side, side)

    def _adopt(self, candidate: Candidate, found: CapacityPenalty, solution: CapacityPenalty | None) -> None:
        if self._score(found) > self.state.score:
            self.state.score, self.state.best, self.state.solution = self._score(found), candidate, solution

    def settle(self) -> None:
        """Judge what a run that was stopped had in hand."""
        if self.state.provisional_utility > self.state.score:
            self.keep(Candidate(self._carrying(self.state.provisional_flow)))

    # --- history ----------------------------------------------------------------------------------------------------
    def _observe_prices(self, gamma: float, found: PricePenalty) -> None:
        cost, graph = self.model.network.cost, self.model.graph
        earned = graph.demand * graph.revenue
        losses = [float(cost @ side.flow - np.sum(earned * side.share)) for side in (found.follower, found.penalised)]
        flow = np.asarray(found.follower.flow)
        if -losses[0] > self.state.provisional_utility:
            self.state.provisional_utility, self.state.provisional_flow = -losses[0], flow
        self._append(
            flow,
            found,
            gamma=gamma,
            upper_value=losses[0],
            upper_value_penalty=losses[1],
            stationarity=float(np.max(np.abs(found.gradient), initial=0.0)),
            inner_residual=0.0,
            distance=float(np.linalg.norm(found.penalised.share - found.follower.share)),
        )

    def observe(self, capacity: Float[NDArray, "links"], gamma: float, found: CapacityPenalty) -> None:
        """Record one evaluation of F_gamma in the capacities, and keep it if it is the best so far."""
        self.state.evaluations += 1
        inside = np.array_equal(self.limits.cover(capacity), capacity)
        if inside and (gamma == self.gamma or not self.fixed):
            candidate = Candidate(capacity.copy(), self.state.best.budget_price)
            self._adopt(candidate, found, found if gamma == self.gamma else None)
        step = capacity - np.clip(capacity - np.asarray(found.gradient), 0.0, self.limits.limit)
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
