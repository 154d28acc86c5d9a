"""Which of two tracks is the better one, also where one ended at no number."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from blocc.outer.continuation import _rank


def ended(value: float) -> Any:
    return SimpleNamespace(evaluation=SimpleNamespace(usable=True, upper_value=value))


def test_no_number_is_the_worst_of_all_values() -> None:
    tolerances: Any = SimpleNamespace(
        origin=0.0,
        tolerance=1e-6,
        scale=lambda _: 1.0,
        stationary=lambda _: True,
        exact=lambda _: True,
        admissible=lambda _: True,
    )
    values = [-np.inf, -1.0, 2.0, np.inf]
    ranks = [_rank(ended(value), tolerances) for value in values]
    assert ranks == sorted(ranks)
    assert _rank(ended(np.nan), tolerances) == ranks[-1]
