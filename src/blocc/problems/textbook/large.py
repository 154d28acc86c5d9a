"""Problems with 1,000 to 10,000 variables: separable or banded, cheap to evaluate, with answers in closed form."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.linalg import solveh_banded

from blocc._lib.arrays import AnyArray, Float
from blocc.problems.textbook.entry import KnownProblem, half_square, known
from blocc.sets import Box, Reals
from blocc.simple_sets import Simplex


def _capacity_kinks(size: int) -> KnownProblem:
    # y = min(demand, x). Per coordinate the leader sees (x - target)^2 / 2 - price * min(demand, x), convex, with its
    # minimum below, above or exactly at the kink.
    generator = np.random.default_rng(101)
    target, price = generator.uniform(0.0, 2.0, size), generator.uniform(0.0, 1.0, size)
    demand = generator.uniform(0.0, 3.0, size)
    x = np.clip(demand, target, target + price)
    y = np.minimum(demand, x)
    return known(
        f"capacity_kinks_{size}",
        upper=lambda x, y: half_square(x - target) - jnp.sum(price * y),
        lower=lambda x, y: half_square(y - demand),
        inequality=lambda x, y: y - x,
        sets=(Reals(size), Reals(size)),
        answer=(half_square(x - target) - price @ y, x, y),
        starts=(np.zeros(size), np.full(size, 3.0), target),
        tags="large affine-coupled kink no-strict-complementarity",
        note="In about one coordinate out of six the answer sits exactly on the kink.",
    )


def _water_filling(size: int) -> KnownProblem:
    # y = min(x, demand) with demand above the target: the answer is the projection of the target on the simplex.
    generator = np.random.default_rng(102)
    target = generator.uniform(0.0, 1.0, size)
    demand = target + 0.5
    total = 0.2 * size
    descending = np.sort(target)[::-1]
    excess = (np.cumsum(descending) - total) / np.arange(1, size + 1)
    x = np.maximum(target - excess[np.count_nonzero(descending > excess) - 1], 0.0)
    alternating = np.where(np.arange(size) % 2 == 0, 0.35, 0.05)
    return known(
        f"water_filling_{size}",
        upper=lambda x, y: half_square(y - target),
        lower=lambda x, y: half_square(y - demand),
        inequality=lambda x, y: y - x,
        sets=(Simplex(size, total=total), Reals(size)),
        answer=(half_square(x - target), x, x),
        starts=(np.full(size, 0.2), total * target / target.sum(), alternating),
        tags="large affine-coupled simplex-x",
    )


def _stiffness(v: Float[AnyArray, "n"], xp: Any = jnp) -> Float[AnyArray, "n"]:
    """The tridiagonal matrix with 3 on the diagonal and -1 beside it, times ``v``; ``xp`` is NumPy or JAX's."""
    return 3.0 * v - xp.append(v[1:], 0.0) - xp.append(0.0, v[:-1])


def _obstacle_control(size: int) -> KnownProblem:
    # The follower's answer is the smallest y >= 0 with K y >= x, a convex function of x; the leader's targets for y are
    # negative, so her value is convex too. They are chosen so that the gradient of f is a nonnegative combination of
    # the gradients of the active rows of y >= 0 and K y >= x, which proves the answer optimal.
    y = np.maximum(0.0, np.sin(8.0 * np.pi * np.arange(size) / size) - 1e-3)
    free = y > 0.0
    both_free = np.zeros(size)
    both_free[1:] = -1.0 * (free[1:] & free[:-1])
    prices = solveh_banded(np.vstack([both_free, np.full(size, 3.0)]), np.where(free, y + 0.1, 0.0))
    x = _stiffness(y, np) - np.where(free, 0.0, 0.5)
    target_x = x + prices
    target_y = np.where(free, -0.1, -0.5)
    return known(
        f"obstacle_control_{size}",
        "constructed (control of a string above an obstacle)",
        upper=lambda x, y: half_square(x - target_x) + half_square(y - target_y),
        lower=lambda x, y: 0.5 * jnp.sum(y * _stiffness(y)) - jnp.sum(x * y),
        sets=(Reals(size), Box(0.0, np.inf, shape=size)),
        answer=(half_square(x - target_x) + half_square(y - target_y), x, y),
        starts=(np.zeros(size), np.ones(size), np.cos(np.arange(size)))[: 3 if size <= 1000 else 2],
        tags="large box-y",
    )


def _tracking_control(size: int) -> KnownProblem:
    # y follows y[k] = 0.9 y[k-1] + x[k] whatever the follower wants; in terms of y the leader solves a tridiagonal
    # system (I + D'D / 2) y = target with D the difference y[k] - 0.9 y[k-1].
    target = 1.0 + np.sin(4.0 * np.pi * np.arange(size) / size)
    diagonal = np.full(size, 1.0 + 0.5 * (1.0 + 0.9**2))
    diagonal[-1] = 1.5
    beside = np.full(size, -0.45)
    beside[0] = 0.0
    y = solveh_banded(np.vstack([beside, diagonal]), target)
    x = y - 0.9 * np.append(0.0, y[:-1])
    return known(
        f"tracking_control_{size}",
        "constructed (linear-quadratic tracking)",
        upper=lambda x, y: half_square(y - target) + 0.25 * jnp.sum(x**2),
        lower=lambda x, y: half_square(y),
        equality=lambda x, y: y - 0.9 * jnp.concatenate([jnp.zeros_like(y[:1]), y[:-1]]) - x,
        sets=(Reals(size), Reals(size)),
        answer=(half_square(y - target) + 0.25 * np.sum(x**2), x, y),
        starts=(np.zeros(size), np.ones(size), np.cos(np.arange(size))),
        tags="large equality",
        note="The equalities leave the follower no choice.",
    )


def _clipped_response(size: int) -> KnownProblem:
    # y = clip(x, 0, 1). Where the target for x lies outside [0, 1], that for y is close enough to the nearer end for
    # x = target to be the only local minimum; elsewhere x is halfway between the two targets.
    generator = np.random.default_rng(104)
    target_x, fraction = generator.uniform(-1.0, 2.0, size), generator.uniform(0.0, 1.0, size)
    overshoot = np.abs(target_x - np.clip(target_x, 0.0, 1.0))
    near_end = fraction * np.minimum(overshoot, 1.0)
    target_y = np.where(target_x < 0.0, near_end, np.where(target_x > 1.0, 1.0 - near_end, fraction))
    x = np.where(overshoot > 0.0, target_x, 0.5 * (target_x + target_y))
    y = np.clip(x, 0.0, 1.0)
    return known(
        f"clipped_response_{size}",
        upper=lambda x, y: half_square(x - target_x) + half_square(y - target_y),
        lower=lambda x, y: half_square(y - x),
        sets=(Reals(size), Box(0.0, 1.0, shape=size)),
        answer=(half_square(x - target_x) + half_square(y - target_y), x, y),
        starts=(np.full(size, 0.5), np.full(size, 3.0)),
        tags="large box-y",
    )


def _shrinkage(size: int) -> KnownProblem:
    # y = data / (1 + x): one weight for 10,000 coefficients.
    generator = np.random.default_rng(105)
    data = generator.standard_normal(size)
    held_out = 0.4 * data + 0.1 * generator.standard_normal(size)
    factor = float(data @ held_out / (data @ data))
    y = factor * data
    return known(
        f"shrinkage_{size}",
        "constructed (choice of the ridge weight)",
        upper=lambda x, y: half_square(y - held_out),
        lower=lambda x, y: half_square(y - data) + 0.5 * x * jnp.sum(y**2),
        sets=(Box(0.0, 10.0), Reals(size)),
        answer=(half_square(y - held_out), 1.0 / factor - 1.0, y),
        starts=(0.0, 0.5, 4.0),
        tags="large unconstrained",
    )


def _average(size: int) -> KnownProblem:
    # y = max(0, mean of x): at the answer every x is lowered by the same amount.
    generator = np.random.default_rng(106)
    target, level = generator.uniform(0.0, 2.0, size), 0.2
    mean = 0.5 * (float(target.mean()) + level)
    x = target - (mean - level)
    return known(
        f"average_{size}",
        upper=lambda x, y: half_square(x - target) + 0.5 * size * (y - level) ** 2,
        lower=lambda x, y: 0.5 * y**2,
        inequality=lambda x, y: jnp.mean(x) - y,
        sets=(Reals(size), Reals()),
        answer=(size * (mean - level) ** 2, x, mean),
        starts=(np.zeros(size), np.full(size, 2.0)),
        tags="large affine-coupled",
    )


def _budget(size: int) -> KnownProblem:
    # One budget on the mean of y: y = demand - max(0, mean(demand) - x), scaled so that the row has norm one.
    generator = np.random.default_rng(107)
    demand = generator.uniform(0.5, 1.5, size)
    target = demand - generator.uniform(0.0, 0.8, size)
    cut = float(np.mean(demand - target))
    root = float(np.sqrt(size))
    y = demand - cut
    return known(
        f"budget_{size}",
        upper=lambda x, y: half_square(y - target),
        lower=lambda x, y: half_square(y - demand),
        inequality=lambda x, y: jnp.sum(y) / root - root * x,
        sets=(Box(0.0, 2.0), Reals(size)),
        answer=(half_square(y - target), float(demand.mean()) - cut, y),
        starts=(0.0, 0.4, 0.9),
        tags="large affine-coupled",
        note="Beyond x = 1 or so the budget no longer binds and the leader's value is flat.",
    )


PROBLEMS: tuple[KnownProblem, ...] = (
    _capacity_kinks(1000),
    _water_filling(1000),
    _obstacle_control(1000),
    _tracking_control(1000),
    _clipped_response(10_000),
    _shrinkage(10_000),
    _average(10_000),
    _budget(10_000),
    _obstacle_control(10_000),
)
