"""One page about a comparison of methods, complete in itself: it opens from a disk, offline, and sends no request."""

from __future__ import annotations

from blocc.kit.page import (
    Cell,
    KeyFigure,
    Page,
    PageTable,
    Section,
    embedded_picture,
    facts_sections,
    table,
)
from blocc.kit.page import picture as picture_block
from blocc.kit.text import number
from blocc.methods.compare import Comparison, cells, legend_of
from blocc.run.conclude import versions

_WORDS = 2  #: columns of words in the printed table: the method and how it ended


def comparison_page(comparison: Comparison, picture: bytes) -> str:
    """The page as text; ``picture`` is that of the comparison, as a PNG file."""
    ended = sum(row.success for row in comparison.entries)
    title = "Every method from the same start"
    note = (
        "A star marks the best values; a value in parentheses is not that of a feasible answer. f is evaluated at the "
        "follower’s exact answer; gap, violation and distance are those of the method’s own y. "
        f"{'; '.join(legend_of(comparison))}."
    )
    ways = "f and the distance of the method’s own y against time, and where each method ended."
    said = "Who published each, and what it said at its end."
    return Page(
        title=f"{comparison.name}: comparison of methods",
        heading=comparison.name,
        kicker="Comparison of methods",
        state=_state(comparison, ended),
        colour="good" if ended else "warn",
        figures=_key_figures(comparison, ended),
        sections=[
            Section("methods", title, note, [table(_table(comparison), title)], is_long=True),
            Section(
                "picture",
                "The way of each method",
                ways,
                [picture_block(embedded_picture("png", picture), _alternative(comparison))],
            ),
            Section("authors", "The methods", said, [table(_authors(comparison), "The methods")], is_long=True),
            *facts_sections(comparison.settings, versions()),
        ],
        footer="All figures are also in comparison.csv and comparison.json.",
        is_dense=True,
    ).html()


def _state(comparison: Comparison, ended: int) -> str:
    told = f"{ended} of {len(comparison)} converged"
    return f"{told}, interrupted" if comparison.interrupted else told


def _key_figures(comparison: Comparison, ended: int) -> list[KeyFigure]:
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
    rows = [
        [Cell(row.method), Cell(row.title), Cell(row.why_not or row.message, style="long")]
        for row in comparison.entries
    ]
    return PageTable("authors-table", [("Method", False), ("Published", False), ("It said", False)], rows)


def _alternative(comparison: Comparison) -> str:
    """What the picture shows, in a sentence for those who do not see it."""
    ends = [
        f"{row.method} {row.status}, f {number(row.upper_value, 5)} after {number(row.run_seconds, 3)} s"
        for row in comparison.entries
        if row.result is not None
    ]
    return "Values of f and distances against time. Ends: " + ("; ".join(ends) or "none") + "."
