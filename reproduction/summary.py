"""Rows and what becomes of them: which rows count, means and spreads, numbers as the paper prints them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.studies.study import Row, select
from reproduction.item import RowsByStudy

NOTHING = "/"  #: what the paper prints where there is no figure


def finished(rows_by_study: RowsByStudy, study: str) -> list[Row]:
    """The rows of a study that were computed."""
    return [row for row in rows_by_study.get(study, ()) if row.get("status", "done") == "done"]


def is_complete(rows_by_study: RowsByStudy, *studies: str) -> bool:
    """Whether every one of these studies has rows and none of them failed."""
    return all(
        rows_by_study.get(study) and len(finished(rows_by_study, study)) == len(rows_by_study[study])
        for study in studies
    )


def column(rows: Iterable[Row], name: str) -> Float[NDArray, "rows"]:
    """One column as numbers; rows without a figure are left out."""
    return np.array([row[name] for row in rows if row.get(name) is not None], dtype=np.float64)


def values(rows: Sequence[Row], name: str) -> list[Any]:
    """The values that a parameter takes, in the order of their first appearance."""
    return list(dict.fromkeys(row[name] for row in rows))


def mean(rows: Iterable[Row], name: str) -> float:
    """Mean of a column; NaN where there is no row."""
    found = column(rows, name)
    return float(found.mean()) if len(found) else float("nan")


def spread(rows: Iterable[Row], name: str, digits: int = 4) -> str:
    """Mean and standard deviation, as ``1.7067 ± 0.0000``."""
    found = column(rows, name)
    if not len(found):
        return NOTHING
    return f"{found.mean():.{digits}f}" + (f" ± {found.std():.{digits}f}" if len(found) > 1 else "")


def short(rows: Iterable[Row], name: str) -> str:
    """The mean in three digits: for seconds, whose size is not known beforehand."""
    found = column(rows, name)
    return f"{found.mean():.3g}" if len(found) else NOTHING


def means_by(rows: Sequence[Row], parameter: str, name: str, **wanted: Any) -> dict[Any, float]:
    """Mean of a column for every value of a parameter, among the rows with the ``wanted`` values."""
    chosen = list(select(rows, **wanted))
    return {value: mean(select(chosen, **{parameter: value}), name) for value in values(chosen, parameter)}


def endings(rows: Iterable[Row], name: str = "ended") -> str:
    """How many runs ended in which way, as ``8 converged, 2 time limit``."""
    found: dict[str, int] = {}
    for row in rows:
        found[str(row[name])] = found.get(str(row[name]), 0) + 1
    return ", ".join(f"{count} {ending}" for ending, count in found.items()) or NOTHING


def together(*verdicts: bool | None) -> bool | None:
    """All of them: False if one is, else None if one is inconclusive."""
    if any(verdict is False for verdict in verdicts):
        return False
    return None if not verdicts or any(verdict is None for verdict in verdicts) else True


def listed(figures: Mapping[Any, float], digits: int = 3) -> str:
    """``2: 0.51, 3: 0.12``."""
    return ", ".join(f"{key}: {value:.{digits}g}" for key, value in figures.items())
