"""Table 4 and Figures 6 and 11: the parameters of three nodes, a design of nine nodes, and the network of Seville."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc.kit.figure import BLUE, GREY, INK, new_figure, style_axes
from blocc.report.study.study_views import Findings, Observation, Table
from blocc.studies.study import Row, Study, select
from blocc.transport.design.design_network import design_network
from reproduction.item import Item, RowsByStudy
from reproduction.published_runs import shared_model
from reproduction.summary import finished, is_complete
from reproduction.verdicts import OURS, paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STUDY = "networks"
NAMES = ("three", "nine", "seville")
DESIGNED = "nine"  #: of this one the figure shows a design as well
#: Table 4: demand, revenue and time of the alternative by market; cost and time by link. It prints (2, 2) for (2, 3).
MARKETS = {
    **{"1-2": (1, 2, 3), "1-3": (1, 6, 3), "2-1": (1, 2, 3)},
    **{"2-3": (1, 1, 3), "3-1": (1, 6, 3), "3-2": (1, 1, 3)},
}
LINKS = {"1-2": (1, 1), "1-3": (10, 10), "2-1": (1, 1), "2-3": (3, 2), "3-1": (10, 10), "3-2": (3, 2)}
#: Stations, links and markets, as the text prints them.
COUNTS = {"three": (3, 6, 6), "nine": (9, 30, 72), "seville": (24, 88, 552)}
MINUTE = 0.25  #: of a time on Seville's network
LONGEST = 7.0  #: minutes, of a link of Seville


def describe(network: str, gamma: str, seed: int) -> Row:
    """All numbers of a network; of that of the figure a design as well."""
    model = shared_model(network)
    found = model.network
    names = lambda first, last: [f"{found.nodes[i]}-{found.nodes[j]}" for i, j in zip(first, last, strict=True)]  # noqa: E731
    row: dict[str, Any] = {
        "nodes": [str(node) for node in found.nodes],
        "coordinates": found.coordinates.tolist(),
        "links": names(found.tail, found.head),
        "ends": [found.tail.tolist(), found.head.tolist()],
        "time": found.time.tolist(),
        "cost": found.cost.tolist(),
        "markets": names(found.origin, found.destination),
        "pairs": [found.origin.tolist(), found.destination.tolist()],
        "demand": found.demand.tolist(),
        "revenue": found.revenue.tolist(),
        "alternative": found.alternative_time.tolist(),
        "capacity": None,
        "share": None,
        "utility": None,
    }
    if network == DESIGNED:
        design = design_network(found, gamma=gamma, starts=1, seed=seed, model=model)
        row |= {"capacity": np.asarray(design.capacity).tolist(), "utility": design.utility}
        row["share"] = np.asarray(design.follower.share).tolist()
    return row


def studies(quick: bool) -> list[Study]:
    """All three networks; one size."""
    return [Study(STUDY, "reproduction.networks:describe", {"network": list(NAMES)}, fixed={"gamma": "auto"})]


def conclude(rows_by_study: RowsByStudy) -> Findings:
    """The printed parameters beside those of the packaged networks."""
    rows = finished(rows_by_study, STUDY)
    three = list(select(rows, network="three"))
    lines = _table_4(three[0]) if three else []
    counts = [
        {
            "network": name,
            **{
                f"{who}: {what}": f"{number}"
                for who, numbers in (("printed", COUNTS[name]), ("counted", _counts(row)))
                for what, number in zip(("stations", "links", "markets"), numbers, strict=True)
            },
        }
        for name in NAMES
        for row in select(rows, network=name)
    ]
    notes = (
        "The paper prints the link (2, 2); (2, 3) is meant. It states omega_t = 0.1 beside the table and omega_t < 0 "
        "in the text; its program uses the times as they are.",
    )
    tables = [
        Table("Table 4: parameters of three nodes", lines, notes),
        Table("Figures 6 and 11: sizes", counts, ("The table of results prints 26 stations for Seville.",)),
    ]
    return Findings(tables, _observations(rows_by_study, rows))


def _table_4(row: Row) -> list[dict[str, Any]]:
    lines = []
    for name in MARKETS:
        at, link = row["markets"].index(name), row["links"].index(name)
        ours = [row[key][at] for key in ("demand", "revenue", "alternative")]
        ours += [row[key][link] for key in ("cost", "time")]
        line: dict[str, Any] = {"market and link": name}
        titles = ("demand", "revenue", "time of the alternative", "cost", "time")
        for title, printed, packaged in zip(titles, (*MARKETS[name], *LINKS[name]), ours, strict=True):
            line[f"{title}: printed"], line[f"{title}: packaged"] = f"{printed:g}", f"{packaged:g}"
        lines.append(line)
    return lines


def _counts(row: Row) -> tuple[int, int, int]:
    return len(row["nodes"]), len(row["links"]), len(row["markets"])


def _observations(rows_by_study: RowsByStudy, rows: Sequence[Row]) -> list[Observation]:
    if not is_complete(rows_by_study, STUDY):
        return []
    by_name = {row["network"]: row for row in rows}
    cells = [(line[key], line[key.replace("printed", "packaged")]) for line in _table_4(by_name["three"])
             for key in line if key.endswith("printed")]  # fmt: skip
    minutes = np.array(by_name["seville"]["time"]) / MINUTE
    return [
        Observation(
            "The packaged network of three nodes has the printed parameters",
            all(one == other for one, other in cells),
            f"{sum(one == other for one, other in cells)} of {len(cells)} cells agree, with (2, 3) for (2, 2)",
            paper("Table 4"),
        ),
        Observation(
            "The networks have the printed numbers of stations, links and markets",
            all(_counts(by_name[name]) == COUNTS[name] for name in NAMES),
            "; ".join(f"{name}: {_counts(by_name[name])}" for name in NAMES),
            paper("Appendix, text; Figures 6 and 11"),
        ),
        Observation(
            "No ride on a link of Seville takes longer than 7 minutes",
            bool(minutes.max() <= LONGEST),
            f"the longest {minutes.max():.2f} minutes",
            paper("Appendix, A2"),
        ),
        Observation(
            "The design of nine nodes that the figure shows earns more than the printed ones",
            by_name[DESIGNED]["utility"] > 11.04,
            f"{by_name[DESIGNED]['utility']:.4f}, gamma by itself, against 11.04",
            OURS,
        ),
    ]


# --- pictures ------------------------------------------------------------------------------------------------------
def draw(rows_by_study: RowsByStudy) -> dict[str, Figure]:
    """Figure 6 with a design of this package's, and Figure 11."""
    by_name = {row["network"]: row for row in finished(rows_by_study, STUDY)}
    figures = {}
    if DESIGNED in by_name:
        figures["nine"] = _figure_6(by_name[DESIGNED])
    if "seville" in by_name:
        figure = new_figure(8.0, 4.2)
        _map(figure.subplots(), by_name["seville"], None, "Seville: stations and possible links")
        figures["seville"] = figure
    return figures


def _figure_6(row: Row) -> Figure:
    figure = new_figure(11.0, 9.0)
    ((stations, demand), (built, served)) = figure.subplots(2, 2)
    _map(stations, row, None, "(a) stations and possible links, with times", times=True)
    _map(built, row, row["capacity"], f"(c) a design, utility {row['utility']:.2f}: widths show capacities")
    trips = np.array(row["demand"])
    for axes, values, title in (
        (demand, trips, "(b) demand of the markets"),
        (served, trips * np.array(row["share"]), "(d) passengers on the new network"),
    ):
        matrix = np.full((len(row["nodes"]),) * 2, np.nan)
        matrix[tuple(np.array(row["pairs"]))] = values
        image = axes.imshow(matrix, cmap="viridis", vmin=0.0, vmax=trips.max())
        places = np.arange(len(row["nodes"]))
        axes.set_xticks(places, row["nodes"])
        axes.set_yticks(places, row["nodes"])
        style_axes(axes, title, x="destination", y="origin", grid="none")
        figure.colorbar(image, ax=axes, shrink=0.8)
    return figure


def _map(axes: Axes, row: Row, capacity: Any, title: str, *, times: bool = False) -> None:
    places, widest = np.array(row["coordinates"]), max(capacity) if capacity else 1.0
    for place, (tail, head) in enumerate(zip(*row["ends"], strict=True)):
        ends = places[[tail, head]]
        if capacity is None and tail < head:  # every link has its reverse, whose dashes would fill the gaps
            axes.plot(*ends.T, color=GREY, linestyle="--", linewidth=0.9, zorder=1)
        elif capacity is not None and capacity[place] > 0.0:
            across = np.array([-1.0, 1.0]) * (ends[1] - ends[0])[::-1]
            ends = ends + 0.02 * across  # each direction beside the other
            axes.plot(*ends.T, color=BLUE, linewidth=0.5 + 4.0 * capacity[place] / widest, zorder=1)
        if times and tail < head:
            across, up = ends.mean(axis=0)
            style: dict[str, Any] = {
                "fontsize": 8,
                "ha": "center",
                "va": "center",
                "color": INK,
                "backgroundcolor": "white",
            }
            axes.text(across, up, f"{row['time'][place]:g}", **style)
    axes.plot(*places.T, "o", color=INK, markersize=11, zorder=2)
    for name, place in zip(row["nodes"], places, strict=True):
        axes.annotate(name, place, color="white", fontsize=7, ha="center", va="center", zorder=3)
    style_axes(axes, title, grid="none")
    axes.set_axis_off()
    axes.set_aspect("equal")


ITEM = Item(
    name="networks",
    title="Table 4, Figures 6 and 11: the paper's networks, and a design of nine nodes",
    studies=studies,
    conclude=conclude,
    draw=draw,
    seconds=(15.0, 15.0),
)
