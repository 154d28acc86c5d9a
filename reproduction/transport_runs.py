"""One run on one of the paper's networks, by the defaults, by Algorithm 1 or by LV-HBA, and the row it becomes.

Every row tells the same: utility at both answers, how far they are apart, how the run ended, and the way there.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from blocc._lib.precision import double_precision
from blocc.outer.monitor import State
from blocc.problem import BilevelProblem
from blocc.result import History, Result, Status
from blocc.solve import solve
from blocc.studies.study import Row
from blocc.transport.design.design_network import design_network
from blocc.transport.design.options import PAPER_STEP
from blocc.transport.travellers.formulation import structured_problem
from reproduction.curves import finite_or_none
from reproduction.published_runs import shared_model

MOST_POINTS = 200  #: of a curve
#: Columns of a row that are measured: they differ from one run to the next.
MEASURED = ("seconds", "curve_seconds")


@functools.cache
def shared_problem(network: str) -> BilevelProblem:
    """One problem for all cells of a process, so that each method compiles once."""
    return structured_problem(shared_model(network).network)


def run_default(network: str, gamma: float | str, seed: int) -> Row:
    """One start of ``design_network`` with its defaults; ``gamma`` fixed, or "auto"."""
    model = shared_model(network)
    design = design_network(model.network, gamma=gamma, starts=1, seed=seed, model=model)
    return {
        "utility": design.utility,
        "utility_penalised": design.penalised.utility,
        "distance": float(np.linalg.norm(design.penalised.share - design.follower.share)),
        # F_gamma = f(x, yF) + gamma (g(x, yF) - v(x)), and the certificate's gap is f(x, yg) - F_gamma.
        "lower_gap": (design.penalised.utility - design.utility - design.certificate.penalty_gap) / design.gamma,
        "links": int(design.built.sum()),
        "ended": design.status.value,
        "iterations": design.starts[0].evaluations,
        "seconds": design.seconds["run"],
        **_curves(design.history),
    }


def run_algorithm_one(network: str, gamma: float, seed: int, max_steps: int, time_limit: float) -> Row:
    """Algorithm 1 with the paper's eta from a random start, on the structured interior point."""
    problem, start = shared_problem(network), shared_model(network).network.random_starts(1, seed)[0]
    result = solve(
        problem,
        start,
        preset="paper",
        inner="auto",
        gamma=gamma,
        step=PAPER_STEP,
        max_iterations=max_steps,
        time_limit=time_limit,
        tolerance=1e-3,
        progress=False,
    )
    made = result.history.evaluations
    return {
        **_ends(problem, result),
        # A run that was cut off knows its steps from its history alone, which keeps an even sample of them.
        "iterations": max(int(result.counts["evaluations"]), int(made[-1]) if len(made) else 0),
        "seconds": result.seconds["run"],
        **_curves(result.history),
    }


def run_lv_hba(network: str, seed: int, max_iterations: int, numbers: Mapping[str, float]) -> Row:
    """LV-HBA from a random start, judged at the exact lower level; ``numbers`` that are not given are automatic."""
    problem, start = shared_problem(network), shared_model(network).network.random_starts(1, seed)[0]

    def at_the_end(state: State) -> bool:
        """Stop by hand: a run that is out of iterations would go on to test its answer, which is not LV-HBA's time."""
        return state.row.evaluations >= max_iterations

    options: dict[str, Any] = {"max_iterations": max_iterations, **numbers}
    result = solve(problem, start, method="lv-hba", callback=at_the_end, progress=False, **options)
    ended = Status.ITERATION_LIMIT if result.status is Status.STOPPED else result.status
    return {
        **_ends(problem, result),
        "ended": ended.value,
        "iterations": int(result.counts["iterations"]),
        "seconds": _iterating(result),
        **_curves(result.history),
    }


def _iterating(result: Result) -> float:
    """Seconds of the iterations alone: from the first record to the last, and as much for those before the first."""
    time, made = result.history.time, result.history.evaluations
    if len(made) < 2:
        return result.seconds["run"]
    return float((time[-1] - time[0]) * made[-1] / (made[-1] - made[0]))


def _ends(problem: BilevelProblem, result: Result) -> Row:
    share, own = result.y["share"], result.y_penalty["share"]
    with double_precision():
        lower = float(problem.lower(result.x, result.y_penalty)) - result.lower_value
    return {
        "utility": -result.upper_value,
        "utility_penalised": -result.upper_value_penalty,
        "distance": float(np.linalg.norm(own - share)),
        "lower_gap": lower,
        "ended": result.status.value,
    }


def _curves(history: History) -> dict[str, Any]:
    """A sample of the way; a number that is not finite is left out as None."""
    chosen = np.unique(np.linspace(0, max(len(history) - 1, 0), min(len(history), MOST_POINTS)).astype(int))
    gap = (history.penalty_value - history.upper_value_penalty) / history.gamma
    columns = {
        "iteration": history.evaluations,
        "gamma": history.gamma,
        "upper_value": history.upper_value,
        "upper_value_penalised": history.upper_value_penalty,
        "lower_gap": gap,
        "distance": history.distance,
    }
    curves = {name: finite_or_none(values[chosen]) for name, values in columns.items()}
    return {"curves": curves, "curve_seconds": finite_or_none(history.time[chosen])}
