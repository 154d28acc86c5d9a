"""Leaving a compiled program for Python, with 64-bit numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax

from blocc._lib.arrays import PyTree


def call_back(run: Callable[..., PyTree], shapes: PyTree, *arguments: PyTree) -> PyTree:
    """``run(*arguments)``, a pure function of NumPy arrays that returns 64-bit floats of these shapes. Traceable.

    The thread that is called back does not know that 64-bit numbers are enabled, and would round them to 32 bits. So
    they travel as pairs of 32-bit words.
    """
    leaves, structure = jax.tree.flatten(arguments)
    wide = [leaf.dtype if leaf.dtype.itemsize == 8 else None for leaf in leaves]
    words = [
        lax.bitcast_convert_type(leaf, np.uint32) if kind else leaf for leaf, kind in zip(leaves, wide, strict=True)
    ]

    def host(words: list[Any]) -> PyTree:
        numbers = [
            np.ascontiguousarray(word).view(kind)[..., 0] if kind else np.asarray(word)
            for word, kind in zip(words, wide, strict=True)
        ]
        found = run(*jax.tree.unflatten(structure, numbers))
        return jax.tree.map(lambda leaf: np.array(leaf, np.float64)[..., None].view(np.uint32), found)

    pairs = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((*leaf.shape, 2), np.uint32), shapes)
    found = jax.pure_callback(host, pairs, words, vmap_method="sequential")
    return jax.tree.map(lambda pair: lax.bitcast_convert_type(pair, np.float64), found)
