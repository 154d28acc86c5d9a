"""The figure of the toy: where many starts end on the surface f(x, y), by the program, Algorithm 1 and the defaults."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.kit.figure import BLUE, GREY, RED, new_figure, style_axes
from blocc.problem import BilevelProblem
from blocc.problems.toy import LOWER, UPPER, local_minimisers, toy_problem, true_value, upper_value
from blocc.report.study.study_views import Findings, Observation, Table
from blocc.result import Status
from blocc.solve_many import solve_many
from blocc.studies.study import Row, Study, select
from reproduction.item import Item, RowsByStudy, Shown
from reproduction.published_toy import draw_starts, run_published_toy
from reproduction.summary import column, endings, finished, is_complete, short
from reproduction.verdicts import paper

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STUDY = "toy-surface"
#: The variants, and what they are called.
TITLES = {"program": "program emulated", "exact": "Algorithm 1, exact", "default": "defaults"}
PRESETS = tuple(TITLES)
GAMMA, ETA, STARTS = 5.0, 0.01, 200  #: of the paper
SETTINGS: dict[str, dict[str, Any]] = {
    "exact": {
        **{"outer": "pgd", "inner": "interior-point", "gamma": GAMMA, "step": ETA},
        **{"max_iterations": 10_000, "stop": 1e-6},
    },
    "default": {},
}
#: An end point nearer than this to a local minimiser has found it.
REACHED = 1e-2


@functools.cache
def shared_toy() -> BilevelProblem:
    """One problem for all cells of a process, so that each method compiles once."""
    return toy_problem()


def run_starts(cells: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Run the starts of all ``seed`` values in one batch with the settings ``preset``; a row for each start."""
    preset, starts = cells[0]["preset"], draw_starts([cell["seed"] for cell in cells])
    if preset == "program":
        ended, seconds = run_published_toy(starts, GAMMA, ETA)
        how = ["settled" if settled else Status.ITERATION_LIMIT.value for settled in ended.settled]
        # The program shows yF, and what it calls yg is yF as well.
        ends = [(x, x, y) for x, y in zip(ended.x.tolist(), ended.y.tolist(), strict=True)]
    else:
        results = solve_many(shared_toy(), starts[:, 0].tolist(), progress=False, **SETTINGS[preset])
        how, seconds = [result.status.value for result in results.results], results.seconds["run"]
        ends = [(float(one.x), float(one.y), float(one.y_penalty)) for one in results.results]
    minimisers = local_minimisers()
    rows: list[Row] = []
    for (x, y, y_penalised), ending in zip(ends, how, strict=True):
        nearest = int(np.abs(minimisers - x).argmin())
        rows.append(
            {
                "x": x,
                "y": y,
                "y_penalised": y_penalised,
                "minimiser": float(minimisers[nearest]),
                "away": float(abs(minimisers[nearest] - x)),
                "upper_value": float(upper_value(x, y)),
                "upper_value_own": float(upper_value(x, y_penalised)),
                "ended": ending,
                "seconds": seconds / len(cells),
            }
        )
    return rows


def studies(quick: bool) -> list[Study]:
    """Both settings from the same starts."""
    return [
        Study(
            STUDY,
            "reproduction.toy_surface:run_starts",
            {"preset": list(PRESETS)},
            seeds=range(40 if quick else STARTS),
            together=("seed",),
        )
    ]


def conclude(rows_by_study: RowsByStudy) -> Findings:
    """Which minima were reached, how often and how exactly."""
    rows = finished(rows_by_study, STUDY)
    by_preset = {preset: list(select(rows, preset=preset)) for preset in PRESETS}
    reached = []
    for minimiser in sorted({row["minimiser"] for row in rows}):
        line: dict[str, Any] = {"local minimiser": f"{minimiser:.6f}", "f(x, x)": f"{float(true_value(minimiser)):.6f}"}
        for preset, name in TITLES.items():
            here = list(select(by_preset[preset], minimiser=minimiser))
            line[f"{name}: starts"] = len(here)
            line[f"{name}: largest error"] = f"{column(here, 'away').max(initial=0.0):.1e}"
        reached.append(line)
    speed = [
        {
            "settings": name,
            "starts": len(chosen),
            "within 0.01 of a local minimiser": int((column(chosen, "away") < REACHED).sum()),
            "largest error": f"{column(chosen, 'away').max(initial=0.0):.1e}",
            "largest ||yF - yg||": f"{_gap(chosen):.1e}",
            "ended": endings(chosen),
            "seconds for each start": short(chosen, "seconds"),
        }
        for preset, name in TITLES.items()
        for chosen in [by_preset[preset]]
    ]
    notes = (
        "The paper runs 200 starts at gamma = 5 and prints no figures: 'BLOCC consistently finds the local minima'. "
        "Its program, emulated, makes at most 500 steps of 0.01; Algorithm 1 on exact inner solutions goes on.",
        "Errors are to the minimiser of f(x, x), refined from a grid. Seconds are those of the batch, shared out.",
    )
    errors = column(rows, "away")
    found = int((errors < REACHED).sum())
    observation = Observation(
        "BLOCC consistently finds local minima",
        found == len(rows) if is_complete(rows_by_study, STUDY) else None,
        f"{found} of {len(rows)} starts end within 0.01 of one, largest error {errors.max(initial=0.0):.1e}",
        paper("Figure 2"),
    )
    tables = [
        Table("Local minima of the toy, and how often they were reached", reached),
        Table("Starts of the toy", speed, notes),
    ]
    return Findings(tables, [observation])


def _gap(rows: Sequence[Row]) -> float:
    """The largest distance of yF to the exact answer, which is x."""
    return float(np.abs(column(rows, "y_penalised") - column(rows, "x")).max(initial=0.0))


# --- pictures ------------------------------------------------------------------------------------------------------
def draw(rows_by_study: RowsByStudy) -> dict[str, Figure]:
    """The surface with the end points, and f(x, x) with the number of starts that ended at each minimum."""
    rows = finished(rows_by_study, STUDY)
    figures = {}
    for preset in PRESETS:
        chosen = list(select(rows, preset=preset))
        figure = new_figure(12.0, 5.2)
        parts: Any = figure.subfigures(1, 2, width_ratios=(1.05, 1.0))
        _surface(parts[0], column(chosen, "x"), column(chosen, "y_penalised"))
        _line(parts[1], chosen)
        figure.suptitle(f"{len(chosen)} starts, {TITLES[preset]}", fontsize=12, fontweight="bold")
        figures[preset] = figure
    return figures


def _surface(part: Any, x: Float[NDArray, "runs"], y: Float[NDArray, "runs"]) -> None:
    axes = part.add_subplot(projection="3d", computed_zorder=False)
    across, up = np.meshgrid(np.linspace(LOWER, UPPER, 101), np.linspace(LOWER, UPPER, 101))
    height = upper_value(across, up)
    axes.plot_surface(across, up, height, cmap="viridis", alpha=0.9, linewidth=0, antialiased=False, zorder=1)
    line = np.linspace(LOWER, UPPER, 400)
    axes.plot(line, line, true_value(line), color=RED, linestyle="--", linewidth=2.0, label="$y = x$", zorder=2)
    axes.scatter(
        x, y, upper_value(x, y), color=RED, edgecolor="white", s=42, depthshade=False, label="$(x_T, y_F)$", zorder=3
    )
    axes.set_xlabel("$x$")
    axes.set_ylabel("$y$")
    axes.set_zlabel("$f(x, y)$")
    axes.view_init(elev=33, azim=125)  # the line runs in front of the ridges at small y
    axes.legend(loc="upper left", frameon=False, fontsize=9)


def _line(part: Any, rows: Sequence[Row]) -> None:
    axes = part.add_subplot()
    line = np.linspace(LOWER, UPPER, 600)
    axes.plot(line, true_value(line), color=BLUE, linewidth=1.8, label="$f(x, x)$")
    x = column(rows, "x")
    axes.plot(x, true_value(x), "o", color=RED, mec="white", ms=7, label="end points")
    for minimiser in local_minimisers():
        height = float(true_value(minimiser))
        count = len([row for row in rows if abs(row["minimiser"] - minimiser) < 1e-9])
        axes.plot(minimiser, height, "o", mfc="none", mec=GREY, ms=12)
        axes.annotate(f"{count}", (minimiser, height), xytext=(0, -19), textcoords="offset points", ha="center")
    axes.set_xlabel("$x$")
    axes.set_ylabel("$f(x, x)$")
    axes.margins(y=0.12)
    axes.set_title("starts that ended at each local minimiser", fontsize=10)
    axes.legend(frameon=False, fontsize=9)
    style_axes(axes)


ITEM = Item(
    name="toy_surface",
    title="Figure 2: end points of many starts on the surface f(x, y) of the toy",
    studies=studies,
    conclude=conclude,
    draw=draw,
    shown=(
        Shown(
            1,
            {
                **{
                    "settings": "By",
                    "starts": "Starts",
                    "within 0.01 of a local minimiser": "Within 0.01 of a minimiser",
                },
                **{"largest error": "Largest error", "largest ||yF - yg||": "Largest distance of yF to yg"},
            },
        ),
    ),
    seconds=(15.0, 40.0),
)
