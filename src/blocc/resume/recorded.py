"""The monitor and the evaluator of a run that can be continued: wrappers that the outer methods know nothing of.

The evaluator answers out of a recording while it lasts, and adds to it what is new. The monitor tells the time of the
recording meanwhile, and reports nothing a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.flat_problem import FlatProblem
from blocc.inner.protocol import InnerOracle
from blocc.outer.evaluator import Evaluator
from blocc.outer.monitor import Monitor
from blocc.outer.recovery import Question
from blocc.penalty import Evaluation, cold_pair, evaluation_shapes
from blocc.result import HistoryRow
from blocc.resume.recording import CheckpointError, HistoryState, Recording
from blocc.resume.replay import compare_with_problem, is_sampled

T = TypeVar("T")
#: Of an evaluator: an answer restores them.
_COUNTS = ("inner_iterations", "derivatives", "fallbacks", "futile", "first", "replaced")


class RecordedMonitor(Monitor):
    """The monitor of a run that is recorded."""

    def __init__(self, recording: Recording, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.recording = recording
        self.started -= recording.earlier
        if self.time_limit is not None:  # the limit counts from now, the clock from the beginning
            self.time_limit += recording.earlier

    def elapsed(self) -> float:
        """Seconds since the start; while answers come out of the recording, those when they were found."""
        return self.recording.time if self.recording.replaying else super().elapsed()

    def announce(self, row: HistoryRow, x: NDArray) -> None:
        """Report an iteration that was not reported before."""
        if not self.recording.replaying:
            super().announce(row, x)

    def begin(self, name: str, state: T) -> T:
        """The state that was kept, with the history up to it; the given one where there is none."""
        kept = self.recording.kept(name, state)
        if kept is None:
            return state
        found, log = kept
        if any(len(row) != len(HistoryRow._fields) for row in log.rows):
            raise CheckpointError("the checkpoint does not fit this version of blocc: its history has other columns")
        self.rows = [HistoryRow(*row) for row in log.rows[: log.count]]
        self.iterations, self.stride, self.position = log.iterations, log.stride, log.position
        restored: T = found
        return restored

    def keep(self, name: str, state: Any) -> None:
        """Keep the state of a compiled loop, with the history so far."""
        log = HistoryState(self.rows, len(self.rows), self.iterations, self.stride, self.position)
        self.recording.keep(name, state, log)


class RecordedEvaluator(Evaluator):
    """An evaluator whose answers are recorded."""

    def __init__(
        self, recording: Recording, flat: FlatProblem, oracles: Sequence[InnerOracle], monitor: Monitor, seed: int = 0
    ) -> None:
        super().__init__(flat, oracles, monitor, seed)
        self.recording = recording
        self._name = recording.register(self)
        self._computing = False
        self._recalled = 0

    def compute(self, question: Question) -> Evaluation:
        """The recorded answer, or a new one, which is recorded."""
        x, gamma, leader, tolerance, sloped = question
        inputs = np.concatenate([x, [gamma, tolerance, sloped, leader.penalty], leader.multipliers]).astype(np.float64)
        if (answer := self.recording.recall(self._name, inputs)) is not None:
            found = self._unpacked(answer)
            self._recalled += 1
            if is_sampled(self._recalled) or not self.recording.replaying:
                compare_with_problem(self.flat, found, self._recalled)
            return found
        if not self._computing:
            self._restore_warm_starts()
        found = super().compute(question)
        self.recording.note(self._name, inputs, self._packed(found))
        return found

    def warm_leaves(self) -> list[np.ndarray] | None:
        """The warm starts as plain arrays: for each oracle, whether it has one, and its leaves.

        None before the first evaluation that was not recalled.
        """
        if not self._computing:
            return None
        found: list[np.ndarray] = []
        for oracle in self.oracles:
            warm = self.warm.get(oracle)
            found.append(np.asarray(warm is not None))
            found += jax.device_get(jax.tree.leaves(cold_pair(self.flat, oracle) if warm is None else warm))
        return found

    def _restore_warm_starts(self) -> None:
        self._computing = True
        if self.recording.earlier == 0.0:
            return
        like = [(np.asarray(True), cold_pair(self.flat, oracle)) for oracle in self.oracles]
        found = self.recording.warm(self._name, like)
        if found is not None:
            self.warm = {oracle: warm for oracle, (known, warm) in zip(self.oracles, found, strict=True) if known}

    def _unpacked(self, answer: Float[NDArray, " numbers"]) -> Evaluation:
        """An evaluation out of the recording, with the counts as they were after it."""
        shapes, structure = jax.tree.flatten(evaluation_shapes(self.flat, self.oracles[0]))
        wanted = len(_COUNTS) + sum(int(np.prod(leaf.shape, dtype=int)) for leaf in shapes)
        counts, start = answer[: len(_COUNTS)], len(_COUNTS)
        first = counts[_COUNTS.index("first")] if len(counts) == len(_COUNTS) else np.nan
        if answer.size != wanted or not np.isfinite(counts).all() or not 0 <= first < len(self.oracles):
            raise CheckpointError("the checkpoint does not fit this version of blocc: an evaluation has another form")
        for name, number in zip(_COUNTS, counts, strict=True):
            setattr(self, name, int(number))
        leaves = []
        for leaf in shapes:
            size = int(np.prod(leaf.shape, dtype=int))
            leaves.append(answer[start : start + size].reshape(leaf.shape).astype(leaf.dtype))
            start += size
        found: Evaluation = jax.tree.unflatten(structure, leaves)
        return found

    def _packed(self, found: Evaluation) -> Float[NDArray, " numbers"]:
        """The inverse of :meth:`_unpacked`: every number is exact as a float64."""
        counts = np.array([getattr(self, name) for name in _COUNTS], dtype=np.float64)
        leaves = jax.tree.leaves(found._replace(warm=()))
        return np.concatenate([counts, *(np.asarray(leaf, dtype=np.float64).ravel() for leaf in leaves)])


def make_monitor(recording: Recording, *given: Any, **named: Any) -> Monitor:
    """A monitor; the wrapped one where the run is recorded."""
    return RecordedMonitor(recording, *given, **named) if recording.active else Monitor(*given, **named)


def make_evaluator(
    recording: Recording, flat: FlatProblem, oracles: Sequence[InnerOracle], monitor: Monitor, seed: int = 0
) -> Evaluator:
    """An evaluator; the wrapped one where the run is recorded."""
    if recording.active:
        return RecordedEvaluator(recording, flat, oracles, monitor, seed)
    return Evaluator(flat, oracles, monitor, seed)
