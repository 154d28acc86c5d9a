"""Bring x to where the follower has an answer: minimise the follower's smallest violation over X."""

from __future__ import annotations

import numpy as np

from blocc._lib.rounding import EXACT
from blocc.outer import spectral
from blocc.outer.evaluator import Evaluator

#: A violation below this counts as none.
FEASIBLE = 1e-9


#: How far inside the follower's feasibility a start is moved, in units of its constraints.
_MARGIN = 1e-3
_HALVINGS = 8

#: Random points of X that are tried where the descent from the start ends too high.
_OTHERS = 4


def restore(evaluator: Evaluator, x: np.ndarray) -> tuple[np.ndarray, float]:
    """The nearest point with an answer, as far as the violation's linear models lead; returns it and its violation.

    Where they lead nowhere, the violation is descended from ``x``. It need not be convex in x, and x may even be where
    it is largest: other starts follow where need be.
    """
    best, smallest = _nearest(evaluator, x)
    if smallest <= FEASIBLE:
        return best, smallest
    best, smallest = _descend(evaluator, x)
    generator = np.random.default_rng(evaluator.seed)
    for _ in range(_OTHERS):
        if smallest <= FEASIBLE:
            break
        other, violated = _descend(evaluator, evaluator.flat.x_set.sample_flat(generator))
        if violated < smallest:
            best, smallest = other, violated
    return best, smallest


def _nearest(evaluator: Evaluator, x: np.ndarray, max_iterations: int = 30) -> tuple[np.ndarray, float]:
    """Newton steps towards the edge of feasibility, each as short as the violation's linear model allows."""
    point, before, value = x, x, np.inf
    for _ in range(max_iterations):
        found = evaluator.violation(point)
        slope = np.asarray(found.gradient)
        length = float(slope @ slope)
        if not found.solved or (value := float(found.value)) <= FEASIBLE or length < 1e-24:
            break
        following = evaluator.project(point - 1.05 * (value + _MARGIN) / length * slope)
        if not np.any(following != point):
            break
        before, point = point, following
    if value > FEASIBLE:
        return point, value
    # The last step may have gone far beyond the edge: halve it while the follower has some room.
    for _ in range(_HALVINGS):
        middle = evaluator.project(0.5 * (before + point))
        found = evaluator.violation(middle)
        if found.solved and float(found.value) <= -0.1 * _MARGIN:
            point, value = middle, float(found.value)
        else:
            before = middle
    return point, value


def _descend(evaluator: Evaluator, x: np.ndarray, max_iterations: int = 200) -> tuple[np.ndarray, float]:
    """One descent. Stops as soon as the follower can meet all constraints with some slack."""
    advance = evaluator.advance
    state = spectral.start(np.asarray(x))
    best, smallest = x, np.inf
    for _ in range(max_iterations):
        evaluator.monitor.check_time()
        point = np.asarray(spectral.trial(state))
        found = evaluator.violation(point)
        if found.solved and found.value < smallest:
            best, smallest = point, float(found.value)
            if smallest < -1e-3:
                break
        state = advance(state, found.value, found.gradient, found.solved)
        if bool(state.failed) or float(state.stationarity) < EXACT:
            break
    return best, smallest
