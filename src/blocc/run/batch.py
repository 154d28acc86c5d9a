"""Many starts: one compiled batch as far as it goes, and every start that it leaves unfinished on its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np

from blocc.multi_result import MultiResult
from blocc.outer import continuation, many_starts
from blocc.outer.monitor import Stop, StopReason
from blocc.outer.tolerances import Endpoint
from blocc.penalty import Evaluation, Leader, no_leader
from blocc.result import Result
from blocc.run import conclude
from blocc.run.single import Run, reason_of


class BatchRun(Run):
    """A run from many starts; where each ended is in ``ends``."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.ends: list[Endpoint] = []
        self._minimal: set[tuple[bytes, float]] = set()  #: ends beside which no lower point was found

    def many(self, points: np.ndarray) -> MultiResult:
        """Solve from every row of ``points``, in one batch as far as it goes."""
        leader = jax.device_get(no_leader(self.problem.flat))
        try:
            ends, evaluations, stopped = self._batch(points, leader)
        except (Stop, KeyboardInterrupt) as stop:  # before the first round was over
            reason = reason_of(stop)
            results = tuple(self._lane(self.stopped(reason, None, x, leader, best_of_all=False)) for x in points)
            return MultiResult(results, self.seconds())
        if stopped is not None:
            self.recording.close()
        finish = self._finish if stopped is None else partial(self._finish_stopped, stopped)
        seconds = {name: value / len(points) for name, value in self.seconds().items()}
        results = tuple(self._lane(finish(end, x, leader)) for end, x in zip(ends, points, strict=True))
        # What the batch did together is shared out; starts that were finished alone have figures of their own.
        results = tuple(
            r if r.seconds else replace(r, seconds=seconds, counts={**r.counts, "evaluations": int(n)})
            for r, n in zip(results, evaluations, strict=True)
        )
        return MultiResult(results, self.seconds())

    def _lane(self, result: Result) -> Result:
        """Remember where the start of this result ended."""
        assert self.end is not None
        self.ends.append(self.end)
        return result

    def _alone(self, x: np.ndarray) -> Result:
        """A start that the batch could not begin."""
        other = self._again()
        result = other.single(x)
        self.end = other.end
        return result

    def _batch(self, points: np.ndarray, leader: Leader) -> tuple[list[Endpoint], Sequence[int], StopReason | None]:
        if self.options.outer == "pgd":
            return *self.published(points, leader), None
        fixed = None if isinstance(self.options.gamma, str) else float(self.options.gamma)
        first = 1.0
        if fixed is None:
            candidates = [self.first_evaluation(x, leader) for x in points[:: max(1, len(points) // 3)][:3]]
            usable = [e for e in candidates if e.usable]
            first = max([float(e.gamma) for e in usable], default=1.0)
            self.tolerances = replace(
                self.tolerances, origin=float(np.median([e.upper_value for e in usable])) if usable else 0.0
            )
        found = many_starts.minimise(
            self.problem.flat,
            self.evaluator.oracles[0],
            self.monitor,
            points,
            self.tolerances,
            gamma=fixed,
            first_gamma=first,
        )
        self.evaluator.evaluations += int(found.evaluations.sum())
        return found.ends, found.evaluations.tolist(), found.stopped

    def _finish_stopped(self, reason: StopReason, end: Endpoint, x: np.ndarray, leader: Leader) -> Result:
        """A lane of a batch that was stopped: finished ones are judged, the others say why they are not."""
        done = bool(end.evaluation.usable) and self.tolerances.stationary(end) and self.tolerances.exact(end.evaluation)
        status, message = self.status_at(end) if done else conclude.STOPPED[reason]
        return replace(self.conclude_at(end, status, message), seconds={})

    def _finish(self, end: Endpoint, x: np.ndarray, leader: Leader) -> Result:
        """Turn one lane of the batch into a result; what the batch left undone is finished alone."""
        evaluation = end.evaluation
        settled = bool(evaluation.usable) and self.tolerances.stationary(end)
        fixed = not isinstance(self.options.gamma, str)
        if self.options.outer == "pgd":
            return replace(self.conclude_at(end, *self.status_at(end)), seconds={})
        if not evaluation.usable:
            return self._alone(x)
        try:
            if settled and (fixed or self.tolerances.exact(evaluation)):
                lower = self._escape(end, leader)
                if lower is None:
                    return replace(self.conclude_at(end, *self.status_at(end)), seconds={})
                evaluation = lower
            last, _ = continuation.minimise(self.evaluator, evaluation, leader, self.tolerances, fixed_gamma=fixed)
        except (Stop, KeyboardInterrupt) as stop:
            self.recording.close()
            return self._finish_stopped(reason_of(stop), end, x, leader)
        return replace(self.conclude_at(last, *self.status_at(last)), seconds={})

    def _escape(self, end: Endpoint, leader: Leader) -> Evaluation | None:
        """A lower point next to the end of a lane; starts that ended in the same place are probed once."""
        e = end.evaluation
        size = 1e-4 * (1.0 + float(np.max(np.abs(e.x), initial=0.0)))
        key = (np.round(e.x / size).tobytes(), float(e.gamma))
        if key in self._minimal:
            return None
        lower = continuation.leave(self.evaluator, end, leader, self.tolerances)
        if lower is None:
            self._minimal.add(key)
        return lower

    def _again(self) -> Run:
        """A fresh run of the same settings, on the same compiled functions and the same clock."""
        other = Run(self.problem, self.options, self.monitor.callback, self.monitor.report, self.recording)
        other.monitor.started, other.monitor.request = self.monitor.started, self.monitor.request
        return other
