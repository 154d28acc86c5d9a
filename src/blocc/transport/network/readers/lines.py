"""Text files from outside: size and encoding checked, CSV rows with the line where each stands."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from blocc.errors import BloccError, ProblemError
from blocc.transport.network.checked_rows import NetworkError

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


class CsvTable(NamedTuple):
    """Rows of a CSV file under the names that the model uses."""

    rows: list[dict[str, str]]
    places: list[str]  #: "link.csv line 7"
    columns: frozenset[str]  #: which of the names the file has


def check_file(path: Path) -> None:
    """Raise where a path is not a file of reasonable size."""
    try:
        if not path.is_file():
            raise BloccError(f"there is no file {path}")
        size = path.stat().st_size
    except (OSError, ValueError) as error:
        raise BloccError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if size > MAX_BYTES:
        raise BloccError(f"{path} has {size / 2**20:.0f} MB; files up to {MAX_BYTES / 2**20:.0f} MB are read")


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, with or without a byte order mark."""
    check_file(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BloccError(f"cannot read {path}: {error.strerror or error}") from error
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


def read_csv(path: Path, columns: Mapping[str, tuple[str, ...]], required: Iterable[str]) -> CsvTable:
    """Rows of a CSV file; ``columns`` says which headings (any of several) hold what the model calls by one name."""
    text = read_text(path)
    complaints = Complaints(path.parent.name or path.name)
    records = _records(path.name, text)
    first = next(records, None)
    if first is None:
        raise ProblemError(f"{path.name} is empty; its first line must name the columns")
    header = [heading.strip().lower() for heading in first[1]]
    found = _positions(path.name, header, columns, required)
    rows: list[dict[str, str]] = []
    places: list[str] = []
    for line, cells in records:
        place = f"{path.name} line {line}"
        if len(cells) != len(header):
            complaints.add(place, f"has {len(cells)} cells, but the header names {len(header)} columns")
            continue
        rows.append({name: cells[position].strip() for name, position in found.items()})
        places.append(place)
        check_rows(len(rows), path.name)
    complaints.raise_if_any()
    return CsvTable(rows, places, frozenset(found))


def _records(name: str, text: str) -> Iterator[tuple[int, list[str]]]:
    """Records with the line where each begins; quoted cells may span lines, and empty lines are skipped."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise ProblemError(f"{name} line {line}: not CSV as it should be: {error}") from None


def _positions(
    name: str, header: list[str], columns: Mapping[str, tuple[str, ...]], required: Iterable[str]
) -> dict[str, int]:
    """Where each column stands in the file."""
    wanted = {heading for headings in columns.values() for heading in headings}
    twice = sorted({heading for heading in header if heading in wanted and header.count(heading) > 1})
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
