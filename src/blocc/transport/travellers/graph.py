"""A network as arrays for compiled code: origins in rows, nodes and links in columns.

Everything here is pure and batched over the origins. Nothing is a dense incidence matrix: values at links are gathered
from, or scattered to, their two ends. Loops that sweep over the network many times gather instead of scatter, with the
origins in the last axis: each node reads the links that enter it (``into``) or leave it (``out_of``), which compiled
code does several times faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from blocc._lib.arrays import AnyArray, Array, Bool, Float, Int, NDArray
from blocc.transport.network.network import TransportNetwork


class Figures(NamedTuple):
    """Those of a network that are no part of where its links lead, as in :class:`Graph`."""

    time: Float[AnyArray, "links"]
    cost: Float[AnyArray, "links"]
    demand: Float[AnyArray, "origins nodes"]
    revenue: Float[AnyArray, "origins nodes"]
    alternative: Float[AnyArray, "origins nodes"]


class Graph(NamedTuple):
    """The figures of a network; ``demand``, ``revenue`` and ``alternative`` stand at (origin, destination)."""

    tail: Int[AnyArray, "links"]
    head: Int[AnyArray, "links"]
    time: Float[AnyArray, "links"]
    cost: Float[AnyArray, "links"]
    origin: Int[AnyArray, "origins"]  #: node of each row
    demand: Float[AnyArray, "origins nodes"]  #: 0 where there is no market
    revenue: Float[AnyArray, "origins nodes"]
    alternative: Float[AnyArray, "origins nodes"]
    into: Int[AnyArray, "nodes degree"]  #: links that enter each node, filled up with the number of links
    out_of: Int[AnyArray, "nodes degree"]  #: links that leave each node, likewise
    through: Bool[AnyArray, "nodes"]  #: False: paths begin and end there, but do not pass

    @property
    def shape(self) -> tuple[int, int, int]:
        """Numbers of origins, nodes and links."""
        n_origins, n_nodes = self.demand.shape
        return n_origins, n_nodes, len(self.time)

    @property
    def figures(self) -> Figures:
        """What may change while the links stay where they are."""
        return Figures(self.time, self.cost, self.demand, self.revenue, self.alternative)

    def with_figures(self, figures: Figures) -> Graph:
        """The same links with other figures, which may be traced."""
        return self._replace(**figures._asdict())


def graph_of(network: TransportNetwork) -> Graph:
    """The network's figures as arrays."""
    origins, row = network.by_origin

    def spread(values: Float[NDArray, "markets"]) -> Float[NDArray, "origins nodes"]:
        table = np.zeros((len(origins), network.n_nodes))
        table[row, network.destination] = values
        return table

    figures = (spread(network.demand), spread(network.revenue), spread(network.alternative_time))
    ends = (_incident(network.head, network.n_nodes), _incident(network.tail, network.n_nodes))
    return Graph(network.tail, network.head, network.time, network.cost, origins, *figures, *ends, network.through)


def _incident(node: Int[NDArray, "links"], n_nodes: int) -> Int[NDArray, "nodes degree"]:
    """For each node the links whose ``node`` it is, padded with one link too many."""
    links = [np.flatnonzero(node == position) for position in range(n_nodes)]
    table = np.full((n_nodes, max(1, *(len(some) for some in links))), len(node))
    for position, some in enumerate(links):
        table[position, : len(some)] = some
    return table


def beside(values: AnyArray, empty: float | bool | Array) -> Array:
    """Values of links (in the first axis) with one more row, which the padding of ``into`` and ``out_of`` points at."""
    return jnp.concatenate([values, jnp.full((1, *values.shape[1:]), empty, dtype=values.dtype)])


def far_ends(graph: Graph) -> tuple[Int[Array, "nodes in_degree"], Int[Array, "nodes out_degree"]]:
    """The node at the other end of every link in ``into`` and in ``out_of``; any node where there is none."""
    last = jnp.zeros(1, dtype=jnp.asarray(graph.tail).dtype)
    return jnp.concatenate([graph.tail, last])[graph.into], jnp.concatenate([graph.head, last])[graph.out_of]


def differences(graph: Graph, potential: Float[AnyArray, "origins nodes"]) -> Float[Array, "origins links"]:
    """Potential at the head of each link less that at its tail."""
    values = jnp.asarray(potential)
    return values[:, graph.head] - values[:, graph.tail]


def arrivals(graph: Graph, flow: Float[AnyArray, "origins links"]) -> Float[Array, "origins nodes"]:
    """What enters each node less what leaves it."""
    empty = jnp.zeros((flow.shape[0], graph.demand.shape[1]))
    return empty.at[:, graph.head].add(flow).at[:, graph.tail].add(-flow)


def at_origin(graph: Graph) -> Bool[Array, "origins nodes"]:
    """True where the column is the row's own origin."""
    return jax.nn.one_hot(graph.origin, graph.demand.shape[1], dtype=bool)


#: On an accelerator every look at what a sweep has changed waits for the host: one after so many sweeps.
SWEEPS_BETWEEN_LOOKS = 16


def is_on_accelerator() -> bool:
    """Whether what is compiled now runs on an accelerator."""
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    platform = jax.default_backend() if device is None else getattr(device, "platform", device)
    return bool(platform != "cpu")


def sweep(
    step: Callable[[Array], Array],
    start: Array,
    has_changed: Callable[[Array, Array], Array] = lambda new, old: (new != old).any(),
    most: int = 1_000_000,
) -> Array:
    """Repeat a step, which changes nothing once it is done, until it changes nothing, or for so many sweeps."""
    at_once = SWEEPS_BETWEEN_LOOKS if is_on_accelerator() else 1

    def several(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        old, new = state[0], step(state[0])
        for _ in range(1, at_once):  # one after the other in the program, which is then launched as a whole
            old, new = new, step(new)
        return new, has_changed(new, old), state[2] + at_once

    state = (start, jnp.asarray(True), jnp.asarray(0))
    return lax.while_loop(lambda state: state[1] & (state[2] < most), several, state)[0]


def usable(
    graph: Graph, is_open: Bool[AnyArray, "links"]
) -> tuple[Bool[Array, "origins nodes"], Bool[Array, "origins links"]]:
    """Nodes that each origin reaches over open links, itself excepted, and the links its passengers may take.

    Nobody needs a link back into the own origin, nor one that begins where nobody can be; nobody may take one out of
    another node that paths do not pass.
    """
    home = at_origin(graph)
    before, _ = far_ends(graph)
    leaving = jnp.asarray(graph.through)[:, None] | home.T
    passable = beside(is_open, False)[graph.into][:, :, None] & leaving[before]

    reached = sweep(lambda marked: marked | jnp.any(marked[before] & passable, axis=1), home.T)
    links = jnp.asarray(is_open)[None, :] & (reached & leaving).T[:, graph.tail]
    links &= graph.head[None, :] != graph.origin[:, None]
    return reached.T & ~home, links


def needed(
    graph: Graph, nodes: Bool[Array, "origins nodes"], links: Bool[Array, "origins links"]
) -> Bool[Array, "origins nodes"]:
    """Those of ``nodes`` from which ``links`` lead to somebody's destination, the destinations themselves among them.

    A flow to any other node must be exactly 0, for nobody gets off there or beyond.
    """
    _, after = far_ends(graph)
    ways = beside(links.T, False)[graph.out_of]

    destinations = (nodes & (jnp.asarray(graph.demand) > 0.0)).T
    marked = sweep(lambda marked: marked | jnp.any(marked[after] & ways, axis=1), destinations)
    return nodes & marked.T


def cheapest(
    graph: Graph,
    costs: Float[AnyArray, "links"],
    nodes: Bool[Array, "origins nodes"],
    links: Bool[Array, "origins links"],
    known: Float[Array, "origins nodes"] | None = None,
) -> Float[Array, "origins nodes"]:
    """Cheapest cost from each origin to each node over ``links`` (Bellman and Ford); 0 outside ``nodes``.

    ``known`` holds upper limits to begin with, infinite where there is none; by default 0 at the origin alone.
    """
    far = jnp.asarray(1e30)
    before, _ = far_ends(graph)
    step = beside(jnp.where(links, costs, far).T, far)[graph.into]

    start = jnp.where(at_origin(graph).T, 0.0, far if known is None else jnp.minimum(known.T, far))
    distance = sweep(lambda values: jnp.minimum(values, jnp.min(values[before] + step, axis=1)), start)
    return jnp.where(nodes, distance.T, 0.0)
