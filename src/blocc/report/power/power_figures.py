"""A power system as a picture (matplotlib): the network, prices before and after, the decision, and the way to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc.power.documents import loading
from blocc.power.power_design import KINDS, PowerDesign
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
from blocc.report.format import number, shortened
from blocc.report.map_parts import add_colour_bar, frame_axes
from blocc.report.power.power_layout import diagram
from blocc.report.transport import design_geometry as geometry
from blocc.report.transport.design_geometry import UTILISATION_SCALE, link_widths

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Cheap buses are blue, expensive ones orange.
PRICE_SCALE = ("#0072B2", "#8fc1de", "#f4f4f2", "#f3cf85", "#D55E00")
_MOST_BARS = 16


def plot_design(design: PowerDesign, path: str | Path | None = None) -> Figure:
    """Draw the network with prices and loads, prices before and after, the decision, and the way to the answer.

    Written when ``path`` is given (.png, .pdf, .svg).
    """
    figure = new_figure(13.0, 10.0)
    panels: Any = figure.subplots(2, 2)
    _draw_network(panels[0, 0], design)
    _draw_prices(panels[0, 1], design)
    _draw_decisions(panels[1, 0], design)
    _draw_way(panels[1, 1], design)
    facts = (
        f"{design.status.value}  ·  {design.goal} {number(design.objective, 6)} per hour "
        f"(before {number(design.objective_before, 6)})  ·  prices {number(design.after.price.min(), 4)} to "
        f"{number(design.after.price.max(), 4)} per MWh"
    )
    add_heading(figure, f"{shortened(design.case.name, 60)}: {KINDS[design.kind].lower()}", facts)
    return keep_figure(figure, path)


def touched(design: PowerDesign) -> tuple[list[int], list[int]]:
    """Places of buses and of lines that a decision is about."""
    case, numbers = design.case, [one.number for one in design.decisions]
    if design.kind == "bids":
        return case.generator_bus[case.places("generators", numbers)].tolist(), []
    if design.kind == "expansion":
        chosen = [one.number for one in design.decisions if one.value > 1e-6 * (1.0 + one.high)]
        return [], case.places("lines", chosen).tolist() if chosen else []
    return [], []


def _draw_network(axes: Axes, design: PowerDesign) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    drawn, after = diagram(design.case), design.after
    frame = drawn.framed(1060.0, 720.0)
    ends = np.stack([frame.points[drawn.tail], frame.points[drawn.head]], axis=1)
    widths = 0.42 * np.maximum(link_widths(np.where(np.isfinite(after.capacity), after.capacity, 0.0)), 1.5)
    buses, lines = touched(design)
    if lines:
        axes.add_collection(LineCollection(list(ends[lines]), colors=GREEN, linewidths=widths[lines] + 4.0, zorder=1))
    full = LinearSegmentedColormap.from_list("loads", UTILISATION_SCALE)
    axes.add_collection(
        LineCollection(list(ends), colors=list(full(np.clip(loading(after), 0.0, 1.0))), linewidths=widths, zorder=2)
    )
    scale, shade = LinearSegmentedColormap.from_list("prices", PRICE_SCALE), Normalize(*price_range(design))
    small = design.case.n_buses > geometry.DENSE
    x, y = frame.points.T
    edges = np.full(design.case.n_buses, 0.8)
    edges[buses] = 2.6
    colours = np.array([INK] * design.case.n_buses, dtype=object)
    colours[buses] = GREEN
    axes.scatter(
        x,
        y,
        s=16.0 if small else 170.0,
        c=list(scale(shade(after.price))),
        edgecolor=list(colours),
        linewidth=edges,
        zorder=4,
    )
    if not small:
        for place, label in zip(frame.points, drawn.labels, strict=True):
            axes.annotate(label, tuple(place), ha="center", va="center_baseline", fontsize=7, color=INK, zorder=5)
    frame_axes(axes, frame)
    title = "Buses by price (circles), lines by load (dark: full)"
    axes.set_title(title + (", green: decided" if buses or lines else ""), fontsize=10.5, loc="left", color=INK)
    add_colour_bar(axes, shade, scale, "price per MWh")


def price_range(design: PowerDesign) -> tuple[float, float]:
    """The ends of the scale of prices after the decision; one bus among hundreds shall not make all others pale."""
    low, high = (float(np.quantile(design.after.price, part)) for part in (0.01, 0.99))
    middle = 0.5 * (low + high)
    room = max(0.5 * (high - low), 0.02 * abs(middle), 1e-6)
    return middle - room, middle + room


def _draw_prices(axes: Axes, design: PowerDesign) -> None:
    style_axes(axes, "Prices", x="buses, in order of their price", y="per MWh")
    locator: Any = axes.xaxis.get_major_locator()
    locator.set_params(integer=True)
    for dispatch, colour, label in ((design.before, MUTED, "before"), (design.after, BLUE, "after")):
        axes.plot(np.arange(1, design.case.n_buses + 1), np.sort(dispatch.price), color=colour, label=label, marker=".")
    axes.legend(frameon=False, fontsize=9, labelcolor=MUTED)


def _draw_decisions(axes: Axes, design: PowerDesign) -> None:
    order = np.argsort([-abs(one.value - one.before) for one in design.decisions], kind="stable")[:_MOST_BARS]
    shown = [design.decisions[k] for k in sorted(order.tolist())]
    style_axes(axes, f"Decisions, {design.unit}", grid="x")
    rows = np.arange(len(shown))
    axes.barh(rows + 0.2, [one.value for one in shown], height=0.34, color=GREEN, label="decision")
    axes.barh(rows - 0.2, [one.before for one in shown], height=0.34, color=FAINT, label="before")
    axes.set_yticks(rows, [one.name for one in shown])
    axes.invert_yaxis()
    axes.legend(frameon=False, fontsize=9, labelcolor=MUTED)


def _draw_way(axes: Axes, design: PowerDesign) -> None:
    style_axes(axes, "The way to the answer", x="seconds", y=f"{design.goal}, per hour")
    exact, penalised = way(design)
    if not len(exact):
        add_note(axes, "no value was recorded")
        return
    if len(penalised):
        axes.plot(*penalised.T, "-", color=ORANGE, linewidth=1.2, label="penalised, $F_\\gamma$")
    axes.plot(*exact.T, "o-", color=BLUE, markersize=3.5, drawstyle="steps-post", label="best exact value")
    low, high = np.min(exact[:, 1]), np.max(exact[:, 1])
    room = 0.3 * (high - low) or 0.05 * abs(high) or 1.0
    axes.set_ylim(low - room, high + room)
    axes.legend(frameon=False, fontsize=9, labelcolor=MUTED)


def way(design: PowerDesign) -> tuple[Any, Any]:
    """Best exact values and penalised ones by seconds, in the leader's own sense."""
    sense = 1.0 if design.kind == "expansion" else -1.0
    steps = np.array([(step.seconds, sense * step.value, step.gamma) for step in design.history]).reshape(-1, 3)
    exact = np.isinf(steps[:, 2])
    return steps[exact, :2], steps[~exact, :2]
