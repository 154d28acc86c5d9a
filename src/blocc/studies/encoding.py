"""Rows as text: JSON that keeps every bit of a float, with NaN and the infinities written explicitly.

JSON has no NaN. A number that is not finite becomes ``{"$float": "nan"}``, and a key that begins with a dollar gets
another one in front, so that no value can be mistaken for this. Python writes the shortest decimal that reads back as
the same double, and keeps the sign of zero.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

_MARK = "$float"


def plain(value: Any) -> Any:
    """A value with NumPy's and JAX's numbers and arrays replaced by Python's numbers and lists.

    :raises TypeError: where it holds anything that has no place in JSON
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)  # np.float64 is a float, too
    if isinstance(value, Mapping):
        strange = [key for key in value if not isinstance(key, str)]
        if strange:
            raise TypeError(f"keys must be strings, got {strange[0]!r}")
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        array = np.asarray(value)
        if array.dtype.kind in "biufU":
            return array.tolist()  # a number where the array has no axes
    raise TypeError(f"a row must hold numbers, texts, lists and dictionaries of these, got {type(value).__name__}")


def _marked(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {_MARK: repr(value)}
    if isinstance(value, dict):
        return {f"${key}" if key.startswith("$") else key: _marked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_marked(item) for item in value]
    return value


def _unmarked(value: dict[str, Any]) -> Any:
    if value.keys() == {_MARK}:
        return float(value[_MARK])
    return {key[1:] if key.startswith("$") else key: item for key, item in value.items()}


def encode(row: Mapping[str, Any]) -> str:
    """A row as text."""
    return json.dumps(_marked(plain(row)), allow_nan=False)


def decode(text: str) -> dict[str, Any]:
    """The row that :func:`encode` wrote."""
    row: dict[str, Any] = json.loads(text, object_hook=_unmarked)
    return row
