"""Where a search for a design stands between two of its stages, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from blocc._lib.arrays import Bool, Float, NDArray
from blocc.transport.design.all_or_nothing import Load, nothing
from blocc.transport.design.capacity_set import CapacitySet
from blocc.transport.design.design_result import WhatIf
from blocc.transport.design.limited_prices import LimitMultipliers
from blocc.transport.design.model import CapacityPenalty


@dataclass
class SearchState:
    """Where a search stands between two stages."""

    is_open: Bool[NDArray, "links"]  #: links that the descent in prices may use
    first_prices: Float[NDArray, "links"]  #: where it began
    early_prices: Float[NDArray, "links"]  #: of the first polishing, before the limits are drawn in
    early_open: Bool[NDArray, "links"]
    prices: Float[NDArray, "links"]
    multipliers: LimitMultipliers  #: of the limits, at these prices
    flow: Float[NDArray, "links"]  #: the follower's, at these prices; later the capacities
    penalised_flow: Float[NDArray, "links"]
    provisional: Float[NDArray, "links"]  #: the best capacities of the descent in prices, without an exact answer
    widest: Float[NDArray, "links"]  #: the flows of the design without limits
    best: Float[NDArray, "links"]  #: the best capacities so far, judged by exact answers of the travellers
    known: Load  #: the best of the sharp flows that were looked at
    score: float = -np.inf  #: of the best capacities
    solution: CapacityPenalty | None = None  #: both answers at the best capacities, as they were judged
    provisional_utility: float = -np.inf
    looked_at: tuple[float, float] = (0.0, -np.inf)  #: gamma, and the largest utility promised, when that was last done
    evaluations: int = 0
    stage: int = 0  #: stages done
    what_if: list[WhatIf] = field(default_factory=list)
    seconds: float = 0.0  #: spent so far, without compiling

    @classmethod
    def initial(cls, limits: CapacitySet) -> SearchState:
        """Nothing found yet."""
        zero = np.zeros(limits.size)
        multipliers = LimitMultipliers.none(limits.size)
        allowed = limits.limit > 0.0
        return cls(
            is_open=allowed,
            first_prices=zero,
            early_prices=zero,
            early_open=allowed,
            prices=zero,
            multipliers=multipliers,
            flow=zero,
            penalised_flow=zero,
            provisional=limits.least,
            widest=zero,
            best=limits.least,
            known=nothing(limits),
        )
