"""What an item of the paper is: the studies that compute it, and the tables their rows become."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from blocc.studies.study import Row, Study


@dataclass(frozen=True)
class Table:
    """A table to print: plain values by heading; every row has the same headings."""

    title: str
    rows: Sequence[Mapping[str, Any]]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Observation:
    """A statement of the paper, and whether the rows bear it out."""

    statement: str
    holds: bool | None  #: None: the rows cannot tell, because cells failed or are missing
    measured: str = ""  #: the figures it rests on


@dataclass(frozen=True)
class Findings:
    """What the rows of an item's studies say."""

    tables: Sequence[Table]
    observations: Sequence[Observation] = ()


@dataclass(frozen=True)
class Item:
    """One table or figure of the paper, reproducible at full or at reduced size.

    :param studies: called with True for the reduced size
    :param conclude: called with the rows of all studies, by their names. A row holds the cell's parameters, the
        function's columns, ``status`` ("done" or "failed") and ``error``; failed rows lack the function's columns
    :param seconds: expected on two cores, reduced and full
    """

    name: str
    title: str
    studies: Callable[[bool], Sequence[Study]]
    conclude: Callable[[Mapping[str, Sequence[Row]]], Findings]
    seconds: tuple[float, float]
    needs: Sequence[str] = field(default_factory=tuple)  #: data sets that must be present, by name
