"""Does a linear function fall on a cone with complementarity? A mixed-integer linear program, by HiGHS.

    minimise   gradient @ v
    subject to equal @ v = 0,  below @ v <= 0,  0 >= first_i @ v  and  second_i @ v >= 0, one of both zero for every i

The set is a cone, so v can be taken so short that no entry of it, and of the pairs, exceeds one: no other bound enters
the binary variables that choose between the two sides of a pair. This decides B-stationarity, where pieces of
f(x, y(x)) are too many to look at one by one (Luo, Pang and Ralph, Mathematical Programs with Equilibrium Constraints,
1996, section 3.3).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from blocc._lib.arrays import Float, NDArray

#: Nodes of branch and bound: beyond it a way down that was found counts, and silence is no answer.
_NODES = 10_000


class Falls(NamedTuple):
    """A direction in which the function falls most, in the box."""

    direction: Float[NDArray, "n"]
    fall: float  #: what the function loses along it
    second: NDArray  #: the pairs whose first side is zero along it


def steepest(
    gradient: Float[NDArray, "n"],
    equal: Float[NDArray, "equalities n"],
    below: Float[NDArray, "rows n"],
    first: Float[NDArray, "pairs n"],
    second: Float[NDArray, "pairs n"],
    low: Float[NDArray, "n"],
    high: Float[NDArray, "n"],
) -> Falls | None:
    """The steepest way down, with entries between ``low`` and ``high`` (within one); None if HiGHS finds no answer.

    Everything should be in units in which entries of order one are alike.
    """
    n, m = gradient.size, len(first)
    nothing, identity = np.zeros((m, m)), np.eye(m)
    rows = np.concatenate(
        [
            np.concatenate([equal, np.zeros((len(equal), m))], axis=1),
            np.concatenate([below, np.zeros((len(below), m))], axis=1),
            np.concatenate([first, nothing], axis=1),
            np.concatenate([first, -identity], axis=1),  # first >= z - 1
            np.concatenate([second, nothing], axis=1),
            np.concatenate([second, -identity], axis=1),  # second <= z
        ]
    )
    zero, one, far = np.zeros(m), np.ones(m), np.full(m, np.inf)
    least = np.concatenate([np.zeros(len(equal)), np.full(len(below), -np.inf), -far, -one, zero, -far])
    most = np.concatenate([np.zeros(len(equal)), np.zeros(len(below)), zero, far, far, zero])
    found = scipy.optimize.milp(
        np.concatenate([gradient, zero]),
        integrality=np.concatenate([np.zeros(n), one]),
        bounds=scipy.optimize.Bounds(np.concatenate([low, zero]), np.concatenate([high, one])),
        constraints=scipy.optimize.LinearConstraint(rows, least, most),
        options={"node_limit": _NODES},
    )
    if found.x is None:
        return None
    chosen = found.x[n:] > 0.5
    return Falls(found.x[:n], -float(gradient @ found.x[:n]), np.flatnonzero(chosen))
