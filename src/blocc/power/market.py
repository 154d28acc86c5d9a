"""The market as a problem in CVXPY: DC optimal power flow, with what a leader may decide as parameters.

minimise    cost of generation - benefit of elastic consumers + price_cap * what is not served
subject to  demand + what leaves each bus - generation = 0     (its multiplier: the locational price)
            limits of generators, of lines and of the angles over them
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from blocc._lib.arrays import Float, Int, NDArray
from blocc.cvxpy.judge import solved
from blocc.errors import InputError, OptionError
from blocc.power.case import PowerCase
from blocc.power.dispatch import Dispatch

#: Clarabel's accuracies, tightest first: prices of a degenerate program are not found to every accuracy.
_ACCURACIES = (1e-10, 1e-8)
_DUST = 1e-9


@dataclass(frozen=True)
class Offers:
    """Generators whose prices a leader decides."""

    generators: Int[NDArray, " offers"]  #: places
    price: cp.Expression  #: per MWh; takes the place of the cost


@dataclass(frozen=True)
class Additions:
    """Lines whose capacity a leader enlarges."""

    lines: Int[NDArray, " additions"]  #: places
    capacity: cp.Expression  #: MW


@dataclass(frozen=True)
class Elastic:
    """Consumers whose benefit of ``d`` MW is ``intercept d - slope d^2 / 2`` per hour, and who pay a charge on top."""

    buses: Int[NDArray, " elastic"]  #: places; the other buses keep the case's demand
    intercept: Float[NDArray, " elastic"]  #: per MWh: above this price nothing is bought
    slope: Float[NDArray, " elastic"]  #: per MWh and MW
    charge: cp.Expression  #: per MWh, one for each of these buses


class Market:
    """DC optimal power flow of a case: ``problem`` for CVXPY, its variables, and its constraints by name."""

    def __init__(
        self,
        case: PowerCase,
        *,
        offers: Offers | None = None,
        additions: Additions | None = None,
        elastic: Elastic | None = None,
        price_cap: float | None = None,
    ) -> None:
        self.case, self.offers, self.additions, self.elastic = case, offers, additions, elastic
        self.price_cap = price_cap
        self.constraints: dict[str, cp.Constraint] = {}
        self._add_outputs()
        # Of the size of flows, which keeps a cone solver accurate.
        self.scaled_angle = cp.Variable(case.n_buses, name="angle")
        self.angle = self.scaled_angle / float(np.mean(np.abs(case.susceptance)))
        self.difference = case.incidence @ self.angle
        self.flow = cp.multiply(case.susceptance, self.difference - case.shift)
        served, benefit = self._consumption()
        leaving = sp.csr_array(case.incidence.T) @ self.flow
        self.constraints["balance"] = served + leaving - case.at_bus @ self.output == 0
        self.constraints["reference"] = self.scaled_angle[case.reference] == 0
        self._limit_flows()
        self.cost = self._cost()
        self.problem = cp.Problem(cp.Minimize(self.cost - benefit), list(self.constraints.values()))

    # --- generators ---------------------------------------------------------------------------------------------
    def _add_outputs(self) -> None:
        case = self.case
        # A generator without a choice is no variable: both its limits would bind, and their prices be arbitrary.
        can_vary = case.output_max > case.output_min
        self.free = np.flatnonzero(can_vary)
        self.varying = cp.Variable(len(self.free), name="output")
        spread = sp.csr_array(
            (np.ones(len(self.free)), (self.free, np.arange(len(self.free)))),
            shape=(case.n_generators, len(self.free)),
        )
        self.output = spread @ self.varying + np.where(can_vary, 0.0, case.output_min)
        self.constraints["most"] = self.varying <= case.output_max[self.free]
        self.constraints["least"] = self.varying >= case.output_min[self.free]

    def _cost(self) -> cp.Expression:
        case = self.case
        others = np.arange(case.n_generators)
        if self.offers is not None:
            others = np.setdiff1d(others, self.offers.generators)
        self.others_cost = self.true_cost(others, "segments")
        cost = self.others_cost
        if self.offers is not None:
            cost = cost + self.offers.price @ self.output[self.offers.generators]
        if self.shed is not None:
            cost = cost + self.price_cap * cp.sum(self.shed)
        return cost

    def true_cost(self, generators: Int[NDArray, " chosen"], name: str = "") -> cp.Expression:
        """What the output of some generators costs, as the case has it.

        :param name: piecewise linear costs become variables above all their lines, which are constraints of this name
        """
        case = self.case
        own = np.zeros(case.n_generators)
        own[generators] = 1.0
        cost = (own * case.cost_linear) @ self.output + float(own @ case.cost_fixed)
        if np.any(own * case.cost_square):
            cost = cost + (own * case.cost_square) @ cp.square(self.output)
        pieces = [(int(place), case.segments[int(place)]) for place in generators if int(place) in case.segments]
        stuck = [(place, one) for place, one in pieces if place not in self.free]
        cost = cost + sum(one.at(float(case.output_min[place])) for place, one in stuck)
        pieces = [one for one in pieces if one not in stuck]
        if not pieces:
            return cost
        rows = [(k, place, a, b) for k, (place, one) in enumerate(pieces) for a, b in zip(*one.lines, strict=True)]
        which, place, slope, intercept = (np.array(column) for column in zip(*rows, strict=True))
        height = cp.Variable(len(pieces), name=name or "height")
        above = height[which] - cp.multiply(slope, self.output[place]) >= intercept
        if not name:
            lines = cp.multiply(slope, self.output[place]) + intercept
            return cost + sum(cp.max(lines[np.flatnonzero(which == k)]) for k in range(len(pieces)))
        self.height, self.segment_intercept, self.constraints[name] = height, intercept, above
        return cost + cp.sum(height)

    # --- consumers ----------------------------------------------------------------------------------------------
    def _consumption(self) -> tuple[Any, Any]:
        """What is served at each bus, and what it is worth beyond what is charged for it."""
        case, fixed = self.case, self.case.demand.copy()
        self.demand: Any = fixed
        benefit: Any = 0.0
        if self.elastic is not None:
            one = self.elastic
            fixed[one.buses] = 0.0
            self.bought = cp.Variable(len(one.buses), name="bought", nonneg=True)
            into = _choose(one.buses, case.n_buses).T
            self.demand = fixed + into @ self.bought
            benefit = one.intercept @ self.bought - 0.5 * one.slope @ cp.square(self.bought) - one.charge @ self.bought
        self.shed: cp.Variable | None = None
        self.may_shed = np.flatnonzero(fixed > 0.0)
        if self.price_cap is None or not self.may_shed.size:
            return self.demand, benefit
        self.shed = cp.Variable(len(self.may_shed), name="shed", nonneg=True)
        return self.demand - _choose(self.may_shed, case.n_buses).T @ self.shed, benefit

    # --- lines --------------------------------------------------------------------------------------------------
    def _limit_flows(self) -> None:
        case = self.case
        added = np.zeros(case.n_lines, dtype=bool)
        if self.additions is not None:
            added[self.additions.lines] = True
            if np.any(np.isinf(case.capacity[added])):
                number = case.line_number[added & np.isinf(case.capacity)][0]
                raise OptionError(f"lines: line {number} has no limit, so it cannot be enlarged")
        self.limited = np.flatnonzero(np.isfinite(case.capacity))
        capacity: Any = case.capacity[self.limited]
        if self.additions is not None:
            rows = np.searchsorted(self.limited, self.additions.lines)
            capacity = capacity + _choose(rows, len(self.limited)).T @ self.additions.capacity
        if self.limited.size:
            self.constraints["forward"] = self.flow[self.limited] <= capacity
            self.constraints["backward"] = -self.flow[self.limited] <= capacity
        # Limits of angles that those of flows imply would only add prices that are not unique.
        furthest = np.where(added, np.inf, case.capacity) / np.abs(case.susceptance)
        self.above = np.flatnonzero(np.isfinite(case.angle_max) & (furthest + case.shift > case.angle_max))
        self.below = np.flatnonzero(np.isfinite(case.angle_min) & (-furthest + case.shift < case.angle_min))
        if self.above.size:
            self.constraints["angle_max"] = self.difference[self.above] <= case.angle_max[self.above]
        if self.below.size:
            self.constraints["angle_min"] = self.difference[self.below] >= case.angle_min[self.below]

    # --- answers ------------------------------------------------------------------------------------------------
    def solve(self) -> Dispatch:
        """The market's answer at the parameters' values: by Clarabel, and to the last digit where it is regular."""
        if solved(self.problem, inside=True)[0]:
            return self.dispatch()
        for accuracy in _ACCURACIES:  # CVXPY's own call tells why there is none
            settings = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), accuracy)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that this accuracy cannot be had: the next one is tried
                self.problem.solve(solver=cp.CLARABEL, **settings)
            if self.problem.status == cp.OPTIMAL:
                return self.dispatch()
        name = self.case.name
        if self.problem.status in (cp.INFEASIBLE, cp.INFEASIBLE_INACCURATE):
            hint = "" if self.price_cap is not None else "; with a price_cap some demand may go unserved"
            raise InputError(f"{name}: generators and lines cannot serve the demand{hint}")
        raise InputError(f"{name}: the cone solver ends with {self.problem.status}")

    def dispatch(self) -> Dispatch:
        """What the values of the variables and constraints say now."""
        case = self.case
        flow_price = np.zeros(case.n_lines)
        if self.limited.size:
            both = self.constraints["forward"].dual_value - self.constraints["backward"].dual_value
            flow_price[self.limited] = both
        shed = np.zeros(case.n_buses)
        if self.shed is not None:
            shed[self.may_shed] = self.shed.value
        capacity = case.capacity.copy()
        if self.additions is not None:
            capacity[self.additions.lines] += self.additions.capacity.value
        demand = self.demand.value if isinstance(self.demand, cp.Expression) else self.demand
        price = np.asarray(self.constraints["balance"].dual_value)
        total = max(1.0, float(np.abs(demand).sum()))
        return Dispatch(
            case=case,
            output=_without_dust(np.asarray(self.output.value), total),
            flow=_without_dust(np.asarray(self.flow.value), total),
            demand=np.asarray(demand),
            shed=_without_dust(shed, total),
            price=price,
            flow_price=_without_dust(flow_price, 1e3 * float(np.max(np.abs(price)))),
            capacity=capacity,
            value=float(self.problem.objective.value),
        )


def _without_dust(values: Float[NDArray, " n"], size: float) -> Float[NDArray, " n"]:
    """The same with zeros where an interior point leaves a billionth of the size."""
    return np.where(np.abs(values) <= _DUST * size, 0.0, values)


def _choose(places: Int[NDArray, " chosen"], n: int) -> sp.csr_array:
    """The matrix that takes these entries out of n; its transpose puts them there."""
    count = len(places)
    return sp.csr_array((np.ones(count), (np.arange(count), places)), shape=(count, n))


def solve_opf(case: PowerCase, *, price_cap: float | None = None) -> Dispatch:
    """The cheapest dispatch, and the locational prices.

    :param price_cap: per MWh; where serving another MWh costs more, demand goes unserved. None: all is served
    """
    if price_cap is not None and not (np.isfinite(price_cap) and price_cap > 0.0):
        raise OptionError(f"price_cap must be a positive number per MWh, got {price_cap!r}")
    return Market(case, price_cap=price_cap).solve()
