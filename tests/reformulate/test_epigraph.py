"""Kinks as their pieces: the same problem, the same answers, prices that add up, and kinks that must stay."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, Reals, solve
from blocc._lib.precision import double_precision
from blocc.judge.verify import verify
from blocc.lagrangian import Multipliers, figures
from blocc.reformulate.epigraph import epigraph_form

N = 6
POINTS = np.array([3.0, -2.0, 0.5, 1.5, -1.0, 2.5])


def neighbours(y):
    return y[1:] - y[:-1]


def rows_with_kinks(x, y):
    return {"steps": jnp.abs(neighbours(y)) - x[1], "sums": jnp.maximum(y[0] + y[1], -2.0 * y[2]) - 4.0 + 0.0 * x[0]}


def rows_by_hand(x, y):
    step = neighbours(y)
    total = jnp.stack([y[0] + y[1], -2.0 * y[2]])
    return jnp.concatenate([step - x[1], -step - x[1], total - 4.0])


def made(lower, inequality=None, **changes) -> BilevelProblem:
    return BilevelProblem(
        upper=lambda x, y, *data: jnp.sum((y - 0.3 * POINTS) ** 2) + 0.1 * jnp.sum((x - 0.5) ** 2),
        lower=lower,
        inequality=inequality,
        **{"x_set": Box(0.1, 2.0, shape=2), "y_set": Reals(N), **changes},
    )


def distances(x, y, *data):
    return 0.5 * jnp.sum((y - POINTS * x[0]) ** 2)


def variation(x, y, *data):
    """Total variation, and a clamp from below: a nested kink."""
    weight = 1.0 if not data else data[0]["weight"]
    floor = jnp.maximum(jnp.maximum(y[0], y[1]), -1.0)
    return distances(x, y) + weight * x[1] * jnp.sum(jnp.abs(neighbours(y))) - 0.1 * jnp.minimum(-floor, y[2])


@pytest.mark.slow
def test_rows_become_two_and_prices_add_up() -> None:
    """The same answer as with both rows written by hand, and multipliers in the structure of the user's rows."""
    kinked, by_hand = made(distances, rows_with_kinks), made(distances, rows_by_hand)
    found = epigraph_form(kinked)
    assert found is not None
    assert found.n_epigraph == 0
    assert found.problem.flat.n_inequality == 2 * N
    result, plain = solve(kinked, [1.0, 0.5]), solve(by_hand, [1.0, 0.5])
    assert result.success, result.message
    assert "rounded" not in result.message
    np.testing.assert_allclose(result.x, plain.x, atol=1e-6)
    np.testing.assert_allclose(result.y, plain.y, atol=1e-6)
    both = np.asarray(plain.multipliers.inequality)
    np.testing.assert_allclose(
        result.multipliers.inequality["steps"], both[: N - 1] + both[N - 1 : 2 * N - 2], atol=1e-5
    )
    # No active row is at its kink: the problem's own derivative proves the answer.
    prices = np.concatenate([np.ravel(result.multipliers.inequality[name]) for name in ("steps", "sums")])
    with double_precision():
        told = figures(kinked.flat, result.x, result.y, Multipliers(prices, np.zeros(0)))
    assert float(told.residuals.stationarity) < 1e-6


WEIGHED = made(variation, data={"weight": np.asarray(1.0)}, x_set=Box([0.1, 0.8], [2.0, 2.0]))


def test_kinks_of_the_objective_get_heights() -> None:
    """Values agree at every point, for all data, and heights are the smallest that serve."""
    for weight in (1.0, 1.5):
        target = WEIGHED.with_data({"weight": weight})
        found = epigraph_form(target)
        assert found is not None
        generator = np.random.default_rng(0)
        with double_precision():
            for _ in range(3):
                x, y = generator.uniform(0.1, 2.0, 2), generator.normal(size=N)
                raised = found.raised(x, y)
                assert float(found.problem.flat.lower(x, raised)) == pytest.approx(float(target.flat.lower(x, y)))
                assert float(np.max(found.problem.flat.inequality(x, raised))) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.slow
def test_an_answer_at_kinks_is_proven_by_the_best_subgradient() -> None:
    target = WEIGHED.with_data({"weight": 1.5})
    result = solve(target, [1.0, 1.0])
    assert result.success, result.message
    assert "rounded" not in result.message
    assert np.abs(neighbours(result.y)).min() < 1e-7
    assert max(result.certificate.stationarity, result.certificate.feasibility) < 1e-6
    checked = verify(target, result)
    assert checked.ok, str(checked)
    moved = replace(result, certificate=replace(result.certificate, stationarity=0.1))
    assert not verify(target, moved).ok


@pytest.mark.parametrize(
    ("lower", "inequality"),
    [
        (lambda x, y: distances(x, y) - 0.1 * jnp.sum(jnp.abs(y)), None),
        (distances, lambda x, y: 1.0 - jnp.abs(neighbours(y))),
        (lambda x, y: distances(x, y) + jnp.sum(jnp.where(y > 0.0, y, -y)), None),
        (lambda x, y: distances(x, y) + (x[0] - 1.0) * jnp.sum(jnp.abs(y)), None),
    ],
    ids=["concave", "a hole", "where", "either sign"],
)
def test_other_kinks_stay(lower, inequality) -> None:
    assert epigraph_form(made(lower, inequality)) is None


def test_rows_with_several_kinks_get_heights() -> None:
    """A norm in a row: the pieces of all its terms would be as many rows as there are signs."""
    found = epigraph_form(made(distances, lambda x, y: jnp.sum(jnp.abs(y)) - 2.0 * x[1]))
    assert found is not None
    assert found.n_epigraph == N
    assert found.split.size == 0
