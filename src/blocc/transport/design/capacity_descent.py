"""Descent of F_gamma in the capacities themselves: L-BFGS-B, and a projected Newton method with the exact Hessian.

The descent in prices finds better designs in less time, so these are not the default. They serve as a comparison, and
the Newton step shows what the Schur complement of the lower level knows about the curvature.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

from blocc.transport.design.model import DesignModel, Penalty

#: Capacities stay above this part of the mean demand, so that a closed link still has a gradient.
FLOOR = 1e-6
#: gamma of the sweep; each begins where the one before ended.
SWEEP = (2.0, 4.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3)

Watch = Callable[[np.ndarray, float, Penalty], None]


def sweep(
    model: DesignModel, start: np.ndarray, limit: np.ndarray, method: str, gamma: float, watch: Watch
) -> np.ndarray:
    """Minimise F_gamma over ``0 <= x <= limit`` for growing gamma by ``method``: "lbfgsb" or "newton"."""
    low = np.minimum(FLOOR * (1.0 + float(np.mean(model.network.demand))), limit)
    # More than the whole demand fits on no link.
    high = np.maximum(np.minimum(limit, float(model.network.demand.sum()) + 1.0), low)
    x = np.clip(start, low, high)
    for level in [g for g in SWEEP if g < gamma] + [gamma]:
        x = (_lbfgsb if method == "lbfgsb" else _newton)(model, x, level, low, high, watch)
    return np.where(x > 10.0 * low, x, 0.0)


def _lbfgsb(
    model: DesignModel, x: np.ndarray, gamma: float, low: np.ndarray, high: np.ndarray, watch: Watch
) -> np.ndarray:
    def objective(trial: np.ndarray) -> tuple[float, np.ndarray]:
        found = model.capacities(trial, gamma)
        watch(trial, gamma, found)
        return float(found.value), np.asarray(found.gradient)

    options = {"maxiter": 500, "maxcor": 20, "ftol": 1e-12, "gtol": 1e-6}
    result = minimize(
        objective, x, jac=True, method="L-BFGS-B", bounds=list(zip(low, high, strict=True)), options=options
    )
    return np.asarray(result.x)


def _newton(
    model: DesignModel, x: np.ndarray, gamma: float, low: np.ndarray, high: np.ndarray, watch: Watch
) -> np.ndarray:
    """Projected Newton steps; eigenvalues enter by their size, so that every step descends."""
    found = model.capacities(x, gamma)
    for _ in range(60):
        gradient, value = np.asarray(found.gradient), float(found.value)
        held = ((x <= low * 1.0001) & (gradient > 0)) | ((x >= high) & (gradient < 0))
        if np.max(np.abs(x - np.clip(x - gradient, low, high)), initial=0.0) < 1e-5 or held.all():
            break
        free = np.flatnonzero(~held)
        values, vectors = np.linalg.eigh(model.curvature(x, gamma, found)[np.ix_(free, free)])
        step = np.zeros_like(x)
        step[free] = -vectors @ ((vectors.T @ gradient[free]) / np.maximum(np.abs(values), 1e-3))
        length = 1.0
        while length > 1e-9:
            trial = np.clip(x + length * step, low, high)
            ahead = model.capacities(trial, gamma)
            watch(trial, gamma, ahead)
            if float(ahead.follower.error) < 1e-7 and float(ahead.value) <= value + 1e-4 * gradient @ (trial - x):
                break
            length *= 0.3
        else:
            break
        small = value - float(ahead.value) < 1e-9 * (1.0 + abs(value))
        x, found = trial, ahead
        if small:
            break
    return x
