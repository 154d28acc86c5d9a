"""From the end of a search to a result: the market by two solvers, status, sentence and certificate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.checks import as_number
from blocc._lib.rounding import EXACT
from blocc.errors import InputError, OptionError
from blocc.outer.monitor import StopReason, StopRequest
from blocc.power.case import PowerCase
from blocc.power.checks import AGREED, certificate_checks, relative
from blocc.power.dispatch import Dispatch
from blocc.power.market import Market
from blocc.power.power_design import Decision, PowerCertificate, PowerDesign
from blocc.power.search import Found
from blocc.power.unique_prices import SAME_PRICE, PriceGap, price_gap
from blocc.result import Status
from blocc.run.conclude import versions

_MOST_RANGES = 3  #: buses that are named
_STOPPED = {
    StopReason.TIME_LIMIT: (Status.TIME_LIMIT, "The time limit was reached; this is the best decision so far."),
    StopReason.INTERRUPTED: (Status.INTERRUPTED, "Interrupted; this is the best decision so far."),
    StopReason.CALLBACK: (Status.STOPPED, "Stopped; this is the best decision so far."),
}


class Answer(NamedTuple):
    """A decision with its markets."""

    kind: str
    unit: str
    goal: str
    decisions: tuple[Decision, ...]
    before: Dispatch
    after: Dispatch
    second: Dispatch | None  #: the same by the second solver
    objective: float
    objective_before: float
    objective_second: float
    figures: dict[str, float]
    price_range: dict[str, tuple[float, float]]
    assumptions: tuple[str, ...]
    violation: float = 0.0  #: of a limit of the leader's on the market's answer, relative
    elastic: tuple[int, ...] = ()  #: buses whose consumers buy less of what costs more


def price_limits(
    case: PowerCase, offer_cap: float | None, price_cap: float | None, offer_factor: float, cap_factor: float
) -> tuple[float, float]:
    """The highest offer and the highest price, filled in and checked."""
    offer = offer_factor * case.highest_marginal_cost if offer_cap is None else as_number("offer_cap", offer_cap)
    if not offer > 0.0:
        raise OptionError(f"offer_cap must be a positive number per MWh, got {offer:.6g}")
    price = cap_factor * offer if price_cap is None else as_number("price_cap", price_cap, positive=True)
    if not price > offer:
        raise OptionError(f"price_cap must be above offer_cap ({offer:.6g} per MWh), got {price:.6g}")
    return offer, price


def cleared_by_both(market: Market, second: Dispatch | None) -> Dispatch:
    """The market's answer in CVXPY; the second solver's where Clarabel finds none, which no certificate will accept."""
    try:
        return market.solve()
    except InputError:
        if second is None:
            raise
        return second


def same_value(market: Market, value_of: Callable[[Dispatch], float], other: float) -> bool:
    """Whether the market in CVXPY leads to the same value as the second solver."""
    try:
        return relative(value_of(market.solve()), other) <= AGREED
    except InputError:
        return False


def conclude(
    case: PowerCase,
    found: Found,
    decision: Float[NDArray, " n"],
    answer: Answer,
    request: StopRequest,
    settings: dict[str, Any],
) -> PowerDesign:
    """The result, judged by its certificate."""
    after, second, total = answer.after, answer.second, max(1.0, float(np.abs(answer.after.demand).sum()))
    low, high = (np.array([getattr(one, name) for one in answer.decisions]) for name in ("low", "high"))
    if after is second:  # nothing to compare
        second = None
    gap = None if second is None else price_gap(case, after, second, answer.elastic)
    outside = np.maximum(low - decision, decision - high) / np.maximum(high - low, 1e-12)
    certificate = PowerCertificate(
        balance=after.imbalance / total,
        limits=after.overload / total,
        market_difference=np.inf if second is None else relative(after.value, second.value),
        difference=np.inf if second is None else relative(answer.objective, answer.objective_second),
        gain_left=found.gain_left,
        violation=max(0.0, float(outside.max(initial=0.0)), answer.violation),
    )
    design = PowerDesign(
        case=case,
        kind=answer.kind,
        unit=answer.unit,
        decisions=answer.decisions,
        objective=answer.objective,
        objective_before=_without_dust(answer.objective_before, answer.before),
        goal=answer.goal,
        figures=answer.figures,
        before=answer.before,
        after=after,
        status=Status.STALLED,
        message="",
        certificate=certificate,
        starts=tuple(found.starts),
        history=tuple(found.history),
        evaluations=found.evaluations,
        cleared=found.cleared,
        seconds=request.elapsed(),
        price_range=answer.price_range | _ranges(case, after, second, gap),
        assumptions=answer.assumptions,
        settings=settings,
        versions=versions(),
    )
    status, message = _judged(design, found, gap)
    object.__setattr__(design, "status", status)
    object.__setattr__(design, "message", message + found.remark)
    return design


def _without_dust(value: float, dispatch: Dispatch) -> float:
    """Zero where a profit is a billionth of what consumers pay."""
    return 0.0 if abs(value) <= EXACT * abs(dispatch.payments) else value


def _ranges(
    case: PowerCase, one: Dispatch, other: Dispatch | None, gap: PriceGap | None
) -> dict[str, tuple[float, float]]:
    """Prices that two solvers name differently, where both are right: the buses where they differ most."""
    if other is None or gap is None or relative(one.value, other.value) > AGREED:
        return {}
    apart = np.abs(one.price - other.price) * ~gap.unique
    order = np.argsort(-apart, kind="stable")[:_MOST_RANGES]
    return {
        f"bus {case.bus_number[k]}": (
            float(min(one.price[k], other.price[k])),
            float(max(one.price[k], other.price[k])),
        )
        for k in order
        if apart[k] > SAME_PRICE * gap.size
    }


def _judged(design: PowerDesign, found: Found, gap: PriceGap | None) -> tuple[Status, str]:
    if found.stopped is not None:
        return _STOPPED[found.stopped]
    failed = [check.name for check in certificate_checks(design) if not check.passed]
    failed += ["prices: two solvers"] * (gap is not None and not gap.agrees)
    ranges = "".join(
        f" The price at {name} is not unique: between {low:.6g} and {high:.6g}."
        for name, (low, high) in design.price_range.items()
    )
    if failed:
        return Status.STALLED, f"Not certified: {'; '.join(failed)}.{ranges}"
    return Status.CONVERGED, f"No decision around this one is better, and two solvers agree on the market.{ranges}"
