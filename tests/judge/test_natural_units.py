"""What x is measured by is what f(x, y(x)) varies by: not its set, not the other functions, and no jump beside it."""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, Reals, Result, solve, verify
from blocc._lib.precision import double_precision
from blocc.corners import steady
from blocc.local.scales import resolved

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import outside_hostile
from outside_case import Case
from outside_forgeries import examined, forged


def wells(width: float, box: bool) -> BilevelProblem:
    """Least value -1/4 at +-sqrt(1/2) widths; a maximum at zero."""
    return BilevelProblem(
        upper=lambda x, y: -((y / width) ** 2) + (y / width) ** 4,
        lower=lambda x, y: (y - x) ** 2,
        x_set=Box(-4.0, 4.0) if box else Reals(),
        y_set=Reals(),
    )


@pytest.mark.parametrize(("width", "box"), [(1e-6, True), (1e-4, False), (1e7, False)])
def test_wells_of_any_width_are_found_from_their_maximum(width: float, box: bool) -> None:
    problem = wells(width, box)
    result = solve(problem, 0.0)
    assert result.success, result.message
    np.testing.assert_allclose(result.upper_value, -0.25, rtol=1e-6)
    assert verify(problem, result).ok


def accepted(case: Case, x: np.ndarray) -> bool:
    """Whether a perfect looking result at x passes, with the numbers that `verify` itself finds."""
    result: Result = forged(case, x)
    return bool(examined("", case, result).ok)


@pytest.mark.parametrize("seed", range(2))
def test_slopes_in_narrow_wells_do_not_pass(seed: int) -> None:
    case = outside_hostile.narrow_wells(np.random.default_rng(seed))
    t, w, q = case.data["t"], case.data["w"], case.data["q"]
    assert not accepted(case, t)
    assert not accepted(case, t + 0.9 * w * q)
    assert accepted(case, np.array(case.solution))


@pytest.mark.parametrize("height", [1.0, 1e5])
def test_a_jump_hides_no_slope_along_it(height: float) -> None:
    """The follower switches y off where x0 + x1 > 1: the best point of that line is (3/4, 1/4)."""
    problem = BilevelProblem(
        upper=lambda x, y: -5.0 * height * y + (x[0] - 2.0) ** 2 + (x[1] - 1.5) ** 2,
        lower=lambda x, y: (x[0] + x[1] - 1.0) * y,
        x_set=Box(-4.0, 4.0, shape=2),
        y_set=Box(0.0, 1.0),
    )
    result = solve(problem, np.array([1.0, 0.0]))
    assert result.success, result.message
    np.testing.assert_allclose(result.x, [0.75, 0.25], atol=1e-6)
    assert verify(problem, result).ok


def test_units_are_those_over_which_curvature_stays() -> None:
    far = np.array([0.0, 0.3, 0.0])

    def gradient(x: np.ndarray) -> np.ndarray:
        """Of a parabola, of cos(1e4 z), and of a power of four at its minimum."""
        return np.array([2e6 * x[0], -1e4 * np.sin(1e4 * x[1]), 4.0 * x[2] ** 3])

    found = resolved(gradient, far, np.ones(3))
    assert found[0] == 1.0
    assert 1e-4 <= found[1] <= 1.01e-2  # a hundred times 1e-4, over which the cosine bends
    assert found[2] == 1.0


@pytest.mark.parametrize(
    "root",
    [
        lambda z: jnp.sqrt(z**2),
        lambda z: (z**2) ** 0.5,
        lambda z: jnp.linalg.norm(jnp.stack([z])),
        lambda z: jnp.sqrt(4.0 * (z * z) / 4.0),
        lambda z: jnp.sqrt(jnp.square(z).reshape(1)).sum(),
    ],
)
def test_the_root_of_a_square_is_an_absolute_value(root) -> None:
    with double_precision():
        for z in (-0.7, 0.0, 1.3):
            np.testing.assert_allclose(steady(root)(z), abs(z), rtol=1e-15)
        assert np.isfinite(jax.grad(steady(root))(0.0))
        np.testing.assert_allclose(jax.grad(steady(root))(-2.0), -1.0)


def test_other_roots_stay_what_they_are() -> None:
    roots = (lambda z: jnp.sqrt(1.0 + z**2), lambda z: jnp.sqrt(z**2 + (z - 1.0) ** 2), lambda z: (z**2) ** 0.75)
    with double_precision():
        for root in roots:
            for z in jnp.array([-0.7, 0.2]):
                assert float(steady(root)(z)) == float(root(z))
