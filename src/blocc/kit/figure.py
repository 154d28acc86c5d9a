"""What all pictures share: colours, one style of axes, one heading, and how they are kept.

matplotlib is imported only when a picture is drawn, and through its object interface: no global state, no window, and
no display needed.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.files import write_file
from blocc.errors import BloccError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 150
BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#C8102E", "#666666"  # told apart by everyone
INK, MUTED, FAINT, GRID = "#1f2933", "#5b6773", "#aab2bb", "#e3e6e9"

#: As many as there are methods, and Algorithm 1, so that no two of them share one.
_COLOURS = (
    *(BLUE, ORANGE, GREEN, RED, "#56B4E9", "#8C6D1F", "#CC79A7", "#4B3F8F"),
    *("#111111", "#9ACD32", "#FF7F50", "#00868B", "#A9A9A9", "#FF1493"),
)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
_DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (2, 1.2)), (0, (6, 1.5, 1.5, 1.5)))


class PlotError(BloccError):
    """A picture or a page cannot be made or written."""


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches, without matplotlib's global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlotError("pictures need matplotlib: pip install 'blocc[plot]'") from error
    figure = Figure(figsize=(width, height), layout="constrained")
    # Notebooks call it by this name, so that they show a picture also where pyplot was never loaded.
    figure._repr_png_ = partial(figure_image, figure)  # type: ignore[attr-defined]
    return figure


def figure_image(figure: Figure, suffix: str = "png") -> bytes:
    """A figure as the content of a file of this kind; the same figure gives the same SVG, which has no date."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix, dpi=DPI, metadata={"Date": None} if suffix == "svg" else None)
    return buffer.getvalue()


def keep_figure(figure: Figure, path: str | Path | None) -> Figure:
    """The figure itself, written to ``path`` where one is given (.png, .pdf, .svg)."""
    if path is not None:
        try:
            image = figure_image(figure, Path(path).suffix.removeprefix(".") or "png")
        except ValueError as error:  # matplotlib does not know the suffix
            raise PlotError(f"cannot write {path}: {str(error).splitlines()[0]}; use .png, .pdf or .svg") from error
        write_file(path, image, PlotError)
    return figure


def line_style(position: int) -> dict[str, Any]:
    """Colour, marker and dashes of the line in this position, told apart also in grey print."""
    again, place = divmod(position, len(_COLOURS))  # the colours begin again: with other markers and dashes
    shifted = position + again
    dashes = _DASHES[shifted % len(_DASHES)]
    return {"color": _COLOURS[place], "marker": _MARKERS[shifted % len(_MARKERS)], "linestyle": dashes}


def style_axes(axes: Axes, title: str = "", *, x: str = "", y: str = "", grid: str = "both") -> None:
    """The one style of axes: a light grid, no frame above and on the right, quiet labels.

    :param x: label of the horizontal axis; "" keeps what it has
    :param grid: which lines are drawn: "both", "x", "y" or "none"
    """
    axes.grid(False)
    if grid != "none":
        axes.grid(True, axis=grid, color=GRID, linewidth=0.6)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelcolor=MUTED, labelsize=9, length=3)
    if title:
        axes.set_title(title, fontsize=10.5, loc="left", color=INK, parse_math=False)
    if x:
        axes.set_xlabel(x)
    if y:
        axes.set_ylabel(y)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(MUTED)


def positive(values: Float[NDArray, "points"], least: float) -> Float[NDArray, "points"]:
    """What a logarithmic axis can show: nothing below ``least``, and gaps where a value is not finite."""
    return np.where(np.isfinite(values), np.maximum(values, least), np.nan)


def add_heading(figure: Figure, title: str, facts: str) -> None:
    """A title at the top left, and below it a line of facts; neither is a formula."""
    height = figure.get_figheight()
    place: dict[str, Any] = {"x": 0.02, "ha": "left", "va": "top", "parse_math": False}
    figure.text(y=1.0 - 0.16 / height, s=title, fontsize=13, fontweight="bold", color=INK, **place)
    figure.text(y=1.0 - 0.44 / height, s=facts, fontsize=9.5, color=MUTED, **place)
    engine: Any = figure.get_layout_engine()
    engine.set(w_pad=0.1, h_pad=0.1, rect=(0.0, 0.0, 1.0, 1.0 - 0.66 / height))


def add_legend(figure: Figure, panels: Sequence[Axes], title: str = "", most: int = 8) -> None:
    """One legend below all panels, where it cannot hide a curve; its words are no formulas."""
    found = [axes.get_legend_handles_labels() for axes in panels]
    handles = [handle for pair in found for handle in pair[0]]
    labels = [label for pair in found for label in pair[1]]
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": min(max(len(labels), 1), most), "frameon": False}
    legend = figure.legend(handles, labels, fontsize=9, labelcolor=MUTED, title=title, title_fontsize=9.5, **place)
    legend.get_title().set_color(INK)
    for text in legend.get_texts():
        text.set_parse_math(False)


def add_note(axes: Axes, words: str) -> None:
    """Words in the middle of axes that have nothing to show."""
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", color=GREY)
