"""Both formulations of the design problem: sizes, and the travellers' answer against Clarabel."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import blocc
from blocc._lib.compiled import compile_ahead
from blocc._lib.precision import double_precision
from blocc.errors import ProblemError
from blocc.inner.interior_point import InteriorPoint
from blocc.inner.pdhg import PrimalDualHybridGradient
from blocc.inner.protocol import InnerCode
from blocc.lagrangian import Multipliers, residuals, weights
from blocc.sets import Box
from blocc.simple_sets import Ball
from blocc.transport.travellers.flows import market_flows
from blocc.transport.travellers.formulation import (
    SHARE_FLOOR,
    aggregated_problem,
    extended_negative_entropy,
    full_problem,
)
from selections import few
from transport_reference import random_network, solve_lower_level, solve_lower_level_full, three_nodes

FORMS = {"full": full_problem, "aggregated": aggregated_problem}
ORACLES = {"interior-point": InteriorPoint(), "pdhg": PrimalDualHybridGradient()}
CASES = [("three", "full"), ("three", "aggregated"), ("random", "aggregated")]
NETWORKS = {"three": three_nodes(), "random": random_network(3, n_nodes=4, zero_demand=True)}


@cache
def solver(network, form, oracle="interior-point"):
    """The problem and a compiled ``solve(x, upper, lower, tolerance)``."""
    problem, method = FORMS[form](NETWORKS[network]), ORACLES[oracle]
    flat = problem.flat

    def function(x, upper, lower, warm, tolerance):
        return method.solve(flat, x, weights(flat)._replace(upper=upper, lower=lower), warm, tolerance)

    with double_precision():
        number, cold = jnp.asarray(1.0), method.cold(flat)
        compiled, _ = compile_ahead(function, jnp.zeros(flat.n_x), number, number, cold, number)

    def call(x, upper=0.0, lower=1.0, tolerance=1e-9):
        with double_precision():
            numbers = jnp.asarray(float(upper)), jnp.asarray(float(lower))
            found = compiled(jnp.asarray(x, jnp.float64), *numbers, cold, jnp.asarray(tolerance))
            return jax.tree.map(np.asarray, found)

    return problem, call


def capacities(network):
    """Capacities that are scarce on some links and plentiful on others, in the network's units."""
    typical = network.demand.sum() / network.n_links
    return typical * np.random.default_rng(0).uniform(0.3, 3.0, (3, network.n_links))


# --- sizes ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_full_size_is_the_papers_less_one_dependent_row_for_each_market(network):
    flat = full_problem(network).flat
    assert flat.n_x + flat.n_y == network.sizes.variables
    assert flat.n_inequality == network.n_links
    assert flat.n_inequality + flat.n_equality == network.sizes.constraints - network.n_markets


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_aggregated_size(network):
    flat = aggregated_problem(network).flat
    origins = len(set(network.origin.tolist()))
    assert flat.n_y == origins * network.n_links + network.n_markets
    assert flat.n_equality == origins * (network.n_nodes - 1)
    assert flat.n_inequality == network.n_links


@pytest.mark.slow
def test_the_rows_left_out_are_implied():
    network = NETWORKS["random"]
    problem = full_problem(network)
    with double_precision():
        zeros = jnp.zeros(network.n_links), jnp.zeros(problem.flat.n_y)
        rows = np.asarray(jax.jacrev(problem.flat.equality, argnums=1)(*zeros))
    assert np.linalg.matrix_rank(rows) == len(rows)
    # Adding all rows of a market gives minus the row of its origin: what leaves it, less its share.
    summed = rows.reshape(network.n_markets, network.n_nodes - 1, -1).sum(axis=1)
    for k, row in enumerate(summed):
        flow, share = row[: -network.n_markets].reshape(network.n_markets, -1), row[-network.n_markets :]
        at_origin = (network.tail == network.origin[k]).astype(float) - (network.head == network.origin[k])
        assert (flow[k] == -at_origin).all()
        assert np.count_nonzero(flow) == np.count_nonzero(at_origin)
        assert (share == np.eye(network.n_markets)[k]).all()


# --- the travellers' answer -----------------------------------------------------------------------------------
@pytest.mark.parametrize(("network", "form"), few(CASES, ("random", "aggregated")))
def test_agrees_with_clarabel(network, form):
    problem, solve = solver(network, form)
    reference = {"full": solve_lower_level_full, "aggregated": solve_lower_level}[form]
    for x in capacities(NETWORKS[network]):
        found, expected = solve(x), reference(NETWORKS[network], x)
        assert found.code == InnerCode.CONVERGED
        assert found.value == pytest.approx(expected.value, abs=1e-6)
        assert np.abs(problem.y_set.unravel(found.y)["share"] - expected.share).max() < 1e-6
        assert np.abs(found.multipliers.inequality - expected.price).max() < 1e-6


@pytest.mark.slow
def test_the_penalised_problem_is_the_lower_level_with_a_longer_alternative():
    network, gamma = three_nodes(), 4.0
    problem, solve = solver("three", "aggregated")
    x = np.full(6, 0.7)
    found = solve(x, upper=1.0, lower=gamma)
    expected = solve_lower_level(network, x, network.alternative_time + network.revenue / gamma)
    assert np.abs(problem.y_set.unravel(found.y)["share"] - expected.share).max() < 1e-6
    assert np.abs(found.multipliers.inequality / gamma - expected.price).max() < 1e-6


@pytest.mark.slow
def test_both_forms_agree():
    network = three_nodes()
    (full, solve_full), (aggregated, solve_aggregated) = solver("three", "full"), solver("three", "aggregated")
    _, row = network.by_origin
    for x in capacities(network):
        one, two = solve_full(x), solve_aggregated(x)
        y_one, y_two = full.y_set.unravel(one.y), aggregated.y_set.unravel(two.y)
        assert one.value == pytest.approx(two.value, abs=1e-9)
        assert np.abs(y_one["share"] - y_two["share"]).max() < 1e-7
        assert np.abs(one.multipliers.inequality - two.multipliers.inequality).max() < 1e-6
        summed = np.zeros_like(y_two["flow"])
        np.add.at(summed, row, network.demand[:, None] * y_one["flow"])
        with double_precision():
            assert aggregated.lower(x, {"flow": summed, "share": y_one["share"]}) == pytest.approx(one.value, abs=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_aggregated_answer_solves_the_full_form(network):
    """Flows taken apart, the same prices, and demand times the costs from the origin meet the full KKT conditions."""
    data = NETWORKS[network]
    full, (aggregated, solve) = full_problem(data), solver(network, "aggregated")
    _, row = data.by_origin
    measure = jax.jit(lambda x, y, multipliers: residuals(full.flat, x, y, multipliers, weights(full.flat)))
    for x in capacities(data):
        found = solve(x, tolerance=1e-11)
        y = aggregated.y_set.unravel(found.y)
        costs = aggregated.unravel_multipliers("equality", found.multipliers.equality)
        apart = {"flow": market_flows(data, y["flow"], y["share"]).toarray(), "share": y["share"]}
        equality = (data.demand[:, None] * costs[row]).ravel()
        with double_precision():
            point = jnp.asarray(full.y_set.ravel(apart))
            multipliers = Multipliers(jnp.asarray(found.multipliers.inequality), jnp.asarray(equality))
            assert max(measure(jnp.asarray(x), point, multipliers)) < 1e-6
            assert full.flat.lower(jnp.asarray(x), point) == pytest.approx(found.value, abs=1e-7)


@pytest.mark.parametrize(("network", "form"), CASES)
def test_price_is_what_capacity_saves(network, form):
    _, solve = solver(network, form)
    x, step = capacities(NETWORKS[network])[0], 1e-4
    price = solve(x, tolerance=1e-11).multipliers.inequality
    assert price.max() > 0.1
    for a, direction in enumerate(np.eye(len(x))):
        more, less = (solve(x + sign * step * direction, tolerance=1e-11).value for sign in (1, -1))
        assert (more - less) / (2 * step) == pytest.approx(-price[a], abs=1e-6)


def test_multipliers_of_the_nodes_are_costs_from_the_origin():
    network = three_nodes()
    aggregated, solve = solver("three", "aggregated")
    _, solve_full = solver("three", "full")
    x = np.full(6, 0.7)
    found = solve(x)
    costs = aggregated.unravel_multipliers("equality", found.multipliers.equality)
    expected = network.path_costs(network.time + found.multipliers.inequality)
    # Origins 0, 1, 2 with the two other nodes each are, in this network, exactly the markets.
    assert np.abs(costs.ravel() - expected).max() < 1e-6
    share = aggregated.y_set.unravel(found.y)["share"]
    assert np.abs(share - 1 / (1 + np.exp(expected - network.alternative_time))).max() < 1e-6
    by_market = solve_full(x).multipliers.equality.reshape(6, 2)
    at_destination = by_market[np.arange(6), network.destination - (network.destination > network.origin)]
    assert np.abs(at_destination - network.demand * expected).max() < 1e-6


@pytest.mark.slow
def test_closed_links():
    """Without capacity a link's price is only known to be large; value, shares and the other prices are exact."""
    problem, solve = solver("three", "aggregated", "pdhg")
    x = np.array([0.88, 0.0, 0.88, 0.0, 0.0, 0.0])
    found, expected = solve(x, tolerance=1e-7), solve_lower_level(three_nodes(), x)
    assert found.code == InnerCode.CONVERGED
    assert found.value == pytest.approx(expected.value, abs=1e-8)
    assert np.abs(problem.y_set.unravel(found.y)["share"] - expected.share).max() < 1e-8
    assert np.abs(found.multipliers.inequality - expected.price)[x > 0].max() < 1e-5
    assert (found.multipliers.inequality[x == 0] > 10).all()


def test_reference_when_nobody_can_travel():
    network = three_nodes()
    for reference in (solve_lower_level, solve_lower_level_full):
        found = reference(network, np.zeros(6))
        assert (found.share == 0).all()
        assert (found.flow == 0).all()
        assert np.isnan(found.price).all()
        assert found.value == pytest.approx(12.0)  # six markets at 3 - 1 each


def test_markets_without_demand_stay_at_home():
    network = NETWORKS["random"]
    empty = np.flatnonzero(network.demand == 0)
    assert len(empty) == 1
    for build in FORMS.values():
        assert (build(network).y_set.sets["share"].upper[empty] == 0).all()
    assert (full_problem(network).y_set.sets["flow"].upper[empty] == 0).all()
    aggregated, solve = solver("random", "aggregated")
    assert (aggregated.y_set.unravel(solve(capacities(network)[0]).y)["share"][empty] == 0).all()


# --- the whole problem ----------------------------------------------------------------------------------------
@pytest.mark.slow
def test_general_solver_designs_the_full_form():
    """To the closed form: capacity sigmoid(2) between nodes 1 and 2 alone, utility 1.7616.

    From capacities that are the same everywhere a local optimum is reached, which builds the second pair of links too.
    """
    network = three_nodes()
    problem = full_problem(network, x_set=Box(1e-4, np.inf, shape=6))
    result = blocc.solve(problem, np.array([0.7, 0.01, 0.7, 0.01, 0.01, 0.01]), tolerance=1e-3)
    assert result.success
    assert -result.upper_value > 1.75
    share = solve_lower_level(network, result.x).share
    assert np.abs(result.y["share"] - share).max() < 1e-4
    assert (result.x < 2e-3).tolist() == [False, True, False, True, True, True]


# --- the entropy ----------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_entropy_is_exact_inside_and_finite_everywhere():
    with double_precision():
        slope = jax.jit(jax.vmap(jax.grad(extended_negative_entropy)))
        bend = jax.jit(jax.vmap(jax.grad(jax.grad(extended_negative_entropy))))
        inside = jnp.asarray([1e-11, 1e-6, 0.3, 0.5, 1 - 1e-6])
        assert np.allclose(slope(inside), np.log(inside / (1 - inside)), rtol=1e-9)
        assert np.allclose(bend(inside), 1 / (inside * (1 - inside)), rtol=1e-9)
        ends = jnp.asarray([-0.1, 0.0, SHARE_FLOOR, 1.0, 1.1])
        assert np.isfinite(extended_negative_entropy(ends)).all()
        assert np.isfinite(slope(ends)).all()
        assert (np.asarray(bend(ends)) > 0).all()
        assert np.abs(extended_negative_entropy(jnp.asarray([0.0, 1.0]))).max() < 1e-10
        around = SHARE_FLOOR * (1 + jnp.asarray([-1e-9, 1e-9]))
        assert np.diff(slope(around))[0] == pytest.approx(2e-9, rel=1e-2, abs=1e-12)


# --- arguments ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("build", FORMS.values(), ids=FORMS)
def test_arguments(build):
    network = three_nodes()
    assert build(network).name.startswith("three nodes")
    assert build(network, name="mine").name == "mine"
    assert (build(network, upper_bound=[1, 2, 3, 4, 5, 6]).x_set.upper == np.arange(1, 7)).all()
    chosen, oracle = Ball(np.ones(6), 0.5), object()
    problem = build(network, x_set=chosen, oracle=oracle)
    assert problem.x_set is chosen
    assert problem.oracle is oracle
    with pytest.raises(ProblemError, match="upper_bound or x_set"):
        build(network, upper_bound=1.0, x_set=chosen)
    with pytest.raises(ProblemError, match="one capacity for each link"):
        build(network, x_set=Box(0.0, 1.0, shape=5))
    with pytest.raises(ProblemError, match="must be a set"):
        build(network, x_set=[0, 1])
