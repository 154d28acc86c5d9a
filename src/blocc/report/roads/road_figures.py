"""Roads as pictures (matplotlib): how full links are before and after, the difference, and the way to the answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc._lib.arrays import Bool, Float, NDArray
from blocc.report.figure import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    add_heading,
    add_note,
    keep_figure,
    new_figure,
    style_axes,
)
from blocc.report.format import number, percent, shortened
from blocc.report.map_parts import add_colour_bar, frame_axes
from blocc.report.roads.road_series import DIFFERENCE_SCALE, Colouring, colourings, convergence
from blocc.report.transport import design_geometry as geometry
from blocc.report.transport.design_geometry import UTILISATION_SCALE, link_widths
from blocc.roads.assign import RoadAssignment
from blocc.roads.demand_estimate import DemandEstimate
from blocc.roads.documents import changed_links
from blocc.roads.network import RoadNetwork
from blocc.roads.road_design import RoadDesign

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_POINT = 0.42  # a point of matplotlib for each pixel of the map's usual size: four maps share a picture
MARK = GREEN  #: of links that a design changes


def plot_design(design: RoadDesign, path: str | Path | None = None) -> Figure:
    """Draw how full links are before and after and the difference, and the objective against the bound.

    Links that the design widens or tolls have a green edge. Written when ``path`` is given (.png, .pdf, .svg).
    """
    figure = new_figure(13.0, 10.0)
    panels: Any = figure.subplots(2, 2)
    before, after, difference = colourings(design)
    changed = changed_links(design)
    _draw(panels[0, 0], design.network, design.network.capacity, before, None)
    _draw(panels[0, 1], design.network, design.after.capacity, after, changed)
    _draw(panels[1, 0], design.network, design.after.capacity, difference, changed)
    draw_convergence(panels[1, 1], design)
    _title(figure, design)
    return keep_figure(figure, path)


def plot_assignment(assignment: RoadAssignment, path: str | Path | None = None) -> Figure:
    """Draw how full every link is. Written when ``path`` is given (.png, .pdf, .svg)."""
    figure = new_figure(9.0, 7.0)
    (choice,) = colourings(assignment)
    _draw(figure.add_subplot(), assignment.network, assignment.capacity, choice, None)
    facts = f"{assignment.status.value}  ·  total travel time {number(assignment.total_travel_time, 6)}"
    add_heading(figure, f"{shortened(assignment.network.name, 60)}: {assignment.principle}", facts)
    return keep_figure(figure, path)


def draw_convergence(axes: Axes, design: RoadDesign | DemandEstimate) -> None:
    """Penalised and exact values by evaluation, the best so far, and the bound."""
    series = convergence(design)
    style_axes(axes, "The way to the answer", x="evaluation", y="objective")
    if not len(series.evaluation):
        add_note(axes, "no evaluation was recorded")
        return
    axes.plot(series.evaluation, series.penalised, color=ORANGE, linewidth=1.2, label="penalised, $F_\\gamma$")
    axes.plot(series.evaluation, series.exact, "o", color=BLUE, markersize=3.5, label="exact")
    axes.plot(series.evaluation, series.best, color=BLUE, linewidth=2.2, drawstyle="steps-post", label="best exact")
    if design.bound is not None:
        axes.axhline(design.bound, color=INK, linewidth=1.2, linestyle=(0, (5, 2)), label="proven bound")
    for start in series.starts:
        axes.axvline(start, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
    low, high = series.shown
    axes.set_ylim(low, high)
    axes.legend(frameon=False, fontsize=9, labelcolor=MUTED)


def _draw(
    axes: Axes,
    network: RoadNetwork,
    capacity: Float[NDArray, "links"],
    choice: Colouring,
    changed: Bool[NDArray, "links"] | None,
) -> None:
    """A map, or where nodes have no places the figures in order of their size."""
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    colours = DIFFERENCE_SCALE if choice.is_difference else UTILISATION_SCALE
    scale = LinearSegmentedColormap.from_list("links", colours)
    shade = Normalize(choice.low, choice.high)
    axes.set_title(choice.title, fontsize=10.5, loc="left", color=INK)
    if not len(network.coordinates):
        _draw_sorted(axes, choice, changed, scale(shade(choice.values)))
        return
    from matplotlib.collections import LineCollection

    frame = geometry.frame_network(network, 1060.0, 720.0)
    widths = link_widths(capacity)
    offsets = geometry.link_offsets(network, widths)
    ends = list(zip(network.tail.tolist(), network.head.tolist(), strict=True))
    curves = [geometry.link_curve(frame, *pair, float(offset)) for pair, offset in zip(ends, offsets, strict=True)]
    if changed is not None and changed.any():
        edges = [curves[a] for a in np.flatnonzero(changed)]
        edge = LineCollection(edges, colors=MARK, linewidths=_POINT * widths[changed] + 2.4, capstyle="butt", zorder=1)
        axes.add_collection(edge)
    order = np.argsort(-widths, kind="stable")  # thin links on top of wide ones: none hides another
    drawn = LineCollection([curves[a] for a in order], linewidths=_POINT * widths[order], zorder=2, capstyle="butt")
    drawn.set_color(list(scale(shade(choice.values[order]))))
    axes.add_collection(drawn)
    _draw_nodes(axes, network, frame)
    frame_axes(axes, frame)
    add_colour_bar(axes, shade, scale)


def _draw_nodes(axes: Axes, network: RoadNetwork, frame: geometry.Frame) -> None:
    labels = geometry.map_labels(network)
    small = len(labels) > geometry.DENSE or not geometry.labels_inside(labels)
    x, y = frame.points.T
    axes.scatter(x, y, s=3.0 if small else 70.0, color="white", edgecolor=INK, linewidth=0.5, zorder=4)
    for place, label in zip(frame.points, labels, strict=True) if not small else ():
        axes.annotate(
            label, tuple(place), ha="center", va="center_baseline", fontsize=5.5, color=INK, zorder=5, parse_math=False
        )


def _draw_sorted(axes: Axes, choice: Colouring, changed: Bool[NDArray, "links"] | None, colours: Any) -> None:
    """Bars in order of size, for networks without places."""
    order = np.argsort(choice.values, kind="stable")
    axes.bar(np.arange(len(order)), choice.values[order], color=colours[order], width=1.0)
    if changed is not None and changed.any():
        at = np.flatnonzero(changed[order])
        axes.plot(at, choice.values[order][at], "v", color=MARK, markersize=5, label="changed by the design")
        axes.legend(frameon=False, fontsize=9, labelcolor=MUTED)
    style_axes(axes, x="links, in order (nodes have no places to draw a map of)", grid="y")


def _title(figure: Figure, design: RoadDesign) -> None:
    before, after = design.before.total_travel_time, design.after.total_travel_time
    saved = percent((before - after) / before, 1) if before else "–"
    proven = "" if design.gap is None else f"  ·  proven gap {percent(design.gap, 2)}"
    facts = (
        f"{design.status.value}  ·  objective {number(design.objective, 6)}{proven}  ·  "
        f"{int(changed_links(design).sum())} of {design.network.n_links} links changed (green edge)  ·  "
        f"{saved} of all time saved"
    )
    add_heading(figure, f"{shortened(design.network.name, 60)}: {design.kind}", facts)
