"""Problems that break the usual regularity assumptions exactly at the answer."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from blocc.problems.textbook.entry import KnownProblem, known
from blocc.sets import Box, Reals


def _repeated_rows() -> KnownProblem:
    # The same row three times: y = (x/2, x/2) for x >= 0, with a whole triangle of multipliers.
    weights = np.array([1.0, 2.0, 0.5])
    return known(
        "repeated_rows",
        "constructed",
        upper=lambda x, y: 0.5 * (x - 3.0) ** 2 + y[0] + 2.0 * y[1],
        lower=lambda x, y: 0.5 * jnp.sum(y**2),
        inequality=lambda x, y: weights * (x - y[0] - y[1]),
        sets=(Box(-5.0, 5.0), Reals(2)),
        answer=(3.375, 1.5, [0.75, 0.75]),
        starts=(-4.0, 0.5, 5.0),
        tags="constructed affine-coupled no-licq",
    )


PROBLEMS: tuple[KnownProblem, ...] = (
    # y = sqrt(x) up to x = 9. The slope of the leader's value in y is 4 (y - 1)^2 (y + 2), never negative.
    known(
        "dempe_1992b",
        "Dempe (1992), Optimization 25, Example b",
        upper=lambda x, y: (x - 3.5) ** 2 + (y + 4.0) ** 2,
        lower=lambda x, y: (y - 3.0) ** 2,
        inequality=lambda x, y: y**2 - x,
        sets=(Box(0.0, 16.0), Reals()),
        answer=(28.25, 0.0, 0.0),
        starts=(0.2, 0.4, 0.6),
        tags="literature nonlinear-coupled edge-of-feasibility no-multipliers",
        note="The published answer, 31.25 at (1, 1), is a stationary point of inflection, where descent from the right "
        "may stall. The optimum is at x = 0, where the follower has one feasible point and no multiplier.",
    ),
    # y = clip(x, 0.5, 1.5). At 0.5 the leader's slope jumps from -1 to 0 in each coordinate.
    known(
        "allende_still_2013",
        "Allende and Still (2013), Mathematical Programming 138",
        upper=lambda x, y: jnp.sum(x**2 - 2.0 * x + y**2),
        lower=lambda x, y: jnp.sum(y**2 - 2.0 * x * y),
        inequality=lambda x, y: (y - 1.0) ** 2 - 0.25,
        upper_inequality=lambda x, y: -y,
        sets=(Box(0.0, np.array([2.0, np.inf])), Reals(2)),
        answer=(-1.0, [0.5, 0.5], [0.5, 0.5]),
        starts=([0.0, 0.0], [2.0, 3.0], [1.0, 0.2]),
        tags="literature nonlinear-constraint upper-constraint kink no-strict-complementarity",
    ),
    # y = min(15 - x/2, 20 - x); the two pieces and the leader's constraint y <= x all meet at (10, 10).
    known(
        "shimizu_aiyoshi_1981_example_1",
        "Shimizu and Aiyoshi (1981), IEEE Transactions on Automatic Control 26, Example 1",
        upper=lambda x, y: x**2 + (y - 10.0) ** 2,
        lower=lambda x, y: (x + 2.0 * y - 30.0) ** 2,
        inequality=lambda x, y: x + y - 20.0,
        upper_inequality=lambda x, y: y - x,
        sets=(Box(0.0, 15.0), Box(0.0, 20.0)),
        answer=(100.0, 10.0, 10.0),
        starts=(11.0, 13.0, 15.0),
        tags="literature affine-coupled box-y upper-constraint no-strict-complementarity",
    ),
    # y = max(x, 0), so the leader sees 1 + |x| / 2.
    known(
        "absolute_value",
        "constructed",
        upper=lambda x, y: 1.0 + y - 0.5 * x,
        lower=lambda x, y: (y - x) ** 2,
        sets=(Box(-2.0, 3.0), Box(0.0, np.inf)),
        answer=(1.0, 0.0, 0.0),
        starts=(-2.0, 0.7, 3.0),
        tags="constructed box-y kink no-strict-complementarity",
    ),
    # y = max(0, x - 1): the bound becomes active exactly at the answer, where everything is still smooth.
    known(
        "weakly_active_bound",
        "constructed",
        upper=lambda x, y: 1.0 + (x - 1.0) ** 2 + y**2,
        lower=lambda x, y: 0.5 * y**2,
        inequality=lambda x, y: x - 1.0 - y,
        sets=(Box(-3.0, 5.0), Reals()),
        answer=(1.0, 1.0, 0.0),
        starts=(-3.0, 0.0, 4.0),
        tags="constructed affine-coupled no-strict-complementarity",
    ),
    # y = |x|, squeezed between y >= x, y >= -x and y >= 0: three active rows for one variable.
    known(
        "redundant_bounds",
        "constructed",
        upper=lambda x, y: (y + 1.0) ** 2 - 0.5 * x,
        lower=lambda x, y: 0.5 * (y + 1.0) ** 2,
        inequality=lambda x, y: jnp.stack([x - y, -x - y, -y]),
        sets=(Box(-2.0, 2.0), Reals()),
        answer=(1.0, 0.0, 0.0),
        starts=(-2.0, 0.5, 1.5),
        tags="constructed affine-coupled kink no-licq",
    ),
    # Two unit discs around (+-x, 1 + x). The follower takes the lowest point of the lens, height 1 + x - sqrt(1 - x^2);
    # at x = 1 the discs touch in one point.
    known(
        "tangent_discs",
        "after Dempe and Dutta (2012), Mathematical Programming 131, Example 3.1, on the diagonal",
        upper=lambda x, y: -y[1],
        lower=lambda x, y: y[0] ** 2 + (y[1] + 1.0) ** 2,
        inequality=lambda x, y: jnp.stack(
            [
                (y[0] - x) ** 2 + (y[1] - x - 1.0) ** 2 - 1.0,
                (y[0] + x) ** 2 + (y[1] - x - 1.0) ** 2 - 1.0,
            ]
        ),
        sets=(Box(0.0, 1.0), Reals(2)),
        answer=(-2.0, 1.0, [0.0, 2.0]),
        starts=(0.1, 0.5, 0.9),
        tags="literature nonlinear-coupled edge-of-feasibility no-multipliers",
        note="The multipliers and the leader's slope grow without bound towards the answer.",
    ),
    _repeated_rows(),
    # y1 <= x and y1 >= x: an equality in disguise, never strictly feasible. y = (x, x).
    known(
        "pinched",
        "constructed",
        upper=lambda x, y: 0.5 * (x - 2.0) ** 2 + 0.5 * y[1] ** 2,
        lower=lambda x, y: 0.5 * (y[0] - 5.0) ** 2 + 0.5 * (y[1] - y[0]) ** 2,
        inequality=lambda x, y: jnp.stack([y[0] - x, x - y[0]]),
        sets=(Box(-3.0, 4.0), Reals(2)),
        answer=(1.0, 1.0, [1.0, 1.0]),
        starts=(-3.0, 0.0, 4.0),
        tags="constructed affine-coupled edge-of-feasibility no-licq",
        note="The follower has no strictly feasible point for any x, and an unbounded set of multipliers.",
    ),
    # y = (x/2, x/2): at x = 0 the budget leaves the follower a single point.
    known(
        "shrinking_budget",
        "constructed",
        upper=lambda x, y: 1.0 + x + 0.5 * jnp.sum(y**2),
        lower=lambda x, y: 0.5 * jnp.sum((y - 1.0) ** 2),
        inequality=lambda x, y: y[0] + y[1] - x,
        sets=(Box(0.0, 2.0), Box(0.0, np.inf, shape=2)),
        answer=(1.0, 0.0, np.zeros(2)),
        starts=(0.3, 1.0, 2.0),
        tags="constructed affine-coupled box-y edge-of-feasibility no-licq",
    ),
)
