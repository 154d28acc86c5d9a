"""Types of arrays, with their shapes: ``Float[Array, "n_y"]`` is a vector of floats with an entry for each of y.

They come from jaxtyping, for type checkers and where it is loaded already: the tests install its import hook, which
checks every annotation. Elsewhere the shapes are dropped and nothing else changes, so that the numerics need NumPy,
SciPy and JAX alone, and no program waits for jaxtyping.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

Array = jax.Array
NDArray = np.ndarray
#: Where NumPy's arrays and JAX's may stand alike.
AnyArray = jax.Array | np.ndarray
#: Nested containers of arrays; only a problem knows which.
PyTree = Any

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    from jaxtyping import Bool, Float, Int
else:

    class _Unshaped:
        """Stands for a type with a shape: ``Float[Array, "n"]`` is ``Array``."""

        def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
            return item[0]

    Bool = Float = Int = _Unshaped

__all__ = ["AnyArray", "Array", "Bool", "Float", "Int", "NDArray", "PyTree"]
