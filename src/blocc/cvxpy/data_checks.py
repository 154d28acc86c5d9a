"""Numbers that users wrote into a problem of CVXPY's: real and finite, or an error that says where not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import cvxpy as cp
import numpy as np

from blocc.cvxpy.expressions import shown
from blocc.errors import ProblemError

_COMPLEX = ("complex", "imag", "hermitian")


def check_real(leaves: Iterable[cp.Variable | cp.Parameter], what: str) -> None:
    """Refuse complex variables and parameters: CVXPY takes them apart, and then nobody finds them again."""
    for one in leaves:
        kind = next((name for name in _COMPLEX if one.attributes.get(name)), None)
        if kind is not None:
            raise ProblemError(
                f"{what}: {one.name()} has the attribute {kind}; write its real and its imaginary part as two real ones"
            )


def check_constants(parts: Iterable[tuple[str, Any]]) -> None:
    """Refuse constants that are no finite numbers, in objectives and constraints that have a name in errors."""
    for name, part in parts:
        for one in part.constants():
            _check(one.value, lambda name=name, part=part: f"{name}: {shown(part)} has a constant")


def check_parameters(parameters: Iterable[cp.Parameter]) -> None:
    """The same for the values of parameters that are no decisions; one without a value is another error's."""
    for one in parameters:
        if one.value is not None:
            _check(one.value, lambda one=one: f"the parameter {one.name()} has a value")


def _check(value: Any, where: Any) -> None:
    entries = np.asarray(value.data if hasattr(value, "tocsr") else value)
    if np.isfinite(entries).all():
        return
    if np.isnan(entries).any():
        raise ProblemError(f"{where()} that is NaN; it must be finite")
    raise ProblemError(f"{where()} that is infinite; it must be finite: leave out limits that are none")
