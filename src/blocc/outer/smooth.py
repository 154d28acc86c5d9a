"""Quasi-Newton descent of F_gamma over a box: SciPy's L-BFGS-B.

The line search of L-BFGS-B cannot deal with points that have no value. When it meets one (the lower level has no answer
there), the run ends with ``walled`` set and the caller goes on with a method that can back off.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy.optimize import minimize

from blocc.outer.evaluator import PenaltyFunction
from blocc.outer.stage import Outcome, Stage, better, measure, runs_away
from blocc.penalty import Evaluation


def first_step_units(first: Evaluation) -> tuple[float, float]:
    """Units of x and of the value in which SciPy's quasi-Newton methods begin with care.

    They begin with a full gradient step, or to the bounds where that is shorter. In these units it is at most a tenth
    of the size of x, so that it does not leap out of the valley it was started in.
    """
    unit = 0.1 * (1.0 + float(np.max(np.abs(first.x), initial=0.0)))
    return unit, max(1.0, unit * float(np.linalg.norm(first.gradient)))


class _Wall(Exception):
    """Unwinds SciPy's loop."""


def minimise(function: PenaltyFunction, first: Evaluation, stage: Stage) -> Outcome:
    """Descend from ``first`` until the projected gradient is below the tolerance or nothing moves any more."""
    gamma = float(first.gamma)
    seen = {first.x.tobytes(): first}
    best = first

    def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best
        found = seen.get(x.tobytes())
        if found is None:
            found = function(x, gamma, stage.leader, stage.inner_tolerance)
            if not found.usable:
                raise _Wall
            seen.clear()  # only the last two points are ever asked for again
            seen[x.tobytes()] = found
            if better(found, best, partial(measure, function)):
                best = found
        return float(found.value), np.asarray(found.gradient, dtype=np.float64)

    def note(intermediate_result: object) -> None:
        function.monitor.record(best, measure(function, best), function.evaluations)
        if runs_away(function, best):
            raise StopIteration  # ends SciPy's loop

    unit, height = first_step_units(first)
    low, high = function.flat.x_set.bounds_flat()

    def scaled(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = value_and_gradient(np.clip(unit * z, low, high))
        return value / height, unit / height * gradient

    walled = limited = False
    try:
        ended = minimize(
            scaled,
            np.array(first.x, dtype=np.float64) / unit,
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(low / unit, high / unit, strict=True)),
            callback=note,
            options={
                "gtol": unit / height * stage.tolerance,
                "ftol": 1e-16,
                "maxiter": stage.max_iterations,
                "maxfun": 4 * stage.max_iterations,
                "maxcor": 20,
            },
        )
        limited = int(getattr(ended, "status", 0)) == 1  # none where all bounds are equal
    except _Wall:
        walled = True
    return Outcome(best, measure(function, best), 0.0, walled, limited)
