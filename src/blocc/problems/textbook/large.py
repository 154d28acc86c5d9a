"""Problems with 1,000 to 10,000 variables: separable or banded, cheap to evaluate, with answers in closed form."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from scipy.linalg import solveh_banded

from blocc._lib.arrays import Array
from blocc.problem import BilevelProblem
from blocc.problems.textbook.entry import KnownProblem
from blocc.sets import Box, Reals, Simplex


def problems() -> tuple[KnownProblem, ...]:
    """The problems of this family."""
    return (
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


def _half_square(difference: Array) -> Array:
    return 0.5 * jnp.sum(difference**2)


def _capacity_kinks(size: int) -> KnownProblem:
    # y = min(appetite, x). Per coordinate the leader sees (x - wish)^2 / 2 - price * min(appetite, x), convex, with its
    # minimum below, above or exactly at the kink.
    generator = np.random.default_rng(101)
    wish, price = generator.uniform(0.0, 2.0, size), generator.uniform(0.0, 1.0, size)
    appetite = generator.uniform(0.0, 3.0, size)
    x = np.clip(appetite, wish, wish + price)
    y = np.minimum(appetite, x)
    return KnownProblem(
        name=f"capacity_kinks_{size}",
        source="constructed",
        problem=BilevelProblem(
            name=f"capacity_kinks_{size}",
            upper=lambda x, y: _half_square(x - wish) - jnp.sum(price * y),
            lower=lambda x, y: _half_square(y - appetite),
            inequality=lambda x, y: y - x,
            x_set=Reals(size),
            y_set=Reals(size),
        ),
        upper_value=float(0.5 * np.sum((x - wish) ** 2) - price @ y),
        x=x,
        y=y,
        starts=(np.zeros(size), np.full(size, 3.0), wish),
        tags=frozenset({"constructed", "large", "affine-coupled", "kink", "no-strict-complementarity"}),
        note="In about one coordinate out of six the answer sits exactly on the kink.",
    )


def _water_filling(size: int) -> KnownProblem:
    # y = min(x, appetite) with appetite beyond every wish: the answer is the projection of the wishes on the simplex.
    generator = np.random.default_rng(102)
    wishes = generator.uniform(0.0, 1.0, size)
    appetite = wishes + 0.5
    total = 0.2 * size
    descending = np.sort(wishes)[::-1]
    excess = (np.cumsum(descending) - total) / np.arange(1, size + 1)
    x = np.maximum(wishes - excess[np.count_nonzero(descending > excess) - 1], 0.0)
    alternating = np.where(np.arange(size) % 2 == 0, 0.35, 0.05)
    return KnownProblem(
        name=f"water_filling_{size}",
        source="constructed",
        problem=BilevelProblem(
            name=f"water_filling_{size}",
            upper=lambda x, y: _half_square(y - wishes),
            lower=lambda x, y: _half_square(y - appetite),
            inequality=lambda x, y: y - x,
            x_set=Simplex(size, total=total),
            y_set=Reals(size),
        ),
        upper_value=0.5 * float(np.sum((x - wishes) ** 2)),
        x=x,
        y=x,
        starts=(np.full(size, 0.2), total * wishes / wishes.sum(), alternating),
        tags=frozenset({"constructed", "large", "affine-coupled", "simplex-x"}),
    )


def _stiffness(v: Array) -> Array:
    """The tridiagonal matrix with 3 on the diagonal and -1 beside it, times ``v``."""
    return 3.0 * v - jnp.concatenate([v[1:], jnp.zeros_like(v[:1])]) - jnp.concatenate([jnp.zeros_like(v[:1]), v[:-1]])


def _obstacle_control(size: int) -> KnownProblem:
    # The follower's answer is the smallest y >= 0 with K y >= x, a convex function of x; the leader's wishes for y are
    # negative, so her value is convex too. They are chosen so that the gradient of f is a nonnegative combination of
    # the gradients of the active rows of y >= 0 and K y >= x, which proves the answer optimal.
    y = np.maximum(0.0, np.sin(8.0 * np.pi * np.arange(size) / size) - 1e-3)
    free = y > 0.0
    both_free = np.zeros(size)
    both_free[1:] = -1.0 * (free[1:] & free[:-1])
    prices = solveh_banded(np.vstack([both_free, np.full(size, 3.0)]), np.where(free, y + 0.1, 0.0))

    def stiffness(v: np.ndarray) -> np.ndarray:
        return 3.0 * v - np.append(v[1:], 0.0) - np.append(0.0, v[:-1])

    x = stiffness(y) - np.where(free, 0.0, 0.5)
    wish_x = x + prices
    wish_y = np.where(free, -0.1, -0.5)
    return KnownProblem(
        name=f"obstacle_control_{size}",
        source="constructed (control of a string above an obstacle)",
        problem=BilevelProblem(
            name=f"obstacle_control_{size}",
            upper=lambda x, y: _half_square(x - wish_x) + _half_square(y - wish_y),
            lower=lambda x, y: 0.5 * jnp.sum(y * _stiffness(y)) - jnp.sum(x * y),
            x_set=Reals(size),
            y_set=Box(0.0, np.inf, shape=size),
        ),
        upper_value=float(0.5 * np.sum((x - wish_x) ** 2) + 0.5 * np.sum((y - wish_y) ** 2)),
        x=x,
        y=y,
        starts=(np.zeros(size), np.ones(size), np.cos(np.arange(size)))[: 3 if size <= 1000 else 2],
        tags=frozenset({"constructed", "large", "box-y"}),
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
    return KnownProblem(
        name=f"tracking_control_{size}",
        source="constructed (linear-quadratic tracking)",
        problem=BilevelProblem(
            name=f"tracking_control_{size}",
            upper=lambda x, y: _half_square(y - target) + 0.25 * jnp.sum(x**2),
            lower=lambda x, y: _half_square(y),
            equality=lambda x, y: y - 0.9 * jnp.concatenate([jnp.zeros_like(y[:1]), y[:-1]]) - x,
            x_set=Reals(size),
            y_set=Reals(size),
        ),
        upper_value=float(0.5 * np.sum((y - target) ** 2) + 0.25 * np.sum(x**2)),
        x=x,
        y=y,
        starts=(np.zeros(size), np.ones(size), np.cos(np.arange(size))),
        tags=frozenset({"constructed", "large", "equality"}),
        note="The equalities leave the follower no choice.",
    )


def _clipped_response(size: int) -> KnownProblem:
    # y = clip(x, 0, 1). Where the wish for x lies outside [0, 1], the wish for y is close enough to the nearer end for
    # x = wish to be the only local minimum; elsewhere x is halfway between the two wishes.
    generator = np.random.default_rng(104)
    wish_x, fraction = generator.uniform(-1.0, 2.0, size), generator.uniform(0.0, 1.0, size)
    overshoot = np.abs(wish_x - np.clip(wish_x, 0.0, 1.0))
    near_end = fraction * np.minimum(overshoot, 1.0)
    wish_y = np.where(wish_x < 0.0, near_end, np.where(wish_x > 1.0, 1.0 - near_end, fraction))
    x = np.where(overshoot > 0.0, wish_x, 0.5 * (wish_x + wish_y))
    y = np.clip(x, 0.0, 1.0)
    return KnownProblem(
        name=f"clipped_response_{size}",
        source="constructed",
        problem=BilevelProblem(
            name=f"clipped_response_{size}",
            upper=lambda x, y: _half_square(x - wish_x) + _half_square(y - wish_y),
            lower=lambda x, y: _half_square(y - x),
            x_set=Reals(size),
            y_set=Box(0.0, 1.0, shape=size),
        ),
        upper_value=float(0.5 * np.sum((x - wish_x) ** 2) + 0.5 * np.sum((y - wish_y) ** 2)),
        x=x,
        y=y,
        starts=(np.full(size, 0.5), np.full(size, 3.0)),
        tags=frozenset({"constructed", "large", "box-y"}),
    )


def _shrinkage(size: int) -> KnownProblem:
    # y = data / (1 + x): one weight for 10,000 coefficients.
    generator = np.random.default_rng(105)
    data = generator.standard_normal(size)
    held_out = 0.4 * data + 0.1 * generator.standard_normal(size)
    factor = float(data @ held_out / (data @ data))
    y = factor * data
    return KnownProblem(
        name=f"shrinkage_{size}",
        source="constructed (choice of the ridge weight)",
        problem=BilevelProblem(
            name=f"shrinkage_{size}",
            upper=lambda x, y: _half_square(y - held_out),
            lower=lambda x, y: _half_square(y - data) + 0.5 * x * jnp.sum(y**2),
            x_set=Box(0.0, 10.0),
            y_set=Reals(size),
        ),
        upper_value=0.5 * float(np.sum((y - held_out) ** 2)),
        x=np.array(1.0 / factor - 1.0),
        y=y,
        starts=(np.array(0.0), np.array(0.5), np.array(4.0)),
        tags=frozenset({"constructed", "large", "unconstrained"}),
    )


def _average(size: int) -> KnownProblem:
    # y = max(0, mean of x): at the answer every x is lowered by the same amount.
    generator = np.random.default_rng(106)
    wish, level = generator.uniform(0.0, 2.0, size), 0.2
    mean = 0.5 * (float(wish.mean()) + level)
    x = wish - (mean - level)
    return KnownProblem(
        name=f"average_{size}",
        source="constructed",
        problem=BilevelProblem(
            name=f"average_{size}",
            upper=lambda x, y: _half_square(x - wish) + 0.5 * size * (y - level) ** 2,
            lower=lambda x, y: 0.5 * y**2,
            inequality=lambda x, y: jnp.mean(x) - y,
            x_set=Reals(size),
            y_set=Reals(),
        ),
        upper_value=size * (mean - level) ** 2,
        x=x,
        y=np.array(mean),
        starts=(np.zeros(size), np.full(size, 2.0)),
        tags=frozenset({"constructed", "large", "affine-coupled"}),
    )


def _budget(size: int) -> KnownProblem:
    # One budget on the mean of y: y = appetite - max(0, mean(appetite) - x), scaled so that the row has norm one.
    generator = np.random.default_rng(107)
    appetite = generator.uniform(0.5, 1.5, size)
    wish = appetite - generator.uniform(0.0, 0.8, size)
    cut = float(np.mean(appetite - wish))
    root = float(np.sqrt(size))
    y = appetite - cut
    return KnownProblem(
        name=f"budget_{size}",
        source="constructed",
        problem=BilevelProblem(
            name=f"budget_{size}",
            upper=lambda x, y: _half_square(y - wish),
            lower=lambda x, y: _half_square(y - appetite),
            inequality=lambda x, y: jnp.sum(y) / root - root * x,
            x_set=Box(0.0, 2.0),
            y_set=Reals(size),
        ),
        upper_value=0.5 * float(np.sum((y - wish) ** 2)),
        x=np.array(float(appetite.mean()) - cut),
        y=y,
        starts=(np.array(0.0), np.array(0.4), np.array(0.9)),
        tags=frozenset({"constructed", "large", "affine-coupled"}),
        note="Beyond x = 1 or so the budget no longer binds and the leader's value is flat.",
    )
