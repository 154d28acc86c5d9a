"""The leader's side of every question about roads: two assignments give the penalty function, one the exact value.

With f the leader's objective and g Beckmann's, f + gamma g is once more the objective of an assignment, so that

    F_gamma(x) = min over flows of (f + gamma g)  -  gamma min over flows of g

needs nothing but two equilibria. F_0 is the leader's objective when drivers do what suits the leader best: a lower
bound wherever it can be minimised globally.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from blocc._lib.arrays import Float, Int, NDArray
from blocc.roads.equilibrium import Equilibrium, Pairs, PathFlows, assign_paths, cost_answer
from blocc.roads.link_costs import LinkCosts, power_costs
from blocc.roads.network import RoadNetwork

#: Relative gap of the assignments on the way, and of the last one.
GAP, LAST_GAP = 1e-12, 1e-13
#: gamma of the continuation; the last is so large that what it hides is beyond the tolerance.
GAMMAS = (0.0, 10.0, 100.0, 1e3, 1e4)


@dataclass(frozen=True, eq=False)
class Question(ABC):
    """What a leader decides about, and what it is worth: total travel time, unless a question says otherwise."""

    network: RoadNetwork
    candidates: Int[NDArray, "n"]  #: links, or pairs, that the decision is about
    lower: Float[NDArray, "n"]
    upper: Float[NDArray, "n"]

    def capacity(self, x: Float[NDArray, "n"]) -> Float[NDArray, "links"]:
        """The capacity of every link."""
        return self.network.capacity

    def toll(self, x: Float[NDArray, "n"]) -> Float[NDArray, "links"]:
        """The toll of every link."""
        return self.network.toll

    def pairs(self, x: Float[NDArray, "n"]) -> Pairs:
        """The trips."""
        return self.network.pairs

    def demand_slope(self, x: Float[NDArray, "n"], per_trip: Float[NDArray, "pairs"]) -> Float[NDArray, "n"]:
        """The sum over pairs of ``per_trip`` times the derivative of the trips in x."""
        return np.zeros(len(x))

    @property
    def sizes(self) -> Float[NDArray, "n sizes"] | None:
        """The decisions that are possible, ascending in each row, infinite where it has fewer; None: all."""
        return None

    @property
    def present(self) -> Float[NDArray, "n"]:
        """The decision that leaves everything as it is."""
        return self.lower

    @property
    def gammas(self) -> tuple[float, ...]:
        """The continuation; infinite stands for the exact value."""
        return GAMMAS

    def accuracy(self, gamma: float) -> float:
        """A descent ends when a step gains less than this, relatively."""
        return 1e-13

    def own(self, x: Float[NDArray, "n"]) -> tuple[float, Float[NDArray, "n"]]:
        """The part of f that has no flows in it, with its gradient."""
        return 0.0, np.zeros(len(x))

    @abstractmethod
    def direct(self, x: Float[NDArray, "n"], volume: Float[NDArray, "links"]) -> Float[NDArray, "n"]:
        """Derivative of the total travel time in x, at these volumes."""

    @abstractmethod
    def turned(
        self, x: Float[NDArray, "n"], volume: Float[NDArray, "links"], per_cost: Float[NDArray, "links"]
    ) -> Float[NDArray, "n"]:
        """The sum over links of ``per_cost`` times the derivative of what drivers pay in x."""

    @abstractmethod
    def integral_slope(
        self, x: Float[NDArray, "n"], gamma: float, volume: Float[NDArray, "links"]
    ) -> Float[NDArray, "n"]:
        """The derivative of the penalised objective in x at these volumes; with gamma infinite, of Beckmann's."""

    def follower_costs(self, x: Float[NDArray, "n"]) -> LinkCosts:
        """What drivers pay: time and toll."""
        found = self.network.bpr(self.capacity(x))
        return found._replace(constant=found.constant + self.toll(x))

    def penalised_costs(self, x: Float[NDArray, "n"], gamma: float) -> LinkCosts:
        """The derivative of f + gamma g in the volumes: BPR times once more, with another b."""
        found = self.network.bpr(self.capacity(x), 1.0 + self.network.power / (1.0 + gamma))
        constant = (1.0 + gamma) * found.constant + gamma * self.toll(x)
        return power_costs(constant, (1.0 + gamma) * found.coefficient, found.power)

    def worth(self, x: Float[NDArray, "n"], volume: Float[NDArray, "links"]) -> float:
        """The part of f that has flows in it: the total travel time."""
        return float(self.network.travel_times(volume, self.capacity(x)) @ volume)

    def marginal(self, x: Float[NDArray, "n"], volume: Float[NDArray, "links"]) -> Float[NDArray, "links"]:
        """What one more driver on each link adds to it."""
        return self.network.bpr(self.capacity(x), 1.0 + self.network.power).at(volume)


class Reached(NamedTuple):
    """The exact value at one x, with the drivers' answer."""

    x: Float[NDArray, "n"]
    value: float
    slope: Float[NDArray, "n"]
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

    def answer(self, x: Float[NDArray, "n"], gap: float = GAP) -> Equilibrium:
        """The drivers' equilibrium."""
        network = self.question.network
        found = assign_paths(
            network.streets, self.question.pairs(x), self.question.follower_costs(x), gap=gap, warm=self.follower
        )
        self.follower = found.paths
        return found

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
        """The same, told to nobody."""
        question, network = self.question, self.question.network
        costs = question.penalised_costs(x, gamma)
        found = assign_paths(network.streets, question.pairs(x), costs, gap=GAP, warm=self.penalised)
        self.penalised = found.paths
        own, slope = question.own(x)
        value = own + float(costs.integral(found.volume).sum())
        slope = slope + question.integral_slope(x, gamma, found.volume) + question.demand_slope(x, found.path_cost)
        if gamma > 0.0:
            answer = self.answer(x)
            value -= gamma * float(question.follower_costs(x).integral(answer.volume).sum())
            slope = slope - gamma * question.integral_slope(x, np.inf, answer.volume)
            slope = slope - gamma * question.demand_slope(x, answer.path_cost)
        return value, slope

    def bound(self, x: Float[NDArray, "n"], budget: Budget | None) -> float:
        """A value that no decision has less than, where F_0 is convex in decision and flows together.

        By convexity from one point: its value and slopes there, taken over the bounds (and over the budget by its
        multiplier), less what the assignment lacks.
        """
        question, network = self.question, self.question.network
        costs = question.penalised_costs(x, 0.0)
        found = assign_paths(network.streets, network.pairs, costs, gap=LAST_GAP, warm=self.penalised)
        own, slope = question.own(x)
        value = own + float(costs.integral(found.volume).sum()) - found.excess
        slope = slope + question.integral_slope(x, 0.0, found.volume)
        plain = convex_bound(value, slope, x, question)
        if budget is None:
            return plain
        spent, rate = budget.spent(x)

        def lifted(price: float) -> float:
            return convex_bound(value + price * (spent - budget.limit), slope + price * rate, x, question)

        best = minimize_scalar(lambda price: -lifted(price), bounds=(0.0, largest_price(slope, rate)), method="bounded")
        return max(plain, lifted(float(best.x)))

    def exact(self, x: Float[NDArray, "n"], gap: float = GAP) -> Reached:
        """f(x, flows(x)) and its derivative; the best is kept."""
        self.evaluations += 1
        reached = self.exact_at(x, gap)
        if self.best is None or reached.value < self.best.value:
            self.best = reached
        self.on_step(np.inf, x, reached.value)
        return reached

    def exact_at(self, x: Float[NDArray, "n"], gap: float) -> Reached:
        """The same, told to nobody."""
        question = self.question
        answer = self.answer(x, gap)
        own, slope = question.own(x)
        marginal = question.marginal(x, answer.volume)
        per_cost, per_trip = cost_answer(answer, question.follower_costs(x), marginal)
        slope = slope + question.direct(x, answer.volume) + question.turned(x, answer.volume, per_cost)
        slope = slope + question.demand_slope(x, per_trip)
        return Reached(x.copy(), own + question.worth(x, answer.volume), slope, answer)


# --- descents ------------------------------------------------------------------------------------------------------
Function = Callable[[Float[NDArray, "n"]], tuple[float, Float[NDArray, "n"]]]

#: Up to so many decisions a dense quasi-Newton method needs fewer assignments.
MOST_DENSE = 150


class Budget(NamedTuple):
    """The leader may spend so much: ``spent(x)`` with its gradient, and the limit."""

    spent: Function
    limit: float

    def over(self, x: Float[NDArray, "n"]) -> float:
        """What is spent beyond the limit, relative to it."""
        return (self.spent(x)[0] - self.limit) / max(self.limit, 1e-300)


def descend(
    function: Function, x: Float[NDArray, "n"], question: Question, budget: Budget | None, accuracy: float
) -> Float[NDArray, "n"]:
    """Minimise a smooth function within the bounds and the budget."""
    bounds = list(zip(question.lower, question.upper, strict=True))
    if len(x) <= MOST_DENSE:
        rows: list[dict[str, Any]] = []
        if budget is not None:
            spent, limit = budget
            scale = 1.0 / max(limit, 1e-300)
            rows = [
                {
                    "type": "ineq",
                    "fun": lambda at: 1.0 - scale * spent(at)[0],
                    "jac": lambda at: -scale * spent(at)[1],
                }
            ]
        options = {"ftol": accuracy, "maxiter": 300}
        found = minimize(function, x, jac=True, method="SLSQP", bounds=bounds, constraints=rows, options=options).x
        return within(np.asarray(found), question, budget)
    return within(_descend_many(function, x, bounds, budget, accuracy), question, budget)


def _descend_many(
    function: Function,
    x: Float[NDArray, "n"],
    bounds: list[tuple[float, float]],
    budget: Budget | None,
    accuracy: float,
) -> Float[NDArray, "n"]:
    """The same for many decisions: L-BFGS-B, with an augmented Lagrangian of the budget."""
    options = {"maxiter": 300, "maxfun": 400, "ftol": accuracy, "gtol": 1e-10, "maxcor": 30}
    if budget is None:
        return np.asarray(minimize(function, x, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x)
    price, stiffness = 0.0, 10.0 * max(abs(function(x)[0]), 1e-12) / max(budget.limit, 1e-12) ** 2

    def augmented(at: Float[NDArray, "n"]) -> tuple[float, Float[NDArray, "n"]]:
        value, slope = function(at)
        spent, rate = budget.spent(at)
        over = max(0.0, price + stiffness * (spent - budget.limit))
        return value + (over**2 - price**2) / (2.0 * stiffness), slope + over * rate

    for _ in range(12):
        x = np.asarray(minimize(augmented, x, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x)
        over = budget.spent(x)[0] - budget.limit
        price = max(0.0, price + stiffness * over)
        if over <= 1e-8 * budget.limit and (price == 0.0 or over >= -1e-6 * budget.limit):
            break
    return x


def within(x: Float[NDArray, "n"], question: Question, budget: Budget | None) -> Float[NDArray, "n"]:
    """The nearest decision below x, in proportion, that keeps to the bounds and the budget."""
    x = np.clip(x, question.lower, question.upper)
    if budget is None or budget.over(x) <= 0.0:
        return x
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        at = question.lower + middle * (x - question.lower)
        low, high = (middle, high) if budget.over(at) <= 0.0 else (low, middle)
    return question.lower + low * (x - question.lower)


def largest_price(slope: Float[NDArray, "n"], rate: Float[NDArray, "n"]) -> float:
    """A price of money beyond which no slope points upwards; those of decisions that hardly cost anything are left out.

    Whatever the price, it proves a bound: this only says where to look for the best.
    """
    costly = np.abs(rate) > 1e-12 * np.max(np.abs(rate), initial=0.0)
    return float(np.max(np.abs(slope[costly]) / np.abs(rate[costly]), initial=1.0))


def convex_bound(value: float, slope: Float[NDArray, "n"], x: Float[NDArray, "n"], question: Question) -> float:
    """No decision has a value below this, if the function is convex with this value and slope at x."""
    to_lower, to_upper = question.lower - x, question.upper - x
    return value + float(np.minimum(slope * to_lower, slope * to_upper).sum())
