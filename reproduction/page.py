"""docs/reproduce.md: the command writes its figures, tables and verdicts into it, between marks, item by item."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from blocc._lib.files import write_atomically
from blocc.kit.text import markdown_text
from blocc.report.study.study_tables import VERDICTS, markdown_rows
from blocc.report.study.study_views import Findings, Observation
from reproduction.data_sets import CLONE
from reproduction.item import Item, Shown
from reproduction.verdicts import OURS

PAGE = CLONE / "docs" / "reproduce.md"
QUICK = "Reduced size (`--quick`)."  #: above what is not at full size
_INTERVAL = re.compile(r" \[[^]]*\]")


def marks(name: str) -> tuple[str, str]:
    """What stands before and after the figures of an item."""
    return f"<!-- {name} -->", f"<!-- /{name} -->"


def block(item: Item, findings: Findings, *, quick: bool) -> str:
    """What the page says about an item: the size, the tables that it shows, and the statements by their verdicts."""
    begin, end = marks(item.name)
    parts = [f"{begin}\n{QUICK}\n" if quick else begin]
    parts += [table for shown in item.shown if (table := _table(findings, shown))]
    lists = [line for verdict in VERDICTS if (line := _statements(findings.observations, verdict))]
    return "\n".join([*parts, *lists, end])


def _table(findings: Findings, shown: Shown) -> str:
    rows = [row for row in findings.tables[shown.table].rows if shown.rows(row)]
    kept: list[Mapping[str, Any]] = [
        {title: row[heading] for heading, title in shown.columns.items() if heading in row} for row in rows
    ]
    return markdown_rows(kept) if kept else ""


def _statements(seen: Sequence[Observation], verdict: bool | None) -> str:
    """What has a verdict, by its place in the paper; what does not hold with its wording and the figures of it.

    Of our own statements only those are shown that do not hold. Intervals are left to the item's files.
    """
    found: dict[str, list[str]] = {}
    for one in seen:
        place = one.source.removeprefix("the paper, ").partition(";")[0]
        if one.holds is verdict and (verdict is False or place != OURS):
            figures = _INTERVAL.sub("", one.measured)
            found.setdefault(place, []).append(one.statement + (f" ({figures})" if figures else ""))
    if verdict is False:
        text = ". ".join(f"{place[:1].upper()}{place[1:]}: {'; '.join(told)}" for place, told in found.items())
    else:
        counts = {place: f" ({len(told)} statements)" if len(told) > 1 else "" for place, told in found.items()}
        text = "; ".join(place + count for place, count in counts.items())
    return f"- **{VERDICTS[verdict].capitalize()}**: {markdown_text(text)}." if found else ""


def with_blocks(text: str, blocks: Mapping[str, str]) -> str:
    """The page with these items' figures in the place of those that it had; other items keep theirs."""
    for name, new in blocks.items():
        begin, end = map(re.escape, marks(name))
        found = re.findall(f"{begin}.*?{end}", text, flags=re.DOTALL)
        if len(found) != 1:
            raise ValueError(f"the page must have the marks of {name} once, and has them {len(found)} times")
        text = text.replace(found[0], new)
    return text


def blocks_of(text: str, names: Sequence[str]) -> dict[str, str]:
    """The figures that a page has, by item."""
    found = {}
    for name in names:
        begin, end = map(re.escape, marks(name))
        match = re.search(f"{begin}.*?{end}", text, flags=re.DOTALL)
        if match is not None:
            found[name] = match.group()
    return found


def write_page(items: Mapping[str, tuple[Item, Findings]], *, quick: bool, path: Path = PAGE) -> Path:
    """Put the figures of these items into the page."""
    blocks = {name: block(item, findings, quick=quick) for name, (item, findings) in items.items()}
    write_atomically(path, with_blocks(path.read_text(encoding="utf-8"), blocks).encode())
    return path
