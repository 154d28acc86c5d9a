"""What a global search found, as an ordinary result: judged at (x, y) like any other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.judge.examine import Judge
from blocc.lagrangian import Multipliers, figures, zero_multipliers
from blocc.problem import BilevelProblem
from blocc.result import Certificate, History, Result, Status
from blocc.run import conclude


def judged_result(
    problem: BilevelProblem,
    x: Float[NDArray, "n_x"],
    y: Float[NDArray, "n_y"],
    settings: dict[str, Any],
) -> Result:
    """(x, y) with its certificate; status, message and bound are for the caller to fill in."""
    flat = problem.flat
    told = figures(flat, x, y, zero_multipliers(flat))
    found = told.residuals
    unknown = Certificate(float(found.stationarity), float(found.feasibility), np.nan, 0.0, 0.0, np.nan)
    as_arrays = lambda tree: jax.tree.map(np.asarray, tree)  # noqa: E731
    result = Result(
        x=as_arrays(problem.x_set.unravel(x)),
        y=as_arrays(problem.y_set.unravel(y)),
        y_penalty=as_arrays(problem.y_set.unravel(y)),
        multipliers=Multipliers(
            problem.unravel_multipliers("inequality", np.zeros(flat.n_inequality)),
            problem.unravel_multipliers("equality", np.zeros(flat.n_equality)),
        ),
        upper_value=float(told.upper),
        lower_value=float(told.lower),
        upper_value_penalty=float(told.upper),
        gamma=0.0,
        status=Status.STALLED,
        message="",
        certificate=unknown,
        history=History([]),
        counts={},
        seconds={},
        name=problem.name,
        settings=settings,
        versions=conclude.versions(),
    )
    judge = Judge.of(problem, lambda _: None)
    verdict = judge.examine(x, y, probes=False, polishing=False)
    if not verdict.lower_optimal:
        verdict = judge.examine(x, y, probes=False)
    result = conclude.with_verdict(problem, result, verdict, 0.0)
    # There is no penalised answer here: the follower's own stands for it.
    certificate = replace(result.certificate, penalty_gap=0.0, distance=0.0)
    return replace(result, y_penalty=result.y, upper_value_penalty=result.upper_value, certificate=certificate)
