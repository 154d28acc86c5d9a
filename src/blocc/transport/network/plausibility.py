"""Is a network worth a design? What can be said before any work, in sentences that name the figures."""

from __future__ import annotations

import numpy as np

from blocc._lib.rounding import TINY
from blocc.transport.network.network import TransportNetwork

#: Where even without queues no market sends this part of its demand, nobody will come.
FEW = 1e-3


def doubts(network: TransportNetwork) -> list[str]:
    """Why no design of this network can earn anything; empty where one may.

    A passenger takes up a unit of capacity on every link of some path, so no market earns more than its revenue less
    the construction cost of its cheapest path. And without queues a share 1 / (1 + exp(time - alternative)) comes.
    """
    free = np.where(network.existing_capacity > 0, 0.0, network.cost)
    path_cost = network.path_costs(free)
    asked = (network.demand > 0) & (network.revenue > 0)
    if not asked.any():
        return ["No market brings any revenue: all demand or all revenue is 0."]
    lines = []
    best = int(np.argmax(np.where(asked, network.revenue / np.maximum(path_cost, TINY), -1.0)))
    if asked[best] and network.revenue[best] <= path_cost[best]:
        lines.append(
            f"No market can pay for any path: {_market(network, best)} comes closest, with a revenue of "
            f"{network.revenue[best]:.4g} a passenger where a unit of capacity on its cheapest path costs "
            f"{path_cost[best]:.4g}. Revenue is too low or cost too high by a factor of "
            f"{path_cost[best] / network.revenue[best]:.3g} at least."
        )
    margin = network.alternative_time - network.free_flow_times
    likely = int(np.argmax(np.where(asked, margin, -np.inf)))
    share = 1.0 / (1.0 + np.exp(np.clip(-margin[likely], -700.0, 700.0)))
    if share < FEW:
        lines.append(
            f"Nobody would come: on {_market(network, likely)}, the most willing, the new network takes "
            f"{network.free_flow_times[likely]:.4g} and the existing one {network.alternative_time[likely]:.4g}, which "
            f"brings {share:.1g} of the demand. Times are disutilities; alternative_time or time_factor is off."
        )
    return lines


def _market(network: TransportNetwork, market: int) -> str:
    return f"{network.labels[network.origin[market]]} to {network.labels[network.destination[market]]}"
