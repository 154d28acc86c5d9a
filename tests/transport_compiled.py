"""The transport application's compiled functions for tests: compiled once for each shape of network, then reused."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from blocc._lib.compiled import compile_ahead
from blocc._lib.precision import double_precision
from blocc.transport.design import prices
from blocc.transport.design.prices import Loading, PricePenalty, PriceProblem
from blocc.transport.network.network import TransportNetwork
from blocc.transport.travellers import assignment as interior_point
from blocc.transport.travellers.assignment import AssignmentPoint, LowerLevel
from blocc.transport.travellers.graph import Graph, graph_of

TOLERANCE = 1e-11

_compiled: dict[Any, Any] = {}


def call(function: Any, *arguments: Any) -> Any:
    """Call with the arguments given, compiled for their shapes; answers in NumPy arrays."""
    leaves = jax.tree.map(lambda leaf: np.asarray(leaf), arguments)
    key = (function, *((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(leaves)))
    with double_precision():
        if key not in _compiled:
            _compiled[key], _ = compile_ahead(function, *leaves)
        return jax.tree.map(np.asarray, _compiled[key](*leaves))


def six_nodes(seed: int) -> TransportNetwork:
    """A random cycle, twelve further links and a market for every pair; all seeds give the same shape."""
    random = np.random.default_rng(seed)
    pairs = [(i, j) for i in range(6) for j in range(6) if i != j]
    order = random.permutation(6).tolist()
    cycle = list(zip(order, order[1:] + order[:1], strict=True))
    others = sorted(set(pairs) - set(cycle))
    edges = cycle + [others[k] for k in random.choice(len(others), 12, replace=False)]
    times = random.uniform(0.2, 1.8, len(edges))
    graph = csr_array((times, tuple(zip(*edges, strict=True))), shape=(6, 6))
    shortest = np.array([dijkstra(graph)[pair] for pair in pairs])
    costs = 1.095 * times * random.uniform(0.7, 1.3, len(edges))
    places, demand = random.uniform(0.0, 10.0, (6, 2)), random.uniform(0.5, 5.3, len(pairs))
    revenue = 0.8 * (1.0 + shortest) * random.uniform(0.1, 3.0, len(pairs))
    alternative = shortest * random.uniform(0.7, 1.8, len(pairs))
    market = ("origin", "destination", "demand", "revenue", "alternative_time")
    return TransportNetwork.from_tables(
        [{"id": k, "x": x, "y": y} for k, (x, y) in enumerate(places)],
        [{"from": i, "to": j, "time": t, "cost": c} for (i, j), t, c in zip(edges, times, costs, strict=True)],
        [
            dict(zip(market, (*pair, *figures), strict=True))
            for pair, *figures in zip(pairs, demand, revenue, alternative, strict=True)
        ],
    )


def cold(graph: Graph) -> AssignmentPoint:
    with double_precision():
        return interior_point.cold(graph)


def lower_level(
    network: TransportNetwork,
    capacity,
    markets_alternative=None,
    warm: AssignmentPoint | None = None,
    tolerance=TOLERANCE,
) -> LowerLevel:
    """The interior point's answer; the alternative times may be given for each market."""
    graph = graph_of(network)
    alternative = graph.alternative if markets_alternative is None else at_nodes(network, markets_alternative)
    start = cold(graph) if warm is None else warm
    return call(interior_point.solve_lower_level, graph, np.asarray(capacity, float), alternative, start, tolerance)


def many_answers(graph: Any, capacities: Any, warm: Any) -> Any:
    """Flows, shares and errors at many vectors of capacities; for :func:`call`."""

    def one(capacity: Any) -> Any:
        found = interior_point.solve_lower_level(graph, capacity, graph.alternative, warm, 1e-9)
        return found.point.flow.sum(axis=0), found.point.share, found.error

    return jax.vmap(one)(capacities)


def evaluate(network: TransportNetwork, p, gamma, temperature, is_open=None) -> PricePenalty:
    """The penalty function at these prices."""
    able = np.ones(network.n_links, bool) if is_open is None else is_open
    return call(prices.evaluate_prices, graph_of(network), np.asarray(p, float), float(gamma), able, float(temperature))


def price_problem(network: TransportNetwork, gamma, temperature, ceiling=20.0) -> PriceProblem:
    """The penalty function in the prices at one gamma and temperature."""
    own, none = np.arange(network.n_links), np.zeros(network.n_links, dtype=bool)
    return PriceProblem(lambda p, is_open: evaluate(network, p, gamma, temperature, is_open), ceiling, own, none)


def load(network: TransportNetwork, costs, temperature, is_open=None) -> Loading:
    """The travellers without capacities."""
    graph, able = graph_of(network), np.ones(network.n_links, bool) if is_open is None else is_open
    return call(prices.stochastic_loading, graph, np.asarray(costs, float), graph.alternative, able, float(temperature))


def at_nodes(network: TransportNetwork, values: np.ndarray) -> np.ndarray:
    """Figures of the markets in a table of origins and nodes."""
    origins, row = network.by_origin
    table = np.zeros((len(origins), network.n_nodes))
    table[row, network.destination] = values
    return table


def of_markets(network: TransportNetwork, table: np.ndarray) -> np.ndarray:
    """The markets' entries of a table of origins and nodes."""
    _, row = network.by_origin
    return np.asarray(table)[row, network.destination]
