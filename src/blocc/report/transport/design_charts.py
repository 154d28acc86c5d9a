"""A design as charts, for pages and on paper: the map, demand and served demand, and how the utility was reached."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.kit import charts
from blocc.kit.charts import (
    DEMAND_SCALE,
    Chart,
    Series,
    colour_map,
    direction,
    plotly_numbers,
    plotly_text,
    styles,
    tooltip,
)
from blocc.kit.figure import (
    BLUE,
    FAINT,
    GREEN,
    MUTED,
    ORANGE,
    add_heading,
    figure_image,
    keep_figure,
    new_figure,
    style_axes,
)
from blocc.kit.map_geometry import frame_places, link_widths, map_labels, width_samples
from blocc.kit.network_map import TICKS, Layer, NetworkMap
from blocc.kit.text import number, percent, shortened
from blocc.networks.readers.raw import INVENTED
from blocc.transport.design.design_result import Design
from blocc.transport.design.documents import link_rows, shown_answer, totals

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_NODES = 100  #: in a heat map: more could be told apart neither on paper nor on a screen
MOST_POINTS = 2000  #: of a curve
#: Of the ways of a market on the page, the widest first; none is a colour of links.
_WAY_COLOURS = (BLUE, GREEN, "#56B4E9", "#8C6D1F", "#111111")
_LEAST_PRICE = 1e-6  # what is smaller is rounding
#: A scale ends where this part of the values does, if the largest is so many times as large.
_USUAL, _FAR = 0.95, 2.0
_ROOM = 0.08  # of the axis, between two labels of stages
_MAP_WIDTH = 11.0  # inches


# --- the map ------------------------------------------------------------------------------------------------------
def clear_prices(design: Design) -> Float[NDArray, "links"]:
    """The prices as people see them: 0 where only rounding is left."""
    price = shown_answer(design).price
    return np.where(price < _LEAST_PRICE, 0.0, price)


def design_layers(design: Design) -> list[Layer]:
    """What links may be coloured by, the most telling first.

    Where capacities just fit, every link is full, and colours would say nothing: then prices come first, or flows where
    no link has a price.
    """
    found = shown_answer(design)
    words = "capacity used"
    used = Layer(
        words, np.nan_to_num(found.utilisation, nan=np.nan, posinf=0.0), words, [percent(part) for part in TICKS]
    )
    price, largest = _over_largest("price", found.price, design)
    flow, _ = _over_largest("flow", found.flow, design)
    if np.nanmin(found.utilisation, initial=1.0) < 0.98 or not np.isfinite(found.flow).any():
        return [used, flow, price]
    return [price, flow, used] if largest > 1e-4 * float(np.mean(design.network.time)) else [flow, price, used]


def _over_largest(title: str, values: Float[NDArray, "links"], design: Design) -> tuple[Layer, float]:
    """Values as parts of the end of the scale, and that end: few links must not leave one colour to all others."""
    known = np.where(design.built, values, np.nan)
    largest = float(np.nanmax(known, initial=0.0))
    usual = float(np.nanquantile(known, _USUAL, method="lower")) if np.isfinite(known).any() else 0.0
    is_cut = largest > _FAR * usual > 0.0
    top = usual if is_cut else largest
    ticks = [number(part * top, 3) + " or more" * (is_cut and part == 1.0) for part in TICKS]
    return Layer(title, np.minimum(known / (top or 1.0), 1.0), title, ticks), top


def design_map(design: Design, width: float = 1060.0, height: float = 640.0) -> NetworkMap:
    """The network: width shows capacity, colour use, price or flow; dotted if not built."""
    network, style = design.network, styles()["map"]
    return NetworkMap(
        frame_places(network.coordinates, network.geographic, width, height),
        network.tail,
        network.head,
        map_labels(network.labels, network.nodes),
        np.where(design.built, link_widths(design.capacity), 0.0),
        design_layers(design),
        link_words=lambda: _link_words(design),
        node_words=lambda: _node_words(design),
        further=[{**style["lines"], **style["ways"], "line": {"width": 1, "color": one}} for one in _WAY_COLOURS],
    )


def _link_words(design: Design) -> list[str]:
    network = design.network
    ends = list(zip(network.tail.tolist(), network.head.tolist(), strict=True))
    count, words = Counter(ends), []
    for a, row in enumerate(link_rows(design)):
        name = f" ({network.link_ids[a]})" if count[ends[a]] > 1 else ""
        built = [
            f"capacity {number(row['capacity'])}",
            f"flow {number(row['flow'])} ({percent(row['utilisation'])} of capacity)",
        ]
        words.append(
            tooltip(
                direction(*(network.labels[end] for end in ends[a])) + name,
                *(built if design.built[a] else ["not built"]),
                f"price of capacity {number(row['price'])}",
                f"time {number(row['time'])}",
                f"cost {number(row['cost'])} per unit of capacity",
            )
        )
    return words


def _node_words(design: Design) -> list[str]:
    """How many depart and arrive at each node, and how many want to."""
    network = design.network
    amounts = (network.demand * shown_answer(design).share, network.demand)
    departing, arriving = (
        [np.bincount(ends, amount, minlength=network.n_nodes) for amount in amounts]
        for ends in (network.origin, network.destination)
    )
    return [
        tooltip(
            shortened(label, 60) + (f" ({shortened(str(name), 60)})" if str(name) != label else ""),
            *(
                f"{words}: {number(served[k])} of {number(wanted[k])} served"
                for words, (served, wanted) in (("departing", departing), ("arriving", arriving))
            ),
        )
        for k, (label, name) in enumerate(zip(network.labels, network.nodes, strict=True))
    ]


# --- demand -------------------------------------------------------------------------------------------------------
class DemandMatrices(NamedTuple):
    """Demand and served demand, origin by destination; NaN where there is no market."""

    labels: list[str]
    demand: Float[NDArray, "shown shown"]
    served: Float[NDArray, "shown shown"]
    left_out: int  #: nodes with little demand that are not shown

    @property
    def titles(self) -> tuple[str, str]:
        """Words above the two tables."""
        served = np.nansum(self.served) if np.isfinite(self.served).any() else np.nan
        return f"Demand: {number(np.nansum(self.demand))}", f"Served by the new network: {number(served)}"


def demand_matrices(design: Design) -> DemandMatrices:
    """Put the markets into two square tables over the nodes that have any."""
    network = design.network
    weight = np.zeros(network.n_nodes)
    np.add.at(weight, network.origin, network.demand)
    np.add.at(weight, network.destination, network.demand)
    used = np.union1d(network.origin, network.destination)
    shown = used if len(used) <= MOST_NODES else np.sort(used[np.argsort(-weight[used], kind="stable")[:MOST_NODES]])
    position = np.full(network.n_nodes, -1)
    position[shown] = np.arange(len(shown))
    row, column = position[network.origin], position[network.destination]
    kept = (row >= 0) & (column >= 0)
    demand = np.full((len(shown), len(shown)), np.nan)
    served = demand.copy()
    demand[row[kept], column[kept]] = network.demand[kept]
    served[row[kept], column[kept]] = (network.demand * shown_answer(design).share)[kept]
    return DemandMatrices([network.labels[i] for i in shown], demand, served, len(used) - len(shown))


def demand_figure(design: Design) -> charts.Figure:
    """Two heat maps over the same pairs and with the same colours, so that they compare; grey: no market."""
    style, matrices = styles()["demand"], demand_matrices(design)
    count = len(matrices.labels)
    ticks = list(range(0, count, max(1, math.ceil(count / 30))))
    names = [plotly_text(matrices.labels[k], 16) for k in ticks]
    axis = {**style["axis"], "tickvals": ticks, "ticktext": names}
    across = {**axis, "range": [-0.5, count - 0.5], "tickangle": 0 if max(map(len, names), default=0) <= 3 else -90}
    down = {**axis, "range": [count - 0.5, -0.5]}
    labels = [plotly_text(label, 24) for label in matrices.labels]
    gap = 1 if count <= 40 else 0
    shared = {
        "text": [[f"{origin} → {destination}" for destination in labels] for origin in labels],
        "zmax": float(np.nanmax(matrices.demand, initial=0.0)) or 1.0,
        "colorscale": charts.colour_scale(DEMAND_SCALE),
        **{"xgap": gap, "ygap": gap},
    }
    data = [
        {**style[name], **shared, "z": [plotly_numbers(row) for row in values]}
        for name, values in (("demand", matrices.demand), ("served", matrices.served))
    ]
    headings = [charts.heading(title, axis) for title, axis in zip(matrices.titles, ("x", "x2"), strict=True)]
    axes = {"xaxis": across, "yaxis": down, "xaxis2": across, "yaxis2": down}
    return charts.make_figure("demand", data, {**axes, "annotations": [*headings, charts.bar_title("demand")]})


# --- the way to the answer ----------------------------------------------------------------------------------------
def utility_chart(design: Design) -> Chart:
    """The operator's utility by evaluation (by iteration where those were not counted); long runs are thinned evenly.

    Dashed lines where gamma grew; as many are labelled as fit beside each other, the last one always.
    """
    history = design.history
    evaluation = np.asarray(history.evaluations, dtype=float)
    if not np.isfinite(evaluation).all() or (np.diff(evaluation) < 0).any():
        evaluation = np.arange(1.0, len(history) + 1.0)
    begins = np.flatnonzero(np.diff(history.gamma, prepend=np.nan) != 0).tolist() if len(history) else []
    kept = np.unique(np.linspace(0, len(history) - 1, min(len(history), MOST_POINTS)).astype(int))
    labelled = begins[-1:]
    for row in reversed(begins[:-1]):
        if evaluation[labelled[-1]] - evaluation[row] >= _ROOM * (np.ptp(evaluation) or 1.0):
            labelled.append(row)
    gamma, hover = plotly_numbers(np.asarray(history.gamma)[kept]), "%{y:.6g} (gamma %{customdata:.4g})"
    curves = (
        ("at the travellers’ own answer, yg", history.upper_value, BLUE, 3.0, False),
        ("at the penalised answer, yF", history.upper_value_penalty, ORANGE, 2.0, True),  # both should end as one
    )
    series = [
        Series(
            name, evaluation[kept], -np.asarray(values)[kept], colour, "lines", width, 8.0, dash, False, hover, gamma
        )
        for name, values, colour, width, dash in curves
    ]
    return Chart(
        series,
        "evaluation",
        "operator’s utility",
        starts=evaluation[begins[1:]].tolist(),
        notes=[(float(evaluation[row]), f"γ = {number(history.gamma[row])}") for row in reversed(labelled)],
        empty="no iteration was recorded",
    )


# --- on paper -----------------------------------------------------------------------------------------------------
def plot_map(design: Design, path: str | Path | None = None) -> Figure:
    """Draw the network: width shows capacity, colour use, price or flow, whatever tells most; dotted if not built.

    Each direction runs on the right-hand side of its travellers. Written when ``path`` is given (.png, .pdf, .svg).
    """
    height = float(np.clip((_MAP_WIDTH - 1.4) * design_map(design).frame.aspect, 4.6, 8.2)) + 1.1
    figure = new_figure(_MAP_WIDTH, height)
    draw_map(figure, design)
    return keep_figure(figure, path)


def draw_map(figure: Figure, design: Design) -> None:
    """The map into an empty figure."""
    from matplotlib.lines import Line2D

    point, axes = 0.75, figure.add_subplot()
    design_map(design, 96.0 * (_MAP_WIDTH - 1.4), 96.0 * 7.0).draw(axes, point=point, shrink=0.55)
    handles = [
        Line2D([], [], color=MUTED, lw=point * width, solid_capstyle="butt", label=f"capacity {number(capacity, 3)}")
        for width, capacity in width_samples(design.capacity)
    ]
    handles.append(Line2D([], [], color=FAINT, lw=1.2, linestyle=(0, (1, 2.4)), label="candidate, not built"))
    place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "ncols": len(handles)}
    axes.legend(handles=handles, frameon=False, fontsize=9, labelcolor=MUTED, handlelength=2.6, **place)
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
    scale = colour_map(DEMAND_SCALE).with_extremes(bad="#eef0f2")
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
    bar: Any = figure.colorbar(image, ax=list(panels), shrink=0.7, aspect=26, pad=0.015)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=9, labelcolor=MUTED)
    bar.set_label("passengers (grey: no market)", color=MUTED, fontsize=9)
    left_out = f" ({matrices.left_out} small nodes left out)" if matrices.left_out else ""
    title_figure(figure, design, f"demand{left_out}")


def plot_convergence(design: Design, path: str | Path | None = None) -> Figure:
    """Draw the operator's utility by evaluation, at yg and at yF; dashed lines mark where gamma grew."""
    figure = new_figure(10.0, 5.2)
    draw_convergence(figure, design)
    return keep_figure(figure, path)


def draw_convergence(figure: Figure, design: Design) -> None:
    """The curves into an empty figure."""
    utility_chart(design).draw(figure.add_subplot(), grid="y")
    title_figure(figure, design, "how the utility was reached")


def picture_files(design: Design) -> dict[str, bytes]:
    """The three pictures as PNG files."""
    figures = {"map": plot_map(design), "demand": plot_demand(design), "convergence": plot_convergence(design)}
    return {f"{name}.png": figure_image(figure) for name, figure in figures.items()}


def title_figure(figure: Figure, design: Design, what: str) -> None:
    """The name of the network, what is shown, and a line of facts."""
    sums = totals(design)
    served = percent(sums["served"] / sums["demand"]) if sums["demand"] else "–"
    facts = (
        f"{design.status.value}  ·  utility {number(design.utility, 5)}  ·  "
        f"{int(design.built.sum())} of {design.network.n_links} links built  ·  {served} of the demand served"
    )
    add_heading(figure, f"{shortened(design.network.name, 70)}: {what}", facts)
