"""Smooth descent of F_gamma: SciPy's L-BFGS-B over a box, spectral projected gradients over any other set.

The line search of L-BFGS-B cannot deal with points that have no value. When it meets one (the lower level has no answer
there), the run ends with ``met_boundary`` set and the caller goes on with a method that can back off.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import scipy

from blocc.outer import spectral
from blocc.outer.evaluator import Evaluator
from blocc.outer.tolerances import Endpoint, Stage, better, measure, runs_away
from blocc.penalty import Evaluation

_EPS = float(np.finfo(float).eps)


def first_step_units(first: Evaluation) -> tuple[float, float]:
    """Units of x and of the value in which SciPy's quasi-Newton methods begin with care.

    They begin with a full gradient step, or to the bounds where that is shorter. In these units it is at most a tenth
    of the size of x, so that it does not leap out of the valley it was started in; where f(x, y(x)) itself descends and
    evaluations are expensive, it is as long as that.
    """
    unit = 0.1 * (1.0 + float(np.max(np.abs(first.x), initial=0.0)))
    slope = unit * float(np.linalg.norm(first.gradient))
    return unit, slope if np.isinf(first.gamma) and slope > 0.0 else max(1.0, slope)


class _NoAnswer(Exception):
    """Unwinds SciPy's loop at a point where the follower has no answer."""


class _Spent(Exception):
    """Unwinds it when the stage has asked for all that it may: SciPy counts between its steps alone."""


def quasi_newton(evaluator: Evaluator, first: Evaluation, stage: Stage) -> Endpoint:
    """Descend from ``first`` until the projected gradient is below the tolerance or nothing moves any more."""
    gamma = float(first.gamma)
    seen = {first.x.tobytes(): first}
    best, last = first, evaluator.evaluations + stage.trials * stage.max_iterations

    def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best
        found = seen.get(x.tobytes())
        if found is None:
            if evaluator.evaluations >= last:
                raise _Spent
            found = evaluator(x, gamma, stage.leader, stage.inner_tolerance)
            if not found.usable:
                raise _NoAnswer
            seen.clear()  # only the last two points are ever asked for again
            seen[x.tobytes()] = found
            if better(found, best, partial(measure, evaluator)):
                best = found
        return float(found.value), np.asarray(found.gradient, dtype=np.float64)

    def note(intermediate_result: object) -> None:
        evaluator.monitor.record(best, measure(evaluator, best), evaluator.evaluations)
        if runs_away(evaluator, best):
            raise StopIteration  # ends SciPy's loop

    unit, height = first_step_units(first)
    low, high = evaluator.flat.x_set.bounds_flat()

    def scaled(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = value_and_gradient(np.clip(unit * z, low, high))
        return value / height, unit / height * gradient

    met_boundary = limited = False
    try:
        ended = scipy.optimize.minimize(
            scaled,
            np.array(first.x, dtype=np.float64) / unit,
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(low / unit, high / unit, strict=True)),
            callback=note,
            options={
                # By its exact derivative f(x, y(x)) is followed until it tells no difference any more.
                "gtol": 0.0 if np.isinf(gamma) else unit / height * stage.tolerance,
                "ftol": 4.0 * _EPS if np.isinf(gamma) else 1e-16,
                "maxiter": stage.max_iterations,
                "maxfun": stage.trials * stage.max_iterations,
                "maxcor": 20,
            },
        )
        limited = int(getattr(ended, "status", 0)) == 1  # none where all bounds are equal
    except _Spent:
        limited = True
    except _NoAnswer:
        met_boundary = True
    return Endpoint(best, measure(evaluator, best), 0.0, met_boundary, limited)


def spectral_descent(evaluator: Evaluator, first: Evaluation, stage: Stage) -> Endpoint:
    """Drive the spectral method's state machine (:mod:`blocc.outer.spectral`), one evaluation at a time."""
    gamma = float(first.gamma)
    advance = evaluator.advance
    state = advance(spectral.start(np.asarray(first.x)), first.value, first.gradient, first.usable)
    best = current = first
    met_boundary = False
    for _ in range(stage.trials * stage.max_iterations):
        if (
            float(state.stationarity) <= stage.tolerance
            or bool(state.failed)
            or int(state.iteration) >= stage.max_iterations
        ):
            break
        found = evaluator(np.asarray(spectral.trial(state)), gamma, stage.leader, stage.inner_tolerance)
        met_boundary = met_boundary or not bool(found.usable)
        state = advance(state, found.value, found.gradient, found.usable)
        if bool(state.accepted):
            current = found
            evaluator.monitor.record(found, float(state.stationarity), evaluator.evaluations)
            if float(found.value) < float(best.value):
                best = found
    limited = not met_boundary and int(state.iteration) >= stage.max_iterations
    # The search is not monotone: the last point is the stationary one, unless an earlier one is clearly lower.
    if float(state.stationarity) <= stage.tolerance or best is current:
        return Endpoint(current, float(state.stationarity), 0.0, met_boundary, limited)
    return Endpoint(best, measure(evaluator, best), 0.0, met_boundary, limited)
