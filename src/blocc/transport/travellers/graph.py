"""A network as arrays for compiled code: origins in rows, nodes and links in columns.

Everything here is pure and batched over the origins. Nothing is a dense incidence matrix: values at links are gathered
from, or scattered to, their two ends. Loops that sweep over the network many times gather instead of scatter, with the
origins in the last axis: each node reads the links that enter it (``into``) or leave it (``out_of``), which compiled
code does several times faster.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from blocc.transport.network.network import TransportNetwork
from blocc.transport.travellers.flows import group_by_origin

Array = Any


class Graph(NamedTuple):
    """The figures of a network; ``demand``, ``revenue`` and ``alternative`` stand at (origin, destination)."""

    tail: Array
    head: Array
    time: Array
    cost: Array
    origin: Array  #: node of each row
    demand: Array  #: 0 where there is no market
    revenue: Array
    alternative: Array
    into: Array  #: links that enter each node, filled up with the number of links
    out_of: Array  #: links that leave each node, likewise

    @property
    def shape(self) -> tuple[int, int, int]:
        """Numbers of origins, nodes and links."""
        return (*self.demand.shape, len(self.time))


def graph_of(network: TransportNetwork) -> Graph:
    """The network's figures as arrays."""
    origins, row = group_by_origin(network)

    def spread(values: np.ndarray) -> np.ndarray:
        table = np.zeros((len(origins), network.n_nodes))
        table[row, network.destination] = values
        return table

    figures = (spread(network.demand), spread(network.revenue), spread(network.alternative_time))
    ends = (_incident(network.head, network.n_nodes), _incident(network.tail, network.n_nodes))
    return Graph(network.tail, network.head, network.time, network.cost, origins, *figures, *ends)


def _incident(node: np.ndarray, n_nodes: int) -> np.ndarray:
    """For each node the links whose ``node`` it is, padded with one link too many."""
    links = [np.flatnonzero(node == position) for position in range(n_nodes)]
    table = np.full((n_nodes, max(1, *(len(some) for some in links))), len(node))
    for position, some in enumerate(links):
        table[position, : len(some)] = some
    return table


def beside(values: Array, empty: Any) -> Array:
    """Values of links (in the first axis) with one more row, which the padding of ``into`` and ``out_of`` points at."""
    return jnp.concatenate([values, jnp.full((1, *values.shape[1:]), empty, dtype=values.dtype)])


def far_ends(graph: Graph) -> tuple[Array, Array]:
    """The node at the other end of every link in ``into`` and in ``out_of``; any node where there is none."""
    last = jnp.zeros(1, dtype=jnp.asarray(graph.tail).dtype)
    return jnp.concatenate([graph.tail, last])[graph.into], jnp.concatenate([graph.head, last])[graph.out_of]


def differences(graph: Graph, potential: Array) -> Array:
    """Potential at the head of each link less that at its tail."""
    return potential[:, graph.head] - potential[:, graph.tail]


def arrivals(graph: Graph, flow: Array) -> Array:
    """What enters each node less what leaves it."""
    empty = jnp.zeros((flow.shape[0], graph.demand.shape[1]))
    return empty.at[:, graph.head].add(flow).at[:, graph.tail].add(-flow)


def at_origin(graph: Graph) -> Array:
    """True where the column is the row's own origin."""
    return jax.nn.one_hot(graph.origin, graph.demand.shape[1], dtype=bool)


def usable(graph: Graph, is_open: Array) -> tuple[Array, Array]:
    """Nodes that each origin reaches over open links, itself excepted, and the links its passengers may take.

    Nobody needs a link back into the own origin, nor one that begins where nobody can be.
    """
    home = at_origin(graph)
    before, _ = far_ends(graph)
    passable = beside(is_open, False)[graph.into][:, :, None]

    def spread(state: tuple[Array, Array]) -> tuple[Array, Array]:
        reached, _ = state
        wider = reached | jnp.any(reached[before] & passable, axis=1)
        return wider, (wider != reached).any()

    reached, _ = lax.while_loop(lambda state: state[1], spread, (home.T, jnp.asarray(True)))
    links = is_open[None, :] & reached.T[:, graph.tail] & (graph.head[None, :] != graph.origin[:, None])
    return reached.T & ~home, links


def cheapest(graph: Graph, costs: Array, nodes: Array, links: Array) -> Array:
    """Cheapest cost from each origin to each node over ``links`` (Bellman and Ford); 0 outside ``nodes``."""
    far = jnp.asarray(1e30)
    before, _ = far_ends(graph)
    step = beside(jnp.where(links, costs, far).T, far)[graph.into]

    def relax(state: tuple[Array, Array]) -> tuple[Array, Array]:
        distance, _ = state
        shorter = jnp.minimum(distance, jnp.min(distance[before] + step, axis=1))
        return shorter, (shorter < distance).any()

    start = jnp.where(at_origin(graph).T, 0.0, far)
    distance, _ = lax.while_loop(lambda state: state[1], relax, (start, jnp.asarray(True)))
    return jnp.where(nodes, distance.T, 0.0)


def negative_entropy(share: Array) -> Array:
    """``y ln y + (1 - y) ln(1 - y)``, exactly 0 at both ends."""
    return jax.scipy.special.xlogy(share, share) + jax.scipy.special.xlogy(1.0 - share, 1.0 - share)
