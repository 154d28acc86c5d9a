"""The numbers behind the charts of pictures and page alike: demand by pair of nodes, utility by evaluation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.transport.design.design_result import Design

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
