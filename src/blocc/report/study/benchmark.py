"""The benchmark suite on one page: performance profiles against time and against calls, and tables behind them.

A method has reached an accuracy on a problem when the leader's value at the follower's exact answer is within that of
the best value, relative to 1 + its size. The best value is the known one; where none is known, the best that any
method found. A profile (Dolan and More 2002) shows the share of all problems on which a method reached the accuracy
at no more than so many times the cost of the cheapest method there; a method that does not apply to a problem has not
reached it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.kit.figure import add_heading, add_legend, add_note, figure_image, new_figure, style_axes
from blocc.methods.compare import CLOCK
from blocc.report.comparison import method_style
from blocc.report.study.study_views import Findings, ItemView, StudyView, Table, is_number
from blocc.studies.study import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Accuracies of the profiles, relative to 1 + |best value|.
ACCURACIES = (1e-2, 1e-4)
#: What is counted: place in a row's way, name, and the least that a clock or a counter can tell.
COSTS = ((0, CLOCK, 1e-3), (1, "derivatives of the lower level", 1.0))
#: Columns that the page draws: none of yes and no.
_DRAWN = ("calls", "seconds", "value", "stationarity_x")
_NOTES = (
    "Values are those at the follower's exact answer. Reached: within the accuracy of the best value, relative to 1 "
    "plus its size.",
    "Calls: how often a method differentiated the lower level. A Newton iteration of an inner solver counts once; "
    "iterations of settings that were tried side by side and not chosen count too; blocc's are means over its "
    "evaluations.",
    "Seconds exclude compilation, and include the exact follower's answers by which the way is judged, about forty "
    "a run.",
)


def best_values(view: StudyView) -> dict[str, float]:
    """The value that each problem is measured by: the known one, or else the best of all methods."""
    best: dict[str, float] = {}
    for row in view.done:
        name, known = str(row["problem"]), row.get("known")
        ends = [point[2] for point in row.get("way") or ()]
        if isinstance(known, float | int) and math.isfinite(known):
            ends = [float(known)]
        best[name] = min(ends, default=math.inf) if name not in best else min(best[name], *ends)
    return best


def cost_of(row: Row, best: float, accuracy: float, place: int, least: float) -> float:
    """Seconds (place 0) or calls (1) until the accuracy was reached; infinite where it never was."""
    limit = best + accuracy * (1.0 + abs(best))
    return next((max(point[place], least) for point in row.get("way") or () if point[2] <= limit), math.inf)


def costs(view: StudyView, accuracy: float, place: int, least: float) -> Float[NDArray, "problems methods"]:
    """The cost of every method on every problem."""
    problems, methods = view.study.grid["problem"], view.study.grid["method"]
    best = best_values(view)
    table = np.full((len(problems), len(methods)), math.inf)
    for row in view.done:
        cost = cost_of(row, best[row["problem"]], accuracy, place, least)
        table[problems.index(row["problem"]), methods.index(row["method"])] = cost
    return table


def profile(table: Float[NDArray, "problems methods"]) -> Float[NDArray, "problems methods"]:
    """Every cost as a multiple of the least on its problem; infinite where the accuracy was not reached."""
    least = table.min(axis=1, keepdims=True)
    return np.divide(table, least, out=np.full_like(table, math.inf), where=np.isfinite(least) & np.isfinite(table))


# --- tables --------------------------------------------------------------------------------------------------------
def _median(values: Sequence[float]) -> float | None:
    finite = [value for value in values if math.isfinite(value)]
    return statistics.median(finite) if finite else None


def method_table(view: StudyView) -> Table:
    """One row for each method: what it reached, and at which cost."""
    finest = ACCURACIES[-1]
    seconds, calls = (costs(view, finest, place, least) for place, _, least in COSTS)
    reached = {accuracy: np.isfinite(costs(view, accuracy, *_time())) for accuracy in ACCURACIES}
    rows: list[Mapping[str, Any]] = []
    for place, method in enumerate(view.study.grid["method"]):
        own = [row for row in view.done if row["method"] == method]
        rows.append(
            {
                "method": method,
                "problems": len(own),
                "applies": sum(bool(row["applies"]) for row in own),
                "certified": sum(bool(row["success"]) for row in own),
                **{f"reached {accuracy:.0e}": int(reached[accuracy][:, place].sum()) for accuracy in ACCURACIES},
                f"median seconds to {finest:.0e}": _median(list(seconds[:, place])),
                f"median calls to {finest:.0e}": _median(list(calls[:, place])),
            }
        )
    return Table("Methods", rows, _NOTES)


def problem_table(view: StudyView) -> Table:
    """One row for each problem: its best value, and how far from it each method ended."""
    best = best_values(view)
    rows: list[Mapping[str, Any]] = []
    for problem in view.study.grid["problem"]:
        own = {row["method"]: row for row in view.done if row["problem"] == problem}
        found: dict[str, Any] = {"problem": problem, "best value": best.get(problem)}
        for method in view.study.grid["method"]:
            found[method] = _excess(own[method], best[problem]) if method in own else None
        rows.append(found)
    note = "The value in which each run ended minus the best, relative to 1 plus its size; words where there is none."
    return Table("Where each ended", rows, (note,))


def _excess(row: Row, best: float) -> float | str:
    value: Any = row.get("value")
    if not is_number(value) or not math.isfinite(value):
        return str(row.get("outcome"))
    return (float(value) - best) / (1.0 + abs(best))


def profile_rows(view: StudyView) -> list[dict[str, Any]]:
    """The profiles as plain rows: every step of every curve."""
    rows: list[dict[str, Any]] = []
    for accuracy in ACCURACIES:
        for place, name, least in COSTS:
            ratios = profile(costs(view, accuracy, place, least))
            for column, method in enumerate(view.study.grid["method"]):
                reached = np.sort(ratios[:, column][np.isfinite(ratios[:, column])])
                rows += [
                    {"accuracy": accuracy, "cost": name, "method": method, "ratio": float(ratio), "share": share}
                    for ratio, share in zip(reached, np.arange(1, len(reached) + 1) / len(ratios), strict=True)
                ]
    return rows


def _time() -> tuple[int, float]:
    place, _, least = COSTS[0]
    return place, least


# --- picture and page ----------------------------------------------------------------------------------------------
def plot_profiles(view: StudyView) -> Figure:
    """Profiles against time and against calls, for each accuracy."""
    methods, count = view.study.grid["method"], len(view.study.grid["problem"])
    figure = new_figure(12.0, 4.2 * len(ACCURACIES) + 1.2)
    words = f"{count} problems, {len(methods)} methods; upper left is best"
    add_heading(figure, "Performance profiles at the follower's exact answer", words)
    panels: Any = figure.subplots(len(ACCURACIES), len(COSTS), squeeze=False, sharey=True)
    for line, accuracy in zip(panels, ACCURACIES, strict=True):
        for axes, cost in zip(line, COSTS, strict=True):
            draw_profile(axes, view, accuracy, cost)
    add_legend(figure, [panels[0, 0]], most=7)
    return figure


def draw_profile(axes: Any, view: StudyView, accuracy: float, cost: tuple[int, str, float]) -> None:
    """The profile of every method, against one cost, to one accuracy."""
    place, name, least = cost
    methods, count = view.study.grid["method"], len(view.study.grid["problem"])
    ratios = profile(costs(view, accuracy, place, least))
    finite = ratios[np.isfinite(ratios)]
    most = 2.0 * float(finite.max(initial=1.0))
    for column, method in enumerate(methods):
        reached = np.sort(ratios[:, column][np.isfinite(ratios[:, column])])
        across = np.concatenate([[1.0], reached, [most]])
        shares = np.concatenate([[0.0], np.arange(1, len(reached) + 1), [len(reached)]]) / count
        look = method_style(method) | {"marker": "none", "linewidth": 1.8}
        axes.step(across, shares, where="post", label=method, **look)
    axes.set_xscale("log")
    axes.set_xlim(1.0, most)
    axes.set_ylim(0.0, 1.02)
    style_axes(axes, f"{name}, to {accuracy:.0e}", x="times the cheapest method's", y="share of problems")
    if not finite.size:
        add_note(axes, "no method reached this accuracy")


def bench_item(view: StudyView) -> ItemView:
    """The suite's findings, for a page and for files."""
    findings = Findings((method_table(view), problem_table(view)))
    return ItemView("profiles", "Performance profiles", findings, {"profiles": figure_image(plot_profiles(view))})


def without_ways(view: StudyView) -> StudyView:
    """The same view without the long column of ways, for tables that people read."""
    rows = [{key: value for key, value in row.items() if key != "way"} for row in view.rows]
    return StudyView(view.study, rows, view.shown or _DRAWN, view.running)
