"""Line expansion: which lines should be enlarged, and by how much, when the market answers with its own dispatch?"""

from __future__ import annotations

from typing import Any, Literal

import cvxpy as cp
import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.checks import as_float_array, as_number
from blocc._lib.rounding import TINY
from blocc.cvxpy import BilevelProblem, dual
from blocc.errors import InputError, OptionError
from blocc.outer.monitor import stoppable
from blocc.power.case import PowerCase
from blocc.power.dispatch import Dispatch
from blocc.power.market import Additions, Market
from blocc.power.outcome import Answer, cleared_by_both, conclude, same_value
from blocc.power.power_design import Decision, PowerDesign
from blocc.power.power_options import PowerOptions
from blocc.power.search import Question, Search, shares
from blocc.power.second_market import SecondMarket, Terms

Goal = Literal["payments", "cost"]
GOALS = {
    "payments": "bills and construction",
    "cost": "generation and construction",
}
#: The market's highest price, in terms of the highest marginal cost.
CAP_FACTOR = 20.0
_LEVELS = (0.0, 0.05, 0.15, 0.4, 1.0)
_RANDOM = 12


@stoppable
def expand_lines(
    case: PowerCase,
    lines: Any = "congested",
    *,
    cost: Any,
    max_addition: Any = None,
    budget: float | None = None,
    goal: Goal = "payments",
    price_cap: float | None = None,
    **options: Any,
) -> PowerDesign:
    """The capacity to add to lines, if the market then dispatches and prices as it likes.

    A larger line keeps its reactance: conductors are replaced, not added.

    :param lines: numbers of the lines that may be enlarged (rows of ``mpc.branch``), ``"all"``, or ``"congested"``:
        those whose capacity has a price today
    :param cost: of one more MW, per hour: a number, or one for each of these lines
    :param max_addition: MW, likewise; by default as much as a line has today
    :param budget: the most that construction may cost, per hour
    :param goal: ``"payments"``: what consumers pay for energy, and construction; ``"cost"``: what generation costs, and
        construction
    :param price_cap: the highest price of the market, per MWh; by default 20 times the highest marginal cost
    :param options: fields of :class:`~blocc.power.power_options.PowerOptions`
    """
    if goal not in GOALS:
        raise OptionError(f"goal must be 'payments' or 'cost', got {goal!r}")
    limits = {"cost": cost, "max_addition": max_addition, "budget": budget, "price_cap": price_cap}
    return _Expansion(case, lines, limits, goal, PowerOptions.from_names(options)).run()


class _Expansion:
    """One question."""

    def __init__(self, case: PowerCase, lines: Any, limits: dict[str, Any], goal: Goal, options: PowerOptions) -> None:
        self.case, self.goal, self.options = case, goal, options
        cap = limits["price_cap"]
        factor = CAP_FACTOR * case.highest_marginal_cost
        self.price_cap = factor if cap is None else as_number("price_cap", cap, positive=True)
        self.before = Market(case, price_cap=self.price_cap).solve()
        self.lines = np.sort(self._chosen(lines))
        room = limits["max_addition"]
        self.high = case.capacity[self.lines] if room is None else self._each("max_addition", room)
        self.low = np.zeros(len(self.lines))
        self.unit_cost = self._each("cost", limits["cost"])
        self.budget = None if limits["budget"] is None else as_number("budget", limits["budget"], positive=True)
        self.share, self.addition = shares(self.low, self.high)
        self.market = Market(case, additions=Additions(self.lines, self.addition), price_cap=self.price_cap)
        self.second = SecondMarket(case)

    def _chosen(self, lines: Any) -> Any:
        case = self.case
        if isinstance(lines, str) and lines == "congested":
            found = self.before.congested
            if not found.size:
                raise OptionError(f"lines: no line of {case.name} is congested; name those that may be enlarged")
            return found
        chosen = case.places("lines", lines)
        limited = np.isfinite(case.capacity[chosen])
        if isinstance(lines, str):
            return chosen[limited]
        if not limited.all():
            number = case.line_number[chosen[~limited]][0]
            raise OptionError(f"lines: line {number} has no limit, so it cannot be enlarged")
        return chosen

    def _each(self, name: str, value: Any) -> Float[NDArray, " lines"]:
        found = as_float_array(name, value)
        if found.shape not in ((), (len(self.lines),)) or not np.all((found >= 0.0) & np.isfinite(found)):
            raise OptionError(f"{name} must be a nonnegative number, or one for each of {len(self.lines)} lines")
        return np.broadcast_to(found, (len(self.lines),)).astype(np.float64)

    # --- the leader's problem -------------------------------------------------------------------------------------
    def objective(self) -> cp.Expression:
        """What is minimised, over the market's variables and prices."""
        building = self.unit_cost @ self.addition
        if self.goal == "cost":
            return self.market.cost + building
        served = self.case.demand @ dual(self.market.constraints["balance"])
        if self.market.shed is None:
            return served + building
        # What is not served is not paid for, and its price is the cap.
        return served - self.price_cap * cp.sum(self.market.shed) + building

    def achieved(self, dispatch: Dispatch | None, addition: Float[NDArray, " lines"]) -> float:
        """The leader's value at a dispatch."""
        if dispatch is None:
            return np.inf
        building = float(self.unit_cost @ addition)
        if self.goal == "cost":
            return dispatch.cost + self.price_cap * float(dispatch.shed.sum()) + building
        return dispatch.payments + building

    def clear(self, addition: Float[NDArray, " lines"]) -> Dispatch | None:
        """The market by the second solver."""
        capacity = self.case.capacity.copy()
        capacity[self.lines] += addition
        return self.second.clear(Terms(capacity=capacity, price_cap=self.price_cap))

    def agrees(self, addition: Float[NDArray, " lines"]) -> bool:
        """Whether the market in CVXPY leads to the same value."""
        self.share.value = addition / np.maximum(self.high, TINY)
        other = self.achieved(self.clear(addition), addition)
        return same_value(self.market, lambda one: self.achieved(one, addition), other)

    def project(self, addition: Float[NDArray, " lines"]) -> Float[NDArray, " lines"]:
        """The nearest addition within the limits; where the budget is broken, all are reduced by one price."""
        found = np.clip(addition, self.low, self.high)
        if self.budget is None or self.unit_cost @ found <= self.budget:
            return found
        least, most = 0.0, float(np.max(np.abs(addition) / np.maximum(self.unit_cost, TINY), initial=1.0))
        for _ in range(100):
            middle = 0.5 * (least + most)
            found = np.clip(addition - middle * self.unit_cost, self.low, self.high)
            least, most = (middle, most) if self.unit_cost @ found > self.budget else (least, middle)
        return np.clip(addition - most * self.unit_cost, self.low, self.high)

    # --- the run --------------------------------------------------------------------------------------------------
    def run(self) -> PowerDesign:
        """Search, settle, and put the answer together."""
        if self.clear(self.low) is None:
            raise InputError(f"{self.case.name}: the market has no answer: the least outputs exceed the demand")
        rules = [] if self.budget is None else [(self.unit_cost / self.budget) @ self.addition <= 1.0]
        problem = BilevelProblem(
            cp.Minimize(self.objective()), self.market.problem, self.share, rules, name=self.case.name
        )
        exact = lambda x: self.achieved(self.clear(x), x)  # noqa: E731
        question = Question(problem, self.low, self.high, exact, self.project, lambda *_: [], self.share, self.agrees)
        search = Search(question, self.options, self.case, self._settings())
        found = search.run(self._candidates())
        return conclude(self.case, found, found.x, self._answer(found.x), search.request, self._settings())

    def _candidates(self) -> list[Float[NDArray, " lines"]]:
        generator, n = np.random.default_rng(self.options.seed), len(self.lines)
        found = [level * self.high for level in _LEVELS]
        if n > 1:
            found += [level * self.high * one for one in np.eye(n)[:20] for level in _LEVELS[2:]]
            found += [share * self.high for share in generator.random((_RANDOM, n))]
        return found

    def _answer(self, addition: Float[NDArray, " lines"]) -> Answer:
        case = self.case
        self.share.value = addition / np.maximum(self.high, TINY)
        second = self.clear(addition)
        after = cleared_by_both(self.market, second)
        ends = [(case.bus_number[case.line_from[k]], case.bus_number[case.line_to[k]]) for k in self.lines]
        numbers = case.line_number[self.lines]
        decisions = tuple(
            Decision(f"line {number} ({a}-{b})", int(number), float(value), 0.0, 0.0, float(most))
            for number, (a, b), value, most in zip(numbers, ends, addition, self.high, strict=True)
        )
        building = float(self.unit_cost @ addition)
        over = 0.0 if self.budget is None else max(0.0, building / self.budget - 1.0)
        return Answer(
            kind="expansion",
            unit="MW added",
            goal=GOALS[self.goal],
            decisions=decisions,
            before=self.before,
            after=after,
            second=second,
            objective=self.achieved(after, addition),
            objective_before=self.achieved(self.before, 0.0 * addition),
            objective_second=self.achieved(second, addition),
            figures={"construction, per hour": building, "paid by consumers": after.payments},
            price_range={},
            assumptions=(
                "every generator offers its cost, and is paid the price of its bus; consumers pay it",
                "a line with more capacity keeps its reactance",
                f"above {self.price_cap:.6g} per MWh demand goes unserved",
            ),
            violation=over,
        )

    def _settings(self) -> dict[str, Any]:
        return {
            "lines": self.case.line_number[self.lines].tolist(),
            "cost": self.unit_cost.tolist(),
            "max_addition": self.high.tolist(),
            "budget": self.budget,
            "goal": self.goal,
            "price_cap": self.price_cap,
            **self.options.described,
        }
