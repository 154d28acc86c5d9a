"""The benchmark suite: every method on problems with known answers and on the applications, as one study.

A cell is a problem and a method. Its row tells how the run ended and the way there: after how many seconds, and after
how many derivatives of the lower level, the leader's value at the follower's exact answer first fell to each level.
What is made of it, profiles and tables, is up to the report.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from blocc.errors import BloccError, OptionError
from blocc.judge.suggest import suggest
from blocc.methods.compare import DOES_NOT_APPLY, ENDLESS, PRESETS, MethodRow, compare, solved_by
from blocc.methods.registry import NAMES, known_names
from blocc.presets import check_preset
from blocc.problems.textbook import known_problems
from blocc.studies.cases import Case, find_known_case
from blocc.studies.study import Study

STUDY = "bench"
#: A few of each kind, in minutes: coupled and not, affine and curved, equalities and sets, and the applications.
QUICK = (
    *("toy", "moving_lower_bound", "clark_westerberg_1990", "moving_ball", "shrinkage", "equality_projection"),
    *("simplex_projection", "three", "svm"),
)
#: Algorithm 1 as a row beside the methods, with the numbers that it was published with on the problem, or else with
#: those that the theorems give for this accuracy (``suggest``); where they give none it does not apply.
ALGORITHM_1, ACCURACY = "algorithm-1", 0.1
ROWS = ("blocc", ALGORITHM_1, *NAMES[1:])
#: Further applications of the full suite.
APPLICATIONS = ("three", "svm", "gam-svm")
#: Residual of the follower's answer beyond which the leader's value there is none.
MOST_RESIDUAL = 1e-3
#: Larger problems are left to the full suite of whoever has the time for it.
MOST_VARIABLES = 200


def full_suite() -> tuple[str, ...]:
    """The toy, every problem with a known answer that all methods can hold as dense matrices, and the applications."""
    small = (
        entry.name
        for entry in known_problems()
        if entry.name != "blocc_toy" and entry.problem.flat.n_x + entry.problem.flat.n_y <= MOST_VARIABLES
    )
    return ("toy", *small, *APPLICATIONS)


def bench_study(
    problems: Sequence[str] = QUICK,
    methods: Sequence[str] = ROWS,
    *,
    time_limit: float = 5.0,
    preset: str = "default",
    seed: int = 0,
) -> Study:
    """The study of these problems and methods.

    :param problems: names of :mod:`blocc.studies.cases`
    :param time_limit: seconds of each cell, compilation left out
    :param preset: "default" for automatic numbers, "paper" for published ones
    """
    check_preset(preset, PRESETS)
    if not (isinstance(time_limit, int | float) and 0.0 < time_limit < math.inf):
        raise OptionError(f"time_limit must be a positive number of seconds, got {time_limit!r}")
    for name in methods:
        if name not in (known := (*known_names(), ALGORITHM_1)):
            raise OptionError(f"methods must be names among {', '.join(known)}, got {name!r}")
    for name in problems:
        find_known_case(name, seed)  # says what is wrong before anything is computed
    return Study(
        name=STUDY,
        function="blocc.studies.benchmark:bench_cell",
        grid={"problem": list(problems), "method": list(methods)},
        seeds=[seed],
        fixed={"time_limit": float(time_limit), "preset": preset},
        measured=("seconds", "compile_seconds", "way"),
    )


def bench_cell(problem: str, method: str, time_limit: float, preset: str, seed: int) -> dict[str, Any]:
    """One method on one problem; ``way`` holds [seconds, calls, value] wherever the value fell."""
    case = _case(problem, seed)
    limits: dict[str, Any] = {"time_limit": time_limit, "seed": seed}
    if method == ALGORITHM_1:
        row = _by_algorithm_1(case, limits)
    else:
        row = compare(case.problem, case.x0, methods=[method], preset=preset, **limits).entries[0]
    return {
        "applies": row.applies,
        "outcome": row.status,
        "success": row.success,
        "value": row.upper_value if row.eligible else math.nan,
        "known": math.nan if case.known is None else case.known,
        "local": case.local,
        "stationarity_x": row.stationarity_x,
        "iterations": row.iterations,
        "calls": _calls(row)[1],
        "seconds": row.run_seconds,
        "compile_seconds": row.compile_seconds,
        "way": way_of(case, row),
        "message": row.why_not or row.message,
    }


def _by_algorithm_1(case: Case, limits: dict[str, Any]) -> MethodRow:
    """As many steps as there is time for; what ``suggest`` measures beforehand is not counted."""
    try:
        numbers = case.algorithm_1 or suggest(case.problem, case.x0, epsilon=ACCURACY).options
    except BloccError as error:
        return MethodRow(ALGORITHM_1, "", False, str(error), DOES_NOT_APPLY, message=str(error))
    return solved_by("blocc", case.problem, case.x0, {**limits, **numbers, "max_iterations": ENDLESS})


def _calls(row: MethodRow) -> tuple[float, int]:
    """Derivatives of the lower level for each of the history's evaluations, and in all."""
    if row.result is None:
        return 1.0, 0
    counts = row.result.counts
    evaluations = int(counts.get("evaluations", 0))
    # blocc's history counts evaluations of F_gamma: each of them is as many derivatives as the mean of all.
    total = int(counts.get("derivatives", evaluations))
    return total / max(evaluations, 1), total


def way_of(case: Case, row: MethodRow) -> list[list[float]]:
    """[seconds, calls, value] at the start of each new least value, the end included."""
    if row.result is None:
        return []
    each, total = _calls(row)
    history = row.result.history
    points: list[tuple[float, float, float]] = []
    if (
        case.problem.flat.n_upper_inequality == 0
    ):  # otherwise the history does not tell what was feasible for the leader
        usable = np.isfinite(history.upper_value) & (history.inner_residual <= MOST_RESIDUAL)
        columns = (history.time[usable], each * history.evaluations[usable], history.upper_value[usable])
        points += [(float(s), float(c), float(v)) for s, c, v in zip(*columns, strict=True)]
    if row.eligible:
        points.append((row.run_seconds, float(total), row.upper_value))
    found: list[list[float]] = []
    for seconds, calls, value in points:
        if not found or value < found[-1][2]:
            found.append([seconds, calls, value])
    return found


@lru_cache(maxsize=128)
def _case(name: str, seed: int) -> Case:
    """A case; where its own solver proves the best value, that is known too."""
    case = find_known_case(name, seed)
    if case.known is None and case.own is not None:
        best = case.own(60.0)
        return replace(case, known=best.upper_value) if best.success else case
    return case
