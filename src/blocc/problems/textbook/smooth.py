"""Followers without coupled constraints; and sets that are no boxes: simplices, balls, halfspaces, affine subspaces."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy
from scipy.special import lambertw

from blocc.problems.textbook.entry import KnownProblem, half_square, known
from blocc.sets import Box, Product, Reals
from blocc.simple_sets import AffineSubspace, Ball, Halfspace, Simplex


def _macal_hurter_1997() -> KnownProblem:
    # y = 50 x - 500: a stiff parabola (x - 1)^2 + (50 x - 501)^2 for the leader.
    x = 25051.0 / 2501.0
    y = 50.0 * x - 500.0
    return known(
        "macal_hurter_1997",
        "Macal and Hurter (1997), Computers and Operations Research 24",
        upper=lambda x, y: (x - 1.0) ** 2 + (y - 1.0) ** 2,
        lower=lambda x, y: 0.5 * y**2 + 500.0 * y - 50.0 * x * y,
        sets=(Reals(), Reals()),
        answer=((x - 1.0) ** 2 + (y - 1.0) ** 2, x, y),
        starts=(0.0, 9.0, 30.0),
        tags="unconstrained",
        note="The response has slope 50, so the leader's curvature is 2,500 times that of her own term.",
    )


def _shrinkage() -> KnownProblem:
    # Ridge regression with an orthogonal design: y = data / (1 + exp(x)), and the leader fits a held-out vector.
    data = np.array([1.0, 2.0, -1.0, 0.5, 3.0])
    held_out = np.array([0.5, 1.2, -0.2, 0.1, 1.0])
    factor = float(data @ held_out / (data @ data))
    y = factor * data
    return known(
        "shrinkage",
        "constructed (choice of the ridge weight)",
        upper=lambda x, y: half_square(y - held_out),
        lower=lambda x, y: half_square(y - data) + 0.5 * jnp.exp(x) * jnp.sum(y**2),
        sets=(Reals(), Reals(5)),
        answer=(half_square(y - held_out), np.log(1.0 / factor - 1.0), y),
        starts=(-2.0, 1.0, 3.0),
        tags="unconstrained",
        note="x is the logarithm of the ridge weight; far out on either side the leader's value is flat.",
    )


def _quartic_follower() -> KnownProblem:
    # y^3 + y = x, and the leader's stationarity reads 3 y^2 + 2 y - 3 = 0 in terms of y.
    y = (np.sqrt(10.0) - 1.0) / 3.0
    x = y**3 + y
    return known(
        "quartic_follower",
        upper=lambda x, y: jnp.sum((y - 2.0) ** 2 + x),
        lower=lambda x, y: jnp.sum(0.25 * y**4 + 0.5 * y**2 - x * y),
        sets=(Box(-2.0, 12.0, shape=1), Reals(1)),
        answer=((y - 2.0) ** 2 + x, [x], [y]),
        starts=([-2.0], [3.0], [11.0]),
        tags="unconstrained",
        note="x and y have shape (1,) rather than ().",
    )


def _softmax_matching() -> KnownProblem:
    # y = softmax(x): the leader's cross entropy is smallest when y equals the target.
    target = np.array([0.1, 0.2, 0.3, 0.4])
    return known(
        "softmax_matching",
        upper=lambda x, y: -jnp.sum(target * jnp.log(y)),
        lower=lambda x, y: jnp.sum(xlogy(y, y)) - jnp.sum(x * y),
        sets=(AffineSubspace(np.ones((1, 4)), np.zeros(1)), Simplex(4)),
        answer=(-float(np.sum(target * np.log(target))), np.log(target) - np.log(target).mean(), target),
        starts=([0.0, 0.0, 0.0, 0.0], [3.0, -1.0, 0.0, -2.0], [-1.0, 2.0, 1.0, -2.0]),
        tags="simplex-y affine-x",
        note="The entropy has an infinite slope on the boundary of the simplex.",
    )


def _logit_toll() -> KnownProblem:
    # Two roads, the first better by 3 before the toll x: the share of the first is 1 / (1 + exp(x - 3)).
    omega = float(lambertw(np.exp(2.0)).real)
    x = 1.0 + omega
    share = 1.0 / (1.0 + np.exp(x - 3.0))
    return known(
        "logit_toll",
        "constructed (monopoly price under a logit choice, Lambert's W)",
        upper=lambda x, y: -x * y[0],
        lower=lambda x, y: jnp.sum(xlogy(y, y)) + (x - 3.0) * y[0],
        sets=(Box(0.0, 10.0), Simplex(2)),
        answer=(-omega, x, [share, 1.0 - share]),
        starts=(0.5, 4.0, 6.0),
        tags="simplex-y",
        note="The upper objective is bilinear: neither convex in (x, y) nor in x.",
    )


def _ball_follower() -> KnownProblem:
    # y is x pulled back onto the unit ball. Both terms of the leader pull along one direction, so x ends where the ray
    # leaves X.
    direction = np.array([0.6, 0.0, 0.8])
    return known(
        "ball_follower",
        upper=lambda x, y: half_square(x - 3.0 * direction) - 2.0 * jnp.sum(direction * y),
        lower=lambda x, y: half_square(y - x),
        sets=(Ball(np.zeros(3), 2.0), Ball(np.zeros(3), 1.0)),
        answer=(-1.5, 2.0 * direction, direction),
        starts=([0.0, 0.0, 0.0], [-0.5, 1.0, 0.5], [0.3, -1.5, 0.2]),
        tags="ball-x ball-y",
    )


def _simplex_projection() -> KnownProblem:
    # y is the projection of x onto the simplex; where all of y is positive that is a shift, and the leader's answer is
    # x = anchor - price because the prices sum to zero.
    anchor, price = np.array([5.0, 4.0, 4.0]), np.array([2.0, -1.0, -1.0])
    x = anchor - price
    y = x - (x.sum() - 10.0) / 3.0
    return known(
        "simplex_projection",
        upper=lambda x, y: half_square(x - anchor) + jnp.sum(price * y),
        lower=lambda x, y: half_square(y - x),
        sets=(Reals(3), Simplex(3, total=10.0)),
        answer=(half_square(price) + price @ y, x, y),
        starts=([0.0, 0.0, 0.0], [5.0, 4.0, 4.0], [2.0, 9.0, 4.0]),
        tags="simplex-y",
    )


def _risk_tolerance() -> KnownProblem:
    # Mean-variance choice without bounds is affine in the risk tolerance x: y = safest + x * tilt.
    covariance = np.array([[2.0, 0.5, 0.0, 0.0], [0.5, 1.0, 0.2, 0.0], [0.0, 0.2, 1.5, 0.3], [0.0, 0.0, 0.3, 3.0]])
    reward = np.array([0.5, 0.2, 0.4, 1.0])
    benchmark = np.array([0.1, 0.3, 0.2, 0.4])
    ones = np.ones(4)
    inverse_ones = np.linalg.solve(covariance, ones)
    inverse_reward = np.linalg.solve(covariance, reward)
    safest = inverse_ones / inverse_ones.sum()
    tilt = inverse_reward - inverse_reward.sum() * safest
    x = float(tilt @ (benchmark - safest) / (tilt @ tilt))
    y = safest + x * tilt
    return known(
        "risk_tolerance",
        "constructed (Markowitz's portfolio, tolerance chosen to track a benchmark)",
        upper=lambda x, y: 50.0 * jnp.sum((y - benchmark) ** 2),
        lower=lambda x, y: 0.5 * y @ (covariance @ y) - x * jnp.sum(reward * y),
        sets=(Box(0.0, 5.0), AffineSubspace(np.ones((1, 4)), np.ones(1))),
        answer=(50.0 * float(np.sum((y - benchmark) ** 2)), x, y),
        starts=(0.0, 1.5, 5.0),
        tags="affine-y",
    )


def _water_filling() -> KnownProblem:
    # y = min(x, demand). At the answer no demand is met in full, so x is the projection of the target on the simplex:
    # 0.5 less in every coordinate, and zero in the last.
    target = np.array([2.4, 2.0, 1.0, 0.6, 0.1])
    demand = np.array([2.2, 1.9, 1.5, 1.0, 0.5])
    x = np.array([1.9, 1.5, 0.5, 0.1, 0.0])
    return known(
        "water_filling",
        upper=lambda x, y: half_square(y - target),
        lower=lambda x, y: half_square(y - demand),
        inequality=lambda x, y: y - x,
        sets=(Simplex(5, total=4.0), Reals(5)),
        answer=(half_square(x - target), x, x),
        starts=([0.8, 0.8, 0.8, 0.8, 0.8], [0.0, 0.0, 1.0, 1.0, 2.0], [4.0, 0.0, 0.0, 0.0, 0.0]),
        tags="affine-coupled simplex-x",
        note="Where x exceeds the demand, the leader's value is flat.",
    )


PROBLEMS: tuple[KnownProblem, ...] = (
    # y = x, so the leader minimises (x - 1)^2 + (x - 2)^2.
    known(
        "quadratic_tracking",
        upper=lambda x, y: (x - 1.0) ** 2 + (y - 2.0) ** 2,
        lower=lambda x, y: 0.5 * y**2 - x * y,
        sets=(Reals(), Reals()),
        answer=(0.5, 1.5, 1.5),
        starts=(-3.0, 0.0, 8.0),
        tags="unconstrained",
    ),
    _macal_hurter_1997(),
    known(
        "lampariello_sagratella_2017_example_3_2",
        "Lampariello and Sagratella (2017), Example 3.2, as listed in BOLIB",
        upper=lambda x, y: x**2 + y**2,
        lower=lambda x, y: (x + y - 1.0) ** 2,
        sets=(Reals(), Reals()),
        answer=(0.5, 0.5, 0.5),
        starts=(-2.0, 0.0, 4.0),
        tags="unconstrained",
    ),
    _shrinkage(),
    # y = log x, so the leader minimises x - 2 log x.
    known(
        "exponential_follower",
        upper=lambda x, y: x - 2.0 * y,
        lower=lambda x, y: jnp.exp(y) - x * y,
        sets=(Box(0.1, 5.0), Reals()),
        answer=(2.0 - 2.0 * float(np.log(2.0)), 2.0, np.log(2.0)),
        starts=(0.2, 1.0, 5.0),
        tags="unconstrained merely-convex",
        note="The curvature of the lower level vanishes as y falls.",
    ),
    _quartic_follower(),
    # Linear demand: y = (9 - x) / 2 as long as that is positive.
    known(
        "stackelberg_duopoly",
        "von Stackelberg (1934), linear demand",
        upper=lambda x, y: -x * (9.0 - x - y),
        lower=lambda x, y: -y * (9.0 - x - y),
        sets=(Box(0.0, 9.0), Box(0.0, np.inf)),
        answer=(-10.125, 4.5, 2.25),
        starts=(0.5, 6.0, 9.0),
        tags="box-y",
    ),
    # y = clip(x, 0.5, 1.5) coordinate by coordinate.
    known(
        "falk_liu_1995",
        "Falk and Liu (1995), Mathematical Programming 70",
        upper=lambda x, y: jnp.sum(x**2 - 3.0 * x + y**2),
        lower=lambda x, y: jnp.sum((y - x) ** 2),
        sets=(Reals(2), Box(0.5, 1.5, shape=2)),
        answer=(-2.25, [0.75, 0.75], [0.75, 0.75]),
        starts=([0.0, 0.0], [3.0, 0.2], [1.5, -2.0]),
        tags="box-y",
        note="From x below 0.5 or above 1.5 the follower is at a bound and does not react.",
    ),
    # The follower answers l1 = 0 and l2 = exp(u2), which leaves the leader with the squares of u1 and u2.
    known(
        "sinha_smd2",
        "Sinha, Malo and Deb (2014), Evolutionary Computation 22, SMD2 with p = 2, q = 3, r = 2",
        upper=lambda x, y: (
            jnp.sum(x["u1"] ** 2)
            - jnp.sum(y["l1"] ** 2)
            + jnp.sum(x["u2"] ** 2)
            - jnp.sum((x["u2"] - jnp.log(y["l2"])) ** 2)
        ),
        lower=lambda x, y: jnp.sum(x["u1"] ** 2) + jnp.sum(y["l1"] ** 2) + jnp.sum((x["u2"] - jnp.log(y["l2"])) ** 2),
        sets=(
            Product({"u1": Box(-5.0, 10.0, shape=2), "u2": Box(0.0, 1.0, shape=2)}),
            Product({"l1": Box(-5.0, 10.0, shape=3), "l2": Box(0.05, math.e, shape=2)}),
        ),
        answer=(0.0, {"u1": np.zeros(2), "u2": np.zeros(2)}, {"l1": np.zeros(3), "l2": np.ones(2)}),
        starts=(
            {"u1": [2.0, -1.0], "u2": [0.5, 0.3]},
            {"u1": [-4.0, 7.0], "u2": [0.9, 1.0]},
            {"u1": [0.1, 0.0], "u2": [0.0, 0.8]},
        ),
        tags="pytree box-y",
        note="The two levels have opposite goals. The published range of u2 is [-5, 1]; below 0 the lower level is "
        "not convex in l2 over its whole range, so u2 starts at 0 here, and l2 at 0.05 to keep its logarithm finite.",
    ),
    _softmax_matching(),
    _logit_toll(),
    _ball_follower(),
    _simplex_projection(),
    _risk_tolerance(),
    # In the sum s and the difference d of the two coordinates the leader sees (s - 3)^2 + min(s, 1)^2 over 4 and
    # (d - 1)^2 + d^2 over 4, with d >= 0.8: s = 3 and d = 0.8.
    known(
        "halfspace_projection",
        upper=lambda x, y: half_square(x - np.array([2.0, 1.0])) + half_square(y),
        lower=lambda x, y: half_square(y - x),
        sets=(Halfspace(np.array([-1.0, 1.0]), -0.8), Halfspace(np.array([1.0, 1.0]), 1.0)),
        answer=(0.42, [1.9, 1.1], [0.9, 0.1]),
        starts=([0.0, -1.0], [4.0, 1.0], [1.0, -3.0]),
        tags="halfspace-x halfspace-y",
    ),
    _water_filling(),
)
