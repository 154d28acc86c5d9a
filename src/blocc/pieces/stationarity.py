"""B-stationarity at once: on which of the pieces that meet at x does f fall fastest? First order, by one program."""

from __future__ import annotations

import numpy as np

from blocc._lib.arrays import Int, NDArray
from blocc._lib.rounding import TINY
from blocc.local.complementarity import steepest
from blocc.local.derivatives import Local
from blocc.pieces.derivatives import Model
from blocc.pieces.piece import Followers


def falling_piece(followers: Followers, model: Model, biactive: Int[NDArray, "rows"]) -> Int[NDArray, "held"] | None:
    """The active set on which f falls fastest; None if it falls on none, or HiGHS does not tell.

    ``biactive`` are rows of the follower's with neither slack nor multiplier. Unknown are the changes of x, of y and of
    all multipliers that may differ from zero, in their sizes: the follower's conditions to first order, with
    complementarity for the biactive rows.
    """
    piece, flat, sizes = model.piece, followers.flat, followers.sizes
    found, rows, n_x, n_y = piece.found, piece.rows, flat.n_x, flat.n_y
    if not isinstance(found, Local):  # a program in all variables and multipliers is for dense followers
        return None
    sure = np.setdiff1d(piece.held, biactive)
    priced = np.concatenate([sure, biactive]).astype(int)
    price = piece.steep / np.maximum(sizes.y.min(initial=1.0), TINY)
    units = np.concatenate([sizes.both, piece.price_size[priced], np.full(len(found.equality), price)])
    n = units.size

    def over(jacobian: np.ndarray) -> np.ndarray:
        """Rows in (x, y) as rows in all unknowns, in units in which they change by one."""
        scaled = np.zeros((len(jacobian), n))
        scaled[:, : n_x + n_y] = jacobian * sizes.both
        largest = np.max(np.abs(scaled), axis=1, initial=0.0)
        return scaled / np.where(largest > 0.0, largest, 1.0)[:, None]

    stationary = np.zeros((n_y, n))
    stationary[:, : n_x + n_y] = (found.lower_hessian + found.constraint_hessian)[n_x:]
    stationary[:, n_x + n_y :] = np.concatenate([rows.jacobian[priced], found.equality_jacobian])[:, n_x:].T
    stationary *= units
    largest = np.max(np.abs(stationary), axis=1, initial=0.0)
    stationary /= np.where(largest > 0.0, largest, 1.0)[:, None]
    equal = np.concatenate(
        [stationary, over(rows.jacobian[sure]), over(found.equality_jacobian), over(found.x_equality_jacobian)]
    )
    size = np.maximum(np.abs(found.upper_inequality_jacobian) @ sizes.both, TINY)
    tight = found.upper_inequality >= -followers.settings.biactive * size
    x_size = np.maximum(np.abs(found.x_inequality_jacobian) @ sizes.both, TINY)
    edge = found.x_inequality >= -followers.settings.biactive * x_size
    below = np.concatenate([over(found.upper_inequality_jacobian[tight]), over(found.x_inequality_jacobian[edge])])
    second = np.zeros((len(biactive), n))
    second[np.arange(len(biactive)), n_x + n_y + len(sure) + np.arange(len(biactive))] = 1.0
    low, high = -np.ones(n), np.ones(n)
    least, most = flat.x_set.bounds_flat()
    low[:n_x] = np.where(piece.x - least <= followers.settings.biactive * sizes.x, 0.0, -1.0)
    high[:n_x] = np.where(most - piece.x <= followers.settings.biactive * sizes.x, 0.0, 1.0)
    gradient = np.zeros(n)
    gradient[: n_x + n_y] = found.upper_gradient * sizes.both
    unit = float(np.max(np.abs(gradient), initial=0.0))
    if unit == 0.0:
        return None
    way = steepest(gradient / unit, equal, below, over(rows.jacobian[biactive]), second, low, high)
    if way is None or way.fall <= followers.settings.sign:
        return None
    return np.union1d(sure, biactive[way.second]).astype(int)
