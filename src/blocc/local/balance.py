"""Natural units of a problem around one point: those in which its derivatives there are closest to one.

A user's units may differ by many powers of ten: metres beside kilometres, a cost in millions. Every first and second
derivative is a product of such units; taking logarithms, the units that bring all of them close to one solve a linear
least-squares problem.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocc.flat_problem import FlatProblem
from blocc.local.derivatives import Local

_PULL = 0.1  #: weight of the equations "unit = 1", for what the derivatives leave open
_ROUNDING = 1e-14  #: derivatives of one function below this share of the largest are zero up to rounding


class Units(NamedTuple):
    """``x = units.x * z``, ``y = units.y * w``; functions are multiplied by theirs."""

    x: np.ndarray
    y: np.ndarray
    upper: np.ndarray
    lower: np.ndarray
    inequality: np.ndarray
    equality: np.ndarray
    upper_inequality: np.ndarray


def balance(flat: FlatProblem, found: Local) -> Units:
    """Base-two logarithms of the units that bring the derivatives closest to one, in least squares."""
    n_x, n = flat.n_x, flat.n_x + flat.n_y
    jacobians = (
        found.inequality_jacobian[: flat.n_inequality],
        found.equality_jacobian[: flat.n_equality],
        found.upper_inequality_jacobian,
    )
    counts = [len(rows) for rows in jacobians]
    total = n + 2 + sum(counts)
    matrix, right = _PULL**2 * np.eye(total), np.zeros(total)

    def add(entries: np.ndarray, functions: int, *units: np.ndarray) -> None:
        """One equation for every entry: log|entry| + log units = 0. Their normal equations are well conditioned."""
        # All entries of one function together weigh no more than a gradient.
        weight = 1.0 / max(1.0, len(entries) / (n * functions))
        logarithms = np.log2(np.abs(entries))
        for one in units:
            np.add.at(right, one, -weight * logarithms)
            for other in units:
                np.add.at(matrix, (one, other), weight)

    variables = np.arange(n)
    objectives = (
        (n, found.upper_gradient, found.upper_hessian, False),
        (n + 1, found.lower_gradient, found.lower_hessian, True),
    )
    for place, gradient, hessian, follower in objectives:
        slope, bend = gradient, hessian
        if follower:  # what only depends on x means nothing to the follower
            slope, bend = np.where(variables < n_x, 0.0, slope), bend.copy()
            bend[:n_x, :n_x] = 0.0
        rounding = _ROUNDING * max(float(np.max(np.abs(part), initial=0.0)) for part in (slope, bend))
        # Close to a stationary point slopes are small by chance: they say nothing about units.
        slope = np.where(np.abs(slope) >= 1e-3 * np.max(np.abs(bend), axis=1, initial=0.0), slope, 0.0)
        for part in (slope, bend):
            among = np.nonzero(np.abs(part) > rounding)
            add(part[among], 1, np.full(len(among[0]), place), *among)
    rows = np.concatenate(jacobians)
    if len(rows):
        row, variable = np.nonzero(np.abs(rows) > _ROUNDING * np.max(np.abs(rows), axis=1, keepdims=True))
        add(rows[row, variable], len(rows), n + 2 + row, variable)
    solved = np.linalg.solve(matrix, right)
    cuts = np.cumsum([n_x, flat.n_y, 1, 1, *counts])[:-1]
    x, y, upper, lower, *rest = np.split(solved, cuts)
    return Units(x, y, upper[0], lower[0], *rest)
