"""Charts as data: each is declared once, and drawn on pages (plotly.js) and on paper (matplotlib).

What never changes about charts on pages is in ``assets/charts.json``. plotly.js reads tags in every text, so every name
from outside is escaped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from blocc.kit.figure import BLUE, FAINT, INK, MUTED, ORANGE, add_note, style_axes
from blocc.kit.text import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Figure = dict[str, Any]  #: ``{"data", "layout"}``

#: Perceptually uniform (a stretch of "magma", reversed): an empty link is pale, a full one dark, also in grey print.
UTILISATION_SCALE = (
    *("#fea973", "#fb835f", "#ef5d5e", "#d5446d", "#b3367a"),
    *("#912b81", "#721f81", "#51127c", "#2d1161"),
)
#: The same with its pale end, for heat maps.
DEMAND_SCALE = ("#fdf3d3", "#fec488", "#fd9668", "#f4695c", "#db476a", "#b5367a", "#8e2a81", "#681c81", "#400f74")
#: Less is blue, more is orange.
DIFFERENCE_SCALE = (BLUE, "#8fc1de", "#e6e8ea", "#f3cf85", ORANGE)
UNKNOWN = FAINT  #: the colour of what nobody knows
_DASHES = "6px,3px"
_LEAST_POINTS = 2  # of a line


@dataclass(frozen=True, eq=False)
class Series:
    """One curve of a chart, or one cloud of points."""

    name: str
    x: ArrayLike
    y: ArrayLike
    colour: str
    mode: str = "lines"  #: or ``markers``, or ``lines+markers``
    width: float = 2.0
    size: float = 6.0  #: of markers
    is_dashed: bool = False
    is_step: bool = False
    hover: str = "%{y:.6g}"  #: what plotly.js says at a point; ``%{customdata}`` is its detail
    details: Sequence[Any] = ()
    symbols: str | list[str] = "circle"

    def trace(self) -> dict[str, Any]:
        """As data for plotly.js."""
        line = {"color": self.colour, "width": self.width, "dash": _DASHES if self.is_dashed else "solid"}
        return {
            "type": "scatter",
            "mode": self.mode if len(np.asarray(self.x)) >= _LEAST_POINTS else "markers",
            "name": plotly_text(self.name),
            "x": plotly_numbers(self.x),
            "y": plotly_numbers(self.y),
            "line": {**line, "shape": "hv" if self.is_step else "linear"},
            "marker": {"color": self.colour, "size": self.size, "symbol": self.symbols},
            **({"customdata": list(self.details)} if len(self.details) else {}),
            **({"hovertemplate": f"{self.hover}<extra>%{{fullData.name}}</extra>"} if self.hover else {}),
            **({} if self.hover else {"hoverinfo": "skip"}),
        }

    def draw(self, axes: Axes) -> None:
        """On paper."""
        has_line = "lines" in self.mode and len(np.asarray(self.x)) >= _LEAST_POINTS
        style: dict[str, Any] = {"color": self.colour, "linewidth": 0.8 * self.width, "label": self.name}
        style |= {"linestyle": ((0, (5, 2)) if self.is_dashed else "-") if has_line else "none"}
        style |= {"drawstyle": "steps-post" if self.is_step else "default"}
        if "markers" in self.mode or not has_line:
            style |= {"marker": "o", "markersize": 0.6 * self.size}
        axes.plot(np.asarray(self.x), np.asarray(self.y), **style)


@dataclass(frozen=True, eq=False)
class Chart:
    """Curves over one pair of axes."""

    series: Sequence[Series]
    x: str  #: what stands at the axes
    y: str
    title: str = ""  #: above it, on paper
    shown: tuple[float, float] | None = None  #: the range of values that tells something
    starts: Sequence[float] = ()  #: dashed lines across, where something begins
    notes: Sequence[tuple[float, str]] = ()  #: words above such lines
    is_unified: bool = True  #: whether pointing at a place tells the values of all curves there
    has_whole_x: bool = False
    empty: str = "no evaluation was recorded"

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(len(np.asarray(one.x)) for one in self.series)

    def plotly(self) -> Figure:
        """As data for a page."""
        style = styles()["convergence"]
        notes = [{**style["gamma"], "x": place, "text": plotly_text(words)} for place, words in self.notes]
        if self.is_empty:
            notes = [heading(self.empty)]
        vertical: dict[str, Any] = {"title": {"text": plotly_text(self.y)}}
        if self.shown is not None:
            vertical["range"] = plotly_numbers(self.shown)
        layout = {
            "shapes": [{**style["stage"], "x0": start, "x1": start} for start in self.starts],
            "annotations": notes,
            "xaxis": {"title": {"text": plotly_text(self.x)}},
            "yaxis": vertical,
            "showlegend": len(self.series) > 1,
            "hovermode": "x unified" if self.is_unified else "closest",
        }
        return make_figure("convergence", [one.trace() for one in self.series], layout)

    def draw(self, axes: Axes, *, grid: str = "both") -> None:
        """On paper, into axes."""
        style_axes(axes, self.title, x=self.x, y=self.y, grid=grid)
        if self.is_empty:
            add_note(axes, self.empty)
            return
        for one in self.series:
            one.draw(axes)
        for start in self.starts:
            axes.axvline(start, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
        above: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "xytext": (3, 4), "textcoords": "offset points"}
        for place, words in self.notes:
            axes.annotate(words, (place, 1.0), fontsize=8.5, color=MUTED, parse_math=False, **above)
        if self.shown is not None:
            axes.set_ylim(*self.shown)
        if self.has_whole_x:
            locator: Any = axes.xaxis.get_major_locator()
            locator.set_params(integer=True)
        if len(self.series) > 1:
            axes.legend(frameon=False, fontsize=9, labelcolor=MUTED)


def steps_chart(
    places: ArrayLike,
    value: ArrayLike,
    gamma: ArrayLike,
    *,
    is_maximised: bool = False,
    bound: float | None = None,
    starts: Sequence[float] = (),
    **axes: Any,
) -> Chart:
    """The way of a search: penalised values, exact ones (where gamma is infinite), the best so far, and the bound.

    :param axes: further fields of the chart
    """
    places, value, gamma = (np.asarray(column, dtype=float) for column in (places, value, gamma))
    is_exact = np.isinf(gamma)
    exact, penalised = np.where(is_exact, value, np.nan), np.where(is_exact, np.nan, value)
    best = (np.fmax if is_maximised else np.fmin).accumulate(exact) if len(exact) else exact
    hover = "%{y:.6g} (gamma %{customdata:.4g})"
    series = [
        Series("penalised value", places, penalised, ORANGE, width=1.5, hover=hover, details=plotly_numbers(gamma)),
        Series("exact value", places, exact, BLUE, "markers"),
        Series("best exact value so far", places, best, BLUE, width=3.0, is_step=True),
    ]
    if bound is not None and len(places):
        series.append(Series("proven bound", [places[0], places[-1]], [bound] * 2, INK, is_dashed=True))
    return Chart(series, title="The way to the answer", starts=starts, **axes)


# --- data for plotly.js -------------------------------------------------------------------------------------------
@cache
def styles() -> dict[str, Any]:
    """What never changes about charts."""
    found: dict[str, Any] = json.loads(files("blocc.kit").joinpath("assets/charts.json").read_text("utf-8"))
    return found


def make_figure(name: str, data: list[dict[str, Any]], layout: dict[str, Any]) -> Figure:
    """A chart of this style, with what the layout says beside it."""
    everywhere = {"template": {"layout": styles()["all"]["layout"]}}
    return {"data": data, "layout": {**merged(styles()[name]["layout"], layout), **everywhere}}


def merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Both, and where both have an entry the second one; dictionaries inside are merged alike."""
    both = {key: merged(first[key], second[key]) for key in first if isinstance(second.get(key), dict)}
    return {**first, **second, **both}


def plotly_text(text: str, most: int = 60) -> str:
    """A name from outside inside plotly.js, which turns tags and entities of text into markup."""
    from markupsafe import escape

    return str(escape(shortened(text, most)))


def tooltip(title: str, *lines: str) -> str:
    """What plotly.js says of a place: a title and lines, every one escaped."""
    return "<br>".join([f"<b>{plotly_text(title, 160)}</b>", *map(plotly_text, filter(None, lines))])


def direction(tail: object, head: object) -> str:
    """What a link is called: from where to where."""
    return f"{shortened(str(tail), 60)} → {shortened(str(head), 60)}"


def plotly_numbers(values: ArrayLike) -> list[float | None]:
    """Eight digits: less than a pixel at any zoom, and half the size of the page; what is not finite is a gap."""
    return [float(f"{value:.8g}") if math.isfinite(value) else None for value in np.asarray(values, dtype=float)]


def heading(words: str, axis: str = "") -> dict[str, Any]:
    """Above the panel of an axis; in the middle of a chart with nothing else in it where none is given."""
    place: dict[str, Any] = {"x": 0.5, "xref": "paper", "y": 0.5, "yref": "paper", "xanchor": "center"}
    if axis:
        place = {"x": 0.0, "xref": f"{axis} domain", "yref": f"{axis.replace('x', 'y')} domain", "xanchor": "left"}
    return {**styles()["all"]["heading"], **place, "text": words}


def bar_title(name: str) -> dict[str, Any]:
    """The title of a colour bar; the one of plotly.js would touch the topmost tick."""
    return {**styles()["all"]["bar_title"], **styles()[name]["bar_title"]}


# --- colours ------------------------------------------------------------------------------------------------------
def colour_scale(colours: tuple[str, ...]) -> list[list[Any]]:
    """Colours at equal distances, as plotly.js takes them."""
    return [[k / (len(colours) - 1), colour] for k, colour in enumerate(colours)]


def colour_map(colours: tuple[str, ...]) -> Any:
    """The same for matplotlib."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("scale", colours).with_extremes(bad=UNKNOWN)


def scale_colour(part: float, scale: tuple[str, ...]) -> str:
    """The colour at this part of a scale (beyond 0 and 1: as there); grey where it is NaN."""
    if math.isnan(part):
        return UNKNOWN
    channels = np.array([[int(colour[k : k + 2], 16) for k in (1, 3, 5)] for colour in scale])
    mixed = [np.interp(part * (len(channels) - 1), np.arange(len(channels)), channel) for channel in channels.T]
    return "#" + "".join(f"{round(float(share)):02x}" for share in mixed)
