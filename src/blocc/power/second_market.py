"""The same market once more, by another way: no angles, no CVXPY, and HiGHS in place of Clarabel.

Flows come from injections by distribution factors. Limits of lines are added when a dispatch breaks them, tangents of
curved costs when it cuts below them, until neither happens. What leads to an answer is checked by this module, so it
shares nothing with ``market.py`` but the case.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.rounding import EXACT
from blocc.power.case import PowerCase, Segments
from blocc.power.dispatch import Dispatch

_ROUNDS = 200
_CLOSE = 1e-9  #: of limits, relative to their size
_CURVED = 1e-12  #: of costs that tangents stand for: what is bought is off by the square root
_FINEST = dict.fromkeys(("primal_feasibility_tolerance", "dual_feasibility_tolerance"), 1e-10)


@dataclass
class Terms:
    """What is not as the case has it."""

    offers: dict[int, float] = field(default_factory=dict)  #: price per MWh by the generator's place, for its cost
    capacity: Float[NDArray, " lines"] | None = None
    price_cap: float | None = None
    #: Elastic consumers by the bus's place: intercept and slope of what another MW is worth, charges taken off.
    elastic: dict[int, tuple[float, float]] = field(default_factory=dict)


@dataclass
class _Unit:
    """Something that feeds in (or takes out: sign -1) at a bus, with a convex cost."""

    bus: int
    sign: float
    low: float
    high: float
    linear: float
    square: float = 0.0
    segments: Segments | None = None

    @property
    def is_curved(self) -> bool:
        return self.square > 0.0 or self.segments is not None

    def cost(self, at: float) -> float:
        pieces = 0.0 if self.segments is None else self.segments.at(at)
        return self.linear * at + self.square * at**2 + pieces

    def tangent(self, at: float) -> tuple[float, float]:
        """Slope and intercept of the cost at a point."""
        slope, intercept = self.linear + 2.0 * self.square * at, -self.square * at**2
        if self.segments is not None:
            best = int(np.argmax([a * at + b for a, b in zip(*self.segments.lines, strict=True)]))
            slope, intercept = slope + self.segments.slope[best], intercept + self.segments.intercept[best]
        return slope, intercept


class SecondMarket:
    """Clears a case's market; remembers which lines matter."""

    def __init__(self, case: PowerCase) -> None:
        self.case = case
        self._factors, self._shifted = _distribution_factors(case)
        self._lines: dict[tuple[int, float], None] = {}  #: lines whose limits were broken, with the direction
        self._levels: dict[tuple[int, float], float] = {}  #: of the last answer, by place and direction of a unit

    def clear(self, terms: Terms) -> Dispatch | None:
        """The market's answer; None where there is none."""
        case = self.case
        units, fixed = self._units(terms)
        capacity = case.capacity if terms.capacity is None else terms.capacity
        low, high = _flow_limits(case, capacity)
        tangents = {
            (k, one.tangent(float(at)))
            for k, one in enumerate(units)
            if one.is_curved
            for at in [*np.linspace(one.low, one.high, 5), *self._near(k, one)]
        }
        for _ in range(_ROUNDS):
            found = _solve(units, fixed, tangents, self._lines, self._factors, self._shifted, low, high)
            if found is None:
                return None
            at, flow = found.levels, found.flow
            broken = self._broken(flow, low, high)
            missed = [
                (k, one.tangent(float(at[k])))
                for k, one in enumerate(units)
                if one.is_curved and one.cost(float(at[k])) > found.costs[k] + _CURVED * (1.0 + abs(found.value))
            ]
            exact = None if broken or not missed else self._exact(units, fixed, found, low, high)
            if exact is not None:
                found, at, missed = exact, exact.levels, []
            if not broken and not missed:
                self._levels = {(k, one.sign): float(at[k]) for k, one in enumerate(units)}
                return self._dispatch(terms, units, found, fixed, capacity)
            self._lines |= broken
            tangents |= set(missed)
        return None

    def flows(self, dispatch: Dispatch) -> NDArray:
        """What flows where generators and consumers do what a dispatch says."""
        return np.asarray(self._factors @ (self.case.at_bus @ dispatch.output - dispatch.served) + self._shifted)

    def prices(self, flow_price: NDArray) -> NDArray:
        """Prices of buses above that of the reference, out of those of lines."""
        return np.asarray(-self._factors.T @ flow_price)

    def _exact(self, units: list[_Unit], fixed: NDArray, found: _Found, low: NDArray, high: NDArray) -> _Found | None:
        """The answer that has the same units inside of their limits and the same lines at theirs, if there is one.

        It solves the conditions of an optimum, which are linear then, and is refused unless it meets all of them.
        """
        if any(one.segments is not None for one in units):
            return None
        sign, bus, linear, double, least, most = (
            np.array(column)
            for column in zip(
                *((one.sign, one.bus, one.linear, 2.0 * one.square, one.low, one.high) for one in units), strict=True
            )
        )
        room = 1e-7 * np.where(np.isfinite(most), 1.0 + most - least, 1.0)
        free = np.flatnonzero((found.levels > least + room) & (found.levels < most - room))
        levels = np.where(found.levels <= least + room, least, most)
        levels[free] = 0.0
        lines = [(line, np.sign(found.flow_price[line])) for line in np.flatnonzero(np.abs(found.flow_price) > EXACT)]
        rows = [np.ones(len(fixed)), *(self._factors[line] for line, _ in lines)]
        pushes = np.array(rows)[:, bus] * sign  # what one unit adds to the balance and to the lines' flows
        limits = [high[line] if direction > 0.0 else low[line] for line, direction in lines]
        sides = np.array([0.0, *(limit - self._shifted[line] for (line, _), limit in zip(lines, limits, strict=True))])
        sides = sides + np.array(rows) @ fixed - pushes @ np.where(np.isin(np.arange(len(units)), free), 0.0, levels)
        n, m = len(free), len(rows)
        matrix = np.zeros((n + m, n + m))
        matrix[:n, :n], matrix[:n, n:], matrix[n:, :n] = np.diag(double[free]), -pushes[:, free].T, pushes[:, free]
        try:
            solved = np.linalg.solve(matrix, np.concatenate([-linear[free], sides]))
        except np.linalg.LinAlgError:
            return None
        levels[free], prices = solved[:n], solved[n:]
        price = prices @ np.array(rows)
        flow = self._factors @ (np.bincount(bus, sign * levels, len(fixed)) - fixed) + self._shifted
        slope = linear + double * levels - sign * price[bus]
        tiny = EXACT * (1.0 + float(np.max(np.abs(price))))
        held = np.flatnonzero((most > least) & ~np.isin(np.arange(len(units)), free))
        right = np.where(levels[held] == least[held], slope[held] >= -tiny, slope[held] <= tiny).all()
        right &= bool(np.all((levels >= least - room) & (levels <= most + room)))
        right &= all(direction * value <= tiny for (_, direction), value in zip(lines, prices[1:], strict=True))
        wide = _CLOSE * (1.0 + np.abs(flow))
        if not (right and np.all((flow <= high + wide) & (flow >= low - wide))):
            return None
        flow_price = np.zeros(len(low))
        for (line, _), value in zip(lines, prices[1:], strict=True):
            flow_price[line] = -value
        costs = linear * levels + 0.5 * double * levels**2
        return _Found(levels, costs, flow, price, flow_price, float(costs.sum()))

    def _near(self, k: int, unit: _Unit) -> list[float]:
        """Levels around that of the last answer: the next one is often close."""
        if (k, unit.sign) not in self._levels:
            return []
        last, room = self._levels[k, unit.sign], unit.high - unit.low
        return [min(max(last + step * room, unit.low), unit.high) for step in (0.0, 1e-3, -1e-3)]

    def _units(self, terms: Terms) -> tuple[list[_Unit], Float[NDArray, " buses"]]:
        case, fixed = self.case, self.case.demand.copy()
        units = []
        for k in range(case.n_generators):
            bus, low, high = int(case.generator_bus[k]), float(case.output_min[k]), float(case.output_max[k])
            if k in terms.offers:
                units.append(_Unit(bus, 1.0, low, high, terms.offers[k]))
            else:
                linear, square = float(case.cost_linear[k]), float(case.cost_square[k])
                units.append(_Unit(bus, 1.0, low, high, linear, square, case.segments.get(k)))
        for bus, (intercept, slope) in terms.elastic.items():
            fixed[bus] = 0.0
            units.append(_Unit(bus, -1.0, 0.0, max(intercept / slope, 0.0), -intercept, 0.5 * slope))
        if terms.price_cap is not None:
            units += [_Unit(int(bus), 1.0, 0.0, np.inf, terms.price_cap) for bus in np.flatnonzero(fixed > 0.0)]
        return units, fixed

    def _broken(self, flow: NDArray, low: NDArray, high: NDArray) -> dict[tuple[int, float], None]:
        size = 1.0 + np.abs(flow)
        above = [(int(one), 1.0) for one in np.flatnonzero(flow > high + _CLOSE * size)]
        below = [(int(one), -1.0) for one in np.flatnonzero(flow < low - _CLOSE * size)]
        return {one: None for one in (*above, *below) if one not in self._lines}

    def _dispatch(self, terms: Terms, units: list[_Unit], found: _Found, fixed: NDArray, capacity: NDArray) -> Dispatch:
        case = self.case
        demand, shed = fixed.copy(), np.zeros(case.n_buses)
        for one, level in zip(units[case.n_generators :], found.levels[case.n_generators :], strict=True):
            (demand if one.sign < 0.0 else shed)[one.bus] += level
        return Dispatch(
            case=case,
            output=found.levels[: case.n_generators],
            flow=found.flow,
            demand=demand,
            shed=shed,
            price=found.price,
            flow_price=found.flow_price,
            capacity=capacity,
            value=found.value + float(np.delete(case.cost_fixed, list(terms.offers)).sum()),
        )


@dataclass
class _Found:
    levels: NDArray
    costs: NDArray  #: of each unit, by its tangents
    flow: NDArray
    price: NDArray
    flow_price: NDArray
    value: float


def _solve(
    units: list[_Unit],
    fixed: NDArray,
    tangents: set[tuple[int, tuple[float, float]]],
    lines: dict[tuple[int, float], None],
    factors: NDArray,
    shifted: NDArray,
    low: NDArray,
    high: NDArray,
) -> _Found | None:
    """The linear program with these tangents and limits."""
    import scipy.optimize

    n, curved = len(units), [k for k, one in enumerate(units) if one.is_curved]
    height = {k: n + place for place, k in enumerate(curved)}
    sign, bus = np.array([one.sign for one in units]), np.array([one.bus for one in units])
    cost = np.array([0.0 if one.is_curved else one.linear for one in units] + [1.0] * len(curved))
    rows, sides = [], []
    for line, direction in lines:
        row = np.zeros(n + len(curved))
        row[:n] = direction * factors[line, bus] * sign
        limit = high[line] if direction > 0.0 else -low[line]
        rows.append(row)
        sides.append(limit + direction * (factors[line] @ fixed - shifted[line]))
    for k, (slope, intercept) in tangents:
        row = np.zeros(n + len(curved))
        row[k], row[height[k]] = slope, -1.0
        rows.append(row)
        sides.append(-intercept)
    bounds = [(one.low, one.high) for one in units] + [(None, None)] * len(curved)
    limits: dict[str, Any] = {"A_ub": np.array(rows), "b_ub": np.array(sides)} if rows else {}
    balance = np.concatenate([sign, np.zeros(len(curved))])[None, :]
    found: Any = scipy.optimize.linprog(
        cost, A_eq=balance, b_eq=[fixed.sum()], bounds=bounds, method="highs", options=_FINEST, **limits
    )
    if found.status != 0:
        return None
    levels = found.x[:n]
    injected = np.bincount(bus, sign * levels, len(fixed)) - fixed
    price, flow_price = np.full(len(fixed), float(found.eqlin.marginals[0])), np.zeros(len(low))
    for (line, direction), marginal in zip(lines, found.ineqlin.marginals if rows else (), strict=False):
        price += marginal * direction * factors[line]
        flow_price[line] -= marginal * direction
    costs = np.array([found.x[height[k]] if one.is_curved else one.linear * levels[k] for k, one in enumerate(units)])
    return _Found(levels, costs, factors @ injected + shifted, price, flow_price, float(found.fun))


def _flow_limits(case: PowerCase, capacity: NDArray) -> tuple[NDArray, NDArray]:
    """The least and the largest flow of each line, by its capacity and by the limits of the angle over it."""
    with np.errstate(invalid="ignore"):
        ends = [case.susceptance * (angle - case.shift) for angle in (case.angle_min, case.angle_max)]
    return np.maximum(-capacity, np.minimum(*ends)), np.minimum(capacity, np.maximum(*ends))


def _distribution_factors(case: PowerCase) -> tuple[NDArray, NDArray]:
    """Flow of each line for a MW fed in at each bus (and taken out at the reference), and what shifts add."""
    incidence = case.incidence.toarray()
    weighted = case.susceptance[:, None] * incidence
    keep = np.delete(np.arange(case.n_buses), case.reference)
    laplacian = (incidence.T @ weighted)[np.ix_(keep, keep)]
    factors = np.zeros((case.n_lines, case.n_buses))
    factors[:, keep] = np.linalg.solve(laplacian.T, weighted[:, keep].T).T
    pushed = case.susceptance * case.shift
    return factors, factors @ (incidence.T @ pushed) - pushed
