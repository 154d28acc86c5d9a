"""Problems whose follower has affine constraints that involve x, mostly classics of the literature."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from blocc.problem import BilevelProblem
from blocc.problems.textbook.entry import KnownProblem
from blocc.sets import Box, Product, Reals, Simplex


def problems() -> tuple[KnownProblem, ...]:
    """The problems of this family."""
    return (
        _blocc_toy(),
        _leaning_wall(),
        _bard_1988_example_1(),
        _clark_westerberg_1990(),
        _gumus_floudas_2001_example_1(),
        _shimizu_aiyoshi_1981_example_2(),
        _aiyoshi_shimizu_1984_example_2(),
        _aiyoshi_shimizu_1984_example_2_local(),
        _bard_1988_example_3(),
        _priced_capacity(),
    )


def _blocc_toy() -> KnownProblem:
    # The follower wants 2x and may have x, so y = x; the leader's wavy value has four local minima.
    return KnownProblem(
        name="blocc_toy",
        source="Jiang, Xiao, Tenorio, Real-Rojas, Marques and Chen (2024), arXiv 2406.10148, the toy problem",
        problem=BilevelProblem(
            name="blocc_toy",
            upper=lambda x, y: jnp.exp(2.0 - y) / (2.0 + jnp.cos(6.0 * x)) + 0.5 * jnp.log((4.0 * x - 2.0) ** 2 + 1.0),
            lower=lambda x, y: (y - 2.0 * x) ** 2,
            inequality=lambda x, y: y - x,
            x_set=Box(0.0, 3.0),
            y_set=Box(0.0, 3.0),
        ),
        upper_value=1.7218788147349,
        x=np.array(0.98622483),
        y=np.array(0.98622483),
        starts=tuple(np.array(start) for start in (0.6, 1.1, 1.5)),
        tags=frozenset({"literature", "affine-coupled", "box-y"}),
        note="Other local minima: 2.96850 at x = 0.149, 2.15611 at x = 2.020 and 2.44573 at x = 2.991.",
    )


def _leaning_wall() -> KnownProblem:
    # y = max(2x, 3x). For x > 0 the wall is active and the gradient of the lower value is 2x, not -4x.
    return KnownProblem(
        name="leaning_wall",
        source="constructed",
        problem=BilevelProblem(
            name="leaning_wall",
            upper=lambda x, y: (x - 1.0) ** 2 + y**2,
            lower=lambda x, y: (y - 2.0 * x) ** 2,
            inequality=lambda x, y: 3.0 * x - y,
            x_set=Reals(),
            y_set=Reals(),
        ),
        upper_value=0.9,
        x=np.array(0.1),
        y=np.array(0.3),
        starts=tuple(np.array(start) for start in (-2.0, 0.0, 3.0)),
        tags=frozenset({"constructed", "affine-coupled"}),
        note="Without the multiplier term the gradient of the lower value has the wrong sign.",
    )


def _bard_1988_example_1() -> KnownProblem:
    return KnownProblem(
        name="bard_1988_example_1",
        source="Bard (1988), Mathematical Programming 40, Example 1",
        problem=BilevelProblem(
            name="bard_1988_example_1",
            upper=lambda x, y: (x - 5.0) ** 2 + (2.0 * y + 1.0) ** 2,
            lower=lambda x, y: (y - 1.0) ** 2 - 1.5 * x * y,
            inequality=lambda x, y: jnp.stack([y - 3.0 * x + 3.0, x - 0.5 * y - 4.0, x + y - 7.0]),
            x_set=Box(0.0, np.inf),
            y_set=Box(0.0, np.inf),
        ),
        upper_value=17.0,
        x=np.array(1.0),
        y=np.array(0.0),
        starts=tuple(np.array(start) for start in (1.5, 2.0, 3.0)),
        tags=frozenset({"literature", "affine-coupled", "box-y", "edge-of-feasibility", "wall"}),
        note="The follower has a feasible point for x in [1, 5] only. Another local minimum, 25, is at (5, 2).",
    )


def _clark_westerberg_1990() -> KnownProblem:
    return KnownProblem(
        name="clark_westerberg_1990",
        source="Clark and Westerberg (1990), Computers and Chemical Engineering 14; also Sahin and Ciric (1998)",
        problem=BilevelProblem(
            name="clark_westerberg_1990",
            upper=lambda x, y: (x - 3.0) ** 2 + (y - 2.0) ** 2,
            lower=lambda x, y: (y - 5.0) ** 2,
            inequality=lambda x, y: jnp.stack([y - 2.0 * x - 1.0, x - 2.0 * y + 2.0, x + 2.0 * y - 14.0]),
            x_set=Box(0.0, 8.0),
            y_set=Reals(),
        ),
        upper_value=5.0,
        x=np.array(1.0),
        y=np.array(3.0),
        starts=tuple(np.array(start) for start in (0.1, 0.6, 1.7)),
        tags=frozenset({"literature", "affine-coupled", "wall"}),
        note="The leader's value has a peak at x = 2; behind it lie local minima of 9 at x = 3 and 9.8 at x = 4.4.",
    )


def _gumus_floudas_2001_example_1() -> KnownProblem:
    return KnownProblem(
        name="gumus_floudas_2001_example_1",
        source="Gumus and Floudas (2001), Journal of Global Optimization 20, Example 1; Shimizu et al. (1997)",
        problem=BilevelProblem(
            name="gumus_floudas_2001_example_1",
            upper=lambda x, y: 16.0 * x**2 + 9.0 * y**2,
            lower=lambda x, y: (x + y - 20.0) ** 4,
            inequality=lambda x, y: 4.0 * x + y - 50.0,
            upper_inequality=lambda x, y: y - 4.0 * x,
            x_set=Box(0.0, 12.5),
            y_set=Box(0.0, np.inf),
        ),
        upper_value=2250.0,
        x=np.array(11.25),
        y=np.array(5.0),
        starts=tuple(np.array(start) for start in (10.5, 11.0, 12.4)),
        tags=frozenset({"literature", "affine-coupled", "box-y", "upper-constraint", "merely-convex"}),
        note="For x below 10 the lower Hessian vanishes at the answer; there is a local minimum, 2304, at (7.2, 12.8).",
    )


def _shimizu_aiyoshi_1981_example_2() -> KnownProblem:
    # y = clip(x, 0, 10): with y1 = 10 and y2 = x2 the leader's problem is convex, and two of her constraints meet at
    # (20, 5).
    return KnownProblem(
        name="shimizu_aiyoshi_1981_example_2",
        source="Shimizu and Aiyoshi (1981), IEEE Transactions on Automatic Control 26, Example 2",
        problem=BilevelProblem(
            name="shimizu_aiyoshi_1981_example_2",
            upper=lambda x, y: (x[0] - 30.0) ** 2 + (x[1] - 20.0) ** 2 - 20.0 * y[0] + 20.0 * y[1],
            lower=lambda x, y: jnp.sum((x - y) ** 2),
            upper_inequality=lambda x, y: jnp.stack([30.0 - x[0] - 2.0 * x[1], x[0] + x[1] - 25.0]),
            x_set=Box(np.array([-np.inf, -np.inf]), np.array([np.inf, 15.0])),
            y_set=Box(0.0, 10.0, shape=2),
        ),
        upper_value=225.0,
        x=np.array([20.0, 5.0]),
        y=np.array([10.0, 5.0]),
        starts=tuple(np.array(start) for start in ([18.0, 6.5], [15.0, 9.0], [14.0, 10.0])),
        tags=frozenset({"literature", "box-y", "upper-constraint"}),
        note="The leader's constraints do not involve y, but X is not a set that is easy to project on.",
    )


def _aiyoshi_shimizu_problem(name: str) -> BilevelProblem:
    return BilevelProblem(
        name=name,
        upper=lambda x, y: 2.0 * jnp.sum(x) - 3.0 * jnp.sum(y) - 60.0,
        lower=lambda x, y: jnp.sum((y - x + 20.0) ** 2),
        inequality=lambda x, y: 2.0 * y - x + 10.0,
        upper_inequality=lambda x, y: x[0] + x[1] + y[0] - 2.0 * y[1] - 40.0,
        x_set=Box(0.0, 50.0, shape=2),
        y_set=Box(-10.0, 20.0, shape=2),
    )


def _aiyoshi_shimizu_1984_example_2() -> KnownProblem:
    # Per coordinate the leader's value is 30 at x = 0, rises to 50 at 10, falls to 30 at 30 and rises to 40 at 50.
    return KnownProblem(
        name="aiyoshi_shimizu_1984_example_2",
        source="Aiyoshi and Shimizu (1984), IEEE Transactions on Automatic Control 29, Example 2",
        problem=_aiyoshi_shimizu_problem("aiyoshi_shimizu_1984_example_2"),
        upper_value=0.0,
        x=None,
        y=None,
        starts=tuple(np.array(start) for start in ([2.0, 3.0], [5.0, 20.0], [8.0, 40.0])),
        tags=frozenset({"literature", "affine-coupled", "box-y", "upper-constraint", "kink"}),
        note=(
            "Two answers, x = (0, 0) with y = (-10, -10) and x = (0, 30) with y = (-10, 10). "
            "The value 5 at x = (25, 30), often quoted as the optimum, is a local minimum."
        ),
    )


def _aiyoshi_shimizu_1984_example_2_local() -> KnownProblem:
    return KnownProblem(
        name="aiyoshi_shimizu_1984_example_2_local",
        source="Aiyoshi and Shimizu (1984), IEEE Transactions on Automatic Control 29, Example 2",
        problem=_aiyoshi_shimizu_problem("aiyoshi_shimizu_1984_example_2_local"),
        upper_value=5.0,
        x=np.array([25.0, 30.0]),
        y=np.array([5.0, 10.0]),
        starts=tuple(np.array(start) for start in ([20.0, 32.0], [15.0, 20.0], [22.0, 40.0])),
        tags=frozenset({"literature", "local", "affine-coupled", "box-y", "upper-constraint", "kink"}),
        note="The published answer, held in place by the leader's constraint and a kink; the global optimum is 0.",
    )


def _bard_1988_example_3() -> KnownProblem:
    return KnownProblem(
        name="bard_1988_example_3",
        source="Bard (1988), Mathematical Programming 40, Example 3",
        problem=BilevelProblem(
            name="bard_1988_example_3",
            upper=lambda x, y: -(x[0] ** 2) - 3.0 * x[1] - 4.0 * y[0] + y[1] ** 2,
            lower=lambda x, y: 2.0 * x[0] ** 2 + y[0] ** 2 - 5.0 * y[1],
            inequality=lambda x, y: jnp.stack(
                [
                    -(x[0] ** 2) + 2.0 * x[0] - x[1] ** 2 + 2.0 * y[0] - y[1] - 3.0,
                    -x[1] - 3.0 * y[0] + 4.0 * y[1] + 4.0,
                ]
            ),
            upper_inequality=lambda x, y: x[0] ** 2 + 2.0 * x[1] - 4.0,
            x_set=Box(0.0, 4.0, shape=2),
            y_set=Box(0.0, np.inf, shape=2),
        ),
        upper_value=-12.6787109375,
        x=np.array([0.0, 2.0]),
        y=np.array([1.875, 0.90625]),
        starts=tuple(np.array(start) for start in ([0.3, 1.5], [0.5, 1.0], [1.0, 1.0])),
        tags=frozenset({"literature", "affine-coupled", "box-y", "upper-constraint", "merely-convex"}),
        note="The coupling is curved in x and affine in y. Another local minimum, -10.36, is at x = (2, 0).",
    )


def _priced_capacity() -> KnownProblem:
    # A price and a split of capacity 2 between two markets that want 2 - price and 3 - price. Up to price 1.5 the
    # capacity can be sold out; beyond, demand falls too fast. At the answer appetite and capacity coincide.
    wanted = np.array([2.0, 3.0])
    return KnownProblem(
        name="priced_capacity",
        source="constructed",
        problem=BilevelProblem(
            name="priced_capacity",
            upper=lambda x, y: -x["price"] * jnp.sum(y["demand"]),
            lower=lambda x, y: 0.5 * jnp.sum((y["demand"] - wanted + x["price"]) ** 2),
            inequality=lambda x, y: {"capacity": y["demand"] - x["share"]},
            x_set=Product({"price": Box(0.0, 4.0), "share": Simplex(2, total=2.0)}),
            y_set=Product({"demand": Box(0.0, np.inf, shape=2)}),
        ),
        upper_value=-3.0,
        x={"price": np.array(1.5), "share": np.array([0.5, 1.5])},
        y={"demand": np.array([0.5, 1.5])},
        starts=(
            {"price": np.array(0.5), "share": np.array([1.0, 1.0])},
            {"price": np.array(1.8), "share": np.array([0.4, 1.6])},
            {"price": np.array(1.0), "share": np.array([0.2, 1.8])},
        ),
        tags=frozenset(
            {"constructed", "affine-coupled", "box-y", "simplex-x", "pytree", "kink", "no-strict-complementarity"}
        ),
        note="Both capacity rows hold with equality and multiplier zero at the answer.",
    )
