"""The structured oracle against the general one, on the same problem in the same layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import blocc
from blocc._lib.compiled import compile_ahead
from blocc._lib.precision import double_precision
from blocc.inner.interior_point import InteriorPoint
from blocc.inner.protocol import InnerCode, InnerSolution
from blocc.lagrangian import weights
from blocc.sets import Box
from blocc.transport.travellers.formulation import OriginOracle, aggregated_problem, structured_problem
from transport_reference import three_nodes

THREE = three_nodes()
FLAT = aggregated_problem(THREE).flat
FOLLOWER, PENALISED = (0.0, 1.0), (1.0, 30.0)
ROOMY = np.array([0.3, 0.2, 0.4, 0.5, 0.1, 0.6])
TIGHT = np.array([0.05, 0.3, 0.9, 0.02, 0.4, 0.3])
CLOSED = np.array([0.3, 0.0, 0.4, 0.5, 0.0, 0.6])
_compiled: dict[str, Any] = {}


def answer(oracle: Any, x: np.ndarray, pair: tuple[float, float]) -> InnerSolution:
    """What the oracle says at capacities x for weights s and gamma; compiled once for each kind of oracle."""
    name = type(oracle).__name__
    with double_precision():
        w = weights(FLAT, *pair)
        if name not in _compiled:
            _compiled[name], _ = compile_ahead(
                lambda x, w: oracle.solve(FLAT, x, w, oracle.cold(FLAT), np.float64(1e-11)), x, w
            )
        return _compiled[name](x, w)


@pytest.mark.parametrize("pair", [FOLLOWER, PENALISED], ids=["follower", "penalised"])
@pytest.mark.parametrize("x", [ROOMY, TIGHT, CLOSED], ids=["roomy", "tight", "closed links"])
def test_agrees_with_the_general_oracle(x: np.ndarray, pair: tuple[float, float]) -> None:
    special, general = answer(OriginOracle(THREE), x, pair), answer(InteriorPoint(), x, pair)
    assert int(special.code) == int(general.code) == InnerCode.CONVERGED
    gamma = pair[1]
    np.testing.assert_allclose(special.y, general.y, atol=1e-7)
    np.testing.assert_allclose(special.value, general.value, atol=1e-7 * gamma)
    built = x > 0  # a closed link has many prices: every one that keeps it empty
    mine, other = special.multipliers, general.multipliers
    np.testing.assert_allclose(mine.inequality[built], other.inequality[built], atol=1e-7 * gamma)
    np.testing.assert_allclose(mine.equality, other.equality, atol=1e-7 * gamma)


@pytest.mark.parametrize("pair", [FOLLOWER, PENALISED], ids=["follower", "penalised"])
@pytest.mark.parametrize("x", [ROOMY, TIGHT, CLOSED], ids=["roomy", "tight", "closed links"])
def test_residuals_come_from_the_problem(x: np.ndarray, pair: tuple[float, float]) -> None:
    found = answer(OriginOracle(THREE), x, pair)
    assert max(float(part) for part in found.residuals) <= 1e-7


def test_closed_links_carry_nobody() -> None:
    flow = np.asarray(answer(OriginOracle(THREE), CLOSED, FOLLOWER).y)[:18].reshape(3, 6)
    np.testing.assert_array_equal(flow[:, CLOSED == 0], 0.0)


def test_price_of_a_closed_link_is_the_least() -> None:
    """Without a link 1-2 every way to 2 is long, so the link is worth something; without 1-3 the way over 2 is best."""
    x = np.array([0.0, 0.3, 0.4, 0.5, 0.3, 0.6])
    mine, general = (answer(oracle, x, FOLLOWER) for oracle in (OriginOracle(THREE), InteriorPoint()))
    assert 0 < float(mine.multipliers.inequality[0]) <= float(general.multipliers.inequality[0]) + 1e-7
    np.testing.assert_allclose(mine.y, general.y, atol=1e-6)


def test_nothing_built() -> None:
    """Nobody travels: the flows and the shares are zero, and the residuals hold all the same."""
    found = answer(OriginOracle(THREE), np.zeros(6), FOLLOWER)
    np.testing.assert_allclose(found.y, 0.0, atol=1e-12)
    assert int(found.code) == InnerCode.CONVERGED
    assert max(float(part) for part in found.residuals) <= 1e-7


@pytest.mark.slow
def test_solve_designs_with_it() -> None:
    problem = structured_problem(THREE, x_set=Box(1e-6, np.inf, shape=6))
    result = blocc.solve(problem, np.full(6, 0.6), gamma=30.0, progress=False)
    assert result.status is blocc.Status.PENALTY_OPEN  # stationary, at a gamma that still hides something
    assert -1.7616 <= result.upper_value < 0
