"""The methods of benchmarks/transport_capacity_methods.py: exact second derivatives, and designs that they reach."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from blocc._lib.precision import double_precision
from blocc.transport import DesignModel, read_network
from blocc.transport.travellers.graph import graph_of
from transport_compiled import call, lower_level
from transport_reference import three_nodes

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from transport_capacity_methods import METHODS, curvature, design_by, sensitivity


def test_sensitivity_is_the_derivative_of_the_prices() -> None:
    network = read_network("nine")
    capacity = 0.5 * network.random_starts(1)[0]
    solution = lower_level(network, capacity)
    slope = -call(sensitivity, graph_of(network), capacity, solution)
    np.testing.assert_allclose(slope, slope.T, atol=1e-12)
    assert np.linalg.eigvalsh(slope).max() <= 1e-9
    scarce = solution.point.price > 1e-3
    assert 3 <= scarce.sum() < network.n_links
    for link in range(network.n_links):
        step = np.where(np.arange(network.n_links) == link, 1e-5 * capacity[link], 0.0)
        ahead, behind = (lower_level(network, capacity + s).point.price for s in (step, -step))
        expected = (ahead - behind) / (2.0 * step[link])
        np.testing.assert_allclose(slope[link], expected, rtol=1e-3, atol=3e-4 * np.abs(slope).max())


def test_sensitivity_of_closed_links_is_zero() -> None:
    network = read_network("nine")
    capacity = np.where(np.arange(network.n_links) % 5 == 0, 0.0, network.random_starts(1)[0])
    slope = call(sensitivity, graph_of(network), capacity, lower_level(network, capacity))
    assert np.isfinite(slope).all()
    assert (slope[::5] == 0.0).all()
    assert (slope[:, ::5] == 0.0).all()


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [2.0, pytest.param(30.0, marks=pytest.mark.slow)])
def test_curvature_of_the_penalty_function(gamma: float) -> None:
    model = DesignModel(read_network("nine"))
    x = model.network.random_starts(1, seed=1)[0]
    second = curvature(model, x, gamma, model.capacities(x, gamma))
    np.testing.assert_array_equal(second, second.T)
    for way in np.random.default_rng(0).normal(size=(3, len(x))):
        ahead, behind = (np.asarray(model.capacities(x + step * way, gamma).gradient) for step in (1e-4, -1e-4))
        np.testing.assert_allclose(second @ way, (ahead - behind) / 2e-4, atol=1e-3 * np.abs(second @ way).max())


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_designs(method: str) -> None:
    model = DesignModel(three_nodes())
    start = model.network.random_starts(1)[0]
    with double_precision():
        assert 1.2 <= design_by(method, model, start).state.score <= 1.7617
        limit = np.array([0.3, 0.3, 0.3, 0.3, 0.0, 0.3])
        capacity = design_by(method, model, start, limit=limit).state.best
    assert (capacity <= limit).all()
