"""Functions with rounded corners: which operations are found, what they become, and problems that need them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, Reals, solve
from blocc._lib.precision import double_precision
from blocc.corners import kinks_of
from blocc.judge.verify import verify
from blocc.reformulate.smoothing import WIDTHS, smoothed


def problem(lower, upper=lambda x, y: (x - 1.0) ** 2 + y**2, **changes) -> BilevelProblem:
    return BilevelProblem(upper=upper, lower=lower, **{"x_set": Box(-5.0, 5.0), "y_set": Reals(), **changes})


KINKED = {
    "abs": (lambda x, y: jnp.abs(y - x) + 0.05 * y**2, {"abs"}),
    "maximum": (lambda x, y: jnp.maximum(2.0 * (y - x), x - y) + 0.05 * y**2, {"max"}),
    "relu": (lambda x, y: jax.nn.relu(y - x) + 2.0 * jax.nn.relu(x - y) + 0.05 * y**2, {"max"}),
    "where": (lambda x, y: jnp.where(y > x, y - x, x - y) + 0.05 * y**2, {"where"}),
    "minimum": (lambda x, y: -jnp.minimum(x - y, y - x) + 0.05 * y**2, {"min"}),
}


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("maximum", "relu", "minimum", "where")]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["abs", *SLOW])
def test_kinks_are_found_and_followed(name: str) -> None:
    """y = x while |x| stays below ten, whatever the kink is written with."""
    lower, kinds = KINKED[name]
    kinked = problem(lower)
    assert kinks_of(kinked) == {"lower": kinds}
    result = solve(kinked, 2.0)
    assert result.success, result.message
    assert result.x == pytest.approx(0.5, abs=1e-5)
    assert result.y == pytest.approx(0.5, abs=1e-5)
    assert ("rounded" in result.message) == (name == "where")  # all others have an epigraph form
    assert verify(kinked, result).ok, str(verify(kinked, result))


def test_smooth_functions_and_kinks_in_x_have_nothing_to_round() -> None:
    plain = problem(lambda x, y: (y - x) ** 2, upper=lambda x, y: jnp.abs(x - 1.0) + 0.1 * y**2)
    assert kinks_of(plain) == {}
    stable = problem(lambda x, y: jax.nn.logsumexp(jnp.stack([y, -y])) + (y - x) ** 2)
    assert kinks_of(stable) == {}


def test_rounded_values_are_close_and_data_pass_through() -> None:
    data = {"center": np.array([0.3, -0.2])}
    kinked = BilevelProblem(
        upper=lambda x, y, d: jnp.sum(y**2),
        lower=lambda x, y, d: jnp.sum(jnp.abs(y - d["center"]) + jnp.where(y > x, y - x, 0.0) + jnp.maximum(y, x) ** 2),
        inequality=lambda x, y, d: {"row": jnp.minimum(y, 2.0) - 3.0},
        x_set=Box(-1.0, 1.0, shape=2),
        y_set=Reals(2),
        data=data,
    )
    rounded = smoothed(kinked)
    generator = np.random.default_rng(0)
    with double_precision():
        for _ in range(20):
            x, y = (jnp.asarray(generator.normal(size=2)) for _ in range(2))
            for name in ("upper", "lower", "inequality"):
                exact, near = (getattr(each.flat, name)(x, y) for each in (kinked, rounded))
                np.testing.assert_allclose(near, exact, atol=20.0 * WIDTHS[-1] * (1.0 + np.abs(exact).max()))


@pytest.mark.slow
def test_a_concave_kink_is_named() -> None:
    result = solve(problem(lambda x, y: 0.05 * y**2 - jnp.abs(y - x)), 2.0)
    assert not result.success
    assert "lower (abs)" in result.message
