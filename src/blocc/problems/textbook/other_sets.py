"""Problems in which X or Y is not a box: simplices, balls, halfspaces and affine subspaces."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy
from scipy.special import lambertw

from blocc.problem import BilevelProblem
from blocc.problems.textbook.entry import KnownProblem
from blocc.sets import AffineSubspace, Ball, Box, Halfspace, Reals, Simplex


def problems() -> tuple[KnownProblem, ...]:
    """The problems of this family."""
    return (
        _softmax_matching(),
        _logit_toll(),
        _ball_follower(),
        _simplex_projection(),
        _risk_tolerance(),
        _halfspace_projection(),
        _water_filling(),
    )


def _softmax_matching() -> KnownProblem:
    # y = softmax(x): the leader's cross entropy is smallest when y equals the target.
    target = np.array([0.1, 0.2, 0.3, 0.4])
    return KnownProblem(
        name="softmax_matching",
        source="constructed",
        problem=BilevelProblem(
            name="softmax_matching",
            upper=lambda x, y: -jnp.sum(target * jnp.log(y)),
            lower=lambda x, y: jnp.sum(xlogy(y, y)) - jnp.sum(x * y),
            x_set=AffineSubspace(np.ones((1, 4)), np.zeros(1)),
            y_set=Simplex(4),
        ),
        upper_value=-float(np.sum(target * np.log(target))),
        x=np.log(target) - np.log(target).mean(),
        y=target,
        starts=tuple(
            np.array(start) for start in ([0.0, 0.0, 0.0, 0.0], [3.0, -1.0, 0.0, -2.0], [-1.0, 2.0, 1.0, -2.0])
        ),
        tags=frozenset({"constructed", "simplex-y", "affine-x"}),
        note="The entropy has an infinite slope on the boundary of the simplex.",
    )


def _logit_toll() -> KnownProblem:
    # Two roads, the first better by 3 before the toll x: the share of the first is 1 / (1 + exp(x - 3)).
    omega = float(lambertw(np.exp(2.0)).real)
    x = 1.0 + omega
    share = 1.0 / (1.0 + np.exp(x - 3.0))
    return KnownProblem(
        name="logit_toll",
        source="constructed (monopoly price under a logit choice, Lambert's W)",
        problem=BilevelProblem(
            name="logit_toll",
            upper=lambda x, y: -x * y[0],
            lower=lambda x, y: jnp.sum(xlogy(y, y)) + (x - 3.0) * y[0],
            x_set=Box(0.0, 10.0),
            y_set=Simplex(2),
        ),
        upper_value=-omega,
        x=np.array(x),
        y=np.array([share, 1.0 - share]),
        starts=tuple(np.array(start) for start in (0.5, 4.0, 6.0)),
        tags=frozenset({"constructed", "simplex-y"}),
        note="The upper objective is bilinear: neither convex in (x, y) nor in x.",
    )


def _ball_follower() -> KnownProblem:
    # y is x pulled back onto the unit ball. Both terms of the leader pull along one direction, so x ends where the ray
    # leaves X.
    direction = np.array([0.6, 0.0, 0.8])
    return KnownProblem(
        name="ball_follower",
        source="constructed",
        problem=BilevelProblem(
            name="ball_follower",
            upper=lambda x, y: 0.5 * jnp.sum((x - 3.0 * direction) ** 2) - 2.0 * jnp.sum(direction * y),
            lower=lambda x, y: 0.5 * jnp.sum((y - x) ** 2),
            x_set=Ball(np.zeros(3), 2.0),
            y_set=Ball(np.zeros(3), 1.0),
        ),
        upper_value=-1.5,
        x=2.0 * direction,
        y=direction,
        starts=tuple(np.array(start) for start in ([0.0, 0.0, 0.0], [-0.5, 1.0, 0.5], [0.3, -1.5, 0.2])),
        tags=frozenset({"constructed", "ball-x", "ball-y"}),
    )


def _simplex_projection() -> KnownProblem:
    # y is the projection of x onto the simplex; where all of y is positive that is a shift, and the leader's answer is
    # x = anchor - price because the prices sum to zero.
    anchor, price = np.array([5.0, 4.0, 4.0]), np.array([2.0, -1.0, -1.0])
    x = anchor - price
    y = x - (x.sum() - 10.0) / 3.0
    return KnownProblem(
        name="simplex_projection",
        source="constructed",
        problem=BilevelProblem(
            name="simplex_projection",
            upper=lambda x, y: 0.5 * jnp.sum((x - anchor) ** 2) + jnp.sum(price * y),
            lower=lambda x, y: 0.5 * jnp.sum((y - x) ** 2),
            x_set=Reals(3),
            y_set=Simplex(3, total=10.0),
        ),
        upper_value=float(0.5 * np.sum(price**2) + price @ y),
        x=x,
        y=y,
        starts=tuple(np.array(start) for start in ([0.0, 0.0, 0.0], [5.0, 4.0, 4.0], [2.0, 9.0, 4.0])),
        tags=frozenset({"constructed", "simplex-y"}),
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
    return KnownProblem(
        name="risk_tolerance",
        source="constructed (Markowitz's portfolio, tolerance chosen to track a benchmark)",
        problem=BilevelProblem(
            name="risk_tolerance",
            upper=lambda x, y: 50.0 * jnp.sum((y - benchmark) ** 2),
            lower=lambda x, y: 0.5 * y @ (covariance @ y) - x * jnp.sum(reward * y),
            x_set=Box(0.0, 5.0),
            y_set=AffineSubspace(np.ones((1, 4)), np.ones(1)),
        ),
        upper_value=50.0 * float(np.sum((y - benchmark) ** 2)),
        x=np.array(x),
        y=y,
        starts=tuple(np.array(start) for start in (0.0, 1.5, 5.0)),
        tags=frozenset({"constructed", "affine-y"}),
    )


def _halfspace_projection() -> KnownProblem:
    # In the sum s and the difference d of the two coordinates the leader sees (s - 3)^2 + min(s, 1)^2 over 4 and
    # (d - 1)^2 + d^2 over 4, with d >= 0.8: s = 3 and d = 0.8.
    anchor = np.array([2.0, 1.0])
    return KnownProblem(
        name="halfspace_projection",
        source="constructed",
        problem=BilevelProblem(
            name="halfspace_projection",
            upper=lambda x, y: 0.5 * jnp.sum((x - anchor) ** 2) + 0.5 * jnp.sum(y**2),
            lower=lambda x, y: 0.5 * jnp.sum((y - x) ** 2),
            x_set=Halfspace(np.array([-1.0, 1.0]), -0.8),
            y_set=Halfspace(np.array([1.0, 1.0]), 1.0),
        ),
        upper_value=0.42,
        x=np.array([1.9, 1.1]),
        y=np.array([0.9, 0.1]),
        starts=tuple(np.array(start) for start in ([0.0, -1.0], [4.0, 1.0], [1.0, -3.0])),
        tags=frozenset({"constructed", "halfspace-x", "halfspace-y"}),
    )


def _water_filling() -> KnownProblem:
    # y = min(x, appetite). Nobody is sated at the answer, which therefore is the projection of the wishes on the
    # simplex: a common 0.5 less for everybody, and nothing for the last.
    wishes = np.array([2.4, 2.0, 1.0, 0.6, 0.1])
    appetite = np.array([2.2, 1.9, 1.5, 1.0, 0.5])
    x = np.array([1.9, 1.5, 0.5, 0.1, 0.0])
    return KnownProblem(
        name="water_filling",
        source="constructed",
        problem=BilevelProblem(
            name="water_filling",
            upper=lambda x, y: 0.5 * jnp.sum((y - wishes) ** 2),
            lower=lambda x, y: 0.5 * jnp.sum((y - appetite) ** 2),
            inequality=lambda x, y: y - x,
            x_set=Simplex(5, total=4.0),
            y_set=Reals(5),
        ),
        upper_value=0.5 * float(np.sum((x - wishes) ** 2)),
        x=x,
        y=x,
        starts=tuple(
            np.array(start)
            for start in ([0.8, 0.8, 0.8, 0.8, 0.8], [0.0, 0.0, 1.0, 1.0, 2.0], [4.0, 0.0, 0.0, 0.0, 0.0])
        ),
        tags=frozenset({"constructed", "affine-coupled", "simplex-x"}),
        note="Where x exceeds the appetite, more of it changes nothing.",
    )
