"""Network design as a bilevel problem: the same answers by `solve`, by other methods and by `expand_network`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blocc import compare, solve
from blocc._lib.precision import double_precision
from blocc.errors import OptionError
from blocc.inner.choice import general_oracles
from blocc.lagrangian import weights
from blocc.roads import assign, expand_network, road_problem
from clocks import counted
from road_designs import OPTIONS, small_roads

GIVEN = {name: value for name, value in OPTIONS.items() if name != "starts"}


@pytest.mark.slow
def test_the_oracle_agrees_with_a_general_solver() -> None:
    problem = road_problem(small_roads(), **GIVEN)
    flat, x = problem.flat, np.array([0.6, 0.2])
    general = general_oracles(flat)[0]
    solved = jax.jit(lambda at, member: general.solve(flat, at, member, general.cold(flat), jnp.asarray(1e-10)))
    for member in (weights(flat), weights(flat, 1.0, 5.0)):
        with double_precision():
            own = problem.oracle.solve(flat, jnp.asarray(x), member, problem.oracle.cold(flat), 1e-10)
            other = solved(jnp.asarray(x), member)
        assert int(own.code) == 0
        assert max(map(float, own.residuals)) < 1e-8
        assert float(own.value) == pytest.approx(float(other.value), rel=1e-8)
        np.testing.assert_allclose(own.gradient_x, other.gradient_x, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_solve_finds_what_expand_network_finds() -> None:
    network = small_roads()
    design = expand_network(network, **OPTIONS)
    result = solve(road_problem(network, **GIVEN), [0.1, 0.1], progress=False)
    assert result.success
    assert result.upper_value == pytest.approx(design.objective, rel=1e-6)
    np.testing.assert_allclose(result.x, design.expansion[[1, 2]], atol=2e-3)
    again = assign(network, capacity=network.capacity + np.insert(np.zeros(3), 1, result.x))
    np.testing.assert_allclose(result.y.sum(axis=0), again.flow, atol=1e-4)
    assert design.bound is not None
    assert result.upper_value >= design.bound


@pytest.mark.slow
def test_a_budget_binds_in_both() -> None:
    network = small_roads()
    given = {"candidates": [2, 4], "cost": [0.3, 0.5], "exponent": [1.5, 2.0], "max_expansion": 3.0, "budget": 0.05}
    design = expand_network(network, **given, starts=1)
    result = solve(road_problem(network, **given), [0.01, 0.01], progress=False)
    assert design.cost == pytest.approx(0.05, rel=1e-6)
    assert result.upper_value == pytest.approx(design.objective, rel=1e-5)


@pytest.mark.slow
def test_other_methods_run_on_it() -> None:
    problem = road_problem(small_roads(), **GIVEN, max_expansion=3.0)
    with counted(step=1e-3):
        found = compare(problem, [0.1, 0.1], methods=["blocc", "bvfsm"], time_limit=3.0)
    assert found["blocc"].eligible
    assert found.best is not None
    assert found.best.method == "blocc"
    assert found["bvfsm"].eligible


def test_wrong_arguments() -> None:
    with pytest.raises(OptionError, match="no link 99"):
        road_problem(small_roads(), candidates=[99])
    with pytest.raises(OptionError, match="costs nothing"):
        road_problem(small_roads(), candidates=[2], cost=0.0)
