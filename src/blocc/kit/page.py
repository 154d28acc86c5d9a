"""Pages as data: a head and sections of blocks, out of one template; each page is one file that opens offline.

A page sends no request, and everything on it is escaped by the template. Style sheets and scripts are written into it.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from blocc._lib.files import write_file
from blocc._lib.version import __version__
from blocc.kit.charts import Figure
from blocc.kit.checks import CertificateRow, verdict
from blocc.kit.figure import DPI, PlotError
from blocc.kit.text import aligned, decimals, number, percent, sort_key, value_text
from blocc.result import Status

if TYPE_CHECKING:
    from jinja2 import Environment

_INCH = 96  #: pixels of a page
#: What a status looks like, where it is not a success and not a mere limit.
FAILURES = (Status.INFEASIBLE, Status.UNBOUNDED, Status.NOT_CONVEX, Status.NOT_FINITE)

KeyFigure = tuple[str, str, str]  #: a title, a value and a detail


class Cell(NamedTuple):
    """A cell of a table on a page."""

    text: str
    key: str | None = None  #: the number to sort by, empty where there is none; None for words
    exact: str = ""  #: the number in full
    style: str = ""  #: class of a cell of words


class PageTable(NamedTuple):
    """A table on a page, which can be sorted by a click on a heading."""

    name: str  #: its id
    headings: list[tuple[str, bool]]  #: titles, and whether the column holds numbers
    rows: list[list[Cell]]
    note: str = ""  #: what stands above it


class Block(NamedTuple):
    """A part of a section: the name of the macro that shows it (``assets/parts.html.j2``), and what it is given."""

    macro: str
    given: Mapping[str, Any]


@dataclass(frozen=True)
class Section:
    """A part of a page, with a heading, a sentence about it, and blocks."""

    name: str  #: its id
    title: str
    note: str = ""
    blocks: Sequence[Block] = ()
    is_long: bool = False  #: may be broken when it is printed
    is_alert: bool = False
    is_half: bool = False  #: stands beside the next one, which is a half too
    badge: str = ""
    colour: str = "warn"  #: of the badge


@dataclass(frozen=True)
class Page:
    """Everything on one page."""

    title: str  #: of the window
    heading: str
    kicker: str  #: a line above the heading
    state: str
    colour: str  #: of the state: good, warn or bad
    figures: Sequence[KeyFigure]
    sections: Sequence[Section]
    footer: str
    message: str = ""
    scripts: Sequence[str] = ()  #: files of ``assets``, run when the charts are drawn
    data: Mapping[str, Any] = field(default_factory=dict)  #: what these scripts read, by the ids of their elements
    contents: Sequence[tuple[str, str]] = ()  #: links to sections: their ids and words
    is_dense: bool = False  #: words of tables in one line, as a study's

    @property
    def has_charts(self) -> bool:
        """Whether plotly.js is needed."""
        return any(block.macro == "chart" for section in self.sections for block in section.blocks)

    def html(self) -> str:
        """The page as text."""
        plotly = plotly_script() if self.has_charts else ""
        return environment().get_template("page.html.j2").render(page=self, groups=self._groups(), plotly=plotly)

    def write(self, path: str | Path) -> Path:
        """Write the page and return its path; its folder is made where it is missing."""
        return write_file(path, self.html().encode(errors="replace"), PlotError)

    def _groups(self) -> list[list[Section]]:
        """Sections as they stand: alone, or two halves beside each other."""
        groups: list[list[Section]] = []
        for section in self.sections:
            if section.is_half and groups and groups[-1][-1].is_half and len(groups[-1]) == 1:
                groups[-1].append(section)
            else:
                groups.append([section])
        return groups


def answer_page(
    answer: Any,
    *,
    kind: str,
    name: str,
    kicker: str,
    figures: Sequence[KeyFigure],
    sections: Sequence[Section],
    checks: Sequence[CertificateRow],
    meanings: Mapping[str, str],
    measured: str,
    assumed: str,
    assumptions: Sequence[str],
    files: str,
    versions: Mapping[str, Any] | None = None,
    after: Sequence[Section] = (),
    heading: str = "",
    **more: Any,
) -> Page:
    """The page of an application's answer: its own sections, then certificate, assumptions, settings and versions.

    :param kind: what it is, in the title of the window
    :param measured: where the numbers of the certificate come from
    :param assumed: what every answer of the kind assumes
    :param files: which files have all figures
    :param after: sections below the certificate
    :param heading: the name, by default
    """
    status = answer.status
    return Page(
        title=f"{name}: {kind}",
        heading=heading or name,
        kicker=kicker,
        state=status.value,
        colour="good" if answer.success else "bad" if status in FAILURES else "warn",
        message=answer.message,
        figures=figures,
        sections=[
            *sections,
            Section(
                "certificate",
                "Certificate",
                f"These numbers prove, or disprove, that the answer is one. {measured}",
                [certificate(checks, meanings)],
            ),
            Section("assumptions", "What was assumed", assumed, [sentences(assumptions)]),
            *after,
            *facts_sections(answer.settings, answer.versions if versions is None else versions),
        ],
        footer=f"All figures are also in {files}.",
        **more,
    )


# --- blocks -------------------------------------------------------------------------------------------------------
def table(table: PageTable, words: str, first: str = "ascending", filter: str = "", cells: int | str = "") -> Block:
    """A table.

    :param words: what it holds, for those who do not see it
    :param first: the order of numbers at the first click
    :param filter: words in a field that filters its rows by their first ``cells`` cells
    """
    return Block("table", {"table": table, "words": words, "first": first, "filter": filter, "cells": cells})


def chart(name: str, figure: Figure, words: str, *, has_halo: bool = False) -> Block:
    """A chart; ``words`` say what it shows, for those who do not see it."""
    return Block("chart", {"name": name, "figure": figure, "words": words, "halo": has_halo})


def facts(facts: Mapping[str, Any]) -> Block:
    """Names and values."""
    return Block("facts", {"facts": facts})


def facts_sections(settings: Mapping[str, Any], versions: Mapping[str, Any]) -> list[Section]:
    """How an answer was computed, in two halves."""
    halves = (("settings", "Settings", settings), ("versions", "Versions", versions))
    return [Section(name, title, blocks=[facts(values)], is_half=True) for name, title, values in halves]


def certificate(checks: Sequence[CertificateRow], meanings: Mapping[str, str]) -> Block:
    """The verdict in words, and every number with its limit and meaning: open where not all of them hold."""
    rows = [(check, meanings[check.name]) for check in checks]
    all_pass = all(check.verdict in ("pass", "no limit") for check in checks)
    return Block("certificate", {"verdict": verdict(checks), "checks": rows, "all_pass": all_pass})


def sentences(lines: Sequence[str]) -> Block:
    """What was assumed when a file was read."""
    return Block("sentences", {"lines": lines})


def words(text: str, style: str = "note") -> Block:
    """A paragraph."""
    return Block("paragraph", {"text": text, "style": style})


def picture(image: Mapping[str, Any], words: str, caption: str = "") -> Block:
    """An embedded picture; ``words`` say what it shows."""
    return Block("picture", {"picture": image, "words": words, "caption": caption})


def folded(summary: str, blocks: Sequence[Block], *, is_open: bool = False) -> Block:
    """Blocks that a click on a line shows."""
    return Block("folded", {"summary": summary, "blocks": blocks, "open": is_open})


def key(title: str, samples: Sequence[tuple[str, str]], dotted: str = "") -> Block:
    """What widths of lines mean: widths and words; and what dotted lines do."""
    return Block("key", {"title": title, "samples": samples, "dotted": dotted})


def fragment(template: str, **given: Any) -> Block:
    """What one page alone has, out of a template of its own."""
    return Block("fragment", {"template": template, "given": given})


def embedded_picture(kind: str, image: bytes) -> dict[str, Any]:
    """A picture as data, with its width on the page where it is made of pixels."""
    across = int.from_bytes(image[16:20])  # from the header of a PNG file
    return {
        "source": f"data:image/{kind};base64,{base64.b64encode(image).decode()}",
        "width": round(across * _INCH / DPI) if kind == "png" else None,
    }


def flat_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Names and values; tables inside become entries of their own."""
    flat: dict[str, Any] = {}
    for key, value in facts.items():
        flat |= {f"{key}: {name}": part for name, part in value.items()} if isinstance(value, Mapping) else {key: value}
    return flat


# --- tables -------------------------------------------------------------------------------------------------------
def typed_table(name: str, kinds: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> PageTable:
    """A table whose columns are shown as "text", as "percent", or as numbers.

    Numbers of a column share their decimals; "exact" ones keep their own, "fine" ones show more digits.
    """
    columns = [_column(kind, [row[k] for row in rows]) for k, kind in enumerate(kinds.values())]
    cells = [list(row) for row in zip(*columns, strict=True)]
    return PageTable(name, [(title, kind != "text") for title, kind in kinds.items()], cells)


def record_table(name: str, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, tuple[str, str]]) -> PageTable:
    """The same of records: for each field its title and its kind."""
    return typed_table(name, dict(columns.values()), [[row[field] for field in columns] for row in rows])


def _column(kind: str, values: list[Any]) -> list[Cell]:
    if kind == "text":
        return [Cell(str(value)) for value in values]
    figures = [float(value) for value in values]
    if kind == "percent":
        shown = [percent(figure, 1) for figure in figures]
    elif kind == "exact":
        shown = [number(figure) for figure in figures]
    else:
        places = decimals(figures, 7 if kind == "fine" else 4)
        shown = [aligned(figure, places) for figure in figures]
    return [Cell(text, sort_key(figure)) for text, figure in zip(shown, figures, strict=True)]


# --- templates ----------------------------------------------------------------------------------------------------
@cache
def environment() -> Environment:
    """Where templates are found, and the filters that they use."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise PlotError("pages need jinja2: pip install 'blocc[plot]'") from error
    loader = PackageLoader("blocc.kit", "assets")
    found = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    found.filters |= {"number": number, "percent": percent, "value_text": value_text}
    found.globals["version"] = __version__
    found.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return found


@cache
def plotly_script() -> str:
    """plotly.js of the installed package, compressed and in base64: two fifths of its size, unpacked by the browser."""
    try:
        text = files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()
    except ModuleNotFoundError as error:
        raise PlotError("pages with charts need plotly: pip install 'blocc[plot]'") from error
    return base64.b64encode(gzip.compress(text, mtime=0)).decode()
