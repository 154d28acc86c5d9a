"""Convex quadratic programs with dense matrices, by a primal-dual interior point (Mehrotra) and its active set.

    minimise   gradient @ t + t @ hessian @ t / 2 + price * v
    subject to rows @ t <= limits + v * elastic,  equalities @ t == targets,  low <= t <= high,  v >= 0

``elastic`` marks the rows that may be violated at a price. The last variables are the least that zero and the last rows
allow, ``corners`` says which row is for which. The interior point finds the active set, and one more
linear system on it the digits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from blocc._lib.arrays import Float, Int, NDArray

#: Iterations: an interior point takes ten to thirty, whatever the size.
_ITERATIONS = 60
#: Share of the way to the boundary (Mehrotra 1992), and the accuracy that is asked for; what remains are digits.
_SHARE, SOLVED = 0.995, 1e-9


_NONE = np.zeros(0, int)


class Program(NamedTuple):
    """A convex quadratic program; ``hessian`` is positive semidefinite."""

    gradient: Float[NDArray, "n"]
    hessian: Float[NDArray, "n n"]
    rows: Float[NDArray, "rows n"]
    limits: Float[NDArray, "rows"]
    elastic: Float[NDArray, "rows"]  #: ones and zeros
    equalities: Float[NDArray, "equalities n"]
    targets: Float[NDArray, "equalities"]
    low: Float[NDArray, "n"]
    high: Float[NDArray, "n"]
    price: float
    corners: Int[NDArray, "corners"] = _NONE


class Solution(NamedTuple):
    """A step, its multipliers and by how much elastic rows are violated."""

    step: Float[NDArray, "n"]
    rows: Float[NDArray, "rows"]
    low: Float[NDArray, "n"]
    high: Float[NDArray, "n"]
    violation: float
    solved: bool


def solve(p: Program) -> Solution:
    """The minimiser; ``solved`` is false if there is none or it was not found."""
    n, elastic = p.gradient.size, bool(p.elastic.any())
    size = n + elastic
    hessian, gradient = np.zeros((size, size)), np.zeros(size)
    hessian[:n, :n], gradient[:n] = p.hessian, p.gradient
    general = np.zeros((len(p.rows), size))
    general[:, :n] = p.rows
    if elastic:
        gradient[n], general[:, n] = p.price, -p.elastic
    low, high = np.full(size, 0.0), np.full(size, np.inf)
    low[:n], high[:n] = p.low, p.high
    below, above = np.flatnonzero(np.isfinite(low)), np.flatnonzero(np.isfinite(high))
    identity = np.eye(size)
    rows = np.concatenate([general, -identity[below], identity[above]])
    limits = np.concatenate([p.limits, -low[below], high[above]])
    equalities = np.zeros((len(p.equalities), size))
    equalities[:, :n] = p.equalities
    with np.errstate(all="ignore"):  # a program without room drives multipliers to infinity
        t, z, solved = _interior(hessian, gradient, rows, limits, equalities, p.targets, len(general), below, above)
        t, z = _sharpened(hessian, gradient, rows, limits, equalities, p.targets, t, z, (len(general), n), p.corners)
    first = len(general)
    lows, highs = np.zeros(size), np.zeros(size)
    lows[below], highs[above] = z[first : first + len(below)], z[first + len(below) :]
    return Solution(t[:n], z[:first], lows[:n], highs[:n], float(max(t[n], 0.0)) if elastic else 0.0, solved)


def _interior(
    hessian: np.ndarray,
    gradient: np.ndarray,
    rows: np.ndarray,
    limits: np.ndarray,
    equalities: np.ndarray,
    targets: np.ndarray,
    general: int,
    below: np.ndarray,
    above: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Predictor and corrector steps until the residuals are small; bounds enter by the diagonal alone."""
    n, m = gradient.size, len(limits)
    t, nu = np.zeros(n), np.zeros(len(targets))
    scale = 1.0 + float(np.max(np.abs(gradient), initial=0.0))
    slack = np.maximum(limits - rows @ t, 1.0)
    z = np.full(m, scale)
    ends = general, general + len(below)
    shift = np.finfo(float).eps * (1.0 + float(np.max(np.abs(hessian), initial=0.0)))
    done = False
    for _ in range(_ITERATIONS):
        dual = gradient + hessian @ t + rows.T @ z + equalities.T @ nu
        primal, equal = rows @ t + slack - limits, equalities @ t - targets
        gap = float(slack @ z) / max(m, 1)
        error = max(float(np.max(np.abs(part), initial=0.0)) for part in (dual / scale, primal, equal))
        if error <= SOLVED and gap <= SOLVED * scale:
            done = True
            break
        weight = z / slack
        matrix = hessian + (rows[:general].T * weight[:general]) @ rows[:general]
        matrix[below, below] += weight[ends[0] : ends[1]]
        matrix[above, above] += weight[ends[1] :]
        matrix[np.diag_indices(n)] += shift
        try:
            factor = scipy.linalg.cho_factor(matrix, check_finite=False)
        except np.linalg.LinAlgError:
            break
        schur = equalities @ scipy.linalg.cho_solve(factor, equalities.T, check_finite=False) if len(targets) else None

        def direction(
            centre: np.ndarray,
            factor: tuple[np.ndarray, bool] = factor,
            schur: np.ndarray | None = schur,
            dual: np.ndarray = dual,
            primal: np.ndarray = primal,
            equal: np.ndarray = equal,
            weight: np.ndarray = weight,
            slack: np.ndarray = slack,
        ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
            right = -dual - rows.T @ (weight * primal - centre / slack)
            change = scipy.linalg.cho_solve(factor, right, check_finite=False)
            price = np.zeros(len(targets))
            if schur is not None:
                price = np.linalg.lstsq(schur, equalities @ change + equal, rcond=None)[0]
                change = scipy.linalg.cho_solve(factor, right - equalities.T @ price, check_finite=False)
            slacks = -primal - rows @ change
            return change, price, slacks, -(centre + weight * slack * slacks) / slack

        affine = direction(z * slack)
        share = min(_reach(slack, affine[2]), _reach(z, affine[3]))
        after = float((slack + share * affine[2]) @ (z + share * affine[3])) / max(m, 1)
        centre = z * slack + affine[2] * affine[3] - gap * (after / gap) ** 3 if gap > 0.0 else z * slack
        change, price, slacks, prices = direction(centre)
        if not np.isfinite(change).all():
            break
        share = min(1.0, _SHARE * min(_reach(slack, slacks), _reach(z, prices)))
        t, nu, slack, z = t + share * change, nu + share * price, slack + share * slacks, z + share * prices
    return t, z, done


def _reach(value: np.ndarray, change: np.ndarray) -> float:
    """How much of a step keeps values positive, at most one."""
    falling = change < 0.0
    return min(1.0, float(np.min(-value[falling] / change[falling], initial=np.inf)))


def _sharpened(
    hessian: np.ndarray,
    gradient: np.ndarray,
    rows: np.ndarray,
    limits: np.ndarray,
    equalities: np.ndarray,
    targets: np.ndarray,
    t: np.ndarray,
    z: np.ndarray,
    ends: tuple[int, int],
    corners: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The minimiser on the rows whose multiplier exceeds their slack, if that is one of the whole program.

    Of the rows and the bound of each corner one is active, even where nothing depends on its variable: which one, the
    other variables say. ``ends`` are the numbers of general rows and of variables.
    """
    general, last = ends
    first, row = last - int(corners.max(initial=-1)) - 1, general - len(corners)
    slack = limits - rows @ t
    on = z > slack
    without = slack[row:general] - t[first + corners]  # slack where the corner is not crossed
    order = np.lexsort((without, corners))
    columns, nearest = np.unique(corners[order], return_index=True)
    nearest = order[nearest]
    on[np.where(without[nearest] <= 0.0, row + nearest, general + first + columns)] = True
    active = np.flatnonzero(on)
    normals = np.concatenate([rows[active], equalities])
    n, m = gradient.size, len(normals)
    matrix = np.zeros((n + m, n + m))
    matrix[:n, :n], matrix[n:, :n], matrix[:n, n:] = hessian, normals, normals.T
    right = np.concatenate([-gradient, limits[active], targets])
    try:
        solved = np.linalg.solve(matrix, right)
    except np.linalg.LinAlgError:
        solved = np.linalg.lstsq(matrix, right, rcond=None)[0]
    step, prices = solved[:n], np.zeros_like(z)
    prices[active] = solved[n : n + len(active)]
    size = 1.0 + float(np.max(np.abs(gradient), initial=0.0))
    feasible = np.max(rows @ step - limits, initial=0.0) <= SOLVED and np.min(prices, initial=0.0) >= -SOLVED * size
    close = float(np.max(np.abs(step - t)[np.r_[:first, last:n]], initial=0.0)) <= 1e3 * SOLVED**0.5
    if not (np.isfinite(solved).all() and feasible and close):
        return t, z
    return step, np.maximum(prices, 0.0)
