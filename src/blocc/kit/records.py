"""Records as JSON values, and back again by the types of their fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import UnionType
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from blocc._lib.arrays import Float, NDArray

T = TypeVar("T")


class Step(NamedTuple):
    """One value on the way to an answer."""

    seconds: float
    start: int
    gamma: float  #: infinite where the value is exact
    value: float  #: of what is minimised


def picked(record: Any, *names: str) -> dict[str, Any]:
    """Fields of a record by their names."""
    return {name: getattr(record, name) for name in names}


def encoded(tree: Any) -> Any:
    """The same with named tuples as dictionaries and members of enumerations by their values."""
    if isinstance(tree, Enum):
        return tree.value
    if isinstance(tree, tuple) and hasattr(tree, "_asdict"):
        return encoded(tree._asdict())
    if isinstance(tree, Mapping):
        return {name: encoded(value) for name, value in tree.items()}
    return [encoded(value) for value in tree] if isinstance(tree, (list, tuple)) else tree


def decoded(kind: type[T], said: Mapping[str, Any], missing: Mapping[str, float] | None = None, **given: Any) -> T:
    """A record out of JSON values.

    :param missing: what null stands for in fields of these names; elsewhere it is NaN, and none is in arrays
    :param given: fields that are not said
    :raises KeyError: where a field is missing; TypeError or ValueError, where it is of another type
    """
    hints = get_type_hints(kind)
    written = {
        name: word for one in reversed(kind.__mro__) for name, word in getattr(one, "__annotations__", {}).items()
    }
    wanted = [one.name for one in fields(kind) if one.init] if is_dataclass(kind) else kind._fields  # type: ignore[attr-defined]
    told = {
        name: _value(hints[name], written[name], said[name], name, missing or {})
        for name in wanted
        if name not in given
    }
    return kind(**told, **given)


def number(value: Any, null: float = math.nan) -> float:
    """A figure; ``null`` for null."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise TypeError(f"{value!r:.60} is no number")
    return null if value is None else float(value)


def column(rows: Any, name: str) -> Float[NDArray, "rows"]:
    """A column of figures; NaN where there is none."""
    return np.array([number(row[name]) for row in rows], dtype=float)


def _value(kind: Any, word: Any, said: Any, name: str, missing: Mapping[str, float]) -> Any:
    """A value of a type; ``word`` is the type as it is written, which tells arrays of integers from others."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return None if said is None else _value(inner[0], word, said, name, missing)
    if kind is float:
        return number(said, missing.get(name, math.nan))
    if kind in (int, str, bool):
        if type(said) is not kind:
            raise TypeError(f"{name} is {said!r:.60}")
        return said
    if origin is dict:
        return {inner[0](key): _value(inner[1], None, value, name, missing) for key, value in said.items()}
    if origin is tuple:
        kinds = inner[:1] * len(said) if inner[1:] == (...,) else inner
        return tuple(_value(one, None, value, name, missing) for one, value in zip(kinds, said, strict=True))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(said)
    if is_dataclass(kind) or hasattr(kind, "_fields"):
        return decoded(kind, said, missing)
    return said if kind is Any else _array(word, said, name, missing)


def _array(word: Any, said: Any, name: str, missing: Mapping[str, float]) -> NDArray:
    found = np.array([number(value, missing.get(name, math.nan)) for value in said], dtype=float)
    if np.isnan(found).any():
        raise ValueError(f"{name} has gaps")
    return found.astype(int) if str(word).startswith("Int[") else found
