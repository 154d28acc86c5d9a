"""Leaders who look at the follower's multipliers, in the core: against HiGHS and closed forms on a grid."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from blocc import BilevelProblem, Box, ProblemError, Reals, solve, with_multipliers


def _wage() -> BilevelProblem:
    """A firm that needs x units of work from two pools; the price of the last unit is the wage."""
    return BilevelProblem(
        upper=lambda x, y: 0.0 * x,
        lower=lambda x, y: jnp.array([1.0, 3.0]) @ y + 0.5 * jnp.sum(y**2),
        inequality=lambda x, y: x - jnp.sum(y),
        x_set=Box(0.1, 3.0),
        y_set=Box([0.0, 0.0], [1.0, np.inf]),
        name="wage",
    )


def _wage_by_hand(x: float) -> float:
    """Pool 0 alone up to one unit (its marginal cost 1 + y), then pool 1 (3 + y)."""
    return 1.0 + x if x <= 1.0 else 3.0 + (x - 1.0)


@pytest.mark.slow
def test_a_quadratic_followers_price_in_the_objective() -> None:
    problem = with_multipliers(_wage(), lambda x, pair: pair["inequality"][0] + (x - 2.5) ** 2)
    result = solve(problem, 1.7, progress=False)
    assert result.success, result
    grid = np.linspace(0.1, 3.0, 2901)
    values = np.array([_wage_by_hand(x) + (x - 2.5) ** 2 for x in grid])
    np.testing.assert_allclose(result.upper_value, values.min(), atol=1e-4)
    np.testing.assert_allclose(result.y["inequality"][0], _wage_by_hand(float(result.x)), atol=1e-3)
    assert result.lower_value < 1e-6  # the gap of duality


def test_a_linear_followers_prices_agree_with_highs() -> None:
    cost, rows = np.array([2.0, 3.0, 1.0]), np.array([[1.0, 1.0, 0.5], [0.2, 1.0, 1.0]])

    def lower(x: Any, y: Any) -> Any:
        return jnp.asarray(cost) @ y + x[0] * y[2]

    plain = BilevelProblem(
        upper=lambda x, y: 0.0 * x[0],
        lower=lower,
        equality=lambda x, y: jnp.asarray(rows) @ y - jnp.array([2.0, 1.0]) - x[1] * jnp.array([1.0, 0.0]),
        x_set=Box([0.0, 0.0], [2.0, 1.0]),
        y_set=Box(np.zeros(3), np.full(3, np.inf)),
    )

    def upper(x: Any, pair: Any) -> Any:
        return (pair["equality"][0] + 1.5) ** 2 + (x[0] - 0.4) ** 2 + (x[1] - 0.5) ** 2 + 0.1 * pair["y"][0]

    result = solve(with_multipliers(plain, upper), [1.0, 0.2], progress=False)
    assert result.success, result
    best = np.inf
    for a in np.linspace(0, 2, 21):
        for b in np.linspace(0, 1, 21):
            own = scipy.optimize.linprog(
                cost + np.array([0.0, 0.0, a]), A_eq=rows, b_eq=np.array([2.0 + b, 1.0]), method="highs"
            )
            price = -own.eqlin.marginals  # L = g + nu (Ay - b)
            best = min(best, (price[0] + 1.5) ** 2 + (a - 0.4) ** 2 + (b - 0.5) ** 2 + 0.1 * own.x[0])
    assert result.upper_value <= best + 1e-3


def test_followers_of_other_kinds_are_refused() -> None:
    def with_lower(lower: Any, **more: Any) -> BilevelProblem:
        given = {"upper": lambda x, y: y, "x_set": Box(0.0, 1.0), "y_set": Reals()} | more
        return BilevelProblem(lower=lower, **given)

    def upper(x: Any, pair: Any) -> Any:
        return pair["y"]

    with pytest.raises(ProblemError, match="lower must be quadratic"):
        with_multipliers(with_lower(lambda x, y: y**4), upper)
    with pytest.raises(ProblemError, match="inequality must be affine"):
        with_multipliers(with_lower(lambda x, y: y**2, inequality=lambda x, y: y**2 - x), upper)
    with pytest.raises(ProblemError, match="BilevelProblem"):
        with_multipliers(None, upper)  # type: ignore[arg-type]
