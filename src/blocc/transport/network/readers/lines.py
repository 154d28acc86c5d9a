"""Text files from outside: size and encoding checked, CSV rows with the line where each stands."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from pathlib import Path

from blocc._lib.files import read_limited
from blocc._lib.tables import csv_records
from blocc.errors import BloccError, ProblemError
from blocc.transport.network.checked_rows import PLACE, NetworkError

MAX_BYTES = 200 * 1024 * 1024
MAX_ROWS = 2_000_000
MAX_COMPLAINTS = 1000


class Complaints:
    """Sentences about lines that cannot be understood; each names its line."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[str] = []

    def add(self, place: str, what: str) -> None:
        """Note what is wrong with one line; a file that is wrong throughout is given up early."""
        self.lines.append(f"{place}: {what}")
        if len(self.lines) >= MAX_COMPLAINTS:
            self.raise_if_any()

    def raise_if_any(self) -> None:
        """Raise one error with all sentences."""
        if self.lines:
            raise NetworkError(self.name, self.lines)


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, with or without a byte order mark."""
    data = read_limited(path, MAX_BYTES, BloccError)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        raise ProblemError(
            f"{path.name} line {line}: byte 0x{byte:02x} is not UTF-8; save the file with the encoding UTF-8"
        ) from None


def check_rows(count: int, what: str) -> None:
    """Raise where a table is longer than the model could ever hold."""
    if count > MAX_ROWS:
        raise ProblemError(f"{what}: more than {MAX_ROWS:,} rows; choose a part of the network")


def read_csv(path: Path, columns: Mapping[str, tuple[str, ...]], required: Iterable[str]) -> list[dict[str, str]]:
    """Rows of a CSV file, with their places.

    :param columns: which headings (any of several) hold what the model calls by one name
    """
    complaints = Complaints(path.parent.name or path.name)
    records = csv_records(io.StringIO(read_text(path), newline=""), path.name, ProblemError)
    first = next(records, None)
    if first is None:
        raise ProblemError(f"{path.name} is empty; its first line must name the columns")
    header = [heading.strip().lower() for heading in first[1]]
    found = _positions(path.name, header, columns, required)
    rows: list[dict[str, str]] = []
    for line, cells in records:
        place = f"{path.name} line {line}"
        if len(cells) != len(header):
            complaints.add(place, f"has {len(cells)} cells, but the header names {len(header)} columns")
            continue
        rows.append({PLACE: place, **{name: cells[position].strip() for name, position in found.items()}})
        check_rows(len(rows), path.name)
    complaints.raise_if_any()
    return rows


def _positions(
    name: str, header: list[str], columns: Mapping[str, tuple[str, ...]], required: Iterable[str]
) -> dict[str, int]:
    """Where each column stands in the file."""
    known = {heading for headings in columns.values() for heading in headings}
    twice = sorted({heading for heading in header if heading in known and header.count(heading) > 1})
    if twice:
        raise ProblemError(f"{name} line 1: the column {twice[0]!r} occurs more than once; keep one of them")
    found: dict[str, int] = {}
    for column, headings in columns.items():
        present = [heading for heading in headings if heading in header]
        if present:
            found[column] = header.index(present[0])
    missing = [" or ".join(columns[column]) for column in required if column not in found]
    if missing:
        seen = ", ".join(heading[:40] or "(no name)" for heading in header[:30])
        hint = "; separate the cells by commas" if len(header) == 1 and (";" in seen or "\t" in seen) else ""
        raise ProblemError(f"{name} line 1: missing column {', '.join(missing)}; found: {seen}{hint}")
    return found
