"""Maps of networks: width and colour of links, coloured nodes, labels; one declaration for pages and for paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from blocc._lib.arrays import Float, Int, NDArray
from blocc.kit.charts import (
    UTILISATION_SCALE,
    Figure,
    bar_title,
    colour_map,
    colour_scale,
    make_figure,
    merged,
    plotly_numbers,
    plotly_text,
    scale_colour,
    styles,
)
from blocc.kit.figure import FAINT, GREEN, INK, MUTED
from blocc.kit.map_geometry import (
    DENSE,
    Frame,
    curve_count,
    labels_inside,
    link_curve,
    link_offsets,
    node_size,
    place_labels,
)
from blocc.kit.text import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curves = list[Float[NDArray, "points 2"]]

MARK = GREEN  #: the edge of links and nodes that an answer changes
TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)  #: parts of a scale with words beside its bar
_SHADES = 20  # a trace has one colour and one width: figures are rounded so that few traces serve many links
_EDGE = 6.5  # pixels by which a mark is wider than its link
_LEAST_LETTER = 4.5  # points; smaller ones cannot be read on paper


@dataclass(frozen=True, eq=False)
class Layer:
    """One choice of what the colours of a map stand for."""

    title: str
    values: Float[NDArray, "links"]  #: of links, as parts of the scale; NaN where nothing is known
    bar: str  #: words above the bar of colours
    ticks: Sequence[str]  #: beside it, at ``TICKS``
    scale: tuple[str, ...] = UTILISATION_SCALE
    nodes: Float[NDArray, "nodes"] | None = None  #: the same of nodes, in ``node_scale``, which the bar then explains
    node_scale: tuple[str, ...] = UTILISATION_SCALE
    widths: Float[NDArray, "links"] | None = None  #: pixels, where they are not those of the map

    @classmethod
    def between(
        cls, title: str, values: Float[NDArray, "links"], low: float, high: float, bar: str = "", **more: Any
    ) -> Self:
        """Values on a scale between two figures."""
        return cls(title, (values - low) / (high - low), bar or title, scale_ticks(low, high), **more)


def scale_ticks(low: float, high: float) -> list[str]:
    """The words beside a bar between two figures."""
    return [number(low + part * (high - low), 3) for part in TICKS]


@dataclass(frozen=True, eq=False)
class NetworkMap:
    """A network on a plane; links of width 0 are candidates, not built: dotted, one line for both directions."""

    frame: Frame
    tail: Int[NDArray, "links"]
    head: Int[NDArray, "links"]
    labels: Sequence[str]
    widths: Float[NDArray, "links"]  #: pixels
    layers: Sequence[Layer]
    link_words: Callable[[], Sequence[str]] | None = None  #: what pointing at links tells
    node_words: Callable[[], Sequence[str]] | None = None  #: by default their labels
    marked: Sequence[int] = ()  #: links with an edge
    marked_nodes: Sequence[int] = ()
    is_directed: bool = True  #: each direction of a street runs on the right-hand side of its travellers
    active: int = 0  #: the layer that is shown first
    menu: str = "Colour"  #: what stands before the choice of layers
    further: Sequence[dict[str, Any]] = field(default=())  #: traces over the links, for scripts of a page

    @property
    def has_halo(self) -> bool:
        """Whether labels stand on links, where paper around their letters helps."""
        return not labels_inside(self.labels)

    @cached_property
    def offsets(self) -> Float[NDArray, "links"]:
        """How far links run beside the straight line, in pixels."""
        return link_offsets(self.tail, self.head, self.widths) if self.is_directed else np.zeros(len(self.tail))

    @cached_property
    def curves(self) -> Curves:
        """The line of each link."""
        return [self._curve(a, float(offset)) for a, offset in enumerate(self.offsets)]

    @cached_property
    def candidates(self) -> list[int]:
        """Links that are not built and have a line of their own: one for both directions where neither is built."""
        pairs = list(zip(self.tail.tolist(), self.head.tolist(), strict=True))
        places = {pair: a for a, pair in reversed(list(enumerate(pairs)))}
        reverse = [places.get(pair[::-1], -1) for pair in pairs]
        return [
            a
            for a in np.flatnonzero(self.widths == 0.0).tolist()
            if reverse[a] < 0 or self.widths[reverse[a]] > 0.0 or a < reverse[a]
        ]

    @property
    def obstacles(self) -> Float[NDArray, "points 2"]:
        """Points along every line, for labels to keep clear of."""
        drawn = [*np.flatnonzero(self.widths > 0.0).tolist(), *self.candidates]
        return np.concatenate([np.zeros((0, 2)), *(self._curve(a, 4.0, 8.0) for a in drawn)])

    def _curve(self, link: int, offset: float, spacing: float = 0.0) -> Float[NDArray, "points 2"]:
        ends = int(self.tail[link]), int(self.head[link])
        return link_curve(self.frame, *ends, offset, curve_count(self.frame, *ends, spacing) if spacing else 2)

    def _candidate_curves(self) -> Curves:
        """Clear of the other direction where that one is built."""
        built = {pair for a, pair in enumerate(zip(self.head, self.tail, strict=True)) if self.widths[a] > 0.0}
        return [self._curve(a, 4.0 if (self.tail[a], self.head[a]) in built else 0.0) for a in self.candidates]

    def _label_places(self, letter: float) -> list[str | None]:
        if not self.has_halo:
            return ["inside"] * len(self.labels)
        radius = node_size(self.labels) / 2
        return place_labels(self.frame, self.labels, self.obstacles, radius=radius, letter=letter)

    # --- on a page (plotly.js) ------------------------------------------------------------------------------------
    def plotly(self) -> Figure:
        """As data for a page, with a menu of the layers where there are several."""
        style = styles()["map"]
        own: list[dict[str, Any]] = [
            {**line_trace(self._candidate_curves()), **style["candidates"], "meta": self.candidates},
            *self._edge_traces(),
        ]
        parts: list[tuple[dict[str, Any], int | None]] = [(trace, None) for trace in own]
        for k, layer in enumerate(self.layers):
            parts += [(trace, k) for trace in (*self._link_traces(layer), _scale_trace(layer))]
        parts += [(trace, None) for trace in (*self.further, *self._hover_traces())]
        if any(layer.nodes is not None for layer in self.layers):
            parts += [(self._node_trace(layer), k) for k, layer in enumerate(self.layers)]
        else:
            parts.append((self._node_trace(None), None))
        data = [trace if owner in (None, self.active) else {**trace, "visible": False} for trace, owner in parts]
        layout: dict[str, Any] = {
            "height": int(np.clip(1060.0 * self.frame.aspect, 380.0, 720.0)),
            "xaxis": {"range": plotly_numbers([self.frame.low[0], self.frame.high[0]])},
            "yaxis": {"range": plotly_numbers([self.frame.low[1], self.frame.high[1]])},
        }
        if self.layers:
            words = [layer.bar.replace(" ", "<br>") for layer in self.layers]
            layout["annotations"] = [{**bar_title("map"), "text": words[self.active]}]
            choices = [
                {
                    "label": layer.title,
                    "change": [{"visible": [o in (None, k) for _, o in parts]}, {"annotations[0].text": words[k]}],
                }
                for k, layer in enumerate(self.layers)
            ]
            layout |= (
                {"meta": {"label": self.menu, "choices": choices, "active": self.active}} if len(words) > 1 else {}
            )
        return make_figure("map", data, layout)

    def _edge_traces(self) -> list[dict[str, Any]]:
        groups: dict[float, Curves] = {}
        for link in self.marked:
            groups.setdefault(round(2.0 * float(self.widths[link])) / 2.0, []).append(self.curves[link])
        return [
            {**line_trace(drawn), "line": {"width": width + _EDGE, "color": MARK}} for width, drawn in groups.items()
        ]

    def _link_traces(self, layer: Layer) -> list[dict[str, Any]]:
        """Links in few traces, thin ones on top of wide ones: none hides another."""
        widths = self.widths if layer.widths is None else layer.widths
        shades = np.where(np.isfinite(layer.values), np.round(_SHADES * np.clip(layer.values, 0.0, 1.0)), -1.0)
        groups: dict[tuple[float, int], list[int]] = {}
        for a in np.flatnonzero(widths > 0.0).tolist():
            groups.setdefault((round(2.0 * float(widths[a])) / 2.0, int(shades[a])), []).append(a)
        return [
            {
                **line_trace([self.curves[a] for a in links]),
                "line": {"width": width, "color": scale_colour(_part(shade), layer.scale)},
                "meta": links,
            }
            for (width, shade), links in sorted(groups.items(), key=lambda item: -item[0][0])
        ]

    def _hover_traces(self) -> list[dict[str, Any]]:
        """Invisible points along every link: plotly.js answers near points, not near lines."""
        if self.link_words is None or not len(self.tail):
            return []
        # Directions that are not built share a line; their points stand apart, so that either can be asked.
        least = 4.0 if self.is_directed else 0.0
        curves = [self._curve(a, max(float(offset), least), 24.0)[5:-5] for a, offset in enumerate(self.offsets)]
        links = np.repeat(np.arange(len(curves)), [len(curve) for curve in curves]).tolist()
        words, layer = self.link_words(), self.layers[self.active]
        colours = [
            scale_colour(float(value), layer.scale) if width > 0.0 else FAINT
            for value, width in zip(layer.values, self.widths, strict=True)
        ]
        x, y = np.concatenate(curves).T
        points = {
            "x": plotly_numbers(x),
            "y": plotly_numbers(y),
            "text": [words[a] for a in links],
            "customdata": links,
        }
        return [{**styles()["map"]["hover"], **points, "hoverlabel": {"bordercolor": [colours[a] for a in links]}}]

    def _node_trace(self, layer: Layer | None) -> dict[str, Any]:
        """Nodes with their labels: short ones inside, as on a metro map, longer ones beside, where there is room."""
        dense, places = len(self.labels) > DENSE, self._label_places(10.0 if len(self.labels) > DENSE else 12.0)
        words = map(plotly_text, self.labels) if self.node_words is None else self.node_words()
        letter = (10.0 if dense else 12.0) if self.has_halo else 8.0 if dense else 11.0
        x, y = self.frame.points.T
        return {
            **styles()["map"]["nodes"],
            "x": plotly_numbers(x),
            "y": plotly_numbers(y),
            "text": [plotly_text(label) if place else "" for label, place in zip(self.labels, places, strict=True)],
            "textposition": [_text_position(place or "right") for place in places],
            "textfont": {"size": letter, "color": INK},
            "customdata": list(words),
            "marker": {"size": self._node_size(), "color": self._node_colours(layer), "line": self._node_edges()},
        }

    def _node_size(self) -> float:
        has_colours = any(layer.nodes is not None for layer in self.layers) and len(self.labels) <= DENSE
        return max(node_size(self.labels), 24.0 if has_colours else 0.0)

    def _node_colours(self, layer: Layer | None) -> list[str]:
        if layer is None or layer.nodes is None:
            return ["#ffffff"] * len(self.labels)
        return [scale_colour(float(part), layer.node_scale) for part in np.clip(layer.nodes, 0.0, 1.0)]

    def _node_edges(self) -> dict[str, list[Any]]:
        own = [k in set(self.marked_nodes) for k in range(len(self.labels))]
        return {"color": [MARK if one else INK for one in own], "width": [4.0 if one else 1.4 for one in own]}

    # --- on paper (matplotlib) ------------------------------------------------------------------------------------
    def draw(self, axes: Axes, choice: int = 0, *, point: float = 0.42, title: str = "", shrink: float = 0.6) -> None:
        """One layer into axes, with its bar; a pixel of the map's usual size is ``point`` points."""
        from matplotlib.collections import LineCollection

        layer = self.layers[choice]
        axes.set_title(title, fontsize=10.5, loc="left", color=INK)
        dots: dict[str, Any] = {"colors": FAINT, "linewidths": 0.8, "linestyles": (0, (1, 2.4)), "zorder": 1}
        axes.add_collection(LineCollection(self._candidate_curves(), **dots))
        widths = self.widths if layer.widths is None else layer.widths
        edges = [self.curves[a] for a in self.marked]
        wide = point * (widths[list(self.marked)] + _EDGE)
        axes.add_collection(LineCollection(edges, colors=MARK, linewidths=wide, capstyle="butt", zorder=1))
        order = [a for a in np.argsort(-widths, kind="stable").tolist() if widths[a] > 0.0]
        colours = colour_map(layer.scale)(np.ma.masked_invalid(np.clip(layer.values[order], 0.0, 1.0)))
        lines: dict[str, Any] = {"linewidths": point * widths[order], "colors": colours, "capstyle": "butt"}
        axes.add_collection(LineCollection([self.curves[a] for a in order], **lines, zorder=2))
        self._draw_nodes(axes, layer, point)
        axes.set_axis_off()
        axes.set_aspect("equal")
        axes.set_xlim(self.frame.low[0], self.frame.high[0])
        axes.set_ylim(self.frame.low[1], self.frame.high[1])
        _draw_bar(axes, layer, shrink)

    def _draw_nodes(self, axes: Axes, layer: Layer, point: float) -> None:
        from matplotlib.patheffects import withStroke

        side, edges = self._node_size(), self._node_edges()
        style: dict[str, Any] = {"color": self._node_colours(layer), "edgecolor": edges["color"], "zorder": 4}
        x, y = self.frame.points.T
        axes.scatter(x, y, s=(point * side) ** 2, linewidth=[0.6 * one for one in edges["width"]], **style)
        words: dict[str, Any] = {"color": INK, "zorder": 6, "parse_math": False, "textcoords": "offset points"}
        letter = 12.0 if len(self.labels) <= DENSE else 9.0
        size = point * letter if self.has_halo else point * min(0.6 * side, 12.0)
        if size < _LEAST_LETTER:
            return
        if self.has_halo:
            words["path_effects"] = [withStroke(linewidth=2.5, foreground="white")]
        for position, label, place in zip(self.frame.points, self.labels, self._label_places(letter), strict=True):
            if place is None:
                continue
            gap = point * ((side / 2 + 4.0) if " " not in place else 0.38 * side + 2.0)
            right, up = ("right" in place) - ("left" in place), ("above" in place) - ("below" in place)
            middle = "center_baseline" if place == "inside" else "center"
            sides: dict[str, Any] = {"ha": ("center", "left", "right")[right], "va": (middle, "bottom", "top")[up]}
            axes.annotate(label, tuple(position), (gap * right, gap * up), fontsize=size, **sides, **words)


def line_trace(curves: Curves) -> dict[str, Any]:
    """Many curves in one trace, a gap between each two."""
    gap = np.full((1, 2), np.nan)
    x, y = np.concatenate([np.zeros((0, 2)), *(part for curve in curves for part in (curve, gap))]).T
    return {**styles()["map"]["lines"], "x": plotly_numbers(x), "y": plotly_numbers(y)}


def _scale_trace(layer: Layer) -> dict[str, Any]:
    """The bar that explains the colours."""
    scale = layer.scale if layer.nodes is None else layer.node_scale
    bar = {"colorscale": colour_scale(scale), "colorbar": {"tickvals": list(TICKS), "ticktext": list(layer.ticks)}}
    return merged(styles()["map"]["scale"], {"marker": bar})


def _draw_bar(axes: Axes, layer: Layer, shrink: float) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    shades = ScalarMappable(Normalize(0.0, 1.0), colour_map(layer.scale if layer.nodes is None else layer.node_scale))
    bar: Any = axes.figure.colorbar(shades, ax=axes, shrink=shrink, aspect=20, pad=0.01)
    bar.set_ticks(list(TICKS), labels=list(layer.ticks))
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, labelcolor=MUTED)
    bar.set_label(layer.bar, size=8, color=MUTED)


def _part(shade: int) -> float:
    return shade / _SHADES if shade >= 0 else math.nan


def _text_position(place: str) -> str:
    """One of the places of labels, as plotly.js calls it."""
    vertical = "top" if "above" in place else "bottom" if "below" in place else "middle"
    return f"{vertical} {'right' if 'right' in place else 'left' if 'left' in place else 'center'}"
