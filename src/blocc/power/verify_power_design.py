"""Is an answer about a power system true? Its claims are recomputed from the case and the decision alone.

The market is cleared by HiGHS from distribution factors (``second_market.py``), with what the design's settings say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.checks import as_number
from blocc._lib.rounding import EXACT, KEPT
from blocc.errors import OptionError
from blocc.judge.verification import Verification
from blocc.kit.claims import Claims
from blocc.power.case import PowerCase
from blocc.power.checks import AGREED, certificate_checks
from blocc.power.dispatch import Dispatch
from blocc.power.power_design import PowerDesign
from blocc.power.second_market import SecondMarket, Terms
from blocc.power.unique_prices import SAME_PRICE, price_gap
from blocc.result import Status

Vector = Float[NDArray, " n"]
#: What is computed from the same numbers in the same way agrees to this.
_EXACT = 1e-9
_STEPS = (3e-2, 3e-3, 3e-4)
_DIRECTIONS = 6


def verify_power_design(design: PowerDesign, tolerance: float = 1e-4, case: PowerCase | None = None) -> Verification:
    """Recompute what ``design`` claims, and say which claims hold.

    :param tolerance: what decisions around the answer may gain, relative to 1 + |objective|; never the design's own
    :param case: in place of the design's own case
    """
    if not isinstance(design, PowerDesign):
        raise OptionError(f"design must be a PowerDesign (see PowerDesign.load), got {type(design).__name__}")
    as_number("tolerance", tolerance, positive=True)
    return _Verifier(design, float(tolerance), design.case if case is None else case).run()


class _Verifier(Claims):
    """The claims of one design."""

    def __init__(self, design: PowerDesign, tolerance: float, case: PowerCase) -> None:
        super().__init__(design.case.name, tolerance, design.success)
        self.design, self.case = design, case
        self.market = SecondMarket(case)
        self.x = np.array([one.value for one in design.decisions])
        self.low = np.array([one.low for one in design.decisions])
        self.high = np.array([one.high for one in design.decisions])

    def run(self) -> Verification:
        """All checks."""
        design = self.design
        names = [one.name for one in fields(PowerCase) if isinstance(getattr(self.case, one.name), np.ndarray)]
        same = all(np.array_equal(getattr(self.case, name), getattr(design.case, name)) for name in names)
        same = same and (self.case.base, self.case.reference) == (design.case.base, design.case.reference)
        same = same and self.case.segments == design.case.segments
        self.holds("case", "buses, lines and generators", same, "others", "the same")
        room = 1e-6 * np.maximum(self.high - self.low, 1e-9)
        inside = bool(np.all((self.x >= self.low - room) & (self.x <= self.high + room)))
        self.holds("decision", "within its limits", inside, "outside", "within")
        if same and inside:
            self._market()
        return self.concluded()

    def _market(self) -> None:
        design, terms = self.design, self.terms(self.x)
        before = self._today()
        found = self._dispatch("", design.after, terms)
        self._dispatch("before: ", design.before, before)
        if found is None:
            return
        value = self.objective(found, self.x)
        self._same("objective", design.objective, value)
        self._sums()
        self._around(value)

    def _dispatch(self, when: str, claimed: Dispatch, terms: Terms) -> Dispatch | None:
        """Whether a dispatch is the market's answer: it is possible, and worth what the other solver's is."""
        found = self.market.clear(terms)
        if found is None:
            self.add(f"{when}market", "an answer", "none", False)
            return None
        total = max(1.0, float(np.abs(claimed.demand).sum()))
        self.same(f"{when}balance at every bus", 0.0, claimed.imbalance, 1e-6 * total, "MW")
        self.same(f"{when}limits", 0.0, claimed.overload, 1e-6 * total, "MW over")
        off = float(np.max(np.abs(claimed.flow - self.market.flows(claimed)), initial=0.0))
        self.near(f"{when}flows", "by distribution factors", off, AGREED * total, "MW")
        fixed = ~np.isin(np.arange(self.case.n_buses), list(terms.elastic))
        known = np.array_equal(claimed.demand[fixed], self.case.demand[fixed])
        known = known and np.allclose(claimed.capacity, found.capacity, rtol=_EXACT, atol=_EXACT)
        self.holds(f"{when}demand and capacities", "of the case", known, "others")
        self._same(f"{when}market's value", claimed.value, found.value)
        self._same(f"{when}worth of outputs", claimed.value, self._worth_of(claimed, terms))
        self._prices(when, claimed, found, terms)
        return found

    def _worth_of(self, claimed: Dispatch, terms: Terms) -> float:
        """What the market minimises, out of a dispatch."""
        each = self.case.cost(claimed.output)
        for place, offer in terms.offers.items():
            each[place] = offer * claimed.output[place]
        value = float(each.sum()) + (terms.price_cap or 0.0) * float(claimed.shed.sum())
        for bus, (intercept, slope) in terms.elastic.items():
            value -= float(intercept * claimed.demand[bus] - 0.5 * slope * claimed.demand[bus] ** 2)
        return value

    def _prices(self, when: str, claimed: Dispatch, found: Dispatch, terms: Terms) -> None:
        """Prices where there is one alone, whatever the design says about that; of lines where all are such."""
        gap = price_gap(self.case, claimed, found, terms.elastic)
        note = "largest difference per MWh"
        note += "" if gap.unique.all() else f"; not unique at {int((~gap.unique).sum())} buses"
        self.same(f"{when}prices", 0.0, gap.largest, SAME_PRICE * gap.size, note)
        # Whichever prices are told, those of full lines explain those of buses; parallel lines may share one.
        explained = self.market.prices(claimed.flow_price)
        apart = claimed.price - claimed.price[self.case.reference] - explained
        full = np.abs(claimed.flow) >= claimed.capacity * (1.0 - AGREED) - AGREED
        idle = float(np.max(np.abs(claimed.flow_price[~full]), initial=0.0))
        off = max(idle, float(np.max(np.abs(apart), initial=0.0)))
        self.near(f"{when}prices of lines", "explain those of buses", off, SAME_PRICE * gap.size)

    def _today(self) -> Terms:
        """The market without a decision."""
        if self.design.kind == "bids":
            return Terms(price_cap=self.design.settings["price_cap"])
        return self.terms(0.0 * self.x)

    def _sums(self) -> None:
        """What follows from the two dispatches: objectives, figures, limits of decisions, certificate."""
        design, settings, before, after = self.design, self.design.settings, self.design.before, self.design.after
        dust = EXACT * (abs(before.payments) + abs(after.payments))  # a profit of less is told as 0
        pairs = {
            "objective of the dispatch": (design.objective, self.objective(after, self.x)),
            "objective before": (design.objective_before, self.objective(before, 0.0 * self.x)),
        }
        if design.kind == "bids":
            own = self.case.places("generators", [one.number for one in design.decisions])
            cost = self.case.marginal_cost(before.output)[own]
            numbers, low, high, none = settings["generators"], np.minimum(0.0, cost), settings["offer_cap"], cost
            sums = {"output of the producer, MW": float(after.output[own].sum())}
        elif design.kind == "expansion":
            numbers, low, high, none = settings["lines"], 0.0, settings["max_addition"], 0.0
            sums = {"construction, per hour": float(np.asarray(settings["cost"]) @ self.x)}
        else:
            numbers, low, high, none = range(1, len(self.x) + 1), 0.0, settings["max_charge"], 0.0
            sums = {"revenue of the charges": self.revenue(after, self.x), "welfare": self.welfare(after)}
            sums |= {"welfare without charges": self.welfare(before), "demand, MW": float(after.demand.sum())}
            sums |= {"demand without charges, MW": float(before.demand.sum())}
        sums["paid by consumers"] = after.payments
        pairs |= {name: (value, sums.get(name, np.nan)) for name, value in design.figures.items()}
        for name, (claimed, recomputed) in pairs.items():
            self.same(name, claimed, recomputed, _EXACT * abs(recomputed) + dust)
        told = np.array([(one.low, one.high, one.before) for one in design.decisions]).T
        pairs_of = zip(told, (low, high, none), strict=True)
        same = all(np.allclose(one, other, rtol=_EXACT, atol=_EXACT) for one, other in pairs_of)
        same = same and [one.number for one in design.decisions] == list(numbers)
        self.holds("decisions", "of the question", same, "others")
        total, certificate = max(1.0, float(np.abs(after.demand).sum())), design.certificate
        residuals = ((certificate.balance, after.imbalance), (certificate.limits, after.overload))
        right = all(abs(one - other / total) <= _EXACT for one, other in residuals)
        if design.status is Status.CONVERGED:
            right = right and all(check.passed for check in certificate_checks(design)) and min(certificate) >= 0.0
        self.holds("certificate", "of this dispatch", right, "of another", "so it is")

    def _around(self, value: float) -> None:
        """Decisions around the answer, along axes and at random."""
        generator, n = np.random.default_rng(1), len(self.x)
        directions = [*np.eye(n)[:12], *generator.standard_normal((_DIRECTIONS, n)) / np.sqrt(n)]
        sense, best = (-1.0 if self.design.kind == "expansion" else 1.0), 0.0
        for direction in (*directions, *(-one for one in directions)):
            for step in _STEPS:
                point = np.clip(self.x + step * direction * (self.high - self.low), self.low, self.high)
                found = self.market.clear(self.terms(point)) if self.admissible(point) else None
                if found is not None and self.earns(found, point):
                    best = max(best, sense * (self.objective(found, point) - value))
        allowed = self.tolerance * (1.0 + abs(value))
        # A design that was stopped, or not certified, does not say that there is none.
        told = best <= allowed if self.design.success else None
        self.add("gain of decisions around", 0.0, best, told, f"at most {allowed:.3g}")

    # --- what the design's settings say -----------------------------------------------------------------------------
    def terms(self, x: Vector) -> Terms:
        """The market at a decision."""
        return _TERMS[self.design.kind](self, x)

    def _bids(self, x: Vector) -> Terms:
        own = self.case.places("generators", [one.number for one in self.design.decisions])
        offers = {int(place): float(offer) for place, offer in zip(own, x, strict=True)}
        return Terms(offers=offers, price_cap=self.design.settings["price_cap"])

    def _expansion(self, x: Vector) -> Terms:
        capacity = self.case.capacity.copy()
        capacity[self.case.places("lines", [one.number for one in self.design.decisions])] += x
        return Terms(capacity=capacity, price_cap=self.design.settings["price_cap"])

    def _tariff(self, x: Vector) -> Terms:
        intercept, slope = self._worth()
        charge = self._charges(x)
        return Terms(
            elastic={
                int(bus): (float(intercept[bus] - charge[bus]), float(slope[bus]))
                for bus in np.flatnonzero(self.case.demand > 0.0)
            }
        )

    def _worth(self) -> tuple[Vector, Vector]:
        settings = self.design.settings
        demand = np.where(self.case.demand > 0.0, self.case.demand, np.inf)
        slope = settings["reference_price"] / (-settings["elasticity"] * demand)
        return settings["reference_price"] * (1.0 - 1.0 / settings["elasticity"]) + 0.0 * slope, slope

    def _charges(self, x: Vector) -> Vector:
        found = np.zeros(self.case.n_buses)
        for numbers, charge in zip(self.design.settings["zones"].values(), x, strict=True):
            found[self.case.places("buses", numbers)] = charge
        return found

    def objective(self, found: Dispatch, x: Vector) -> float:
        """What the leader wants, at a dispatch."""
        design, settings = self.design, self.design.settings
        if design.kind == "bids":
            own = self.case.places("generators", [one.number for one in design.decisions])
            return float(found.profit(own).sum())
        if design.kind == "expansion":
            building = float(np.asarray(settings["cost"]) @ x)
            unserved = settings["price_cap"] * float(found.shed.sum())
            return building + (found.payments if settings["goal"] == "payments" else found.cost + unserved)
        if settings["goal"] == "revenue":
            return self.revenue(found, x)
        return self.welfare(found)

    def welfare(self, found: Dispatch) -> float:
        """What consumption is worth beyond the cost of generation."""
        intercept, slope = self._worth()
        bought = np.where(self.case.demand > 0.0, found.demand, 0.0)
        return float(intercept @ bought - 0.5 * slope @ bought**2) - found.cost

    def revenue(self, found: Dispatch, x: Vector) -> float:
        """What charges bring in."""
        return float(self._charges(x) @ np.where(self.case.demand > 0.0, found.demand, 0.0))

    def admissible(self, x: Vector) -> bool:
        """Whether a decision keeps the budget."""
        budget = self.design.settings.get("budget")
        return budget is None or float(np.asarray(self.design.settings["cost"]) @ x) <= budget * (1.0 + EXACT)

    def earns(self, found: Dispatch, x: Vector) -> bool:
        """Whether charges bring in what they must."""
        required = self.design.settings.get("required_revenue")
        return required is None or self.revenue(found, x) >= required * (1.0 - KEPT)

    def _same(self, name: str, claimed: float, recomputed: float) -> None:
        self.same(name, claimed, recomputed, AGREED * (1.0 + abs(recomputed)))


_TERMS: dict[str, Callable[[Any, Vector], Terms]] = {
    "bids": _Verifier._bids,
    "expansion": _Verifier._expansion,
    "tariff": _Verifier._tariff,
}
