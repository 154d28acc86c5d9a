"""Followers with a linear program, whose vertices jump and tie; and answers where the usual regularity fails."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from blocc.problems.textbook.entry import KnownProblem, known
from blocc.sets import Box, Reals
from blocc.simple_sets import Simplex

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
        tags="nonlinear-coupled edge-of-feasibility no-multipliers",
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
        tags="nonlinear-constraint upper-constraint kink no-strict-complementarity",
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
        tags="affine-coupled box-y upper-constraint no-strict-complementarity",
    ),
    # y = max(x, 0), so the leader sees 1 + |x| / 2.
    known(
        "absolute_value",
        upper=lambda x, y: 1.0 + y - 0.5 * x,
        lower=lambda x, y: (y - x) ** 2,
        sets=(Box(-2.0, 3.0), Box(0.0, np.inf)),
        answer=(1.0, 0.0, 0.0),
        starts=(-2.0, 0.7, 3.0),
        tags="box-y kink no-strict-complementarity",
    ),
    # y = max(0, x - 1): the bound becomes active exactly at the answer, where everything is still smooth.
    known(
        "weakly_active_bound",
        upper=lambda x, y: 1.0 + (x - 1.0) ** 2 + y**2,
        lower=lambda x, y: 0.5 * y**2,
        inequality=lambda x, y: x - 1.0 - y,
        sets=(Box(-3.0, 5.0), Reals()),
        answer=(1.0, 1.0, 0.0),
        starts=(-3.0, 0.0, 4.0),
        tags="affine-coupled no-strict-complementarity",
    ),
    # y = |x|, squeezed between y >= x, y >= -x and y >= 0: three active rows for one variable.
    known(
        "redundant_bounds",
        upper=lambda x, y: (y + 1.0) ** 2 - 0.5 * x,
        lower=lambda x, y: 0.5 * (y + 1.0) ** 2,
        inequality=lambda x, y: jnp.stack([x - y, -x - y, -y]),
        sets=(Box(-2.0, 2.0), Reals()),
        answer=(1.0, 0.0, 0.0),
        starts=(-2.0, 0.5, 1.5),
        tags="affine-coupled kink no-licq",
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
        tags="nonlinear-coupled edge-of-feasibility no-multipliers",
        note="The multipliers and the leader's slope grow without bound towards the answer: 1e-7 in x is 5e-4 in f.",
        tolerance=1e-3,
    ),
    # The same row three times: y = (x/2, x/2) for x >= 0, with a whole triangle of multipliers.
    known(
        "repeated_rows",
        upper=lambda x, y: 0.5 * (x - 3.0) ** 2 + y[0] + 2.0 * y[1],
        lower=lambda x, y: 0.5 * jnp.sum(y**2),
        inequality=lambda x, y: np.array([1.0, 2.0, 0.5]) * (x - y[0] - y[1]),
        sets=(Box(-5.0, 5.0), Reals(2)),
        answer=(3.375, 1.5, [0.75, 0.75]),
        starts=(-4.0, 0.5, 5.0),
        tags="affine-coupled no-licq",
    ),
    # y1 <= x and y1 >= x: an equality in disguise, never strictly feasible. y = (x, x).
    known(
        "pinched",
        upper=lambda x, y: 0.5 * (x - 2.0) ** 2 + 0.5 * y[1] ** 2,
        lower=lambda x, y: 0.5 * (y[0] - 5.0) ** 2 + 0.5 * (y[1] - y[0]) ** 2,
        inequality=lambda x, y: jnp.stack([y[0] - x, x - y[0]]),
        sets=(Box(-3.0, 4.0), Reals(2)),
        answer=(1.0, 1.0, [1.0, 1.0]),
        starts=(-3.0, 0.0, 4.0),
        tags="affine-coupled edge-of-feasibility no-licq",
        note="The follower has no strictly feasible point for any x, and an unbounded set of multipliers.",
    ),
    # y = (x/2, x/2): at x = 0 the budget leaves the follower a single point.
    known(
        "shrinking_budget",
        upper=lambda x, y: 1.0 + x + 0.5 * jnp.sum(y**2),
        lower=lambda x, y: 0.5 * jnp.sum((y - 1.0) ** 2),
        inequality=lambda x, y: y[0] + y[1] - x,
        sets=(Box(0.0, 2.0), Box(0.0, np.inf, shape=2)),
        answer=(1.0, 0.0, np.zeros(2)),
        starts=(0.3, 1.0, 2.0),
        tags="affine-coupled box-y edge-of-feasibility no-licq",
    ),
    # y2 = 2 - x1 + 3 x2 and y1 = x1 + 3 x2 - 1/2 wherever both are nonnegative.
    known(
        "bard_falk_1982",
        "Bard and Falk (1982), Computers and Operations Research 9, Example 2",
        upper=lambda x, y: -2.0 * x[0] + x[1] + 0.5 * y[0],
        lower=lambda x, y: -4.0 * y[0] + y[1],
        inequality=lambda x, y: jnp.stack([-2.0 * x[0] + y[0] - y[1] + 2.5, x[0] - 3.0 * x[1] + y[1] - 2.0]),
        upper_inequality=lambda x, y: x[0] + x[1] - 2.0,
        sets=(Box(0.0, np.inf, shape=2), Box(0.0, np.inf, shape=2)),
        answer=(-3.25, [2.0, 0.0], [1.5, 0.0]),
        starts=([1.5, 0.2], [1.0, 0.5], [0.6, 0.6]),
        tags="linear affine-coupled box-y upper-constraint merely-convex infeasible-for-some-x edge-of-feasibility",
    ),
    known(
        "candler_townsley_1982",
        "Candler and Townsley (1982), Computers and Operations Research 9",
        upper=lambda x, y: -8.0 * x[0] - 4.0 * x[1] + 4.0 * y[0] - 40.0 * y[1] - 4.0 * y[2],
        lower=lambda x, y: x[0] + 2.0 * x[1] + y[0] + y[1] + 2.0 * y[2],
        inequality=lambda x, y: (
            np.array([[-1.0, 1.0, 1.0], [-1.0, 2.0, -0.5], [2.0, -1.0, -0.5]]) @ y
            + np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]]) @ x
            - 1.0
        ),
        sets=(Box(0.0, np.inf, shape=2), Box(0.0, np.inf, shape=3)),
        answer=(-29.2, [0.0, 0.9], [0.0, 0.6, 0.4]),
        starts=([0.0, 0.6], [0.0, 0.75], [0.02, 0.8]),
        tags="linear affine-coupled box-y merely-convex infeasible-for-some-x edge-of-feasibility",
        note="Another local minimum, -16, is at x = (1.5, 0); for x2 > 0.9 the follower has no feasible point.",
    ),
    # y = max(0, (10 - x)/2, (x - 6)/2, 2x - 21), feasible up to x = 16.
    known(
        "anandalingam_white_1990",
        "Anandalingam and White (1990), IEEE Transactions on Automatic Control 35",
        upper=lambda x, y: -x - 3.0 * y,
        lower=lambda x, y: -x + 3.0 * y,
        inequality=lambda x, y: jnp.stack(
            [
                -x - 2.0 * y + 10.0,
                x - 2.0 * y - 6.0,
                2.0 * x - y - 21.0,
                x + 2.0 * y - 38.0,
                -x + 2.0 * y - 18.0,
            ]
        ),
        sets=(Box(0.0, np.inf), Box(0.0, np.inf)),
        answer=(-49.0, 16.0, 11.0),
        starts=(9.0, 12.0, 15.0),
        tags="linear affine-coupled box-y merely-convex infeasible-for-some-x edge-of-feasibility",
        note="For x below 8 the leader is drawn to another local minimum, -15 at x = 0.",
    ),
    # y = max(0, 4x - 12), feasible up to x = 4.
    known(
        "liu_hart_1994",
        "Liu and Hart (1994), European Journal of Operational Research 73",
        upper=lambda x, y: -x - 3.0 * y,
        lower=lambda x, y: y,
        inequality=lambda x, y: jnp.stack([-x + y - 3.0, x + 2.0 * y - 12.0, 4.0 * x - y - 12.0]),
        sets=(Box(0.0, np.inf), Box(0.0, np.inf)),
        answer=(-16.0, 4.0, 4.0),
        starts=(0.5, 2.0, 3.5),
        tags="linear affine-coupled box-y merely-convex infeasible-for-some-x edge-of-feasibility",
    ),
    # y1 = 0 and y2 = (5 - 2x)/3.
    known(
        "ben_ayed_blair_1990",
        "Ben-Ayed and Blair (1990), Operations Research 38, Example 1",
        upper=lambda x, y: -1.5 * x - 6.0 * y[0] - y[1],
        lower=lambda x, y: -y[0] - 5.0 * y[1],
        inequality=lambda x, y: jnp.stack([x + 3.0 * y[0] + y[1] - 5.0, 2.0 * x + y[0] + 3.0 * y[1] - 5.0]),
        sets=(Box(0.0, 1.0), Box(0.0, np.inf, shape=2)),
        answer=(-2.5, 1.0, [0.0, 1.0]),
        starts=(0.0, 0.4, 0.9),
        tags="linear affine-coupled box-y merely-convex",
    ),
    # For x > 2 the first variable is the cheaper one; at x = 2 the follower does not care, and the leader prefers it.
    known(
        "bard_1991_example_1",
        "Bard (1991), Journal of Optimization Theory and Applications 68, Example 1",
        upper=lambda x, y: x + y[1],
        lower=lambda x, y: 2.0 * y[0] + x * y[1],
        inequality=lambda x, y: x - y[0] - y[1] + 4.0,
        sets=(Box(2.0, 4.0), Box(0.0, np.inf, shape=2)),
        answer=(2.0, 2.0, [6.0, 0.0]),
        starts=(2.5, 3.0, 4.0),
        tags="affine-coupled box-y merely-convex many-minimisers",
        note="At the answer every y >= 0 with y1 + y2 = 6 is optimal below.",
    ),
    # y = min((15 - x)/3, 7 - x, 15 - 3x).
    known(
        "tuy_2007",
        "Tuy, Migdalas and Hoai-Phuong (2007), Journal of Global Optimization 38",
        upper=lambda x, y: x**2 + y**2,
        lower=lambda x, y: -y,
        inequality=lambda x, y: jnp.stack([3.0 * x + y - 15.0, x + y - 7.0, x + 3.0 * y - 15.0]),
        sets=(Box(0.0, np.inf), Box(0.0, np.inf)),
        answer=(22.5, None, None),
        starts=(0.5, 2.5, 4.2, 4.9),
        tags="affine-coupled box-y merely-convex infeasible-for-some-x",
        note="Two answers, (1.5, 4.5) and (4.5, 1.5); between them, for x in (3, 4), lies a local minimum of 24.5.",
    ),
    # y1 = 0 and y2 >= max(0, 1 - x) is up to the leader.
    known(
        "lampariello_sagratella_2017_example_3_3",
        "Lampariello and Sagratella (2017), Example 3.3, as listed in BOLIB",
        upper=lambda x, y: x**2 + jnp.sum(y) ** 2,
        lower=lambda x, y: y[0],
        inequality=lambda x, y: 1.0 - x - y[0] - y[1],
        sets=(Box(0.5, np.inf), Box(0.0, np.inf, shape=2)),
        answer=(0.5, 0.5, [0.0, 0.5]),
        starts=(0.7, 1.0, 3.0),
        tags="affine-coupled box-y merely-convex many-minimisers",
        note="At every x the follower's best answers form a ray; the leader takes its end.",
    ),
    # y = 1 for x < 0, y = -1 for x > 0, anything at x = 0.
    known(
        "morgan_patrone_2006",
        "Morgan and Patrone (2006), Annals of the International Society of Dynamic Games 8, Example a",
        upper=lambda x, y: -x - y,
        lower=lambda x, y: x * y,
        sets=(Box(-0.5, 0.5), Box(-1.0, 1.0)),
        answer=(-1.0, 0.0, 1.0),
        starts=(-0.5, -0.3, -0.1),
        tags="box-y merely-convex many-minimisers discontinuous",
        note="The leader's value jumps from -1 to 1 at the answer. From x > 0 descent ends at x = 0.5 with 0.5.",
    ),
    # The tolled road costs 1 + x, the free one 4: travellers pay up to x = 3 and not a cent more.
    known(
        "two_road_toll",
        "after Labbe, Marcotte and Savard (1998), Management Science 44",
        upper=lambda x, y: -x * y[0],
        lower=lambda x, y: (1.0 + x) * y[0] + 4.0 * y[1],
        sets=(Box(0.0, 10.0), Simplex(2)),
        answer=(-3.0, 3.0, [1.0, 0.0]),
        starts=(0.5, 1.5, 2.5),
        tags="simplex-y merely-convex many-minimisers discontinuous",
        note="The revenue drops to zero just beyond the answer and stays flat from there on.",
    ),
)
