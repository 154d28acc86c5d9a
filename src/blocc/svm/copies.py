"""Copies of a sample as one sample with their weights together, and a split that keeps copies on one side.

Both make a weight mean what it says: a sample of weight 3 is the same as three copies, bit by bit, in any order. And a
validation set that held copies of training samples would reward the classifier for what it has memorised.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.model_selection import train_test_split

from blocc._lib.arrays import Float, Int, NDArray

Indices = Int[NDArray, "_"]


@dataclass(frozen=True, eq=False)
class Distinct:
    """The distinct ones among some samples, in an order that depends on what they hold alone."""

    first: Indices  #: for each distinct sample, where it occurs first
    copy_of: Indices  #: for each sample, which of the distinct ones it is

    @classmethod
    def of(cls, X: Any, codes: Indices) -> Distinct:
        """Samples are the same where features and class are; X is dense or in compressed rows."""
        keys = [code.tobytes() + row for code, row in zip(codes, _row_bytes(X), strict=True)]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        first: list[int] = []
        copy_of = np.empty(len(keys), dtype=np.int64)
        for index in order:
            if not first or keys[index] != keys[first[-1]]:
                first.append(index)
            copy_of[index] = len(first) - 1
        return cls(np.array(first, dtype=np.int64), copy_of)

    @classmethod
    def all(cls, count: int) -> Distinct:
        """Every sample for itself."""
        return cls(np.arange(count), np.arange(count))

    def total(self, weight: Float[NDArray, "n"]) -> Float[NDArray, "distinct"]:
        """What the copies weigh together."""
        # Added in the order of size, so that the sum depends on nothing else.
        order = np.argsort(weight, kind="stable")
        return np.bincount(self.copy_of[order], weights=weight[order], minlength=len(self.first))

    def share(self, values: Float[NDArray, "distinct"], weight: Float[NDArray, "n"]) -> Float[NDArray, "n"]:
        """Values of the distinct samples, divided among their copies by weight."""
        return (values / self.total(weight))[self.copy_of] * weight


def _row_bytes(X: Any) -> list[bytes]:
    """A key for each row, the same for dense and sparse tables: places and values of what is not zero."""
    rows = csr_array(X)
    if issparse(X):
        rows = rows.copy()
        rows.sum_duplicates()
        rows.eliminate_zeros()
    places = rows.indices.astype(np.int64)
    return [places[begin:end].tobytes() + rows.data[begin:end].tobytes() for begin, end in pairwise(rows.indptr)]


def split_distinct(
    distinct: Distinct, codes: Indices, fraction: float, generator: Any
) -> tuple[Int[NDArray, "train"], Int[NDArray, "held_out"]]:
    """Set a stratified part of the samples aside; a class with a single distinct sample stays in the training set."""
    classes, counts = np.unique(codes[distinct.first], return_counts=True)
    common = classes[counts > 1]
    pool = np.flatnonzero(np.isin(codes[distinct.first], common))
    if len(distinct.first) < 4 or not len(common):
        raise ValueError(
            "BilevelSVC needs at least 4 different samples to set a validation part aside, got n_samples = "
            f"{len(codes)}, {len(distinct.first)} of them different; or give X_val and y_val"
        )
    size = round(len(distinct.first) * fraction)
    size = min(max(size, 2, len(common)), len(pool) - len(common))
    _, aside = train_test_split(
        pool, test_size=max(size, 1), stratify=codes[distinct.first][pool], random_state=generator
    )
    held_out = np.isin(distinct.copy_of, aside)
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)
