"""Is a design of roads true? What it claims is recomputed from the network and the decision alone, and compared.

What it says about drivers ``verify_drivers`` judges; here are the decision and its limits, the money, and the bound,
which is proven anew at the point that the design names.
"""

from __future__ import annotations

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.files import shown
from blocc._lib.rounding import EXACT, TINY
from blocc.errors import OptionError
from blocc.judge.verification import Verification
from blocc.kit.arguments import check_positive, one_each
from blocc.roads.assign import assign, check_network
from blocc.roads.descents import Budget, highest, largest_price
from blocc.roads.expansion import Expansion, affordable
from blocc.roads.leader import Leader
from blocc.roads.network import RoadNetwork
from blocc.roads.question import Question
from blocc.roads.road_design import KINDS, RoadDesign
from blocc.roads.road_options import chosen_links
from blocc.roads.rounding import gain_of_neighbours, size_table, sizes_of_link
from blocc.roads.tolls import Tolling
from blocc.roads.verify_drivers import GAP, SAME, RoadClaims, cheapest_of, prices_of

#: What decisions around the answer may gain, relative to the objective, whatever the design was made with.
TOLERANCE = 1e-5
#: Slopes agree to this, relative to the largest.
_SAME_SLOPE = 1e-3
#: Nor matters what is less than this over all of a link's range, relative to the objective.
_UNFELT = 1e-9


def verify_road_design(network: RoadNetwork, design: RoadDesign, tolerance: float = TOLERANCE) -> Verification:
    """Recompute what ``design`` claims about ``network``, and say which claims hold.

    :param tolerance: what decisions around the answer may gain, relative to the objective; never the design's own
    """
    check_network(network)
    if not isinstance(design, RoadDesign):
        raise OptionError(f"design must be a RoadDesign (see RoadDesign.load), got {type(design).__name__}")
    check_positive("tolerance", tolerance)
    return _Verifier(network, design, float(tolerance)).run()


class _Verifier(RoadClaims):
    """Collects the checks of one design."""

    def __init__(self, network: RoadNetwork, design: RoadDesign, tolerance: float) -> None:
        super().__init__(network.name, tolerance, design.success)
        self.network, self.design = network, design

    def run(self) -> Verification:
        network, design = self.network, self.design
        if self.fits(network, design.network) and self._admissible():
            self.equilibrium("before", network, network.capacity, network.toll, design.before)
            total = self.equilibrium("after", network, network.capacity + design.expansion, design.toll, design.after)
            if total is not None:
                self._money(total)
            self._bound()
            self._around()
        return self.concluded()

    # --- the decision -----------------------------------------------------------------------------------------------
    def _admissible(self) -> bool:
        """Candidates, limits and costs as the design names them, and a decision within these limits."""
        design, settings, network = self.design, self.design.settings, self.network
        try:
            self.chosen = chosen_links(network, settings["candidates"])
            count = len(self.chosen)
            is_toll = design.kind == "tolls"
            if design.kind not in KINDS:
                raise OptionError(f"kind must be {' or '.join(map(repr, KINDS))}, got {shown(design.kind)}")
            self.upper = one_each("most", settings["max_toll" if is_toll else "max_expansion"], count, "candidates")
            self.cost, self.exponent = (
                np.ones(count) if is_toll else one_each(name, settings[name], count, "candidates")
                for name in ("cost", "exponent")
            )
            budget, sizes = settings.get("budget"), settings.get("sizes")
            check_positive("budget", budget, optional=True, or_zero=True)
            if not is_toll:
                self.upper = np.minimum(self.upper, affordable(self.cost, self.exponent, budget))
            table = None if sizes is None else size_table([sizes_of_link(given) for given in sizes], self.upper)
        except (KeyError, OptionError) as error:
            self.add("limits", "possible", str(error), False)
            return False
        decision = design.toll - network.toll if is_toll else design.expansion
        other = design.expansion if is_toll else design.toll - network.toll
        self.x = decision[self.chosen]
        elsewhere = np.delete(decision, self.chosen)
        within_limits = bool(
            np.isfinite(decision).all()
            and (self.x >= 0.0).all()
            and (self.x <= self.upper * (1.0 + EXACT)).all()
            and not elsewhere.any()
            and not other.any()
        )
        self.holds("limits", "kept", within_limits, "not kept", "kept")
        if table is not None:
            built = bool((np.abs(table - self.x[:, None]).min(axis=1) <= EXACT * self.x).all())
            self.holds("sizes", "that can be built", built, "others")
        self.question: Question
        zero = np.zeros(count)
        if is_toll:
            self.question = Tolling(network, self.chosen, zero, self.upper)
        else:
            self.question = Expansion(network, self.chosen, zero, self.upper, self.cost, self.exponent, table)
        self.budget = Budget(self.question.own, float(budget)) if budget else None
        return within_limits

    # --- the leader -------------------------------------------------------------------------------------------------
    def _money(self, total: float) -> None:
        design = self.design
        cost = 0.0 if design.kind == "tolls" else float(self.cost @ self.x**self.exponent)
        self.agree("construction cost", design.cost, cost, total)
        if self.budget is not None:
            over = self.budget.over(self.x)
            self.add("budget", f"at most {self.budget.limit:g}", cost, over <= EXACT)
        self.agree("objective", design.objective, total + cost, total)

    def _bound(self) -> None:
        """The bound by convexity, from the point that the design names; whatever that is, what comes out holds."""
        design = self.design
        if design.bound is None or design.gap is None:
            both = design.bound is None and design.gap is None
            self.add("bound", "none", "none is proven", both and not self.success)
            return
        gap = max(0.0, design.objective - design.bound) / max(abs(design.objective), TINY)
        self.same("proven gap", design.gap, gap, SAME)
        x = np.zeros(len(self.x))
        if design.kind == "expansion" and design.bound_expansion is not None:
            x = np.clip(np.nan_to_num(design.bound_expansion[self.chosen]), 0.0, self.upper)
        capacity = self.question.capacity(x)
        volume = assign(self.network, principle="system optimum", capacity=capacity, relative_gap=GAP).flow
        prices = prices_of(self.network, capacity, marginal=True)
        steep = prices.at(volume)
        value = prices.integral(volume) + float(self.network.demand @ cheapest_of(self.network, steep) - steep @ volume)
        slope = np.zeros(len(x))
        if design.kind == "expansion":
            at, network = self.chosen, self.network
            filled = (volume[at] / capacity[at]) ** (network.power[at] + 1.0)
            slope = self.exponent * self.cost * x ** (self.exponent - 1.0)
            slope -= network.free_flow_time[at] * network.b[at] * network.power[at] * filled
            value += float(self.cost @ x**self.exponent)
        lowest = max(self._least(value, slope, x), self.network.least_time)
        right = design.bound <= lowest + SAME * abs(lowest)
        self.add("bound", design.bound, lowest, right, "by convexity, proven anew")

    def _least(self, value: float, slope: Float[NDArray, "n"], x: Float[NDArray, "n"]) -> float:
        """The least of a tangent over the limits, and over the budget by its multiplier."""

        def over_box(value: float, slope: Float[NDArray, "n"]) -> float:
            return value + float(np.minimum(-slope * x, slope * (self.upper - x)).sum())

        if self.budget is None:
            return over_box(value, slope)
        spent = float(self.cost @ x**self.exponent)
        rate = self.exponent * self.cost * x ** (self.exponent - 1.0)
        left = spent - self.budget.limit
        best = highest(lambda price: over_box(value + price * left, slope + price * rate), largest_price(slope, rate))
        return max(over_box(value, slope), best)

    def _around(self) -> None:
        """The slope at the answer, and exact values around it."""
        design, question = self.design, self.question
        leader = Leader(question)
        here = leader.exact(self.x)
        known = question.own(self.x)[1] - here.slope
        size = TINY + float(np.max(np.abs(known)))
        off = np.abs(design.marginal_value[self.chosen] - known)
        away = float(np.max(off)) / size
        felt = float(np.max(off * self.upper)) > _UNFELT * question.size(here.value)  # slopes may all be zero
        right = away <= _SAME_SLOPE or not felt
        self.add("marginal values", "slopes at the answer", f"{away:.1e} away", right and not np.isnan(away))
        if question.sizes is not None and self.success:
            gain = gain_of_neighbours(leader, here, self.budget)
            self.gained(question, here.value, design.stationarity, gain, "sizes around it")
        else:
            self.gain_left(leader, here, self.budget, design.stationarity)
