"""Which minimiser of F_gamma is the answer, where several have the same value: the one that is worth most in truth.

A small gamma can leave F_gamma with whole valleys of minimisers that earn very different utilities once travellers
choose freely. The rule: among equal values of F_gamma, the larger utility at the exact lower level.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.transport.design.capacity_descent import evaluate
from blocc.transport.design.capacity_set import CapacitySet
from blocc.transport.design.model import DesignModel

#: Values of F_gamma this close, relative to 1 + |F_gamma|, are equal: descents end within it of each other.
EQUAL = 1e-7
#: A smaller curvature, relative to the largest, is none: so exact are differences of gradients over this part of x.
_FLAT, _APART = 1e-3, 1e-4


def is_preferred(value: float, utility: float, least: float, best: float) -> bool:
    """Whether F_gamma = ``value`` with this utility is to be chosen before ``least`` with the utility ``best``."""
    equal = EQUAL * (1.0 + abs(least)) if np.isfinite(least) else 0.0
    return value < least - equal or (value <= least + equal and utility > best)


def lies_in_a_valley(
    model: DesignModel,
    limits: CapacitySet,
    capacity: Float[NDArray, "links"],
    gamma: float,
    stop: Callable[[], bool],
) -> bool:
    """Whether F_gamma has a direction without curvature among the built links, so that minimisers may be many."""
    built = np.flatnonzero(capacity > limits.least)
    if not len(built):
        return False
    here = evaluate(model, limits, capacity, gamma, None, stop)
    rows = []
    for link in built:
        beside = capacity.copy()
        beside[link] += (away := _APART * capacity[link])
        found = evaluate(model, limits, beside, gamma, here.warm, stop)
        rows.append((np.asarray(found.gradient) - np.asarray(here.gradient))[built] / away)
    curvature = np.linalg.eigvalsh(0.5 * (np.array(rows) + np.array(rows).T))
    return bool(curvature[0] <= _FLAT * curvature[-1])
