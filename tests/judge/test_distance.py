"""Small residuals are no small distance: y far from the follower's response is not held, however little it violates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, Reals, Status, solve, verify
from blocc._lib.precision import double_precision
from blocc.judge.examine import Judge


class Case(NamedTuple):
    """A follower with its response at x, and a y far away that leaves residuals below the tolerance."""

    problem: BilevelProblem
    x: float
    response: Callable[[float], np.ndarray]
    wrong: np.ndarray


def steep_rows(generator: np.random.Generator) -> Case:
    """The sum of two rows with coefficients of 1e8 to 1e10 bounds the second variable by 6 sizes."""
    steep, size, x = 10.0 ** generator.uniform(8, 10), 10.0 ** generator.uniform(-3, 3), generator.uniform(-2, 2)
    problem = BilevelProblem(
        upper=lambda x, y: (x - 2.0) ** 2 + 0.5 * y[1] / size + 0.1 * y[0],
        lower=lambda x, y: (y[0] - x) ** 2 - y[1] / size,
        inequality=lambda x, y: jnp.stack([steep * (y[0] - x) + y[1] / size - 1.0, steep * (x - y[0]) - 5.0]),
        x_set=Box(-4.0, 4.0),
        y_set=Box(np.array([-10.0, -50.0 * size]), np.array([10.0, 50.0 * size])),
    )
    wrong = np.array([x - 27.0 / steep, 50.0 * size])
    return Case(problem, x, lambda x: np.array([x - 5.0 / steep, 6.0 * size]), wrong)


def nearly_dependent_rows(generator: np.random.Generator) -> Case:
    """Two equalities that differ by 1e-9 to 1e-8 and hold at one point only, which is not the shortest of either."""
    apart, size, x = 10.0 ** generator.uniform(-9, -8), 10.0 ** generator.uniform(-3, 3), generator.uniform(-2, 2)

    def rows(x: jnp.ndarray, y: jnp.ndarray) -> jnp.ndarray:
        z = y / size
        return jnp.stack([z[0] + z[1] - x, (1.0 + apart) * z[0] + z[1] - x - apart])

    problem = BilevelProblem(
        upper=lambda x, y: (y[0] / size - x) ** 2 + 0.1 * (x - 3.0) ** 2 + 0.2 * y[1] / size,
        lower=lambda x, y: 0.5 * jnp.sum((y / size) ** 2),
        equality=rows,
        x_set=Box(-5.0, 5.0),
        y_set=Reals(2),
    )
    return Case(problem, x, lambda x: size * np.array([1.0, x - 1.0]), size * np.array([0.5 * x, 0.5 * x]))


def tiny_curvature(generator: np.random.Generator) -> Case:
    """A follower bent by 1e-10 of its largest curvature along y[0] + y[1] = x: by less values do not tell y."""
    tiny, size, x = 10.0 ** generator.uniform(-10.5, -9.5), 10.0 ** generator.uniform(-3, 3), generator.uniform(-2, 2)
    problem = BilevelProblem(
        upper=lambda x, y: (y[0] / size - 1.0) ** 2 + 0.3 * (y[1] / size - x) ** 2 + 0.1 * x**2,
        lower=lambda x, y: ((y[0] + y[1]) / size - x) ** 2 + tiny * (y[0] / size - 2.0 * y[1] / size - 1.0) ** 2,
        x_set=Box(-3.0, 3.0),
        y_set=Reals(2),
    )

    def response(x: float) -> np.ndarray:
        return size * np.array([2.0 * x + 1.0, x - 1.0]) / 3.0

    return Case(problem, x, response, response(x) + 0.4 * size * np.array([1.0, -1.0]))


KINDS = (steep_rows, nearly_dependent_rows, tiny_curvature)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_a_far_y_with_small_residuals_is_not_held_and_the_response_is(
    kind: Callable[[np.random.Generator], Case], seed: int
) -> None:
    case = kind(np.random.default_rng(seed))
    with double_precision():
        judge = Judge.over(case.problem.flat, lambda x: None)
        at = np.atleast_1d(case.x)
        wrong = judge.examine(at, case.wrong, probes=False, polishing=False)
        right = judge.examine(at, case.response(case.x), probes=False, polishing=False)
    assert wrong.reply is not None
    assert wrong.reply.worst <= 1e-6  # what residuals alone would hold
    assert not wrong.lower_optimal
    assert wrong.undetermined
    assert wrong.undetermined in wrong.objection()
    assert right.lower_optimal, right.objection()


@pytest.mark.parametrize("kind", KINDS)
def test_neither_solve_nor_verify_holds_it(kind: Callable[[np.random.Generator], Case]) -> None:
    case = kind(np.random.default_rng(4))
    result = solve(case.problem, case.x, progress=False)
    if result.success:
        response = case.response(float(result.x))
        np.testing.assert_allclose(result.y, response, atol=1e-4 * float(np.max(np.abs(response))))
    claimed = replace(result, status=Status.CONVERGED, x=np.array(case.x), y=case.wrong)
    assert "y answers x: distance" in [check.name for check in verify(case.problem, claimed).failed]
