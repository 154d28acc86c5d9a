"""The structured interior point as an inner oracle, so that every method of blocc can design networks with it.

It belongs to :func:`~blocc.transport.travellers.formulation.aggregated_problem`. Minimising s f + gamma g over the
travellers' answers is the lower level again, with t_ext + (s / gamma) m in place of t_ext and everything else times
gamma.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, Float
from blocc.inner.protocol import InnerCode, InnerOracle, InnerSolution, finish
from blocc.lagrangian import Multipliers, Weights
from blocc.problem import BilevelProblem, FlatProblem
from blocc.transport.network.network import TransportNetwork
from blocc.transport.travellers.assignment import LowerLevel, cold, solve_lower_level
from blocc.transport.travellers.flows import group_by_origin
from blocc.transport.travellers.formulation import aggregated_problem
from blocc.transport.travellers.graph import Graph, graph_of
from blocc.transport.travellers.origin_blocks import AssignmentPoint


@dataclass(frozen=True, eq=False)
class OriginOracle(InnerOracle):
    """Solves the lower level of one network, its flows aggregated by origin."""

    network: TransportNetwork
    graph: Graph = field(init=False, repr=False)
    finest: float = 1e-11

    def __post_init__(self) -> None:
        object.__setattr__(self, "graph", graph_of(self.network))

    def cold(self, flat: FlatProblem) -> AssignmentPoint:
        """No information."""
        return cold(self.graph)

    def solve(
        self,
        flat: FlatProblem,
        x: Float[Array, "links"],
        weights: Weights,
        warm: AssignmentPoint,
        tolerance: float | Float[AnyArray, ""],
    ) -> InnerSolution:
        """Solve at capacities ``x`` for any weights."""
        graph = self.graph
        alternative = graph.alternative + weights.upper / weights.lower * graph.revenue
        found = solve_lower_level(graph, x, alternative, warm, tolerance)
        y, multipliers = pack(self.network, graph, found, x, alternative)
        scaled = Multipliers(weights.lower * multipliers.inequality, weights.lower * multipliers.equality)
        code = jnp.where(found.error <= tolerance, int(InnerCode.CONVERGED), int(InnerCode.STALLED))
        return finish(
            flat, x, y, scaled, weights, iterations=jnp.asarray(found.iterations), code=code, warm=found.point
        )


def pack(
    network: TransportNetwork,
    graph: Graph,
    found: LowerLevel,
    capacity: Float[Array, "links"],
    alternative: Float[AnyArray, "origins nodes"],
) -> tuple[Float[Array, "n_y"], Multipliers]:
    """A solution in the flat layout of ``aggregated_problem``: its variables, and its multipliers for weight 1 on g.

    Where nobody can be, the potential is so high that nobody would come; the price of a closed link is the least one
    that keeps it empty.
    """
    _, row = group_by_origin(network)
    point = found.point
    n_nodes = graph.shape[1]
    home = np.eye(n_nodes, dtype=bool)[graph.origin]
    beyond = jnp.max(alternative) + 40.0
    potential = jnp.where(found.nodes | home, point.potential, beyond)
    saved = jnp.max(potential[:, graph.head] - potential[:, graph.tail] - graph.time, axis=0)
    price = jnp.where(capacity > 0.0, point.price, jnp.maximum(saved, 0.0))
    share = jnp.where(graph.demand > 0, point.share, 0.0)[row, network.destination]
    others = np.flatnonzero(~home.ravel())  # every node but the origin, row by row
    y = jnp.concatenate([point.flow.ravel(), share])
    return y, Multipliers(price, potential.ravel()[others])


def structured_problem(network: TransportNetwork, **options: Any) -> BilevelProblem:
    """The aggregated problem with its own oracle; ``options`` are those of ``aggregated_problem``."""
    return aggregated_problem(network, oracle=OriginOracle(network), **options)
