"""HTML pages out of the templates in ``assets``: one file each, that opens offline and sends no request.

Everything that a template shows is escaped, unless it is :class:`markupsafe.Markup`. Style sheets and scripts are
written into the page.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from blocc._lib.files import write_file
from blocc._lib.version import __version__
from blocc.report.figure import DPI, PlotError
from blocc.report.format import number, percent, value_text

if TYPE_CHECKING:
    from jinja2 import Environment


_INCH = 96  #: pixels of a page


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


@cache
def environment() -> Environment:
    """Where templates are found, and the filters that they use."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise PlotError("pages need jinja2: pip install 'blocc[plot]'") from error
    loader = PackageLoader("blocc.report", "assets")
    found = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    found.filters |= {"number": number, "percent": percent, "value_text": value_text}
    found.globals["version"] = __version__
    found.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return found


def render(template: str, **content: Any) -> str:
    """A page as text."""
    return environment().get_template(template).render(content)


@cache
def plotly_script() -> str:
    """plotly.js of the installed package, compressed and in base64: two fifths of its size, unpacked by the browser."""
    try:
        text = files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()
    except ModuleNotFoundError as error:
        raise PlotError("pages with charts need plotly: pip install 'blocc[plot]'") from error
    return base64.b64encode(gzip.compress(text, mtime=0)).decode()


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


def write_html(text: str, path: str | Path) -> Path:
    """Write a page and return its path; its folder is made where it is missing."""
    return write_file(path, text.encode(errors="replace"), PlotError)
