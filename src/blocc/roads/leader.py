"""The leader's side of every question about roads: two assignments give the penalty function, one the exact value.

With f the leader's objective and g Beckmann's, f + gamma g is once more the objective of an assignment, so that

    F_gamma(x) = min over flows of (f + gamma g)  -  gamma min over flows of g

needs nothing but two equilibria. F_0 is the leader's objective when drivers do what suits the leader best: a lower
bound wherever it can be minimised globally.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.compiled import clock
from blocc.networks.kernels import both
from blocc.roads.curvature import exact_curvature, penalty_curvature
from blocc.roads.descents import Budget, convex_bound, highest, largest_price
from blocc.roads.equilibrium import MANY_PAIRS, Equilibrium, PathFlows, assign_paths, cost_answer
from blocc.roads.expansion import Expansion
from blocc.roads.link_costs import LinkCosts
from blocc.roads.newton_descent import Bent
from blocc.roads.question import Question

#: Relative gap of the assignments on the way, and of the last one.
GAP, LAST_GAP = 1e-12, 1e-13
#: A run that was stopped is content with this one, and lets none of a larger one than the second replace its answer.
STOPPED_GAP, CUT_GAP = 1e-11, 1e-9
#: Relative gap of the assignments that Newton steps begin from: at gamma = 0, above it, and of the exact value.
NEWTON_GAPS = 1e-9, 1e-10, 1e-11


class Reached(NamedTuple):
    """The exact value at one x, with the drivers' answer."""

    x: Float[NDArray, "n"]
    value: float
    slope: Float[NDArray, "n"]  #: NaN where it was not asked for
    answer: Equilibrium


@dataclass
class Leader:
    """Values and derivatives of one question, with warm starts."""

    question: Question
    on_step: Callable[[float, Float[NDArray, "n"], float], None] = lambda gamma, x, value: None
    follower: PathFlows | None = None
    penalised: PathFlows | None = None
    evaluations: int = 0
    best: Reached | None = field(default=None)
    check_stop: Callable[[], None] = lambda: None  #: asked within every assignment; what it raises ends the evaluation
    deadline: float = np.inf  #: of the clock: later assignments end with what they have

    def answer(self, x: Float[NDArray, "n"], gap: float = GAP) -> Equilibrium:
        """The drivers' equilibrium."""
        found = self._assigned(x, self.question.follower_costs(x), gap, self.follower)
        self.follower = found.paths
        return found

    def _assigned(self, x: Float[NDArray, "n"], costs: LinkCosts, gap: float, warm: PathFlows | None) -> Equilibrium:
        def stop(iteration: int, relative: float) -> bool:
            self.check_stop()
            return clock() > self.deadline

        return assign_paths(self.question.network.streets, self.question.pairs(x), costs, gap=gap, warm=warm, stop=stop)

    def penalty(self, x: Float[NDArray, "n"], gamma: float) -> tuple[float, Float[NDArray, "n"]]:
        """F_gamma and its gradient."""
        if np.isinf(gamma):
            reached = self.exact(x)
            return reached.value, reached.slope
        self.evaluations += 1
        value, slope = self.penalty_at(x, gamma)
        self.on_step(gamma, x, value)
        return value, slope

    def penalty_at(self, x: Float[NDArray, "n"], gamma: float) -> tuple[float, Float[NDArray, "n"]]:
        """The same, without callback."""
        return self._penalty_of(x, gamma, *self._two_answers(x, gamma, GAP))

    def _two_answers(self, x: Float[NDArray, "n"], gamma: float, gap: float) -> tuple[Equilibrium, Equilibrium | None]:
        """The penalised assignment and, where gamma counts it, the drivers' own.

        The two are made at once where there are many pairs.
        """
        question, network = self.question, self.question.network
        costs = question.penalised_costs(x, gamma)

        def penalised() -> Equilibrium:
            return self._assigned(x, costs, gap, self.penalised)

        answer = None
        if gamma > 0.0:
            found, answer = both(penalised, lambda: self.answer(x, gap), at_once=network.n_pairs >= MANY_PAIRS)
        else:
            found = penalised()
        self.penalised = found.paths
        return found, answer

    def _penalty_of(
        self, x: Float[NDArray, "n"], gamma: float, found: Equilibrium, answer: Equilibrium | None
    ) -> tuple[float, Float[NDArray, "n"]]:
        question = self.question
        own, slope = question.own(x)
        value = own + float(question.penalised_costs(x, gamma).integral(found.volume).sum())
        slope = slope + question.integral_slope(x, gamma, found.volume) + question.demand_slope(x, found.path_cost)
        if answer is not None:
            value -= gamma * float(question.follower_costs(x).integral(answer.volume).sum())
            slope = slope - gamma * question.integral_slope(x, np.inf, answer.volume)
            slope = slope - gamma * question.demand_slope(x, answer.path_cost)
        return value, slope

    def bent(self, x: Float[NDArray, "n"], gamma: float) -> Bent:
        """F_gamma, or the exact value where gamma is infinite, with slope and second derivatives."""
        self.evaluations += 1
        reached, curvature = self.bent_at(x, gamma)
        if np.isinf(gamma) and (self.best is None or reached.value < self.best.value):
            self.best = reached
        self.on_step(gamma, x, reached.value)
        return Bent(reached.value, reached.slope, curvature)

    def bent_at(self, x: Float[NDArray, "n"], gamma: float) -> tuple[Reached, Float[NDArray, "n n"]]:
        """The same, without callback; the answer is that of drivers where gamma is infinite."""
        question = self.question
        assert isinstance(question, Expansion)
        if np.isinf(gamma):
            answer = self.answer(x, NEWTON_GAPS[2])
            value = question.own(x)[0] + question.worth(x, answer.volume)
            slope, curvature = exact_curvature(question, x, answer)
            return Reached(x.copy(), value, slope, answer), curvature
        found, follower = self._two_answers(x, gamma, NEWTON_GAPS[1 if gamma > 0.0 else 0])
        value, slope = self._penalty_of(x, gamma, found, follower)
        return Reached(x.copy(), value, slope, found), penalty_curvature(question, x, gamma, found, follower)

    def bound(self, x: Float[NDArray, "n"], budget: Budget | None) -> float:
        """A value that no decision has less than, where F_0 is convex in decision and flows together.

        By convexity from one point: its value and slopes there, taken over the bounds (and over the budget by its
        multiplier), less what the assignment lacks.
        """
        question, network = self.question, self.question.network
        costs = question.penalised_costs(x, 0.0)
        found = self._assigned(question.present, costs, LAST_GAP, self.penalised)
        own, slope = question.own(x)
        value = own + float(costs.integral(found.volume).sum()) - found.excess
        slope = slope + question.integral_slope(x, 0.0, found.volume)
        plain = max(convex_bound(value, slope, x, question), network.least_time * (1.0 - 1e-12))
        if budget is None:
            return plain
        spent, rate = budget.spent(x)

        def lifted(price: float) -> float:
            return convex_bound(value + price * (spent - budget.limit), slope + price * rate, x, question)

        return max(plain, highest(lifted, largest_price(slope, rate)))

    def exact(self, x: Float[NDArray, "n"], gap: float = GAP, *, sloped: bool = True) -> Reached:
        """f(x, flows(x)) and, unless it is not wanted, its derivative; the best is kept."""
        self.evaluations += 1
        reached = self.exact_at(x, gap) if sloped else self.value_at(x, gap)
        # Away from the equilibrium values mean nothing.
        is_cut = clock() > self.deadline and reached.answer.relative_gap > CUT_GAP
        if self.best is None or (reached.value < self.best.value and not is_cut):
            self.best = reached
        self.on_step(np.inf, x, reached.value)
        return reached

    def exact_at(self, x: Float[NDArray, "n"], gap: float) -> Reached:
        """The same, without callback."""
        return self.with_slope(self.value_at(x, gap))

    def value_at(self, x: Float[NDArray, "n"], gap: float) -> Reached:
        """The value alone; what a slope takes may be more than an assignment."""
        answer = self.answer(x, gap)
        value = self.question.own(x)[0] + self.question.worth(x, answer.volume)
        return Reached(x.copy(), value, np.full(len(x), np.nan), answer)

    def with_slope(self, reached: Reached) -> Reached:
        """The same with its derivative, where that is not known."""
        if not np.isnan(reached.slope).any():
            return reached
        question, x, answer = self.question, reached.x, reached.answer
        marginal = question.marginal(x, answer.volume)
        per_cost, per_trip = cost_answer(answer, question.follower_costs(x), marginal)
        slope = question.own(x)[1] + question.direct(x, answer.volume) + question.turned(x, answer.volume, per_cost)
        return reached._replace(slope=slope + question.demand_slope(x, per_trip))
