"""What readers share: text files checked, CSV rows with the line of each, and what a reader hands over.

That is rows as the file has them, each with its place, and without what the file leaves out.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from blocc._lib.files import read_limited
from blocc._lib.tables import csv_records
from blocc.errors import BloccError, ProblemError
from blocc.networks.checked_rows import PLACE, NetworkError, Table, finite, identifier, raise_if_any
from blocc.networks.model import NO_UNITS, NodeId, Units

MAX_BYTES = 200 * 1024 * 1024
MAX_ROWS = 2_000_000
MAX_COMPLAINTS = 1000
#: Headings of a file of coordinates.
COORDINATES = {
    "id": ("node_id", "id", "node"),
    "x": ("x_coord", "x", "lon", "longitude"),
    "y": ("y_coord", "y", "lat", "latitude"),
}
#: How the sentence about coordinates begins that no file has.
INVENTED = "Invented: coordinates"
#: How a sentence begins about what a file holds and nobody uses.
NOT_USED = "Not used:"
#: Figures that many files have and the model has no place for, by the beginning of their headings, and why.
_NOT_IN_THE_MODEL = {
    ("capacity", "lanes"): "capacities of roads that exist do not limit a design",
    ("b", "power", "vdf", "bpr", "alpha", "beta"): "times do not grow with the flow",
    ("toll",): "nobody pays a toll",
}


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


class CsvTable(NamedTuple):
    """Rows of a CSV file, with their places, and the headings of columns with text in them that are not among them."""

    rows: list[dict[str, str]]
    unused: list[str]


def read_csv(path: Path, columns: Mapping[str, tuple[str, ...]], required: Iterable[str]) -> CsvTable:
    """Read a CSV file.

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
    unused = set(range(len(header))) - set(found.values())
    filled: set[int] = set()
    for line, cells in records:
        place = f"{path.name} line {line}"
        if len(cells) != len(header):
            complaints.add(place, f"has {len(cells)} cells, but the header names {len(header)} columns")
            continue
        rows.append({PLACE: place, **{name: cells[position].strip() for name, position in found.items()}})
        filled.update(position for position in unused if cells[position].strip())
        check_rows(len(rows), path.name)
    complaints.raise_if_any()
    return CsvTable(rows, [header[position] for position in sorted(filled) if header[position]])


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


def not_used(columns: Sequence[str], file: str) -> list[str]:
    """A sentence about columns that are not read, and what that means; none where there are none."""
    if not columns:
        return []
    because = [
        why
        for words, why in _NOT_IN_THE_MODEL.items()
        if any(column == word or column.startswith((word + "_", word + " ")) for column in columns for word in words)
    ]
    reasons = f" ({', '.join(because)})" if because else ""
    return [f"{NOT_USED} {', '.join(columns)} of {file}{reasons}."]


Row = Mapping[str, Any]


class Demand(NamedTuple):
    """Rows of origin, destination and demand (perhaps also revenue and alternative_time)."""

    rows: Sequence[Row]
    assumptions: tuple[str, ...] = ()


@dataclass
class RawNetwork:
    """Rows that an application makes a network of.

    Links may lack ``cost``, and ``time`` where they have ``length`` and ``free_speed``; markets may lack ``revenue``
    and ``alternative_time``.
    """

    name: str
    nodes: Sequence[Row]
    links: Sequence[Row]
    markets: Sequence[Row] | None  #: None: the file says nothing about demand
    zones: Mapping[NodeId, NodeId] | None = None  #: node of each zone; None: demand names nodes
    zones_from: str = "the nodes"  #: the file that has the zones
    start_range: Any = None
    notes: str = ""
    assumptions: list[str] = field(default_factory=list)
    crs: str = ""
    says_coordinates: bool = False  #: whether the file itself says if they are longitude and latitude
    units: Units = NO_UNITS
    of_demand: list[str] = field(default_factory=list)  #: those of the assumptions that speak of the markets
    demand_expected: str = "a table of markets"  #: where the demand would have been found

    def set_demand(self, demand: Demand, *, keep_zero: bool) -> None:
        """Take these markets: zones become nodes; trips within a node, and perhaps pairs without any, are dropped.

        Revenue and alternative time of a pair that the network already had stay as they were.
        """
        rows = demand.rows if self.zones is None else self._at_nodes(demand)
        known = {_pair(row): row for row in self.markets or ()}
        kept: list[Row] = []
        within, count = 0.0, 0
        for row in rows:
            amount = finite(row.get("demand"))
            origin, destination = _pair(row)
            if amount is not None and amount >= 0 and origin is not None and origin == destination:
                within, count = within + amount, count + 1
            elif amount != 0 or keep_zero:
                kept.append({**known.get((origin, destination), {}), **row})
        self.markets = kept
        told = list(demand.assumptions)
        if within:
            rows_are = "1 row holds" if count == 1 else f"{count} rows hold"
            told.append(f"Dropped: demand {within:.6g} within a node ({rows_are} it).")
        # What was said of demand that is replaced holds no longer.
        self.assumptions = [each for each in self.assumptions if each not in self.of_demand] + told
        self.of_demand = told

    def set_coordinates(self, path: Path) -> None:
        """Take the coordinates of all nodes from a CSV file with node_id, and x and y (or longitude and latitude)."""
        rows = read_csv(path, COORDINATES, ("id", "x", "y")).rows
        table = Table("nodes", self.nodes)
        found = {identifier(row["id"]): row for row in rows}
        placed: list[Row] = []
        for position, node in enumerate(self.nodes):
            place = found.get(identifier(node.get("id")))
            if place is None:
                table.complain(position, "id", f"has no row in {path.name}")
                continue
            rest = {key: value for key, value in node.items() if key not in ("x", "y", "lon", "lat", PLACE)}
            placed.append({**rest, "x": place["x"], "y": place["y"], PLACE: place[PLACE]})
        raise_if_any(self.name, (table,))
        self.nodes, self.crs, self.says_coordinates = placed, "", False
        self.assumptions = [line for line in self.assumptions if not line.startswith(INVENTED)]
        self.assumptions.append(f"Coordinates: {path.name}.")

    def _at_nodes(self, demand: Demand) -> list[Row]:
        zones = self.zones or {}
        table = Table("markets", demand.rows)
        moved: list[Row] = []
        for position, row in enumerate(demand.rows):
            ends: dict[str, NodeId | None] = {}
            for column in ("origin", "destination"):
                zone = identifier(row.get(column))
                ends[column] = None if zone is None else zones.get(zone)
                if ends[column] is None:
                    table.complain(position, column, f"is not a zone: no row of {self.zones_from} has this zone_id")
            moved.append({**row, **ends})
        raise_if_any(self.name, (table,))
        return moved


def _pair(row: Row) -> tuple[NodeId | None, NodeId | None]:
    return identifier(row.get("origin")), identifier(row.get("destination"))
