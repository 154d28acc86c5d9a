"""Problems in which X or Y is not a box: simplices, balls, halfspaces and affine subspaces."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy
from scipy.special import lambertw

from blocc.problems.textbook.entry import KnownProblem, half_square, known
from blocc.sets import Box, Reals
from blocc.simple_sets import AffineSubspace, Ball, Halfspace, Simplex


def _softmax_matching() -> KnownProblem:
    # y = softmax(x): the leader's cross entropy is smallest when y equals the target.
    target = np.array([0.1, 0.2, 0.3, 0.4])
    return known(
        "softmax_matching",
        "constructed",
        upper=lambda x, y: -jnp.sum(target * jnp.log(y)),
        lower=lambda x, y: jnp.sum(xlogy(y, y)) - jnp.sum(x * y),
        sets=(AffineSubspace(np.ones((1, 4)), np.zeros(1)), Simplex(4)),
        answer=(-float(np.sum(target * np.log(target))), np.log(target) - np.log(target).mean(), target),
        starts=([0.0, 0.0, 0.0, 0.0], [3.0, -1.0, 0.0, -2.0], [-1.0, 2.0, 1.0, -2.0]),
        tags="constructed simplex-y affine-x",
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
        tags="constructed simplex-y",
        note="The upper objective is bilinear: neither convex in (x, y) nor in x.",
    )


def _ball_follower() -> KnownProblem:
    # y is x pulled back onto the unit ball. Both terms of the leader pull along one direction, so x ends where the ray
    # leaves X.
    direction = np.array([0.6, 0.0, 0.8])
    return known(
        "ball_follower",
        "constructed",
        upper=lambda x, y: half_square(x - 3.0 * direction) - 2.0 * jnp.sum(direction * y),
        lower=lambda x, y: half_square(y - x),
        sets=(Ball(np.zeros(3), 2.0), Ball(np.zeros(3), 1.0)),
        answer=(-1.5, 2.0 * direction, direction),
        starts=([0.0, 0.0, 0.0], [-0.5, 1.0, 0.5], [0.3, -1.5, 0.2]),
        tags="constructed ball-x ball-y",
    )


def _simplex_projection() -> KnownProblem:
    # y is the projection of x onto the simplex; where all of y is positive that is a shift, and the leader's answer is
    # x = anchor - price because the prices sum to zero.
    anchor, price = np.array([5.0, 4.0, 4.0]), np.array([2.0, -1.0, -1.0])
    x = anchor - price
    y = x - (x.sum() - 10.0) / 3.0
    return known(
        "simplex_projection",
        "constructed",
        upper=lambda x, y: half_square(x - anchor) + jnp.sum(price * y),
        lower=lambda x, y: half_square(y - x),
        sets=(Reals(3), Simplex(3, total=10.0)),
        answer=(half_square(price) + price @ y, x, y),
        starts=([0.0, 0.0, 0.0], [5.0, 4.0, 4.0], [2.0, 9.0, 4.0]),
        tags="constructed simplex-y",
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
        tags="constructed affine-y",
    )


def _halfspace_projection() -> KnownProblem:
    # In the sum s and the difference d of the two coordinates the leader sees (s - 3)^2 + min(s, 1)^2 over 4 and
    # (d - 1)^2 + d^2 over 4, with d >= 0.8: s = 3 and d = 0.8.
    anchor = np.array([2.0, 1.0])
    return known(
        "halfspace_projection",
        "constructed",
        upper=lambda x, y: half_square(x - anchor) + half_square(y),
        lower=lambda x, y: half_square(y - x),
        sets=(Halfspace(np.array([-1.0, 1.0]), -0.8), Halfspace(np.array([1.0, 1.0]), 1.0)),
        answer=(0.42, [1.9, 1.1], [0.9, 0.1]),
        starts=([0.0, -1.0], [4.0, 1.0], [1.0, -3.0]),
        tags="constructed halfspace-x halfspace-y",
    )


def _water_filling() -> KnownProblem:
    # y = min(x, demand). At the answer no demand is met in full, so x is the projection of the target on the simplex:
    # 0.5 less in every coordinate, and zero in the last.
    target = np.array([2.4, 2.0, 1.0, 0.6, 0.1])
    demand = np.array([2.2, 1.9, 1.5, 1.0, 0.5])
    x = np.array([1.9, 1.5, 0.5, 0.1, 0.0])
    return known(
        "water_filling",
        "constructed",
        upper=lambda x, y: half_square(y - target),
        lower=lambda x, y: half_square(y - demand),
        inequality=lambda x, y: y - x,
        sets=(Simplex(5, total=4.0), Reals(5)),
        answer=(half_square(x - target), x, x),
        starts=([0.8, 0.8, 0.8, 0.8, 0.8], [0.0, 0.0, 1.0, 1.0, 2.0], [4.0, 0.0, 0.0, 0.0, 0.0]),
        tags="constructed affine-coupled simplex-x",
        note="Where x exceeds the demand, the leader's value is flat.",
    )


PROBLEMS: tuple[KnownProblem, ...] = (
    _softmax_matching(),
    _logit_toll(),
    _ball_follower(),
    _simplex_projection(),
    _risk_tolerance(),
    _halfspace_projection(),
    _water_filling(),
)
