"""The predictor-corrector kernel: linear programs against SciPy, and how an iteration ends that does not converge."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from blocc._lib.precision import double_precision
from blocc.inner.mehrotra import (
    IterationState,
    Limits,
    Pairs,
    Products,
    corrected_direction,
    iterate,
    longest_step,
    move,
)


class Point(NamedTuple):
    """Of a linear program: minimise cost . x subject to matrix x = right, x >= 0."""

    x: jax.Array
    price: jax.Array  #: multipliers of the rows
    reduced: jax.Array  #: multipliers of x >= 0


def solve_program(
    cost: jax.Array, matrix: jax.Array, right: jax.Array, weight: jax.Array | float = 1.0
) -> IterationState:
    pairs = Pairs((("x", "reduced"),), (weight,))

    def newton(point: Point) -> Callable[[Products], Point]:
        primal = right - matrix @ point.x
        dual = cost - matrix.T @ point.price - point.reduced
        ratio = point.x / point.reduced

        def direction(wanted: Products) -> Point:
            (products,) = wanted
            towards = primal + matrix @ (ratio * dual - products / point.reduced)
            price = jnp.linalg.solve(matrix @ (ratio[:, None] * matrix.T), towards)
            reduced = dual - matrix.T @ price
            return Point((products - point.x * reduced) / point.reduced, price, reduced)

        return direction

    def step(state: IterationState) -> Point:
        change, _ = corrected_direction(state.point, pairs, newton(state.point))
        return move(state.point, change, pairs.longest_step(state.point, change, 0.995))

    def error(point: Point) -> jax.Array:
        dual = cost - matrix.T @ point.price - point.reduced
        parts = (matrix @ point.x - right, dual, point.x * point.reduced)
        return jnp.max(jnp.stack([jnp.max(jnp.abs(part)) for part in parts]))

    rows, columns = matrix.shape
    first = Point(jnp.ones(columns), jnp.zeros(rows), jnp.ones(columns))
    return iterate(first, step, error, 1e-10, record=lambda point: point.x)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_linear_programs(seed: int, weighted: bool) -> None:
    generator = np.random.default_rng(seed)
    matrix = generator.standard_normal((3, 8))
    right = matrix @ generator.uniform(size=8)
    cost = generator.uniform(size=8) + matrix.T @ generator.standard_normal(3)
    with double_precision():
        weight = jnp.asarray(generator.uniform(0.1, 10.0, 8)) if weighted else 1.0
        end = solve_program(*map(jnp.asarray, (cost, matrix, right)), weight)
    expected = linprog(cost, A_eq=matrix, b_eq=right)
    assert float(end.best_error) <= 1e-10
    assert int(end.iteration) <= 20
    assert cost @ np.asarray(end.best.x) == pytest.approx(expected.fun, abs=1e-8)
    np.testing.assert_array_equal(end.record[0], 1.0)
    np.testing.assert_array_equal(end.record[int(end.iteration)], end.point.x)


def test_many_at_a_time() -> None:
    with double_precision():
        cost = jnp.asarray([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
        end = jax.vmap(lambda cost: solve_program(cost, jnp.ones((1, 3)), jnp.ones(1)))(cost)
    np.testing.assert_allclose(end.best.x, [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], atol=1e-8)


def test_longest_step() -> None:
    values, changes = (jnp.asarray([1.0, 2.0]), jnp.zeros(0)), (jnp.asarray([-4.0, 5.0]), jnp.zeros(0))
    assert float(longest_step(values, changes)) == 0.25
    assert float(longest_step(values, changes, 0.5)) == 0.125
    assert float(longest_step((jnp.asarray([1.0]),), (jnp.asarray([-0.5]),))) == 1.0


def test_entries_of_weight_zero_are_not_there() -> None:
    pairs = Pairs((("x", "reduced"),), (jnp.asarray([1.0, 0.0, 2.0]),))
    point = Point(jnp.asarray([1.0, jnp.nan, 3.0]), jnp.zeros(0), jnp.asarray([2.0, -1.0, 4.0]))
    assert float(pairs.average(point)) == (1.0 * 2.0 + 2.0 * 3.0 * 4.0) / 2
    assert float(pairs.longest_step(point, Point(*(-part for part in point)))) == 1.0
    steps = pairs.longest_steps(
        point, Point(jnp.asarray([-2.0, -9.0, 0.0]), jnp.zeros(0), jnp.asarray([0.0, 9.0, -8.0]))
    )
    assert [float(step) for step in steps] == [0.5, 0.5]


def test_a_step_that_is_not_finite_is_not_taken() -> None:
    """It is tried again with more regularisation, until that is too large to mean anything."""

    def step(state: IterationState) -> Point:
        return state.point._replace(x=jnp.where(state.regularisation < 1e-8, jnp.nan, 0.5 * state.point.x))

    point = Point(jnp.ones(1), jnp.ones(1), jnp.ones(1))
    end = iterate(point, step, lambda point: jnp.max(point.x), 0.1)
    assert float(end.best.x[0]) == 0.0625
    assert float(end.regularisation) > 1e-8
    never = iterate(point, lambda state: state.point._replace(x=jnp.full(1, jnp.nan)), lambda point: point.x[0], 0.1)
    assert float(never.best.x[0]) == 1.0
    assert int(never.iteration) < 10


@pytest.mark.parametrize(
    ("limits", "iterations"),
    [
        (Limits(max_iterations=7), 7),
        (Limits(patience=3), 3),
        (Limits(patience=3, patient_above=0.5, max_iterations=9), 9),
    ],
)
def test_without_progress(limits: Limits, iterations: int) -> None:
    point = Point(jnp.ones(1), jnp.ones(1), jnp.ones(1))
    falls = limits.patience == 12  # the first case makes a little progress in each iteration
    end = iterate(
        point,
        lambda state: state.point._replace(x=(0.99 if falls else 1.0) * state.point.x),
        lambda point: point.x[0],
        1e-3,
        limits,
    )
    assert int(end.iteration) == iterations


def test_progress_can_be_asked_to_be_large() -> None:
    point = Point(jnp.ones(1), jnp.ones(1), jnp.ones(1))
    slow = lambda state: state.point._replace(x=0.9 * state.point.x)  # noqa: E731
    end = iterate(point, slow, lambda point: point.x[0], 1e-3, Limits(patience=5, progress=0.7))
    assert int(end.iteration) == 5
    assert float(end.best_error) == pytest.approx(0.9**5, rel=1e-5)
