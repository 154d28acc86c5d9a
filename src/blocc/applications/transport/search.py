"""From one start to one design: the homotopy in prices, limits on the capacities, polishing, sharpening."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from blocc.applications.transport.capacity_set import CapacitySet
from blocc.applications.transport.design_result import WhatIf
from blocc.applications.transport.model import DesignModel, Penalty
from blocc.applications.transport.polish import polish
from blocc.applications.transport.prices import FINEST, GAMMAS, Descent, Prices, descend, temperature_of
from blocc.outer.monitor import HistoryRow, Monitor

#: Links are closed and reopened at these gammas of the homotopy: early, while moves are large, and once more later.
POLISHED_AT = (10.0, 100.0)
#: Most rounds of multipliers for limits on the capacities, and the relative violation that ends them.
ROUNDS, VIOLATION = 80, 2e-3


@dataclass
class Search:
    """One start's way through the homotopy; limits enter as multipliers on the cost of each link."""

    model: DesignModel
    limits: CapacitySet
    gamma: float
    monitor: Monitor
    evaluations: int = 0
    what_if: list[WhatIf] = field(default_factory=list)
    best: tuple[float, np.ndarray] = (-np.inf, np.zeros(0))
    budget_price: float = 0.0
    limit_price: np.ndarray = field(default_factory=lambda: np.zeros(0))
    balance: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        links = self.model.network.n_links
        self.limit_price, self.balance = np.zeros(links), np.zeros(links)
        self.best = (-np.inf, np.zeros(links))
        # Two polishing rounds of ten descents each suit a city; on large networks every descent is dear.
        self.tries = 10 if links <= 150 else 4
        self.rounds = 100 if links <= 150 else 6

    # --- the homotopy -----------------------------------------------------------------------------------------------
    def run(self, prices: np.ndarray) -> np.ndarray:
        """Follow gamma upwards and the temperature downwards; returns capacities within the limits."""
        self._set_cost()
        allowed = self.limits.limit > 0
        is_open = allowed.copy()
        unit, clock = self.model.time_unit, self.monitor.elapsed
        gammas = [gamma for gamma in GAMMAS if gamma < self.gamma] + [self.gamma]
        for gamma in gammas:
            began = clock()
            temperature = temperature_of(gamma, unit)
            found = self._descend(prices, gamma, is_open, temperature)
            last_early = gamma == max((g for g in gammas if g <= POLISHED_AT[0]), default=gammas[0])
            if last_early or gamma in POLISHED_AT:
                if not self.limits.is_orthant:
                    found = self._limit(found, gamma, is_open, temperature)
                polished = polish(
                    self.model.prices,
                    found,
                    is_open,
                    gamma=gamma,
                    temperature=temperature,
                    ceiling=self.model.ceiling,
                    threshold=self.model.threshold,
                    tries=self.tries,
                    rounds=self.rounds,
                    group=self.limits.group,
                    allowed=allowed,
                    watch=self._watch,
                )
                found, is_open = polished.descent, polished.is_open
                self.evaluations += polished.evaluations
                if not self.limits.is_orthant:
                    found = self._limit(found, gamma, is_open, temperature)
            elif gamma == self.gamma and not self.limits.is_orthant:
                found = self._limit(found, gamma, is_open, temperature)
            prices = found.prices
            self._note(found, gamma, clock() - began)
        for temperature in FINEST:
            if temperature * unit < temperature_of(self.gamma, unit):
                found = self._descend(prices, self.gamma, is_open, temperature * unit)
                prices = found.prices
                self.consider(found.capacity)
        return self.best[1]

    def _descend(self, prices: np.ndarray, gamma: float, is_open: np.ndarray, temperature: float) -> Descent:
        ceiling = self.model.ceiling
        found = descend(self.model.prices, prices, gamma, is_open, temperature, ceiling, self._watch)
        self.evaluations += found.evaluations
        return found

    # --- limits -----------------------------------------------------------------------------------------------------
    def _set_cost(self) -> None:
        cost = self.model.network.cost
        self.model.cost = cost * (1.0 + self.budget_price) + self.limit_price + self.balance

    @property
    def constant(self) -> float:
        """What the multipliers pay back: the bound on F_gamma that the prices give is lower by this."""
        finite = np.where(np.isfinite(self.limits.limit), self.limits.limit, 0.0)
        budget = self.budget_price * self.limits.budget if self.budget_price > 0 else 0.0
        return budget + float(self.limit_price @ finite)

    def _limit(self, found: Descent, gamma: float, is_open: np.ndarray, temperature: float) -> Descent:
        """Raise the multipliers of what is violated and lower those of what is not, until the flows fit."""
        limits, cost = self.limits, self.model.network.cost
        other, level = limits.partner, float(np.mean(cost)) + 1e-12
        # Nobody fills a link beyond the whole demand: such a limit is never reached.
        limit = np.minimum(limits.limit, 2.0 * float(self.model.network.demand.sum()) + 1.0)
        step = 1.0
        previous = np.inf
        for _ in range(ROUNDS):
            flow = found.capacity
            typical = float(np.mean(flow)) + self.model.threshold
            over = (flow - limit) / (limit + 0.05 * typical)
            uneven = (flow - flow[other]) / (flow + flow[other] + 0.05 * typical)
            needed = np.maximum(flow, flow[other])
            excess = float(cost @ needed) / limits.budget - 1.0 if 0 < limits.budget < np.inf else -1.0
            tight = np.where(self.limit_price > 0, np.abs(over), np.maximum(over, 0.0))
            worst = max(
                float(np.max(tight, initial=0.0)),
                abs(excess) if self.budget_price > 0 else max(excess, 0.0),
                float(np.max(np.abs(np.where(self._tied, uneven, 0.0)), initial=0.0)),
            )
            if worst < VIOLATION:
                break
            step = step * 1.1 if worst < previous else max(0.6 * step, 0.02)
            previous = worst
            self.budget_price = max(0.0, self.budget_price + step * np.clip(excess, -0.5, 0.5))
            self.limit_price = np.maximum(0.0, self.limit_price + step * level * np.clip(over, -0.5, 0.5))
            moved = self.balance + step * level * 0.5 * uneven
            whole = cost * (1.0 + self.budget_price)
            self.balance = np.clip(0.5 * (moved - moved[other]), -whole, whole[other])
            self._set_cost()
            found = self._descend(found.prices, gamma, is_open, temperature)
        return found

    @property
    def _tied(self) -> np.ndarray:
        """Pairs whose balance can still move: at its end one direction pays everything and the other may stay empty."""
        own = np.arange(self.limits.size)
        whole = self.model.network.cost * (1.0 + self.budget_price)
        least = np.minimum(whole, whole[self.limits.partner])
        return (self.limits.partner != own) & (np.abs(self.balance) < 0.999 * least)

    # --- what was found ---------------------------------------------------------------------------------------------
    def consider(self, flow: np.ndarray, gamma: float | None = None) -> Penalty:
        """Capacities that carry ``flow``, judged by the exact utility; the best are kept."""
        capacity = self.limits.cover(np.where(flow > self.model.threshold, flow, 0.0))
        found = self.model.capacities(capacity, gamma or self.gamma)
        # Where travellers leave capacity idle, less of it gives the same answer for less money.
        carried = self.limits.cover(np.asarray(found.follower.point.flow).sum(axis=0))
        trimmed = np.where(carried > self.model.threshold, np.minimum(capacity, carried), 0.0)
        again = self.model.capacities(trimmed, self.gamma)
        for x, side in ((capacity, found), (trimmed, again)):
            if float(side.follower.error) < 1e-7 and float(side.utility) > self.best[0]:
                self.best = (float(side.utility), x)
        return found

    def _note(self, found: Descent, gamma: float, seconds: float) -> None:
        side = self.consider(found.capacity, gamma)
        shares = np.asarray(side.penalised.point.share) - np.asarray(side.follower.point.share)
        built = int((found.capacity > self.model.threshold).sum())
        self.what_if.append(
            WhatIf(
                gamma,
                float(side.utility),
                float(side.utility_penalised),
                float(np.linalg.norm(shares)),
                built,
                seconds,
            )
        )

    def _watch(self, found: Prices, gamma: float) -> None:
        cost, graph = self.model.network.cost, self.model.graph
        earned = graph.demand * graph.revenue
        losses = [float(cost @ side.flow - np.sum(earned * side.share)) for side in (found.follower, found.penalised)]
        distance = float(np.linalg.norm(found.penalised.share - found.follower.share))
        row = HistoryRow(
            time=self.monitor.elapsed(),
            gamma=gamma,
            upper_value=losses[0],
            upper_value_penalty=losses[1],
            lower_value=float(found.follower.value),
            penalty_value=float(found.value) - self.constant,
            stationarity=float(np.max(np.abs(found.gradient), initial=0.0)),
            inner_residual=0.0,
            distance=distance,
            step=0.0,
            evaluations=self.evaluations + self.monitor.iterations,
        )
        self.monitor.append(row, np.asarray(found.follower.flow))
