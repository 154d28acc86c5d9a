"""Figures of a design that planners know: passengers, time saved, consumer surplus, revenue over cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from blocc._lib.arrays import Float, NDArray

if TYPE_CHECKING:
    from blocc.transport.design.design_result import Design


class Indicators(NamedTuple):
    """Sums over all markets, in one period of demand."""

    passengers: float  #: who travel on the new network
    passenger_time_saved: float  #: their time on the existing network less that on the new one, in units of time
    passenger_hours_saved: float  #: the same in hours; NaN where the unit of time is not known
    consumer_surplus: float  #: what the new network is worth to all travellers, in units of time
    revenue_cost_ratio: float  #: revenue over construction cost; NaN where nothing was paid for


def indicators(design: Design) -> Indicators:
    """The figures of a design, at the travellers' own answer."""
    network, follower = design.network, design.follower
    saved = float(np.sum(time_saved(design)))
    cost = follower.construction_cost
    return Indicators(
        passengers=float(network.demand @ follower.share),
        passenger_time_saved=saved,
        passenger_hours_saved=saved * network.units.hours,
        consumer_surplus=float(np.sum(consumer_surplus(design))),
        revenue_cost_ratio=follower.revenue / cost if cost > 0 else np.nan,
    )


def time_saved(design: Design) -> Float[NDArray, "markets"]:
    """What the passengers of each market save together; some choose the new network although it is slower."""
    network, follower = design.network, design.follower
    saved = network.demand * follower.share * (network.alternative_time - follower.travel_time)
    return np.where(np.isfinite(follower.travel_time), saved, 0.0)


def consumer_surplus(design: Design) -> Float[NDArray, "markets"]:
    """The logit's measure of what a market gains by having the choice: demand times ln(1 + exp(alternative - cost)).

    The cost is that of the cheapest path with prices: what a full link costs its passengers in waiting counts.
    """
    network = design.network
    return network.demand * np.logaddexp(0.0, network.alternative_time - design.follower.path_cost)
