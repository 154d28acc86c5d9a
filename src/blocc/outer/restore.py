"""Bring x to where the follower has an answer: minimise the follower's smallest violation over X."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from blocc.outer import spectral
from blocc.outer.function import PenaltyFunction

#: A violation below this counts as none.
FEASIBLE = 1e-9


#: Random points of X that are tried where the descent from the start ends too high.
_OTHERS = 4


def restore(function: PenaltyFunction, x: np.ndarray) -> tuple[np.ndarray, float]:
    """Descend the follower's smallest violation from ``x``; returns the best point and its violation.

    The violation need not be convex in x, and x may even be where it is largest: other starts follow where need be.
    """
    best, smallest = _descend(function, x)
    generator = np.random.default_rng(function.seed)
    for _ in range(_OTHERS):
        if smallest <= FEASIBLE:
            break
        other, violated = _descend(function, function.flat.x_set.sample_flat(generator))
        if violated < smallest:
            best, smallest = other, violated
    return best, smallest


def _descend(function: PenaltyFunction, x: np.ndarray, max_iterations: int = 200) -> tuple[np.ndarray, float]:
    """One descent. Stops as soon as the follower can meet all constraints with some slack."""
    advance = function.advance
    state = spectral.start(jnp.asarray(x))
    best, smallest = x, np.inf
    for _ in range(max_iterations):
        function.monitor.check_time()
        point = np.asarray(spectral.trial(state))
        found = function.violation(point)
        if found.solved and found.value < smallest:
            best, smallest = point, float(found.value)
            if smallest < -1e-3:
                break
        state = advance(state, found.value, found.gradient, found.solved)
        if bool(state.failed) or float(state.stationarity) < 1e-9:
            break
    return best, smallest
