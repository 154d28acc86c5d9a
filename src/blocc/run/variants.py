"""Problems that stand in for the one given: with rounded corners where functions have kinks, relaxed without a Slater
point.

Their answers are judged like any other, and returned as answers of the problem itself with a sentence about it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from blocc._lib.arrays import Float, NDArray
from blocc.inner.choice import choose_oracles
from blocc.judge.failures import NO_ROOM
from blocc.options import Options
from blocc.outer.evaluator import Evaluator
from blocc.outer.monitor import Monitor
from blocc.outer.nonsmooth.relaxation import AMOUNTS, agreed, relaxed
from blocc.outer.nonsmooth.smoothing import kinks_of, named, smoothed
from blocc.problem import BilevelProblem
from blocc.result import Result, Status
from blocc.run.conclude import restated
from blocc.run.phase import ENDED
from blocc.run.phases import Phases

MakePhases = Callable[[BilevelProblem], Phases]

#: Starts from which on one loop for all of them repays its compilation.
_WORTH_A_BATCH = 32


def solve_single(problem: BilevelProblem, options: Options, phases: MakePhases, start: Float[NDArray, "n_x"]) -> Result:
    """One start; functions with kinks in y are tried with rounded corners as well."""
    plain: Result | None = None
    for rounded in _order(problem, options):
        if not rounded:
            plain = result = phases(problem).single(start)
        else:
            result = restated(problem, phases(smoothed(problem)).single(start), kinks_of(problem))
        if result.success or result.status in ENDED:
            return result
    assert plain is not None
    if _lacks_slater_point(problem, options, plain):
        return agreed(problem, *(phases(relaxed(problem, amount)).single(start) for amount in AMOUNTS))
    return plain if not kinks_of(problem) else replace(plain, message=f"{plain.message} {_advice(problem)}")


def solve_together(
    problem: BilevelProblem, options: Options, phases: MakePhases, starts: Float[NDArray, "starts n_x"]
) -> list[Result | None]:
    """Many starts in one compiled loop where there are many and it applies; None for those that it leaves open."""
    rounded = _order(problem, options)[0]
    automatic = isinstance(options.gamma, str) and options.outer != "pgd"
    none: list[Result | None] = [None] * len(starts)
    if automatic and len(starts) < _WORTH_A_BATCH:
        return none
    together = phases(smoothed(problem) if rounded else problem)
    if not together.batches:
        return none
    found, unsettled = together.many(starts)
    results = [restated(problem, result, kinks_of(problem)) for result in found] if rounded else found
    return [None if automatic and index in unsettled else result for index, result in enumerate(results)]


def _order(problem: BilevelProblem, options: Options) -> tuple[bool, ...]:
    """With rounded corners or without, in the order of their promise."""
    by_hand = problem.oracle is not None or isinstance(options.gamma, float) or options.outer == "pgd"
    kinks = {} if by_hand else kinks_of(problem)
    if not kinks:
        return (False,)
    return (True, False) if set().union(*kinks.values()) - {"where"} else (False, True)


def _lacks_slater_point(problem: BilevelProblem, options: Options, plain: Result) -> bool:
    """Whether a run came to nothing because the follower's inequalities leave no room where it ended."""
    by_hand = problem.oracle is not None or not isinstance(options.gamma, str)
    failed = plain.status in (Status.STALLED, Status.INFEASIBLE, Status.UNBOUNDED)
    if by_hand or problem.inequality is None or not failed:
        return False
    evaluator = Evaluator(problem.flat, choose_oracles(problem, "auto"), Monitor(problem.x_set.unravel))
    found = evaluator.violation(problem.x_set.ravel(plain.x))
    return bool(found.solved) and abs(float(found.value)) <= NO_ROOM


def _advice(problem: BilevelProblem) -> str:
    return (
        f"These functions have kinks in y, which may be why: {named(kinks_of(problem))}. Where one is convex, a "
        "variable t of the follower's with t >= z and t >= -z can stand for abs(z)."
    )
