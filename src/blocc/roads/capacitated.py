"""Assignment under hard capacities: where volumes may not exceed a limit, drivers queue, and the queue is a price.

The multipliers of volume <= limit are waiting times. An augmented Lagrangian adds max(0, price + stiffness (v - limit))
to the cost of each link, which the same engine assigns; prices settle in a few rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.rounding import TINY
from blocc.networks.shortest_paths import Streets, shortest_trees
from blocc.roads.equilibrium import Equilibrium, Pairs, PathFlows, assign_paths
from blocc.roads.link_costs import LinkCosts

ROUNDS = 60
#: How much stiffer than at first a link may become: beyond, rounding decides.
STIFFEST = 1e5
#: Relative margin of a proof that limits cannot be kept, far above rounding.
MARGIN = 1e-9


class Queued(NamedTuple):
    """An equilibrium with queues."""

    equilibrium: Equilibrium  #: its costs include the waiting times
    price: Float[NDArray, "links"]  #: waiting time before each link
    violation: float  #: largest excess over a limit, relative to it
    complementarity: float  #: largest waiting time where there is room, relative to the link's or a trip's cost
    is_impossible: bool  #: whether it is proven that no flows keep the limits


def assign_capacitated(
    streets: Streets,
    pairs: Pairs,
    costs: LinkCosts,
    limit: Float[NDArray, "links"],
    *,
    gap: float,
    accuracy: float = 1e-9,
    warm: PathFlows | None = None,
    price: Float[NDArray, "links"] | None = None,
    stop: Callable[[int, float], bool] = lambda iteration, gap: False,
) -> Queued:
    """Flows at which no driver has a cheaper path, waiting included, and no limit is exceeded.

    :param limit: of each link; infinite where there is none
    :param price: waiting times of a nearby problem, to begin with
    """
    limited = np.isfinite(limit)
    price = np.zeros(len(limit)) if price is None else price.copy()
    most, room = np.where(limited, limit, 0.0), np.where(limited, np.maximum(limit, TINY), 1.0)
    scale = _scale(streets, pairs, costs, limit)
    stiffness = np.where(limited, scale / room, 0.0)
    stiffest = STIFFEST * stiffness
    worst, proven = np.inf, False
    for round_ in range(ROUNDS):
        offset = np.where(limited, price - stiffness * most, 0.0)
        found = assign_paths(
            streets, pairs, costs._replace(offset=offset, stiffness=stiffness), gap=gap, warm=warm, stop=stop
        )
        warm = found.paths
        renewed = np.where(limited, np.maximum(0.0, offset + stiffness * found.volume), 0.0)
        over = np.where(limited, (found.volume - most) / room, -np.inf)
        violation = max(0.0, float(np.max(over, initial=0.0)))
        slack = np.where(limited, np.minimum(renewed / scale, np.maximum(-over, 0.0)), 0.0)
        complementarity = float(np.max(slack, initial=0.0))
        price = renewed
        if max(violation, complementarity) <= accuracy or stop(round_, found.relative_gap):
            break
        # Where the limits cannot be kept, the excess tends to the least one, and its slopes to a proof.
        proven = any(
            refuted(streets, pairs, limit, w) for w in (stiffness * np.maximum(found.volume - most, 0.0), price)
        )
        if proven:
            break
        if max(violation, complementarity) > 0.2 * worst:
            stiffness = np.minimum(4.0 * stiffness, stiffest)
        worst = max(violation, complementarity)
    return Queued(found, price, violation, complementarity, proven)


def refuted(streets: Streets, pairs: Pairs, limit: Float[NDArray, "links"], weight: Float[NDArray, "links"]) -> bool:
    """Whether these weights prove that no flows keep the limits.

    Flows within the limits weigh at most ``weight @ limit``, and no flows weigh less than all trips on their lightest
    paths. By the duality of linear programs some weights prove it wherever it is true.
    """
    weight = np.where(np.isfinite(limit), weight, 0.0)
    if not (weight > 0.0).any():
        return False
    weight = weight / weight.max()
    least = shortest_trees(streets, weight).cost[pairs.row, pairs.destination]
    most = float(weight @ np.where(np.isfinite(limit), limit, 0.0))
    return float(pairs.demand @ least) > (1.0 + MARGIN) * most


def _scale(streets: Streets, pairs: Pairs, costs: LinkCosts, limit: Float[NDArray, "links"]) -> Float[NDArray, "links"]:
    """What a wait before each link is compared with: the link's cost when full, or a part of a typical trip's cost.

    A link that costs nothing has queues like any other: what they are worth depends on the ways round it.
    """
    full = costs.at(np.minimum(limit, pairs.demand.sum()))
    trips = shortest_trees(streets, full).cost[pairs.row, pairs.destination]
    typical = float(pairs.demand @ trips) / max(float(pairs.demand.sum()), TINY)
    return np.maximum(full, 0.1 * typical if typical > 0.0 else 1.0)
