"""How figures look, in pictures and on the page alike: colours, widths of lines, and numbers in words."""

from __future__ import annotations

import math
import unicodedata

import numpy as np

#: Perceptually uniform (a stretch of "magma", reversed): an empty link is pale, a full one dark, also in grey print.
UTILISATION_SCALE = (
    "#fea973",
    "#fb835f",
    "#ef5d5e",
    "#d5446d",
    "#b3367a",
    "#912b81",
    "#721f81",
    "#51127c",
    "#2d1161",
)
#: The same with its pale end, for heat maps.
DEMAND_SCALE = ("#fdf3d3", "#fec488", "#fd9668", "#f4695c", "#db476a", "#b5367a", "#8e2a81", "#681c81", "#400f74")
INK, MUTED, FAINT, PAPER = "#1f2933", "#5b6773", "#aab2bb", "#ffffff"
EXACT, PENALISED = "#0072B2", "#E69F00"

THINNEST, WIDEST = 1.5, 10.0  # of a link, in pixels


def utilisation_colour(utilisation: float) -> str:
    """Colour of a link that is used to this part of its capacity (beyond 0 and 1: as there)."""
    position = min(max(utilisation if math.isfinite(utilisation) else 0.0, 0.0), 1.0) * (len(UTILISATION_SCALE) - 1)
    low = min(int(position), len(UTILISATION_SCALE) - 2)
    part = position - low
    ends = [[int(UTILISATION_SCALE[k][i : i + 2], 16) for i in (1, 3, 5)] for k in (low, low + 1)]
    return "#" + "".join(f"{round(a + part * (b - a)):02x}" for a, b in zip(*ends, strict=True))


def link_widths(capacity: np.ndarray) -> np.ndarray:
    """Width of each link in pixels: proportional to its capacity, but never too thin to be seen; 0 where unbuilt.

    Networks with very many links are drawn finer, so that they do not become one blot.
    """
    built = np.isfinite(capacity) & (capacity > 0)
    largest = float(capacity[built].max(initial=0.0))
    if not largest:
        return np.zeros(len(capacity))
    widest = WIDEST if built.sum() <= 200 else 0.7 * WIDEST
    return np.where(built, np.maximum(widest * np.where(built, capacity, 0.0) / largest, THINNEST), 0.0)


def number(value: object, digits: int = 4) -> str:
    """A number for people: a few digits, groups of thousands, a dash where there is none."""
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


def percent(part: float, places: int | None = None) -> str:
    """A part of one as a percentage, with one decimal where it has one (or always ``places``)."""
    if not math.isfinite(part):
        return "–"
    return f"{100 * part:.{places}f} %" if places is not None else f"{100 * part:.1f} %".replace(".0 %", " %")


def shortened(text: str, most: int = 28) -> str:
    """A label that fits: the middle goes, since names often differ at their end ("Station 12", "Station 13")."""
    # Control and format characters show nothing, and the pictures' PDF cannot hold all of them.
    visible = "".join(letter if unicodedata.category(letter)[0] != "C" else " " for letter in text)
    text = " ".join(visible.split())
    if len(text) <= most:
        return text
    tail = max((most - 1) // 3, 1)
    return text[: most - 1 - tail].rstrip() + "…" + text[-tail:].lstrip()
