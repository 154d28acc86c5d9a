"""A design as rows, one for each link and market, and as the series and matrices behind its charts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.transport.design.design_result import Design

LINK_FIELDS = ("from", "to", "capacity", "flow", "price", "utilisation", "time", "cost")
MARKET_FIELDS = (
    *("origin", "destination", "demand", "share", "served"),
    *("time", "alternative_time", "path_cost", "revenue", "revenue_per_passenger"),
)


def link_rows(design: Design) -> list[dict[str, Any]]:
    """Every candidate link; capacity 0 means that it is not built."""
    network, follower = design.network, design.follower
    columns = (design.capacity, follower.flow, follower.price, design.utilisation, network.time, network.cost)
    return network.link_rows(**dict(zip(LINK_FIELDS[2:], columns, strict=True)))


def market_rows(design: Design) -> list[dict[str, Any]]:
    """Every market; ``time`` is that of its passengers, ``revenue`` what all of them pay."""
    network, follower = design.network, design.follower
    served = network.demand * follower.share
    times = (follower.travel_time, network.alternative_time, follower.path_cost)
    columns = (network.demand, follower.share, served, *times, served * network.revenue, network.revenue)
    return network.market_rows(**dict(zip(MARKET_FIELDS[2:], columns, strict=True)))


def totals(design: Design) -> dict[str, float]:
    """Demand of all markets, and the part of it that travels on the new network."""
    demand = design.network.demand
    return {"demand": float(demand.sum()), "served": float(np.nansum(demand * design.follower.share))}


MOST_NODES = 100  # in a heat map: more could be told apart neither on paper nor on a screen
MOST_POINTS = 2000  # of a curve


class DemandMatrices(NamedTuple):
    """Demand and served demand, origin by destination; NaN where there is no market."""

    labels: list[str]
    demand: Float[NDArray, "shown shown"]
    served: Float[NDArray, "shown shown"]
    left_out: int  #: nodes with little demand that are not shown


def demand_matrices(design: Design) -> DemandMatrices:
    """Put the markets into two square tables over the nodes that have any."""
    network = design.network
    weight = np.zeros(network.n_nodes)
    np.add.at(weight, network.origin, network.demand)
    np.add.at(weight, network.destination, network.demand)
    used = np.union1d(network.origin, network.destination)
    shown = used if len(used) <= MOST_NODES else np.sort(used[np.argsort(-weight[used], kind="stable")[:MOST_NODES]])
    position = np.full(network.n_nodes, -1)
    position[shown] = np.arange(len(shown))
    row, column = position[network.origin], position[network.destination]
    kept = (row >= 0) & (column >= 0)
    demand = np.full((len(shown), len(shown)), np.nan)
    served = demand.copy()
    demand[row[kept], column[kept]] = network.demand[kept]
    served[row[kept], column[kept]] = (network.demand * design.follower.share)[kept]
    return DemandMatrices([network.labels[i] for i in shown], demand, served, len(used) - len(shown))


class Convergence(NamedTuple):
    """The operator's utility along the run, at both answers of the travellers."""

    evaluation: Float[NDArray, "points"]
    exact: Float[NDArray, "points"]  #: at yg
    penalised: Float[NDArray, "points"]  #: at yF
    gamma: Float[NDArray, "points"]
    stages: list[tuple[float, float]]  #: where each value of gamma begins, and that value


def convergence(design: Design) -> Convergence:
    """Utility by evaluation (by iteration where evaluations were not counted); long runs are thinned evenly."""
    history = design.history
    evaluation = np.asarray(history.evaluations, dtype=float)
    if not np.isfinite(evaluation).all() or (np.diff(evaluation) < 0).any():
        evaluation = np.arange(1.0, len(history) + 1.0)
    starts = np.flatnonzero(np.diff(history.gamma, prepend=np.nan) != 0) if len(history) else np.zeros(0, dtype=int)
    stages = [(float(evaluation[i]), float(history.gamma[i])) for i in starts]
    kept = np.unique(np.linspace(0, len(history) - 1, min(len(history), MOST_POINTS)).astype(int))
    return Convergence(
        evaluation[kept],
        -np.asarray(history.upper_value)[kept],
        -np.asarray(history.upper_value_penalty)[kept],
        np.asarray(history.gamma)[kept],
        stages,
    )


def labelled_stages(series: Convergence, room: float = 0.07) -> list[tuple[float, float]]:
    """The stages whose labels fit beside each other, the last one always among them."""
    if not series.stages:
        return []
    span = float(series.evaluation[-1] - series.evaluation[0]) or 1.0
    chosen = [series.stages[-1]]
    for stage in reversed(series.stages[:-1]):
        if chosen[-1][0] - stage[0] >= room * span:
            chosen.append(stage)
    return chosen[::-1]
