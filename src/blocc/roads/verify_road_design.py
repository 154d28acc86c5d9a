"""Is a design of roads true? What it claims is recomputed from the network and the decision alone, and compared.

Volumes are held against weak duality: costs at the volumes that a design claims, with SciPy's cheapest paths at them,
give a value that no assignment is below; an assignment that is made anew, whose paths are followed link by link, gives
one that is above. Where the two meet, the claimed volumes are the drivers' own. Times, costs and integrals are NumPy's
here, and the bound is proven anew at the point that the design names.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.sparse import coo_array

from blocc._lib.arrays import Float, NDArray
from blocc.errors import OptionError
from blocc.judge.verification import Check, Verification
from blocc.result import Status
from blocc.roads.assign import RoadAssignment, assign, check_network
from blocc.roads.equilibrium import PathFlows
from blocc.roads.expansion import Expansion
from blocc.roads.leader import Budget, Leader, Question, largest_price, within
from blocc.roads.network import RoadNetwork
from blocc.roads.road_design import RoadDesign
from blocc.roads.road_options import check_positive, chosen_links, per_candidate
from blocc.roads.rounding import gain_of_neighbours, size_table, sizes_of_link
from blocc.roads.tolls import Tolling
from blocc.transport.network.paths import cheapest_costs

#: What decisions around the answer may gain, relative to 1 + |objective|, whatever the design was made with.
TOLERANCE = 1e-5
#: Figures agree to this, relative to their size; volumes, which are flat around the answer, to less.
_SAME, _SAME_VOLUME, _SAME_SLOPE = 1e-7, 1e-4, 1e-3
#: Relative gap of the assignments that are made anew, and what duality may leave open.
_GAP, _OPEN = 1e-12, 1e-9
_DIRECTIONS, _DISTANCES = 6, (1e-2, 1e-3)


def verify_road_design(network: RoadNetwork, design: RoadDesign, tolerance: float = TOLERANCE) -> Verification:
    """Recompute what ``design`` claims about ``network``, and say which claims hold.

    :param tolerance: what decisions around the answer may gain, relative to 1 + |objective|; never the design's own
    """
    check_network(network)
    if not isinstance(design, RoadDesign):
        raise OptionError(f"design must be a RoadDesign (see RoadDesign.load), got {type(design).__name__}")
    check_positive("tolerance", tolerance)
    return _Verifier(network, design, float(tolerance)).run()


class _Prices(NamedTuple):
    """Link costs in NumPy: constant + coefficient v^power."""

    constant: Float[NDArray, "links"]
    coefficient: Float[NDArray, "links"]
    power: Float[NDArray, "links"]

    def at(self, volume: Float[NDArray, "links"]) -> Float[NDArray, "links"]:
        return self.constant + self.coefficient * volume**self.power

    def integral(self, volume: Float[NDArray, "links"]) -> float:
        return float(self.constant @ volume + (self.coefficient / (self.power + 1.0)) @ volume ** (self.power + 1.0))


class _Verifier:
    """Collects the checks of one design."""

    def __init__(self, network: RoadNetwork, design: RoadDesign, tolerance: float) -> None:
        self.network, self.design, self.tolerance = network, design, tolerance
        self.converged = design.status is Status.CONVERGED
        self.checks: list[Check] = []

    def run(self) -> Verification:
        if self._fits() and self._admissible():
            self._equilibrium("before", self.network.capacity, self.network.toll, self.design.before)
            capacity = self.network.capacity + self.design.expansion
            self._equilibrium("after", capacity, self.design.toll, self.design.after)
            self._money()
            self._bound()
            self._around()
        if self.converged:
            wrong = [check.name for check in self.checks if not check.ok]
            self._add("status", "converged", f"not: {', '.join(wrong)}" if wrong else "converged", not wrong)
        return Verification(self.network.name, self.tolerance, tuple(self.checks), self.converged)

    def _add(self, name: str, claimed: float | str, recomputed: float | str, ok: bool, note: str = "") -> None:
        self.checks.append(Check(name, claimed, recomputed, bool(ok), note))

    def _same(self, name: str, claimed: float, recomputed: float, size: float, note: str = "") -> None:
        self._add(name, claimed, recomputed, abs(claimed - recomputed) <= _SAME * (1e-300 + abs(size)), note)

    # --- the decision -----------------------------------------------------------------------------------------------
    def _fits(self) -> bool:
        """Whether it is a design of this network at all."""
        own, other = self.network, self.design.network
        same = all(getattr(own, name) == getattr(other, name) for name in ("nodes", "link_ids"))
        same = same and all(
            np.array_equal(getattr(own, name), getattr(other, name))
            for name in ("tail", "head", "origin", "destination")
        )
        self._add("network", "links and trips", "the same" if same else "others", same)
        return same

    def _admissible(self) -> bool:
        """Candidates, limits and costs as the design names them, and a decision within these limits."""
        design, settings, network = self.design, self.design.settings, self.network
        try:
            self.chosen = chosen_links(network, settings["candidates"])
            count = len(self.chosen)
            is_toll = design.kind == "tolls"
            self.upper = per_candidate("most", settings["max_toll" if is_toll else "max_expansion"], count)
            self.cost, self.exponent = (
                np.ones(count) if is_toll else per_candidate(name, settings[name], count)
                for name in ("cost", "exponent")
            )
            budget, sizes = settings.get("budget"), settings.get("sizes")
            check_positive("budget", budget, optional=True)
            table = None if sizes is None else size_table([sizes_of_link(given) for given in sizes], self.upper)
        except (KeyError, OptionError) as error:
            self._add("limits", "possible", str(error), False)
            return False
        decision = design.toll - network.toll if is_toll else design.expansion
        other = design.expansion if is_toll else design.toll - network.toll
        self.x = decision[self.chosen]
        elsewhere = np.delete(decision, self.chosen)
        within_limits = bool(
            np.isfinite(decision).all()
            and (self.x >= 0.0).all()
            and (self.x <= self.upper * (1.0 + 1e-9)).all()
            and not elsewhere.any()
            and not other.any()
        )
        self._add("limits", "kept", "kept" if within_limits else "not kept", within_limits)
        if table is not None:
            built = bool((np.abs(table - self.x[:, None]).min(axis=1) <= 1e-9 * (1.0 + self.x)).all())
            self._add("sizes", "that can be built", "so they are" if built else "others", built)
        self.question: Question
        zero = np.zeros(count)
        if is_toll:
            self.question = Tolling(network, self.chosen, zero, self.upper)
        else:
            self.question = Expansion(network, self.chosen, zero, self.upper, self.cost, self.exponent, table)
        self.budget = None if budget is None else Budget(self.question.own, float(budget))
        return within_limits

    # --- the drivers ------------------------------------------------------------------------------------------------
    def _prices(
        self, capacity: Float[NDArray, "links"], toll: Float[NDArray, "links"] | float = 0.0, marginal: bool = False
    ) -> _Prices:
        network = self.network
        room = np.where(network.b > 0.0, capacity, 1.0)
        grown = network.free_flow_time * network.b * ((1.0 + network.power) if marginal else 1.0)
        return _Prices(network.free_flow_time + toll, grown / room**network.power, network.power)

    def _cheapest(self, costs: Float[NDArray, "links"]) -> Float[NDArray, "pairs"]:
        network = self.network
        origins, row = np.unique(network.origin, return_inverse=True)
        return cheapest_costs(network.tail, network.head, costs, network.through, origins)[row, network.destination]

    def _equilibrium(
        self,
        when: str,
        capacity: Float[NDArray, "links"],
        toll: Float[NDArray, "links"],
        claimed: RoadAssignment,
    ) -> None:
        network, volume = self.network, claimed.flow
        sound = bool(np.isfinite(volume).all() and (volume >= 0.0).all())
        self._add(f"{when}: volumes", "finite, not negative", "so they are" if sound else "not so", sound)
        if not sound:
            return
        prices = self._prices(capacity, toll)
        costs = prices.at(volume)
        cheapest = self._cheapest(costs)
        paid = float(costs @ volume)
        excess = paid - float(network.demand @ cheapest)
        relative = excess / paid if paid else 0.0
        wanted = _OPEN if claimed.status is Status.CONVERGED else np.inf
        right = abs(relative - claimed.relative_gap) <= max(_OPEN, 0.1 * claimed.relative_gap) and relative <= wanted
        self._add(f"{when}: relative gap", claimed.relative_gap, relative, right, "SciPy's cheapest paths")
        anew = assign(network, capacity=capacity, toll=toll, relative_gap=_GAP)
        assert anew.paths is not None
        on_paths = _loads(network, anew.paths)
        above = prices.integral(on_paths)
        below = prices.integral(volume) - excess
        apart = (above - below) / max(abs(above), 1e-300)
        allowed = _OPEN + 2.0 * abs(relative)
        self._add(f"{when}: duality gap", f"within {allowed:.0e}", apart, abs(apart) <= allowed, "an assignment anew")
        grows = (network.b > 0.0) & (network.power > 0.0) & (network.free_flow_time > 0.0)
        if claimed.status is Status.CONVERGED:
            away = float(np.max(np.abs(on_paths - volume)[grows], initial=0.0)) / float(
                np.max(on_paths, initial=1e-300)
            )
            self._add(f"{when}: volumes of links", "the drivers' own", f"{away:.1e} away", away <= _SAME_VOLUME)
        times = self._prices(capacity).at(volume)
        off = float(np.max(np.abs(claimed.time - times) / (1e-300 + np.abs(times)), initial=0.0))
        self._add(f"{when}: times of links", "at the volumes", f"{off:.1e} away", off <= _SAME)
        total = float(times @ volume)
        self._same(f"{when}: total travel time", claimed.total_travel_time, total, total)
        self._same(f"{when}: Beckmann's objective", claimed.objective, prices.integral(volume), claimed.objective)
        self._same(f"{when}: revenue", claimed.revenue, float(toll @ volume), total)
        off = float(np.max(np.abs(claimed.path_cost - cheapest) / (1e-300 + np.abs(cheapest)), initial=0.0))
        self._add(f"{when}: costs of pairs", "of cheapest paths", f"{off:.1e} away", off <= _SAME)
        if when == "after":
            self.total = total

    # --- the leader -------------------------------------------------------------------------------------------------
    def _money(self) -> None:
        design = self.design
        cost = 0.0 if design.kind == "tolls" else float(self.cost @ self.x**self.exponent)
        self._same("construction cost", design.cost, cost, self.total)
        if self.budget is not None:
            over = self.budget.over(self.x)
            self._add("budget", f"at most {self.budget.limit:g}", cost, over <= 1e-9)
        self._same("objective", design.objective, self.total + cost, self.total)

    def _bound(self) -> None:
        """The bound by convexity, from the point that the design names; whatever that is, what comes out holds."""
        design = self.design
        if design.bound is None or design.gap is None:
            return
        gap = max(0.0, design.objective - design.bound) / max(abs(design.objective), 1e-300)
        self._add("proven gap", design.gap, gap, abs(gap - design.gap) <= _SAME)
        x = np.zeros(len(self.x))
        if design.kind == "expansion" and design.bound_expansion is not None:
            x = np.clip(np.nan_to_num(design.bound_expansion[self.chosen]), 0.0, self.upper)
        capacity = self.question.capacity(x)
        volume = assign(self.network, principle="system optimum", capacity=capacity, relative_gap=_GAP).flow
        prices = self._prices(capacity, marginal=True)
        steep = prices.at(volume)
        value = prices.integral(volume) + float(self.network.demand @ self._cheapest(steep) - steep @ volume)
        slope = np.zeros(len(x))
        if design.kind == "expansion":
            at, network = self.chosen, self.network
            filled = (volume[at] / capacity[at]) ** (network.power[at] + 1.0)
            slope = self.exponent * self.cost * x ** (self.exponent - 1.0)
            slope -= network.free_flow_time[at] * network.b[at] * network.power[at] * filled
            value += float(self.cost @ x**self.exponent)
        lowest = self._least(value, slope, x)
        right = design.bound <= lowest + _SAME * abs(lowest)
        self._add("bound", design.bound, lowest, right, "by convexity, proven anew")

    def _least(self, value: float, slope: Float[NDArray, "n"], x: Float[NDArray, "n"]) -> float:
        """The least of a tangent over the limits, and over the budget by its multiplier."""

        def over_box(value: float, slope: Float[NDArray, "n"]) -> float:
            return value + float(np.minimum(-slope * x, slope * (self.upper - x)).sum())

        if self.budget is None:
            return over_box(value, slope)
        spent = float(self.cost @ x**self.exponent)
        rate = self.exponent * self.cost * x ** (self.exponent - 1.0)
        left = spent - self.budget.limit
        best = minimize_scalar(
            lambda price: -over_box(value + price * left, slope + price * rate),
            bounds=(0.0, largest_price(slope, rate)),
            method="bounded",
        )
        return max(over_box(value, slope), -float(best.fun))

    def _around(self) -> None:
        """The slope at the answer, and exact values around it."""
        design, question = self.design, self.question
        leader = Leader(question)
        here = leader.exact(self.x)
        known = question.own(self.x)[1] - here.slope
        size = 1e-12 + float(np.max(np.abs(known)))
        away = float(np.max(np.abs(design.marginal_value[self.chosen] - known))) / size
        self._add("marginal values", "slopes at the answer", f"{away:.1e} away", away <= _SAME_SLOPE)
        claimed = design.stationarity
        if not self.converged:
            sound = bool(np.isnan(claimed)) or claimed >= 0.0
            self._add("gain left", claimed, "a gain" if sound else "no gain", sound)
            return
        allowed = self.tolerance * (1.0 + abs(here.value))
        if question.sizes is not None:
            gain = gain_of_neighbours(leader, here, self.budget)
            self._add("gain left", claimed, gain, 0.0 <= claimed <= allowed and gain <= allowed, "sizes around it")
            return
        random = np.random.default_rng(1)
        directions = random.normal(size=(_DIRECTIONS, len(self.x)))
        downhill = -here.slope / (1e-300 + float(np.abs(here.slope).max()))
        for direction in (*directions, *-directions, downhill):
            for distance in _DISTANCES:
                leader.exact(within(self.x + distance * self.upper * direction, question, self.budget))
        assert leader.best is not None
        gain = max(0.0, here.value - leader.best.value)
        self._add("gain left", claimed, gain, 0.0 <= claimed <= allowed and gain <= allowed, "exact values around it")


def _loads(network: RoadNetwork, paths: PathFlows) -> Float[NDArray, "links"]:
    """Volumes of paths whose links are looked at one by one, so that nothing about them is believed.

    :raises AssertionError: where a path does not lead from its origin to its destination, or trips are missing
    """
    (market, links), flow = (paths.columns.market, paths.columns.links), paths.flow
    path = np.repeat(np.arange(len(flow)), np.diff(paths.columns.first))
    ends = [(network.head[links], 1.0), (network.tail[links], -1.0)]
    ends += [(network.origin[market], 1.0), (network.destination[market], -1.0)]
    owners = (path, path, np.arange(len(flow)), np.arange(len(flow)))
    signs = np.concatenate([np.full(len(nodes), sign) for nodes, sign in ends])
    places = (np.concatenate(owners), np.concatenate([nodes for nodes, _ in ends]))
    balance = coo_array((signs, places), shape=(len(flow), network.n_nodes)).tocsr()
    balance.sum_duplicates()
    assert not balance.data.any(), "a path does not join its pair"
    at = network.tail[links]
    assert (network.through[at] | (at == network.origin[market][path])).all(), "a path passes a node that it must not"
    carried = np.bincount(market, flow, network.n_pairs)
    assert np.allclose(carried, network.demand, rtol=1e-9, atol=0.0), "trips are missing"
    return np.bincount(links, flow[path], network.n_links)
