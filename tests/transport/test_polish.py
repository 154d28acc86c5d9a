"""Closing and reopening links: three nodes, where the best design is known in closed form."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from blocc.transport.design.polish import polish
from blocc.transport.design.prices import GAMMAS, Descent, descend, temperature_of
from transport_compiled import evaluate, six_nodes
from transport_reference import three_nodes

#: Only the links between nodes 1 and 2: each market there brings 2, costs 1, and draws sigmoid(3 - 1) passengers.
BEST = 2.0 * expit(2.0)
BEST_LINKS = np.array([True, False, True, False, False, False])
OPTIONS = {"ceiling": 20.0, "threshold": 1e-4, "tries": 6}


def function_of(network):
    return lambda prices, gamma, is_open, temperature: evaluate(network, prices, gamma, temperature, is_open)


def homotopy(function, prices, is_open, gammas):
    for gamma in gammas:
        descent = descend(function, prices, gamma, is_open, temperature_of(gamma, 1.0), OPTIONS["ceiling"])
        prices = descent.prices
    return descent


def sharpened(function, polished, gamma):
    """The utility of a polished design as gamma grows."""
    later = [value for value in GAMMAS if value > gamma]
    return -homotopy(function, polished.descent.prices, polished.is_open, later).value


def start_at(function, prices, gamma, is_open, temperature):
    found = function(prices, gamma, is_open, temperature)
    flows = (np.where(is_open, np.asarray(side.flow), 0.0) for side in (found.follower, found.penalised))
    return Descent(prices, *flows, float(found.value), 1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("gamma", [30.0, 100.0])
def test_reaches_the_best_design_from_the_open_network(seed, gamma):
    network = three_nodes()
    function, is_open = function_of(network), np.ones(network.n_links, bool)
    prices = np.random.default_rng(seed).uniform(0.0, 1.0, network.n_links)
    start = homotopy(function, prices, is_open, [value for value in GAMMAS if value <= gamma])
    temperature = temperature_of(gamma, 1.0)
    polished = polish(function, start, is_open, gamma=gamma, temperature=temperature, **OPTIONS)
    assert polished.descent.value <= start.value
    assert polished.evaluations > 0
    np.testing.assert_array_equal(polished.descent.capacity > 1e-3, BEST_LINKS)
    assert (polished.descent.capacity[~polished.is_open] == 0.0).all()
    assert sharpened(function, polished, gamma) == pytest.approx(BEST, abs=2e-3)


@pytest.mark.parametrize("closed", [(), (0, 2), (3, 5), (0, 1, 2, 4)])
def test_never_gets_worse(closed):
    network, gamma = three_nodes(), 30.0
    function, temperature = function_of(network), temperature_of(gamma, 1.0)
    is_open = ~np.isin(np.arange(network.n_links), closed)
    before = is_open.copy()
    start = start_at(function, np.full(network.n_links, 0.3), gamma, is_open, temperature)
    polished = polish(function, start, is_open, gamma=gamma, temperature=temperature, **OPTIONS)
    np.testing.assert_array_equal(is_open, before)  # the caller's own array
    descent = polished.descent
    assert descent.value <= start.value
    assert (descent.capacity[~polished.is_open] == 0.0).all()
    again = function(descent.prices, gamma, polished.is_open, temperature)
    assert float(again.value) == pytest.approx(descent.value, rel=1e-10)
    np.testing.assert_allclose(descent.capacity, again.follower.flow, atol=1e-10)


def test_no_rounds_no_moves():
    network, gamma = three_nodes(), 30.0
    function, temperature = function_of(network), temperature_of(gamma, 1.0)
    is_open = np.ones(network.n_links, bool)
    start = start_at(function, np.full(network.n_links, 0.3), gamma, is_open, temperature)
    polished = polish(function, start, is_open, gamma=gamma, temperature=temperature, **OPTIONS, rounds=0)
    assert polished.descent is start
    assert polished.closed == polished.reopened == 0


def test_polishing_twice_changes_nothing():
    network, gamma = six_nodes(5), 30.0
    function, temperature = function_of(network), temperature_of(gamma, 0.5)
    options = OPTIONS | {"tries": 2}
    is_open = np.ones(network.n_links, bool)
    start = homotopy(function, np.full(network.n_links, 0.5), is_open, [1.0, 3.0, 10.0, 30.0])
    once = polish(function, start, is_open, gamma=gamma, temperature=temperature, **options)
    twice = polish(function, once.descent, once.is_open, gamma=gamma, temperature=temperature, **options)
    assert once.descent.value <= start.value
    assert twice.descent is once.descent
    assert twice.closed == twice.reopened == 0
