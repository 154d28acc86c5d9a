"""The design problem in the space of prices: its derivatives, its assignment, and weak duality."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from blocc.transport.design.prices import FINEST, GAMMAS, descend, temperature_of
from blocc.transport.network.network import TransportNetwork
from transport_compiled import evaluate, load, lower_level, of_markets, price_problem, six_nodes
from transport_reference import three_nodes


def random_prices(network, seed, most=1.5):
    return np.random.default_rng(seed).uniform(0.0, most, network.n_links)


def slope(function, point, step):
    """Central differences of a function of the prices."""
    steps = step * np.eye(len(point))
    return np.array([(function(point + s) - function(point - s)) / (2.0 * step) for s in steps])


# --- derivatives -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("gamma", "temperature"), [(1.0, 0.1), (3.0, 0.1), (10.0, 0.03), (100.0, 0.01), (1e3, 1e-2)])
@pytest.mark.parametrize("closed", [False, True])
def test_gradient_by_finite_differences(gamma, temperature, closed):
    network = six_nodes(1)
    is_open = np.arange(network.n_links) % 4 != 1 if closed else np.ones(network.n_links, bool)
    prices = random_prices(network, 2) + 0.01
    found = evaluate(network, prices, gamma, temperature, is_open)
    expected = slope(
        lambda p: float(evaluate(network, p, gamma, temperature, is_open).value), prices, 1e-4 * temperature
    )
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(found.gradient, expected, rtol=1e-5, atol=1e-5 * scale)
    assert np.abs(found.gradient).max() > 1e-3
    assert (found.gradient[~is_open] == 0.0).all()
    assert (found.follower.flow[~is_open] == 0.0).all()


def test_the_penalised_see_costs_and_revenues():
    network, gamma, temperature = six_nodes(4), 7.0, 1e-3
    prices = random_prices(network, 4)
    found = evaluate(network, prices, gamma, temperature)
    follower = load(network, network.time + prices, temperature)
    other = replace(network, alternative_time=network.alternative_time + network.revenue / gamma)
    penalised = load(other, network.time + prices + network.cost / gamma, temperature)
    np.testing.assert_allclose(found.follower.flow, follower.flow, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.penalised.flow, penalised.flow, rtol=1e-10, atol=1e-12)
    value = gamma * float(penalised.value - follower.value) - float(network.demand @ network.revenue)
    assert float(found.value) == pytest.approx(value, rel=1e-10)


# --- travellers without capacities -----------------------------------------------------------------------------------
def net_arrivals(network, flow):
    return np.bincount(network.head, flow, network.n_nodes) - np.bincount(network.tail, flow, network.n_nodes)


@settings(derandomize=True, deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 10**6),
    temperature=st.sampled_from((0.1, 0.01, 1e-4, 1e-7)),
    closed=st.floats(0.0, 0.5),
    one_origin=st.booleans(),
)
def test_assigned_flows_conserve_and_shares_are_the_logit(seed, temperature, closed, one_origin):
    network = six_nodes(seed)
    if one_origin:
        network = replace(network, demand=np.where(network.origin == seed % 6, network.demand, 0.0))
    is_open = np.random.default_rng(seed).uniform(size=network.n_links) >= closed
    costs = network.time + random_prices(network, seed)
    found = load(network, costs, temperature, is_open)
    share, potential = of_markets(network, found.share), of_markets(network, found.potential)
    cheapest = network.path_costs(costs, is_open)
    reached = np.isfinite(cheapest)
    np.testing.assert_allclose(share[reached], expit(network.alternative_time - potential)[reached], rtol=1e-12)
    assert (share[~reached] == 0.0).all()
    # Smoothing lowers a cost, by no more than the temperature times the logarithm of the number of paths.
    below = cheapest[reached] - potential[reached]
    assert below.min(initial=0.0) >= -1e-12
    assert below.max(initial=0.0) <= temperature * np.log(200.0) + 1e-12
    travelling = network.demand * share
    expected = np.bincount(network.destination, travelling, 6) - np.bincount(network.origin, travelling, 6)
    assert found.flow.min() >= 0.0
    assert (found.flow[~is_open] == 0.0).all()
    np.testing.assert_allclose(net_arrivals(network, found.flow), expected, atol=1e-9)
    gain = network.demand * np.where(reached, np.logaddexp(0.0, network.alternative_time - potential), 0.0)
    assert float(found.value) == pytest.approx(float(network.demand @ (network.alternative_time - 1.0) - gain.sum()))


# --- weak duality ----------------------------------------------------------------------------------------------------
COLD = 1e-6


def smoothing(network, gamma, temperature=COLD):
    """How much both assignments together may gain by the temperature."""
    return gamma * temperature * float(network.demand.sum()) * np.log(200.0) + 1e-6


def penalty(network, capacity, gamma):
    """F_gamma at the capacities by two interior-point solutions; also the follower's prices and the penalised value."""
    follower = lower_level(network, capacity)
    penalised = lower_level(network, capacity, network.alternative_time + network.revenue / gamma)
    fixed = float(network.cost @ capacity - network.demand @ network.revenue)
    return fixed + gamma * float(penalised.value - follower.value), follower.point.price, float(penalised.value)


def between(network, capacity, prices, gamma, penalised_value):
    """Psi(x, p): the penalty function with the follower's value replaced by its dual bound at these prices."""
    dual = float(load(network, network.time + prices, COLD).value) - float(prices @ capacity)
    fixed = float(network.cost @ capacity - network.demand @ network.revenue)
    return fixed + gamma * (penalised_value - dual)


@settings(derandomize=True, deadline=None, max_examples=8)
@given(seed=st.integers(0, 10**6), gamma=st.sampled_from((1.0, 3.0, 10.0, 100.0)), spread=st.floats(0.0, 2.0))
def test_weak_duality(seed, gamma, spread):
    network, generator = six_nodes(seed), np.random.default_rng(seed)
    capacity = network.random_starts(1, seed)[0] * 10 ** generator.uniform(-spread, 0.0, network.n_links)
    small = smoothing(network, gamma)
    value, own_prices, penalised = penalty(network, capacity, gamma)
    # At the follower's own prices the bound is the penalty function itself, and no capacities do better than Phi.
    assert between(network, capacity, own_prices, gamma, penalised) == pytest.approx(value, abs=small + 1e-6 * gamma)
    assert float(evaluate(network, own_prices, gamma, COLD).value) <= value + small
    # Any other prices overestimate it, and their Phi lies below that.
    for prices in (np.zeros(network.n_links), random_prices(network, seed), own_prices * generator.uniform(0.5, 1.5)):
        middle = between(network, capacity, prices, gamma, penalised)
        assert middle >= value - small
        assert float(evaluate(network, prices, gamma, COLD).value) <= middle + small


@pytest.mark.parametrize("gamma", [3.0, 10.0, 100.0])
def test_descent_ends_where_both_sides_meet(gamma):
    """At a minimiser over the prices, capacities that the penalised travellers fill have a penalty of the same value.

    The follower's flows leave the same capacities out where its price is 0, so their penalty cannot be less.
    """
    network = three_nodes()
    is_open, prices = np.ones(network.n_links, bool), np.full(network.n_links, 0.5)
    evaluations = 0

    def counted(p, able):
        nonlocal evaluations
        evaluations += 1
        return evaluate(network, p, g, temperature, able)

    stages = [(g, temperature_of(g, 1.0)) for g in GAMMAS if g <= gamma] + [(gamma, t) for t in FINEST]
    for g, temperature in stages:
        before = float(evaluate(network, prices, g, temperature, is_open).value)
        descent = descend(replace(price_problem(network, g, temperature), evaluate=counted), prices, is_open)
        assert descent.value <= before
        assert (descent.prices >= 0.0).all()
        assert (descent.prices <= 20.0).all()
        prices = descent.prices
    assert evaluations < 2000
    last = evaluate(network, descent.prices, gamma, FINEST[-1], is_open)
    np.testing.assert_allclose(descent.capacity, last.follower.flow, atol=1e-9)
    value, _, _ = penalty(network, last.penalised.flow, gamma)
    assert descent.value == pytest.approx(value, rel=1e-4)
    assert penalty(network, descent.capacity, gamma)[0] >= descent.value - smoothing(network, gamma, FINEST[-1])


# --- free links ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("temperature", [0.1, 1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("every", [False, True])
def test_zero_times_in_a_cycle(temperature, every):
    network = six_nodes(3)
    free = (
        np.ones(network.n_links, bool) if every else np.isin(network.tail, (0, 1, 2)) & np.isin(network.head, (0, 1, 2))
    )
    assert free.sum() >= 3
    network = replace(network, time=np.where(free, 0.0, network.time))
    for prices in (np.zeros(network.n_links), np.where(free, 0.0, 0.7)):
        found = evaluate(network, prices, 10.0, temperature)
        assert np.isfinite(found.value)
        assert np.isfinite(found.gradient).all()
        assert np.abs(found.follower.flow).max() < 100.0 * network.demand.sum()
        travelling = network.demand * of_markets(network, found.follower.share)
        expected = np.bincount(network.destination, travelling, 6) - np.bincount(network.origin, travelling, 6)
        np.testing.assert_allclose(net_arrivals(network, found.follower.flow), expected, atol=1e-8)
        smoothed = slope(
            lambda p: float(evaluate(network, p, 10.0, temperature).value),
            prices + 2e-4 * temperature,
            1e-4 * temperature,
        )
        shifted = evaluate(network, prices + 2e-4 * temperature, 10.0, temperature).gradient
        atol = 1e-4 * max(1.0, np.abs(shifted).max()) + 1e-9 / temperature
        np.testing.assert_allclose(shifted, smoothed, rtol=1e-4, atol=atol)


def test_two_nodes_with_one_market():
    """By hand: one link, one market."""
    network = TransportNetwork.from_tables(
        [{"id": "a", "x": 0, "y": 0}, {"id": "b", "x": 1, "y": 0}],
        [{"from": "a", "to": "b", "time": 1.0, "cost": 0.5}],
        [{"origin": "a", "destination": "b", "demand": 5.0, "revenue": 2.0, "alternative_time": 2.0}],
    )
    found = evaluate(network, [0.25], 4.0, 0.01)
    follower, penalised = 5.0 * expit(2.0 - 1.25), 5.0 * expit(2.5 - 1.375)
    assert float(found.follower.flow[0]) == pytest.approx(follower)
    assert float(found.penalised.flow[0]) == pytest.approx(penalised)
    assert float(found.gradient[0]) == pytest.approx(4.0 * (penalised - follower))
    gains = np.logaddexp(0.0, 2.5 - 1.375) - np.logaddexp(0.0, 2.0 - 1.25)
    assert float(found.value) == pytest.approx(4.0 * 5.0 * (0.5 - gains) - 10.0)
