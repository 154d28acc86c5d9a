"""A leader whose evaluations are recorded, so that a run about roads can be continued after a break.

A search is a function of what it is told: given the same values and slopes it asks the same questions. A continued run
is answered out of the recording until that ends, and goes on from the paths that drivers used then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.networks.columns import Columns
from blocc.resume.fingerprint import Fingerprint, fingerprint_of_arrays
from blocc.resume.recording import CheckpointError, Recording
from blocc.roads.descents import Budget
from blocc.roads.equilibrium import Equilibrium, PathFlows
from blocc.roads.leader import GAP, Leader, Reached
from blocc.roads.question import Question

_NETWORK = ("tail", "head", "capacity", "free_flow_time", "b", "power", "toll", "origin", "destination", "demand")
#: Whose warm starts a checkpoint of a run about roads holds.
_OWNER = "leader"
#: In place of an answer that was recalled: only the best one is ever asked for, and assigned once more.
_NOT_KEPT = Equilibrium(*(np.zeros(0),) * 3, np.inf, np.inf, 0, None, ())  # type: ignore[arg-type]


def question_fingerprint(question: Question, budget: Budget | None) -> Fingerprint:
    """By what a question is recognised: the figures of its network and its own."""
    own = {name: value for name, value in vars(question).items() if isinstance(value, np.ndarray)}
    limit = {} if budget is None else {"budget": np.array([budget.limit])}
    figures = {name: getattr(question.network, name) for name in (*_NETWORK, "through")}
    return fingerprint_of_arrays(figures | own | limit)


@dataclass
class RecordedLeader(Leader):
    """A leader that asks the recording first, and writes down what is new."""

    recording: Recording = field(default_factory=Recording)
    is_closing: bool = False  #: what follows belongs to no later run: nothing is written down

    def __post_init__(self) -> None:
        self._is_computing = self._is_within = False  #: within an evaluation that is written down as a whole

    def penalty_at(self, x: Float[NDArray, "n"], gamma: float) -> tuple[float, Float[NDArray, "n"]]:
        """F_gamma and its gradient."""
        found = self._recall("penalty", x, gamma)
        if found is None:
            value, slope = self._compute(super().penalty_at, x, gamma)
            self._note("penalty", x, gamma, value, slope)
            return value, slope
        return float(found[0]), found[1:]

    def exact_at(self, x: Float[NDArray, "n"], gap: float) -> Reached:
        """f(x, flows(x)) and its derivative."""
        found = self._recall("exact", x, gap)
        if found is None:
            self._is_within = True
            try:
                reached = self._compute(super().exact_at, x, gap)
            finally:
                self._is_within = False
            self._note("exact", x, gap, reached.value, reached.slope)
            return reached
        return Reached(x.copy(), float(found[0]), found[1:], _NOT_KEPT)

    def value_at(self, x: Float[NDArray, "n"], gap: float) -> Reached:
        """f(x, flows(x)) alone."""
        found = self._recall("value", x, gap) if not self._is_within else None
        if found is None:
            reached = self._compute(super().value_at, x, gap)
            if not self._is_within:
                self._note("value", x, gap, reached.value, np.zeros(0))
            return reached
        return Reached(x.copy(), float(found[0]), np.full(len(x), np.nan), _NOT_KEPT)

    def with_slope(self, reached: Reached) -> Reached:
        """The same with its derivative."""
        if not np.isnan(reached.slope).any():
            return reached
        found = self._recall("slope", reached.x, reached.value) if not self._is_within else None
        if found is None:
            sloped = super().with_slope(self.answered(reached, GAP))
            if not self._is_within:
                self._note("slope", reached.x, reached.value, reached.value, sloped.slope)
            return sloped
        return reached._replace(slope=found[1:])

    def bent_at(self, x: Float[NDArray, "n"], gamma: float) -> tuple[Reached, Float[NDArray, "n n"]]:
        """A value with slope and second derivatives, of which one half is kept."""
        found, n = self._recall("bent", x, gamma), len(x)
        half = np.tril_indices(n)
        if found is None:
            reached, curvature = self._compute(super().bent_at, x, gamma)
            self._note("bent", x, gamma, reached.value, np.append(reached.slope, curvature[half]))
            return reached, curvature
        curvature = np.zeros((n, n))
        curvature[half] = found[1 + n :]
        curvature.T[half] = found[1 + n :]
        return Reached(x.copy(), float(found[0]), found[1 : 1 + n], _NOT_KEPT), curvature

    def bound(self, x: Float[NDArray, "n"], budget: Budget | None) -> float:
        """A value that no decision has less than."""
        found = self._recall("bound", x, 0.0)
        if found is None:
            value = self._compute(super().bound, x, budget)
            self._note("bound", x, 0.0, value, np.zeros(0))
            return value
        return float(found[0])

    def answered(self, reached: Reached, gap: float) -> Reached:
        """The same with the drivers' answer, where that was not kept."""
        if reached.answer is not _NOT_KEPT:
            return reached
        return reached._replace(answer=self._compute(self.answer, reached.x, gap))

    # --- the recording ------------------------------------------------------------------------------------------
    def _recall(self, label: str, x: Float[NDArray, "n"], number: float) -> Float[NDArray, "numbers"] | None:
        if self.is_closing:
            return None
        found = self.recording.recall(label, np.append(x, number))
        n = len(x)
        size = 1 + {"bound": 0, "value": 0, "bent": n + n * (n + 1) // 2}.get(label, n)
        if found is not None and found.size != size:
            raise CheckpointError("the checkpoint does not fit this version of blocc: an evaluation has another form")
        return found

    def _compute(self, function: Callable[..., Any], *given: Any) -> Any:
        if not self._is_computing:
            self._is_computing = True
            if (leaves := self.recording.recorded.warm.get(_OWNER)) is not None:
                self.follower, self.penalised = (self._paths(leaves[k : k + 4]) for k in (0, 4))
        return function(*given)

    def _note(self, label: str, x: Float[NDArray, "n"], number: float, value: float, slope: NDArray) -> None:
        """Write down an answer, and the paths in use after it."""
        if self.is_closing or self.recording.full:
            return
        leaves: list[np.ndarray] = []
        for paths in (self.follower, self.penalised):
            if paths is None:
                leaves += [np.zeros(0)] * 4
            else:
                leaves += [paths.columns.market, paths.columns.first, paths.columns.links, paths.flow]
        self.recording.recorded.warm[_OWNER] = leaves
        self.recording.note(label, np.append(x, number), np.append(value, slope))

    def _paths(self, leaves: list[np.ndarray]) -> PathFlows | None:
        market, first, links, flow = leaves
        if not len(flow):
            return None
        network = self.question.network
        fits = (
            all(part.dtype.kind == "i" for part in (market, first, links))
            and (len(market), len(first), int(first[-1])) == (len(flow), len(flow) + 1, len(links))
            and bool((np.diff(market) >= 0).all() and (np.diff(first) >= 0).all() and first[0] == 0)
            and 0 <= int(links.min()) <= int(links.max()) < network.n_links
            and 0 <= int(market[0]) <= int(market[-1]) < network.n_pairs
        )
        if not fits:
            raise CheckpointError("the checkpoint does not fit this network: its paths have another form")
        return PathFlows(Columns(market, first, links, network.n_pairs, network.n_links), flow)
