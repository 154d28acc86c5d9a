"""The travellers' answer to given capacities: an interior-point method that uses the network's structure.

The flows of one origin are added up over its destinations (time and capacity see no more than that), which leaves

    minimise    sum t q + sum w [t_ext (1 - y) + y ln y + (1 - y) ln(1 - y) - 1]
    subject to  what arrives at a node  =  w y,      sum over the origins of q  <=  x,      q >= 0.

Newton's system then falls into one small positive definite block for each origin, all factorised in one batch, and one
Schur complement over the links, whose unknowns are the prices. Links of capacity 0 take no part: they are closed.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from blocc._lib.arrays import AnyArray, Array, Bool, Float, Int
from blocc.inner.mehrotra import IterationState, Limits, corrected_direction, iterate, move
from blocc.transport.travellers.graph import Graph, cheapest, differences, usable
from blocc.transport.travellers.origin_blocks import (
    AssignmentPoint,
    Case,
    direction,
    error_of,
    factorise,
    residuals_of,
    values_of,
)

#: A warm start that has not led to the solution by then was a bad one: the iteration begins again without it.
PATIENCE = 10
#: A step that is not finite is not repaired by regularisation: a warm start is given up in its turn.
LIMITS = Limits(max_iterations=120, patience=30, progress=0.7, largest_regularisation=jnp.inf)


class LowerLevel(NamedTuple):
    """The travellers' answer, its value from both sides, and how well it is solved."""

    point: AssignmentPoint
    value: Float[AnyArray, ""]  #: the objective at the flows and shares
    bound: Float[AnyArray, ""]  #: the dual objective: no answer can be cheaper
    error: Float[AnyArray, ""]  #: largest residual, relative to the network's scales
    iterations: Int[AnyArray, ""]
    nodes: Bool[AnyArray, "origins nodes"]  #: which nodes each origin reaches
    links: Bool[AnyArray, "origins links"]  #: which links its passengers may take


def cold(graph: Graph) -> AssignmentPoint:
    """A point that carries no information."""
    origins, nodes, links = graph.shape
    table, at_nodes, at_links = jnp.zeros((origins, links)), jnp.zeros((origins, nodes)), jnp.zeros(links)
    return AssignmentPoint(table, table, at_links, at_links, at_nodes, at_nodes, at_nodes, at_nodes, at_nodes)


def solve_lower_level(
    graph: Graph,
    capacity: Float[Array, "links"],
    alternative: Float[AnyArray, "origins nodes"],
    warm: AssignmentPoint,
    tolerance: float | Float[AnyArray, ""],
) -> LowerLevel:
    """Solve at these capacities, with these times of the existing network; pure and traceable.

    ``warm`` is the solution of a nearby problem, or :func:`cold`.
    """
    unit = _unit(graph)
    graph, capacity, warm = graph._replace(demand=graph.demand / unit), capacity / unit, _in_units(warm, 1.0 / unit)
    # Nobody can fill a link beyond the whole demand; so much room is as good as any.
    capacity = jnp.minimum(capacity, 2.0 * jnp.sum(graph.demand) + 1.0)
    is_open = capacity > 0.0
    nodes, links = usable(graph, is_open)
    case = Case(graph, capacity, jnp.asarray(alternative), jnp.where(nodes, graph.demand, 0.0), is_open, nodes, links)
    first = _start(case)
    is_warm = jnp.any(warm.price > 0.0)
    begin = jax.tree.map(lambda a, b: jnp.where(is_warm, a, b), _warmed(case, warm), first)

    def step(state: IterationState) -> AssignmentPoint:
        again = is_warm & (state.iteration == PATIENCE)
        return _step(case, jax.tree.map(lambda a, b: jnp.where(again, a, b), first, state.point))

    ended = iterate(begin, step, partial(error_of, case), jnp.asarray(tolerance), LIMITS)
    # The shares that belong to the potentials exactly: tiny shares are then right in their own scale too.
    share = jnp.where(nodes, jax.nn.sigmoid(alternative - ended.best.potential), 0.0)
    point = ended.best._replace(share=share)
    value, bound = values_of(case, point)
    answer = _in_units(point, unit), unit * value, unit * bound
    return LowerLevel(*answer, ended.best_error, ended.iteration, nodes, links)


def _step(case: Case, point: AssignmentPoint) -> AssignmentPoint:
    newton = partial(direction, case, point, factorise(case, point), residuals_of(case, point))
    change, _ = corrected_direction(point, case.pairs, newton)
    return move(point, change, case.pairs.longest_step(point, change, 0.995))


def _unit(graph: Graph) -> Float[Array, ""]:
    """Mean demand of a market: the tolerances and the safeguards are meant for passengers in this unit."""
    total = jnp.sum(graph.demand)
    return jnp.where(total > 0.0, total / jnp.maximum(jnp.sum(graph.demand > 0.0), 1), 1.0)


def _in_units(point: AssignmentPoint, factor: float | Float[Array, ""]) -> AssignmentPoint:
    """The same point with its passengers counted in another unit."""
    return point._replace(flow=factor * point.flow, slack=factor * point.slack)


# --- where to begin ------------------------------------------------------------------------------------------------
def _start(case: Case) -> AssignmentPoint:
    """Dual feasible: potentials are cheapest costs at half of the prices, so every reduced cost is positive."""
    graph = case.graph
    price = jnp.where(case.is_open, 1.0, 0.0)
    potential = cheapest(graph, graph.time + 0.5 * price, case.nodes, case.links)
    reduced = jnp.where(case.links, graph.time + price - differences(graph, potential), 1.0)
    # Very small capacities would begin far off centre; they get room at first, and the capacity row closes later.
    room = jnp.maximum(case.capacity, 0.1 * jnp.sum(graph.demand) / len(graph.time))
    flow = jnp.where(case.links, 0.5 * room / jnp.maximum(case.links.sum(axis=0), 1), 0.0)
    slack = jnp.where(case.is_open, 0.5 * room, 1.0)
    return AssignmentPoint(flow, reduced, price, slack, potential, *_bounded(case, _logit(case, potential, 0.1), 1.0))


def _warmed(case: Case, warm: AssignmentPoint) -> AssignmentPoint:
    """An earlier solution, pushed a little into the interior."""
    least, small = 1e-3, 1e-3 * jnp.minimum(case.capacity, 1.0)
    flow = jnp.where(case.links, jnp.maximum(warm.flow, small), 0.0)
    reduced = jnp.where(case.links, jnp.maximum(warm.reduced_cost, least), 1.0)
    price = jnp.where(case.is_open, jnp.maximum(warm.price, least), 0.0)
    slack = jnp.where(case.is_open, jnp.maximum(case.capacity - flow.sum(axis=0), small), 1.0)
    potential = jnp.where(case.nodes, warm.potential, 0.0)
    return AssignmentPoint(flow, reduced, price, slack, potential, *_bounded(case, _logit(case, potential, 1e-9), 1e-4))


def _logit(case: Case, potential: Float[Array, "origins nodes"], margin: float) -> Float[Array, "origins nodes"]:
    share = jnp.clip(jax.nn.sigmoid(case.alternative - potential), margin, 1.0 - margin)
    return jnp.where(case.nodes, share, 0.5)


def _bounded(case: Case, share: Float[Array, "origins nodes"], product: float) -> tuple[Array, Array, Array, Array]:
    """Shares with those who stay, and multipliers of both bounds that make complementary products of this size.

    The entropy keeps shares inside by itself, but only in the end: Newton steps would run into the bounds before.
    """
    some = case.demand > 0.0
    return share, 1.0 - share, jnp.where(some, product / share, 0.0), jnp.where(some, product / (1.0 - share), 0.0)
