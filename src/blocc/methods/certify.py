"""The end of a method's run: the certificate at its x, and the status that it deserves.

Whatever a method believes, the follower's problem is solved again, exactly, and stationarity is that of the penalty
function.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np

from blocc.judge.convexity import JensenTest
from blocc.judge.examine import Judge
from blocc.judge.failures import explain_failure
from blocc.judge.verdict import Verdict
from blocc.methods.base import Iterate
from blocc.methods.execute import MethodRun
from blocc.outer import continuation
from blocc.outer.monitor import Stop, StopReason
from blocc.outer.tolerances import Endpoint, measure
from blocc.penalty import Evaluation, answer_of, no_upper_multipliers
from blocc.result import Result, Status
from blocc.run import conclude

#: Seconds for the descent that tests an answer, and for the judge.
PROBE_SECONDS = 10.0
EXACT_GAMMAS = (1.0, 10.0, 1e2, 1e3, 1e4, 1e5)


class Finding(NamedTuple):
    """What is known about a method's x, and the status that follows from it."""

    end: Endpoint
    status: Status
    message: str


def certified_result(run: MethodRun, point: Iterate, stop: StopReason | None) -> Result:
    """The certificate at the method's last point, and the status it deserves."""
    # What the closing evaluations do is no part of the method's history, and must not be stopped by its limits.
    rows = list(run.monitor.rows)
    run.monitor.close()
    x, y = point
    evaluation = _evaluation(run, x)
    found = _first_finding(run, Endpoint(evaluation, measure(run.evaluator, evaluation), 0.0), stop)
    if stop is None and evaluation.usable and not run.diverged and not run.trouble:
        found = _probed(run, found)
    verdict = _verdict(run, evaluation, probes=stop is None)
    if verdict is not None and found.status in (Status.CONVERGED, Status.STALLED, Status.ITERATION_LIMIT):
        if verdict.certified:
            message = "x is a stationary point of f(x, y(x)), and y is the follower's answer."
            found = found._replace(status=Status.CONVERGED, message=message)
        elif found.status is Status.CONVERGED and not verdict.holds:
            message = f"Method {run.method.name!r} stopped here, but {verdict.objection()}."
            found = found._replace(status=Status.STALLED, message=message)
    result = conclude.result(
        run.problem,
        *found,
        rows,
        {"evaluations": run.calls, "iterations": run.iterations},
        run.seconds,
        run.described,
    )
    own = jax.tree.map(np.asarray, run.problem.y_set.unravel(y))
    result = replace(result, y_penalty=own, upper_value_penalty=run.upper(x, y))
    if verdict is not None:
        return conclude.with_verdict(
            run.problem, result, verdict, 0.0 if verdict.slope is not None else found.end.radius
        )
    distance = float(np.linalg.norm(y - np.asarray(evaluation.answer)))
    return replace(result, certificate=replace(result.certificate, distance=distance))


def _evaluation(run: MethodRun, x: np.ndarray) -> Evaluation:
    """F_gamma at x, with gamma as small as makes it exact; the last usable one where none does."""
    leader = no_upper_multipliers(run.flat)
    best: Evaluation | None = None
    for gamma in EXACT_GAMMAS:
        found = run.evaluator(x, gamma, leader, run.tolerances.inner(gamma, final=True))
        if found.usable or best is None:
            best = found
        if found.usable and run.tolerances.exact(found):
            break
    assert best is not None
    return best


def _first_finding(run: MethodRun, end: Endpoint, stop: StopReason | None) -> Finding:
    """Before the probe: unusable points, outside stops, divergence."""
    if not end.evaluation.usable:
        return Finding(end, *explain_failure(run.evaluator, JensenTest(run.flat, run.options.seed), end.evaluation))
    if stop is not None:
        return Finding(end, *conclude.stopped(stop, run.monitor))
    if run.trouble:
        return Finding(end, Status.STALLED, f"Method {run.method.name!r} could not go on: {run.trouble}.")
    if run.diverged:
        return Finding(end, Status.NOT_FINITE, "The iterates diverged to infinity; this is the last finite point.")
    return Finding(end, Status.ITERATION_LIMIT, "")


def _probed(run: MethodRun, found: Finding) -> Finding:
    """Whether x is stationary: by its gradient, or because a descent of F_gamma from x gains nothing."""
    end, e = found.end, found.end.evaluation
    if run.tolerances.stationary(end):
        return Finding(end, Status.CONVERGED, "x is stationary for F_gamma, and y is the follower's exact answer.")
    leader = no_upper_multipliers(run.flat)
    run.monitor.time_limit = run.monitor.elapsed() + PROBE_SECONDS
    try:
        tolerances = replace(run.tolerances, max_iterations=20)
        reached, _ = continuation.minimise(run.evaluator, e, leader, tolerances, fixed_gamma=True)
    except Stop:
        slope = f"the gradient of F_gamma is {end.stationarity:.1e}"
        message = f"x is not stationary ({slope}), as far as {PROBE_SECONDS:g} s could tell."
        return Finding(end, Status.ITERATION_LIMIT, message)
    gain = max(float(e.value) - float(reached.evaluation.value), 0.0)
    moved = float(np.linalg.norm(np.asarray(reached.evaluation.x) - np.asarray(e.x)))
    end = end._replace(stationarity=gain, radius=moved)
    if gain > run.options.tolerance * (1.0 + abs(float(e.value))):
        status = Status.STALLED if run.iterations < run.options.max_iterations else Status.ITERATION_LIMIT
        return Finding(end, status, f"x is not stationary: a descent of F_gamma from here still gains {gain:.2g}.")
    if reached.met_boundary:
        message = "Next to x the follower has no answer, so that no descent could test x."
        return Finding(end, Status.STALLED, message)
    return Finding(end, Status.CONVERGED, "A descent of F_gamma from x gains no more than the tolerance.")


def _verdict(run: MethodRun, evaluation: Evaluation, *, probes: bool) -> Verdict | None:
    """The judge's word on the method's x, with the follower's exact answer there; ``probes``: it looks around."""
    if not evaluation.usable:
        return None
    gamma, leader = float(evaluation.gamma), no_upper_multipliers(run.flat)

    def answer(x: np.ndarray) -> np.ndarray | None:
        return answer_of(run.evaluator(x, gamma, leader, run.tolerances.inner(gamma, final=True)))

    judge = Judge.of(run.problem, answer, run.options.tolerance, run.options.seed)
    run.monitor.time_limit = run.monitor.elapsed() + PROBE_SECONDS
    try:
        return judge.examine(
            np.asarray(evaluation.x),
            np.asarray(evaluation.answer),
            multipliers=evaluation.follower.multipliers,
            downhill=np.asarray(evaluation.gradient),
            probes=probes,
        )
    except Stop:
        return None
