"""What maps of networks share, whatever they show: shaded links, the bar that explains colours, and the frame.

The first parts are data for plotly.js, the others draw with matplotlib.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.kit.figure import MUTED
from blocc.kit.text import number
from blocc.report.transport.design_charts import bar_title, colour_scale, line_trace, merged, plotly_numbers, styles
from blocc.report.transport.design_geometry import Frame, scale_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, Normalize

_SHADES = 20  # a trace has one colour and one width: figures are rounded so that few traces serve many links
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


# --- plotly.js -----------------------------------------------------------------------------------------------------
def shaded_traces(
    curves: Sequence[Float[NDArray, "points 2"]],
    widths: Float[NDArray, "links"],
    parts: Float[NDArray, "links"],
    scale: tuple[str, ...],
) -> list[dict[str, Any]]:
    """Links in few traces, coloured by a part between 0 and 1 of a scale."""
    groups: dict[tuple[float, int], list[Float[NDArray, "points 2"]]] = {}
    for curve, width, part in zip(curves, widths.tolist(), np.clip(parts, 0.0, 1.0).tolist(), strict=True):
        groups.setdefault((round(2.0 * width) / 2.0, round(_SHADES * part)), []).append(curve)
    # Thin links on top of wide ones: none hides another.
    return [
        {**line_trace(drawn), "line": {"width": width, "color": scale_colour(shade / _SHADES, scale)}}
        for (width, shade), drawn in sorted(groups.items(), key=lambda item: -item[0][0])
    ]


def edge_traces(
    curves: Sequence[Float[NDArray, "points 2"]],
    widths: Float[NDArray, "links"],
    links: Iterable[int],
    colour: str,
    room: float,
) -> list[dict[str, Any]]:
    """An edge around some links, so much wider than they are."""
    groups: dict[float, list[Float[NDArray, "points 2"]]] = {}
    for link in links:
        groups.setdefault(round(2.0 * float(widths[link])) / 2.0, []).append(curves[link])
    return [{**line_trace(drawn), "line": {"width": width + room, "color": colour}} for width, drawn in groups.items()]


def scale_trace(low: float, high: float, scale: tuple[str, ...]) -> dict[str, Any]:
    """The bar that explains the colours between two figures."""
    words = [number(low + part * (high - low), 3) for part in _TICKS]
    bar = {"colorscale": colour_scale(scale), "colorbar": {"tickvals": list(_TICKS), "ticktext": words}}
    return merged(styles()["map"]["scale"], {"marker": bar})


def map_layout(frame: Frame, chosen: dict[str, Any], bar: str) -> dict[str, Any]:
    """The layout of a map with a menu, and words over the bar of colours."""
    return {
        "height": int(np.clip(1060.0 * frame.aspect, 380.0, 760.0)),
        "annotations": [{**bar_title("map"), "text": bar}],
        "meta": chosen,
        "xaxis": {"range": plotly_numbers([frame.low[0], frame.high[0]])},
        "yaxis": {"range": plotly_numbers([frame.low[1], frame.high[1]])},
    }


# --- matplotlib ----------------------------------------------------------------------------------------------------
def frame_axes(axes: Axes, frame: Frame) -> None:
    """Show a part of the plane, and nothing around it."""
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.set_xlim(frame.low[0], frame.high[0])
    axes.set_ylim(frame.low[1], frame.high[1])


def add_colour_bar(axes: Axes, shade: Normalize, scale: Colormap, words: str = "") -> None:
    """The bar that explains the colours, beside a map."""
    from matplotlib.cm import ScalarMappable

    bar: Any = axes.figure.colorbar(ScalarMappable(shade, scale), ax=axes, shrink=0.6, aspect=20, pad=0.01)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, labelcolor=MUTED)
    if words:
        bar.set_label(words, size=8, color=MUTED)
