"""The paper's complexities: total inner iterations of BLOCC against the accuracy eps, eps^-2.5 and eps^-1.5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.precision import double_precision
from blocc.inner.interior_point import InteriorPoint
from blocc.judge.suggest import suggest
from blocc.kit.figure import BLUE, ORANGE, new_figure, style_axes
from blocc.penalty import cold_pair, evaluate, no_upper_multipliers
from blocc.report.study.study_views import Findings, Observation, Table
from blocc.studies.study import Row, Study, select
from reproduction.families import KINDS, draw
from reproduction.item import Item, RowsByStudy, Shown
from reproduction.summary import finished, is_complete, values
from reproduction.verdicts import exceeds, interval, paper

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STUDY = "epsilon"
EPSILONS = (0.3, 0.1, 0.03, 0.01, 0.003)
#: Of the total, by kind of the constraints.
CLAIMED = {"curved": 2.5, "affine": 1.5}
#: Of T_F as bounded from a cold start: |mu_F| is of the size of gamma.
BOUNDED = 1.5
MOST_STEPS = 50_000  #: of x
LAST = 3  #: accuracies that a power is fitted to: an order speaks of small ones
SLACK = 0.1  #: a fitted power may miss a claimed one by this


def run_accuracy(cells: Sequence[Mapping[str, Any]]) -> list[Row]:
    """One problem at every accuracy: T until the mean of |G|^2 is below eps, and the inner iterations of a step."""
    return [_at(cell["kind"], cell["seed"], cell["epsilon"]) for cell in cells]


def _at(kind: str, seed: int, epsilon: float) -> Row:
    family = draw(kind, seed)
    found = suggest(family.problem, family.start, epsilon=epsilon)
    squares = _descent(family.problem.flat, family.start, found.gamma, found.eta, min(found.iterations, MOST_STEPS))
    means = np.cumsum(squares) / np.arange(1, len(squares) + 1)
    below = np.flatnonzero(means <= epsilon)
    steps = int(below[0]) + 1 if len(below) else None
    return {
        "gamma": found.gamma,
        "bound_steps": found.iterations,
        "steps": steps,
        "inner_follower": found.inner_iterations[0],
        "inner_penalised": found.inner_iterations[1],
        "bound_penalised": found.inner_bounds[1],
        "total": None if steps is None else steps * sum(found.inner_iterations),
    }


def _descent(flat: Any, start: Any, gamma: float, eta: float, count: int) -> Any:
    """|G|^2 of every step of Algorithm 1 with exact inner solutions."""
    oracle = InteriorPoint()
    with double_precision():
        cold, leader, number = cold_pair(flat, oracle), no_upper_multipliers(flat), jnp.asarray(gamma)

        def step(x: Any, _: None) -> tuple[Any, Any]:
            found = evaluate(flat, oracle, x, number, leader, cold, jnp.asarray(1e-9))
            moved = flat.x_set.project_flat(x - eta * found.gradient)
            return moved, jnp.sum((moved - x) ** 2) / eta**2

        return np.asarray(jax.jit(lambda x: jax.lax.scan(step, x, None, length=count)[1])(jnp.asarray(start)))


def studies(quick: bool) -> list[Study]:
    """Both kinds of constraints at several accuracies."""
    grid: dict[str, list[Any]] = {"kind": list(KINDS), "epsilon": list(EPSILONS[:3] if quick else EPSILONS)}
    return [
        Study(STUDY, "reproduction.epsilon:run_accuracy", grid, seeds=range(8 if quick else 10), together=("epsilon",))
    ]


def conclude(rows_by_study: RowsByStudy) -> Findings:
    """Medians by accuracy, and the fitted powers."""
    rows = finished(rows_by_study, STUDY)
    lines = []
    for kind in KINDS:
        for epsilon in values(rows, "epsilon") if rows else []:
            chosen = [row for row in select(rows, kind=kind, epsilon=epsilon) if row["total"] is not None]
            line: dict[str, Any] = {"constraints": kind, "eps": f"{epsilon:g}", "problems": len(chosen)}
            for name, title in _COLUMNS:
                line[title] = f"{np.median([row[name] for row in chosen]):,.4g}" if chosen else "/"
            lines.append(line)
    return Findings([Table("Work to reach an accuracy", lines, _NOTES)], _observations(rows_by_study, rows))


_COLUMNS = (
    *(("gamma", "gamma"), ("steps", "T"), ("bound_steps", "T, bound"), ("inner_follower", "T_g")),
    *(("inner_penalised", "T_F"), ("bound_penalised", "T_F, bound"), ("total", "T (T_g + T_F)")),
)
_NOTES = (
    "Medians over random problems. gamma, eta and the bounds by blocc.suggest; T is the first step at which the mean "
    "of |G|^2 over the steps so far is at most eps. T_g and T_F: iterations of accelerated Algorithm 2, from a cold "
    "start, after which y and the gradient stay as accurate as the promise wants.",
    "The paper's orders leave logarithms out, of which T_y is one. Orders are upper bounds. From a cold start the "
    "bound of T_F grows like eps^-1.5, because mu_F is of the size of gamma.",
)


def powers(rows: Sequence[Row], kind: str, name: str) -> Any:
    """Problem by problem: the power of 1 / eps in a column."""
    found = []
    for seed in values(list(select(rows, kind=kind)), "seed"):
        chosen = [row for row in select(rows, kind=kind, seed=seed) if row[name] is not None]
        small = sorted(chosen, key=lambda row: row["epsilon"])[:LAST]
        if len(small) == LAST:
            axis, column = (np.log([row[key] for row in small]) for key in ("epsilon", name))
            found.append(-float(np.polyfit(axis, column, 1)[0]))
    return np.array(found)


def _observations(rows_by_study: RowsByStudy, rows: Sequence[Row]) -> list[Observation]:
    complete, found = is_complete(rows_by_study, STUDY), []
    cases = {"curved": "eps^-2.5 for curved constraints and a bounded Y", "affine": "eps^-1.5 for affine constraints"}
    for kind, title in cases.items():
        power = powers(rows, kind, "total") if rows else np.zeros(0)
        found.append(
            Observation(
                f"Inner iterations in all grow no faster than {title}",
                exceeds(CLAIMED[kind] + SLACK - power) if complete else None,
                f"power of 1 / eps {interval(power)}",
                paper("Theorems 3 and 4, Table 1"),
            )
        )
    return found


def draw_figure(rows_by_study: RowsByStudy) -> dict[str, Figure]:
    """The total against eps, with lines of the claimed orders."""
    rows = finished(rows_by_study, STUDY)
    figure = new_figure(6.5, 4.4)
    axes = figure.subplots()
    for kind, colour in zip(KINDS, (BLUE, ORANGE), strict=True):
        chosen = [row for row in select(rows, kind=kind) if row["total"] is not None]
        for place, seed in enumerate(values(chosen, "seed") if chosen else []):
            of = sorted(select(chosen, seed=seed), key=lambda row: row["epsilon"])
            axes.loglog(
                [row["epsilon"] for row in of],
                [row["total"] for row in of],
                "o-",
                **{"color": colour, "alpha": 0.5, "markersize": 3, "label": "" if place else kind},
            )
        if chosen:
            at = np.array(sorted(values(chosen, "epsilon")))
            middle = float(np.median([row["total"] for row in select(chosen, epsilon=at[-1])]))
            claimed = middle * (at / at[-1]) ** -CLAIMED[kind]
            axes.loglog(at, claimed, "--", color=colour, label=f"eps^-{CLAIMED[kind]:g}")
    axes.set_xlabel("eps")
    axes.set_ylabel("inner iterations in all")
    style_axes(axes)
    if axes.lines:
        axes.legend(frameon=False, fontsize=8)
    return {"epsilon": figure}


ITEM = Item(
    name="epsilon",
    title="The complexities eps^-2.5 and eps^-1.5: inner iterations of BLOCC against the accuracy",
    studies=studies,
    conclude=conclude,
    draw=draw_figure,
    shown=(
        Shown(
            0,
            {"constraints": "Constraints", "eps": "eps", "gamma": "gamma", "T": "T", "T (T_g + T_F)": "T (T_g + T_F)"},
            lambda row: row["eps"] in ("0.3", "0.003"),
        ),
    ),
    seconds=(150.0, 500.0),
)
