"""A network tariff: what should each MWh be charged, when consumers buy less of what costs more?

Consumers at a bus buy until another MWh is worth its price and the charge. Around today's demand and price their demand
is linear, with an elasticity that is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import cvxpy as cp
import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.checks import as_number
from blocc._lib.rounding import TINY
from blocc.cvxpy import BilevelProblem
from blocc.errors import OptionError
from blocc.outer.monitor import stoppable
from blocc.power.case import PowerCase
from blocc.power.dispatch import Dispatch
from blocc.power.market import Elastic, Market
from blocc.power.outcome import Answer, cleared_by_both, conclude
from blocc.power.power_design import Decision, PowerDesign
from blocc.power.power_options import PowerOptions
from blocc.power.search import Question, Search, shares
from blocc.power.second_market import SecondMarket, Terms

Goal = Literal["revenue", "welfare"]
_LEVELS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0)
_RANDOM = 12
#: A goal that misses its revenue by this share or more has no value.
_MISSED = 1e-6
#: A revenue this many times the best candidate's is refused at once.
_FAR = 1.5


@stoppable
def set_tariff(
    case: PowerCase,
    *,
    elasticity: float = -0.3,
    goal: Goal = "revenue",
    required_revenue: float | None = None,
    zones: Mapping[str, Any] | None = None,
    max_charge: float | None = None,
    reference_price: float | None = None,
    **options: Any,
) -> PowerDesign:
    """The charge per MWh in each zone, with consumers who buy less of what costs more.

    :param elasticity: of demand around today's: -0.3 means that a price 10% higher is answered by 3% less
    :param goal: ``"revenue"``: the most that charges can bring in; ``"welfare"``: what is left to consumers, producers
        and the network together, while charges bring in ``required_revenue``
    :param required_revenue: per hour, for ``goal="welfare"``
    :param zones: numbers of buses by the name of a zone; buses of no zone are not charged. By default one zone
    :param max_charge: per MWh; by default the charge at which nobody would buy
    :param reference_price: the price at which consumers buy what the case says; by default the average of today's
    :param options: fields of :class:`~blocc.power.power_options.PowerOptions`
    """
    if goal not in ("revenue", "welfare"):
        raise OptionError(f"goal must be 'revenue' or 'welfare', got {goal!r}")
    if (goal == "welfare") != (required_revenue is not None):
        raise OptionError("required_revenue must be given with goal='welfare', and only there")
    elasticity = as_number("elasticity", elasticity)
    if not -10.0 <= elasticity < 0.0:
        raise OptionError(f"elasticity must be negative, and not below -10, got {elasticity!r}")
    limits = {"required": required_revenue, "max_charge": max_charge, "reference_price": reference_price}
    return _Tariff(case, elasticity, goal, limits, zones, PowerOptions.from_names(options)).run()


class _Tariff:
    """One question."""

    def __init__(
        self,
        case: PowerCase,
        elasticity: float,
        goal: Goal,
        limits: dict[str, Any],
        zones: Mapping[str, Any] | None,
        options: PowerOptions,
    ) -> None:
        self.case, self.elasticity, self.goal, self.options = case, elasticity, goal, options
        required, most, price = limits["required"], limits["max_charge"], limits["reference_price"]
        self.required = None if required is None else as_number("required_revenue", required, positive=True)
        self.buses = np.flatnonzero(case.demand > 0.0)
        self.zones = self._zones(zones)
        self.today = Market(case).solve()
        average = self.today.payments / max(float(case.demand.sum()), TINY)
        self.reference_price = average if price is None else as_number("reference_price", price, positive=True)
        if not self.reference_price > 0.0:
            raise OptionError("reference_price must be given: today's prices are not positive")
        demand = case.demand[self.buses]
        self.slope = self.reference_price / (-elasticity * demand)
        self.intercept = self.reference_price + self.slope * demand
        choke = float(self.intercept.max())
        self.low = np.zeros(len(self.zones))
        self.high = np.full(len(self.zones), choke if most is None else as_number("max_charge", most, positive=True))
        self.share, self.charge = shares(self.low, self.high)
        members = np.array([[float(bus in places) for places in self.zones.values()] for bus in self.buses])
        self.members = members
        elastic = Elastic(self.buses, self.intercept, self.slope, members @ self.charge)
        self.market = Market(case, elastic=elastic)
        self.second = SecondMarket(case)

    def _zones(self, zones: Mapping[str, Any] | None) -> dict[str, set[int]]:
        if zones is None:
            return {"all": set(self.buses.tolist())}
        if not isinstance(zones, Mapping) or not zones:
            raise OptionError(f"zones must be a dict from names to numbers of buses, got {zones!r}")
        found: dict[str, set[int]] = {}
        for name, numbers in zones.items():
            places = set(self.case.places("buses", numbers).tolist())
            if any(places & other for other in found.values()):
                raise OptionError(f"zones: a bus of {name!r} is in another zone too")
            if not places & set(self.buses.tolist()):
                raise OptionError(f"zones: no bus of {name!r} has any demand")
            found[str(name)] = places
        return found

    # --- the leader's problem -------------------------------------------------------------------------------------
    def problem(self) -> BilevelProblem:
        """The leader's problem for the front."""
        market = self.market
        revenue = (self.members @ self.charge) @ market.bought
        name = self.case.name
        if self.goal == "revenue":
            return BilevelProblem(cp.Maximize(revenue), market.problem, self.share, name=name)
        benefit = self.intercept @ market.bought - 0.5 * self.slope @ cp.square(market.bought)
        rules = [self.required - revenue <= 0]
        return BilevelProblem(cp.Maximize(benefit - market.cost), market.problem, self.share, rules, name=name)

    def revenue(self, dispatch: Dispatch, charge: Float[NDArray, " zones"]) -> float:
        """What the charges bring in, per hour."""
        return float((self.members @ charge) @ dispatch.demand[self.buses])

    def welfare(self, dispatch: Dispatch) -> float:
        """What consumption is worth beyond the cost of generation, per hour."""
        bought = dispatch.demand[self.buses]
        return float(self.intercept @ bought - 0.5 * self.slope @ bought**2) - dispatch.cost

    def achieved(self, dispatch: Dispatch | None, charge: Float[NDArray, " zones"]) -> float:
        """What the leader wants, at a dispatch."""
        if dispatch is None:
            return -np.inf
        return self.revenue(dispatch, charge) if self.goal == "revenue" else self.welfare(dispatch)

    def clear(self, charge: Float[NDArray, " zones"]) -> Dispatch | None:
        """The market by the second solver."""
        worth = self.intercept - self.members @ charge
        return self.second.clear(
            Terms(elastic={int(b): (float(a), float(s)) for b, a, s in zip(self.buses, worth, self.slope, strict=True)})
        )

    def value(self, charge: Float[NDArray, " zones"]) -> float:
        """What is minimised: infinite where the required revenue is missed."""
        dispatch = self.clear(charge)
        if dispatch is None:
            return np.inf
        if self.required is not None and self.revenue(dispatch, charge) < (1.0 - _MISSED) * self.required:
            return np.inf
        return -self.achieved(dispatch, charge)

    # --- the run --------------------------------------------------------------------------------------------------
    def run(self) -> PowerDesign:
        """Search, settle, and put the answer together."""
        project = lambda x: np.clip(x, self.low, self.high)  # noqa: E731
        none: Any = lambda *_: []  # noqa: E731
        always = lambda _: True  # noqa: E731
        question = Question(
            self.problem(),
            self.low,
            self.high,
            self.value,
            project,
            none,
            self.share,
            always,
        )
        candidates = self._candidates()
        self._check_required(candidates)
        search = Search(question, self.options, self.case, self._settings())
        found = search.run(candidates)
        if not np.isfinite(found.value) and found.stopped is None:
            raise OptionError(
                f"required_revenue must be attainable: no charge was found that brings in {self.required:.6g} per hour"
            )
        return conclude(self.case, found, found.x, self._answer(found.x), search.request, self._settings())

    def _check_required(self, candidates: list[Float[NDArray, " zones"]]) -> None:
        """Refuse a revenue that is far from what any candidate brings in, before a search for it."""
        if self.required is None:
            return
        cleared = [(charge, self.clear(charge)) for charge in candidates]
        most = max(0.0 if one is None else self.revenue(one, charge) for charge, one in cleared)
        if self.required > _FAR * most:
            raise OptionError(
                f"required_revenue must be attainable: charges bring in about {most:.6g} per hour at most, "
                f"got {self.required:.6g}"
            )

    def _candidates(self) -> list[Float[NDArray, " zones"]]:
        generator, n = np.random.default_rng(self.options.seed), len(self.zones)
        found = [level * self.high for level in _LEVELS]
        if n > 1:
            found += [share**2 * self.high for share in generator.random((_RANDOM, n))]
        return found

    def _answer(self, charge: Float[NDArray, " zones"]) -> Answer:
        self.share.value = np.zeros(len(charge))
        before = self.market.solve()
        self.share.value = charge / self.high
        second = self.clear(charge)
        after = cleared_by_both(self.market, second)
        decisions = tuple(
            Decision(f"zone {name}", k, float(value), 0.0, 0.0, float(most))
            for k, (name, value, most) in enumerate(zip(self.zones, charge, self.high, strict=True), start=1)
        )
        missed = 0.0
        if self.required is not None:
            missed = max(0.0, 1.0 - self.revenue(after, charge) / self.required - _MISSED)
        return Answer(
            kind="tariff",
            unit="per MWh",
            goal="revenue of the charges" if self.goal == "revenue" else "welfare",
            decisions=decisions,
            before=before,
            after=after,
            second=second,
            objective=self.achieved(after, charge),
            objective_before=self.achieved(before, 0.0 * charge),
            objective_second=self.achieved(second, charge),
            figures={
                **({} if self.goal == "revenue" else {"revenue of the charges": self.revenue(after, charge)}),
                **({} if self.goal == "welfare" else {"welfare": self.welfare(after)}),
                "welfare without charges": self.welfare(before),
                "demand, MW": float(after.demand.sum()),
                "demand without charges, MW": float(before.demand.sum()),
            },
            price_range={},
            assumptions=(
                f"demand is linear, with the elasticity {self.elasticity:g} at today's demand and a price of "
                f"{self.reference_price:.6g} per MWh",
                "consumers pay the price of their bus and the charge of their zone; every generator offers its cost",
            ),
            violation=missed,
            elastic=tuple(self.buses.tolist()),
        )

    def _settings(self) -> dict[str, Any]:
        numbers = {name: sorted(self.case.bus_number[list(places)].tolist()) for name, places in self.zones.items()}
        return {
            "elasticity": self.elasticity,
            "goal": self.goal,
            "required_revenue": self.required,
            "zones": numbers,
            "max_charge": float(self.high[0]),
            "reference_price": self.reference_price,
            **self.options.described,
        }
