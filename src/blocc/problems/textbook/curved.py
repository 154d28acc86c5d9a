"""Problems with curved coupled constraints, curved lower levels over polyhedra, or equality constraints."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from blocc.problems.textbook.entry import KnownProblem, half_square, known
from blocc.sets import Box, Reals


def _moving_ball() -> KnownProblem:
    # The follower wants a point of norm 2 inside a ball of radius sqrt(x): y = sqrt(x) * direction up to x = 4. With
    # s = sqrt(x) the leader minimises s^2 - 2 * <prize, direction> * s.
    direction, prize = np.array([0.6, 0.8]), np.array([1.0, 0.5])
    root = float(prize @ direction)
    return known(
        "moving_ball",
        upper=lambda x, y: x - 2.0 * jnp.sum(prize * y),
        lower=lambda x, y: half_square(y - 2.0 * direction),
        inequality=lambda x, y: jnp.sum(y**2) - x,
        sets=(Box(0.0, 4.0), Reals(2)),
        answer=(-(root**2), root**2, root * direction),
        starts=(0.1, 0.5, 4.0),
        tags="nonlinear-coupled",
    )


def _outrata_1990_example_1a() -> KnownProblem:
    # At the answer only the second row of the polyhedron is active; on that face the response is affine in x and the
    # leader's value a quadratic.
    hessian = np.array([[1.0, -2.0], [-2.0, 5.0]])
    rows = np.array([[-0.333, 1.0], [1.0, -0.333]])
    target = np.array([3.0, 4.0])
    inverse = np.linalg.inv(hessian)
    face = rows[1]
    weight = inverse @ face / (face @ inverse @ face)
    response = inverse - np.outer(weight, face @ inverse)  # y = response @ x + 2 * weight
    x = np.linalg.solve(0.2 * np.eye(2) + response.T @ response, response.T @ (target - 2.0 * weight))
    y = response @ x + 2.0 * weight
    return known(
        "outrata_1990_example_1a",
        "Outrata (1990), ZOR - Methods and Models of Operations Research 34, Example 1a",
        upper=lambda x, y: 0.1 * jnp.sum(x**2) + half_square(y - target) - 12.5,
        lower=lambda x, y: 0.5 * y @ (hessian @ y) - jnp.sum(x * y),
        inequality=lambda x, y: rows @ y - 2.0,
        sets=(Reals(2), Box(0.0, np.inf, shape=2)),
        answer=(0.1 * x @ x + 0.5 * (y - target) @ (y - target) - 12.5, x, y),
        starts=([0.0, 2.0], [3.0, 5.0], [2.0, 1.0]),
        tags="affine-constraint box-y",
        note="Published as -8.92 at (0.97, 3.14), found to two digits.",
    )


def _colson_2002_bipa_4() -> KnownProblem:
    y = 1.0 / np.sqrt(3.0)
    return known(
        "colson_2002_bipa_4",
        "Colson (2002), BIPA test problem 4",
        upper=lambda x, y: x**2 + (y - 10.0) ** 2,
        lower=lambda x, y: x**3 + 2.0 * y**3 + x - 2.0 * y - x**2,
        inequality=lambda x, y: -x + 2.0 * y - 3.0,
        upper_inequality=lambda x, y: x + 2.0 * y - 6.0,
        sets=(Box(0.0, np.inf), Box(0.0, np.inf)),
        answer=((y - 10.0) ** 2, 0.0, y),
        starts=(0.5, 2.0, 4.0),
        tags="affine-coupled box-y upper-constraint merely-convex",
        note="The lower level is convex for y >= 0 only; y = 1/sqrt(3) = 0.577 at the answer (0.6039 in some lists).",
    )


def _colson_2002_bipa_5() -> KnownProblem:
    # y = (0, min(1.5, log(15 - 6x))): near the answer the curved row is active.
    x = 1.940529072664407
    return known(
        "colson_2002_bipa_5",
        "Colson (2002), BIPA test problem 5",
        upper=lambda x, y: (x - y[1]) ** 4 + (y[0] - 1.0) ** 2 + (y[0] - y[1]) ** 2,
        lower=lambda x, y: 2.0 * x + jnp.exp(y[0]) + y[0] ** 2 + 4.0 * y[0] + 2.0 * y[1] ** 2 - 6.0 * y[1],
        inequality=lambda x, y: jnp.stack(
            [6.0 * x + y[0] ** 2 + jnp.exp(y[1]) - 15.0, 5.0 * x + y[0] ** 4 - y[1] - 25.0]
        ),
        sets=(Box(0.0, 10.0), Box(0.0, 4.0, shape=2)),
        answer=(2.7497676350619686, x, [0.0, np.log(15.0 - 6.0 * x)]),
        starts=(1.8, 2.1, 2.3),
        tags="nonlinear-coupled box-y infeasible-for-some-x",
        note="A second, very flat local minimum of 3.25 is at x = 1.5, behind a peak at x = 1.753.",
    )


def _equality_projection() -> KnownProblem:
    # y is the projection of a point on {A y = B x}, hence affine in x, and the leader's value a quadratic.
    generator = np.random.default_rng(7)
    rows, inputs = generator.standard_normal((2, 5)), generator.standard_normal((2, 3))
    point, target_x, target_y = generator.standard_normal(5), generator.standard_normal(3), generator.standard_normal(5)
    lift = rows.T @ np.linalg.inv(rows @ rows.T)
    constant, response = point - lift @ (rows @ point), lift @ inputs
    x = np.linalg.solve(np.eye(3) + response.T @ response, target_x + response.T @ (target_y - constant))
    y = constant + response @ x
    return known(
        "equality_projection",
        upper=lambda x, y: half_square(x - target_x) + half_square(y - target_y),
        lower=lambda x, y: half_square(y - point),
        equality=lambda x, y: rows @ y - inputs @ x,
        sets=(Reals(3), Reals(5)),
        answer=(half_square(x - target_x) + half_square(y - target_y), x, y),
        starts=([0.0, 0.0, 0.0], [3.0, -2.0, 1.0], [-5.0, 5.0, 0.0]),
        tags="equality",
    )


def _shared_optimum() -> KnownProblem:
    # Built backwards: f is chosen so that its minimum over all (x, y) with A y <= B x + c, whether y is the follower's
    # answer or not, is (x, y); and g so that y is the follower's answer there. So it is the global optimum.
    generator = np.random.default_rng(11)
    n_x, n_y, n_rows, n_active = 5, 8, 6, 4
    rows, inputs = generator.standard_normal((n_rows, n_y)), generator.standard_normal((n_rows, n_x))
    x, y = generator.standard_normal(n_x), generator.standard_normal(n_y)
    slack = np.where(np.arange(n_rows) < n_active, 0.0, 1.0)
    offset = rows @ y - inputs @ x + slack
    upper_prices = np.where(slack == 0.0, generator.uniform(0.5, 1.0, n_rows), 0.0)
    lower_prices = np.where(slack == 0.0, generator.uniform(0.5, 1.0, n_rows), 0.0)
    target_x, target_y = x - inputs.T @ upper_prices, y + rows.T @ upper_prices
    coupling = 0.3 * generator.standard_normal((n_y, n_x))
    lower_target = y + rows.T @ lower_prices - coupling @ x
    return known(
        "shared_optimum",
        upper=lambda x, y: half_square(x - target_x) + half_square(y - target_y),
        lower=lambda x, y: half_square(y - lower_target - coupling @ x),
        inequality=lambda x, y: rows @ y - inputs @ x - offset,
        sets=(Reals(n_x), Reals(n_y)),
        answer=(half_square(x - target_x) + half_square(y - target_y), x, y),
        starts=tuple(x + 0.5 * generator.standard_normal(n_x) for _ in range(3)),
        tags="affine-coupled",
        note="The leader would choose the same y if she could; far away there may be other local minima.",
    )


PROBLEMS: tuple[KnownProblem, ...] = (
    _moving_ball(),
    # The follower falls to the bottom of the unit disc, y = -sqrt(1 - x^2).
    known(
        "lower_semicircle",
        upper=lambda x, y: x + 2.0 * y,
        lower=lambda x, y: y,
        inequality=lambda x, y: x**2 + y**2 - 1.0,
        sets=(Box(-2.0, 2.0), Reals()),
        answer=(-float(np.sqrt(5.0)), -1.0 / np.sqrt(5.0), -2.0 / np.sqrt(5.0)),
        starts=(-0.9, 0.0, 0.9),
        tags="nonlinear-coupled merely-convex infeasible-for-some-x",
        note="The lower objective is linear; only the curvature of the constraint makes its answer unique.",
    ),
    _outrata_1990_example_1a(),
    # Up to the answer only the disc is active, beyond it also the affine row, whose multiplier starts from zero.
    known(
        "outrata_1994_example_3_1",
        "Outrata (1994), SIAM Journal on Optimization 4, Example 3.1",
        upper=lambda x, y: half_square(y - np.array([3.0, 4.0])),
        lower=lambda x, y: (
            0.5 * (1.0 + 0.2 * x) * y[0] ** 2 + 0.5 * (1.0 + 0.1 * x) * y[1] ** 2 - (3.0 + 1.333 * x) * y[0] - x * y[1]
        ),
        inequality=lambda x, y: jnp.stack([-0.333 * y[0] + y[1] + 0.1 * x - 1.0, jnp.sum(y**2) - 0.1 * x - 9.0]),
        sets=(Box(0.0, 10.0), Box(0.0, np.inf, shape=2)),
        answer=(3.207700023601752, 4.060406427902153, [2.682244429583152, 1.4871467522609745]),
        starts=(0.5, 3.0, 8.0),
        tags="nonlinear-coupled box-y kink no-strict-complementarity",
    ),
    _colson_2002_bipa_4(),
    _colson_2002_bipa_5(),
    # Two rows close in on y1 from both sides as x grows and meet at x = 17/9, y1 = 8/9.
    known(
        "sinha_tp6",
        "Sinha, Malo and Deb (2014), test problem 6",
        upper=lambda x, y: (x - 1.0) ** 2 - 2.0 * x + 2.0 * y[0],
        lower=lambda x, y: (2.0 * y[0] - 4.0) ** 2 + (2.0 * y[1] - 1.0) ** 2 + x * y[0],
        inequality=lambda x, y: jnp.stack(
            [
                4.0 * x + 5.0 * y[0] + 4.0 * y[1] - 12.0,
                -4.0 * x - 5.0 * y[0] + 4.0 * y[1] + 4.0,
                4.0 * x - 4.0 * y[0] + 5.0 * y[1] - 4.0,
                -4.0 * x + 4.0 * y[0] + 5.0 * y[1] - 4.0,
            ]
        ),
        sets=(Box(0.0, np.inf), Box(0.0, np.inf, shape=2)),
        answer=(-98.0 / 81.0, 17.0 / 9.0, [8.0 / 9.0, 0.0]),
        starts=(0.2, 1.0, 1.7),
        tags="affine-coupled box-y edge-of-feasibility infeasible-for-some-x",
        note="Published as -1.2091; the exact value is -98/81 = -1.20988, at the last x with a feasible answer.",
    ),
    _equality_projection(),
    # One unit of traffic on a road of constant time 1 and a road of time y2. A toll x on the second gives y2 = 1 - x.
    known(
        "pigou_toll",
        "Pigou (1920); Beckmann, McGuire and Winsten (1956)",
        upper=lambda x, y: y[0] + y[1] ** 2,
        lower=lambda x, y: y[0] + 0.5 * y[1] ** 2 + x * y[1],
        equality=lambda x, y: y[0] + y[1] - 1.0,
        sets=(Box(0.0, 1.0), Box(0.0, np.inf, shape=2)),
        answer=(0.75, 0.5, [0.5, 0.5]),
        starts=(0.0, 0.3, 1.0),
        tags="equality box-y merely-convex",
        note="The lower objective is linear in y1.",
    ),
    _shared_optimum(),
)
