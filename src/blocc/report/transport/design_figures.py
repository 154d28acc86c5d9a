"""A design as pictures (matplotlib): the map, the demand and how much of it is served, and the convergence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc.networks.readers.raw import INVENTED
from blocc.report.figure import (
    FAINT,
    INK,
    MUTED,
    add_heading,
    add_note,
    figure_image,
    keep_figure,
    new_figure,
    style_axes,
)
from blocc.report.format import number, percent, shortened
from blocc.report.map_parts import frame_axes
from blocc.report.transport import design_geometry as geometry
from blocc.report.transport.design_geometry import (
    DEMAND_SCALE,
    EXACT,
    PENALISED,
    UTILISATION_SCALE,
    link_widths,
    width_samples,
)
from blocc.report.transport.design_series import Colouring, colourings, convergence, demand_matrices, labelled_stages
from blocc.transport.design.design_result import Design
from blocc.transport.design.documents import totals

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MAP_WIDTH = 11.0  # inches
_POINT = 0.75  # a point of matplotlib for each pixel of the map's usual size


def plot_map(design: Design, path: str | Path | None = None) -> Figure:
    """Draw the network: width shows capacity, colour use, price or flow, whatever tells most; dotted if not built.

    Each direction runs on the right-hand side of its travellers. Written when ``path`` is given (.png, .pdf, .svg).
    """
    frame = _map_frame(design)
    height = float(np.clip((_MAP_WIDTH - 1.4) * frame.aspect, 4.6, 8.2)) + 1.1
    figure = new_figure(_MAP_WIDTH, height)
    draw_map(figure, design)
    return keep_figure(figure, path)


def draw_map(figure: Figure, design: Design) -> None:
    """The map into an empty figure."""
    frame, axes = _map_frame(design), figure.add_subplot()
    frame_axes(axes, frame)
    scale, choice, parts = _colormap("links", UTILISATION_SCALE), colourings(design)[0], (0.0, 0.25, 0.5, 0.75, 1.0)
    _draw_links(axes, design, frame, scale, choice)
    _draw_nodes(axes, design, frame)
    bar = _add_bar(figure, _mappable(scale, 0.0, 1.0), choice.title, ax=axes, shrink=0.55, aspect=22, pad=0.01)
    bar.set_ticks(list(parts), labels=[choice.tick(part) for part in parts])
    _legend(axes, design)
    invented = any(line.startswith(INVENTED) for line in design.network.assumptions)
    title_figure(figure, design, "the network" + (" (places are invented)" if invented else ""))


def plot_demand(design: Design, path: str | Path | None = None) -> Figure:
    """Draw two heat maps, origin by destination: the demand, and the part that travels on the new network."""
    figure = new_figure(12.0, 6.4)
    draw_demand(figure, design)
    return keep_figure(figure, path)


def draw_demand(figure: Figure, design: Design) -> None:
    """The heat maps into an empty figure."""
    matrices = demand_matrices(design)
    panels: Any = figure.subplots(1, 2, sharey=True)
    scale = _colormap("demand", DEMAND_SCALE).with_extremes(bad="#eef0f2")
    largest = float(np.nanmax(matrices.demand, initial=0.0)) or 1.0
    names = [shortened(label, 18) for label in matrices.labels]
    ticks = np.arange(0, len(names), max(1, int(np.ceil(len(names) / 34))))
    upright = max(len(name) for name in names) <= 3
    for axes, values, title in zip(panels, (matrices.demand, matrices.served), matrices.titles, strict=True):
        image = axes.imshow(values, cmap=scale, vmin=0.0, vmax=largest, interpolation="nearest")
        style_axes(axes, title, x="destination", grid="none")
        axes.set_xticks(ticks, [names[k] for k in ticks], rotation=0 if upright else 90, fontsize=8, parse_math=False)
        axes.set_yticks(ticks, [names[k] for k in ticks], fontsize=8, parse_math=False)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    panels[0].set_ylabel("origin", color=MUTED)
    _add_bar(figure, image, "passengers (grey: no market)", ax=list(panels), shrink=0.7, aspect=26, pad=0.015)
    title_figure(
        figure, design, "demand" + (f" ({matrices.left_out} small nodes left out)" if matrices.left_out else "")
    )


def plot_convergence(design: Design, path: str | Path | None = None) -> Figure:
    """Draw the operator's utility by evaluation, at yg and at yF; dashed lines mark where gamma grew."""
    figure = new_figure(10.0, 5.2)
    draw_convergence(figure, design)
    return keep_figure(figure, path)


def draw_convergence(figure: Figure, design: Design) -> None:
    """The curves into an empty figure."""
    series, axes = convergence(design), figure.add_subplot()
    labels = ("at the travellers' own answer, $y_g$", "at the penalised answer, $y_F$")
    axes.plot(series.evaluation, series.exact, color=EXACT, linewidth=2.6, label=labels[0])
    # On top and dashed, since the two curves should end as one.
    dashed: dict[str, Any] = {"linewidth": 1.8, "linestyle": (0, (5, 2)), "label": labels[1]}
    axes.plot(series.evaluation, series.penalised, color=PENALISED, **dashed)
    if len(series.evaluation) == 1:
        axes.plot(series.evaluation, series.exact, "o", color=EXACT)
        axes.plot(series.evaluation, series.penalised, "o", color=PENALISED, markersize=4)
    for start, _ in series.stages[1:]:
        axes.axvline(start, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
    above: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "xytext": (3, 4), "textcoords": "offset points"}
    for start, gamma in labelled_stages(series):
        axes.annotate(f"$\\gamma$ = {number(gamma)}", (start, 1.0), fontsize=8.5, color=MUTED, **above)
    style_axes(axes, x="evaluation", y="operator's utility", grid="y")
    axes.spines["left"].set_visible(False)
    axes.tick_params(length=0)
    if len(series.evaluation):
        axes.legend(frameon=False, fontsize=9.5, loc="lower right", labelcolor=INK, handlelength=3.0)
    else:
        add_note(axes, "no iteration was recorded")
    title_figure(figure, design, "how the utility was reached")


def picture_files(design: Design) -> dict[str, bytes]:
    """The three pictures as PNG files."""
    figures = {"map": plot_map(design), "demand": plot_demand(design), "convergence": plot_convergence(design)}
    return {f"{name}.png": figure_image(figure) for name, figure in figures.items()}


def _map_frame(design: Design) -> geometry.Frame:
    return geometry.frame_network(design.network, 96.0 * (_MAP_WIDTH - 1.4), 96.0 * 7.0)


def _draw_links(axes: Axes, design: Design, frame: geometry.Frame, scale: Any, choice: Colouring) -> None:
    from matplotlib.collections import LineCollection

    network, built, widths = design.network, design.built, link_widths(design.capacity)
    ends: list[tuple[int, int]] = list(zip(network.tail.tolist(), network.head.tolist(), strict=True))
    candidates = geometry.candidate_curves(design, frame)
    axes.add_collection(LineCollection(candidates, colors=FAINT, linewidths=0.8, linestyles=(0, (1, 2.4)), zorder=1))
    # Thin links on top of wide ones: none hides another.
    order: list[int] = [a for a in np.argsort(-widths, kind="stable").tolist() if built[a]]
    offsets = geometry.link_offsets(design.network, widths)
    curves = [geometry.link_curve(frame, *ends[a], float(offsets[a])) for a in order]
    used = np.ma.masked_invalid(np.clip(choice.values[order], 0.0, 1.0))
    colours = scale.with_extremes(bad=geometry.UNKNOWN)(used)
    axes.add_collection(
        LineCollection(curves, linewidths=_POINT * widths[order], colors=colours, capstyle="butt", zorder=2)
    )


def _draw_nodes(axes: Axes, design: Design, frame: geometry.Frame) -> None:
    from matplotlib.patheffects import withStroke

    labels = geometry.map_labels(design.network)
    inside = geometry.labels_inside(labels)
    dense = len(labels) > geometry.DENSE
    side = geometry.node_size(labels)
    x, y = frame.points.T
    axes.scatter(x, y, s=(_POINT * side) ** 2, color="white", edgecolor=INK, linewidth=1.1, zorder=4)
    words: dict[str, Any] = {"color": INK, "zorder": 6, "parse_math": False}
    if inside:
        words |= {"ha": "center", "va": "center_baseline", "fontsize": 7.5 if not dense else 5.0}
        for position, label in zip(frame.points, labels, strict=True):
            axes.annotate(label, position, **words)
        return
    letter = 12.0 if not dense else 9.0
    places = geometry.place_labels(frame, labels, geometry.link_points(design, frame), radius=side / 2, letter=letter)
    words |= {"fontsize": _POINT * letter, "path_effects": [withStroke(linewidth=2.5, foreground="white")]}
    for position, label, place in zip(frame.points, labels, places, strict=True):
        if place is None:
            continue
        gap = _POINT * ((side / 2 + 4.0) if " " not in place else 0.38 * side + 2.0)
        right, up = ("right" in place) - ("left" in place), ("above" in place) - ("below" in place)
        words |= {"ha": ("center", "left", "right")[right], "va": ("center", "bottom", "top")[up]}
        axes.annotate(label, position, (gap * right, gap * up), textcoords="offset points", **words)


def _legend(axes: Axes, design: Design) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=MUTED, lw=_POINT * width, solid_capstyle="butt", label=f"capacity {number(capacity, 3)}")
        for width, capacity in width_samples(design.capacity)
    ]
    handles.append(Line2D([], [], color=FAINT, lw=1.2, linestyle=(0, (1, 2.4)), label="candidate, not built"))
    place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "ncols": len(handles)}
    axes.legend(handles=handles, frameon=False, fontsize=9, labelcolor=MUTED, handlelength=2.6, **place)


def _add_bar(figure: Figure, shades: Any, label: str, **place: Any) -> Any:
    bar: Any = figure.colorbar(shades, **place)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=9, labelcolor=MUTED)
    bar.set_label(label, color=MUTED, fontsize=9)
    return bar


def title_figure(figure: Figure, design: Design, what: str) -> None:
    """The name of the network, what is shown, and a line of facts."""
    sums = totals(design)
    served = percent(sums["served"] / sums["demand"]) if sums["demand"] else "–"
    facts = (
        f"{design.status.value}  ·  utility {number(design.utility, 5)}  ·  "
        f"{int(design.built.sum())} of {design.network.n_links} links built  ·  {served} of the demand served"
    )
    add_heading(figure, f"{shortened(design.network.name, 70)}: {what}", facts)


def _colormap(name: str, colours: tuple[str, ...]) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(name, colours)


def _mappable(scale: Any, low: float, high: float) -> Any:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    return ScalarMappable(Normalize(low, high), scale)
