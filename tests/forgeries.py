"""Forged copies of a saved document: every figure of it changed, one at a time, in every way that a forger might."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from blocc._lib.digests import digest
from blocc.kit.claims import Path, figures, is_below, name_of

CHANGES: dict[str, Callable[[Any], Any]] = {
    "half more": lambda value: 1.5 * value,
    "one more": lambda value: value + 1,
    "other sign": lambda value: -value,
    "zero": lambda value: 0 * value,
    "gap": lambda value: None,  # JSON has no NaN
}
#: Figures that differ by less, relative, are the same to verifiers that solve again.
SEEN = 1e-6
#: Figures that are zero up to rounding stay so.
ROUNDING = 1e-15


class Forgery(NamedTuple):
    """One changed figure."""

    name: str  #: of the figure: that of its column in a table
    label: str  #: which figure, and how it was changed
    document: dict[str, Any]  #: its digest is that of the unchanged document


def forgeries(document: Mapping[str, Any], unchecked: Mapping[str, str]) -> Iterator[Forgery]:
    """All of them, but those of figures that are named as unchecked."""
    places = [path for path, value in figures(document) if value is not None and not is_below(name_of(path), unchecked)]
    for path, after in zip(places, [*places[1:], *places[:1]], strict=True):
        value, other = _at(document, path), _at(document, after)
        changed = {"other": not value} if isinstance(value, bool) else {k: f(value) for k, f in CHANGES.items()}
        for how, new in changed.items():
            if new is None or abs(new - value) > ROUNDING:
                yield Forgery(name_of(path), f"{path}: {value} by {how}", _with(document, {path: new}))
        differ = not isinstance(value, bool) and not isinstance(other, bool)
        if differ and abs(value - other) > SEEN * (abs(value) + abs(other)) + ROUNDING:
            yield Forgery(name_of(path), f"{path} with {after}", _with(document, {path: other, after: value}))


def sealed_again(document: Mapping[str, Any]) -> dict[str, Any]:
    """What a forger writes who knows how digests are made."""
    return {**document, "sha256": digest(document)}


def _at(document: Any, path: Path) -> Any:
    for part in path:
        document = document[part]
    return document


def _with(document: Mapping[str, Any], values: Mapping[Path, Any]) -> dict[str, Any]:
    forged: dict[str, Any] = copy.deepcopy(dict(document))
    for path, value in values.items():
        _at(forged, path[:-1])[path[-1]] = value
    return forged
