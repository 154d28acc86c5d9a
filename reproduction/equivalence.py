"""Lemma 1 and Theorem 1: g - v grows with |y - yg|^2, and F_gamma stands for the bilevel problem as gamma grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.precision import double_precision
from blocc.inner.interior_point import InteriorPoint
from blocc.judge.curvature import feasible_samples
from blocc.kit.figure import BLUE, ORANGE, new_figure, style_axes
from blocc.penalty import cold_pair, evaluate, no_upper_multipliers
from blocc.report.study.study_views import Findings, Observation, Table
from blocc.studies.study import Row, Study, select
from reproduction.families import KINDS, draw
from reproduction.item import Item, RowsByStudy
from reproduction.summary import column, finished, is_complete
from reproduction.verdicts import exceeds, interval, paper

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STUDY = "equivalence"
GAMMAS = (4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
GRID = 201  #: values of x, of one variable
SAMPLES = 30  #: members of Y(x), at every tenth x
SLACK = 0.1  #: a fitted power may miss a claimed one by this
ACCURATE = 1e-10


def run_family(kind: str, seed: int, gammas: Sequence[float]) -> Row:
    """Both answers on a grid of x, at every gamma; and the growth of g over random members of Y(x)."""
    family = draw(kind, seed, n_x=1)
    flat, oracle = family.problem.flat, InteriorPoint()
    with double_precision():
        cold, leader, accuracy = cold_pair(flat, oracle), no_upper_multipliers(flat), jnp.asarray(ACCURATE)
        grid = jnp.linspace(-1.0, 1.0, GRID)[:, None]

        def at(x: Any, gamma: Any) -> Any:
            found = evaluate(flat, oracle, x, gamma, leader, cold, accuracy)
            return found.value, found.upper_follower, found.follower.y, found.penalised.y

        all_x = jax.jit(jax.vmap(at, in_axes=(0, None)))
        columns: dict[str, list[float]] = {name: [] for name in ("distance", "bound", "hidden", "lost", "away")}
        for gamma in gammas:
            value, upper, yg, y_f = (np.asarray(part) for part in all_x(grid, jnp.asarray(gamma)))
            best, least = int(upper.argmin()), int(value.argmin())
            slope = float(np.linalg.norm(yg - family.target, axis=1).max())
            columns["distance"].append(float(((y_f - yg) ** 2).sum(axis=1).max()))
            columns["bound"].append((slope / (gamma * family.strong_convexity - 1.0)) ** 2)
            columns["hidden"].append(float(upper[best] - value[least]))
            columns["lost"].append(float(upper[least] - upper[best]))
            columns["away"].append(float(abs(grid[least, 0] - grid[best, 0])))
        growth = []
        lower = jax.jit(flat.lower)
        for place in range(0, GRID, 10):
            x, y = np.asarray(grid[place]), yg[place]
            for other in feasible_samples(flat, x, y, SAMPLES, seed)[1:]:
                square = 0.5 * family.strong_convexity * float(((other - y) ** 2).sum())
                if square > 1e-6:
                    growth.append(float(lower(x, other) - lower(x, y)) / square)
    return {**columns, "growth": min(growth), "samples": len(growth), "power": _power(gammas, columns["distance"])}


def _power(gammas: Sequence[float], values: Sequence[float]) -> float:
    half = len(gammas) // 2
    return float(np.polyfit(np.log(gammas[half:]), np.log(np.maximum(values[half:], 1e-300)), 1)[0])


def studies(quick: bool) -> list[Study]:
    """Both kinds of constraints."""
    seeds, gammas = range(5 if quick else 10), list(GAMMAS)
    return [
        Study(
            STUDY, "reproduction.equivalence:run_family", {"kind": list(KINDS)}, seeds=seeds, fixed={"gammas": gammas}
        )
    ]


def conclude(rows_by_study: RowsByStudy) -> Findings:
    """Means by gamma, and whether the bounds are kept."""
    rows = finished(rows_by_study, STUDY)
    lines = [
        {
            "constraints": kind,
            "gamma": f"{gamma:g}",
            **{
                title: f"{np.mean([row[name][place] for row in chosen]):.3g}"
                for name, title in (
                    ("distance", "largest |yF - yg|^2"),
                    ("bound", "its bound"),
                    ("hidden", "min f - min F_gamma"),
                    ("lost", "f at argmin F_gamma less min f"),
                )
            },
        }
        for kind in KINDS
        if (chosen := list(select(rows, kind=kind)))
        for place, gamma in enumerate(chosen[0]["gammas"])
    ]
    return Findings([Table("F_gamma against the bilevel problem", lines, _NOTES)], _observations(rows_by_study, rows))


_NOTES = (
    "Random problems of one x and four y, over 201 values of x; means over the problems. f means f(x, yg(x)). The "
    "bound: (gamma alpha_g - l_f,1) |yF - yg| <= |f_y(x, yg)|.",
)


def _observations(rows_by_study: RowsByStudy, rows: Sequence[Row]) -> list[Observation]:
    complete = is_complete(rows_by_study, STUDY)
    growth, power = column(rows, "growth"), column(rows, "power")
    kept = [d <= b * (1.0 + 1e-6) for row in rows for d, b in zip(row["distance"], row["bound"], strict=True)]
    below = [hidden >= -1e-8 for row in rows for hidden in row["hidden"]]
    shrinking = np.array([_power(row["gammas"], row["hidden"]) for row in rows])
    return [
        Observation(
            "g(x, y) - v(x) is at least alpha_g / 2 |y - yg|^2 on Y(x)",
            bool(growth.min() >= 1.0 - 1e-6) if complete else None,
            f"smallest ratio {growth.min(initial=np.inf):.4f} over {int(column(rows, 'samples').sum()):,} points",
            paper("Lemma 1"),
        ),
        Observation(
            "|yF - yg|^2 is at most of the order gamma^-2, so gamma of the order eps^-1/2 makes it eps",
            bool(all(kept)) and exceeds(SLACK - 2.0 - power) if complete else None,
            f"within the bound {sum(kept)} of {len(kept)} times; power of gamma {interval(power)}",
            paper("Theorem 1"),
        ),
        Observation(
            "The minimum of F_gamma is below that of the bilevel problem, by no more than the order 1 / gamma",
            bool(all(below)) and exceeds(SLACK - 1.0 - shrinking) if complete else None,
            f"below {sum(below)} of {len(below)} times; power of gamma {interval(shrinking)}",
            paper("Theorem 1"),
        ),
    ]


def draw_figure(rows_by_study: RowsByStudy) -> dict[str, Figure]:
    """|yF - yg|^2 and what F_gamma hides, against gamma."""
    rows = finished(rows_by_study, STUDY)
    figure = new_figure(10.0, 4.2)
    for axes, (name, title) in zip(
        figure.subplots(1, 2), (("distance", "$|y_F - y_g|^2$"), ("hidden", r"$\min f - \min F_\gamma$")), strict=True
    ):
        for kind, colour in zip(KINDS, (BLUE, ORANGE), strict=True):
            for place, row in enumerate(select(rows, kind=kind)):
                label = "" if place else kind
                axes.loglog(row["gammas"], np.maximum(row[name], 1e-16), color=colour, alpha=0.6, label=label)
                if name == "distance":
                    axes.loglog(row["gammas"], row["bound"], ":", color=colour, alpha=0.4)
        axes.set_xlabel(r"$\gamma$")
        axes.set_title(title, fontsize=11)
        style_axes(axes)
        if axes.lines:
            axes.legend(frameon=False, fontsize=8)
    return {"equivalence": figure}


ITEM = Item(
    name="equivalence",
    title="Lemma 1 and Theorem 1: growth of g - v, and F_gamma against the bilevel problem",
    studies=studies,
    conclude=conclude,
    draw=draw_figure,
    seconds=(60.0, 120.0),
)
