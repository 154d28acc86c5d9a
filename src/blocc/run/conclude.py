"""The end of a run: what its numbers mean, in a status and a sentence, and the result that carries both."""

from __future__ import annotations

import platform
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import scipy

from blocc._lib.trees import flattened
from blocc._lib.version import __version__
from blocc.judge.convexity import JensenTest
from blocc.judge.failures import explain_failure, gamma_too_small
from blocc.judge.verdict import Verdict
from blocc.lagrangian import Multipliers, figures
from blocc.options import Options
from blocc.outer.evaluator import Evaluator
from blocc.outer.monitor import Monitor, StopReason
from blocc.outer.tolerances import Endpoint, Tolerances, runs_away
from blocc.penalty import Evaluation
from blocc.problem import BilevelProblem
from blocc.result import Certificate, History, HistoryRow, Result, Status
from blocc.run.inner_pairs import restored

_STOPPED: dict[StopReason, tuple[Status, str]] = {
    StopReason.CALLBACK: (Status.STOPPED, "The callback asked to stop; this is the best point so far."),
    StopReason.TIME_LIMIT: (Status.TIME_LIMIT, "The time limit was reached; this is the best point so far."),
    StopReason.BUDGET: (Status.STALLED, "No point with an answer of the follower was found."),
    StopReason.INTERRUPTED: (Status.INTERRUPTED, "Interrupted; this is the best point so far."),
}


def stopped(reason: StopReason, monitor: Monitor) -> tuple[Status, str]:
    """Status and message of a run that was stopped; a time limit is told with what compilation took of it."""
    status, message = _STOPPED[reason]
    compiling = monitor.compiling()
    if reason is StopReason.TIME_LIMIT and compiling > 0.0:
        message += f" Of {monitor.elapsed():.3g} s, {compiling:.3g} s were compilation."
    return status, message


def judge(
    evaluator: Evaluator, convexity: JensenTest, end: Endpoint, tolerances: Tolerances, options: Options
) -> tuple[Status, str]:
    """Status and message of a run that came to its own end, by its own tolerances."""
    e, flat, gamma, outer = end.evaluation, evaluator.flat, options.gamma, options.outer
    if not e.usable:
        told = explain_failure(evaluator, convexity, e)
        return told if outer != "pgd" else _published_failure(e, *told)
    if runs_away(evaluator, e):
        return Status.UNBOUNDED, "The leader's objective falls without limit: x leaves the start a millionfold."
    rules = convexity(e.x, np.asarray(e.follower.y), float(e.gamma))
    if failure := rules.failure():
        return Status.NOT_CONVEX, f"{failure}, so y may be only a local answer of the follower."
    if rules.doubtful:
        return Status.STALLED, rules.doubt()
    if not isinstance(gamma, str) and (bool(e.penalised.concave) or rules.penalised_bends()):
        return Status.NOT_CONVEX, gamma_too_small(flat, e)
    lower = lower_residual(e)
    wanted = max(1e-6, tolerances.tolerance)
    if lower > wanted:
        return (
            Status.STALLED,
            f"The lower level is solved only to {lower:.1e} (relative); a certificate needs {wanted:.0e}.",
        )
    if not tolerances.admissible(e):
        violated = e.violation
        return Status.INFEASIBLE, f"The leader's constraint upper_inequality(x, y) <= 0 is violated by {violated:.3g}."
    if outer == "pgd" and end.met_boundary:
        return Status.STALLED, (
            "A step of fixed length led where the follower has no answer; this is the last point before it. "
            "A shorter step goes further, and the default outer method avoids such points."
        )
    if not tolerances.stationary(end):
        spent = end.limited or (outer == "pgd" and not end.stop_met)
        status = Status.ITERATION_LIMIT if spent else Status.STALLED
        return status, (
            f"x is not stationary: ||x - P(x - grad F)|| = {end.stationarity:.1e}, wanted "
            f"{tolerances.slope(e, tolerances.tolerance):.1e}."
        )
    if isinstance(gamma, str) and not tolerances.exact(e):
        return Status.STALLED, (
            f"gamma reached {float(e.gamma):g}, but the penalty is not closed: gap {e.gap:.1e}, "
            f"||yF - y|| {e.distance:.1e}."
        )
    if not tolerances.exact(e):
        return Status.PENALTY_OPEN, (
            f"x is stationary for F_gamma at the gamma given ({float(e.gamma):g}), but the penalty is open: it hides "
            f"{e.gap:.3g} of the leader's value, and yF is {e.distance:.3g} away from the follower's answer. A larger "
            "gamma, or gamma='auto', closes it."
        )
    where = " at a kink or at the edge of the follower's feasibility" if end.radius else ""
    return Status.CONVERGED, f"x is stationary for F_gamma{where}, and y is the follower's exact answer."


def finished(evaluator: Evaluator, convexity: JensenTest, end: Endpoint) -> tuple[Status, str]:
    """The same for a run that ended with a descent of f(x, y(x)) itself; the judge decides what that is worth."""
    e = end.evaluation
    if runs_away(evaluator, e):
        return Status.UNBOUNDED, "The leader's objective falls without limit: x leaves the start a millionfold."
    rules = convexity(e.x, np.asarray(e.follower.y))
    if failure := rules.failure():
        return Status.NOT_CONVEX, f"{failure}, so y may be only a local answer of the follower."
    if rules.doubtful:
        return Status.STALLED, rules.doubt()
    if end.limited:
        return Status.ITERATION_LIMIT, "The iterations ended before x was stationary for f(x, y(x))."
    if np.isfinite(end.stationarity):
        return Status.CONVERGED, "x is stationary for f(x, y(x)), and y is the follower's exact answer."
    return Status.STALLED, "The descent of f(x, y(x)) ended at a point that its pieces do not show to be stationary."


def with_stop(message: str, end: Endpoint, options: Options) -> str:
    """The message of a run, with what ended it where that was a stopping test of the user's."""
    return f"The stopping test stop={options.stop:g} was met. {message}" if end.stop_met else message


def _published_failure(e: Evaluation, status: Status, message: str) -> tuple[Status, str]:
    """What to say where the published scheme ended without an exact answer of the follower's."""
    if status not in (Status.STALLED, Status.INFEASIBLE):
        return status, message
    if not np.isfinite(e.gradient).all():
        return Status.STALLED, (
            "The inner solver of Algorithm 1 left the finite numbers: its steps are too long for L_g, or for L_F at "
            f"gamma = {float(e.gamma):g}. MaxMin() without primal_step and dual_step chooses them."
        )
    if status is Status.INFEASIBLE:
        return status, (
            "Algorithm 1 ended at an x where the follower cannot meet its constraints: they are violated by "
            f"{float(e.follower.residuals.feasibility):.3g}. An inner solver with fixed steps does not notice."
        )
    return Status.STALLED, "Algorithm 1 ended at an x where the follower's own problem could not be solved exactly."


def lower_residual(e: Evaluation) -> float:
    """Largest KKT residual of the reported answer, relative to the size of y and, for stationarity, of the prices.

    Large prices magnify rounding in the gradient of the Lagrangian; beyond 100 they count in the scale, as in Ipopt.
    """
    found = e.cross if e.optimistic else e.follower.residuals
    prices = np.concatenate([np.abs(part) for part in e.follower.multipliers])
    steep = max(1.0, float(prices.mean()) / 100.0) if prices.size else 1.0
    largest = max(float(found.stationarity) / steep, float(found.feasibility), float(found.complementarity))
    return largest / (1.0 + float(np.max(np.abs(e.answer), initial=0.0)))


def joined_multipliers(result: Result) -> Multipliers:
    """The multipliers of a result, flat."""
    return Multipliers(*map(flattened, result.multipliers))


def with_verdict(problem: BilevelProblem, result: Result, verdict: Verdict, radius: float) -> Result:
    """The result with the answer that was judged, and with the certificate of that answer, in the user's units.

    ``radius`` is 0 where the derivative of f(x, y(x)) judged x; otherwise probes within it did.
    """
    flat, value = problem.flat, verdict.value
    prices = result.multipliers
    if verdict.reply is not None and verdict.lower_optimal:
        prices = Multipliers(
            problem.unravel_multipliers("inequality", verdict.reply.mu[: flat.n_inequality]),
            problem.unravel_multipliers("equality", verdict.reply.nu[: flat.n_equality]),
        )
    told = figures(flat, value.x, value.y, Multipliers(*map(flattened, prices)))
    found = told.residuals
    y_penalty = problem.y_set.lift_flat(flattened(result.y_penalty))
    slope = verdict.probed.steepest if verdict.probed.asked else result.certificate.stationarity_x
    if verdict.slope is not None:
        slope = float(np.max(np.abs(verdict.slope.left), initial=0.0))
    certificate = Certificate(
        stationarity=float(found.stationarity),
        feasibility=float(found.feasibility),
        complementarity=float(found.complementarity),
        penalty_gap=result.certificate.penalty_gap + value.upper - result.upper_value,
        distance=float(np.linalg.norm(y_penalty - value.y)),
        stationarity_x=slope,
        radius=radius,
        leader_violation=float(np.max(told.upper_inequality, initial=0.0)),
        exact=verdict.lower_optimal and verdict.admissible,
    )
    return replace(
        result,
        x=jax.tree.map(np.asarray, problem.x_set.unravel(value.x)),
        y=problem.y_set.shown(value.y),
        multipliers=prices,
        upper_value=value.upper,
        lower_value=float(told.lower),
        certificate=certificate,
    )


def without_penalty(result: Result, verdict: Verdict, tolerance: float, finished: bool) -> Result:
    """A result that was proved on f(x, y(x)) itself, the limit of F_gamma, if its last gamma hides something.

    A run that ``finished`` there has left its gamma behind.
    """
    c, value = result.certificate, result.upper_value
    near = c.distance <= 10.0 * tolerance * (1.0 + float(np.linalg.norm(verdict.value.y)))
    if not finished and near and abs(c.penalty_gap) <= tolerance * verdict.unit:
        return result
    certificate = replace(c, penalty_gap=0.0, distance=0.0)
    return replace(result, gamma=np.inf, y_penalty=result.y, upper_value_penalty=value, certificate=certificate)


def versions() -> dict[str, str]:
    """What the numbers were computed with."""
    return {
        "blocc": __version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def result(
    problem: BilevelProblem,
    end: Endpoint,
    status: Status,
    message: str,
    rows: list[HistoryRow],
    counts: dict[str, int],
    seconds: dict[str, float],
    settings: dict[str, Any],
) -> Result:
    """Assemble the result, in the user's structures."""
    e = end.evaluation
    found = e.cross if e.optimistic else e.follower.residuals
    certificate = Certificate(
        stationarity=float(found.stationarity),
        feasibility=float(found.feasibility),
        complementarity=float(found.complementarity),
        penalty_gap=e.gap,
        distance=e.distance,
        stationarity_x=end.stationarity,
        radius=end.radius,
        leader_violation=e.violation,
    )
    to_y = lambda flat_y: jax.tree.map(np.asarray, problem.y_set.unravel(np.asarray(flat_y)))  # noqa: E731
    multipliers = e.follower.multipliers
    return Result(
        x=jax.tree.map(np.asarray, problem.x_set.unravel(np.asarray(e.x))),
        y=to_y(e.answer),
        y_penalty=to_y(e.penalised.y),
        multipliers=Multipliers(
            problem.unravel_multipliers("inequality", np.asarray(multipliers.inequality)),
            problem.unravel_multipliers("equality", np.asarray(multipliers.equality)),
        ),
        upper_value=e.upper_value,
        lower_value=float(e.lower_penalised if e.optimistic else e.lower_follower),
        upper_value_penalty=float(e.upper_penalised),
        gamma=float(e.gamma),
        status=status,
        message=message,
        certificate=certificate,
        history=History(list(rows)),
        counts=counts,
        seconds=seconds,
        name=problem.name,
        settings=settings,
        versions=versions(),
        inner=None if end.inner is None else restored(problem, end.inner),
    )
