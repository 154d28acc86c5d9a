"""The travellers' answer by the interior-point method: against Clarabel, Dijkstra, finite differences and itself."""

from __future__ import annotations

import warnings
from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from blocc.transport.travellers import assignment as interior_point
from transport_compiled import TOLERANCE, at_nodes, lower_level, of_markets, six_nodes
from transport_reference import InaccurateReference, random_network, three_nodes
from transport_reference import solve_lower_level as solve_reference

KINDS = ("scarce", "ample", "floor", "mixed", "closed", "unserved", "nobody somewhere", "ties", "free")


def one_case(seed, kind):
    """A network of six nodes and capacities for it; everything random, the shape always the same."""
    generator, network = np.random.default_rng(seed), six_nodes(seed)
    capacity = network.random_starts(1, seed)[0] * generator.uniform(0.1, 0.8, network.n_links)
    if kind == "ample":
        capacity = np.full(network.n_links, 10.0 * network.demand.sum())
    elif kind == "floor":
        small = 1e-5 * generator.uniform(0.5, 2.0, network.n_links)
        capacity = np.where(generator.uniform(size=network.n_links) < 0.3, small, capacity)
    elif kind == "mixed":
        capacity = capacity * 10 ** generator.uniform(-2, 1, network.n_links)
    elif kind == "closed":
        capacity = np.where(generator.uniform(size=network.n_links) < 0.3, 0.0, capacity)
    elif kind == "unserved":
        capacity = np.where(network.head == generator.integers(6), 0.0, capacity)
    elif kind == "nobody somewhere":
        network = replace(network, demand=network.demand * (generator.uniform(size=network.n_markets) < 0.6))
    elif kind == "ties":
        network = replace(network, time=np.ceil(network.time))
    elif kind == "free":
        network = replace(network, time=np.where(generator.uniform(size=network.n_links) < 0.4, 0.0, network.time))
    return network, capacity


def check_solution(network, capacity, solution, alternative_time=None, tolerance=1e-8):
    """The conditions that only the travellers' answer meets, from the network's own figures."""
    point, is_open = solution.point, capacity > 0
    people, time = 1.0 + network.demand.max(), 1.0 + network.time.max()
    assert float(solution.error) <= TOLERANCE
    assert int(solution.iterations) < interior_point.LIMITS.max_iterations
    assert all(np.isfinite(leaf).all() for leaf in point)
    load = point.flow.sum(axis=0)
    # Inside its bounds.
    for values in (point.flow, point.reduced_cost, point.price, point.slack, point.share, 1.0 - point.share):
        assert values.min() >= 0.0
    assert (load <= capacity + tolerance * people).all()
    assert (load[~is_open] == 0.0).all()
    # Conservation at every node but the origin, where it follows.
    served = np.where(solution.nodes, at_nodes(network, network.demand) * point.share, 0.0)
    net = np.zeros_like(served)
    np.add.at(net, (slice(None), network.head), point.flow)
    np.add.at(net, (slice(None), network.tail), -point.flow)
    origins, _ = network.by_origin
    served[np.arange(len(origins)), origins] = -served.sum(axis=1)
    np.testing.assert_allclose(net, served, atol=tolerance * people)
    # Complementary slackness.
    slack = np.minimum(capacity, 2.0 * network.demand.sum() + 1.0) - load
    assert (point.price * np.abs(slack))[is_open].max(initial=0.0) <= tolerance * people * time
    rise = point.potential[:, network.head] - point.potential[:, network.tail]
    reduced = np.where(solution.links, network.time + point.price - rise, 0.0)
    assert reduced.min() >= -tolerance * time
    assert (reduced * point.flow).max() <= tolerance * people * time
    # Both values.
    scale = 1.0 + abs(float(solution.value))
    assert float(solution.value) - float(solution.bound) <= 1e-7 * scale
    assert float(solution.bound) <= float(solution.value) + 1e-10 * scale
    # The logit at the cheapest costs.
    alternative = network.alternative_time if alternative_time is None else alternative_time
    cheapest = network.path_costs(network.time + point.price, is_open)
    share, someone = of_markets(network, point.share), network.demand > 0
    np.testing.assert_allclose(share[someone], expit(alternative - cheapest)[someone], atol=1e-6)
    assert (share[np.isinf(cheapest)] == 0.0).all()


def compare_with_reference(network, capacity, solution, alternative_time=None):
    """Shares and prices to 1e-6, less strictly where the reference is known not to be so exact.

    It says so itself, or its shares are not the logit at its own prices; and a gap of 1e-10 or so leaves a price with
    an error of gap over capacity.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        reference = solve_reference(network, capacity, alternative_time)
    doubtful = any(issubclass(warning.category, InaccurateReference) for warning in caught)
    someone, is_open = network.demand > 0, capacity > 0
    alternative = network.alternative_time if alternative_time is None else alternative_time
    cheapest = network.path_costs(network.time + np.where(is_open, reference.price, 0.0), is_open)
    own_error = np.abs(expit(alternative - cheapest) - reference.share)[someone].max()
    allowed = 1e-6 + 3.0 * own_error + (1e-4 if doubtful else 0.0)
    assert own_error < 1e-4
    share = of_markets(network, solution.point.share)
    np.testing.assert_allclose(share[someone], reference.share[someone], rtol=0.0, atol=allowed)
    assert float(solution.value) == pytest.approx(reference.value, rel=1e-7, abs=1e-7)
    if not doubtful:
        off = np.abs(solution.point.price - reference.price)[is_open]
        assert (off <= allowed + 1e-9 / capacity[is_open]).all()


# --- against Clarabel ------------------------------------------------------------------------------------------------
@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=25)
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(KINDS))
def test_random_networks(seed, kind):
    network, capacity = one_case(seed, kind)
    solution = lower_level(network, capacity)
    check_solution(network, capacity, solution)
    compare_with_reference(network, capacity, solution)
    if kind == "ample":
        np.testing.assert_allclose(solution.point.price, 0.0, atol=1e-7)


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=6)
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(("scarce", "closed", "mixed")), scale=st.floats(1e-3, 1e3))
def test_any_unit_of_passengers(seed, kind, scale):
    network, capacity = one_case(seed, kind)
    network, capacity = replace(network, demand=scale * network.demand), scale * capacity
    solution = lower_level(network, capacity)
    check_solution(network, capacity, solution)
    compare_with_reference(network, capacity, solution)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.01, 60.0])
def test_any_unit_of_time(scale):
    """Times in minutes instead of hours make the choice all or nothing."""
    for seed in range(3):
        for kind in ("scarce", "ample", "closed", "free"):
            network, capacity = one_case(seed, kind)
            alternative = scale * network.alternative_time
            network = replace(network, time=scale * network.time, alternative_time=alternative)
            check_solution(network, capacity, lower_level(network, capacity))


@pytest.mark.parametrize(
    "part", [pytest.param(0.1, marks=pytest.mark.slow), 0.3, pytest.param(1.0, marks=pytest.mark.slow), 3.0]
)
def test_longer_alternative_times(part):
    """The penalised travellers see the revenue over gamma in theirs: nearly everyone wants to travel, few can."""
    for seed in range(4):
        for kind in ("scarce", "ample", "closed", "mixed"):
            network, capacity = one_case(seed, kind)
            alternative = network.alternative_time + part * network.revenue
            solution = lower_level(network, capacity, alternative)
            check_solution(network, capacity, solution, alternative)
            compare_with_reference(network, capacity, solution, alternative)


def test_origins_without_all_destinations():
    network = random_network(4, zero_demand=True)
    capacity = network.random_starts(1)[0]
    solution = lower_level(network, capacity)
    check_solution(network, capacity, solution)
    compare_with_reference(network, capacity, solution)


# --- closed networks -------------------------------------------------------------------------------------------------
def test_market_that_nobody_can_serve():
    network = three_nodes()
    capacity = np.where((network.head == 2) | (network.tail == 2), 0.0, 0.5)
    solution = lower_level(network, capacity)
    check_solution(network, capacity, solution)
    share = of_markets(network, solution.point.share)
    away = (network.origin == 2) | (network.destination == 2)
    assert (share[away] == 0.0).all()
    np.testing.assert_allclose(share[~away], 0.5, atol=1e-9)  # the capacity for a demand of 1
    # A share of one half needs a cost of t_ext, so prices make up the difference from time 1 to 3.
    np.testing.assert_allclose(solution.point.price[capacity > 0], 2.0, atol=1e-6)
    assert (solution.point.price[capacity == 0] == 0.0).all()


# --- consistency -----------------------------------------------------------------------------------------------------
# --- warm starts -----------------------------------------------------------------------------------------------------
def nonsense(kind, point):
    if kind == "not a number":
        return jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), point)._replace(price=np.ones_like(point.price))
    generator = np.random.default_rng(0)
    size = {"huge": 1e8, "tiny": 1e-12, "negative": -5.0, "noise": 3.0}[kind]
    drawn = jax.tree.map(lambda leaf: size * generator.uniform(size=leaf.shape), point)
    return drawn._replace(price=np.abs(drawn.price))


@pytest.mark.parametrize("kind", ["huge", "tiny", "negative", "noise", "not a number"])
def test_nonsense_warm_start_still_converges(kind):
    network, capacity = one_case(2, "closed")
    warm = nonsense(kind, lower_level(network, capacity).point)
    solution = lower_level(network, capacity, warm=warm)
    check_solution(network, capacity, solution)


def test_warm_start_from_another_set_of_open_links():
    network, capacity = one_case(7, "scarce")
    fewer = np.where(np.arange(network.n_links) % 3 == 0, 0.0, capacity)
    for before, after in ((capacity, fewer), (fewer, capacity)):
        solution = lower_level(network, after, warm=lower_level(network, before).point)
        check_solution(network, after, solution)


# --- batches ---------------------------------------------------------------------------------------------------------
