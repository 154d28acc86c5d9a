"""Assignment under hard capacities: where volumes may not exceed a limit, drivers queue, and the queue is a price.

The multipliers of volume <= limit are waiting times. An augmented Lagrangian adds max(0, price + stiffness (v - limit))
to the cost of each link, which the same engine assigns; prices settle in a few rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.roads.equilibrium import Equilibrium, Pairs, PathFlows, assign_paths
from blocc.roads.link_costs import LinkCosts
from blocc.transport.travellers.shortest_paths import Streets

ROUNDS = 60


class Queued(NamedTuple):
    """An equilibrium with queues."""

    equilibrium: Equilibrium  #: its costs include the waiting times
    price: Float[NDArray, "links"]  #: waiting time before each link
    violation: float  #: largest excess over a limit, relative to it
    complementarity: float  #: largest waiting time where there is room, relative to the link's cost


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
    scale = np.maximum(costs.at(np.where(limited, limit, 0.0)), 1e-12)
    stiffness = np.where(limited, scale / np.maximum(np.where(limited, limit, 1.0), 1e-12), 0.0)
    worst = np.inf
    for round_ in range(ROUNDS):
        offset = np.where(limited, price - stiffness * np.where(limited, limit, 0.0), 0.0)
        found = assign_paths(
            streets, pairs, costs._replace(offset=offset, stiffness=stiffness), gap=gap, warm=warm, stop=stop
        )
        warm = found.paths
        renewed = np.where(limited, np.maximum(0.0, offset + stiffness * found.volume), 0.0)
        over = np.where(limited, (found.volume - limit) / np.maximum(limit, 1e-12), -np.inf)
        violation = max(0.0, float(np.max(over, initial=0.0)))
        slack = np.where(limited, np.minimum(renewed / scale, np.maximum(-over, 0.0)), 0.0)
        complementarity = float(np.max(slack, initial=0.0))
        price = renewed
        if max(violation, complementarity) <= accuracy or stop(round_, found.relative_gap):
            break
        if max(violation, complementarity) > 0.2 * worst:
            stiffness = 4.0 * stiffness
        worst = max(violation, complementarity)
    return Queued(found, price, violation, complementarity)
