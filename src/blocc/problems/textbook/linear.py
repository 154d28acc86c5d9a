"""Problems whose lower level is a linear program: merely convex, with vertices that jump and optimistic ties."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from blocc.problem import BilevelProblem
from blocc.problems.textbook.entry import KnownProblem
from blocc.sets import Box, Simplex


def problems() -> tuple[KnownProblem, ...]:
    """The problems of this family."""
    return (
        _bard_falk_1982(),
        _candler_townsley_1982(),
        _anandalingam_white_1990(),
        _liu_hart_1994(),
        _ben_ayed_blair_1990(),
        _bard_1991_example_1(),
        _tuy_2007(),
        _lampariello_sagratella_2017_example_3_3(),
        _morgan_patrone_2006(),
        _two_road_toll(),
    )


def _bard_falk_1982() -> KnownProblem:
    # y2 = 2 - x1 + 3 x2 and y1 = x1 + 3 x2 - 1/2 wherever both are nonnegative.
    return KnownProblem(
        name="bard_falk_1982",
        source="Bard and Falk (1982), Computers and Operations Research 9, Example 2",
        problem=BilevelProblem(
            name="bard_falk_1982",
            upper=lambda x, y: -2.0 * x[0] + x[1] + 0.5 * y[0],
            lower=lambda x, y: -4.0 * y[0] + y[1],
            inequality=lambda x, y: jnp.stack([-2.0 * x[0] + y[0] - y[1] + 2.5, x[0] - 3.0 * x[1] + y[1] - 2.0]),
            upper_inequality=lambda x, y: x[0] + x[1] - 2.0,
            x_set=Box(0.0, np.inf, shape=2),
            y_set=Box(0.0, np.inf, shape=2),
        ),
        upper_value=-3.25,
        x=np.array([2.0, 0.0]),
        y=np.array([1.5, 0.0]),
        starts=tuple(np.array(start) for start in ([1.5, 0.2], [1.0, 0.5], [0.6, 0.6])),
        tags=frozenset(
            {
                "literature",
                "linear",
                "affine-coupled",
                "box-y",
                "upper-constraint",
                "merely-convex",
                "wall",
                "edge-of-feasibility",
            }
        ),
    )


def _candler_townsley_1982() -> KnownProblem:
    rows = np.array([[-1.0, 1.0, 1.0], [-1.0, 2.0, -0.5], [2.0, -1.0, -0.5]])
    inputs = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    return KnownProblem(
        name="candler_townsley_1982",
        source="Candler and Townsley (1982), Computers and Operations Research 9",
        problem=BilevelProblem(
            name="candler_townsley_1982",
            upper=lambda x, y: -8.0 * x[0] - 4.0 * x[1] + 4.0 * y[0] - 40.0 * y[1] - 4.0 * y[2],
            lower=lambda x, y: x[0] + 2.0 * x[1] + y[0] + y[1] + 2.0 * y[2],
            inequality=lambda x, y: rows @ y + inputs @ x - 1.0,
            x_set=Box(0.0, np.inf, shape=2),
            y_set=Box(0.0, np.inf, shape=3),
        ),
        upper_value=-29.2,
        x=np.array([0.0, 0.9]),
        y=np.array([0.0, 0.6, 0.4]),
        starts=tuple(np.array(start) for start in ([0.0, 0.6], [0.0, 0.75], [0.02, 0.8])),
        tags=frozenset(
            {"literature", "linear", "affine-coupled", "box-y", "merely-convex", "wall", "edge-of-feasibility"}
        ),
        note="Another local minimum, -16, is at x = (1.5, 0); for x2 > 0.9 the follower has no feasible point.",
    )


def _anandalingam_white_1990() -> KnownProblem:
    # y = max(0, (10 - x)/2, (x - 6)/2, 2x - 21), feasible up to x = 16.
    return KnownProblem(
        name="anandalingam_white_1990",
        source="Anandalingam and White (1990), IEEE Transactions on Automatic Control 35",
        problem=BilevelProblem(
            name="anandalingam_white_1990",
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
            x_set=Box(0.0, np.inf),
            y_set=Box(0.0, np.inf),
        ),
        upper_value=-49.0,
        x=np.array(16.0),
        y=np.array(11.0),
        starts=tuple(np.array(start) for start in (9.0, 12.0, 15.0)),
        tags=frozenset(
            {"literature", "linear", "affine-coupled", "box-y", "merely-convex", "wall", "edge-of-feasibility"}
        ),
        note="For x below 8 the leader is drawn to another local minimum, -15 at x = 0.",
    )


def _liu_hart_1994() -> KnownProblem:
    # y = max(0, 4x - 12), feasible up to x = 4.
    return KnownProblem(
        name="liu_hart_1994",
        source="Liu and Hart (1994), European Journal of Operational Research 73",
        problem=BilevelProblem(
            name="liu_hart_1994",
            upper=lambda x, y: -x - 3.0 * y,
            lower=lambda x, y: y,
            inequality=lambda x, y: jnp.stack([-x + y - 3.0, x + 2.0 * y - 12.0, 4.0 * x - y - 12.0]),
            x_set=Box(0.0, np.inf),
            y_set=Box(0.0, np.inf),
        ),
        upper_value=-16.0,
        x=np.array(4.0),
        y=np.array(4.0),
        starts=tuple(np.array(start) for start in (0.5, 2.0, 3.5)),
        tags=frozenset(
            {"literature", "linear", "affine-coupled", "box-y", "merely-convex", "wall", "edge-of-feasibility"}
        ),
    )


def _ben_ayed_blair_1990() -> KnownProblem:
    # y1 = 0 and y2 = (5 - 2x)/3.
    return KnownProblem(
        name="ben_ayed_blair_1990",
        source="Ben-Ayed and Blair (1990), Operations Research 38, Example 1",
        problem=BilevelProblem(
            name="ben_ayed_blair_1990",
            upper=lambda x, y: -1.5 * x - 6.0 * y[0] - y[1],
            lower=lambda x, y: -y[0] - 5.0 * y[1],
            inequality=lambda x, y: jnp.stack([x + 3.0 * y[0] + y[1] - 5.0, 2.0 * x + y[0] + 3.0 * y[1] - 5.0]),
            x_set=Box(0.0, 1.0),
            y_set=Box(0.0, np.inf, shape=2),
        ),
        upper_value=-2.5,
        x=np.array(1.0),
        y=np.array([0.0, 1.0]),
        starts=tuple(np.array(start) for start in (0.0, 0.4, 0.9)),
        tags=frozenset({"literature", "linear", "affine-coupled", "box-y", "merely-convex"}),
    )


def _bard_1991_example_1() -> KnownProblem:
    # For x > 2 the first variable is the cheaper one; at x = 2 the follower does not care, and the leader prefers it.
    return KnownProblem(
        name="bard_1991_example_1",
        source="Bard (1991), Journal of Optimization Theory and Applications 68, Example 1",
        problem=BilevelProblem(
            name="bard_1991_example_1",
            upper=lambda x, y: x + y[1],
            lower=lambda x, y: 2.0 * y[0] + x * y[1],
            inequality=lambda x, y: x - y[0] - y[1] + 4.0,
            x_set=Box(2.0, 4.0),
            y_set=Box(0.0, np.inf, shape=2),
        ),
        upper_value=2.0,
        x=np.array(2.0),
        y=np.array([6.0, 0.0]),
        starts=tuple(np.array(start) for start in (2.5, 3.0, 4.0)),
        tags=frozenset({"literature", "affine-coupled", "box-y", "merely-convex", "many-minimisers"}),
        note="At the answer every y >= 0 with y1 + y2 = 6 is optimal below.",
    )


def _tuy_2007() -> KnownProblem:
    # y = min((15 - x)/3, 7 - x, 15 - 3x).
    return KnownProblem(
        name="tuy_2007",
        source="Tuy, Migdalas and Hoai-Phuong (2007), Journal of Global Optimization 38",
        problem=BilevelProblem(
            name="tuy_2007",
            upper=lambda x, y: x**2 + y**2,
            lower=lambda x, y: -y,
            inequality=lambda x, y: jnp.stack([3.0 * x + y - 15.0, x + y - 7.0, x + 3.0 * y - 15.0]),
            x_set=Box(0.0, np.inf),
            y_set=Box(0.0, np.inf),
        ),
        upper_value=22.5,
        x=None,
        y=None,
        starts=tuple(np.array(start) for start in (0.5, 2.5, 4.2, 4.9)),
        tags=frozenset({"literature", "affine-coupled", "box-y", "merely-convex", "wall"}),
        note="Two answers, (1.5, 4.5) and (4.5, 1.5); between them, for x in (3, 4), lies a local minimum of 24.5.",
    )


def _lampariello_sagratella_2017_example_3_3() -> KnownProblem:
    # y1 = 0 and y2 >= max(0, 1 - x) is up to the leader.
    return KnownProblem(
        name="lampariello_sagratella_2017_example_3_3",
        source="Lampariello and Sagratella (2017), Example 3.3, as listed in BOLIB",
        problem=BilevelProblem(
            name="lampariello_sagratella_2017_example_3_3",
            upper=lambda x, y: x**2 + jnp.sum(y) ** 2,
            lower=lambda x, y: y[0],
            inequality=lambda x, y: 1.0 - x - y[0] - y[1],
            x_set=Box(0.5, np.inf),
            y_set=Box(0.0, np.inf, shape=2),
        ),
        upper_value=0.5,
        x=np.array(0.5),
        y=np.array([0.0, 0.5]),
        starts=tuple(np.array(start) for start in (0.7, 1.0, 3.0)),
        tags=frozenset({"literature", "affine-coupled", "box-y", "merely-convex", "many-minimisers"}),
        note="At every x the follower's best answers form a ray; the leader takes its end.",
    )


def _morgan_patrone_2006() -> KnownProblem:
    # y = 1 for x < 0, y = -1 for x > 0, anything at x = 0.
    return KnownProblem(
        name="morgan_patrone_2006",
        source="Morgan and Patrone (2006), Annals of the International Society of Dynamic Games 8, Example a",
        problem=BilevelProblem(
            name="morgan_patrone_2006",
            upper=lambda x, y: -x - y,
            lower=lambda x, y: x * y,
            x_set=Box(-0.5, 0.5),
            y_set=Box(-1.0, 1.0),
        ),
        upper_value=-1.0,
        x=np.array(0.0),
        y=np.array(1.0),
        starts=tuple(np.array(start) for start in (-0.5, -0.3, -0.1)),
        tags=frozenset({"literature", "box-y", "merely-convex", "many-minimisers", "discontinuous"}),
        note="The leader's value jumps from -1 to 1 at the answer. From x > 0 descent ends at x = 0.5 with 0.5.",
    )


def _two_road_toll() -> KnownProblem:
    # The tolled road costs 1 + x, the free one 4: travellers pay up to x = 3 and not a cent more.
    return KnownProblem(
        name="two_road_toll",
        source="after Labbe, Marcotte and Savard (1998), Management Science 44",
        problem=BilevelProblem(
            name="two_road_toll",
            upper=lambda x, y: -x * y[0],
            lower=lambda x, y: (1.0 + x) * y[0] + 4.0 * y[1],
            x_set=Box(0.0, 10.0),
            y_set=Simplex(2),
        ),
        upper_value=-3.0,
        x=np.array(3.0),
        y=np.array([1.0, 0.0]),
        starts=tuple(np.array(start) for start in (0.5, 1.5, 2.5)),
        tags=frozenset({"literature", "simplex-y", "merely-convex", "many-minimisers", "discontinuous"}),
        note="The revenue drops to zero just beyond the answer and stays flat from there on.",
    )
