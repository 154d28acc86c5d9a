"""Features for every kernel, so that one linear problem serves all of them.

The follower's w lies in the span of the training samples, so coordinates in that span lose nothing: with the kernel
matrix K of the training samples, K = U diag(e) U', a sample z has the features k(z, training) U diag(e)^(-1/2).
Linear features stay as they are unless there are more of them than samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from blocc._lib.arrays import Float, NDArray

#: Eigenvalues below this share of the largest one are rounding, not features.
RANK_TOLERANCE = 1e-10
KERNELS = ("linear", "rbf", "poly", "precomputed")  #: scikit-learn's names


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """Coordinates in the span of the training samples: features = similarities @ basis (basis None: unchanged)."""

    basis: Float[NDArray, "n e"] | None

    @classmethod
    def of_kernel(cls, matrix: Float[NDArray, "n n"], rank: int | None = None) -> FeatureMap:
        """From the kernel matrix of the training samples; with ``rank``, its leading directions only."""
        values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
        values, vectors = values[::-1], vectors[:, ::-1]
        keep = values > RANK_TOLERANCE * max(float(values[0]), 1e-300)
        if rank is not None:
            keep[rank:] = False
        if not keep.any():
            return cls(np.zeros((len(matrix), 1)))
        return cls(vectors[:, keep] / np.sqrt(values[keep]))

    @classmethod
    def of_samples(cls, samples: Float[NDArray, "n d"]) -> FeatureMap:
        """From linear features: a change only where there are more features than samples."""
        n, d = samples.shape
        if d <= n:
            return cls(None)
        _, size, directions = np.linalg.svd(samples, full_matrices=False)
        keep = size > 1e-12 * max(float(size[0]), 1e-300)
        keep[0] = True
        return cls(directions[keep].T)

    def __call__(self, similarities: Float[NDArray, "k n"]) -> Float[NDArray, "k e"]:
        """Features of samples, given their linear features or their kernels with the training samples."""
        return similarities if self.basis is None else similarities @ self.basis

    def back(self, w: Float[NDArray, "e"]) -> Float[NDArray, "n"]:
        """Weights over the linear features, or over the training samples."""
        return w if self.basis is None else self.basis @ w


def scale_gamma(samples: Float[NDArray, "n d"], gamma: Any) -> float:
    """scikit-learn's meaning of "scale", "auto" and numbers."""
    if gamma == "scale":
        variance = float(samples.var())
        return 1.0 / (samples.shape[1] * variance) if variance > 0.0 else 1.0
    if gamma == "auto":
        return 1.0 / samples.shape[1]
    return float(gamma)
