"""Features for every kernel, so that one linear problem serves all of them.

The follower's w lies in the span of the training samples, so coordinates in that span lose nothing: with the kernel
matrix K of the training samples, K = U diag(e) U', a sample z has the features k(z, training) U diag(e)^(-1/2).
Linear features stay as they are unless there are more of them than samples.

Sparse linear features are made dense only in those coordinates: n columns at most, and no column that is zero in every
training sample. Classifiers are given back as weights of the features themselves, so that prediction keeps them sparse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from blocc._lib.arrays import Float, Int, NDArray
from blocc._lib.rounding import ROUNDED, TINY

#: Eigenvalues below this share of the largest one are rounding, not features.
RANK_TOLERANCE = 1e-10
KERNELS = ("linear", "rbf", "poly", "precomputed")  #: scikit-learn's names
Kernel = Callable[[Any], Float[NDArray, "k n"]]  #: of samples with the training samples


@dataclass(frozen=True, eq=False)
class FeatureSpace:
    """Two ways to see samples: in few dense coordinates, to train; and as what a classifier's weights belong to."""

    kernel: Kernel | None = None  #: with the training samples; None: linear features
    basis: Float[NDArray, "n e"] | None = None  #: from kernels or features to coordinates; None: features are these
    samples: Any = None  #: sparse training samples, whose products with a sample the basis belongs to
    used: Int[NDArray, "e"] | None = None  #: the sparse features that are not zero in every training sample

    @classmethod
    def of_kernel(cls, samples: Any, kernel: Kernel, rank: int | None = None) -> FeatureSpace:
        """For a kernel with the training samples; with ``rank``, its leading directions only."""
        return cls(kernel, kernel_basis(kernel(samples), rank))

    @classmethod
    def linear(cls, samples: Any) -> FeatureSpace:
        """For linear features, dense or sparse."""
        n, d = samples.shape
        if issparse(samples):
            used = np.unique(samples.indices[samples.data != 0.0])
            if len(used) > n:
                return cls(basis=kernel_basis((samples @ samples.T).toarray()), samples=samples)
            return cls(used=used if len(used) else np.zeros(1, dtype=np.int64))
        if d <= n:
            return cls()
        _, size, directions = np.linalg.svd(samples, full_matrices=False)
        keep = size > ROUNDED * max(float(size[0]), TINY)
        keep[0] = True
        return cls(basis=directions[keep].T)

    def coordinates(self, X: Any) -> Float[NDArray, "k e"]:
        """Dense coordinates of samples."""
        if self.used is not None:
            X = X[:, self.used]
        seen = csr_array(X) @ self.samples.T if self.samples is not None else self.seen(X)
        dense = seen.toarray() if issparse(seen) else seen
        return np.asarray(dense if self.basis is None else dense @ self.basis)

    def seen(self, X: Any) -> Any:
        """Samples as prediction sees them: their features, dense or sparse, or kernels with the training samples."""
        return X if self.kernel is None else self.kernel(X)

    def weights(self, w: Float[NDArray, "e"], features: int) -> Float[NDArray, "_"]:
        """A classifier over what prediction sees, given over coordinates; there are so many linear features."""
        if self.used is not None:
            every = np.zeros(features)
            every[self.used] = w
            return every
        over = w if self.basis is None else self.basis @ w
        return over if self.samples is None else np.asarray(self.samples.T @ over)


def kernel_basis(matrix: Float[NDArray, "n n"], rank: int | None = None) -> Float[NDArray, "n e"]:
    """From kernels with the training samples to coordinates in their span."""
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    values, vectors = values[::-1], vectors[:, ::-1]
    keep = values > RANK_TOLERANCE * max(float(values[0]), TINY)
    if rank is not None:
        keep[rank:] = False
    if not keep.any():
        return np.zeros((len(matrix), 1))
    return np.asarray(vectors[:, keep] / np.sqrt(values[keep]))


def scale_gamma(samples: Any, gamma: Any) -> float:
    """scikit-learn's meaning of "scale", "auto" and numbers; samples may be sparse."""
    if gamma == "scale":
        variance = float(samples.multiply(samples).mean() - samples.mean() ** 2 if issparse(samples) else samples.var())
        return 1.0 / (samples.shape[1] * variance) if variance > 0.0 else 1.0
    if gamma == "auto":
        return 1.0 / samples.shape[1]
    return float(gamma)
