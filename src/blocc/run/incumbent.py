"""The incumbent: the best exact value that a call has seen, its start included, which no end of a descent may lose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from blocc.judge.examine import Judge
from blocc.judge.probe import Value
from blocc.options import Options
from blocc.outer.tolerances import Endpoint
from blocc.penalty import Evaluation
from blocc.problem import BilevelProblem
from blocc.reformulate.units import Scaling
from blocc.result import Result, Status
from blocc.run import conclude
from blocc.run.phase import Phase
from blocc.run.single import Run

SEEN = "The descent ended at a worse point than this one, which it had seen on the way."


class Seen(NamedTuple):
    """A point that a run has evaluated."""

    run: Run
    scaling: Scaling | None
    evaluation: Evaluation

    @property
    def claimed(self) -> float:
        """What the run believes that it is worth, in the user's units."""
        return self.evaluation.upper_value / (1.0 if self.scaling is None else float(self.scaling.units.upper))


def incumbent(problem: BilevelProblem, options: Options, candidates: Sequence[Seen], end: Phase) -> Phase | None:
    """The best of the points seen, as a phase that ended there; None if ``end`` is no worse. The start is the first.

    What a run believes of a point is checked by the judge: it may have been content with less accuracy, and a point
    that seemed the best may be worse than those before it. So they are asked in the order of what they promise, and
    those that promise nothing better are left out: by more than any promise was found to be wrong. The start is always
    asked. A success may be worse by the tolerance it was judged with.
    """
    here = _standing(problem, options, end.result) if bool(end.evaluation.usable) else None
    least = np.inf if here is None else here.upper - _allowance(problem, options, end, here)
    wrong = 0.0 if here is None else abs(here.upper - end.result.upper_value)
    found: Phase | None = None
    limited = end.result.status is Status.ITERATION_LIMIT  # which no further phase removes
    status = end.result.status if limited else Status.STALLED
    for seen in [*candidates[:1], *sorted(candidates[1:], key=lambda one: one.claimed)]:
        if seen is not candidates[0] and seen.claimed - wrong >= least:
            break
        run, scaling, evaluation = seen
        reached = Endpoint(evaluation, np.inf, 0.0)
        result = run.conclude_at(reached, status, SEEN)
        result = result if scaling is None else scaling.restore(result)
        value = _standing(problem, options, result)
        if value is None:
            continue
        wrong = max(wrong, abs(value.upper - seen.claimed))
        if value.upper < least:
            found, least = Phase(run, scaling, result, reached), value.upper
    return found


def _standing(problem: BilevelProblem, options: Options, result: Result) -> Value | None:
    judge = Judge.of(problem, lambda x: None, options.tolerance)
    x, y = problem.x_set.ravel(result.x), problem.y_set.ravel(result.y)
    return judge.standing(x, y, conclude.joined_multipliers(result))


def _allowance(problem: BilevelProblem, options: Options, end: Phase, value: Value) -> float:
    """By how much the end may be worse: rounding, and if it is a success a share of what the judge saw f vary by."""
    success = end.verdict is not None and end.success(problem)
    judged = options.tolerance * end.verdict.unit if success and end.verdict is not None else 0.0
    return max(judged, 4.0 * float(np.finfo(float).eps) * abs(value.upper))
