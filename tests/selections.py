"""Parameters of tests of which only some are tried in every run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def few(values: Iterable[Any], *chosen: Any) -> list[Any]:
    """All the values, those that are not chosen marked slow: where each is compiled anew, the time adds up."""
    values = list(values)
    assert set(chosen) <= set(values), "a chosen value is not among the values"
    slow = {value: value if isinstance(value, tuple) else (value,) for value in values if value not in chosen}
    return [pytest.param(*slow[value], marks=pytest.mark.slow) if value in slow else value for value in values]
