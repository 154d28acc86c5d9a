"""Is an answer about a power system true? Its claims are recomputed from the case and the decision alone.

The market is cleared by HiGHS from distribution factors (``second_market.py``), with what the design's settings say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.checks import as_number
from blocc.errors import OptionError
from blocc.judge.verification import Check, Verification
from blocc.power.case import PowerCase
from blocc.power.dispatch import Dispatch
from blocc.power.power_design import PowerDesign
from blocc.power.second_market import SecondMarket, Terms
from blocc.result import Status

Vector = Float[NDArray, " n"]
#: Figures agree to this, relative to their size.
_SAME = 1e-5
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


class _Verifier:
    """Collects the checks of one design."""

    def __init__(self, design: PowerDesign, tolerance: float, case: PowerCase) -> None:
        self.design, self.tolerance, self.case = design, tolerance, case
        self.market = SecondMarket(case)
        self.checks: list[Check] = []
        self.x = np.array([one.value for one in design.decisions])
        self.low = np.array([one.low for one in design.decisions])
        self.high = np.array([one.high for one in design.decisions])

    def run(self) -> Verification:
        """All checks."""
        design = self.design
        names = ("bus_number", "demand", "susceptance", "capacity", "generator_bus", "output_max", "cost_linear")
        same = all(np.array_equal(getattr(self.case, name), getattr(design.case, name)) for name in names)
        self._add("case", "buses, lines and generators", "the same" if same else "others", same)
        room = 1e-6 * np.maximum(self.high - self.low, 1e-9)
        inside = bool(np.all((self.x >= self.low - room) & (self.x <= self.high + room)))
        self._add("decision", "within its limits", "within" if inside else "outside", inside)
        if same:
            self._market()
        converged = design.status is Status.CONVERGED
        if converged:
            wrong = [check.name for check in self.checks if not check.ok]
            self._add("status", "converged", f"not: {', '.join(wrong)}" if wrong else "converged", not wrong)
        return Verification(design.case.name, self.tolerance, tuple(self.checks), converged)

    def _market(self) -> None:
        design, after = self.design, self.design.after
        found = self.market.clear(self.terms(self.x))
        if found is None:
            self._add("market", "an answer", "none", False)
            return
        total = max(1.0, float(np.abs(after.demand).sum()))
        self._add("balance at every bus", 0.0, after.imbalance, after.imbalance <= 1e-6 * total, "MW")
        self._add("limits", 0.0, after.overload, after.overload <= 1e-6 * total, "MW over")
        self._same("market's value", after.value, found.value)
        if design.price_range:
            self._add("prices", "not unique", "not compared", True, "the design says so")
        else:
            largest = float(np.max(np.abs(after.price - found.price)))
            size = 1.0 + float(np.max(np.abs(found.price)))
            self._add("prices", 0.0, largest, largest <= 1e-4 * size, "largest difference per MWh")
        value = self.objective(found, self.x)
        self._same("objective", design.objective, value)
        self._around(value)

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
        self._add("gain of decisions around", 0.0, best, best <= allowed, f"at most {allowed:.3g}")

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
        intercept, slope = self._worth()
        bought = np.where(self.case.demand > 0.0, found.demand, 0.0)
        return float(intercept @ bought - 0.5 * slope @ bought**2) - found.cost

    def revenue(self, found: Dispatch, x: Vector) -> float:
        """What charges bring in."""
        return float(self._charges(x) @ np.where(self.case.demand > 0.0, found.demand, 0.0))

    def admissible(self, x: Vector) -> bool:
        """Whether a decision keeps the budget."""
        budget = self.design.settings.get("budget")
        return budget is None or float(np.asarray(self.design.settings["cost"]) @ x) <= budget * (1.0 + 1e-9)

    def earns(self, found: Dispatch, x: Vector) -> bool:
        """Whether charges bring in what they must."""
        required = self.design.settings.get("required_revenue")
        return required is None or self.revenue(found, x) >= required * (1.0 - 1e-6)

    # --- rows -------------------------------------------------------------------------------------------------------
    def _add(self, name: str, claimed: float | str, recomputed: float | str, ok: bool, note: str = "") -> None:
        self.checks.append(Check(name, claimed, recomputed, bool(ok), note))

    def _same(self, name: str, claimed: float, recomputed: float) -> None:
        self._add(name, claimed, recomputed, abs(claimed - recomputed) <= _SAME * (1.0 + abs(recomputed)))


_TERMS: dict[str, Callable[[Any, Vector], Terms]] = {
    "bids": _Verifier._bids,
    "expansion": _Verifier._expansion,
    "tariff": _Verifier._tariff,
}
