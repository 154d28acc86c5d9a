"""A box whose bounds are data: one compiled program serves all of them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from blocc.sets import Box


class MovingBox(Box):
    """A box over flat vectors whose bounds are data: they may be traced, and which of them are finite is fixed."""

    def __init__(self, lower: Any, upper: Any, bounded: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
        # NumPy's arrays, or traced ones inside a compiled program.
        self.lower, self.upper, self._bounded = lower, upper, bounded
        self.size = len(bounded[0])
        self.template = np.zeros(self.size)

    def __repr__(self) -> str:
        return f"MovingBox(shape=({self.size},))"

    def bounds_flat(self) -> tuple[Any, Any]:
        return self.lower, self.upper

    def bounded_flat(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._bounded

    def project_flat(self, point: Any) -> Any:
        below, above, _ = self._bounded
        return super().project_flat(point) if below.any() or above.any() else jnp.asarray(point)

    def interior_flat(self) -> Any:
        if isinstance(self.lower, np.ndarray):
            return super().interior_flat()
        below, above, _ = self._bounded
        if not (below.any() or above.any()):
            return np.zeros(self.size)
        low, high = jnp.where(below, self.lower, 0.0), jnp.where(above, self.upper, 0.0)
        cases = [below & above, below, above]
        return jnp.select(cases, [low + 0.5 * (high - low), low + 1.0, high - 1.0], default=0.0)
