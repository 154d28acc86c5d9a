"""What the theorems bound, measured: the mean squared gradient of Algorithm 1, and the errors of Algorithm 2.

The family: g = |y - C x|^2 / 2 below with affine rows A y <= B x + 1 (A of full rank), and above
f = |y - t|^2 / 2 + sum cos(x), which is not convex in x. Inner solutions come from the interior point; an error of a
given size is added to them in a random direction, which is what the theorem on the outer loop assumes.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, Float, NDArray
from blocc._lib.precision import double_precision
from blocc.inner.interior_point import InteriorPoint
from blocc.inner.maxmin import MaxMin
from blocc.judge.constants import smoothness_at
from blocc.judge.theory import theory
from blocc.lagrangian import Multipliers, Weights, gradient_x
from blocc.outer.evaluator import Evaluator
from blocc.outer.monitor import Monitor
from blocc.penalty import cold_pair, evaluate, no_upper_multipliers
from blocc.problem import BilevelProblem
from blocc.sets import Box, Reals
from blocc.studies.study import Row
from reproduction.families import draw

N_X, N_Y, N_ROWS = 3, 6, 3
COUNTS = (10, 30, 100, 300, 1_000)  #: T
RATE_STEPS = 400
EPSILON = 0.5  #: at which Algorithm 2's numbers on curved constraints are suggested
#: Of the bound of the dual gap after one step: what is left of it after how many.
SHARES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)


@functools.cache
def family() -> BilevelProblem:
    """One problem for all cells of a process."""
    generator = np.random.default_rng(0)
    C, A = generator.standard_normal((N_Y, N_X)), generator.standard_normal((N_ROWS, N_Y))
    B, t = generator.standard_normal((N_ROWS, N_X)), generator.standard_normal(N_Y)
    return BilevelProblem(
        upper=lambda x, y: 0.5 * jnp.sum((y - t) ** 2) + jnp.sum(jnp.cos(x)),
        lower=lambda x, y: 0.5 * jnp.sum((y - C @ x) ** 2),
        inequality=lambda x, y: A @ y - B @ x - 1.0,
        x_set=Box(-2.0, 2.0, (N_X,)),
        y_set=Reals(N_Y),
    )


@functools.cache
def smoothness(gamma: float) -> float:
    """l_F of the family, the largest found around 20 points of X."""
    problem = family()
    with double_precision():
        function = Evaluator(problem.flat, (InteriorPoint(),), Monitor(problem.x_set.unravel))
        generator = np.random.default_rng(1)
        points = [problem.flat.x_set.sample_flat(generator) for _ in range(20)]
        return smoothness_at(function, points, gamma)[0]


def run_average(cells: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Algorithm 1 at one gamma and inner error, eta = 1 / l_F: the mean of |G|^2 over the first T steps, T by T."""
    gamma, error, steps = cells[0]["gamma"], cells[0]["inner_error"], max(cells[0]["counts"])
    eta = 1.0 / smoothness(gamma)
    with double_precision():
        problem = family()
        seeds = jnp.asarray([cell["seed"] for cell in cells])
        starts = np.stack([problem.flat.x_set.sample_flat(np.random.default_rng(100 + cell["seed"])) for cell in cells])
        cold = cold_pair(problem.flat, InteriorPoint())
        run = jax.jit(jax.vmap(functools.partial(_descend, cold, gamma, error, eta, steps)))
        squares = np.asarray(run(jnp.asarray(starts), seeds))
    means = np.cumsum(squares, axis=1) / np.arange(1, steps + 1)
    return [
        {"eta": eta, "averages": [float(means[place, count - 1]) for count in cell["counts"]]}
        for place, cell in enumerate(cells)
    ]


def _descend(
    cold: Any, gamma: float, error: float, eta: float, steps: int, start: Array, seed: Array
) -> Float[Array, "steps"]:
    """|x_{t+1} - x_t|^2 / eta^2 for every step."""
    flat, oracle = family().flat, InteriorPoint()
    leader, number = no_upper_multipliers(flat), jnp.asarray(gamma)
    weights_f = Weights(jnp.asarray(1.0), number, leader.multipliers, leader.penalty)
    weights_g = Weights(jnp.asarray(0.0), jnp.asarray(1.0), leader.multipliers, leader.penalty)

    def off(y: AnyArray, multipliers: Multipliers, key: Array) -> tuple[Array, Multipliers]:
        """The same answer with an error of this squared length."""
        noise = jax.random.normal(key, (N_Y + N_ROWS,))
        noise = jnp.sqrt(error) * noise / jnp.linalg.norm(noise)
        return y + noise[:N_Y], multipliers._replace(inequality=multipliers.inequality + noise[N_Y:])

    def step(x: Array, key: Array) -> tuple[Array, Array]:
        found = evaluate(flat, oracle, x, number, leader, cold, jnp.asarray(1e-9))
        one, other = jax.random.split(key)
        follower = off(found.follower.y, found.follower.multipliers, one)
        penalised = off(found.penalised.y, found.penalised.multipliers, other)
        slope = gradient_x(flat, x, *penalised, weights_f) - gamma * gradient_x(flat, x, *follower, weights_g)
        moved = flat.x_set.project_flat(x - eta * slope)
        return moved, jnp.sum((moved - x) ** 2) / eta**2

    keys = jax.random.split(jax.random.key(seed), steps)
    return jax.lax.scan(step, start, keys)[1]


def run_rates(version: str, seed: int) -> Row:
    """Algorithm 2 from zero on one quadratic follower: errors of (y, mu) and of the dual value, step by step."""
    generator = np.random.default_rng(seed)
    root = generator.standard_normal((N_Y, N_Y))
    hessian = root @ root.T / N_Y + np.eye(N_Y)
    cost, A = generator.standard_normal(N_Y), generator.standard_normal((N_ROWS, N_Y))
    limit = A @ np.linalg.solve(hessian, -cost) - 1.0  # every row is broken without a price
    problem = BilevelProblem(
        upper=lambda x, y: 0.0 * jnp.sum(x),
        lower=lambda x, y: 0.5 * y @ hessian @ y + cost @ y + 0.0 * jnp.sum(x),
        inequality=lambda x, y: A @ y - limit,
        x_set=Reals(1),
        y_set=Reals(N_Y),
    )
    curvature, norm = np.linalg.eigvalsh(hessian), np.linalg.norm(A, 2)
    steps = {"primal_step": 1.0 / curvature[-1], "dual_step": curvature[0] / norm**2}
    if version == "single loop":  # it needs a shorter step of the multipliers than one that waits for y
        oracle = MaxMin.single_loop(iterations=1, primal_step=steps["primal_step"], dual_step=0.5 * steps["dual_step"])
    else:
        oracle = MaxMin(iterations=1, steps_y=100, **steps)
    with double_precision():
        ys, prices = _path(problem, oracle)
        exact = InteriorPoint()
        flat = problem.flat
        weights = Weights(np.zeros(()), np.ones(()), np.zeros(0), np.ones(()))
        best = jax.jit(lambda x: exact.solve(flat, x, weights, exact.cold(flat), jnp.asarray(1e-12)))(jnp.zeros(1))
        y, mu = np.asarray(best.y), np.asarray(best.multipliers.inequality)
    squared = ((ys - y) ** 2).sum(axis=1) + ((prices - mu) ** 2).sum(axis=1)

    def dual(price: Float[NDArray, "rows"]) -> float:
        pulled = cost + A.T @ price
        return float(-0.5 * pulled @ np.linalg.solve(hessian, pulled) - limit @ price)

    gaps = [dual(mu) - dual(price) for price in prices]
    return {"squared_errors": squared.tolist(), "dual_gaps": gaps, **_fits(squared, np.array(gaps))}


def run_curved(seed: int) -> Row:
    """Theorem 3 on curved gc and a bounded Y, for L_g and L_F: the dual gap beside its bound, and T by the accuracy."""
    family = draw("curved", seed)
    found = theory(family.problem, family.start, epsilon=EPSILON, seed=seed)
    row: dict[str, Any] = {"multipliers": found.constants.follower.multipliers}
    for side in ("follower", "penalised"):
        curve = found.curves[f"accelerated-{side}"]
        gaps = np.maximum(curve.measured, 0.0) / curve.bound[0]
        steps = [int(curve.at[np.flatnonzero(gaps > share)[-1]]) + 1 if (gaps > share).any() else 1 for share in SHARES]
        row |= {f"kept_{side}": curve.holds, f"steps_{side}": steps, f"gaps_{side}": gaps.tolist()}
        row[f"bounds_{side}"] = (curve.bound / curve.bound[0]).tolist()
    return {**row, "at": curve.at.tolist()}


def _path(problem: BilevelProblem, oracle: MaxMin) -> tuple[NDArray, NDArray]:
    """(y, mu) after 1, 2, ... steps of the multipliers."""
    flat = problem.flat
    weights = Weights(np.zeros(()), np.ones(()), np.zeros(0), np.ones(()))
    x = jnp.zeros(1)

    def step(iterate: Any, _: None) -> tuple[Any, tuple[Array, Array]]:
        after = oracle.iterate(flat, x, weights, iterate)
        return after, (after.y, after.mu)

    start = oracle.first_iterate(flat)
    return jax.device_get(jax.jit(lambda: jax.lax.scan(step, start, None, length=RATE_STEPS)[1])())


def _fits(squared: NDArray, gaps: NDArray) -> dict[str, float | None]:
    """By which factor the squared error shrinks in a step, how straight its logarithm is, and the power of the gap."""
    places = np.arange(1, len(squared) + 1)
    kept = squared > 1e-20
    factor = straight = power = None
    if kept.sum() > 5:
        slope = float(np.polyfit(places[kept], np.log(squared[kept]), 1)[0])
        factor = float(np.exp(slope))
        straight = float(np.corrcoef(places[kept], np.log(squared[kept]))[0, 1])
    above = gaps > 1e-14
    if above.sum() > 5:
        power = float(np.polyfit(np.log(places[above]), np.log(gaps[above]), 1)[0])
    return {"factor": factor, "straightness": straight, "power": power}
