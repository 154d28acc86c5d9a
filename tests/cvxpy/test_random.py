"""Random problems: what is called converged is a local minimum of values by separate calls of CVXPY."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from blocc.cvxpy import BilevelProblem, dual

pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate")


def _random(seed: int) -> tuple[BilevelProblem, cp.Parameter, cp.Problem, cp.Expression]:
    """One decision, three answers; the follower linear, quadratic or with a norm; with or without prices."""
    generator = np.random.default_rng(seed)
    x, y = cp.Parameter(name="x", bounds=[-1, 2]), cp.Variable(3, name="y")
    cost = generator.normal(size=3) + generator.normal(size=3) * x
    kind = seed % 3
    lower = cost @ y + (0.0, 0.5, 0.2)[kind] * (
        cp.sum_squares(y) if kind < 2 else cp.norm2(y - generator.normal(size=3))
    )
    need = generator.uniform(0.2, 1.0, size=3) @ y >= 0.5 + 0.2 * x
    follower = cp.Problem(cp.Minimize(lower), [need, y >= -1, y <= 1 + 0.3 * x])
    upper = cp.sum_squares(y - generator.normal(size=3)) + 0.5 * cp.square(x - generator.normal())
    if seed % 2:
        upper = upper + 0.3 * dual(need)
    return BilevelProblem(cp.Minimize(upper), follower, x), x, follower, upper


def _value(problem: BilevelProblem, x: cp.Parameter, follower: cp.Problem, upper: cp.Expression, at: float) -> float:
    x.value = at
    follower.solve(solver=cp.CLARABEL)
    if follower.status != cp.OPTIMAL:
        return np.inf
    for price in problem.model.price_variables:
        price.save_value(price.constraint.dual_value)
    return float(upper.value)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(k, marks=pytest.mark.slow) for k in range(3, 20))])
def test_converged_is_a_local_minimum(seed: int) -> None:
    problem, x, follower, upper = _random(seed)
    result = problem.solve(float(np.random.default_rng(seed).uniform(-1, 2)), progress=False)
    assert result.success or result.status.value == "stalled", result
    if not result.success:
        return
    end = float(result.x["x"])
    near = np.clip(end + np.linspace(-0.03, 0.03, 13), -1, 2)
    values = [_value(problem, x, follower, upper, float(point)) for point in near]
    assert result.upper_value <= min(values) + 2e-5 * (1 + abs(result.upper_value)), result
