"""Closing and reopening links: three nodes, where the best design is known in closed form."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from blocc.transport.design.prices import GAMMAS, Descent, descend, polish, temperature_of
from transport_compiled import price_problem, six_nodes
from transport_reference import three_nodes

#: Only the links between nodes 1 and 2: each market there brings 2, costs 1, and draws sigmoid(3 - 1) passengers.
BEST = 2.0 * expit(2.0)
BEST_LINKS = np.array([True, False, True, False, False, False])
OPTIONS = {"threshold": 1e-4, "max_failures": 6, "max_moves": 100}


def homotopy(network, prices, is_open, gammas):
    for gamma in gammas:
        descent = descend(price_problem(network, gamma, temperature_of(gamma, 1.0)), prices, is_open)
        prices = descent.prices
    return descent


def start_at(problem, prices, is_open):
    found = problem.evaluate(prices, is_open)
    flows = (np.where(is_open, np.asarray(side.flow), 0.0) for side in (found.follower, found.penalised))
    return Descent(prices, *flows, float(found.value))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("gamma", [30.0, 100.0])
def test_reaches_the_best_design_from_the_open_network(seed, gamma):
    network = three_nodes()
    every = np.ones(network.n_links, bool)
    prices = np.random.default_rng(seed).uniform(0.0, 1.0, network.n_links)
    start = homotopy(network, prices, every, [value for value in GAMMAS if value <= gamma])
    problem = price_problem(network, gamma, temperature_of(gamma, 1.0))
    descent, is_open = polish(problem, start, every, every, **OPTIONS)
    assert descent.value <= start.value
    np.testing.assert_array_equal(descent.capacity > 1e-3, BEST_LINKS)
    assert (descent.capacity[~is_open] == 0.0).all()
    sharpened = homotopy(network, descent.prices, is_open, [value for value in GAMMAS if value > gamma])
    assert -sharpened.value == pytest.approx(BEST, abs=2e-3)


@pytest.mark.parametrize("closed", [(), (0, 2), (3, 5), (0, 1, 2, 4)])
def test_never_gets_worse(closed):
    network = three_nodes()
    problem = price_problem(network, 30.0, temperature_of(30.0, 1.0))
    before = ~np.isin(np.arange(network.n_links), closed)
    given = before.copy()
    start = start_at(problem, np.full(network.n_links, 0.3), given)
    descent, is_open = polish(problem, start, given, np.ones(network.n_links, bool), **OPTIONS)
    np.testing.assert_array_equal(given, before)  # the caller's own array
    assert descent.value <= start.value
    assert (descent.capacity[~is_open] == 0.0).all()
    again = problem.evaluate(descent.prices, is_open)
    assert float(again.value) == pytest.approx(descent.value, rel=1e-10)
    np.testing.assert_allclose(descent.capacity, again.follower.flow, atol=1e-10)


def test_links_that_are_not_allowed_stay_closed():
    network = three_nodes()
    problem = price_problem(network, 30.0, temperature_of(30.0, 1.0))
    allowed = np.array([False, True, True, True, True, True])
    start = start_at(problem, np.full(network.n_links, 0.3), allowed)
    descent, is_open = polish(problem, start, allowed, allowed, **OPTIONS)
    assert not is_open[0]
    assert descent.capacity[0] == 0.0


def test_no_moves_allowed():
    network = three_nodes()
    problem = price_problem(network, 30.0, temperature_of(30.0, 1.0))
    every = np.ones(network.n_links, bool)
    start = start_at(problem, np.full(network.n_links, 0.3), every)
    descent, is_open = polish(problem, start, every, every, **OPTIONS | {"max_moves": 0})
    assert descent is start
    assert is_open is every


def test_polishing_twice_changes_nothing():
    network = six_nodes(5)
    problem = price_problem(network, 30.0, temperature_of(30.0, 0.5))
    every, options = np.ones(network.n_links, bool), OPTIONS | {"max_failures": 2}
    start = homotopy(network, np.full(network.n_links, 0.5), every, [1.0, 3.0, 10.0, 30.0])
    once, is_open = polish(problem, start, every, every, **options)
    twice, still_open = polish(problem, once, is_open, every, **options)
    assert once.value <= start.value
    assert twice is once
    assert still_open is is_open
