"""Strategic bidding: which prices should a producer offer its power at, if it is paid the locational price?

The producer's revenue is a sum of prices times quantities. Strong duality writes it without such products: what all
consumers pay, less what lines and the other generators earn. That is linear in the market's prices, and concave in the
others' outputs.
"""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

from blocc._lib.arrays import Float, Int, NDArray
from blocc._lib.rounding import EXACT, KEPT
from blocc.cvxpy import BilevelProblem, dual
from blocc.errors import InputError, OptionError
from blocc.outer.monitor import stoppable
from blocc.power.case import PowerCase
from blocc.power.dispatch import Dispatch
from blocc.power.market import Market, Offers
from blocc.power.outcome import Answer, cleared_by_both, conclude, price_limits, same_value
from blocc.power.power_design import Decision, PowerDesign
from blocc.power.power_options import PowerOptions
from blocc.power.search import STEPS, Question, Search, shares
from blocc.power.second_market import SecondMarket, Terms
from blocc.result import Result

#: Offers may go up to this many times the highest marginal cost; the market's prices to that many times an offer.
OFFER_FACTOR, CAP_FACTOR = 2.0, 10.0
_LEVELS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
_RANDOM = 12  #: further candidates
#: Prices at even distances that are looked at as well; how far beside a price of the market, relative to all offers.
_SCANNED, _APART = 13, 1e-5


@stoppable
def bid_generators(
    case: PowerCase,
    generators: Any,
    *,
    offer_cap: float | None = None,
    price_cap: float | None = None,
    **options: Any,
) -> PowerDesign:
    """The offers of some generators that earn their owner most, when the market clears at locational prices.

    The other generators offer their cost. The market takes the cheapest offers that the lines allow, and pays every
    generator the price of its bus.

    :param generators: numbers of the producer's generators (rows of ``mpc.gen``)
    :param offer_cap: the highest offer, per MWh; by default twice the highest marginal cost of the case
    :param price_cap: the highest price of the market, per MWh, above which demand goes unserved; by default ten times
        ``offer_cap``
    :param options: fields of :class:`~blocc.power.power_options.PowerOptions`
    """
    return _Bidding(case, generators, offer_cap, price_cap, PowerOptions.from_names(options)).run()


class _Bidding:
    """One question."""

    def __init__(
        self, case: PowerCase, generators: Any, offer_cap: float | None, price_cap: float | None, options: PowerOptions
    ) -> None:
        self.case, self.options = case, options
        self.own = np.sort(case.places("generators", generators))
        self._check_own()
        self.offer_cap, self.price_cap = price_limits(case, offer_cap, price_cap, OFFER_FACTOR, CAP_FACTOR)
        self.before = Market(case, price_cap=self.price_cap).solve()
        self.marginal = case.marginal_cost(self.before.output)[self.own]
        if np.any(self.marginal > self.offer_cap):
            number = case.generator_number[self.own[int(np.argmax(self.marginal))]]
            raise OptionError(
                f"offer_cap must not be below the producer's own cost: generator {number} costs "
                f"{self.marginal.max():.6g} per MWh, got {self.offer_cap:.6g}"
            )
        self.low = np.minimum(0.0, self.marginal)
        self.high = np.full(len(self.own), self.offer_cap)
        self.share, self.price = shares(self.low, self.high)
        self.market = Market(case, offers=Offers(self.own, self.price), price_cap=self.price_cap)
        self.second = SecondMarket(case)

    def _check_own(self) -> None:
        case = self.case
        for place in self.own:
            if not case.output_max[place] > max(case.output_min[place], 0.0):
                number = case.generator_number[place]
                raise OptionError(
                    f"generators: {number} has nothing to offer: it gives between {case.output_min[place]:g} and "
                    f"{case.output_max[place]:g} MW"
                )
        if len(self.own) == int((case.output_max > case.output_min).sum()):
            raise OptionError("generators: the producer owns every generator that can vary; that is no market")

    # --- the leader's problem -------------------------------------------------------------------------------------
    def profit(self) -> cp.Expression:
        """Revenue at locational prices less cost, without products of the market's prices and quantities."""
        return producer_revenue(self.market, self.own) - self.market.true_cost(self.own)

    def terms(self, offers: Float[NDArray, " own"]) -> Terms:
        """The market at these offers."""
        return Terms(offers=dict(zip(self.own.tolist(), offers.tolist(), strict=True)), price_cap=self.price_cap)

    def value(self, offers: Float[NDArray, " own"]) -> float:
        """What the producer loses at these offers, by the second solver."""
        found = self.second.clear(self.terms(offers))
        return np.inf if found is None else -float(found.profit(self.own).sum())

    def agrees(self, offers: Float[NDArray, " own"]) -> bool:
        """Whether the market in CVXPY pays the same."""
        self.share.value = (offers - self.low) / (self.high - self.low)
        return same_value(self.market, lambda one: float(one.profit(self.own).sum()), -self.value(offers))

    # --- the run --------------------------------------------------------------------------------------------------
    def run(self) -> PowerDesign:
        """Search, settle, and put the answer together."""
        if self.second.clear(self.terms(self.marginal)) is None:
            raise InputError(f"{self.case.name}: the market has no answer: the least outputs exceed the demand")
        problem = BilevelProblem(cp.Maximize(self.profit()), self.market.problem, self.share, name=self.case.name)
        project = lambda x: np.clip(x, self.low, self.high)  # noqa: E731
        question = Question(
            problem,
            self.low,
            self.high,
            self.value,
            project,
            self._beside,
            self.share,
            self.agrees,
            self._further,
        )
        search = Search(question, self.options, self.case, self._settings())
        found = search.run(self._candidates())
        offers = self._plain(found.x) if found.stopped is None else found.x
        return conclude(self.case, found, offers, self._answer(offers), search.request, self._settings())

    def _candidates(self) -> list[Float[NDArray, " own"]]:
        """Offers at cost and at levels above it: all of them, one of them, and some at random."""
        room, generator = self.high - self.marginal, np.random.default_rng(self.options.seed)
        found = [self.marginal + level * room for level in _LEVELS]
        if len(self.own) > 1:
            for one in np.eye(len(self.own)):
                found += [self.marginal + level * room * one for level in _LEVELS[3::2]]
                found += [self.marginal + level * room * (1.0 - one) for level in _LEVELS[3::2]]
            found += [self.marginal + share**2 * room for share in generator.random((_RANDOM, len(self.own)))]
        return found

    def _beside(self, offers: Float[NDArray, " own"], result: Result) -> list[Float[NDArray, " own"]]:
        """Offers a little lower where the penalised market takes more than the market does, higher where less."""
        found = self.second.clear(self.terms(offers))
        wanted = np.asarray(result.y_penalty["output"])[np.searchsorted(self.market.free, self.own)]
        if found is None or not np.isfinite(wanted).all():
            return []
        more = wanted - found.output[self.own]
        moves = np.where(np.abs(more) > KEPT * (1.0 + np.abs(wanted)), -np.sign(more), 0.0)
        room = self.high - self.low
        return [offers + step * room * moves for step in STEPS[:3]] if moves.any() else []

    def _further(self, offers: Float[NDArray, " own"]) -> list[Float[NDArray, " own"]]:
        """One offer, or all, moved beside a price at which the market's order of merit changes.

        Profit jumps there and is monotone or smooth in between, so few prices have to be looked at.
        """
        found = self.second.clear(self.terms(offers))
        if found is None:
            return []
        others = np.setdiff1d(np.arange(self.case.n_generators), self.own)
        costs = [
            self.case.marginal_cost(at)[others] for at in (found.output, self.case.output_min, self.case.output_max)
        ]
        known = np.concatenate([*costs, found.price, offers, self.marginal])
        room = float(np.max(self.high - self.low))
        known = np.unique(np.round(known / (_APART * room)).astype(int)) * _APART * room
        levels = np.concatenate([known - _APART * room, known + _APART * room, np.linspace(0.0, 1.0, _SCANNED) * room])
        levels = np.unique(np.clip(levels, self.low.min(), self.high.max()))
        trials = [np.full(len(offers), level) for level in levels] if len(offers) > 1 else []
        for k in range(len(offers)):
            for level in levels:
                trial = offers.copy()
                trial[k] = level
                trials.append(trial)
        return trials

    def _plain(self, offers: Float[NDArray, " own"]) -> Float[NDArray, " own"]:
        """The same profit with as many offers at cost as possible: others are then no accident of the search."""
        best, value = offers, self.value(offers)
        for k in range(len(offers)):
            trial = best.copy()
            trial[k] = self.marginal[k]
            if self.value(trial) <= value + EXACT * (1.0 + abs(value)):
                best = trial
        return best

    def _answer(self, offers: Float[NDArray, " own"]) -> Answer:
        case, market = self.case, self.market
        self.share.value = (offers - self.low) / (self.high - self.low)
        second = self.second.clear(self.terms(offers))
        after = cleared_by_both(market, second)
        owned = lambda dispatch: float(dispatch.profit(self.own).sum())  # noqa: E731
        names = [
            f"generator {case.generator_number[place]} at bus {case.bus_number[case.generator_bus[place]]}"
            for place in self.own
        ]
        decisions = tuple(
            Decision(name, int(case.generator_number[place]), float(offer), float(cost), float(low), float(high))
            for name, place, offer, cost, low, high in zip(
                names, self.own, offers, self.marginal, self.low, self.high, strict=True
            )
        )
        return Answer(
            kind="bids",
            unit="per MWh",
            goal="profit of the producer",
            decisions=decisions,
            before=self.before,
            after=after,
            second=second,
            objective=owned(after),
            objective_before=owned(self.before),
            objective_second=-np.inf if second is None else owned(second),
            figures={
                "output of the producer, MW": float(after.output[self.own].sum()),
                "paid by consumers": after.payments,
            },
            price_range=self._price_ranges(offers, after),
            assumptions=(
                "the other generators offer their marginal cost; every generator is paid the price of its bus",
                f"offers up to {self.offer_cap:.6g} per MWh; above {self.price_cap:.6g} demand goes unserved",
                "the offer is one price for all of a generator's output",
            ),
        )

    def _price_ranges(self, offers: Float[NDArray, " own"], after: Dispatch) -> dict[str, tuple[float, float]]:
        """Where one MW more and one MW less are worth different prices: these are not unique."""
        found, moved = {}, 1e-4 * max(1.0, float(np.max(np.abs(self.case.demand))))
        for bus in np.unique(self.case.generator_bus[self.own]):
            ends = []
            for sign in (-1.0, 1.0):
                demand = self.case.demand.copy()
                demand[bus] += sign * moved
                other = SecondMarket(self.case.with_demand(demand)).clear(self.terms(offers))
                ends.append(np.nan if other is None else float(other.price[bus]))
            if abs(ends[1] - ends[0]) > 1e-4 * (1.0 + abs(float(after.price[bus]))):
                found[f"bus {self.case.bus_number[bus]}"] = (min(ends), max(ends))
        return found

    def _settings(self) -> dict[str, Any]:
        return {
            "generators": self.case.generator_number[self.own].tolist(),
            "offer_cap": self.offer_cap,
            "price_cap": self.price_cap,
            **self.options.described,
        }


def producer_revenue(market: Market, own: Int[NDArray, " own"]) -> cp.Expression:
    """What generators are paid, by what everybody else pays and earns; exact at the market's answers."""
    case, rules = market.case, market.constraints
    price = {name: dual(rule) for name, rule in rules.items()}
    pushed = case.susceptance * case.shift
    stuck = np.setdiff1d(np.arange(case.n_generators), market.free)
    taken = case.demand - case.at_bus[:, stuck] @ case.output_min[stuck] - case.incidence.T @ pushed
    revenue = taken @ price["balance"]
    if "forward" in rules:
        limited = market.limited
        capacity, push = case.capacity[limited], pushed[limited]
        revenue = revenue - (capacity + push) @ price["forward"] - (capacity - push) @ price["backward"]
    if "angle_max" in rules:
        revenue = revenue - case.angle_max[market.above] @ price["angle_max"]
    if "angle_min" in rules:
        revenue = revenue + case.angle_min[market.below] @ price["angle_min"]
    if market.shed is not None:
        revenue = revenue - market.price_cap * cp.sum(market.shed)
    others = np.flatnonzero(~np.isin(market.free, own))
    if not others.size:
        return revenue
    place, output = market.free[others], market.varying[others]
    revenue = revenue - case.output_max[place] @ price["most"][others]
    revenue = revenue + case.output_min[place] @ price["least"][others] - case.cost_linear[place] @ output
    if np.any(case.cost_square[place]):
        revenue = revenue - 2.0 * case.cost_square[place] @ cp.square(output)
    if "segments" in rules:
        revenue = revenue + market.segment_intercept @ price["segments"] - cp.sum(market.height)
    return revenue
