"""The leader's side of an answer: is x stationary for ``phi(x) = f(x, y(x))``, the value that really happens?

Where the follower's answer is regular (its KKT system is not singular, every row is either held with a price or clearly
slack) y(x) has a derivative, and so has phi: no penalty and no gamma are needed. Elsewhere x is judged by probes
(:mod:`blocc.judge.probe`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocc.flat_problem import FlatProblem
from blocc.judge.derivatives import Local, local
from blocc.judge.fit import lengths_of, nonnegative_fit
from blocc.judge.lower_level import TOUCHED, Reply, held_rows, kkt_system
from blocc.judge.scales import row_sizes

#: A row is neither held nor slack where both its price and its slack are below this, relative to their sizes.
_STRICT = 1e-6
#: Largest condition number of a KKT system, in balanced variables, whose solution is trusted.
_CONDITION = 1e9
#: Terms of the gradient below this share of all that f may change by are rounding.
_ROUNDING = 1e-9


class Slope(NamedTuple):
    """The derivative of phi at a regular answer."""

    gradient: np.ndarray  #: of phi
    sizes: np.ndarray  #: of x: such that y, too, moves by no more than its sizes
    scale: np.ndarray  #: of the terms that the gradient is made of, times the sizes of x
    constraint: np.ndarray  #: Jacobian of G(x, y(x))
    stationarity: float  #: ratio: what bounds, X and G cannot take of the gradient, relative to ``scale``
    left: np.ndarray  #: the same in the user's units, one entry for each variable


def slope_at(flat: FlatProblem, r: Reply, tolerance: float, touched: float = TOUCHED) -> Slope | None:
    """The derivative of phi at (x, y) by the follower's KKT conditions; None where there is none that can be trusted.

    A row with neither a price nor slack may be held or not when x moves, and y(x) may have a kink. Where the
    derivatives of both pieces are stationary to ``tolerance`` that does not matter, and the larger one is returned.
    """
    prices = np.concatenate([r.mu, r.bound]) * r.rows.size / float(np.max(r.slope, initial=1e-300))
    slack = np.maximum(-r.rows.value, 0.0) / np.maximum(r.rows.size, 1e-300)
    open_rows = np.flatnonzero(np.maximum(prices, slack) <= _STRICT)
    sure = np.setdiff1d(held_rows(r), open_rows)
    found = local(flat, r.x, r.y, r.mu, r.nu)
    if not found.finite:
        return None
    if not len(open_rows):
        return _slope(flat, r, found, sure, touched)
    pieces = [_slope(flat, r, found, held, touched) for held in (sure, np.union1d(sure, open_rows))]
    slopes = [piece for piece in pieces if piece is not None]
    if len(slopes) < 2 or max(piece.stationarity for piece in slopes) > tolerance:
        return None
    return max(slopes, key=lambda piece: piece.stationarity)


def _slope(flat: FlatProblem, r: Reply, found: Local, held: np.ndarray, touched: float) -> Slope | None:
    """The derivative of phi as long as exactly the rows ``held`` hold the follower."""
    n_x, n_y = flat.n_x, flat.n_y
    system = kkt_system(flat, r, found, held.astype(int))
    values = np.linalg.svd(system.matrix, compute_uv=False)
    if len(values) and not values[-1] * _CONDITION > values[0]:
        return None
    bend = (found.lower_hessian + found.constraint_hessian)[n_x:, :n_x]
    right = -np.concatenate([system.unit[:, None] * bend, system.row_unit[:, None] * system.jacobian_x])
    change = system.unit[:, None] * np.linalg.solve(system.matrix, right)[:n_y]
    both = np.concatenate([np.eye(n_x), change])
    with np.errstate(divide="ignore"):
        sizes = np.minimum(r.sizes.x, np.min(r.sizes.y[:, None] / np.abs(change), axis=0, initial=np.inf))
    sizes = np.maximum(sizes, 1e-6 * np.abs(r.x))
    gradient = both.T @ found.upper_gradient
    measure = found if r.wide is r.local else r.wide
    terms = np.abs(both).T @ np.abs(measure.upper_gradient) * sizes
    curved = np.abs(both).T @ np.abs(measure.upper_hessian) @ np.abs(both)
    scale = terms + np.diag(curved) * sizes**2
    # Where f hardly changes with x at all (a plateau), gradients are rounding: f's other terms tell how much of it.
    size = np.concatenate([sizes, r.sizes.y])
    whole = float(np.abs(measure.upper_gradient) @ size + size @ np.abs(measure.upper_hessian) @ size)
    scale = np.maximum(scale, _ROUNDING * whole) + 1e-300
    constraint = found.upper_inequality_jacobian @ both
    rows = LeaderRows(
        np.concatenate([r.local.x_inequality, r.local.upper_inequality]),
        np.concatenate([r.local.x_inequality_jacobian[:, :n_x], constraint]),
        r.local.x_equality_jacobian[:, :n_x],
    )
    return weighed(flat, r.x, gradient, sizes, scale, constraint, rows, touched)


class LeaderRows(NamedTuple):
    """The leader's constraints at one x beyond the bounds of X: rows of X and of G(x, y(x)); derivatives in x."""

    value: np.ndarray  #: of the inequalities
    jacobian: np.ndarray
    equality_jacobian: np.ndarray


def weighed(
    flat: FlatProblem,
    x: np.ndarray,
    gradient: np.ndarray,
    sizes: np.ndarray,
    scale: np.ndarray,
    constraint: np.ndarray,
    rows: LeaderRows,
    touched: float = TOUCHED,
) -> Slope:
    """The gradient of phi, and what the normals of X and of active G leave of it, each with a price of its sign."""
    low, high = flat.x_set.bounds_flat()
    at_low, at_high = x - low <= touched * sizes, high - x <= touched * sizes
    size = row_sizes(rows.jacobian, sizes, x)
    active = rows.jacobian[rows.value >= -touched * np.maximum(size, 1e-300)]
    others = np.concatenate([active, rows.equality_jacobian, -rows.equality_jacobian])
    # Bounds alone take what points out of X, entry by entry.
    left = np.where((at_low & (gradient > 0.0)) | (at_high & (gradient < 0.0)), 0.0, gradient)
    if len(others):
        identity = np.eye(flat.n_x)
        normals = np.concatenate([-identity[at_low], identity[at_high], others])
        weight = sizes / scale
        lengths = lengths_of(normals * weight)
        normals = normals / np.where(lengths > 0.0, lengths, 1.0)[:, None]
        left = gradient + normals.T @ nonnegative_fit((normals * weight).T, -weight * gradient)
    return Slope(gradient, sizes, scale, constraint, float(np.max(np.abs(left) * sizes / scale, initial=0.0)), left)
