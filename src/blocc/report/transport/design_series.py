"""The series and matrices behind the charts of a design."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Bool, Float, NDArray
from blocc.report.format import number, percent
from blocc.transport.design.design_result import Design
from blocc.transport.design.documents import shown_answer

_LEAST_PRICE = 1e-6  # what is smaller is rounding


def clear_prices(design: Design) -> Float[NDArray, "links"]:
    """The prices as people see them: 0 where only rounding is left."""
    price = shown_answer(design).price
    return np.where(price < _LEAST_PRICE, 0.0, price)


class Colouring(NamedTuple):
    """What the colours of links on a map stand for."""

    title: str
    values: Float[NDArray, "links"]  #: of each link, over the largest; NaN where nothing is known
    largest: float
    is_cut: bool = False  #: whether a few values are larger than the scale

    def tick(self, part: float) -> str:
        """The words beside a part of the scale."""
        words = percent(part) if self.title == "capacity used" else number(part * self.largest, 3)
        return f"{words} or more" if self.is_cut and part == 1.0 else words


def colourings(design: Design) -> list[Colouring]:
    """What links may be coloured by, the most telling first.

    Where capacities just fit, every link is full, and colours would say nothing: then prices come first, or flows where
    no link has a price.
    """
    found, built = shown_answer(design), design.built
    used = Colouring("capacity used", found.utilisation, 1.0)
    price, flow = (_over_largest(title, part, built) for title, part in (("price", found.price), ("flow", found.flow)))
    if np.nanmin(found.utilisation, initial=1.0) < 0.98 or not np.isfinite(found.flow).any():
        return [used, flow, price]
    return [price, flow, used] if price.largest > 1e-4 * float(np.mean(design.network.time)) else [flow, price, used]


#: A scale ends where this part of the values does, if the largest is so many times as large.
_USUAL, _FAR = 0.95, 2.0


def _over_largest(title: str, values: Float[NDArray, "links"], built: Bool[NDArray, "links"]) -> Colouring:
    known = np.where(built, values, np.nan)
    largest = float(np.nanmax(known, initial=0.0))
    usual = float(np.nanquantile(known, _USUAL, method="lower")) if np.isfinite(known).any() else 0.0
    is_cut = largest > _FAR * usual > 0.0  # few links would leave one colour to all others
    top = usual if is_cut else largest
    return Colouring(title, np.minimum(known / (top or 1.0), 1.0), top, is_cut)


MOST_NODES = 100  # in a heat map: more could be told apart neither on paper nor on a screen
MOST_POINTS = 2000  # of a curve


class DemandMatrices(NamedTuple):
    """Demand and served demand, origin by destination; NaN where there is no market."""

    labels: list[str]
    demand: Float[NDArray, "shown shown"]
    served: Float[NDArray, "shown shown"]
    left_out: int  #: nodes with little demand that are not shown

    @property
    def titles(self) -> tuple[str, str]:
        """Words above the two tables."""
        served = np.nansum(self.served) if np.isfinite(self.served).any() else np.nan
        return f"Demand: {number(np.nansum(self.demand))}", f"Served by the new network: {number(served)}"


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
    served[row[kept], column[kept]] = (network.demand * shown_answer(design).share)[kept]
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
