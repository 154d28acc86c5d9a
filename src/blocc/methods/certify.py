"""The end of a method's run: the certificate at its x, and the status that it deserves.

Whatever a method believes, the follower's problem is solved again, exactly, and stationarity is that of the penalty
function.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import jax
import numpy as np

from blocc.judge.verdict import Judge, Verdict
from blocc.outer import continuation
from blocc.outer.monitor import Stop, StopReason
from blocc.outer.nonsmooth import feasibility_boundary as walls
from blocc.outer.tolerances import Endpoint, measure
from blocc.penalty import Evaluation, answer_of, no_leader
from blocc.result import Result, Status
from blocc.run import conclude

if TYPE_CHECKING:
    from blocc.methods.execute import MethodRun

#: Seconds for the descent that tests an answer.
PROBE_SECONDS = 10.0
EXACT_GAMMAS = (1.0, 10.0, 1e2, 1e3, 1e4, 1e5)


def close(run: MethodRun, x: np.ndarray, y: np.ndarray, stop: StopReason | None) -> Result:
    """The certificate at x, and the status it deserves."""
    # What the closing evaluations do is no part of the method's history, and must not be stopped by its limits.
    rows = list(run.monitor.rows)
    run.monitor.close()
    leader = jax.device_get(no_leader(run.flat))
    evaluation: Evaluation | None = None
    for gamma in EXACT_GAMMAS:
        found = run.function(x, gamma, leader, run.goal.inner(gamma, final=True))
        if found.usable or evaluation is None:
            evaluation = found
        if found.usable and run.goal.exact(found):
            break
    assert evaluation is not None
    outcome = Endpoint(evaluation, measure(run.function, evaluation), 0.0)
    status, message = _judge(run, outcome, stop)
    if status is Status.CONVERGED or stop is None:
        outcome, status, message = _probe(run, outcome, status, message)
    verdict = _verdict(run, evaluation)
    if verdict is not None and status in (Status.CONVERGED, Status.STALLED, Status.ITERATION_LIMIT):
        if verdict.certified:
            status, message = Status.CONVERGED, "x is a stationary point of f(x, y(x)), and y is the follower's answer."
        elif status is Status.CONVERGED and not verdict.holds:
            status, message = Status.STALLED, f"Method {run.method.name!r} stopped here, but {verdict.objection()}."
    result = conclude.result(
        run.problem,
        outcome,
        status,
        message,
        rows,
        {"evaluations": run.iterations, "iterations": run.iterations},
        {
            "compile": run.compile_seconds + run.function.compile_seconds,
            "run": run.monitor.elapsed() - run.compile_seconds - run.function.compile_seconds,
        },
        {
            "method": run.method.name,
            "numbers": dict(run.numbers),
            "counts": dict(run.method.counts),
            **vars(run.options),
        },
    )
    own = run.problem.y_set.unravel(np.asarray(y))
    result = replace(result, y_penalty=jax.tree.map(np.asarray, own), upper_value_penalty=run.upper(x, y))
    if verdict is not None:
        return conclude.with_verdict(run.problem, result, verdict, 0.0 if verdict.slope is not None else outcome.radius)
    distance = float(np.linalg.norm(np.asarray(y) - np.asarray(evaluation.answer)))
    return replace(result, certificate=replace(result.certificate, distance=distance))


def _verdict(run: MethodRun, evaluation: Evaluation) -> Verdict | None:
    """The judge's word on the method's x, with the follower's exact answer there."""
    if not evaluation.usable:
        return None
    gamma, leader = float(evaluation.gamma), jax.device_get(no_leader(run.flat))

    def answer(x: np.ndarray) -> np.ndarray | None:
        return answer_of(run.function(x, gamma, leader, run.goal.inner(gamma, final=True)))

    judge = Judge.of(run.problem, answer, run.options.tolerance, run.options.seed)
    run.monitor.time_limit = run.monitor.elapsed() + PROBE_SECONDS
    try:
        return judge.examine(
            np.asarray(evaluation.x),
            np.asarray(evaluation.answer),
            residual=conclude.lower_residual(evaluation),
            downhill=np.asarray(evaluation.gradient),
        )
    except Stop:
        return None


def _judge(run: MethodRun, outcome: Endpoint, stop: StopReason | None) -> tuple[Status, str]:
    """Before the probe: unusable points, outside stops, divergence."""
    e = outcome.evaluation
    if not e.usable:
        return conclude.explain_failure(run.flat, run.function, e)
    if stop is not None:
        return conclude.STOPPED[stop]
    if run.trouble:
        return Status.STALLED, f"Method {run.method.name!r} could not go on: {run.trouble}."
    if run.broke:
        return Status.NOT_FINITE, "The iterates ran away to infinity; this is the last finite point."
    return Status.ITERATION_LIMIT, ""


def _probe(run: MethodRun, outcome: Endpoint, status: Status, message: str) -> tuple[Endpoint, Status, str]:
    """Whether x is stationary: by its gradient, or because a descent of F_gamma from x gains nothing."""
    e = outcome.evaluation
    if not e.usable or run.broke or run.trouble:
        return outcome, status, message
    if run.goal.stationary(outcome):
        return outcome, Status.CONVERGED, "x is stationary for F_gamma, and y is the follower's exact answer."
    goal = replace(run.goal, max_iterations=20)
    leader = jax.device_get(no_leader(run.flat))
    run.monitor.time_limit = run.monitor.elapsed() + PROBE_SECONDS
    try:
        reached, _ = continuation.minimise(run.function, e, leader, goal, fixed_gamma=True)
    except Stop:
        return (
            outcome,
            Status.ITERATION_LIMIT,
            (
                f"x is not stationary (the gradient of F_gamma is {outcome.stationarity:.1e}), as far as "
                f"{PROBE_SECONDS:g} s could tell."
            ),
        )
    gain = max(float(e.value) - float(reached.evaluation.value), 0.0)
    moved = float(np.linalg.norm(np.asarray(reached.evaluation.x) - np.asarray(e.x)))
    outcome = outcome._replace(stationarity=gain, radius=moved)
    if reached.walled and e.x.size > walls.LARGEST_DIMENSION and gain <= run.options.tolerance * (1.0 + abs(e.value)):
        # In few dimensions gradient sampling has looked along the wall; here nobody has.
        return outcome, Status.STALLED, "Next to x the follower has no answer, so that no descent could test x."
    if gain <= run.options.tolerance * (1.0 + abs(float(e.value))):
        return outcome, Status.CONVERGED, "A descent of F_gamma from x gains no more than the tolerance."
    return (
        outcome,
        Status.STALLED if run.iterations < run.options.max_iterations else Status.ITERATION_LIMIT,
        (f"x is not stationary: a descent of F_gamma from here still gains {gain:.2g}."),
    )
