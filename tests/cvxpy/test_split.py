"""Terms of the leader's variables alone, taken out from behind factors, sums and other linear expressions."""

from __future__ import annotations

from collections.abc import Callable

import cvxpy as cp
import numpy as np
import pytest

from blocc.cvxpy import BilevelProblem

Make = Callable[[cp.Parameter, cp.Variable, np.ndarray], cp.Expression]


def _squares(of: cp.Expression) -> cp.Expression:
    return cp.sum(cp.square(of))


#: One objective in several notations: ``sum of factors[0] (y - 1)^2 + factors[1] x^2``.
NOTATIONS: dict[str, Make] = {
    "factor": lambda x, y, f: f[0] * (_squares(y - 1) + f[1] / f[0] * _squares(x)),
    "quotient": lambda x, y, f: (f[0] * _squares(y - 1) + f[1] * _squares(x)) / 0.5 * 0.5,
    "stacked": lambda x, y, f: cp.sum(cp.hstack([f[1] * cp.square(x), f[0] * cp.square(y - 1)])),
    "product": lambda x, y, f: f @ cp.hstack([_squares(y - 1), _squares(x)]),
    "differences": lambda x, y, f: -3 * (-f[0] * _squares(y - 1) / 3 - (f[1] * _squares(x)) / 3),
}


@pytest.mark.parametrize("notation", NOTATIONS)
@pytest.mark.parametrize("seed", range(2))
def test_a_term_of_x_alone_counts_wherever_it_is_written(notation: str, seed: int) -> None:
    generator = np.random.default_rng(seed)
    x, y = cp.Parameter(2, name="x", bounds=[-5, 5]), cp.Variable(2, name="y")
    factors = generator.uniform(0.1, 3.0, size=2)
    follower = cp.Problem(cp.Minimize(cp.sum_squares(y - x)), [y <= 4])
    problem = BilevelProblem(cp.Minimize(NOTATIONS[notation](x, y, factors)), follower, x)
    result = problem.solve(generator.uniform(-4, 4, size=2), progress=False)
    assert result.success, result
    best = 2.0 * factors[0] * factors[1] / factors.sum()  # at x = y = factors[0] / sum(factors), by hand
    np.testing.assert_allclose(result.upper_value, best, rtol=1e-6)


def test_a_term_of_x_alone_need_not_be_convex_behind_a_factor() -> None:
    x, y = cp.Parameter(name="x", bounds=[-3, 3]), cp.Variable(name="y")
    follower = cp.Problem(cp.Minimize(cp.square(y - x)))
    leader = cp.Minimize(2 * (cp.square(y - 1) - 0.1 * cp.square(x)))
    result = BilevelProblem(leader, follower, x).solve(-1.0, progress=False)
    assert result.success, result
    np.testing.assert_allclose(result.upper_value, -2.0 / 9.0, atol=1e-5)  # at x = 1 / 0.9
