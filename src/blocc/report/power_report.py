"""A power system as a picture and as a page: the one-line diagram, prices, the decision, and the way to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc.kit.charts import Chart, Series, direction, steps_chart, tooltip
from blocc.kit.documents import rows_of
from blocc.kit.figure import (
    BLUE,
    FAINT,
    GREEN,
    MUTED,
    add_heading,
    keep_figure,
    new_figure,
    style_axes,
)
from blocc.kit.map_geometry import frame_places, link_widths
from blocc.kit.network_map import Layer, NetworkMap, scale_ticks
from blocc.kit.page import KeyFigure, Section, answer_page, chart, record_table, table
from blocc.kit.text import duration, number, percent, shortened
from blocc.power.checks import MEANINGS, certificate_checks
from blocc.power.dispatch import Dispatch
from blocc.power.documents import BUSES, DECISIONS, GENERATORS, LINES, loading
from blocc.power.power_design import KINDS, PowerDesign
from blocc.report.power_layout import SAID, places

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Cheap buses are blue, expensive ones orange.
PRICE_SCALE = ("#0072B2", "#8fc1de", "#f4f4f2", "#f3cf85", "#D55E00")
MOST_ROWS = 500  #: of a table
_MOST_BARS = 16
_COLUMNS = {
    "decisions": {
        "name": ("Decision", "text"),
        "value": ("Value", "fine"),
        "before": ("Before", ""),
        "high": ("Most", ""),
    },
    "generators": {
        **{"generator": ("Generator", "text"), "bus": ("Bus", "text"), "output_max": ("Most, MW", "")},
        **{"output_before": ("Output before", ""), "output_after": ("after", "")},
        **{"profit_before": ("Profit before", ""), "profit_after": ("after ", "")},
    },
    "buses": {
        **{"bus": ("Bus", "text"), "demand": ("Demand, MW", ""), "served": ("Served, MW", "")},
        **{"price_before": ("Price before", ""), "price_after": ("Price after", "")},
    },
    "lines": {
        **{"line": ("Line", "text"), "from": ("From", "text"), "to": ("To", "text")},
        **{"capacity_after": ("Capacity, MW", ""), "flow_before": ("Flow before", ""), "flow_after": ("after", "")},
        **{"loading_before": ("Load before", "percent"), "loading_after": ("after ", "percent")},
        "value_after": ("Value of a MW", ""),
    },
}


# --- what is drawn ------------------------------------------------------------------------------------------------
def power_map(design: PowerDesign) -> NetworkMap:
    """The one-line diagram with the decision, and before."""
    case = design.case
    buses, lines = touched(design)
    low, high = price_range(design)
    layers = [
        Layer(
            words,
            loading(dispatch),
            "price per MWh",
            scale_ticks(low, high),
            nodes=(dispatch.price - low) / (high - low),
            node_scale=PRICE_SCALE,
            widths=_widths(dispatch),
        )
        for words, dispatch in (("with the decision", design.after), ("before", design.before))
    ]
    return NetworkMap(
        frame_places(places(case)),
        case.line_from,
        case.line_to,
        [str(one) for one in case.bus_number.tolist()],
        _widths(design.after),
        layers,
        link_words=lambda: [_line_words(row) for row in rows_of(design, LINES)],
        node_words=lambda: _bus_words(design),
        marked=lines,
        marked_nodes=buses,
        is_directed=False,
        menu="Show",
    )


def touched(design: PowerDesign) -> tuple[list[int], list[int]]:
    """Places of buses and of lines that a decision is about."""
    case, numbers = design.case, [one.number for one in design.decisions]
    if design.kind == "bids":
        return case.generator_bus[case.places("generators", numbers)].tolist(), []
    if design.kind == "expansion":
        chosen = [one.number for one in design.decisions if one.value > 1e-6 * (1.0 + one.high)]
        return [], case.places("lines", chosen).tolist() if chosen else []
    return [], []


def price_range(design: PowerDesign) -> tuple[float, float]:
    """The ends of the scale of prices after the decision; one bus among hundreds shall not make all others pale."""
    low, high = (float(np.quantile(design.after.price, part)) for part in (0.01, 0.99))
    middle = 0.5 * (low + high)
    room = max(0.5 * (high - low), 0.02 * abs(middle), 1e-6)
    return middle - room, middle + room


def _widths(dispatch: Dispatch) -> Any:
    """Of lines, in pixels; a line without a limit is thin."""
    return np.maximum(link_widths(np.where(np.isfinite(dispatch.capacity), dispatch.capacity, 0.0)), 1.5)


def _bus_words(design: PowerDesign) -> list[str]:
    generators: dict[int, list[str]] = {}
    for row in rows_of(design, GENERATORS):
        outputs = f"{number(row['output_before'])} → {number(row['output_after'])} of {number(row['output_max'])} MW"
        generators.setdefault(int(row["bus"]), []).append(f"generator {row['generator']}: {outputs}")
    return [
        tooltip(
            f"bus {row['bus']}",
            f"price {number(row['price_before'])} → {number(row['price_after'])} per MWh",
            f"demand {number(row['demand'])} MW, served {number(row['served'])} MW",
            *generators.get(int(row["bus"]), ()),
        )
        for row in rows_of(design, BUSES)
    ]


def _line_words(row: dict[str, Any]) -> str:
    return tooltip(
        f"line {row['line']}: bus {direction(row['from'], row['to'])}",
        f"capacity {number(row['capacity_after'])} MW",
        f"flow {number(row['flow_before'])} → {number(row['flow_after'])} MW",
        f"load {percent(row['loading_before'])} → {percent(row['loading_after'])}",
        f"value of a MW {number(row['value_before'])} → {number(row['value_after'])}",
    )


def price_chart(design: PowerDesign) -> Chart:
    """Prices before and with the decision, by bus."""
    order = np.argsort(design.after.price, kind="stable")
    names = [str(one) for one in design.case.bus_number[order].tolist()]
    ranks, hover = np.arange(1, len(order) + 1), "bus %{customdata}: %{y:.6g}"
    series = [
        Series(words, ranks, dispatch.price[order], colour, "lines+markers", size=5.0, hover=hover, details=names)
        for dispatch, colour, words in ((design.before, MUTED, "before"), (design.after, BLUE, "with the decision"))
    ]
    return Chart(
        series, "buses, in order of their price with the decision", "price per MWh", "Prices", has_whole_x=True
    )


def way_chart(design: PowerDesign) -> Chart:
    """Penalised and exact values by seconds, in the leader's own sense."""
    sense = 1.0 if design.kind == "expansion" else -1.0
    seconds, value, gamma = np.array([(s.seconds, sense * s.value, s.gamma) for s in design.history]).reshape(-1, 3).T
    exact, shown = value[np.isinf(gamma)], None
    if len(exact):
        room = 0.3 * float(np.ptp(exact)) or 0.05 * abs(float(exact.max())) or 1.0
        shown = float(exact.min()) - room, float(exact.max()) + room
    axes: dict[str, Any] = {"x": "seconds", "y": f"{design.goal}, per hour", "shown": shown}
    return steps_chart(seconds, value, gamma, is_maximised=sense < 0.0, empty="no value was recorded", **axes)


# --- on paper -----------------------------------------------------------------------------------------------------
def plot_design(design: PowerDesign, path: str | Path | None = None) -> Figure:
    """Draw the network with prices and loads, prices before and after, the decision, and the way to the answer.

    Written when ``path`` is given (.png, .pdf, .svg).
    """
    figure = new_figure(13.0, 10.0)
    panels: Any = figure.subplots(2, 2)
    decided = ", green: decided" if any(touched(design)) else ""
    power_map(design).draw(panels[0, 0], title=f"Buses by price (circles), lines by load (dark: full){decided}")
    price_chart(design).draw(panels[0, 1])
    _draw_decisions(panels[1, 0], design)
    way_chart(design).draw(panels[1, 1])
    facts = (
        f"{design.status.value}  ·  {design.goal} {number(design.objective, 6)} per hour "
        f"(before {number(design.objective_before, 6)})  ·  prices {number(design.after.price.min(), 4)} to "
        f"{number(design.after.price.max(), 4)} per MWh"
    )
    add_heading(figure, f"{shortened(design.case.name, 60)}: {KINDS[design.kind].lower()}", facts)
    return keep_figure(figure, path)


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


# --- on a page ----------------------------------------------------------------------------------------------------
def report_page(design: PowerDesign) -> str:
    """The page as text."""
    case, kind = design.case, KINDS[design.kind].lower()
    edges = {
        "bids": "Buses of the producer’s generators have a green edge. ",
        "expansion": "Lines that are enlarged have a green edge. ",
    }.get(design.kind, "")
    decision = {
        "bids": "What each of the producer’s generators should offer, per MWh. Before: its marginal cost. Where "
        "another "
        "offer would earn the same, the marginal cost is shown.",
        "expansion": "The capacity to add to each line, MW.",
    }.get(design.kind, "What each MWh is charged in each zone, on top of the price of its bus.")
    low, high = number(design.after.price.min(), 4), number(design.after.price.max(), 4)
    map_words = f"One-line diagram: prices from {low} to {high} per MWh, {len(design.after.congested)} congested lines."
    before = number(design.before.price.max(), 4)
    price_words = f"Prices by bus: up to {before} before, up to {high} with the decision."
    sections = [
        Section(
            "map",
            "Prices and flows",
            "The colour of a bus is its price, the colour of a line how full it is (light: empty, dark: full), its "
            "width "
            f"its capacity. {edges}Point at a bus or a line for its figures; drag to move the diagram. {SAID}",
            [chart("map", power_map(design).plotly(), map_words)],
        ),
        _table_section(design, "decision", "The decision", decision, "decisions"),
        Section(
            "prices",
            "Prices by bus",
            "Locational prices: what one more MWh at a bus costs the market.",
            [chart("prices", price_chart(design).plotly(), price_words)],
        ),
        _table_section(
            design,
            "generators",
            "Generators",
            "Outputs in MW; profits per hour: what the price of the bus brings, less the cost.",
        ),
        _table_section(design, "buses", "Buses", "Demand and prices per MWh.", filter="Filter by bus", cells=1),
        _table_section(
            design,
            "lines",
            "Lines",
            "The fullest lines first. The value of a MW is what one more MW of capacity would save the market, per "
            "hour.",
            filter="Filter by line or bus",
            cells=3,
        ),
    ]
    way = Section(
        "way",
        "The way to the answer",
        "The penalised value is that of a market that looks after the leader a little. Only exact values count, with "
        "the "
        "market’s own answer.",
        [
            chart(
                "way",
                way_chart(design).plotly(),
                f"The leader’s value over time, up to {number(design.objective, 6)} per hour.",
            )
        ],
    )
    return answer_page(
        design,
        kind=kind,
        name=case.name,
        heading=f"{case.name}: {kind}",
        kicker=f"Electricity: {case.n_buses:,} buses, {case.n_generators:,} generators, {case.n_lines:,} lines",
        figures=_key_figures(design),
        sections=[*sections, way],
        checks=certificate_checks(design),
        meanings=MEANINGS,
        measured="The market is cleared once more at the reported decision, by Clarabel and by HiGHS in two "
        "formulations, and decisions around it are tried.",
        assumed="Flows follow the DC approximation: no losses, no reactive power, voltages of one.",
        assumptions=[*design.assumptions, *case.assumptions],
        files="design.json, summary.csv, decisions.csv, buses.csv, generators.csv, lines.csv, design.npz and "
        "design.xlsx",
    ).html()


def _key_figures(design: PowerDesign) -> list[KeyFigure]:
    before, after = design.before, design.after
    prices = [f"{number(one.price.min(), 4)} to {number(one.price.max(), 4)}" for one in (after, before)]
    headed = lambda words: words[:1].upper() + words[1:]  # noqa: E731
    return [
        (headed(design.goal), number(design.objective, 6), "per hour"),
        ("Before", number(design.objective_before, 6), "per hour"),
        *((headed(name), number(value, 6), "with the decision") for name, value in design.figures.items()),
        ("Cost of generation", number(after.cost, 6), f"before {number(before.cost, 6)}"),
        ("Prices", prices[0], f"before {prices[1]}"),
        ("Congested lines", number(len(after.congested)), f"before {len(before.congested)}"),
        ("Computed in", duration(design.seconds), f"{design.evaluations:,} evaluations"),
    ]


def _table_section(
    design: PowerDesign, name: str, title: str, note: str, rows: str = "", filter: str = "", cells: int | str = ""
) -> Section:
    """A section with one of the tables; of lines the fullest."""
    rows = rows or name
    columns = {"decisions": DECISIONS, "generators": GENERATORS, "buses": BUSES, "lines": LINES}[rows]
    found = rows_of(design, columns)
    if rows == "lines":
        found.sort(key=lambda row: -row["loading_after"])
    shown = record_table(f"{rows}-table", found[:MOST_ROWS], _COLUMNS[rows])
    return Section(name, title, note, [table(shown, title, "descending", filter, cells)], is_long=True)
