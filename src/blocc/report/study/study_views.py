"""What a report is made of: studies with the rows they have so far, and items: tables, observations and pictures.

A study that is still running can be read from its store, too.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from blocc.kit.text import Spread
from blocc.studies.engine import rows_of
from blocc.studies.locking import exclusive
from blocc.studies.store import Store, StoredStudy
from blocc.studies.study import SEED, Row, Study, StudyError

DONE, FAILED = "done", "failed"
#: Columns that say how a cell went, beside its parameters and what the function returned.
STATUS, ERROR = "status", "error"


@dataclass(frozen=True)
class StudyView:
    """A study and its rows so far.

    :param rows: of the cells that are done or failed, each with its parameters, ``status`` and ``error``
    :param shown: columns to draw and to average; every numeric one where none is named
    :param running: whether more of them are being computed now
    """

    study: Study
    rows: Sequence[Row]
    shown: Sequence[str] = ()
    running: bool = False

    @cached_property
    def total(self) -> int:
        """How many cells there are."""
        return len(self.study.cells())

    @property
    def done(self) -> list[Row]:
        """Rows of the cells that were computed."""
        return [row for row in self.rows if row.get(STATUS, DONE) == DONE]

    @property
    def failed(self) -> list[Row]:
        """Rows of the cells that failed; they hold parameters and the error."""
        return [row for row in self.rows if row.get(STATUS) == FAILED]

    @property
    def missing(self) -> int:
        """How many cells were not tried yet."""
        return max(self.total - len(self.done) - len(self.failed), 0)

    @property
    def parameters(self) -> list[str]:
        """Parameters that tell the cells apart: those of the grid, and the seed."""
        return [*self.study.grid, SEED]

    @property
    def columns(self) -> list[str]:
        """Columns that the function returned, those to be shown first."""
        known = {*self.parameters, *self.study.fixed, STATUS, ERROR}
        found = dict.fromkeys(key for row in self.done for key in row if key not in known)
        return [*(key for key in self.shown if key in found), *(key for key in found if key not in self.shown)]

    @property
    def drawn(self) -> list[str]:
        """Columns to draw: those named, where they hold numbers; or else the first that do."""
        numeric = [key for key in self.columns if any(is_number(row.get(key)) for row in self.done)]
        return [key for key in self.shown if key in numeric] or numeric[:MOST_DRAWN]


MOST_DRAWN = 6


@dataclass(frozen=True)
class Table:
    """A table to print: plain values by heading; every row has the same headings."""

    title: str
    rows: Sequence[Mapping[str, Any]]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Observation:
    """A statement, and whether the rows bear it out."""

    statement: str
    holds: bool | None  #: None: the rows cannot tell: cells failed or are missing, or they are too few
    measured: str = ""  #: the figures it rests on
    source: str = ""  #: who states it, and where


@dataclass(frozen=True)
class Findings:
    """What the rows of some studies say."""

    tables: Sequence[Table]
    observations: Sequence[Observation] = ()


@dataclass(frozen=True)
class ItemView:
    """What the rows of some studies say, under one title, with pictures (the content of PNG files, by name).

    ``documents`` are further files, by their names: the same pictures for print.
    """

    name: str
    title: str
    findings: Findings | None = None
    pictures: Mapping[str, bytes] = field(default_factory=dict)
    skipped: str = ""  #: why there are no findings
    trouble: str = ""  #: what went wrong with the pictures
    notice: str = ""  #: what a reader must know before any figure, such as that sizes are reduced
    documents: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """Everything on one page."""

    title: str
    studies: Sequence[StudyView]
    items: Sequence[ItemView] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)  #: machine and versions

    @property
    def done(self) -> int:
        """Cells of all studies that were computed."""
        return sum(len(view.done) for view in self.studies)

    @property
    def failed(self) -> int:
        """Cells of all studies that failed."""
        return sum(len(view.failed) for view in self.studies)

    @property
    def total(self) -> int:
        """Cells of all studies."""
        return sum(view.total for view in self.studies)

    @property
    def missing(self) -> int:
        """Cells of all studies that were not tried yet."""
        return sum(view.missing for view in self.studies)

    @property
    def running(self) -> bool:
        """Whether any study is being computed now."""
        return any(view.running for view in self.studies)


def seconds_of(row: Row) -> float:
    """The computing time of a row; 0 where it is unknown, or where a store from outside holds something else."""
    value: Any = row.get("seconds")
    return float(value) if is_number(value) and abs(value) < 1e15 else 0.0


def is_number(value: Any) -> bool:
    """Whether a value can be drawn and averaged; true and false count as 1 and 0."""
    return isinstance(value, bool | int | float)


class Group(NamedTuple):
    """The rows that differ in their seeds alone."""

    parameters: dict[str, Any]  #: of the grid
    rows: list[Any]

    def spread(self, column: str) -> Spread:
        """Of a column over the seeds."""
        return spread([row.get(column) for row in self.rows])


def groups(view: StudyView) -> list[Group]:
    """The computed rows, one group for each point of the grid, in its order."""
    found: dict[str, Group] = {}
    for row in view.done:
        point = {key: row.get(key) for key in view.study.grid}
        found.setdefault(json.dumps(point, sort_keys=True, default=str), Group(point, [])).rows.append(row)
    return list(found.values())


def spread(values: Sequence[Any]) -> Spread:
    """Mean and sample deviation of the numbers among ``values``."""
    numbers = [float(value) for value in values if is_number(value) and math.isfinite(value)]
    if not numbers:
        return Spread(math.nan, math.nan, 0)
    mean = statistics.fmean(numbers)
    return Spread(mean, statistics.stdev(numbers) if len(numbers) > 1 else 0.0, len(numbers))


def summary_rows(view: StudyView) -> list[dict[str, Any]]:
    """One row for each point of the grid: how many seeds, and the spread of each column to be shown.

    Where there is one seed only, a number stands for itself.
    """
    several = len(view.study.seeds) > 1
    rows = []
    for group in groups(view):
        found = {column: group.spread(column) for column in view.drawn}
        values = {column: value if several else value.mean for column, value in found.items()}
        rows.append({**group.parameters, **({"seeds": len(group.rows)} if several else {}), **values})
    return rows


def read_report(
    path: str | Path,
    title: str = "",
    *,
    shown: Mapping[str, Sequence[str]] | None = None,
    items: Sequence[ItemView] = (),
) -> Report:
    """Every study of a store with its rows so far.

    :param title: heads the page; by default the name of the only study, or of the store's folder
    :param shown: columns to draw, by the name of the study
    """
    file = Path(path)
    columns = shown or {}
    with Store(file, read_only=True) as store:
        stored = store.studies()
        busy = is_running(file)
        views = [
            StudyView(
                entry.study,
                rows_of(entry.study, store, version=entry.version),
                columns.get(entry.study.name, ()),
                busy and entry.ended is None,
            )
            for entry in stored
        ]
    only = views[0].study.name if len(views) == 1 else file.resolve().parent.name
    return Report(title or only, views, items, _facts(stored))


def is_running(store: Path) -> bool:
    """Whether some program is running a study in this store now."""
    if not store.with_name(f"{store.name}.lock").exists():
        return False
    try:
        with exclusive(store, "somebody"):
            return False
    except StudyError:
        return True


def _facts(stored: Sequence[StoredStudy]) -> dict[str, Any]:
    """How and where the newest of the studies was run."""
    if not stored:
        return {}
    newest = max(stored, key=lambda entry: entry.started)
    names = {"machine": "machine", "packages": "version"}
    return {names.get(key, key): value for key, value in newest.settings.items()}
