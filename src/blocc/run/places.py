"""Where the starts of one call have ended: what is known about a place need not be found out twice."""

from __future__ import annotations

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.result import Result

#: Points that differ by less than this, relative to their size, are one place.
SAME_PLACE = 1e-4


def same_place(one: Float[NDArray, "n_x"], other: Float[NDArray, "n_x"]) -> bool:
    """Whether two points are one place."""
    size = 1.0 + float(np.max(np.abs(one), initial=0.0))
    return bool(np.max(np.abs(one - other), initial=0.0) <= SAME_PLACE * size)


class Places:
    """Ends of descents with the results that came of them."""

    def __init__(self) -> None:
        self._known: list[tuple[np.ndarray, Result]] = []

    def find(self, x: Float[NDArray, "n_x"]) -> Result | None:
        """What came of an earlier descent that ended at x."""
        return next((result for place, result in self._known if same_place(x, place)), None)

    def add(self, x: Float[NDArray, "n_x"], result: Result) -> None:
        """Remember what came of a descent that ended at x."""
        self._known.append((np.array(x), result))
