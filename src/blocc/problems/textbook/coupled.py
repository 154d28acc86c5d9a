"""Problems whose follower has affine constraints that involve x, mostly classics of the literature."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from blocc.problems.textbook.entry import KnownProblem, known
from blocc.sets import Box, Product, Reals
from blocc.simple_sets import Simplex

#: Known by its global optimum and by a local one. Per coordinate the leader's value is 30 at x = 0, rises to 50 at 10,
#: falls to 30 at 30 and rises to 40 at 50.
_AIYOSHI_SHIMIZU_1984: dict[str, Any] = {
    "source": "Aiyoshi and Shimizu (1984), IEEE Transactions on Automatic Control 29, Example 2",
    "upper": lambda x, y: 2.0 * jnp.sum(x) - 3.0 * jnp.sum(y) - 60.0,
    "lower": lambda x, y: jnp.sum((y - x + 20.0) ** 2),
    "inequality": lambda x, y: 2.0 * y - x + 10.0,
    "upper_inequality": lambda x, y: x[0] + x[1] + y[0] - 2.0 * y[1] - 40.0,
    "sets": (Box(0.0, 50.0, shape=2), Box(-10.0, 20.0, shape=2)),
}


PROBLEMS: tuple[KnownProblem, ...] = (
    # The follower wants 2x and may have x, so y = x; the leader's wavy value has four local minima.
    known(
        "blocc_toy",
        "Jiang, Xiao, Tenorio, Real-Rojas, Marques and Chen (2024), arXiv 2406.10148, the toy problem",
        upper=lambda x, y: jnp.exp(2.0 - y) / (2.0 + jnp.cos(6.0 * x)) + 0.5 * jnp.log((4.0 * x - 2.0) ** 2 + 1.0),
        lower=lambda x, y: (y - 2.0 * x) ** 2,
        inequality=lambda x, y: y - x,
        sets=(Box(0.0, 3.0), Box(0.0, 3.0)),
        answer=(1.7218788147349, 0.98622483, 0.98622483),
        starts=(0.6, 1.1, 1.5),
        tags="affine-coupled box-y",
        note="Other local minima: 2.96850 at x = 0.149, 2.15611 at x = 2.020 and 2.44573 at x = 2.991.",
    ),
    # y = max(2x, 3x). For x > 0 the bound is active and the gradient of the lower value is 2x, not -4x.
    known(
        "moving_lower_bound",
        upper=lambda x, y: (x - 1.0) ** 2 + y**2,
        lower=lambda x, y: (y - 2.0 * x) ** 2,
        inequality=lambda x, y: 3.0 * x - y,
        sets=(Reals(), Reals()),
        answer=(0.9, 0.1, 0.3),
        starts=(-2.0, 0.0, 3.0),
        tags="affine-coupled",
        note="Without the multiplier term the gradient of the lower value has the wrong sign.",
    ),
    known(
        "bard_1988_example_1",
        "Bard (1988), Mathematical Programming 40, Example 1",
        upper=lambda x, y: (x - 5.0) ** 2 + (2.0 * y + 1.0) ** 2,
        lower=lambda x, y: (y - 1.0) ** 2 - 1.5 * x * y,
        inequality=lambda x, y: jnp.stack([y - 3.0 * x + 3.0, x - 0.5 * y - 4.0, x + y - 7.0]),
        sets=(Box(0.0, np.inf), Box(0.0, np.inf)),
        answer=(17.0, 1.0, 0.0),
        starts=(1.5, 2.0, 3.0),
        tags="affine-coupled box-y edge-of-feasibility infeasible-for-some-x",
        note="The follower has a feasible point for x in [1, 5] only. Another local minimum, 25, is at (5, 2).",
    ),
    known(
        "clark_westerberg_1990",
        "Clark and Westerberg (1990), Computers and Chemical Engineering 14; also Sahin and Ciric (1998)",
        upper=lambda x, y: (x - 3.0) ** 2 + (y - 2.0) ** 2,
        lower=lambda x, y: (y - 5.0) ** 2,
        inequality=lambda x, y: jnp.stack([y - 2.0 * x - 1.0, x - 2.0 * y + 2.0, x + 2.0 * y - 14.0]),
        sets=(Box(0.0, 8.0), Reals()),
        answer=(5.0, 1.0, 3.0),
        starts=(0.1, 0.6, 1.7),
        tags="affine-coupled infeasible-for-some-x",
        note="The leader's value has a peak at x = 2; behind it lie local minima of 9 at x = 3 and 9.8 at x = 4.4.",
    ),
    known(
        "gumus_floudas_2001_example_1",
        "Gumus and Floudas (2001), Journal of Global Optimization 20, Example 1; Shimizu et al. (1997)",
        upper=lambda x, y: 16.0 * x**2 + 9.0 * y**2,
        lower=lambda x, y: (x + y - 20.0) ** 4,
        inequality=lambda x, y: 4.0 * x + y - 50.0,
        upper_inequality=lambda x, y: y - 4.0 * x,
        sets=(Box(0.0, 12.5), Box(0.0, np.inf)),
        answer=(2250.0, 11.25, 5.0),
        starts=(10.5, 11.0, 12.4),
        tags="affine-coupled box-y upper-constraint merely-convex",
        note="For x below 10 the lower Hessian vanishes at the answer; there is a local minimum, 2304, at (7.2, 12.8).",
    ),
    # y = clip(x, 0, 10): with y1 = 10 and y2 = x2 the leader's problem is convex, and two of her constraints meet at
    # (20, 5).
    known(
        "shimizu_aiyoshi_1981_example_2",
        "Shimizu and Aiyoshi (1981), IEEE Transactions on Automatic Control 26, Example 2",
        upper=lambda x, y: (x[0] - 30.0) ** 2 + (x[1] - 20.0) ** 2 - 20.0 * y[0] + 20.0 * y[1],
        lower=lambda x, y: jnp.sum((x - y) ** 2),
        upper_inequality=lambda x, y: jnp.stack([30.0 - x[0] - 2.0 * x[1], x[0] + x[1] - 25.0]),
        sets=(Box(np.array([-np.inf, -np.inf]), np.array([np.inf, 15.0])), Box(0.0, 10.0, shape=2)),
        answer=(225.0, [20.0, 5.0], [10.0, 5.0]),
        starts=([18.0, 6.5], [15.0, 9.0], [14.0, 10.0]),
        tags="box-y upper-constraint",
        note="The leader's constraints do not involve y, but X is not a set that is easy to project on.",
    ),
    known(
        "aiyoshi_shimizu_1984_example_2",
        **_AIYOSHI_SHIMIZU_1984,
        answer=(0.0, None, None),
        starts=([2.0, 3.0], [5.0, 20.0], [8.0, 40.0]),
        tags="affine-coupled box-y upper-constraint kink",
        note="Two answers, x = (0, 0) with y = (-10, -10) and x = (0, 30) with y = (-10, 10). "
        "The value 5 at x = (25, 30), often quoted as the optimum, is a local minimum.",
    ),
    known(
        "aiyoshi_shimizu_1984_example_2_local",
        **_AIYOSHI_SHIMIZU_1984,
        answer=(5.0, [25.0, 30.0], [5.0, 10.0]),
        starts=([20.0, 32.0], [15.0, 20.0], [22.0, 40.0]),
        tags="local affine-coupled box-y upper-constraint kink",
        note="The published answer, held in place by the leader's constraint and a kink; the global optimum is 0.",
    ),
    known(
        "bard_1988_example_3",
        "Bard (1988), Mathematical Programming 40, Example 3",
        upper=lambda x, y: -(x[0] ** 2) - 3.0 * x[1] - 4.0 * y[0] + y[1] ** 2,
        lower=lambda x, y: 2.0 * x[0] ** 2 + y[0] ** 2 - 5.0 * y[1],
        inequality=lambda x, y: jnp.stack(
            [
                -(x[0] ** 2) + 2.0 * x[0] - x[1] ** 2 + 2.0 * y[0] - y[1] - 3.0,
                -x[1] - 3.0 * y[0] + 4.0 * y[1] + 4.0,
            ]
        ),
        upper_inequality=lambda x, y: x[0] ** 2 + 2.0 * x[1] - 4.0,
        sets=(Box(0.0, 4.0, shape=2), Box(0.0, np.inf, shape=2)),
        answer=(-12.6787109375, [0.0, 2.0], [1.875, 0.90625]),
        starts=([0.3, 1.5], [0.5, 1.0], [1.0, 1.0]),
        tags="affine-coupled box-y upper-constraint merely-convex",
        note="The coupling is curved in x and affine in y. Another local minimum, -10.36, is at x = (2, 0).",
    ),
    # A price and a split of capacity 2 between two markets that want 2 - price and 3 - price. Up to price 1.5 the
    # capacity can be sold out; beyond, demand falls too fast. At the answer demand and capacity coincide.
    known(
        "priced_capacity",
        upper=lambda x, y: -x["price"] * jnp.sum(y["demand"]),
        lower=lambda x, y: 0.5 * jnp.sum((y["demand"] - np.array([2.0, 3.0]) + x["price"]) ** 2),
        inequality=lambda x, y: {"capacity": y["demand"] - x["share"]},
        sets=(
            Product({"price": Box(0.0, 4.0), "share": Simplex(2, total=2.0)}),
            Product({"demand": Box(0.0, np.inf, shape=2)}),
        ),
        answer=(-3.0, {"price": 1.5, "share": [0.5, 1.5]}, {"demand": [0.5, 1.5]}),
        starts=(
            {"price": 0.5, "share": [1.0, 1.0]},
            {"price": 1.8, "share": [0.4, 1.6]},
            {"price": 1.0, "share": [0.2, 1.8]},
        ),
        tags="affine-coupled box-y simplex-x pytree kink no-strict-complementarity",
        note="Both capacity rows hold with equality and multiplier zero at the answer.",
    ),
)
