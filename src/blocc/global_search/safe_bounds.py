"""What the multipliers of a linear program prove, whatever the solver's tolerances were.

Multipliers of the right sign bound the least value from below by weak duality, optimal or not. Over a column with two
finite ends the reduced cost may be anything, and rounding is bounded and taken off (Neumaier and Shcherbina 2004, "Safe
bounds in linear and mixed-integer programming"). Over a column without an end its sign must be right exactly: there
the multipliers are corrected by solving a few equations in rational numbers.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Bool, Float, NDArray

_EPSILON = float(np.finfo(np.float64).eps)
#: Ten times the dual tolerance of the solver: reduced costs below this are meant to be zero.
_TIGHT = 1e-8
#: What rounding may take off a bound, relative to it, before exact numbers are worth their time.
_LITTLE = 1e-9


class Program(NamedTuple):
    """Minimise ``<cost, z>`` subject to ``above z <= above_right``, ``equal z == equal_right`` and bounds of z."""

    cost: Float[NDArray, " columns"]
    above: Float[NDArray, "rows columns"]
    above_right: Float[NDArray, " rows"]
    equal: Float[NDArray, "equalities columns"]
    equal_right: Float[NDArray, " equalities"]
    low: Float[NDArray, " columns"]
    high: Float[NDArray, " columns"]


def safe_bound(program: Program, above: Float[NDArray, " rows"], equal: Float[NDArray, " equalities"]) -> float:
    """A number that no feasible z has less than, from any multipliers (those of ``above`` are at most 0)."""
    p = program
    rows, right = np.concatenate([p.above, p.equal]), np.concatenate([p.above_right, p.equal_right])
    weights = np.concatenate([np.minimum(above, 0.0), equal])
    if not np.isfinite(weights).all():
        return -np.inf
    free = np.arange(len(weights)) >= len(above)  # of sign
    little = _LITTLE * (1.0 + abs(float(right @ weights))) / max(len(p.cost), 1)
    given, exact = weights, dict[int, Fraction]()
    chosen = zero = np.zeros(len(p.cost), dtype=bool)
    while True:
        slope, error = _reduced(p.cost, rows, weights)
        costly = _times(np.abs(slope) + error, _reach(p, slope, error)) > little
        costly &= (np.abs(slope) <= _TIGHT + error) & ~zero
        if not costly.any():
            break
        chosen = chosen | costly  # a correction for some columns may need one for others
        exact, zero = _corrected(p.cost, rows, given, free, chosen)
        if any(value > 0 and not free[row] for row, value in exact.items()):
            return -np.inf
        weights = given.copy()
        weights[list(exact)] = [float(value) for value in exact.values()]
        if not zero[costly].all():
            slope, error = _reduced(p.cost, rows, weights)
            break
    slope, error = np.where(zero, 0.0, slope), np.where(zero, 0.0, error)
    for column in np.flatnonzero(_times(error, _reach(p, slope, error)) > little):
        slope[column] = _exactly(p.cost, rows, weights, exact, int(column))
        error[column] = _EPSILON * abs(slope[column])
    least = np.min([_times(side, end) for side in (slope - error, slope + error) for end in (p.low, p.high)], axis=0)
    terms = np.concatenate([right * weights, least])
    if not np.isfinite(terms).all():
        return -np.inf
    # Two roundings in every term: of the multiplier, and of the product.
    return math.nextafter(math.fsum(terms) - 2.0 * _EPSILON * math.fsum(np.abs(terms)), -math.inf)


def _reach(program: Program, slope: NDArray, error: NDArray) -> Float[NDArray, " columns"]:
    """How far a column can be from zero where its reduced cost, with this sign, is least."""
    low, high = np.abs(program.low), np.abs(program.high)
    return np.asarray(np.where(slope > error, low, np.where(slope < -error, high, np.maximum(low, high))))


def _times(slope: NDArray, end: NDArray) -> Float[NDArray, " columns"]:
    """Products in which zero times infinity is zero."""
    return np.asarray(slope * np.where(slope == 0.0, 0.0, end))


def _reduced(cost: NDArray, rows: NDArray, weights: NDArray) -> tuple[NDArray, NDArray]:
    """Reduced costs, and what rounding of the sums and of the multipliers can have made of them."""
    return cost - weights @ rows, (len(rows) + 3) * _EPSILON * (np.abs(cost) + np.abs(weights) @ np.abs(rows))


def _exactly(cost: NDArray, rows: NDArray, weights: NDArray, exact: dict[int, Fraction], column: int) -> Fraction:
    """One reduced cost."""
    used = np.flatnonzero((rows[:, column] != 0.0) & (weights != 0.0)).tolist()
    terms = (Fraction(rows[row, column]) * exact.get(row, Fraction(weights[row])) for row in used)
    return Fraction(cost[column]) - sum(terms)


def _corrected(
    cost: NDArray, rows: NDArray, weights: NDArray, free: NDArray, tight: NDArray
) -> tuple[dict[int, Fraction], Bool[NDArray, " columns"]]:
    """Multipliers nearby that make the reduced costs of these columns zero; and of which columns they do.

    A multiplier of an inequality that is zero stays so, as its sign would not be sure.
    """
    movable = free | (weights < 0.0)
    large = free | (weights < -_TIGHT * np.abs(weights).max(initial=0.0))
    pivots: list[tuple[int, dict[int, Fraction], Fraction]] = []
    zero = np.zeros(len(cost), dtype=bool)
    columns = sorted(np.flatnonzero(tight).tolist(), key=lambda column: int((rows[movable, column] != 0.0).sum()))
    for column in columns:
        wanted = _exactly(cost, rows, weights, {}, column)
        entries = {
            row: Fraction(rows[row, column]) for row in np.flatnonzero(movable & (rows[:, column] != 0.0)).tolist()
        }
        for pivot, equation, value in pivots:
            factor = entries.pop(pivot, None)
            if factor is None:
                continue
            wanted -= factor * value
            for row, entry in equation.items():
                left = entries.get(row, Fraction(0)) - factor * entry
                if left:
                    entries[row] = left
                else:
                    entries.pop(row, None)
        zero[column] = bool(entries) or wanted == 0
        if not entries:
            continue
        pivot = max(entries, key=lambda row: (large[row], abs(entries[row])))
        scale = entries.pop(pivot)
        pivots.append((pivot, {row: entry / scale for row, entry in entries.items()}, wanted / scale))
    moved: dict[int, Fraction] = {}
    for pivot, equation, value in reversed(pivots):
        moved[pivot] = value - sum(entry * moved[row] for row, entry in equation.items() if row in moved)
    return {row: Fraction(weights[row]) + move for row, move in moved.items()}, zero
