"""Rows of the same parameters taken together: mean and standard deviation over the seeds."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from blocc.report.format import Spread
from blocc.report.study.study_views import StudyView, is_number


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
