"""What is small? The natural sizes by which the judge measures, from the derivatives at the answer itself.

The size of a variable is the unit in which the derivatives of all functions at (x, y) are closest to one
(:mod:`blocc.local.balance`), and never more than ``max(1, |z|)`` or half the width of its bounds. A row ``c(x, y)`` is
measured by ``sum |dc/dz| size``: what it changes by when all variables move by their sizes. So multiplying a function
by a number, adding a constant to an objective, or choosing other units for a variable changes no judgement.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from blocc.flat_problem import FlatProblem
from blocc.local.balance import balance
from blocc.local.derivatives import Local

#: Ratio of two distances over which curvatures are compared, and by how much these may differ.
_SHARE, _ALIKE = 1e-2, 0.1
_EPS = float(np.finfo(float).eps)
_LEAST = _EPS**0.5  #: distances below which values do not tell where a minimum is, in sizes
#: Rounding of a row, relative to the sum of its terms.
ROUNDING = 1e-13


class Sizes(NamedTuple):
    """Natural sizes of the variables at one point."""

    x: np.ndarray
    y: np.ndarray

    @property
    def both(self) -> np.ndarray:
        """Those of x and y in one vector."""
        return np.concatenate([self.x, self.y])


def sizes_at(flat: FlatProblem, found: Local, x: np.ndarray, y: np.ndarray) -> Sizes:
    """Sizes of the variables around (x, y)."""
    logarithms = balance(flat, found)
    x_reach, y_reach = (_widest(*within.bounds_flat(), z) for within, z in ((flat.x_set, x), (flat.y_set, y)))
    return Sizes(_capped(np.exp2(logarithms.x), x, x_reach), _capped(np.exp2(logarithms.y), y, y_reach))


def _widest(low: np.ndarray, high: np.ndarray, z: np.ndarray) -> np.ndarray:
    """How large a variable may be: one, |z|, or half the width of its bounds if both are finite."""
    width = np.where(np.isfinite(low) & np.isfinite(high), 0.5 * (high - low), 0.0)
    return np.maximum(np.maximum(1.0, np.abs(z)), width)


def _capped(unit: np.ndarray, z: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """No more than the variable's reach; no less than what rounding leaves of z."""
    return np.clip(unit, 1e-6 * np.abs(z), reach)


def row_sizes(jacobian: np.ndarray, sizes: np.ndarray, z: np.ndarray) -> np.ndarray:
    """What each row changes by when all variables move by their sizes, and not less than its rounding allows."""
    slopes = np.abs(jacobian)
    return np.maximum(slopes @ sizes, 1e6 * ROUNDING * (slopes @ np.abs(z)))


def reach(low: np.ndarray, high: np.ndarray, z: np.ndarray) -> np.ndarray:
    """How far a variable may go before it has gone far: ``max(1, |z|)``, or half the width of its bounds."""
    width = np.where(high > low, 0.5 * (high - low), np.inf)
    return np.minimum(np.maximum(1.0, np.abs(z)), width)


def resolved(
    gradient: Callable[[np.ndarray], np.ndarray | None],
    x: np.ndarray,
    sizes: np.ndarray,
    rounding: np.ndarray | float = 0.0,
) -> np.ndarray:
    """Sizes of x such that a quadratic model of a function holds over a hundredth of them, no more than those given.

    Along every coordinate the curvature is measured over ever smaller distances until it does not change any more. Then
    1e-5 sizes are a thousandth of a distance over which the model holds: next to a minimum, 1e-6 of what the function
    varies by there. Where no distance is found (rounding, or a minimum flatter than a parabola) the size remains.

    :param rounding: of the gradient's entries, which differences of them may feign
    """
    here = gradient(x)
    if here is None:
        return sizes
    found, feigned = sizes.copy(), np.broadcast_to(rounding, sizes.shape) * (1.0 + _SHARE)
    for index, size in enumerate(sizes):
        last, distance = np.nan, _SHARE * size
        while distance >= max(_SHARE**2 * _LEAST * size, _EPS / _SHARE * abs(float(x[index]))):
            point = x.copy()
            point[index] += distance
            there = gradient(point)
            bend = np.nan if there is None else float(there[index] - here[index]) / distance
            if abs(bend - last) <= _ALIKE * abs(last) + feigned[index] / distance:
                found[index] = min(size, distance / _SHARE**2)
                break
            last, distance = bend, _SHARE * distance
    return found
