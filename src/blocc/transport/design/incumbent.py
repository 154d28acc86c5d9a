"""The best capacities that a search has met, judged by exact answers of the travellers, and the history on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from blocc._lib.arrays import Bool, Float, NDArray
from blocc._lib.compiled import clock, counted_compile_seconds
from blocc._lib.rounding import EXACT, PLACED, TINY
from blocc.outer.monitor import GRACE, Monitor
from blocc.result import HistoryRow
from blocc.transport.design.all_or_nothing import MULTIPLES, WORTHLESS, Met, SharpFlows, incomes
from blocc.transport.design.capacity_descent import evaluate, worth_of_money
from blocc.transport.design.capacity_set import CapacitySet
from blocc.transport.design.model import CapacityPenalty, DesignModel, never
from blocc.transport.design.prices import PricePenalty
from blocc.transport.design.search_state import SearchState

#: Values of F_gamma this close, relative to 1 + |F_gamma|, are equal: descents end within it of each other.
EQUAL = 1e-7
#: A smaller curvature, relative to the largest, is none: so exact are differences of gradients over this part of x.
_FLAT, _APART = 1e-3, 1e-4


def is_preferred(value: float, utility: float, least: float, best: float) -> bool:
    """Whether F_gamma = ``value`` with this utility is to be chosen before ``least`` with the utility ``best``."""
    equal = EQUAL * (1.0 + abs(least)) if np.isfinite(least) else 0.0
    return value < least - equal or (value <= least + equal and utility > best)


def lies_in_a_valley(
    model: DesignModel,
    limits: CapacitySet,
    capacity: Float[NDArray, "links"],
    gamma: float,
    stop: Callable[[], bool],
) -> bool:
    """Whether F_gamma has a direction without curvature among the built links, so that minimisers may be many."""
    built = np.flatnonzero(capacity > limits.least)
    if not len(built):
        return False
    here = evaluate(model, limits, capacity, gamma, None, stop)
    rows = []
    for link in built:
        beside = capacity.copy()
        beside[link] += (away := _APART * capacity[link])
        found = evaluate(model, limits, beside, gamma, here.warm, stop)
        rows.append((np.asarray(found.gradient) - np.asarray(here.gradient))[built] / away)
    curvature = np.linalg.eigvalsh(0.5 * (np.array(rows) + np.array(rows).T))
    return bool(curvature[0] <= _FLAT * curvature[-1])


#: Capacities that differ by less than this part of the utility in what they cost are not judged once more: the second
#: number on networks of more links than the third, where that takes seconds.
SAVING, LARGE_SAVING, LARGE = 1e-8, 1e-4, 150
#: Links with less than these parts of the mean capacity are taken away where that costs next to nothing.
NEGLIGIBLE_CAPACITY, _HOPELESS = (1e-2, 1e-3, 1e-4, 1e-5), 10.0
#: Seconds after which the answer of an interrupted run is cut short. After a time limit it is half of what that may
#: be passed by; the certificate has the other half.
CLOSING = 4.0
#: Estimated utilities that grow by this part have their sharp flows looked at; at most so many halvings each. The
#: second number where limits cut flows down, and what is left of them must be judged exactly.
_STRIDE, _LONG_STRIDE, _FEW_HALVINGS = 0.01, 0.05, 5
#: Where limits cut flows down, so many of the most promising loads at multiples of the costs are judged exactly.
_JUDGED = 4


#: A budget may be exceeded by this part of it.
_ROUNDING = 1e-9


class Incumbent:
    """The best capacities met on one start's way."""

    def __init__(
        self, model: DesignModel, limits: CapacitySet, gamma: float, monitor: Monitor, *, fixed: bool = False
    ) -> None:
        self.model, self.limits, self.gamma, self.monitor = model, limits, gamma, monitor
        self.fixed = fixed  #: whether gamma is the user's: then F_gamma is what counts, otherwise the exact utility
        self.state = SearchState.initial(limits)
        self.sharp = SharpFlows(model, limits, gamma)

    def judge(self, capacity: Float[NDArray, "links"], warm: Any = None, gamma: float | None = None) -> CapacityPenalty:
        """F_gamma and both answers; far from exact where the run is to end, which the next look at the clock says."""
        at = self.gamma if gamma is None else gamma
        return evaluate(self.model, self.limits, capacity, at, warm, self.monitor.is_over)

    def carrying(self, flow: Float[NDArray, "links"]) -> Float[NDArray, "links"]:
        """Capacities within the limits for these flows, without links that carry next to nothing."""
        return self.limits.cover(np.where(flow > self.model.threshold, flow, 0.0))

    def _score(self, found: CapacityPenalty) -> float:
        # The utility is the follower's matter alone.
        if not (found.error if self.fixed else float(found.follower.error)) < PLACED:
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
        over = float(self.limits.cost @ capacity) - self.limits.allowance
        score, state = self._score(found), self.state
        if over > _ROUNDING * self.limits.allowance or not score > -np.inf:
            return
        known = state.solution
        if self.fixed and known is not None:
            better = is_preferred(-score, float(found.utility), -state.score, float(known.utility))
        else:
            better = score > state.score
        if better:  # among equal values the least that was seen stays the measure
            state.score = max(score, state.score) if self.fixed else score
            state.best, state.solution = capacity, solution

    def is_better_than(self, other: Incumbent) -> bool:
        """Whether this start's design is to be chosen before another one's."""
        mine, theirs = self.state, other.state
        if not self.fixed or mine.solution is None or theirs.solution is None:
            return mine.score > theirs.score
        utilities = float(mine.solution.utility), float(theirs.solution.utility)
        return is_preferred(-mine.score, utilities[0], -theirs.score, utilities[1])

    def settle(self) -> None:
        """Judge what a run that was stopped had in hand, within the seconds that are left for that.

        That is the best of what was judged on the way, and of the sharp flows that were looked at: both only grow
        better while a run goes on.
        """
        limit = self.monitor.time_limit
        is_timed = limit is not None and self.monitor.elapsed() > limit
        seconds = 0.5 * max(GRACE[0], GRACE[1] * (limit or 0.0)) if is_timed else CLOSING
        began, compiled = clock(), counted_compile_seconds()

        def is_late() -> bool:  # what the answer has to compile does not shorten it
            return clock() - began - (counted_compile_seconds() - compiled) > seconds

        if self.state.score == -np.inf:  # to build no more than must be is always possible
            found = evaluate(self.model, self.limits, self.limits.least, self.gamma, None, is_late)
            self._adopt(self.limits.least, found, found)
        self.judge_known(is_late)
        if self.is_idle:
            self._judge_unpriced(is_late)
        if (self.is_idle or self.fixed) and self.state.provisional_utility > self.state.score:
            self._try(self.state.prices, self.state.provisional, is_late)
        self.trim(is_late)
        if (cut := self.answer()).error > EXACT:  # the end came before both answers were exact
            found = evaluate(self.model, self.limits, self.state.best, self.gamma, cut.warm, is_late)
            if found.error < cut.error and self._score(found) > -np.inf:
                self.state.score, self.state.solution = self._score(found), found

    def judge_known(self, is_late: Callable[[], bool]) -> None:
        """Judge the best of the sharp flows that were looked at, where they promise more than what was judged.

        What a search ends with may be worth less than what it met, or have no exact answer.
        """
        known, least = self.state.known, self.state.score + SAVING * (1.0 + abs(self.state.score))
        if not self.fixed and known.utility + self.limits.refund > least:
            self._try(known.prices, known.capacity, is_late)

    def _judge_unpriced(self, is_late: Callable[[], bool]) -> None:
        """Judge capacities for flows at multiples of the costs, the most promising first."""
        unpriced = self.sharp.unpriced()
        if self.limits.is_simple:
            loads = [self.sharp.best(unpriced, parts=MULTIPLES)]
        else:
            loads = sorted(self.sharp.tried(unpriced, MULTIPLES), key=lambda load: -load.utility)[:_JUDGED]
        for load in loads:
            self._try(load.prices, load.capacity, is_late)

    def _try(
        self, prices: Float[NDArray, "links"], capacity: Float[NDArray, "links"], is_late: Callable[[], bool]
    ) -> None:
        near = self.model.near(prices, self.gamma)
        found = evaluate(self.model, self.limits, capacity, self.gamma, near, is_late)
        self._adopt(capacity, found, found)

    def _look_at(self, met: Met, estimate: float) -> None:
        """Remember the sharp flows at these prices, where they promise more than when that was done last.

        Of smooth flows at another gamma more may be promised than is kept: each gamma is looked at by itself.
        """
        is_cut = not self.limits.is_simple
        (gamma, largest), stride = self.state.looked_at, _LONG_STRIDE if is_cut else _STRIDE
        if gamma == met.gamma and not estimate > largest + stride * (1.0 + abs(largest)):
            return
        self.state.looked_at = met.gamma, estimate
        judged = is_cut and self.limits.size <= LARGE
        if judged and gamma == 0.0:
            self._judge_unpriced(self.monitor.is_over)
        if self.state.known.utility == -np.inf and not is_cut:
            self.state.known = self.sharp.best(self.sharp.unpriced(), parts=MULTIPLES)
        load = self.sharp.best(met, halvings=_FEW_HALVINGS)
        if judged:
            self._try(load.prices, load.capacity, self.monitor.is_over)
        elif load.utility > self.state.known.utility:
            self.state.known = load

    def trim(self, stop: Callable[[], bool] = never) -> None:
        """Take links away that have next to no capacity, where their absence costs next to nothing."""
        best, found = self.state.best, self.answer()
        built = best[best > self.limits.least]
        if not len(built) or self.fixed:
            return
        allowed = WORTHLESS * (1.0 + abs(float(found.utility)))
        for part in NEGLIGIBLE_CAPACITY:
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
    def _cut_down(self, flow: Float[NDArray, "links"], income: float) -> tuple[Float[NDArray, "links"], float]:
        """Capacities within the limits for flows that earn so much, and about what those are worth."""
        capacity = self.carrying(flow)
        # Where limits cut the flows down, income falls with them.
        left = float(np.minimum(capacity, flow).sum()) / max(float(flow.sum()), TINY)
        return capacity, left * income - float(self.limits.cost @ capacity) + self.limits.refund

    def observe_prices(
        self, gamma: float, prices: Float[NDArray, "links"], is_open: Bool[NDArray, "links"], found: PricePenalty
    ) -> None:
        """Record one evaluation in the prices, and remember where it seems the best so far.

        What is recorded are utilities of capacities within the limits, also while a descent still goes without them.
        """
        sides = (found.follower, found.penalised)
        flows = [np.asarray(side.flow) for side in sides]
        within = [self._cut_down(flow, income) for flow, income in zip(flows, incomes(self.model, found), strict=True)]
        (capacity, utility), (_, penalised) = within
        if utility > self.state.provisional_utility:
            self.state.provisional_utility, self.state.provisional = utility, capacity
        if not self.fixed:
            self._look_at(Met(prices, is_open, gamma), utility)
        self._append(
            flows[0],
            found,
            gamma=gamma,
            upper_value=-utility,
            upper_value_penalty=-penalised,
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
