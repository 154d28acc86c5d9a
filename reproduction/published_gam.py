"""GAM as the published comparison runs it, emulated: another lower level, its hypergradient by the active rows.

The follower minimises ||w||^2 / 2 + sum exp(c_i) xi_i^2 / 2 with xi_i >= 1 - margin_i, so xi is the hinge of the
margins and (w, b) the minimiser of a smooth function, found by Newton's method. The step of c descends the loss of
GAM's own programs, a leaky rectifier of sigmoids; the exponential loss is only reported.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Float, NDArray
from reproduction.published_svm import Samples

ALPHA = 0.05
ITERATIONS = 80
DRAWN = (-7.0, -6.0)  #: c at the start
ACTIVE = 1e-5  #: rows with smaller multipliers do not count
SLOPE, LEAK = 5.0, 0.01  #: of the sigmoid, and of the rectifier below zero

Rows = Float[NDArray, "train weights"]
Vector = Float[NDArray, "_"]


class GamPath(NamedTuple):
    """(w, b) at every iteration; the first entry is the start, before anything is solved."""

    classifiers: list[Vector]
    weights: Vector  #: c at the end


def follower(rows: Rows, c: Vector, y: Vector) -> Vector:
    """The minimiser of ||w||^2 / 2 + sum exp(c) max(0, 1 - margin)^2 / 2, by Newton's method with halved steps."""
    ridge, cost = np.append(np.ones(rows.shape[1] - 1), 0.0), np.exp(c)

    def value(point: Vector) -> float:
        return float(0.5 * (ridge * point) @ point + 0.5 * cost @ np.maximum(1.0 - rows @ point, 0.0) ** 2)

    for _ in range(100):
        hinge = np.maximum(1.0 - rows @ y, 0.0)
        slope = ridge * y - rows.T @ (cost * hinge)
        if np.abs(slope).max() <= 1e-10:
            break
        active = rows[hinge > 0.0]
        hessian = np.diag(ridge) + active.T @ (cost[hinge > 0.0, None] * active)
        step = np.linalg.lstsq(hessian, slope, rcond=None)[0]
        length, before = 1.0, value(y)
        while value(y - length * step) > before and length > 1e-8:
            length *= 0.5
        y = y - length * step
    return y


def loss_slope(validation: Rows, y: Vector) -> Vector:
    """The gradient of sum leaky(2 sigmoid(-5 margin / ||w||) - 1) in (w, b)."""
    length = float(np.linalg.norm(y[:-1]))
    margins = validation @ y
    sigmoid = 1.0 / (1.0 + np.exp(SLOPE * margins / length))
    leak = np.where(2.0 * sigmoid - 1.0 > 0.0, 1.0, LEAK)
    outer = -2.0 * SLOPE * leak * sigmoid * (1.0 - sigmoid)
    slope = validation.T @ (outer / length)
    slope[:-1] -= float(outer @ margins) / length**3 * y[:-1]
    return np.asarray(slope)


def hypergradient(samples: Samples, c: Vector, y: Vector) -> Vector:
    """The derivative of the loss in c through the rows whose multipliers exp(c) xi count."""
    hinge = np.maximum(1.0 - samples.train @ y, 0.0)
    price = np.exp(c) * hinge
    chosen = price > ACTIVE
    active = samples.train[chosen]
    hessian = np.diag(np.append(np.ones(len(y) - 1), 0.0)) + active.T @ (np.exp(c[chosen])[:, None] * active)
    adjoint = np.linalg.lstsq(hessian, loss_slope(np.asarray(samples.validation), y), rcond=None)[0]
    found = np.zeros_like(c)
    found[chosen] = price[chosen] * (active @ adjoint)
    return found


def run_published_gam(samples: Samples, start: Vector, iterations: int = ITERATIONS) -> GamPath:
    """All iterations from ``start``; the classifier that is noted first is w = 1, b = 0."""
    c, y = start.copy(), np.append(np.ones(samples.train.shape[1] - 1), 0.0)
    path = [y]
    for _ in range(iterations - 1):
        y = follower(np.asarray(samples.train), c, y)
        path.append(y)
        c = c - ALPHA * hypergradient(samples, c, y)
    return GamPath(path, c)
