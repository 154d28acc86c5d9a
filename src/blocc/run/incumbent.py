"""The incumbent: the best exact value that a call has seen, its start included, which no end of a descent may lose."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blocc.judge.probe import Value
from blocc.judge.verdict import Judge
from blocc.options import Options
from blocc.outer.tolerances import Endpoint
from blocc.problem import BilevelProblem
from blocc.result import Result, Status
from blocc.run import conclude
from blocc.run.batch import BatchRun
from blocc.run.phase import Phase
from blocc.run.single import Run
from blocc.run.units import Scaling

SEEN = "The descent ended at a worse point than this one, which it had seen on the way."


def incumbent(
    problem: BilevelProblem, options: Options, runs: Sequence[tuple[Run, Scaling | None]], end: Phase
) -> Phase | None:
    """The best point that any of the runs has seen, as a phase that ended there; None if ``end`` is no worse.

    What a run believes of a point is checked by the judge: it may have been content with less accuracy.
    """
    here = _standing(problem, options, end.result) if bool(end.evaluation.usable) else None
    least = np.inf if here is None else here.upper - options.tolerance * _unit(end, here)
    found: Phase | None = None
    for run, scaling in runs:
        best = None if isinstance(run, BatchRun) else run.monitor.best  # all starts of a batch share one monitor
        if best is None or not best.upper_value / (1.0 if scaling is None else float(scaling.units.upper)) < least:
            continue
        reached = Endpoint(best, np.inf, 0.0)
        result = run.conclude_at(reached, Status.STALLED, SEEN)
        result = result if scaling is None else scaling.restore(result)
        value = _standing(problem, options, result)
        if value is not None and value.upper < least:
            found, least = Phase(run, scaling, result, reached), value.upper
    return found


def _standing(problem: BilevelProblem, options: Options, result: Result) -> Value | None:
    judge = Judge.of(problem, lambda x: None, options.tolerance)
    x, y = problem.x_set.ravel(result.x), problem.y_set.ravel(result.y)
    return judge.standing(x, y, conclude.joined_multipliers(result))


def _unit(phase: Phase, value: Value) -> float:
    """What differences of f are measured by: what the judge saw it vary by, or else its size."""
    return abs(value.upper) if phase.verdict is None else phase.verdict.unit
