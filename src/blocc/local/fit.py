"""Nonnegative least squares, as exactly as the numbers allow: whether multipliers of the right sign explain a slope."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import scipy

from blocc._lib.rounding import ASKED, ROUNDED


def nonnegative_fit(columns: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Weights >= 0 that bring ``columns @ weights`` closest to ``target``; the best of two solvers, refined."""
    count = columns.shape[1]
    if count == 0:
        return np.zeros(0)
    candidates = [np.zeros(count)]
    with suppress(RuntimeError):  # too many steps
        candidates.append(scipy.optimize.nnls(columns, target, maxiter=20 * count + 100)[0])
    if not _is_best(columns, target, candidates[-1]):
        candidates.append(scipy.optimize.lsq_linear(columns, target, bounds=(0.0, np.inf), method="bvls", tol=1e-15).x)
    refined = [_refined(columns, target, weights) for weights in candidates]
    return min([*candidates, *refined], key=lambda weights: _error(columns, target, weights))


def _is_best(columns: np.ndarray, target: np.ndarray, weights: np.ndarray) -> bool:
    """Whether weights leave nothing, or nothing that columns can take: normal to those in use, away from the others."""
    left = target - columns @ weights
    error = float(np.linalg.norm(left))
    if error <= ROUNDED * float(np.linalg.norm(target)):
        return True
    slopes = columns.T @ left
    allowed = ASKED * error * np.linalg.norm(columns, axis=0)
    return bool(np.all(np.where(weights > 0.0, np.abs(slopes), slopes) <= allowed))


def _refined(columns: np.ndarray, target: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The plain fit over the columns in use; as it is where that asks for a negative weight."""
    used = weights > 0.0
    if not used.any():
        return weights
    fitted = np.linalg.lstsq(columns[:, used], target, rcond=None)[0]
    found = np.zeros_like(weights)
    found[used] = fitted
    return found if (found >= 0.0).all() else weights


def _error(columns: np.ndarray, target: np.ndarray, weights: np.ndarray) -> float:
    return float(np.linalg.norm(columns @ weights - target))


def lengths_of(rows: np.ndarray) -> np.ndarray:
    """Euclidean lengths of rows whose squares may be too large for numbers."""
    largest = np.max(np.abs(rows), axis=1, initial=0.0)
    unit = np.where(largest > 0.0, largest, 1.0)
    return np.asarray(largest * np.linalg.norm(rows / unit[:, None], axis=1))
