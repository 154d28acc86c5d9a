"""Columns of a TNTP network file in the order that its heading names them.

The format fixes an order, and a comment above the links repeats it in words of its own: ``init_node``, ``Init node``,
``Tail``. A heading in another order is believed; one that cannot be understood is refused, because figures would be
read as something that they are not.
"""

from __future__ import annotations

import re

from blocc.errors import ProblemError

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
