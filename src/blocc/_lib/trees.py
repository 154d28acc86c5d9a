"""Structures of arrays as one row of numbers."""

from __future__ import annotations

import jax
import numpy as np

from blocc._lib.arrays import Float, NDArray, PyTree


def flattened(tree: PyTree) -> Float[NDArray, " numbers"]:
    """All numbers of a structure, in the order of its leaves."""
    leaves = [np.asarray(leaf, dtype=np.float64).ravel() for leaf in jax.tree.leaves(tree)]
    return np.concatenate(leaves) if leaves else np.zeros(0)
