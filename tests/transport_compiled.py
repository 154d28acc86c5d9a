"""The transport application's compiled functions for tests: compiled once for each shape of network, then reused."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from blocc._lib.compiled import compile_ahead
from blocc._lib.precision import double_precision
from blocc.transport.design import prices
from blocc.transport.design.prices import Assignment, Prices
from blocc.transport.network.generators import random_network
from blocc.transport.network.network import TransportNetwork
from blocc.transport.travellers import assignment as interior_point
from blocc.transport.travellers.assignment import LowerLevel
from blocc.transport.travellers.flows import group_by_origin
from blocc.transport.travellers.graph import Graph, graph_of
from blocc.transport.travellers.origin_blocks import Point

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
    """Strongly connected, with a market for every pair; all seeds give the same shape."""
    return random_network(6, 12, seed, markets=30)


def cold(graph: Graph) -> Point:
    with double_precision():
        return interior_point.cold(graph)


def lower_level(
    network: TransportNetwork, capacity, markets_alternative=None, warm: Point | None = None, tolerance=TOLERANCE
) -> LowerLevel:
    """The interior point's answer; the alternative times may be given for each market."""
    graph = graph_of(network)
    alternative = graph.alternative if markets_alternative is None else at_nodes(network, markets_alternative)
    start = cold(graph) if warm is None else warm
    return call(interior_point.solve_lower_level, graph, np.asarray(capacity, float), alternative, start, tolerance)


def evaluate(network: TransportNetwork, p, gamma, temperature, is_open=None) -> Prices:
    """The penalty function at these prices."""
    able = np.ones(network.n_links, bool) if is_open is None else is_open
    return call(prices.evaluate_prices, graph_of(network), np.asarray(p, float), float(gamma), able, float(temperature))


def assign(network: TransportNetwork, costs, temperature, is_open=None) -> Assignment:
    """The travellers without capacities."""
    graph, able = graph_of(network), np.ones(network.n_links, bool) if is_open is None else is_open
    return call(prices.assign, graph, np.asarray(costs, float), graph.alternative, able, float(temperature))


def at_nodes(network: TransportNetwork, values: np.ndarray) -> np.ndarray:
    """Figures of the markets in a table of origins and nodes."""
    origins, row = group_by_origin(network)
    table = np.zeros((len(origins), network.n_nodes))
    table[row, network.destination] = values
    return table


def of_markets(network: TransportNetwork, table: np.ndarray) -> np.ndarray:
    """The markets' entries of a table of origins and nodes."""
    _, row = group_by_origin(network)
    return np.asarray(table)[row, network.destination]
