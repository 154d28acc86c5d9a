"""Many starts: one compiled batch as far as it goes, and every start that it leaves unfinished on its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np

from blocc.inner.choice import choose_oracles
from blocc.multi_result import near
from blocc.outer import continuation, many_starts
from blocc.outer.monitor import Stop, StopReason
from blocc.outer.tolerances import Endpoint
from blocc.penalty import Evaluation, UpperMultipliers, no_upper_multipliers
from blocc.reformulate.units import first_units
from blocc.result import Result
from blocc.run import conclude
from blocc.run.driver import Driver
from blocc.run.incumbent import Seen
from blocc.run.phase import ENDED, Phase
from blocc.run.single import Run, reason_of

#: Starts of a batch that was stopped whose certificates are measured: the best ones, because the time is over.
_MEASURED = 16
_TOGETHER = 15  #: variables and rows of a follower up to which starts descend together on a CPU


class BatchRun(Run):
    """A run from many starts; where each ended is in ``ends``."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.ends: list[Endpoint] = []
        self.lows: list[list[Evaluation]] = []  #: for every start the best points that its descent has seen
        self.same: list[int] = []  #: for every start the first one that ended where it did

    def many(self, points: np.ndarray) -> list[Result]:
        """Solve from every row of ``points``, in one batch as far as it goes.

        :raises Stop: where the run is stopped before the batch has begun
        """
        leader = no_upper_multipliers(self.problem.flat)
        ends, evaluations, stopped = self._batch(points, leader)
        if stopped is not None:
            self.recording.close()
        finish = self._finish if stopped is None else partial(self._finish_stopped, stopped)
        seconds = {name: value / len(points) for name, value in self.seconds().items()}
        self.same = self._places(ends) if stopped is None else list(range(len(ends)))
        results: list[Result] = []
        for index, (end, x) in enumerate(zip(ends, points, strict=True)):
            first, self.monitor.lows = self.same[index], self.lows[index]
            if first == index or self.options.outer == "pgd":  # published answers are where their steps ended
                result = finish(end, x, leader)
                assert self.end is not None
                self.ends.append(self.end)
                self.lows[index] = self.monitor.lows
            else:
                result = replace(results[first], seconds={})
                self.ends.append(self.ends[first])
            # What the batch did together is shared out; starts that were finished alone have figures of their own.
            counts = {**result.counts, "evaluations": int(evaluations[index])}
            results.append(result if result.seconds else replace(result, seconds=seconds, counts=counts))
        return results

    def _places(self, ends: list[Endpoint]) -> list[int]:
        """For every lane the first one that ended where it did, both of them finished."""
        same: list[int] = []
        firsts: list[int] = []
        for index, end in enumerate(ends):
            done = self._done(end)
            at = (other for other in firsts if near(np.asarray(end.evaluation.x), np.asarray(ends[other].evaluation.x)))
            same.append(next(at, index) if done else index)
            firsts += [index] if done and same[index] == index else []
        return same

    def _done(self, end: Endpoint) -> bool:
        """Whether a lane has nothing left to do for its gamma, or for a growing one."""
        fixed = not isinstance(self.options.gamma, str)
        usable = bool(end.evaluation.usable) and self.tolerances.stationary(end)
        return usable and (fixed or self.tolerances.exact(end.evaluation))

    def _alone(self, x: np.ndarray) -> Result:
        """A start that the batch could not begin."""
        other = self._again()
        result = other.single(x)
        self.end, self.monitor.lows = other.end, other.monitor.lows
        return result

    def _batch(
        self, points: np.ndarray, leader: UpperMultipliers
    ) -> tuple[list[Endpoint], Sequence[int], StopReason | None]:
        self.lows = [[] for _ in points]
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
        self.lows = [
            [low, end.evaluation] if low.usable else [] for low, end in zip(found.lows, found.ends, strict=True)
        ]
        return found.ends, found.evaluations.tolist(), found.stopped

    def _finish_stopped(self, reason: StopReason, end: Endpoint, x: np.ndarray, leader: UpperMultipliers) -> Result:
        """A lane of a batch that was stopped, at the best point that it has seen: there is no time left to judge it."""
        best = min(self.monitor.lows, key=lambda low: low.upper_value, default=end.evaluation)
        end = end if best is end.evaluation else Endpoint(best, np.inf, 0.0)
        return replace(self.conclude_at(end, *conclude.stopped(reason, self.monitor)), seconds={})

    def _finish(self, end: Endpoint, x: np.ndarray, leader: UpperMultipliers) -> Result:
        """Turn one lane of the batch into a result; what the batch left undone is finished alone."""
        evaluation = end.evaluation
        fixed = not isinstance(self.options.gamma, str)
        if self.options.outer == "pgd":
            return replace(self.conclude_at(end, *self.status_at(end)), seconds={})
        if not evaluation.usable:
            return self._alone(x)
        if self._done(end):
            return replace(self.conclude_at(end, *self.status_at(end)), seconds={})
        try:
            last, _ = continuation.minimise(self.evaluator, evaluation, leader, self.tolerances, fixed_gamma=fixed)
        except (Stop, KeyboardInterrupt) as stop:
            self.recording.close()
            return self._finish_stopped(reason_of(stop), end, x, leader)
        return replace(self.conclude_at(last, *self.status_at(last)), seconds={})

    def _again(self) -> Run:
        """A fresh run of the same settings, on the same compiled functions and the same clock."""
        other = Run(self.problem, self.options, self.monitor.callback, self.monitor.report, self.recording)
        other.monitor.started, other.monitor.request = self.monitor.started, self.monitor.request
        return other


def batches(driver: Driver) -> bool:
    """Whether many starts can descend in one compiled loop."""
    if driver.options.outer == "pgd":
        return True
    # Otherwise every start has multipliers of its own, or a follower so large that it fills the machine.
    large = driver.automatic and choose_oracles(driver.problem, driver.options.inner)[0].differentiates
    # In one loop all starts wait for the one with most inner steps, and XLA factors their matrices one by one: on a
    # CPU an evaluation of 27 variables and 12 rows took up to 14 times as long as the same one start after another.
    size = driver.flat.n_y + sum(driver.flat.follower_rows)
    waits = driver.automatic and jax.default_backend() == "cpu" and size > _TOGETHER
    return not (driver.flat.n_upper_inequality or large or waits)


def many(driver: Driver, points: np.ndarray) -> tuple[list[Result], list[int]]:
    """From many starts in one batch; the results, and which of them another descent may improve."""
    units = first_units(driver.problem, points.mean(axis=0)) if driver.automatic else None
    run, scaling = driver.begin(BatchRun, units)
    found = run.many(points if scaling is None else scaling.inward(points))
    results: list[Result] = []
    unsettled: list[int] = []
    judged_phases: dict[int, Phase] = {}
    leading = np.argsort([result.upper_value for result in found])[:_MEASURED]
    for index, (result, end, start) in enumerate(zip(found, run.ends, points, strict=True)):
        seen = [Seen(run, scaling, low) for low in run.lows[index]]
        if run.same[index] < index:  # ended where that one did, which is judged for both
            judged = results[run.same[index]]
            if driver.options.outer == "pgd":  # the verdict alone is shared
                told = result if scaling is None else scaling.restore(result)
                own = replace(told.certificate, exact=judged.certificate.exact)  # residuals are those of its own x
                results.append(replace(told, status=judged.status, message=judged.message, certificate=own))
                continue
            results.append(replace(judged, counts={**result.counts, "merged": 1}, seconds=result.seconds))
            lost = driver.incumbent(judged_phases[run.same[index]], seen) is not None
            unsettled += [index] if lost or run.same[index] in unsettled else []
            continue
        phase = Phase(run, scaling, result if scaling is None else scaling.restore(result), end)
        if result.status in ENDED and index not in leading:
            results.append(phase.result)
            continue
        phase = judged_phases[index] = driver.judged(phase, start)
        told, lost = phase.result, driver.incumbent(phase, seen) is not None
        judged = driver.finished(phase, seen)
        if judged.status not in ENDED and (lost or not (phase.verdict is not None and driver.settled(phase))):
            unsettled.append(index)
        results.append(replace(judged, counts=told.counts, seconds=told.seconds, history=told.history))
    return results, unsettled
