"""The TNTP files of the Transportation Networks for Research collection.

``NAME_net.tntp`` has the links, ``NAME_trips.tntp`` the demand and ``NAME_node.tntp`` (optional) the coordinates;
without it the nodes are placed on a circle, in the order of their numbers. Zones are the nodes with the lowest numbers.

``<FIRST THRU NODE>`` is the lowest number of a node that paths may pass. Free flow times of zero, which connectors of
zones have, are kept. Links have no names of their own; their numbers in the file tell parallel ones apart. A comment
that names the columns of links (``~ init node  term node  capacity ...``) tells their order; see ``tntp_columns``.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator
from pathlib import Path

from blocc.errors import ProblemError
from blocc.networks.checked_rows import PLACE, finite, identifier
from blocc.networks.readers.raw import (
    INVENTED,
    Complaints,
    Demand,
    RawNetwork,
    Row,
    check_rows,
    not_used,
    read_text,
)

SUFFIX = "_net.tntp"
#: What every link has, in the order of the format, and how many figures that is.
NEEDED = "init node, term node, capacity, length, free flow time"
LEAST = 5
#: Metadata that would change what a link costs.
FACTORS = ("TOLL FACTOR", "DISTANCE FACTOR")

#: Totals in metadata are rounded to this share.
_ROUNDED = 1e-3

_TAG = re.compile(r"<([^>]*)>([^~]*)")
_ORIGIN = re.compile(r"origin\b[\s:]*([^\s;:]*)[\s;:]*(.*)", flags=re.IGNORECASE)


def read_tntp(net: Path) -> RawNetwork:
    """The raw network of a ``NAME_net.tntp`` file and of the files beside it."""
    name = net.name[: -len(SUFFIX)] or "network"
    trips, node = (net.with_name(f"{net.name[: -len(SUFFIX)]}_{what}.tntp") for what in ("trips", "node"))
    links, tags, columns = _links(net, name)
    unused = [column for column in STANDARD if column in columns and column not in ("from", "to", "length", "time")]
    assumptions = not_used(["link type" if column == "type" else column for column in unused], net.name)
    if node.is_file():
        nodes = _nodes(node, name)
    else:
        nodes = _circle(net, tags, links)
        assumptions.append(f"{INVENTED}, on a circle in the order of the numbers, since there is no {node.name}.")
    first = _count(net, tags, "FIRST THRU NODE") or 0
    if first > 1:
        nodes = [{**row, "through": not _is_below(row["id"], first)} for row in nodes]
        closed = sum(not row["through"] for row in nodes)
        assumptions.append(f"Paths do not pass the {closed} nodes below number {first} (<FIRST THRU NODE>).")
    for tag in FACTORS:
        if finite(tags.get(tag, "")):
            assumptions.append(f"Not used: <{tag}> {tags[tag]}; a link costs its time alone.")
    raw = RawNetwork(
        name=name,
        nodes=nodes,
        links=links,
        markets=None,
        assumptions=assumptions,
        demand_expected=f"{trips.name} beside {net.name}",
    )
    if trips.is_file():
        raw.set_demand(_trips(trips, name), keep_zero=False)
    return raw


def _lines(path: Path, *, comments: bool = False) -> Iterator[tuple[str, str]]:
    """Lines that are not empty, nor comments unless they are wanted, each with its place."""
    for number, line in enumerate(io.StringIO(read_text(path), newline=None), 1):
        text = line.strip()
        if text and (comments or not text.startswith("~")):
            yield f"{path.name} line {number}", text


def _tag(text: str) -> tuple[str, str] | None:
    """Name and value of a line of metadata, however they are spaced and set apart."""
    match = _TAG.match(text)
    if match is None:
        return None
    name = " ".join(match[1].replace("_", " ").upper().split())
    return name.replace("THROUGH", "THRU"), match[2].strip(" \t:=;")


def _count(path: Path, tags: dict[str, str], tag: str) -> int | None:
    """A count among the metadata; None where it is missing.

    :raises ProblemError: where it is something else
    """
    if not (given := tags.get(tag, "")):
        return None
    number = finite(given)
    if number is None or number < 0 or number != int(number):
        wanted = "the number of a node" if tag == "FIRST THRU NODE" else "a count"
        raise ProblemError(f"{path.name}: <{tag}> must be {wanted}, got {given!r}")
    return int(number)


def _is_below(identity: object, first: int) -> bool:
    number = identifier(identity)
    return isinstance(number, int) and number < first


def _links(net: Path, name: str) -> tuple[list[Row], dict[str, str], tuple[str, ...]]:
    """The links, the metadata, and the columns that links have."""
    complaints = Complaints(name)
    rows: list[Row] = []
    tags: dict[str, str] = {}
    columns, width = STANDARD, 0
    for place, text in _lines(net, comments=True):
        if text.startswith("~"):
            columns = columns if rows else column_order(text, place) or columns
            continue
        tag = _tag(text)
        if tag is not None:
            tags[tag[0]] = tag[1]
            continue
        cells = text.partition(";")[0].split()
        if len(cells) < LEAST:
            complaints.add(place, f"has {len(cells)} figures; a link begins with {NEEDED}")
            continue
        width = width or len(cells)
        if len(cells) != width:  # a figure left out would move the others into wrong columns
            complaints.add(place, f"has {len(cells)} figures, but the first link has {width}")
            continue
        if columns[:width] != STANDARD[:width] and len(columns) != width:
            complaints.add(place, f"has {width} figures, but the heading names {len(columns)} columns")
            continue
        figures = {column: cell for column, cell in zip(columns, cells, strict=False) if column != "type"}
        rows.append({"link_id": len(rows) + 1, **figures, PLACE: place})
        check_rows(len(rows), net.name)
    complaints.raise_if_any()
    promised = _count(net, tags, "NUMBER OF LINKS")
    if promised is not None and promised != len(rows):
        raise ProblemError(f"{net.name}: <NUMBER OF LINKS> says {promised}, but there are {len(rows)}; is it complete?")
    return rows, tags, columns[:width]


def _nodes(path: Path, name: str) -> list[Row]:
    complaints = Complaints(name)
    rows: list[Row] = []
    headings = True
    for place, text in _lines(path):
        cells = text.partition(";")[0].split()
        first, headings = headings, False
        if _tag(text) is not None or (first and cells and cells[0].lower().startswith("node")):
            continue
        if len(cells) < 3:
            complaints.add(place, f"has {len(cells)} figures; a node has its number, x and y")
            continue
        rows.append({"id": cells[0], "x": cells[1], "y": cells[2], PLACE: place})
        check_rows(len(rows), path.name)
    complaints.raise_if_any()
    return rows


def _circle(net: Path, tags: dict[str, str], links: list[Row]) -> list[Row]:
    """Nodes on the unit circle: all that the metadata counts, otherwise those that links name."""
    count = _count(net, tags, "NUMBER OF NODES")
    if count is not None:
        check_rows(count, net.name)
        ids: list[int | str] = list(range(1, count + 1))
    else:
        ends = {identifier(row[column]) for row in links for column in ("from", "to")} - {None}
        ids = sorted((end for end in ends if end is not None), key=lambda end: (isinstance(end, str), end))
    angles = [2 * math.pi * position / max(len(ids), 1) for position in range(len(ids))]
    return [
        {"id": key, "x": math.cos(angle), "y": math.sin(angle), PLACE: f"{net.name} node {key}"}
        for key, angle in zip(ids, angles, strict=True)
    ]


def _trips(path: Path, name: str) -> Demand:
    complaints = Complaints(name)
    rows: list[Row] = []
    origin: str | None = None
    promised: float | None = None
    for place, text in _lines(path):
        tag = _tag(text)
        if tag is not None:
            promised = finite(tag[1]) if tag[0] == "TOTAL OD FLOW" else promised
            continue
        match = _ORIGIN.match(text)
        if match:  # trips may follow in the same line
            origin, text = match[1], match[2]
        for entry in text.split(";"):
            destination, colon, flow = entry.partition(":")
            if not entry.strip():
                continue
            if not colon:
                complaints.add(place, f"{entry.strip()!r:.60} is not 'destination : flow'")
            elif origin is None:
                complaints.add(place, "stands before the first line 'Origin NUMBER'")
            else:
                trips = {"origin": origin, "destination": destination.strip(), "demand": flow.strip(), PLACE: place}
                rows.append(trips)
        check_rows(len(rows), path.name)
    complaints.raise_if_any()
    total = sum(finite(row["demand"]) or 0.0 for row in rows)
    if promised is None or abs(total - promised) <= _ROUNDED * max(total, promised):
        return Demand(rows)
    return Demand(rows, (f"{path.name}: <TOTAL OD FLOW> says {promised:.6g}, but the trips add up to {total:.6g}.",))


#: The columns in the order of the format, by the names that rows have for them.
STANDARD: tuple[str, ...] = ("from", "to", "capacity", "length", "time", "b", "power", "speed", "toll", "type")
#: Without these a link cannot be read.
_NEEDED = STANDARD[:5]

#: What headings call them.
_WORDS = {
    "from": ("init node", "init", "initial node", "tail", "tail node", "from", "from node", "a node", "start node"),
    "to": ("term node", "term", "terminal node", "head", "head node", "to", "to node", "b node", "end node"),
    "capacity": ("capacity", "cap"),
    "length": ("length", "link length", "len", "distance"),
    "time": ("free flow time", "free flow travel time", "freeflow time", "fft", "fftt", "travel time", "time", "t0"),
    "b": ("b", "alpha"),
    "power": ("power", "beta"),
    "speed": ("speed limit", "speed", "free flow speed", "free speed"),
    "toll": ("toll",),
    "type": ("link type", "type"),
}
_MEANING = {tuple(words.split()): column for column, known in _WORDS.items() for words in known}
_LONGEST = max(map(len, _MEANING))


def column_order(comment: str, place: str) -> tuple[str, ...] | None:
    """The columns that a comment names, in its order; None where it is no heading.

    :raises ProblemError: for a heading in another order than the format's that cannot be understood
    """
    found, unknown = _columns(comment)
    known = [column for column in found if column]
    if not {"from", "to"} <= set(known) or len(known) < 4 or unknown > len(known):
        return None
    if tuple(known) == STANDARD[: len(known)] and all(found[: len(known)]):
        return STANDARD  # what is named is where the format has it; what follows is not used
    lacks = [column for column in _NEEDED if column not in known]
    if unknown or lacks or len(set(known)) < len(known):
        raise ProblemError(
            f"{place}: the columns {comment.strip('~; ')!r:.120} are neither in the format's order nor understood; "
            "name them init_node, term_node, capacity, length, free_flow_time, b, power, speed, toll, link_type"
        )
    return tuple(known)


def _columns(comment: str) -> tuple[list[str], int]:
    """The columns of a comment, the longest names first, "" for words that are none; and how many are none."""
    plain = re.sub(r"\([^)]*\)|\[[^]]*\]", " ", comment.lower())
    words = re.sub(r"[^a-z0-9.]+", " ", plain).split()
    found: list[str] = []
    at = 0
    while at < len(words):
        sizes = range(min(_LONGEST, len(words) - at), 0, -1)
        size = next((n for n in sizes if tuple(words[at : at + n]) in _MEANING), 0)
        found.append(_MEANING[tuple(words[at : at + size])] if size else "")
        at += max(size, 1)
    return found, found.count("")
