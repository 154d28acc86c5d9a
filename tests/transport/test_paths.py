"""The engine on paths: against Dijkstra of SciPy, dense matrices, the engine on links, and Clarabel."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from blocc.result import Status
from blocc.transport import DesignModel, design_network, read_network
from blocc.transport.network.generators import city_network
from blocc.transport.network.network import TransportNetwork
from transport_compiled import load, lower_level, of_markets, six_nodes
from transport_reference import InaccurateReference, random_network, three_nodes
from transport_reference import solve_lower_level as solve_reference

pytest.importorskip("numba")

from blocc.networks.columns import cheapest_columns
from blocc.networks.shortest_paths import shortest_trees, streets_of, unknown_orders
from blocc.transport.travellers.bush_response import response
from blocc.transport.travellers.bushes import flow_by_origin, grow_bushes, load_bushes
from blocc.transport.travellers.path_assignment import PathTravellers
from blocc.transport.travellers.path_loading import Market, load_paths
from selections import few


@pytest.fixture(scope="module")
def town() -> TransportNetwork:
    """Ten zones whose centroids are not passed, and one-way streets."""
    return city_network(10, 20, 80)


def without_passage(network: TransportNetwork, nodes: list[int]) -> TransportNetwork:
    through = np.ones(network.n_nodes, dtype=bool)
    through[nodes] = False
    return replace(network, through=through)


# --- cheapest paths --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(3))
def test_cheapest_costs_are_those_of_scipy(town: TransportNetwork, seed: int) -> None:
    random = np.random.default_rng(seed)
    costs, is_open = random.uniform(0.0, 1.0, town.n_links), random.uniform(size=town.n_links) < 0.9
    trees = shortest_trees(streets_of(town), np.where(is_open, costs, np.inf))
    row = np.searchsorted(np.unique(town.origin), town.origin)
    found = trees.cost[row, town.destination]
    np.testing.assert_allclose(found, town.path_costs(costs, is_open), rtol=1e-12)
    assert np.isinf(found).any() or seed != 0


def test_columns_are_paths(town: TransportNetwork) -> None:
    streets, costs = streets_of(town), np.random.default_rng(1).uniform(0.1, 1.0, town.n_links)
    trees, (_, row) = shortest_trees(streets, costs), np.unique(town.origin, return_inverse=True)
    which = np.arange(0, town.n_markets, 2)
    columns = cheapest_columns(streets, trees, row, town.destination, which)
    np.testing.assert_allclose(columns.costs(costs), trees.cost[row, town.destination][which], rtol=1e-12)
    for path, market in enumerate(which):
        links = columns.links[columns.first[path] : columns.first[path + 1]]
        assert (np.diff(links) > 0).all()
        following = dict(zip(town.tail[links], town.head[links], strict=True))
        node, passed = town.origin[market], []
        while node != town.destination[market]:
            node = following.pop(node)
            passed.append(node)
        assert not following
        assert town.through[passed[:-1]].all()


# --- columns ---------------------------------------------------------------------------------------------------------
# --- without capacities ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("temperature", [0.2, 0.03, 1e-3])
@pytest.mark.parametrize("closed", [[], [2]])
def test_loading_is_that_of_the_engine_on_links(temperature: float, closed: list[int]) -> None:
    network = without_passage(six_nodes(1), closed)
    is_open = np.arange(network.n_links) % 5 != 1
    costs = np.maximum(network.time, 0.5) + np.random.default_rng(0).uniform(0.0, 1.0, network.n_links)
    expected = load(network, costs, temperature, is_open)
    travellers = PathTravellers(network)
    market = Market(travellers.at_nodes(network.demand), travellers.at_nodes(network.alternative_time))
    found = load_paths(travellers.streets, np.where(is_open, costs, np.inf), market, temperature)
    assert found.value == pytest.approx(float(expected.value), rel=1e-11)
    np.testing.assert_allclose(found.flow, expected.flow, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(of_markets(network, found.share), of_markets(network, expected.share), atol=1e-10)


# --- bushes ----------------------------------------------------------------------------------------------------------
def bushes_of(network: TransportNetwork, temperature: float, ties: bool = False):
    """Bushes at random prices, or at prices that make many paths cost the same, with what travellers see there."""
    travellers, random = PathTravellers(network), np.random.default_rng(5)
    times = np.maximum(network.time, 0.3)
    costs = np.ones(network.n_links) if ties else times + random.uniform(0.0, 1.0, network.n_links)
    market = Market(travellers.at_nodes(network.demand), travellers.at_nodes(network.alternative_time))
    return (
        travellers,
        costs,
        market,
        grow_bushes(travellers.streets, costs, temperature, unknown_orders(travellers.streets)),
    )


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("temperature", [5e-3, 1e-5])
def test_bushes_carry_what_all_paths_carry(town: TransportNetwork, temperature: float, ties: bool) -> None:
    travellers, costs, market, bushes = bushes_of(town, temperature, ties)
    expected, found = (
        load_paths(travellers.streets, costs, market, temperature),
        load_bushes(bushes, np.zeros(town.n_links), market),
    )
    assert found.value == pytest.approx(expected.value, rel=1e-12)
    np.testing.assert_allclose(found.flow, expected.flow, rtol=1e-7, atol=1e-9)
    flow, share = flow_by_origin(bushes, np.zeros(town.n_links), market)
    np.testing.assert_allclose(flow.sum(axis=0), found.flow, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(share, expected.share, atol=1e-9)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("temperature", [1e-2, 1e-4])
def test_answers_to_prices_are_slopes_of_the_flows(town: TransportNetwork, temperature: float, ties: bool) -> None:
    """Against central differences."""
    _, _, market, bushes = bushes_of(town, temperature, ties)
    rows = np.arange(town.n_links, dtype=np.int32)
    ample = np.full(town.n_links, 1e-3)
    matrix = response(bushes, np.zeros(town.n_links), market, ample, rows)
    matrix = np.tril(matrix) + np.tril(matrix, -1).T
    scale, step = np.abs(matrix).max(), 1e-3
    assert np.linalg.eigvalsh(matrix).min() > -1e-9 * scale
    for link in range(0, town.n_links, 7):
        up, down = (load_bushes(bushes, sign * step * (rows == link), market).flow for sign in (1.0, -1.0))
        slope = (down - up) / (2.0 * step * temperature)
        np.testing.assert_allclose(matrix[link], slope, atol=2e-5 * scale)


# --- with capacities -------------------------------------------------------------------------------------------------
def capacities(network: TransportNetwork, seed: int, kind: str) -> np.ndarray:
    random = np.random.default_rng(seed)
    capacity = network.random_starts(1, seed)[0] * random.uniform(0.1, 0.8, network.n_links)
    if kind == "ample":
        return np.full(network.n_links, 10.0 * network.demand.sum())
    if kind == "closed":
        return np.where(random.uniform(size=network.n_links) < 0.3, 0.0, capacity)
    if kind == "mixed":
        return capacity * 10.0 ** random.uniform(-4, 1, network.n_links)
    return capacity


@pytest.mark.parametrize("kind", ["scarce", "ample", "closed", "mixed", "nothing", "centroids"])
@pytest.mark.parametrize("seed", few([0, 1], 0))
def test_answers_are_those_of_the_engine_on_links(kind: str, seed: int) -> None:
    network = without_passage(six_nodes(seed), [1, 4] if kind == "centroids" else [])
    capacity = np.zeros(network.n_links) if kind == "nothing" else capacities(network, seed, kind)
    expected = lower_level(network, capacity)
    found, path = PathTravellers(network).answer(capacity, network.alternative_time)
    check_same(network, found, expected)
    again, _ = PathTravellers(network).answer(capacity, network.alternative_time, path)
    check_same(network, again, expected)


@pytest.mark.parametrize("kind", ["little", "opened", "closed"])
def test_the_path_of_a_problem_nearby_leads_to_the_same_answer(town: TransportNetwork, kind: str) -> None:
    travellers, random = PathTravellers(town), np.random.default_rng(0)
    base = town.random_starts(1)[0] * random.uniform(0.0, 1.0, town.n_links)
    base[3] = 0.0
    capacity = base * (1.0 + 1e-3 * random.uniform(-1.0, 1.0, town.n_links))
    if kind == "opened":
        capacity[3] = 0.01 * float(np.mean(base))
    if kind == "closed":
        capacity[5] = 0.0
    _, path = travellers.answer(base, town.alternative_time)
    (warm, own), (cold, _) = (travellers.answer(capacity, town.alternative_time, known) for known in (path, None))
    assert max(float(warm.error), float(cold.error)) < 1e-9
    np.testing.assert_allclose(float(warm.value), float(cold.value), rtol=1e-9)
    np.testing.assert_allclose(warm.point.share, cold.point.share, atol=1e-6)
    assert int(warm.iterations) < int(cold.iterations) or kind == "opened"
    temperatures = np.array([temperature for temperature, _ in own.steps()])
    assert np.all(np.diff(temperatures) < 0.0)
    assert own.price.shape == path.price.shape
    assert np.isnan(own.steps()[-1][1]).tolist() == (capacity == 0.0).tolist()


def check_same(network: TransportNetwork, found, expected) -> None:
    scale = 1.0 + abs(float(expected.value))
    assert float(found.error) <= 1e-9
    assert abs(float(found.value) - float(expected.value)) <= 1e-8 * scale
    assert 0.0 <= float(found.value) - float(found.bound) + 1e-9 * scale <= 1e-8 * scale
    np.testing.assert_array_equal(found.nodes, expected.nodes)
    np.testing.assert_array_equal(found.links, expected.links)
    shares = (of_markets(network, side.point.share) for side in (found, expected))
    np.testing.assert_allclose(*shares, atol=1e-6)
    load = found.point.flow.sum(axis=0)
    np.testing.assert_allclose(network.time @ load, network.time @ expected.point.flow.sum(axis=0), rtol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_answers_are_those_of_clarabel(seed: int) -> None:
    network = random_network(seed, n_nodes=6, zero_demand=seed == 1)
    capacity = np.random.default_rng(seed).uniform(0.0, 20.0, network.n_links)
    capacity[:: 4 + seed] = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error", InaccurateReference)
        expected = solve_reference(network, capacity)
    found, _ = PathTravellers(network).answer(capacity, network.alternative_time)
    assert float(found.value) == pytest.approx(expected.value, rel=1e-7)
    able = network.demand > 0
    np.testing.assert_allclose(of_markets(network, found.point.share)[able], expected.share[able], atol=1e-4)


def test_a_town_is_answered_and_judged(town: TransportNetwork) -> None:
    """What the columns say satisfies the network's own equations, on the flows of the origins."""
    model = DesignModel(town, "paths")
    capacity = town.random_starts(1)[0] * np.random.default_rng(0).uniform(0.0, 1.0, town.n_links)
    found = model.capacities(capacity, 10.0)
    residuals, size = model.lower_residuals(capacity, found.follower)
    assert max(residuals.stationarity, residuals.feasibility, residuals.complementarity) <= 1e-6 * (1.0 + size)
    near = capacity * np.random.default_rng(1).uniform(0.95, 1.05, town.n_links)
    warm, cold = model.capacities(near, 10.0, found.warm), model.capacities(near, 10.0)
    assert float(warm.value) == pytest.approx(float(cold.value), rel=1e-7)
    assert warm.error <= 1e-9
    slope = (float(model.capacities(capacity * 1.0001, 10.0).value) - float(found.value)) / 1e-4
    assert slope == pytest.approx(float(found.gradient @ capacity), rel=1e-2)


# --- designs ---------------------------------------------------------------------------------------------------------
def test_a_search_and_its_answers_by_two_engines() -> None:
    """What an accelerator does: prices by the engine on links, answers by the one on paths."""
    network = six_nodes(2)
    mixed, dense, paths = (DesignModel(network, engine) for engine in ("mixed", *ENGINES))
    prices, is_open = np.random.default_rng(0).uniform(0.0, 1.0, network.n_links), np.ones(network.n_links, dtype=bool)
    of_prices = [model.prices(prices, 7.0, is_open, 0.05, network.cost) for model in (mixed, dense)]
    np.testing.assert_array_equal(of_prices[0].gradient, of_prices[1].gradient)
    capacity = network.random_starts(1)[0]
    of_capacities = [model.capacities(capacity, 7.0) for model in (mixed, paths)]
    np.testing.assert_array_equal(of_capacities[0].gradient, of_capacities[1].gradient)
    assert mixed.near(prices, 7.0) is not None


ENGINES = ("dense", "paths")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["three", pytest.param("nine", marks=pytest.mark.slow)])
def test_designs_are_as_good_by_both_engines(name: str) -> None:
    network = read_network(name)
    dense, paths = (design_network(network, starts=1, model=DesignModel(network, engine)) for engine in ENGINES)
    assert paths.success
    assert paths.utility == pytest.approx(dense.utility, rel=1e-3)


def test_a_design_on_paths_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    network, kept = three_nodes(), tmp_path / "three.npz"
    options = {"engine": "paths", "gamma": 3.0, "starts": 1}
    whole = design_network(network, **options)
    stopped = design_network(network, **options, checkpoint=kept, callback=lambda state: state.iteration > 40)
    assert stopped.status is Status.STOPPED
    resumed = design_network(network, **options, resume=kept)
    np.testing.assert_array_equal(resumed.capacity, whole.capacity)
