"""Bilevel problems with known answers, from the literature and in closed form.

They are for judging solvers: each comes with the optimal value, the answer where it is unique, and starting points
from which a descent method should reach it. ``known_problems()`` lists them all and ``known_problem(name)`` fetches
one; nothing is built before the first call.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache

from blocc.errors import OptionError
from blocc.problems.textbook.entry import TAGS, KnownProblem

__all__ = ["TAGS", "KnownProblem", "known_problem", "known_problems"]


@cache
def known_problems() -> tuple[KnownProblem, ...]:
    """All problems, small ones first. Built on the first call and kept."""
    from blocc.problems.textbook import coupled, curved, degenerate, large, roads, smooth

    families = (smooth, coupled, curved, degenerate, roads, large)
    return tuple(entry for family in families for entry in family.PROBLEMS)


@cache
def _by_name() -> dict[str, KnownProblem]:
    return {entry.name: entry for entry in known_problems()}


def known_problem(name: str) -> KnownProblem:
    """The problem called ``name``."""
    entries = _by_name()
    if name in entries:
        return entries[name]
    close = get_close_matches(str(name), entries, n=3, cutoff=0.4) or sorted(entries)
    raise OptionError(f"name {name!r} is not in the collection; did you mean one of: {', '.join(close)}?")
