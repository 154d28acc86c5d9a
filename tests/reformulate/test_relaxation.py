"""Followers without a Slater point: named as such, relaxed by a reported amount, no success unless that is small."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, Reals, Status, solve
from blocc._lib.precision import double_precision
from blocc.reformulate.relaxation import relaxed


def squared() -> BilevelProblem:
    """y = 0 is the only feasible point, and no multiplier exists there."""
    return BilevelProblem(
        upper=lambda x, y: (x - 1.0) ** 2 + y,
        lower=lambda x, y: (y - 1.0) ** 2,
        inequality=lambda x, y: y**2,
        x_set=Box(-2.0, 2.0),
        y_set=Reals(),
    )


@pytest.mark.slow
def test_a_missing_slater_point_is_named() -> None:
    result = solve(squared(), 0.3)
    assert "no Slater point" in result.message or result.success
    assert result.status in (Status.STALLED, Status.CONVERGED)
    assert result.y == pytest.approx(0.0, abs=1e-3)
    if not result.success:
        assert "relaxed by 1e-08" in result.message


def test_only_the_inequalities_move() -> None:
    problem = BilevelProblem(
        upper=lambda x, y, d: x + jnp.sum(y),
        lower=lambda x, y, d: jnp.sum((y - d) ** 2),
        inequality=lambda x, y, d: {"a": y - x, "b": -y},
        equality=lambda x, y, d: y[0] - y[1],
        x_set=Box(0.0, 1.0),
        y_set=Reals(2),
        data=np.array([0.2, 0.4]),
    )
    wider = relaxed(problem, 0.25)
    with double_precision():
        x, y = jnp.asarray([0.5]), jnp.asarray([0.1, 0.3])
        np.testing.assert_allclose(wider.flat.inequality(x, y), problem.flat.inequality(x, y) - 0.25)
        for name in ("upper", "lower", "equality"):
            np.testing.assert_allclose(getattr(wider.flat, name)(x, y), getattr(problem.flat, name)(x, y))


def stiff() -> BilevelProblem:
    """``weight (b - x) + a <= room`` with ``b >= x`` leaves ``a <= room``, and no Slater point; the leader wants a."""
    return BilevelProblem(
        upper=lambda x, y, d: -y[0],
        lower=lambda x, y, d: -y[0],
        inequality=lambda x, y, d: jnp.stack([d["weight"] * (y[1] - x) + y[0] - d["room"], x - y[1]]),
        x_set=Box(0.0, 10.0),
        y_set=Box(np.zeros(2), np.array([50.0, 10.0])),
        data={"weight": 1.0, "room": 1.0},
    )


def test_a_relaxation_of_a_stiff_row_buys_the_leader_nothing() -> None:
    generator, problem = np.random.default_rng(3), stiff()
    for power in (9.0, 10.0, 11.0):
        room = float(generator.uniform(0.5, 3.0))
        one = problem.with_data({"weight": 10.0 ** (power + generator.uniform(-0.5, 0.5)), "room": room})
        for start in (1.0, float(generator.uniform(0.5, 3.0))):
            result = solve(one, start, progress=False)
            assert not result.success or result.upper_value >= -room - 1e-3, result
