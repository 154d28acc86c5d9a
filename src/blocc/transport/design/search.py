"""From one start to one design: the homotopy in prices, polishing, sharpening, and limits on the capacities.

A search is a row of stages. Between two of them its whole state is plain data (``search_state.py``), so that it can be
kept, and another run can go on from there.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

import jax
import numpy as np

from blocc._lib.arrays import Bool, Float, NDArray
from blocc._lib.rounding import KEPT
from blocc.outer.monitor import Monitor
from blocc.resume.recorded import RecordedMonitor
from blocc.transport.design.capacity_descent import LEVELS, descend_built
from blocc.transport.design.capacity_set import SQUEEZED, CapacitySet
from blocc.transport.design.design_result import WhatIf
from blocc.transport.design.incumbent import Incumbent, lies_in_a_valley
from blocc.transport.design.limited_prices import LimitedPrices
from blocc.transport.design.model import DesignModel
from blocc.transport.design.prices import (
    FINEST,
    GAMMAS,
    LARGE,
    Descent,
    PricePenalty,
    PriceProblem,
    descend,
    polish,
    temperature_of,
)
from blocc.transport.design.search_state import SearchState

#: gammas of the homotopy whose designs are solved exactly, for the table of what another gamma would have given.
WHAT_IF = (2.0, 4.0, 8.0, 128.0, 1024.0)
#: On more links than these each of those solutions takes seconds: there is no such table.
LARGEST_NOTED = 150
#: Links are closed and reopened at this gamma of the homotopy: early, while moves are large. A second time later gains
#: nothing on random networks.
POLISHED_AT = 8.0
#: Where more than a budget limits the capacities, many multipliers must be found for each vector of prices. The
#: homotopy in prices then ends here, and the descent in the capacities takes over.
HANDED_OVER_AT = 8.0
#: Repeating the homotopy with less money in between is for networks of up to so many links.
LARGEST_REPEATED = 150
#: A design without limits has its money drawn in to these parts of its cost, and back, where it is built differently.
SQUEEZED_TO = (0.93, SQUEEZED)
#: Most steps of one descent in the prices; of those on a large network, and there between the polishing and the last
#: gamma, where little changes and the next stage goes on anyway.
MOST_STEPS, FEWER_STEPS = 100, 40
#: Closing one link after the other ends after so many.
MOST_CLOSED = 8

#: Does one piece of work; True ends the search.
Stage = Callable[[], bool | None]


class Search(Incumbent):
    """One start's way to its design."""

    def __init__(
        self, model: DesignModel, limits: CapacitySet, gamma: float, monitor: Monitor, *, fixed: bool = False
    ) -> None:
        super().__init__(model, limits, gamma, monitor, fixed=fixed)
        self.wider = limits.without_ceilings()
        self.released = copy(self.wider)  #: without limits once more, after they were drawn in for a while
        # Three descents before a polishing gives up find what ten do; on large networks every descent is costly.
        links = model.network.n_links
        self.max_failures, self.max_moves = (3, 100) if links <= 150 else (3, 4) if links <= 1000 else (1, 1)

    # --- stages -----------------------------------------------------------------------------------------------------
    def begin(self, prices: Float[NDArray, "links"]) -> None:
        """Start at these prices; to build no more than must be is always possible."""
        self.keep(self.limits.least)
        self.state.prices = self.state.first_prices = prices

    def run(self, stages: list[Stage], after_stage: Callable[[], None]) -> None:
        """Work off the stages that are not done yet."""
        while self.state.stage < len(stages):
            is_last = stages[self.state.stage]()
            self.state.stage = len(stages) if is_last else self.state.stage + 1
            after_stage()

    def stages(self) -> list[Stage]:
        """Follow gamma upwards and the temperature downwards; where there are limits, once without and once with them.

        In between, at a small gamma, the limits are drawn in step by step, so that the design without limits changes
        into one within them: cut down to the limits at once, it would lead to a worse one. Then the search begins once
        more where it began at first, within the limits from the beginning. Without limits money is drawn in for a while
        and given back, which may lead to a better design.
        """
        unlimited = self._homotopy(self.wider, GAMMAS[0], self.gamma)
        if self.limits.is_orthant:
            if self.fixed or self.model.network.n_links > LARGEST_REPEATED:
                return unlimited
            return [*unlimited, self._squeeze, *self._homotopy(self.released, self._early(self.gamma), self.gamma)]
        stages = [*unlimited, self._cut]
        for begin, first in ((self._draw_in, self._early(self.gamma)), (self._return, GAMMAS[0])):
            stages += [begin, *self._within(first)]
        if not self.limits.is_simple:
            return [*stages, *[self._close] * MOST_CLOSED]
        return stages

    def _within(self, first: float) -> list[Stage]:
        """From one gamma to a design within the limits."""
        if self.limits.is_simple:
            return self._homotopy(self.limits, first, self.gamma)
        levels = [level for level in LEVELS if level < self.gamma] + [self.gamma]
        fits = [partial(self._fit, level) for level in levels]
        return [*self._gammas(self.limits, first, min(self.gamma, HANDED_OVER_AT)), *fits]

    def _homotopy(self, within: CapacitySet, first: float, last: float) -> list[Stage]:
        """From one gamma to another, and on to a design."""
        stages = self._gammas(within, first, last)
        if self.fixed:
            return [*stages, self._settle_at_gamma]
        unit = self.model.time_unit
        finer = [value * unit for value in FINEST if value * unit < temperature_of(self.gamma, unit)]
        return [*stages, *(partial(self._sharpen, temperature, within) for temperature in finer), self._keep_flow]

    def _gammas(self, within: CapacitySet, first: float, last: float) -> list[Stage]:
        gammas = [gamma for gamma in GAMMAS if first <= gamma < last] + [last]
        is_final = within is self.limits or (self.limits.is_orthant and within is self.wider)
        noted = [*WHAT_IF, last] if is_final and self.model.network.n_links <= LARGEST_NOTED else []
        return [partial(self._follow, gamma, within, noted=gamma in noted, early=self._early(last)) for gamma in gammas]

    def _early(self, last: float) -> float:
        """The gamma at which links are closed and reopened first, and at which limits are drawn in."""
        return max((gamma for gamma in (*GAMMAS, last) if gamma <= min(POLISHED_AT, last)), default=last)

    def _follow(self, gamma: float, within: CapacitySet, *, noted: bool, early: float) -> None:
        """One gamma of the homotopy: descend, perhaps polish, and perhaps note what its design is worth."""
        began = self.monitor.elapsed()
        temperature = temperature_of(gamma, self.model.time_unit)
        descent = self._descend(gamma, temperature, within)
        # What was squeezed has the shape of its network already.
        if gamma == early and within is not self.released:
            descent, self.state.is_open = polish(
                self._price_problem(gamma, temperature, within),
                descent,
                self.state.is_open,
                within.limit > within.least,
                threshold=self.model.threshold,
                max_failures=self.max_failures,
                max_moves=self.max_moves,
            )
            self._reach(descent)
        if gamma == early and within is self.wider:
            self.state.early_prices, self.state.early_open = self.state.prices, self.state.is_open
        if noted:
            seconds, capacity = self.monitor.elapsed() - began, self.carrying(descent.capacity)
            found = self.judge(capacity, self.model.near(descent.prices, gamma), gamma)
            if not self.fixed:
                self._adopt(capacity, found, None)
            self.state.what_if = [row for row in self.state.what_if if row.gamma != gamma]
            row = (float(found.utility), float(found.utility_penalised), found.distance, int((capacity > 0).sum()))
            self.state.what_if.append(WhatIf(gamma, *row, seconds))

    def _price_problem(self, gamma: float, temperature: float, within: CapacitySet) -> PriceProblem:
        forced = within.least > 0.0
        roughly = gamma < self.gamma

        def evaluate_limited(prices: Float[NDArray, "links"], is_open: Bool[NDArray, "links"]) -> PricePenalty:
            def free(prices: Float[NDArray, "links"], cost: Float[NDArray, "links"]) -> PricePenalty:
                self.monitor.check_time()
                self.state.evaluations += 1
                return self.model.prices(prices, gamma, is_open | forced, temperature, cost)

            limited = LimitedPrices(within.held(forced & ~is_open), self.state.multipliers, roughly=roughly)
            found = limited.evaluate(free, prices, gamma)
            self.state.multipliers = limited.multipliers
            return found

        is_large = self.model.network.n_links > LARGE
        most = FEWER_STEPS if is_large and POLISHED_AT < gamma < self.gamma else MOST_STEPS
        observe = partial(self.observe_prices, gamma)
        return PriceProblem(evaluate_limited, self.model.ceiling, within.group, forced, observe, most)

    def _descend(self, gamma: float, temperature: float, within: CapacitySet) -> Descent:
        descent = descend(self._price_problem(gamma, temperature, within), self.state.prices, self.state.is_open)
        self._reach(descent)
        return descent

    def _sharpen(self, temperature: float, within: CapacitySet) -> None:
        self._descend(self.gamma, temperature, within)

    def _reach(self, descent: Descent) -> None:
        self.state.prices, self.state.flow, self.state.penalised_flow, _ = descent

    def _keep_flow(self) -> None:
        """At the lowest temperature flows split over equally cheap paths exactly: they are the design."""
        self.keep(self.carrying(self.state.flow), self.model.near(self.state.prices, self.gamma))

    def _settle_at_gamma(self) -> None:
        """The minimiser of F_gamma at the user's gamma: the penalised flows, and a descent without smoothing."""
        self.state.flow = start = self.carrying(self.state.penalised_flow)
        self.keep(start)
        stop = self.monitor.is_over
        found = descend_built(self.model, self.limits, start, self.gamma, self.observe, iterations=400, stop=stop)
        self.keep(found.capacity)
        if self.limits.is_simple and self.model.network.n_links <= LARGEST_NOTED:
            self._look_for_equals()

    def _look_for_equals(self) -> None:
        """Where minimisers of F_gamma fill a valley, close one link after the other: the end without it may be equal.

        Of equal ones the incumbent is the one with the larger utility.
        """
        stop = self.monitor.is_over
        for _ in range(MOST_CLOSED):
            best = self.state.best.copy()
            if stop() or not lies_in_a_valley(self.model, self.limits, best, self.gamma, stop):
                return
            built = np.flatnonzero(best > self.limits.least)
            for link in built[np.argsort(best[built], kind="stable")]:
                start = np.where(self.limits.group == self.limits.group[link], self.limits.least, best)
                descend_built(self.model, self.limits, start, self.gamma, self.observe, iterations=100, stop=stop)
                if not np.array_equal(self.state.best, best):
                    break
            else:
                return

    # --- limits -----------------------------------------------------------------------------------------------------
    def _cut(self) -> bool:
        """Cut the design without limits down to them; True where that takes nothing away and nothing else binds."""
        self.state.widest = np.where(self.state.flow > self.model.threshold, self.state.flow, 0.0)
        return (
            self.wider.is_orthant
            and not self.limits.has_budget
            and np.array_equal(self.carrying(self.state.flow), np.maximum(self.state.widest, self.limits.least))
        )

    def _fit(self, gamma: float) -> None:
        """Descend within the limits from where the search stands; ``flow`` holds the capacities."""
        is_last = gamma == self.gamma
        iterations, precision = (150, 1e-11) if is_last else (60, 1e-7)
        start = self.carrying(self.state.flow)
        where, stop = (self.model, self.limits, start, gamma, self.observe), self.monitor.is_over
        found = descend_built(*where, iterations=iterations, precision=precision, stop=stop)
        self.state.flow = found.capacity
        if is_last:
            self.keep(found.capacity)

    def _draw_in(self) -> None:
        """Follow the penalty function at a small gamma from the design without limits to one within them."""
        state, gamma = self.state, self._early(self.gamma)
        state.prices, state.is_open = state.early_prices, state.early_open
        for step in self.limits.contracted(np.maximum(state.widest, self.limits.least)):
            self._descend(gamma, temperature_of(gamma, self.model.time_unit), step)

    def _squeeze(self) -> bool:
        """Draw a budget in from what the design without limits costs, at a small gamma; True where it costs nothing.

        What a design gives up while money is short is often better spent elsewhere when it is back.
        """
        state, gamma = self.state, self._early(self.gamma)
        spent = float(self.limits.cost @ np.where(state.flow > self.model.threshold, state.flow, 0.0))
        if spent <= 0.0:
            return True
        state.prices, state.is_open = state.early_prices, state.early_open
        for part in SQUEEZED_TO:
            tight = copy(self.wider)
            tight.allowance = part * spent
            self._descend(gamma, temperature_of(gamma, self.model.time_unit), tight)
        return False

    def _return(self) -> None:
        """Begin once more at the first prices, now within the limits."""
        first = SearchState.initial(self.limits)
        self.state.prices, self.state.is_open = self.state.first_prices, first.is_open
        self.state.multipliers = first.multipliers

    def _close(self) -> bool:
        """Take the group of links down to its least that raises the exact utility most; True where none does."""
        capacity, least = self.state.best, self.limits.least
        leaders = np.unique(self.limits.group[capacity > least])
        smallest = sorted(leaders, key=lambda leader: capacity[leader])[: 2 * self.max_failures]
        found = []
        for leader in smallest:
            self.monitor.check_time()
            trial = np.where(self.limits.group == leader, least, capacity)
            found.append((self._score(self.judge(trial)), int(leader)))
            self.state.evaluations += 1
        if not found or max(found)[0] <= self.state.score + KEPT * (1.0 + abs(self.state.score)):
            return True
        self.state.flow = np.where(self.limits.group == max(found)[1], least, capacity)
        self._fit(self.gamma)
        return False


#: Rows of the table that shows what other gammas would have given: those of the homotopy, and the last one.
_MOST_ROWS = len(WHAT_IF) + 1


def keep_search(search: Search, index: int) -> None:
    """Keep where start number ``index`` stands now, if the run is kept at all."""
    if _is_kept(search):
        search.monitor.keep(f"start {index + 1}", _to_tree(search))


def restore_search(search: Search, index: int) -> bool:
    """Let a search go on where an earlier run left it; False where that run did not come so far."""
    if not _is_kept(search):
        return False
    own = _to_tree(search)
    found = search.monitor.begin(f"start {index + 1}", own)
    if found is own:
        return False
    search.state = _from_tree(found)
    return True


def is_begun(monitor: Monitor, index: int) -> bool:
    """Whether an earlier run has come to start number ``index``."""
    return isinstance(monitor, RecordedMonitor) and f"start {index + 1}" in monitor.recording.recorded.kept


def _is_kept(search: Search) -> bool:
    return isinstance(search.monitor, RecordedMonitor) and search.monitor.recording.active


def _to_tree(search: Search) -> dict[str, Any]:
    """The state in arrays whose shapes depend on the network alone."""
    state, nowhere = search.state, np.zeros(search.model.network.n_links)
    table = np.full((_MOST_ROWS, len(WhatIf._fields)), np.nan)
    table[: len(state.what_if)] = np.reshape(state.what_if, (-1, table.shape[1]))
    solution = search.model.capacities(nowhere, search.gamma) if state.solution is None else state.solution
    return vars(state) | {"what_if": table, "solution": solution, "is_solved": state.solution is not None}


def _from_tree(tree: dict[str, Any]) -> SearchState:
    solution, table = tree["solution"], np.asarray(tree["what_if"]).tolist()
    rest = {name: value for name, value in tree.items() if name not in ("solution", "what_if", "is_solved")}
    plain = jax.tree.map(lambda leaf: np.asarray(leaf) if np.ndim(leaf) else leaf.item(), rest)
    rows = [WhatIf(*row)._replace(links_built=int(row[4])) for row in table if np.isfinite(row[0])]
    return SearchState(**plain, what_if=rows, solution=solution if tree["is_solved"] else None)
