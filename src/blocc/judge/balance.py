"""Natural units of a problem around one point: those in which its derivatives there are closest to one.

A user's units may differ by many powers of ten: metres beside kilometres, a cost in millions. Every first and second
derivative is a product of such units; taking logarithms, the units that bring all of them close to one solve a linear
least-squares problem.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocc.judge.derivatives import Local
from blocc.problem import FlatProblem

_PULL = 0.1  #: weight of the equations "unit = 1", for what the derivatives leave open


class Units(NamedTuple):
    """``x = units.x * z``, ``y = units.y * w``; functions are multiplied by theirs."""

    x: np.ndarray
    y: np.ndarray
    upper: np.ndarray
    lower: np.ndarray
    inequality: np.ndarray
    equality: np.ndarray
    upper_inequality: np.ndarray


def _noise(*parts: np.ndarray) -> float:
    """Derivatives of one function below this size are zero up to rounding."""
    return 1e-14 * max(float(np.max(np.abs(part), initial=0.0)) for part in parts)


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
    lines: list[np.ndarray] = [_PULL * np.eye(total)]
    sizes: list[np.ndarray] = [np.zeros(total)]

    def add(
        function: int, entries: np.ndarray, smallest: float, first: np.ndarray, second: np.ndarray | None = None
    ) -> None:
        """One equation for every entry beyond rounding: log|entry| + log units = 0."""
        entries = np.abs(entries)
        keep = entries > smallest
        line = np.zeros((int(keep.sum()), total))
        position = np.arange(len(line))
        line[position, function] += 1.0
        line[position, first[keep]] += 1.0
        if second is not None:
            line[position, second[keep]] += 1.0
        # All entries of one function together weigh as much as those of any other.
        weight = 1.0 / np.sqrt(max(1.0, len(line) / n))
        lines.append(weight * line)
        sizes.append(-weight * np.log2(entries[keep]))

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
        rounding = _noise(slope, bend)
        # Close to a stationary point slopes are small by chance: they say nothing about units.
        slope = np.where(np.abs(slope) >= 1e-3 * np.max(np.abs(bend), axis=1, initial=0.0), slope, 0.0)
        add(place, slope, rounding, variables)
        add(place, bend.ravel(), rounding, np.repeat(variables, n), np.tile(variables, n))
    row = n + 2
    for jacobian in jacobians:
        for gradient in jacobian:
            add(row, gradient, _noise(gradient), variables)
            row += 1
    solved = np.linalg.lstsq(np.concatenate(lines), np.concatenate(sizes), rcond=None)[0]
    cuts = np.cumsum([n_x, flat.n_y, 1, 1, *counts])[:-1]
    x, y, upper, lower, *rest = np.split(solved, cuts)
    return Units(x, y, upper[0], lower[0], *rest)
