"""Arguments of applications, checked: each error names the argument, what it was and what would be right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.files import shown
from blocc.errors import OptionError

T = TypeVar("T")


def options_from(kind: type[T], given: Mapping[str, Any]) -> T:
    """Options, a dataclass, out of what was given by name."""
    known = [option.name for option in fields(kind) if option.init]  # type: ignore[arg-type]
    if unknown := [name for name in given if name not in known]:
        raise OptionError(f"unknown option {unknown[0]!r}; the options are {', '.join(known)}")
    return kind(**given)


def check_positive(name: str, value: Any, *, optional: bool = False, or_zero: bool = False) -> None:
    """Refuse what is no positive finite number."""
    if value is None and optional:
        return
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not is_number or not (0 < value < np.inf or (or_zero and value == 0)):
        raise OptionError(f"{name} must be a positive number{' or 0' if or_zero else ''}, got {value!r}")


def check_whole(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Refuse what is no whole number within its bounds."""
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_whole or value < least or (most is not None and value > most):
        bound = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise OptionError(f"{name} must be a whole number {bound}, got {value!r}")


def one_each(
    name: str, value: Any, count: int, what: str, *, above_zero: bool = False, finite: bool = True
) -> Float[NDArray, "n"]:
    """One nonnegative number for each of so many, given as such or as one for all.

    :param what: the many, such as "links"
    """
    try:
        spread = np.broadcast_to(np.asarray(value, dtype=float), (count,)).astype(float)
    except (TypeError, ValueError):
        spread = np.full(1, np.nan)
    wrong = np.isnan(spread) | (spread < 0.0) | ((spread == 0.0) & above_zero) | (np.isinf(spread) & finite)
    if wrong.any():
        limits = f"{'finite and ' if finite else ''}{'above 0' if above_zero else '>= 0'}"
        raise OptionError(
            f"{name} must be a number or one for each of the {count} {what}, {limits}; got {shown(value)}"
        )
    return spread
