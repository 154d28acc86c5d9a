"""Figure 1 of the paper: the gradient of v(x) with and without the multiplier term.

For g = (y - 2x)^2 and gc = 3x - y the follower answers y = 3x where x >= 0, so v(x) = x^2 and dv/dx = 2x. The formula
for problems without coupled constraints, dg/dx at the answer, gives -4x: the wrong way.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Array, Float
from blocc._lib.compiled import compile_ahead
from blocc._lib.precision import double_precision
from blocc.inner.interior_point import InteriorPoint
from blocc.kit.figure import BLUE, GREY, ORANGE, RED, new_figure, style_axes
from blocc.lagrangian import gradient_x, weights, zero_multipliers
from blocc.problem import BilevelProblem
from blocc.report.study.study_views import Findings, Observation, Table
from blocc.sets import Box, Reals
from blocc.studies.study import Row, Study
from reproduction.item import Item, RowsByStudy
from reproduction.summary import column, finished, is_complete
from reproduction.verdicts import paper

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STUDY = "gradient-of-v"
TOLERANCE = 1e-12


def example_problem() -> BilevelProblem:
    """The example of the paper; it has no upper objective, so 0 stands in for it."""
    return BilevelProblem(
        upper=lambda x, y: 0.0 * x * y,
        lower=lambda x, y: (y - 2.0 * x) ** 2,
        inequality=lambda x, y: 3.0 * x - y,
        x_set=Box(0.0, 2.0),
        y_set=Reals(),
        name="the example of Figure 1",
    )


def evaluate_points(cells: Sequence[Mapping[str, Any]]) -> list[Row]:
    """v and both gradients at every ``x``, by the package's interior point and its Lagrangian, in one batch."""
    flat, oracle = example_problem().flat, InteriorPoint()

    def evaluate(x: Float[Array, "1"]) -> tuple[Float[Array, ""], ...]:
        weight = weights(flat)
        found = oracle.solve(flat, x, weight, oracle.cold(flat), jnp.asarray(TOLERANCE))
        true = gradient_x(flat, x, found.y, found.multipliers, weight)
        without = gradient_x(flat, x, found.y, zero_multipliers(flat), weight)
        return found.y[0], flat.lower(x, found.y), found.multipliers.inequality[0], true[0], without[0]

    with double_precision():
        points = jnp.asarray([[cell["x"]] for cell in cells], dtype=jnp.float64)
        compiled, _ = compile_ahead(jax.vmap(evaluate), points)
        began = time.perf_counter()
        columns = np.stack(jax.device_get(compiled(points)), axis=1).tolist()
        seconds = (time.perf_counter() - began) / len(cells)
    names = ("y", "value", "multiplier", "gradient", "gradient_without")
    return [{**dict(zip(names, row, strict=True)), "seconds": seconds} for row in columns]


def studies(quick: bool) -> list[Study]:
    """One study over a grid of x."""
    points = 8 if quick else 40
    grid = [round(2.0 * (index + 1) / points, 10) for index in range(points)]
    return [Study(STUDY, "reproduction.gradient_of_v:evaluate_points", {"x": grid}, together=("x",))]


def conclude(rows_by_study: RowsByStudy) -> Findings:
    """The gradients beside the closed form."""
    rows = finished(rows_by_study, STUDY)
    shown = rows[:: max(1, len(rows) // 8)]
    table = Table(
        "The gradient of v(x) for g = (y - 2x)^2, gc = 3x - y",
        [
            {
                "x": f"{row['x']:g}",
                "v(x)": f"{row['value']:.6f}",
                "paper: x^2": f"{row['x'] ** 2:.6f}",
                "gradient, ours": f"{row['gradient']:.6f}",
                "paper: 2x": f"{2.0 * row['x']:.6f}",
                "without multiplier, ours": f"{row['gradient_without']:.6f}",
                "paper: -4x": f"{-4.0 * row['x']:.6f}",
            }
            for row in shown
        ],
        ("The follower's answer and its multiplier come from the interior point, the gradients from the Lagrangian.",),
    )
    x, gradient, without = (column(rows, name) for name in ("x", "gradient", "gradient_without"))
    complete = is_complete(rows_by_study, STUDY)
    error = float(np.max(np.abs(gradient - 2.0 * x), initial=0.0))
    wrong = float(np.max(np.abs(without + 4.0 * x), initial=0.0))
    return Findings(
        [table],
        [
            Observation(
                "The gradient without the multiplier points the opposite way",
                bool((gradient * without < 0.0).all()) if complete else None,
                f"opposite signs at {int((gradient * without < 0.0).sum())} of {len(rows)} points",
                paper("Figure 1"),
            ),
            Observation(
                "The gradient with the multiplier is the true one, 2x; without it, it is -4x",
                max(error, wrong) < 1e-6 if complete else None,
                f"largest errors {error:.1e} and {wrong:.1e}",
                paper("Figure 1"),
            ),
        ],
    )


# --- pictures ------------------------------------------------------------------------------------------------------
def draw(rows_by_study: RowsByStudy) -> dict[str, Figure]:
    """v(x), the gradient with and without the multiplier, and the closed forms as thin lines."""
    rows = sorted(finished(rows_by_study, STUDY), key=lambda row: row["x"])
    figure = new_figure(6.5, 4.5)
    axes = figure.subplots()
    x = column(rows, "x")
    line = np.linspace(0.0, x.max(initial=1.0), 200)
    for closed in (line**2, 2.0 * line, -4.0 * line):
        axes.plot(line, closed, color=GREY, linewidth=0.8)
    axes.plot(x, column(rows, "value"), "o-", color=BLUE, markersize=3, label="$v(x)$")
    axes.plot(x, column(rows, "gradient"), "s--", color=RED, markersize=3, label=r"$\nabla v(x)$ with the multiplier")
    axes.plot(
        x,
        column(rows, "gradient_without"),
        "^--",
        color=ORANGE,
        markersize=3,
        label=r"$\nabla_x g(x, y)$ alone: the opposite way",
    )
    axes.set_xlabel("$x$")
    axes.set_title("$g = (y - 2x)^2$ subject to $3x - y \\leq 0$; thin: closed forms", fontsize=11)
    axes.legend(frameon=False, fontsize=9)
    style_axes(axes)
    return {"gradient": figure}


ITEM = Item(
    name="gradient_of_v",
    title="Figure 1: the gradient of v(x), with and without the multiplier",
    studies=studies,
    conclude=conclude,
    draw=draw,
    seconds=(3.0, 3.0),
)
