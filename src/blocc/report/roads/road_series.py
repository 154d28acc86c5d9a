"""The figures behind the maps and curves of roads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Float, Int, NDArray
from blocc.report.figure import BLUE, ORANGE
from blocc.roads.assign import RoadAssignment
from blocc.roads.demand_estimate import DemandEstimate
from blocc.roads.road_design import RoadDesign

#: Emptier links are blue, fuller ones orange.
DIFFERENCE_SCALE = (BLUE, "#8fc1de", "#e6e8ea", "#f3cf85", ORANGE)


class Colouring(NamedTuple):
    """What the colours of links on a map stand for."""

    title: str
    values: Float[NDArray, "links"]
    low: float
    high: float
    is_difference: bool = False


def colourings(answer: RoadDesign | RoadAssignment) -> list[Colouring]:
    """Volume over capacity: of an assignment; or before and after a design, in the same colours, and the difference."""
    if isinstance(answer, RoadAssignment):
        full = _filled(answer)
        return [Colouring("volume over capacity", full, 0.0, _largest(full))]
    before, after = _filled(answer.before), _filled(answer.after)
    high, change = _largest(np.concatenate((before, after))), after - before
    most = float(np.max(np.abs(change), initial=0.0)) or 1.0
    return [
        Colouring("volume over capacity before", before, 0.0, high),
        Colouring("volume over capacity after", after, 0.0, high),
        Colouring("difference (blue: emptier, orange: fuller)", change, -most, most, is_difference=True),
    ]


def _filled(assignment: RoadAssignment) -> Float[NDArray, "links"]:
    """How full links are; 0 where a connector has no capacity to fill."""
    return np.nan_to_num(assignment.volume_over_capacity, nan=0.0, posinf=0.0)


def _largest(values: Float[NDArray, "entries"]) -> float:
    """The end of the scale: one overloaded link among thousands shall not make all others pale."""
    return max(1.0, float(np.quantile(values, 0.995)))


class Convergence(NamedTuple):
    """A search, evaluation by evaluation."""

    evaluation: Int[NDArray, "steps"]
    gamma: Float[NDArray, "steps"]
    penalised: Float[NDArray, "steps"]  #: NaN where the value was exact
    exact: Float[NDArray, "steps"]  #: NaN where it was penalised
    best: Float[NDArray, "steps"]  #: least exact value so far
    starts: list[int]  #: where starts began, after the first
    shown: tuple[float, float]  #: the range of values that tells something


def convergence(answer: RoadDesign | DemandEstimate) -> Convergence:
    """The history of an answer as curves."""
    steps = answer.history
    gamma, value = np.array([step.gamma for step in steps]), np.array([step.value for step in steps])
    is_exact = np.isinf(gamma) if len(steps) else np.zeros(0, dtype=bool)
    exact = np.where(is_exact, value, np.nan)
    best = np.fmin.accumulate(exact) if len(steps) else exact
    start = np.array([step.start for step in steps])
    low = min([answer.objective, *([] if answer.bound is None else [answer.bound])])
    high = float(exact[0]) if len(steps) else answer.objective  # to change nothing
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return Convergence(
        evaluation=np.arange(1, len(steps) + 1),
        gamma=gamma,
        penalised=np.where(is_exact, np.nan, value),
        exact=exact,
        best=best,
        starts=[int(k) + 1 for k in np.flatnonzero(np.diff(start)) + 1] if len(steps) else [],
        shown=(low - room, high + room),
    )
