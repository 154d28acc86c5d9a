"""Algorithm 2 of the paper, step by step, and Algorithm 1 around it, as the theorems' bounds are compared with them.

A transcription for whoever judges: it shares no line with the oracles that solve.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, Float, NDArray
from blocc.flat_problem import FlatProblem
from blocc.lagrangian import Multipliers, Weights, gradient_x, gradient_y


class Steps(NamedTuple):
    """The numbers of Algorithm 2 on one Lagrangian."""

    primal: float
    dual: float
    steps_y: int  #: T_y
    momentum: float = 1.0  #: 0 for the version without acceleration


class Pair(NamedTuple):
    """y and the multipliers of all coupled constraints, inequalities first, and those one iteration before."""

    y: Float[AnyArray, "*steps n_y"]
    mu: Float[AnyArray, "*steps rows"]
    before: Float[AnyArray, "*steps rows"]


def split(flat: FlatProblem, mu: AnyArray) -> Multipliers:
    """One vector of multipliers as the Lagrangian wants them."""
    return Multipliers(jnp.asarray(mu[: flat.n_inequality]), jnp.asarray(mu[flat.n_inequality :]))


def rows(flat: FlatProblem, x: AnyArray, y: AnyArray) -> Array:
    """gc and h in one vector."""
    return jnp.concatenate([jnp.ravel(flat.inequality(x, y)), jnp.ravel(flat.equality(x, y))])


def cold(flat: FlatProblem) -> Pair:
    """The middle of Y and no multipliers."""
    none = np.zeros(flat.n_inequality + flat.n_equality)
    return Pair(np.asarray(flat.y_set.interior_flat()), none, none)


def advance(flat: FlatProblem, x: AnyArray, w: Weights, steps: Steps, now: Pair, t: AnyArray) -> Pair:
    """Iteration t of Algorithm 2: momentum, T_y steps in y, one step of the multipliers."""
    half = now.mu + steps.momentum * (t - 1.0) / (t + 2.0) * (now.mu - now.before)
    y = descend(flat, x, w, steps, now.y, half, 1)
    moved = half + steps.dual * rows(flat, x, y)
    free = jnp.arange(moved.size) >= flat.n_inequality
    return Pair(y, jnp.where(free, moved, jnp.maximum(moved, 0.0)), now.mu)


def descend(flat: FlatProblem, x: AnyArray, w: Weights, steps: Steps, y: AnyArray, mu: AnyArray, times: int) -> Array:
    """``times`` T_y projected gradient steps in y at fixed multipliers."""
    project, prices = flat.y_set.project_flat, split(flat, mu)
    one = lambda _, z: project(z - steps.primal * gradient_y(flat, x, z, prices, w))  # noqa: E731
    return jax.lax.fori_loop(0, times * steps.steps_y, one, jnp.asarray(y))


def path(flat: FlatProblem, length: int, x: AnyArray, w: Weights, steps: Steps, start: Pair, first: AnyArray) -> Pair:
    """The iterates after ``first`` + 1, ..., ``first`` + ``length`` iterations."""

    def one(now: Any, t: Any) -> tuple[Any, Any]:
        after = advance(flat, x, w, steps, now, t)
        return after, after

    return jax.lax.scan(one, jax.tree.map(jnp.asarray, start), first + jnp.arange(length))[1]


def slope(flat: FlatProblem, x: AnyArray, w: Weights, y: AnyArray, mu: AnyArray) -> Array:
    """The Lagrangian's derivative in x."""
    return gradient_x(flat, x, y, split(flat, mu), w)


class Descent(NamedTuple):
    """Algorithm 1, step by step."""

    squares: Float[AnyArray, "steps"]  #: |x_{t+1} - x_t|^2 / eta^2
    distances: Float[AnyArray, "steps"]  #: |yF - yg|^2 as the inner loops left them
    x: Float[AnyArray, "n_x"]  #: after the last one


def algorithm_one(
    flat: FlatProblem,
    length: int,
    x: Float[NDArray, "n_x"],
    sides: tuple[tuple[Weights, Steps, int], tuple[Weights, Steps, int]],
    gamma: float,
    eta: float,
) -> Descent:
    """``length`` steps of Algorithm 1; each side has its weights, steps and T, and begins where it ended last."""

    def inner(at: Array, last: Pair, side: Any) -> Pair:
        w, steps, count = side
        return jax.lax.fori_loop(
            0, count, lambda t, now: advance(flat, at, w, steps, now, t), last._replace(before=last.mu)
        )

    def one(carry: tuple[Array, Pair, Pair], _: None) -> tuple[tuple[Array, Pair, Pair], tuple[Array, Array]]:
        at, follower, penalised = carry
        follower, penalised = inner(at, follower, sides[0]), inner(at, penalised, sides[1])
        below = slope(flat, at, sides[0][0], follower.y, follower.mu)
        whole = slope(flat, at, sides[1][0], penalised.y, penalised.mu) - gamma * below
        moved = flat.x_set.project_flat(at - eta * whole)
        distance = jnp.sum((penalised.y - follower.y) ** 2)
        return (moved, follower, penalised), (jnp.sum((moved - at) ** 2) / eta**2, distance)

    begin = jax.tree.map(jnp.asarray, cold(flat))
    end, (squares, distances) = jax.lax.scan(one, (jnp.asarray(x), begin, begin), None, length=length)
    return Descent(squares, distances, end[0])
