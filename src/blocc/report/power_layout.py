"""Where the buses of a diagram stand: cases have no coordinates, so distances along lines are laid out on a plane."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse import csgraph

from blocc._lib.arrays import Float, NDArray
from blocc.power.case import PowerCase

_ROUNDS = 150
#: What every page and picture says about the places of buses.
SAID = "The file has no coordinates: buses are placed so that distances on paper follow the number of lines between."


def places(case: PowerCase) -> Float[NDArray, " buses 2"]:
    """Places on a plane whose distances follow the number of lines between buses (stress majorisation)."""
    n = case.n_buses
    if n == 1:
        return np.zeros((1, 2))
    ends = (case.line_from, case.line_to)
    graph = sp.csr_array((np.ones(case.n_lines), ends), shape=(n, n))
    distance = csgraph.shortest_path(graph, directed=False, unweighted=True)
    weight = np.where(distance > 0.0, 1.0 / np.maximum(distance, 1.0) ** 2, 0.0)
    points = _projected(distance)
    laplacian = np.diag(weight.sum(axis=1)) - weight
    inverse = np.linalg.pinv(laplacian)
    for _ in range(_ROUNDS):
        apart = np.linalg.norm(points[:, None] - points[None], axis=2)
        ratio = np.where(apart > 1e-9, weight * distance / np.maximum(apart, 1e-9), 0.0)
        points = inverse @ ((np.diag(ratio.sum(axis=1)) - ratio) @ points)
    return _turned(points)


def _projected(distance: Float[NDArray, " n n"]) -> Float[NDArray, " n 2"]:
    """Classical scaling: the two main directions of the distances, moved a little where buses coincide."""
    squared = distance**2
    centred = squared - squared.mean(axis=0) - squared.mean(axis=1)[:, None] + squared.mean()
    values, vectors = np.linalg.eigh(-0.5 * centred)
    found = vectors[:, [-1, -2]] * np.sqrt(np.maximum(values[[-1, -2]], 1e-6))
    found *= np.where(found[np.argmax(np.abs(found), axis=0), [0, 1]] < 0.0, -1.0, 1.0)
    return found + 0.05 * np.random.default_rng(0).standard_normal(found.shape)


def _turned(points: Float[NDArray, " n 2"]) -> Float[NDArray, " n 2"]:
    """The same with its longest direction across."""
    centred = points - points.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    return centred @ axes[:, ::-1]
