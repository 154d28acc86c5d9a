"""The log-barrier method: the follower's constraints smoothed away, and the implicit gradient of what is left.

Jiang, Li, Hong and Zhang (2024, arXiv 2410.10670). The follower minimises g(x, y) - t sum(ln(-c(x, y))), which has one
interior answer y_t(x) for each x, differentiable in x; the step of x follows

    f_x - G_xy G_yy^-1 f_y    at y_t(x), G the follower's objective with the barrier.

As t falls, value and gradient tend to those of the bilevel problem, and every y_t(x) is strictly feasible. Bounds and
other constraints of Y are rows of the barrier too; equalities, which the paper does not have, stay in the linear
system.

Where a step leaves the follower without an interior, x goes half the way back. Numbers: ``t`` and the step length
``alpha`` / (k + 1)^``p``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Array, Float, Int
from blocc.flat_problem import FlatProblem
from blocc.inner.mehrotra import IterationState, Limits, iterate, longest_step, move
from blocc.methods.base import Counter, Demand, Numbers, Scalar, Size, VectorX, VectorY, implicit_length
from blocc.methods.loop import Iteration

#: Relative accuracy of the barrier's minimiser, and the residual from which on there is none.
TOLERANCE, UNSOLVED = 1e-10, 1e-6
#: Lengths of a Newton step that are tried, as parts of the longest.
LENGTHS = np.array([1.0, 0.5, 0.2, 0.05, 0.01])


class BarrierState(NamedTuple):
    """x, the last x with an interior and the barrier's minimiser there, and the Newton iterations so far."""

    x: VectorX
    good: VectorX
    y: VectorY
    calls: Int[Array, ""]


def barrier_rows(flat: FlatProblem, x: VectorX, y: VectorY) -> Float[Array, "barrier_rows"]:
    """Everything that the barrier keeps negative."""
    low, high = flat.y_set.bounds_flat()
    below, above = np.flatnonzero(np.isfinite(low)), np.flatnonzero(np.isfinite(high))
    own = [flat.inequality(x, y), flat.y_set.inequality_flat(y)]
    return jnp.concatenate([*own, low[below] - y[below], y[above] - high[above]])


def barrier_equalities(flat: FlatProblem, x: VectorX, y: VectorY) -> Float[Array, "equalities"]:
    """What no barrier can keep."""
    return jnp.concatenate([flat.equality(x, y), flat.y_set.equality_flat(y)])


def with_barrier(flat: FlatProblem, t: Scalar | float, x: VectorX, y: VectorY) -> Scalar:
    """The follower's objective with the barrier."""
    return flat.lower(x, y) - t * jnp.sum(jnp.log(-barrier_rows(flat, x, y)))


class CentralPoint(NamedTuple):
    """A point near the central path: y, the slacks of the barrier's rows with their prices, prices of equalities."""

    y: VectorY
    slack: Float[Array, "barrier_rows"]
    price: Float[Array, "barrier_rows"]
    equality: Float[Array, "equalities"]


class BarrierAnswer(NamedTuple):
    """The barrier's minimiser, the prices of the equalities there, and how it was found."""

    y: VectorY
    prices: Float[Array, "equalities"]
    error: Scalar  #: of the optimality conditions, relative
    iterations: Int[Array, ""]


def barrier_answer(flat: FlatProblem, t: Scalar | float, x: VectorX) -> BarrierAnswer:
    """The minimiser of the follower's objective with the barrier.

    By Newton's method on the conditions that slacks times prices are t, from larger products down: a start need not be
    feasible, and small t are no harder than large ones. Rows that the middle of Y satisfies are satisfied on the way.
    """
    start = jnp.asarray(flat.y_set.interior_flat())
    rows, equalities = barrier_rows(flat, x, start), barrier_equalities(flat, x, start)
    slack = jnp.where(rows < 0.0, -rows, 1.0 + rows)
    first = CentralPoint(start, slack, jnp.ones_like(slack) / jnp.maximum(slack, 1e-3), jnp.zeros_like(equalities))

    def lagrangian(p: CentralPoint, y: VectorY) -> Scalar:
        value = flat.lower(x, y) + p.price @ barrier_rows(flat, x, y)
        return value + p.equality @ barrier_equalities(flat, x, y)

    def residuals(p: CentralPoint, target: Scalar | float) -> tuple[Array, Array, Array, Array]:
        slope = jax.grad(lagrangian, argnums=1)(p, p.y)
        return slope, barrier_rows(flat, x, p.y) + p.slack, barrier_equalities(flat, x, p.y), p.slack * p.price - target

    def error(p: CentralPoint) -> Scalar:
        slope, open_rows, equal, _ = (jnp.abs(part).max(initial=0.0) for part in residuals(p, t))
        uneven = jnp.abs(p.slack * p.price / t - 1.0).max(initial=0.0)
        size = 1.0 + jnp.abs(p.price).max(initial=0.0)
        return jnp.max(jnp.stack([slope / size, open_rows, equal, 1e-2 * uneven]))

    def step(state: IterationState) -> CentralPoint:
        p = state.point
        average = jnp.sum(p.slack * p.price) / max(len(slack), 1)
        target = jnp.maximum(t, 0.1 * average)
        change = _newton(flat, x, p, lagrangian, residuals(p, target), state.regularisation)
        longest = longest_step((p.slack, p.price), (change.slack, change.price), 0.995)
        size = lambda length: jnp.linalg.norm(jnp.concatenate(residuals(move(p, change, length), target)))  # noqa: E731
        trials = longest * LENGTHS
        norms = jax.vmap(size)(trials)
        return move(p, change, trials[jnp.argmin(jnp.where(jnp.isfinite(norms), norms, jnp.inf))])

    end = iterate(first, step, error, TOLERANCE, Limits(max_iterations=60))
    return BarrierAnswer(end.best.y, end.best.equality, end.best_error, end.iteration)


def _newton(
    flat: FlatProblem,
    x: VectorX,
    p: CentralPoint,
    lagrangian: Callable[[CentralPoint, VectorY], Scalar],
    residuals: tuple[Array, Array, Array, Array],
    regularisation: Scalar,
) -> CentralPoint:
    """Newton's direction; slacks and their prices are eliminated."""
    slope, open_rows, equal, products = residuals
    hessian = jax.hessian(lagrangian, argnums=1)(p, p.y)
    in_y = jax.jacfwd(lambda y: barrier_rows(flat, x, y))(p.y)
    equal_in_y = jax.jacfwd(lambda y: barrier_equalities(flat, x, y))(p.y)
    ridge = regularisation * (1.0 + jnp.abs(hessian).max(initial=0.0)) * jnp.eye(flat.n_y)
    reduced = hessian + ridge + (in_y.T * (p.price / p.slack)) @ in_y
    right = -slope - in_y.T @ ((p.price * open_rows - products) / p.slack)
    zeros = jnp.zeros((len(equal), len(equal)))
    solution = jnp.linalg.solve(
        jnp.block([[reduced, equal_in_y.T], [equal_in_y, zeros]]), jnp.concatenate([right, -equal])
    )
    y, equality = solution[: flat.n_y], solution[flat.n_y :]
    slack = -open_rows - in_y @ y
    return CentralPoint(y, slack, -(products + p.price * slack) / p.slack, equality)


def implicit_gradient(
    flat: FlatProblem, t: Scalar | float, x: VectorX, y: VectorY, prices: Float[Array, "equalities"]
) -> VectorX:
    """The derivative of f(x, y_t(x)): by one linear system, however many entries x has."""
    smooth = lambda a, b: with_barrier(flat, t, a, b) + prices @ barrier_equalities(flat, a, b)  # noqa: E731
    hessian = jax.hessian(smooth, argnums=1)(x, y)
    mixed = jax.jacfwd(jax.grad(smooth, argnums=1), argnums=0)(x, y)
    in_x, in_y = jax.jacfwd(lambda a, b: barrier_equalities(flat, a, b), argnums=(0, 1))(x, y)
    zeros = jnp.zeros((in_y.shape[0], in_y.shape[0]))
    matrix = jnp.block([[hessian, in_y.T], [in_y, zeros]])
    upper_x, upper_y = jax.grad(flat.upper, argnums=(0, 1))(x, y)
    price = jnp.linalg.solve(matrix, jnp.concatenate([upper_y, jnp.zeros(in_y.shape[0])]))
    return upper_x - jnp.concatenate([mixed, in_x]).T @ price


class Barrier(Iteration):
    """Implicit gradients through a logarithmic barrier; second derivatives of the lower level.

    To cite:

        @article{jiang2024barrier,
          title = {A Barrier Function Approach for Bilevel Optimization with Coupled Lower-Level Constraints:
            Formulation,
            Approximation and Algorithms},
          author = {Jiang, Xiaotian and Li, Jiaxiang and Hong, Mingyi and Zhang, Shuzhong},
          journal = {arXiv:2410.10670}, year = {2024}}
    """

    name = "log-barrier"
    title = "log-barrier method (Jiang, Li, Hong, Zhang 2024)"
    demands = (Demand.NO_LEADER_CONSTRAINT,)
    names = ("alpha", "t", "p")
    lengths = ("alpha",)
    #: "paper": the authors' run on the toy of the BLOCC paper; "synthetic" and "prices": their random problems.
    presets: ClassVar = {
        "paper": {"alpha": 0.01, "t": 1e-3, "p": 0.0},
        "synthetic": {"alpha": 5e-4, "t": 0.01, "p": 0.5},
        "prices": {"alpha": 0.02, "t": 1e-4, "p": 0.5},
    }

    def automatic(self, size: Size) -> list[dict[str, float]]:
        """Lengths from the curvatures; a small t is exact, and bends the gradient sharply where rows become active."""
        return [
            {"alpha": factor * implicit_length(size), "t": t, "p": 0.0, **self.given}
            for factor in (1.0, 0.2, 0.04, 0.005)
            for t in (1e-3, 1e-5)
        ]

    def start(self, flat: FlatProblem, x: VectorX, y: VectorY) -> BarrierState:
        """The first step computes y."""
        return BarrierState(x, x, y, jnp.zeros((), int))

    def step(self, flat: FlatProblem, numbers: Numbers, state: BarrierState, k: Counter) -> BarrierState:
        """The barrier's minimiser, then x along its gradient; half the way back where there is no minimiser."""
        x, good, t = state.x, state.good, numbers["t"]
        found = barrier_answer(flat, t, x)
        y, prices = found.y, found.prices
        solved = found.error <= UNSOLVED
        length = numbers["alpha"] / (k + 1.0) ** numbers["p"]
        moved = flat.x_set.project_flat(x - length * implicit_gradient(flat, t, x, y, prices))
        back = jnp.where(jnp.abs(x - good).max(initial=0.0) > 0.0, 0.5 * (x + good), jnp.nan)  # the start has none
        calls = state.calls + found.iterations
        return BarrierState(
            jnp.where(solved, moved, back), jnp.where(solved, x, good), jnp.where(solved, y, state.y), calls
        )
