"""The follower's side of one point: its inequalities as rows, the scale of its slopes, the multipliers that fit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Float, Int, NDArray
from blocc._lib.rounding import TINY
from blocc.flat_problem import FlatProblem
from blocc.local.derivatives import Local
from blocc.local.fit import lengths_of, nonnegative_fit
from blocc.local.scales import ROUNDING, Sizes


class Rows(NamedTuple):
    """The follower's inequalities at one point: gc, those of Y, its finite bounds; Jacobians in (x, y)."""

    value: Float[NDArray, "rows"]
    jacobian: Float[NDArray, "rows n"]
    size: Float[NDArray, "rows"]  #: what each changes by when all variables move by their sizes


def rows_of(flat: FlatProblem, found: Local, sizes: Sizes, y: np.ndarray) -> Rows:
    """All inequalities of the follower, with one row for each finite bound of Y."""
    n_x, n_y = flat.n_x, flat.n_y
    low, high = flat.y_set.bounds_flat()
    below, above = np.isfinite(low), np.isfinite(high)
    identity = np.eye(n_y, n_x + n_y, n_x)
    jacobian = np.concatenate([found.inequality_jacobian, -identity[below], identity[above]])
    value = np.concatenate([found.inequality, (low - y)[below], (y - high)[above]])
    return Rows(value, jacobian, np.abs(jacobian) @ sizes.both)


def slopes_of(flat: FlatProblem, found: Local, sizes: Sizes) -> Float[NDArray, "n_y"]:
    """For each variable of the follower's what dg/dy is made of, and changes by with x and y, times its size."""
    n_x = flat.n_x
    own = np.abs(found.lower_gradient[n_x:]) + np.abs(found.lower_hessian[n_x:]) @ sizes.both
    steepest = float(np.max(own * sizes.y, initial=0.0))
    return np.maximum(own * sizes.y, ROUNDING * steepest) + TINY


def fitted_multipliers(
    flat: FlatProblem, found: Local, rows: Rows, touched: Int[NDArray, "touched"], weight: Float[NDArray, "n_y"]
) -> tuple[Float[NDArray, "rows"], Float[NDArray, "equalities"]]:
    """Multipliers of the rows touched (nonnegative) and of the equalities that leave least of the weighted dL/dy."""
    n_x = flat.n_x
    normals = np.concatenate([rows.jacobian[touched], found.equality_jacobian])[:, n_x:]
    lengths = lengths_of(normals * weight)
    units = np.where(lengths > 0.0, lengths, 1.0)
    columns = (normals * weight / units[:, None]).T
    both = np.concatenate([columns, -columns[:, len(touched) :]], axis=1)
    prices = nonnegative_fit(both, -weight * found.lower_gradient[n_x:])
    nu = (prices[len(touched) : columns.shape[1]] - prices[columns.shape[1] :]) / units[len(touched) :]
    mu = np.zeros(len(rows.value))
    mu[touched] = prices[: len(touched)] / units[: len(touched)]
    return mu, nu
