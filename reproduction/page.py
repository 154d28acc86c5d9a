"""docs/reproduce.md: the command writes its figures, tables and verdicts into it, between marks, item by item."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from blocc._lib.files import write_atomically
from blocc.report.format import markdown_text
from blocc.report.study.study_tables import VERDICTS, markdown_rows
from blocc.report.study.study_views import Findings, Observation
from reproduction.data_sets import CLONE
from reproduction.item import Item, Shown

PAGE = CLONE / "docs" / "reproduce.md"
SIZES = {False: "Full size", True: "Reduced size (`--quick`)"}


def marks(name: str) -> tuple[str, str]:
    """What stands before and after the figures of an item."""
    return f"<!-- {name} -->", f"<!-- /{name} -->"


def block(item: Item, findings: Findings, *, quick: bool) -> str:
    """What the page says about an item: the size, the tables that it shows, and every statement with its verdict."""
    begin, end = marks(item.name)
    command = f"`python -m reproduction {item.name}{' --quick' if quick else ''}`"
    parts = [f"{begin}\n{SIZES[quick]}, {command}.\n"]
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
    """All statements of one verdict, with their places; what does not hold has the figures that it rests on."""
    found = []
    for one in seen:
        if one.holds is verdict:
            place = one.source.removeprefix("the paper, ").partition(";")[0]
            measured = f": {one.measured}" if verdict is False and one.measured else ""
            found.append(markdown_text(f"{one.statement} ({place}){measured}" if place else one.statement + measured))
    return f"- **{VERDICTS[verdict].capitalize()}**: {'; '.join(found)}." if found else ""


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
