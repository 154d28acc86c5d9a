"""Rows from outside, checked column by column: every complaint names its table, its row and what would be right."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from blocc._lib.arrays import Bool, Float, Int, NDArray
from blocc._lib.files import shown
from blocc.errors import ProblemError

#: The entry of a row that says where it stands, such as "link.csv line 7".
PLACE = "(place)"
SHOWN = 20
LONGEST_INTEGER = 30
#: No figure of a network is larger than this; sums of such figures, and products of two, keep all their digits.
LARGEST = 1e12
TRUE, FALSE = ("1", "true", "yes", "t", "y"), ("0", "false", "no", "f", "n")


class NetworkError(ProblemError):
    """Entries of a network are wrong; ``complaints`` holds one sentence for each, the message the first of them.

    ``columns`` are words in them that mean a column of the table even where an option has the same name.
    """

    columns = ("existing_capacity", "min_capacity", "max_capacity")

    def __init__(self, name: str, complaints: Sequence[str]) -> None:
        more = f"\n  and {len(complaints) - SHOWN} more" if len(complaints) > SHOWN else ""
        count = "1 entry is wrong" if len(complaints) == 1 else f"{len(complaints)} entries are wrong"
        super().__init__(f"network {name!r}: {count}\n  " + "\n  ".join(complaints[:SHOWN]) + more)
        self.name, self.complaints = name, tuple(complaints)


class Table:
    """Rows of one table, with the complaints about them; a row without a place is known by its number."""

    def __init__(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        self.name, self.data = name, list(rows)
        self.places = [row.get(PLACE, f"{name} row {n}") for n, row in enumerate(self.data, 1)]
        self.complaints: list[tuple[int, str]] = []

    def complain(self, row: int, column: str, what: str) -> None:
        """Note what is wrong with one cell."""
        value = self.data[row].get(column) if row < len(self.data) else None
        self.complaints.append((row, f"{self.places[row]}: {column} {shown(value)} {what}"))

    def lines(self) -> list[str]:
        """The complaints in the order of their rows."""
        return [line for _, line in sorted(self.complaints)]

    def at_least(self, count: int) -> None:
        """Complain where the table has too few rows."""
        if len(self.data) < count:
            self.complaints.append((-1, f"{self.name}: needs at least {count} rows, has {len(self.data)}"))

    def identifiers(self, column: str) -> list[int | str]:
        """A column of distinct integers or non-empty texts."""
        seen: dict[int | str, int] = {}
        found: list[int | str] = []
        for row, record in enumerate(self.data):
            value = identifier(record.get(column))
            if value is None:
                self.complain(row, column, "is not an id: it must be an integer or a text that is not empty")
                found.append(f"?{row}")
                continue
            if value in seen:
                self.complain(row, column, f"is a duplicate of {self.places[seen[value]]}")
            seen.setdefault(value, row)
            found.append(value)
        return found

    def references(self, column: str, index: Mapping[int | str, int]) -> Int[NDArray, "rows"]:
        """A column of ids of nodes, as positions; -1 where the node is unknown."""
        positions = np.full(len(self.data), -1)
        for row, record in enumerate(self.data):
            value = identifier(record.get(column))
            if value is None or value not in index:
                self.complain(row, column, "is not the id of a node")
            else:
                positions[row] = index[value]
        return positions

    def distinct(
        self,
        columns: tuple[str, str],
        first: Int[NDArray, "rows"],
        second: Int[NDArray, "rows"],
        *,
        both: str,
        told_apart_by: str = "",
    ) -> None:
        """Complain about pairs that occur twice and about pairs of equal nodes (``both`` says what such a pair is).

        :param told_apart_by: a column; rows of one pair are different where they differ in it
        """
        seen: dict[tuple[Any, ...], int] = {}
        for row, pair in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
            if -1 in pair:
                continue
            own = (*pair, identifier(self.data[row].get(told_apart_by)))
            if pair[0] == pair[1]:
                self.complain(row, columns[1], f"makes {both}; remove the row")
            elif own in seen:
                hint = f"; give each {told_apart_by} of its own if both exist" if told_apart_by else ""
                again = f"to {self.data[row][columns[1]]!r} repeats {self.places[seen[own]]}{hint}"
                self.complain(row, columns[0], again)
            seen.setdefault(own, row)

    def named_once(self, column: str, tail: Int[NDArray, "rows"], head: Int[NDArray, "rows"]) -> None:
        """Complain about names that occur twice, but for the two directions of one link."""
        seen: dict[int | str, list[int]] = {}
        for row, record in enumerate(self.data):
            name = identifier(record.get(column))
            if name is None:
                continue
            others = seen.setdefault(name, [])
            is_way_back = len(others) == 1 and (tail[others[0]], head[others[0]]) == (head[row], tail[row])
            # A repeated pair of ends has been complained about already.
            is_same = any((tail[other], head[other]) == (tail[row], head[row]) for other in others)
            if others and not is_way_back and not is_same:
                self.complain(row, column, f"is a duplicate of {self.places[others[0]]}: give each link its own")
            others.append(row)

    def numbers(self, columns: Sequence[str], least: float | None = None) -> Float[NDArray, "rows columns"]:
        """Columns of finite numbers, not below ``least``."""
        values = np.zeros((len(self.data), len(columns)))
        for row in range(len(self.data)):
            for position, column in enumerate(columns):
                values[row, position] = self.number(row, column, least)
        return values

    def number(self, row: int, column: str, least: float | None = None) -> float:
        """One finite number, not below ``least``; 0 where there is a complaint instead."""
        value = self.data[row].get(column)
        if is_blank(value):
            self.complain(row, column, "is missing: it must be a number")
            return 0.0
        number = finite(value)
        if number is None:
            self.complain(row, column, "is not a finite number")
            return 0.0
        if least is not None and number < least:
            self.complain(row, column, f"is below {least:g}")
        if abs(number) > LARGEST:
            self.complain(row, column, f"is beyond {LARGEST:g}; choose a larger unit")
        return number

    def optional(self, column: str, default: float, least: float | None = None) -> Float[NDArray, "rows"]:
        """A column of numbers that may be missing, as a whole or in some rows."""
        blank = [is_blank(record.get(column)) for record in self.data]
        return np.array([default if blank[row] else self.number(row, column, least) for row in range(len(blank))])

    def values(self, column: str, read: Callable[[Any], Any], what: str) -> list[Any]:
        """A column of anything that ``read`` understands (None where it does not); None where a cell is empty."""
        found = []
        for row, record in enumerate(self.data):
            blank = is_blank(record.get(column))
            found.append(None if blank else read(record[column]))
            if not blank and found[-1] is None:
                self.complain(row, column, what)
        return found

    def switches(self, column: str, default: bool) -> Bool[NDArray, "rows"]:
        """A column of true and false (or 1 and 0, yes and no) that may be missing."""
        values = np.full(len(self.data), default)
        for row, record in enumerate(self.data):
            word = str(record.get(column, "")).strip().lower().removesuffix(".0")
            if word in TRUE or word in FALSE:
                values[row] = word in TRUE
            elif not is_blank(record.get(column)):
                self.complain(row, column, "must be true or false")
        return values

    def between(self, column: str, values: Float[NDArray, "rows"], least: float, most: float) -> None:
        """Complain about values outside a range."""
        for row in np.flatnonzero((values < least) | (values > most)):
            self.complain(int(row), column, f"must lie between {least:g} and {most:g}")


def identifier(value: Any) -> int | str | None:
    """An id: an integer (also as a whole float, or as text like "7") or a text; None where it is neither."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return int(value) if math.isfinite(value) and float(value).is_integer() else None
    if not isinstance(value, str):
        return None
    text = value.strip()
    # "007" is a name, not the number 7; so are digits without end, which Python would refuse to convert.
    if len(text) <= LONGEST_INTEGER and text.removeprefix("-").isdecimal() and str(int(text)) == text:
        return int(text)
    return text or None


def is_blank(value: Any) -> bool:
    """Whether a cell holds nothing."""
    return value is None or (isinstance(value, str) and not value.strip())


def finite(value: Any) -> float | None:
    """A finite number, also as text; None where it is none."""
    if isinstance(value, bool) or (isinstance(value, str) and "_" in value):  # Python's "1_000" is no figure in a file
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def raise_if_any(name: str, tables: Iterable[Table]) -> None:
    """Raise one error with the complaints of all tables, in the order of their rows."""
    lines = [line for table in tables for line in table.lines()]
    if lines:
        raise NetworkError(name, lines)
