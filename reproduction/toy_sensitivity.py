"""The paper's table of gamma and eta on the toy: how far yF is from yg at the end, and how long it took.

On the toy yF equals yg for every gamma > 0, so what distance remains is what the inexact inner iterations of the
published scheme leave behind.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from blocc.inner.algorithm_2 import MaxMin
from blocc.multi_result import MultiResult
from blocc.problems.toy import local_minimisers
from blocc.report.figure import BLUE, GREEN, GREY, ORANGE, RED, new_figure, style_axes
from blocc.report.study.study_views import Findings, Observation, Table
from blocc.solve_many import solve_many
from blocc.studies.study import Row, Study, select
from reproduction.item import Item, RowsByStudy
from reproduction.summary import column, endings, finished, is_complete, listed, mean, means_by, short, spread
from reproduction.toy_surface import shared_toy, start_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER, DEFAULT = "toy-paper", "toy-default"
GAMMAS = (0.001, 0.01, 0.1, 1.0)
ETAS = (0.001, 0.01, 0.1, 1.0, 10.0)
#: The paper's table: (mean, standard deviation) of ||yg - yF||, and mean seconds, by eta and gamma. The paper prints
#: the standard deviation of the distance a second time beside the seconds, so none of the seconds is known.
PUBLISHED: dict[tuple[float, float], tuple[float, float, float]] = {
    (eta, gamma): cell
    for eta, row in zip(
        ETAS,
        (
            ((0.028, 0.042, 3.314), (0.035, 0.076, 3.186), (0.027, 0.064, 2.049), (0.000, 0.000, 1.967)),
            ((0.020, 0.031, 2.242), (0.020, 0.041, 1.575), (0.009, 0.019, 1.118), (0.000, 0.000, 0.585)),
            ((0.006, 0.010, 1.616), (0.017, 0.027, 1.475), (0.011, 0.033, 1.257), (0.000, 0.000, 0.383)),
            ((0.023, 0.019, 7.118), (0.030, 0.022, 4.570), (0.020, 0.045, 3.477), (0.000, 0.000, 1.645)),
            ((0.034, 0.123, 6.565), (0.019, 0.014, 4.365), (0.025, 0.070, 2.808), (0.000, 0.000, 1.750)),
        ),
        strict=True,
    )
    for gamma, cell in zip(GAMMAS, row, strict=True)
}
#: The inner solver of the study: 100 single-loop iterations for each step of x, both step lengths 0.1, warm-started.
#: While x moves slowly that is plenty; where eta makes x jump it leaves an error, and that is what the study is about.
SENSITIVITY_INNER = MaxMin.single_loop(iterations=100, primal_step=0.1, dual_step=0.1)
RUNS = 40  #: of each cell in the paper
MAX_STEPS, TOLERANCE = 500, 1e-4  #: of the published program
#: Steps so long that x jumps say nothing about how fast a smaller one converges.
SMALL_ETA = 0.01


def run_paper(cells: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Algorithms 1 and 2 at one gamma and eta from the starts of all seeds, in one batch."""
    options = {
        "outer": "pgd",
        "inner": SENSITIVITY_INNER,
        "gamma": cells[0]["gamma"],
        "step": cells[0]["eta"],
        "max_iterations": MAX_STEPS,
        "tolerance": TOLERANCE,
    }
    return _rows(cells, options)


def run_default(cells: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The defaults at a fixed gamma ("auto": a growing one) from the starts of all seeds, in one batch."""
    return _rows(cells, {"gamma": cells[0]["gamma"]})


def _rows(cells: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> list[Row]:
    began = time.perf_counter()
    results: MultiResult = solve_many(
        shared_toy(), [start_of(cell["seed"]) for cell in cells], progress=False, **options
    )
    # The whole batch, compilation apart, shared out.
    seconds = (time.perf_counter() - began - results.seconds["compile"]) / len(cells)
    minimisers = local_minimisers()
    return [
        {
            "x": float(result.x),
            "distance": abs(float(result.y_penalty) - float(result.x)),  # yg(x) is x
            "away": float(np.abs(minimisers - float(result.x)).min()),
            "steps": int(result.counts["evaluations"]),
            "ended": result.status.value,
            "seconds": seconds,
        }
        for result in results.results
    ]


def studies(quick: bool) -> list[Study]:
    """The paper's grid with the published scheme; and the defaults, which have no eta."""
    module = "reproduction.toy_sensitivity"
    seeds = range(10 if quick else RUNS)
    etas = [0.001, 0.01, 1.0] if quick else list(ETAS)
    gammas = [0.001, 0.1, 1.0] if quick else list(GAMMAS)
    return [
        Study(PAPER, f"{module}:run_paper", {"eta": etas, "gamma": gammas}, seeds=seeds, together=("seed",)),
        Study(DEFAULT, f"{module}:run_default", {"gamma": [*gammas, "auto"]}, seeds=seeds, together=("seed",)),
    ]


def conclude(rows_by_study: RowsByStudy) -> Findings:
    """The paper's table beside both of ours."""
    paper, default = finished(rows_by_study, PAPER), finished(rows_by_study, DEFAULT)
    lines = []
    for eta in sorted({row["eta"] for row in paper}):
        for gamma in sorted({row["gamma"] for row in paper}):
            ours, free = list(select(paper, eta=eta, gamma=gamma)), list(select(default, gamma=gamma))
            printed = PUBLISHED.get((eta, gamma))
            lines.append(
                {
                    "eta": f"{eta:g}",
                    "gamma": f"{gamma:g}",
                    "paper: gap": "/" if printed is None else f"{printed[0]:.3f} ± {printed[1]:.3f}",
                    "paper: seconds": "/" if printed is None else f"{printed[2]:.3f}",
                    "paper's settings: gap": spread(ours, "distance", 3),
                    "paper's settings: seconds": short(ours, "seconds"),
                    "paper's settings: steps": short(ours, "steps"),
                    "defaults: gap": f"{mean(free, 'distance'):.1e}",
                    "defaults: seconds": short(free, "seconds"),
                }
            )
    automatic = list(select(default, gamma="auto"))
    notes = (
        "The gap is ||yg(x_T) - yF,T||, mean ± standard deviation.",
        f"Paper's settings: at most {MAX_STEPS} steps of Algorithm 1, tolerance {TOLERANCE:g}, and for each of them "
        f"{SENSITIVITY_INNER.iterations} single-loop iterations of Algorithm 2 with steps 0.1.",
        "Beside its seconds the paper prints the standard deviation of the gap once more, so theirs is not known.",
        "Our seconds are those of a batch of all runs, without compilation, divided by their number.",
        f"With gamma growing by itself: gap {mean(automatic, 'distance'):.1e}, {short(automatic, 'seconds')} s, "
        f"{endings(automatic)}.",
    )
    table = Table("Sensitivity of the toy to gamma and eta", lines, notes)
    return Findings([table], _observations(rows_by_study, paper, default))


def _observations(rows_by_study: RowsByStudy, paper: Sequence[Row], default: Sequence[Row]) -> list[Observation]:
    complete, both = is_complete(rows_by_study, PAPER), is_complete(rows_by_study, PAPER, DEFAULT)
    gaps = means_by(paper, "gamma", "distance")
    steps = {
        eta: means_by(paper, "gamma", "steps", eta=eta)
        for eta in sorted({row["eta"] for row in paper})
        if eta <= SMALL_ETA
    }
    largest = float(column(default, "distance").max(initial=0.0))
    return [
        Observation(
            "Larger gamma brings yF closer to yg",
            gaps[max(gaps)] < gaps[min(gaps)] and gaps[max(gaps)] == min(gaps.values()) if complete else None,
            f"mean gap over all eta, by gamma: {listed(gaps)}",
        ),
        Observation(
            "At a small fixed eta, larger gamma converges in fewer steps",
            all(by[max(by)] < by[min(by)] for by in steps.values()) if complete and steps else None,
            "; ".join(f"eta {eta:g}: {listed(by)}" for eta, by in steps.items())
            + ". F_gamma is the same function for every gamma here; what gamma speeds up are inner loops "
            "that stop by themselves, and these make a fixed number of iterations",
        ),
        Observation(
            "The defaults leave no gap at any gamma",
            largest < 1e-6 if both else None,
            f"largest gap {largest:.1e} over {len(default)} runs",
        ),
    ]


# --- pictures ------------------------------------------------------------------------------------------------------
LEAST = 1e-17  #: stands for zero on a logarithmic axis


def draw(rows_by_study: RowsByStudy) -> dict[str, Figure]:
    """One panel for the paper's figures, one for ours."""
    rows, default = finished(rows_by_study, PAPER), finished(rows_by_study, DEFAULT)
    figure = new_figure(10.0, 4.4)
    printed, ours = figure.subplots(1, 2, sharex=True, sharey=True)
    etas = sorted({row["eta"] for row in rows})
    for eta, colour in zip(etas, (BLUE, ORANGE, GREEN, RED, GREY), strict=False):
        by_gamma = means_by(rows, "gamma", "distance", eta=eta)
        gammas = sorted(by_gamma)
        known = [gamma for gamma in gammas if (eta, gamma) in PUBLISHED]
        printed.plot(known, [PUBLISHED[eta, gamma][0] for gamma in known], "o-", color=colour, label=f"eta {eta:g}")
        ours.plot(gammas, [by_gamma[gamma] for gamma in gammas], "o-", color=colour, label=f"eta {eta:g}")
    gammas = sorted({row["gamma"] for row in default if row["gamma"] != "auto"})
    means = [max(mean(select(default, gamma=gamma), "distance"), LEAST) for gamma in gammas]
    ours.plot(gammas, np.array(means), "s--", color="black", label="defaults")
    for axes, title in ((printed, "paper"), (ours, "paper's settings, and defaults")):
        axes.set_xscale("log")
        axes.set_xlabel(r"$\gamma$")
        axes.set_title(title, fontsize=11)
        axes.legend(frameon=False, fontsize=8)
        style_axes(axes)
    printed.set_ylabel(r"$\|y_g(x_T) - y_{F,T}\|$")
    return {"gap": figure}


ITEM = Item(
    name="toy_sensitivity",
    title="Sensitivity of the toy to gamma and eta",
    studies=studies,
    conclude=conclude,
    draw=draw,
    seconds=(12.0, 20.0),
)
