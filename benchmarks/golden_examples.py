"""Examples of the golden set: from the documentation and from machine learning, and kinks whose optimum is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc import BilevelProblem, Box, Product, Reals


class Example(NamedTuple):
    """A problem, where its runs start, and the least value of f if that is known."""

    problem: BilevelProblem
    starts: list[Any]
    value: float | None = None


def readme() -> Example:
    """The small problem of the README."""
    problem = BilevelProblem(
        upper=lambda x, y: (x - 3) ** 2 + (y - 1) ** 2,
        lower=lambda x, y: (y - 2 * x) ** 2,
        inequality=lambda x, y: y - x,
        x_set=Box(0.0, 3.0),
        y_set=Reals(),
    )
    return Example(problem, [None], 2.0)


def harbour() -> Example:
    """The tutorial's harbour and its ferry."""
    desired = np.array([3.0, 5.0])
    problem = BilevelProblem(
        upper=lambda x, y: 0.75 * x[1] ** 2 - x[0] * jnp.sum(y),
        lower=lambda x, y: x[0] * jnp.sum(y) + 0.5 * jnp.sum((y - desired) ** 2),
        inequality=lambda x, y: y - x[1],
        x_set=Box([0.0, 0.5], [5.0, 5.0]),
        y_set=Box(0.0, np.inf, shape=2),
    )
    return Example(problem, [None], -3.375)


def kinks(n: int) -> Example:
    """n variables, each with its optimum at a kink of its own: f is convex in x, and its subgradients balance there."""
    rng = np.random.default_rng(n)
    kink, toll = rng.uniform(-1.0, 1.0, n), rng.uniform(1.0, 2.0, n)
    factor = rng.standard_normal((n, n)) / np.sqrt(n)
    curvature = np.eye(n) + factor @ factor.T
    pull = toll * rng.uniform(0.2, 0.8, n)  # between the slopes of both sides
    target = kink + np.linalg.solve(curvature, pull)
    problem = BilevelProblem(
        upper=lambda x, y: 0.5 * (x - target) @ curvature @ (x - target) + toll @ y,
        lower=lambda x, y: 0.5 * jnp.sum((y - x + kink) ** 2),
        x_set=Box(-3.0, 3.0, shape=n),
        y_set=Box(0.0, np.inf, shape=n),
    )
    return Example(problem, [None], float(0.5 * pull @ np.linalg.solve(curvature, pull)))


def cleaning(samples: int = 500) -> Example:
    """Hyper-cleaning: weights of samples, a third of them mislabelled, for a regression under a budget of its norm."""
    rng = np.random.default_rng(5)
    truth, size = rng.standard_normal(8), 200
    train, held_out = rng.standard_normal((samples, 8)), rng.standard_normal((size, 8))
    labels, checks = np.sign(train @ truth), np.sign(held_out @ truth)
    labels[rng.random(samples) < 1 / 3] *= -1.0
    problem = BilevelProblem(
        upper=lambda x, w: jnp.mean(jax.nn.softplus(-checks * (held_out @ w))),
        lower=lambda x, w: jnp.mean(jax.nn.sigmoid(x) * jax.nn.softplus(-labels * (train @ w))) + 5e-4 * w @ w,
        inequality=lambda x, w: w @ w - 4.0,
        x_set=Box(-5.0, 5.0, shape=samples),
        y_set=Reals(8),
    )
    return Example(problem, [np.zeros(samples), *(rng.uniform(-2.0, 2.0, samples) for _ in range(3))])


def meta_learning() -> Example:
    """A common start and penalty weights for two tasks: x is a pytree of 10 numbers, each task is fitted below."""
    rng = np.random.default_rng(7)
    inputs, tests = rng.standard_normal((2, 12, 5)), rng.standard_normal((2, 12, 5))
    truth = rng.standard_normal(5) + 0.3 * rng.standard_normal((2, 5))
    outputs = jnp.einsum("tni,ti->tn", inputs, truth) + 0.5 * rng.standard_normal((2, 12))
    goals = jnp.einsum("tni,ti->tn", tests, truth)

    def lower(x: Any, y: Any) -> Any:
        misfit = jnp.mean((jnp.einsum("tni,ti->tn", inputs, y) - outputs) ** 2)
        return misfit + jnp.sum(jnp.exp(x["weights"]) * (y - x["centre"]) ** 2)

    problem = BilevelProblem(
        upper=lambda x, y: jnp.mean((jnp.einsum("tni,ti->tn", tests, y) - goals) ** 2),
        lower=lower,
        x_set=Product({"centre": Box(-5.0, 5.0, shape=5), "weights": Box(-5.0, 3.0, shape=5)}),
        y_set=Reals((2, 5)),
    )
    return Example(problem, [None])


def capacity() -> Example:
    """A capacity of three sources whose demand is cut at it: kinks in x that only a leader's constraint on y holds."""
    price = np.array([1.0, 1.5, 2.0])
    problem = BilevelProblem(
        upper=lambda x, y: jnp.sum(x**2) - 2.0 * price @ y,
        lower=lambda x, y: 0.5 * jnp.sum((y - np.array([2.0, 1.0, 0.5])) ** 2),
        inequality=lambda x, y: y - x,
        upper_inequality=lambda x, y: jnp.sum(y) - 2.0,
        x_set=Box(0.0, 4.0, shape=3),
        y_set=Box(0.0, np.inf, shape=3),
    )
    # y = min(x, demand): the third is cut at 1/2, and of the others x_i = price_i - multiplier with a sum of 3/2.
    first, second = 0.5, 1.0
    value = first**2 + second**2 + 0.25 - 2.0 * (first * 1.0 + second * 1.5 + 0.5 * 2.0)
    return Example(problem, [None, np.array([0.1, 0.2, 3.0])], value)


def budgets() -> Example:
    """Twenty sources under budgets of four groups, which some of the leader's optimal prices just exhaust."""
    rng = np.random.default_rng(11)
    groups = np.kron(np.eye(4), np.ones(5))
    wish, cost = rng.uniform(1.0, 3.0, 20), rng.uniform(0.2, 1.0, 20)
    problem = BilevelProblem(
        upper=lambda x, y: 0.5 * jnp.sum(x[4:] ** 2) + 0.4 * jnp.sum(x[:4] ** 2) - cost @ y - 0.3 * x[4:] @ y,
        lower=lambda x, y: 0.5 * jnp.sum((y - wish + x[4:]) ** 2),
        inequality=lambda x, y: groups @ y - x[:4],
        x_set=Box(0.0, 8.0, shape=24),
        y_set=Box(0.0, np.inf, shape=20),
    )
    return Example(problem, [None])


EXAMPLES: dict[str, Callable[[], Example]] = {
    "readme": readme,
    "harbour": harbour,
    "kinks_40": lambda: kinks(40),
    "kinks_150": lambda: kinks(150),
    "kinks_300": lambda: kinks(300),
    "cleaning": cleaning,
    "meta_learning": meta_learning,
    "capacity": capacity,
    "budgets": budgets,
}
