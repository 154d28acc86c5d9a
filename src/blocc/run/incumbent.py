"""The incumbent: the best exact value that a call has seen, its start included, which no end of a descent may lose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np

from blocc.judge.examine import Judge
from blocc.judge.responses import Standing
from blocc.options import Options
from blocc.outer.tolerances import Endpoint
from blocc.penalty import Evaluation
from blocc.problem import BilevelProblem
from blocc.reformulate.units import Scaling
from blocc.result import Status
from blocc.run import conclude
from blocc.run.phase import Phase
from blocc.run.single import Run

UNPROVEN = (
    "No answer of the follower was found that its conditions prove: this is the start, and its value is that of a y "
    "that may be false."
)
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


def incumbent(
    problem: BilevelProblem, options: Options, candidates: Sequence[Seen], end: Phase, strict: bool = False
) -> Phase | None:
    """The best of the points seen, as a phase that ended there; None if ``end`` is no worse. The start is the first.

    What a run believes of a point is checked by the judge: it may have been content with less accuracy, and a point
    that seemed the best may be worse than those before it. Only points whose y is shown to be the response count, and
    two values are equal that differ by less than rounding and the accuracy of y may feign. Points are asked in the
    order of what they promise, and those that promise nothing better are left out: by more than any promise was found
    to be wrong. The start is always asked. A success may be worse by the tolerance it was judged with, if not
    ``strict``.
    """
    here = _end(problem, options, end) if bool(end.evaluation.usable) else None
    allowed = 0.0 if strict else _allowance(problem, options, end)
    least = np.inf if here is None else here.value.upper - max(here.floor, allowed)
    wrong = 0.0 if here is None else abs(here.value.upper - end.result.upper_value)
    found: Phase | None = None
    limited = end.result.status is Status.ITERATION_LIMIT  # which no further phase removes
    status = end.result.status if limited else Status.STALLED
    for seen in [*candidates[:1], *sorted(candidates[1:], key=lambda one: one.claimed)]:
        if seen is not candidates[0] and seen.claimed - wrong >= least:
            break
        reached = at(seen, status, SEEN)
        exact = standing(problem, options, reached)
        if exact is None:
            continue
        wrong = max(wrong, abs(exact.value.upper - seen.claimed))
        if exact.value.upper + exact.floor < least:
            found, least = shown(problem, reached, exact), exact.value.upper
    return found


def at(seen: Seen, status: Status, message: str) -> Phase:
    """A phase that ended at a point that a run has seen."""
    run, scaling, evaluation = seen
    reached = Endpoint(evaluation, np.inf, 0.0)
    result = run.conclude_at(reached, status, message)
    return Phase(run, scaling, result if scaling is None else scaling.restore(result), reached)


def shown(problem: BilevelProblem, phase: Phase, exact: Standing) -> Phase:
    """The phase with the response that was shown to be one."""
    y = jax.tree.map(np.asarray, problem.y_set.unravel(exact.value.y))
    return replace(phase, result=replace(phase.result, y=y, upper_value=exact.value.upper))


def standing(problem: BilevelProblem, options: Options, phase: Phase) -> Standing | None:
    """What the end of a phase is worth, exactly; None if its y is not shown to be the response, or G is violated."""
    judge, result = Judge.of(problem, lambda x: None, options.tolerance), phase.result
    x, y = problem.x_set.ravel(result.x), problem.y_set.ravel(result.y)
    return judge.standing(x, y, conclude.joined_multipliers(result))


def _end(problem: BilevelProblem, options: Options, end: Phase) -> Standing | None:
    """The same of the end: a success is what its verdict says."""
    found, v = standing(problem, options, end), end.verdict
    if found is not None or v is None or not end.success(problem):
        return found
    judge = Judge.of(problem, lambda x: None, options.tolerance)
    return Standing(v.value, judge.floor(v.value, v.reply, None if v.slope is None else v.slope.error, v.residual))


def _allowance(problem: BilevelProblem, options: Options, end: Phase) -> float:
    """By how much a success may be worse: a share of what the judge saw f vary by."""
    return options.tolerance * end.verdict.unit if end.verdict is not None and end.success(problem) else 0.0
