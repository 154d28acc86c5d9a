"""One page about a comparison of methods, complete in itself: it opens from a disk, offline, and sends no request."""

from __future__ import annotations

from blocc.methods.compare import Comparison, MethodRow, cells, legend_of
from blocc.report.format import number
from blocc.report.page import Cell, PageTable, embedded_picture, render
from blocc.run.conclude import versions

_WORDS = 2  #: columns of words in the printed table: the method and how it ended


def comparison_page(comparison: Comparison, picture: bytes) -> str:
    """The page as text; ``picture`` is that of the comparison, as a PNG file."""
    ended = sum(row.success for row in comparison.entries)
    return render(
        "comparison.html.j2",
        comparison=comparison,
        colour="good" if ended else "warn",
        state=_state(comparison, ended),
        figures=_key_figures(comparison, ended),
        table=_table(comparison),
        authors=_authors(comparison),
        picture=embedded_picture("png", picture),
        words=_alternative(comparison),
        legend="; ".join(legend_of(comparison)),
        versions=versions(),
    )


def _state(comparison: Comparison, ended: int) -> str:
    told = f"{ended} of {len(comparison)} converged"
    return f"{told}, interrupted" if comparison.interrupted else told


def _key_figures(comparison: Comparison, ended: int) -> list[tuple[str, str, str]]:
    """Each with its title, its value and a detail."""
    best, tried = comparison.best, sum(row.applies for row in comparison.entries)
    quickest = min((row for row in comparison.entries if row.success), key=lambda row: row.run_seconds, default=None)
    found = [
        ("Methods", number(len(comparison)), f"{tried} apply to this problem"),
        ("Converged", number(ended), "with a certificate"),
    ]
    if best is not None:
        found.append(("Best value of f", number(best.upper_value, 7), f"by {best.method}"))
    if quickest is not None:
        found.append(
            ("Quickest success", f"{number(quickest.run_seconds, 3)} s", f"{quickest.method}, compilation aside")
        )
    return found


def _table(comparison: Comparison) -> PageTable:
    """The printed table; numbers are sorted by what they are, words as they stand."""
    head, *body = [[text.strip() for text in row] for row in cells(comparison)]
    rows = [
        [Cell(text) if place < _WORDS else Cell(text, _key(text)) for place, text in enumerate(row)] for row in body
    ]
    return PageTable("methods-table", [(title, place >= _WORDS) for place, title in enumerate(head)], rows)


def _key(text: str) -> str:
    """The number in a cell, without its star and its parentheses; empty where there is none."""
    bare = text.strip(" *()").replace("=0", "0")
    try:
        return repr(float(bare))
    except ValueError:
        return ""


def _authors(comparison: Comparison) -> PageTable:
    rows = [[Cell(row.method), Cell(row.title), Cell(_told(row), style="long")] for row in comparison.entries]
    return PageTable("authors-table", [("Method", False), ("Published", False), ("It said", False)], rows)


def _told(row: MethodRow) -> str:
    return row.why_not or row.message


def _alternative(comparison: Comparison) -> str:
    """What the picture shows, in a sentence for those who do not see it."""
    ends = [
        f"{row.method} {row.status}, f {number(row.upper_value, 5)} after {number(row.run_seconds, 3)} s"
        for row in comparison.entries
        if row.result is not None
    ]
    return "Values of f and distances against time. Ends: " + ("; ".join(ends) or "none") + "."
