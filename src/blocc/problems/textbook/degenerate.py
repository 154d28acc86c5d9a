"""Problems that break the usual regularity assumptions exactly at the answer."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from blocc.problem import BilevelProblem
from blocc.problems.textbook.entry import KnownProblem
from blocc.sets import Box, Reals


def problems() -> tuple[KnownProblem, ...]:
    """The problems of this family."""
    return (
        _dempe_1992b(),
        _allende_still_2013(),
        _shimizu_aiyoshi_1981_example_1(),
        _absolute_value(),
        _grazing_wall(),
        _three_walls(),
        _tangent_discs(),
        _repeated_rows(),
        _pinched(),
        _shrinking_budget(),
    )


def _dempe_1992b() -> KnownProblem:
    # y = sqrt(x) up to x = 9. The slope of the leader's value in y is 4 (y - 1)^2 (y + 2), never negative.
    return KnownProblem(
        name="dempe_1992b",
        source="Dempe (1992), Optimization 25, Example b",
        problem=BilevelProblem(
            name="dempe_1992b",
            upper=lambda x, y: (x - 3.5) ** 2 + (y + 4.0) ** 2,
            lower=lambda x, y: (y - 3.0) ** 2,
            inequality=lambda x, y: y**2 - x,
            x_set=Box(0.0, 16.0),
            y_set=Reals(),
        ),
        upper_value=28.25,
        x=np.array(0.0),
        y=np.array(0.0),
        starts=tuple(np.array(start) for start in (0.2, 0.4, 0.6)),
        tags=frozenset({"literature", "nonlinear-coupled", "edge-of-feasibility", "no-multipliers"}),
        note=(
            "The published answer, 31.25 at (1, 1), is a stationary point of inflection, where descent from the right "
            "may stall. The optimum is at x = 0, where the follower has one feasible point and no multiplier."
        ),
    )


def _allende_still_2013() -> KnownProblem:
    # y = clip(x, 0.5, 1.5). At 0.5 the leader's slope jumps from -1 to 0 in each coordinate.
    return KnownProblem(
        name="allende_still_2013",
        source="Allende and Still (2013), Mathematical Programming 138",
        problem=BilevelProblem(
            name="allende_still_2013",
            upper=lambda x, y: jnp.sum(x**2 - 2.0 * x + y**2),
            lower=lambda x, y: jnp.sum(y**2 - 2.0 * x * y),
            inequality=lambda x, y: (y - 1.0) ** 2 - 0.25,
            upper_inequality=lambda x, y: -y,
            x_set=Box(0.0, np.array([2.0, np.inf])),
            y_set=Reals(2),
        ),
        upper_value=-1.0,
        x=np.array([0.5, 0.5]),
        y=np.array([0.5, 0.5]),
        starts=tuple(np.array(start) for start in ([0.0, 0.0], [2.0, 3.0], [1.0, 0.2])),
        tags=frozenset({"literature", "nonlinear-constraint", "upper-constraint", "kink", "no-strict-complementarity"}),
    )


def _shimizu_aiyoshi_1981_example_1() -> KnownProblem:
    # y = min(15 - x/2, 20 - x); the two pieces and the leader's constraint y <= x all meet at (10, 10).
    return KnownProblem(
        name="shimizu_aiyoshi_1981_example_1",
        source="Shimizu and Aiyoshi (1981), IEEE Transactions on Automatic Control 26, Example 1",
        problem=BilevelProblem(
            name="shimizu_aiyoshi_1981_example_1",
            upper=lambda x, y: x**2 + (y - 10.0) ** 2,
            lower=lambda x, y: (x + 2.0 * y - 30.0) ** 2,
            inequality=lambda x, y: x + y - 20.0,
            upper_inequality=lambda x, y: y - x,
            x_set=Box(0.0, 15.0),
            y_set=Box(0.0, 20.0),
        ),
        upper_value=100.0,
        x=np.array(10.0),
        y=np.array(10.0),
        starts=tuple(np.array(start) for start in (11.0, 13.0, 15.0)),
        tags=frozenset({"literature", "affine-coupled", "box-y", "upper-constraint", "no-strict-complementarity"}),
    )


def _absolute_value() -> KnownProblem:
    # y = max(x, 0), so the leader sees 1 + |x| / 2.
    return KnownProblem(
        name="absolute_value",
        source="constructed",
        problem=BilevelProblem(
            name="absolute_value",
            upper=lambda x, y: 1.0 + y - 0.5 * x,
            lower=lambda x, y: (y - x) ** 2,
            x_set=Box(-2.0, 3.0),
            y_set=Box(0.0, np.inf),
        ),
        upper_value=1.0,
        x=np.array(0.0),
        y=np.array(0.0),
        starts=tuple(np.array(start) for start in (-2.0, 0.7, 3.0)),
        tags=frozenset({"constructed", "box-y", "kink", "no-strict-complementarity"}),
    )


def _grazing_wall() -> KnownProblem:
    # y = max(0, x - 1): the wall starts to push exactly at the answer, where everything is still smooth.
    return KnownProblem(
        name="grazing_wall",
        source="constructed",
        problem=BilevelProblem(
            name="grazing_wall",
            upper=lambda x, y: 1.0 + (x - 1.0) ** 2 + y**2,
            lower=lambda x, y: 0.5 * y**2,
            inequality=lambda x, y: x - 1.0 - y,
            x_set=Box(-3.0, 5.0),
            y_set=Reals(),
        ),
        upper_value=1.0,
        x=np.array(1.0),
        y=np.array(0.0),
        starts=tuple(np.array(start) for start in (-3.0, 0.0, 4.0)),
        tags=frozenset({"constructed", "affine-coupled", "no-strict-complementarity"}),
    )


def _three_walls() -> KnownProblem:
    # y = |x|, squeezed between y >= x, y >= -x and y >= 0: three active rows for one variable.
    return KnownProblem(
        name="three_walls",
        source="constructed",
        problem=BilevelProblem(
            name="three_walls",
            upper=lambda x, y: (y + 1.0) ** 2 - 0.5 * x,
            lower=lambda x, y: 0.5 * (y + 1.0) ** 2,
            inequality=lambda x, y: jnp.stack([x - y, -x - y, -y]),
            x_set=Box(-2.0, 2.0),
            y_set=Reals(),
        ),
        upper_value=1.0,
        x=np.array(0.0),
        y=np.array(0.0),
        starts=tuple(np.array(start) for start in (-2.0, 0.5, 1.5)),
        tags=frozenset({"constructed", "affine-coupled", "kink", "no-licq"}),
    )


def _tangent_discs() -> KnownProblem:
    # Two unit discs around (+-x, 1 + x). The follower takes the lowest point of the lens, height 1 + x - sqrt(1 - x^2);
    # at x = 1 the discs touch in one point.
    return KnownProblem(
        name="tangent_discs",
        source="after Dempe and Dutta (2012), Mathematical Programming 131, Example 3.1, on the diagonal",
        problem=BilevelProblem(
            name="tangent_discs",
            upper=lambda x, y: -y[1],
            lower=lambda x, y: y[0] ** 2 + (y[1] + 1.0) ** 2,
            inequality=lambda x, y: jnp.stack(
                [
                    (y[0] - x) ** 2 + (y[1] - x - 1.0) ** 2 - 1.0,
                    (y[0] + x) ** 2 + (y[1] - x - 1.0) ** 2 - 1.0,
                ]
            ),
            x_set=Box(0.0, 1.0),
            y_set=Reals(2),
        ),
        upper_value=-2.0,
        x=np.array(1.0),
        y=np.array([0.0, 2.0]),
        starts=tuple(np.array(start) for start in (0.1, 0.5, 0.9)),
        tags=frozenset({"literature", "nonlinear-coupled", "edge-of-feasibility", "no-multipliers"}),
        note="The multipliers and the leader's slope grow without bound towards the answer.",
    )


def _repeated_rows() -> KnownProblem:
    # The same row three times: y = (x/2, x/2) for x >= 0, with a whole triangle of multipliers.
    weights = np.array([1.0, 2.0, 0.5])
    return KnownProblem(
        name="repeated_rows",
        source="constructed",
        problem=BilevelProblem(
            name="repeated_rows",
            upper=lambda x, y: 0.5 * (x - 3.0) ** 2 + y[0] + 2.0 * y[1],
            lower=lambda x, y: 0.5 * jnp.sum(y**2),
            inequality=lambda x, y: weights * (x - y[0] - y[1]),
            x_set=Box(-5.0, 5.0),
            y_set=Reals(2),
        ),
        upper_value=3.375,
        x=np.array(1.5),
        y=np.array([0.75, 0.75]),
        starts=tuple(np.array(start) for start in (-4.0, 0.5, 5.0)),
        tags=frozenset({"constructed", "affine-coupled", "no-licq"}),
    )


def _pinched() -> KnownProblem:
    # y1 <= x and y1 >= x: an equality in disguise, never strictly feasible. y = (x, x).
    return KnownProblem(
        name="pinched",
        source="constructed",
        problem=BilevelProblem(
            name="pinched",
            upper=lambda x, y: 0.5 * (x - 2.0) ** 2 + 0.5 * y[1] ** 2,
            lower=lambda x, y: 0.5 * (y[0] - 5.0) ** 2 + 0.5 * (y[1] - y[0]) ** 2,
            inequality=lambda x, y: jnp.stack([y[0] - x, x - y[0]]),
            x_set=Box(-3.0, 4.0),
            y_set=Reals(2),
        ),
        upper_value=1.0,
        x=np.array(1.0),
        y=np.array([1.0, 1.0]),
        starts=tuple(np.array(start) for start in (-3.0, 0.0, 4.0)),
        tags=frozenset({"constructed", "affine-coupled", "edge-of-feasibility", "no-licq"}),
        note="The follower has no strictly feasible point for any x, and an unbounded set of multipliers.",
    )


def _shrinking_budget() -> KnownProblem:
    # y = (x/2, x/2): at x = 0 the budget leaves the follower a single point.
    return KnownProblem(
        name="shrinking_budget",
        source="constructed",
        problem=BilevelProblem(
            name="shrinking_budget",
            upper=lambda x, y: 1.0 + x + 0.5 * jnp.sum(y**2),
            lower=lambda x, y: 0.5 * jnp.sum((y - 1.0) ** 2),
            inequality=lambda x, y: y[0] + y[1] - x,
            x_set=Box(0.0, 2.0),
            y_set=Box(0.0, np.inf, shape=2),
        ),
        upper_value=1.0,
        x=np.array(0.0),
        y=np.zeros(2),
        starts=tuple(np.array(start) for start in (0.3, 1.0, 2.0)),
        tags=frozenset({"constructed", "affine-coupled", "box-y", "edge-of-feasibility", "no-licq"}),
    )
