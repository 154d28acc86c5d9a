"""Problems that stand in for the one given: without kinks, with rounded corners, relaxed without a Slater point.

Their answers are judged like any other, and returned as answers of the problem itself with a sentence about it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.corners import kinks_of, named
from blocc.inner.choice import choose_oracles
from blocc.judge.failures import NO_ROOM
from blocc.options import Options
from blocc.outer.evaluator import Evaluator
from blocc.outer.monitor import Monitor
from blocc.problem import BilevelProblem
from blocc.reformulate.reformulation import reformulations
from blocc.reformulate.relaxation import AMOUNTS, agreed, relaxed
from blocc.result import Result, Status
from blocc.run.driver import Driver
from blocc.run.phase import ENDED

MakeDriver = Callable[[BilevelProblem], Driver]


def solve_single(problem: BilevelProblem, options: Options, driver: MakeDriver, start: Float[NDArray, "n_x"]) -> Result:
    """One start; functions with kinks in y are tried without them, or with rounded corners, as well."""
    with np.errstate(over="ignore", invalid="ignore"):  # f may leave the numbers where it falls for ever
        return _solved(problem, options, driver, start)


def _solved(problem: BilevelProblem, options: Options, driver: MakeDriver, start: Float[NDArray, "n_x"]) -> Result:
    plain: Result | None = None
    for form in reformulations(problem, options):
        result = form.invert(driver(form.problem).single(start))
        if plain is not None and _better(plain, result, options.tolerance if result.success else 0.0):
            if result.status in ENDED:
                return replace(plain, status=result.status, message=result.message)
            continue
        if result.success or result.status in ENDED:
            return result
        plain = result if plain is None or form.problem is problem or _better(result, plain, 0.0) else plain
        if result.certificate.exact:  # the next variant begins at the best point known
            start = problem.x_set.ravel(result.x)
    assert plain is not None
    if _lacks_slater_point(problem, options, plain):
        found = agreed(problem, *(driver(relaxed(problem, amount)).single(start) for amount in AMOUNTS))
        return plain if _better(plain, found, options.tolerance if found.success else 0.0) else found
    return plain if not kinks_of(problem) else replace(plain, message=f"{plain.message} {_advice(problem)}")


def _better(one: Result, other: Result, tolerance: float) -> bool:
    """Whether a result without success is worth more than another by more than a share of its value."""
    less = one.upper_value < other.upper_value - tolerance * abs(other.upper_value)
    return one.certificate.exact and (less or not (other.certificate.exact or other.success))


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
