"""Numbers, names and values as text for people, alike in tables, pictures and pages."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_MOST_PARTS = 8  #: of a list
#: What stands in a table where there is no number.
_GAPS = (None, "", "/", "-", "–")
#: A number in words, perhaps with its deviation.
_NUMBER = re.compile(r"(-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)(?: ± \S+)?")

#: What Markdown reads as markup: anywhere in a line, or at its beginning.
_MARKUP = re.compile(r"[\\`*\[\]{}~|$^]|(?<!\w)_|_(?!\w)|:(?=//)|^[#=>]|^[-+](?=\s|$|[-+])|^\d+[.)](?=\s|$)")


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of so many numbers; NaN where there is none."""

    mean: float
    deviation: float
    count: int


def number(value: object, digits: int = 4) -> str:
    """A number with a few digits and groups of thousands, a dash where there is none."""
    if isinstance(value, (bool, str)) or value is None:
        return "–" if value is None else str(value)
    number = float(value)  # type: ignore[arg-type]
    if math.isnan(number):
        return "–"
    if math.isinf(number):
        return "∞" if number > 0 else "−∞"
    if number == 0:
        return "0"
    size = abs(number)
    if size < 1e-3 or size >= 1e9:
        text = f"{number:.1e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
    else:
        places = max(digits - 1 - math.floor(math.log10(size)), 0)
        text = f"{number:,.{places}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    return text.replace("-", "−", 1) if number < 0 else text


def decimals(column: list[float], digits: int) -> int:
    """How many decimals a column of numbers needs so that its largest shows about ``digits`` digits."""
    finite = [abs(value) for value in column if math.isfinite(value)]
    if all(value == int(value) for value in finite):
        return 0
    return min(max(digits - 1 - math.floor(math.log10(max(finite))), 0), 6)


def aligned(value: float, places: int) -> str:
    """A number with as many decimals as the others of its column, unless nothing of it would be left."""
    if not math.isfinite(value) or 0 < abs(value) < 0.5 * 10.0**-places:
        return number(value)
    return f"{value:,.{places}f}".replace("-", "−", 1)


def sort_key(value: float | None) -> str:
    """The number by which a page sorts a cell; empty where there is none."""
    if value is None or math.isnan(value):
        return ""
    return f"{value:.12g}".replace("inf", "Infinity")


def percent(part: float | None, places: int | None = None) -> str:
    """A part of one as a percentage, with one decimal where it has one (or always ``places``)."""
    if part is None or not math.isfinite(part):
        return "–"
    return f"{100 * part:.{places}f} %" if places is not None else f"{100 * part:.1f} %".replace(".0 %", " %")


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 120:
        return f"{number(seconds, 3)} s"
    return f"{number(seconds / 60, 3)} min" if seconds < 7200 else f"{number(seconds / 3600, 3)} h"


def visible(text: str) -> str:
    """Text with spaces for control and format characters: they show nothing, and a PDF cannot hold all of them."""
    return "".join(letter if unicodedata.category(letter)[0] != "C" else " " for letter in text)


def shortened(text: str, most: int = 28) -> str:
    """A label that fits: the middle goes, since names often differ at their end ("Station 12", "Station 13")."""
    text = " ".join(visible(text).split())
    if len(text) <= most:
        return text
    tail = max((most - 1) // 3, 1)
    return text[: most - 1 - tail].rstrip() + "…" + text[-tail:].lstrip()


def value_text(value: Any, digits: int = 5) -> str:
    """Any value; nothing where there is none."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value, digits)
    if isinstance(value, Spread):
        return number(value.mean, digits) + (f" ± {number(value.deviation, 3)}" if value.count > 1 else "")
    if isinstance(value, list | tuple):
        few = [value_text(part, digits) or "–" for part in value[:_MOST_PARTS]]
        more = f", … {len(value)} in all" if len(value) > _MOST_PARTS else ""
        return "[" + ", ".join(few) + more + "]"
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict) else str(value)


def number_of(value: Any) -> float | None:
    """The number that a value is or shows, such as 0.5 for "0.500 ± 0.012"; None for anything else."""
    if isinstance(value, Spread):
        return value.mean
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    found = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    return None if found is None else float(found[1].replace(",", ""))


def is_numeric(rows: Sequence[Mapping[str, Any]], key: str) -> bool:
    """Whether a column holds numbers and nothing else; a gap in a table of words is no word."""
    values = [row.get(key) for row in rows if row.get(key) not in _GAPS]
    return bool(values) and all(number_of(value) is not None for value in values)


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    """A table in Markdown; ``right`` says which columns are aligned to the right."""
    rule = ["---:" if aside else "---" for aside in right]
    lines = [rule if line is rule else [markdown_text(cell) for cell in line] for line in (headings, rule, *rows)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def markdown_text(text: str) -> str:
    """Words that stay words in Markdown, and in one line: no emphasis, link, picture, code, tag or heading."""
    words = _MARKUP.sub(lambda mark: f"{mark[0][:-1]}\\{mark[0][-1]}", " ".join(str(text).split()))
    return words.replace("&", "&amp;").replace("<", "&lt;")
