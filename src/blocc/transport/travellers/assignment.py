"""The travellers' answer to given capacities: an interior-point method that uses the network's structure.

The flows of one origin are added up over its destinations (time and capacity see no more than that), which leaves

    minimise    sum t q + sum w [t_ext (1 - y) + y ln y + (1 - y) ln(1 - y) - 1]
    subject to  what arrives at a node  =  w y,      sum over the origins of q  <=  x,      q >= 0.

Newton's system then falls into one small positive definite block for each origin, all factorised in one batch, and one
Schur complement over the links, whose unknowns are the prices. Links of capacity 0 take no part: they are closed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import cho_solve

from blocc.transport.travellers.graph import Graph, cheapest, differences, usable
from blocc.transport.travellers.origin_blocks import (
    Case,
    Point,
    Products,
    direction,
    error_of,
    factorise,
    longest_step,
    mean_product,
    products_of,
    residuals_of,
    values_of,
)

Array = Any

MAX_ITERATIONS = 120
#: A warm start that has not led to the solution by then was a bad one: the iteration begins again without it.
PATIENCE = 10
#: Rounding has the last word: after so many iterations without progress the best point is the answer.
IDLE = 20


class LowerLevel(NamedTuple):
    """The travellers' answer, its value from both sides, and how well it is solved."""

    point: Point
    value: Array  #: the objective at the flows and shares
    bound: Array  #: the dual objective: no answer can be cheaper
    error: Array  #: largest residual, relative to the network's scales
    iterations: Array
    nodes: Array  #: which nodes each origin reaches
    links: Array  #: which links its passengers may take


class _Progress(NamedTuple):
    """State of the iteration."""

    point: Point
    best: Point
    error: Array  #: of the best point
    idle: Array  #: iterations since the error fell by a third
    count: Array


def cold(graph: Graph) -> Point:
    """A point that carries no information."""
    origins, nodes, links = graph.shape
    table, at_nodes, at_links = jnp.zeros((origins, links)), jnp.zeros((origins, nodes)), jnp.zeros(links)
    return Point(table, table, at_links, at_links, at_nodes, at_nodes, at_nodes, at_nodes, at_nodes)


def solve_lower_level(graph: Graph, capacity: Array, alternative: Array, warm: Point, tolerance: Array) -> LowerLevel:
    """Solve at these capacities, with these times of the existing network; pure and traceable.

    ``warm`` is the solution of a nearby problem, or :func:`cold`.
    """
    unit = _unit(graph)
    graph, capacity, warm = graph._replace(demand=graph.demand / unit), capacity / unit, _in_units(warm, 1.0 / unit)
    # Nobody can fill a link beyond the whole demand; so much room is as good as any.
    capacity = jnp.minimum(capacity, 2.0 * jnp.sum(graph.demand) + 1.0)
    is_open = capacity > 0.0
    nodes, links = usable(graph, is_open)
    case = Case(graph, capacity, alternative, jnp.where(nodes, graph.demand, 0.0), is_open, nodes, links)
    first = _start(case)
    is_warm = jnp.any(warm.price > 0.0)
    begin = jax.tree.map(lambda a, b: jnp.where(is_warm, a, b), _warmed(case, warm), first)

    def advance(state: _Progress) -> _Progress:
        again = is_warm & (state.count == PATIENCE)
        point = jax.tree.map(lambda a, b: jnp.where(again, a, b), first, state.point)
        point = _step(case, point)
        error = error_of(case, point)
        better = error < state.error
        best = jax.tree.map(lambda a, b: jnp.where(better, a, b), point, state.best)
        idle = jnp.where((error < 0.7 * state.error) | again, 0, state.idle + 1)
        return _Progress(point, best, jnp.where(better, error, state.error), idle, state.count + 1)

    def unfinished(state: _Progress) -> Array:
        hopeful = (state.idle < IDLE) | (is_warm & (state.count <= PATIENCE))
        return ~(state.error <= tolerance) & hopeful & (state.count < MAX_ITERATIONS)

    zero = jnp.asarray(0)
    error = jnp.nan_to_num(error_of(case, begin), nan=jnp.inf)
    ended = lax.while_loop(unfinished, advance, _Progress(begin, begin, error, zero, zero))
    point, error, count = ended.best, ended.error, ended.count
    # The shares that belong to the potentials exactly: tiny shares are then right in their own scale too.
    point = point._replace(share=jnp.where(nodes, jax.nn.sigmoid(alternative - point.potential), 0.0))
    value, bound = values_of(case, point)
    return LowerLevel(_in_units(point, unit), unit * value, unit * bound, error, count, nodes, links)


def _unit(graph: Graph) -> Array:
    """Mean demand of a market: the tolerances and the safeguards are meant for passengers in this unit."""
    total = jnp.sum(graph.demand)
    return jnp.where(total > 0.0, total / jnp.maximum(jnp.sum(graph.demand > 0.0), 1), 1.0)


def _in_units(point: Point, factor: Array) -> Point:
    """The same point with its passengers counted in another unit."""
    return point._replace(flow=factor * point.flow, slack=factor * point.slack)


def sensitivity(graph: Graph, capacity: Array, solution: LowerLevel) -> Array:
    """Second derivative of the travellers' value in the capacities, which is minus that of the prices.

    It is the inverse of the Schur complement at the solution, so it costs no more than one further iteration.
    """
    unit = _unit(graph)
    graph, capacity = graph._replace(demand=graph.demand / unit), capacity / unit
    is_open = capacity > 0.0
    demand = jnp.where(solution.nodes, graph.demand, 0.0)
    case = Case(graph, capacity, graph.alternative, demand, is_open, solution.nodes, solution.links)
    point = _in_units(solution.point, 1.0 / unit)
    factors = factorise(case, point, residuals_of(case, point).complementarity)
    inverse = cho_solve((factors.schur, True), jnp.eye(len(capacity)))
    return jnp.where(is_open[:, None] & is_open[None, :], 0.5 * (inverse + inverse.T) / unit, 0.0)


# --- where to begin ------------------------------------------------------------------------------------------------
def _start(case: Case) -> Point:
    """Dual feasible: potentials are cheapest costs at half of the prices, so every reduced cost is positive."""
    graph = case.graph
    price = jnp.where(case.is_open, 1.0, 0.0)
    potential = cheapest(graph, graph.time + 0.5 * price, case.nodes, case.links)
    reduced = jnp.where(case.links, graph.time + price - differences(graph, potential), 1.0)
    # Very small capacities would begin far off centre; they get room at first, and the capacity row closes later.
    room = jnp.maximum(case.capacity, 0.1 * jnp.sum(graph.demand) / len(graph.time))
    flow = jnp.where(case.links, 0.5 * room / jnp.maximum(case.links.sum(axis=0), 1), 0.0)
    slack = jnp.where(case.is_open, 0.5 * room, 1.0)
    return Point(flow, reduced, price, slack, potential, *_bounded(case, _logit(case, potential, 0.1), 1.0))


def _warmed(case: Case, warm: Point) -> Point:
    """An earlier solution, pushed a little into the interior."""
    least, small = 1e-3, 1e-3 * jnp.minimum(case.capacity, 1.0)
    flow = jnp.where(case.links, jnp.maximum(warm.flow, small), 0.0)
    reduced = jnp.where(case.links, jnp.maximum(warm.reduced_cost, least), 1.0)
    price = jnp.where(case.is_open, jnp.maximum(warm.price, least), 0.0)
    slack = jnp.where(case.is_open, jnp.maximum(case.capacity - flow.sum(axis=0), small), 1.0)
    potential = jnp.where(case.nodes, warm.potential, 0.0)
    return Point(flow, reduced, price, slack, potential, *_bounded(case, _logit(case, potential, 1e-9), 1e-4))


def _logit(case: Case, potential: Array, margin: float) -> Array:
    share = jnp.clip(jax.nn.sigmoid(case.alternative - potential), margin, 1.0 - margin)
    return jnp.where(case.nodes, share, 0.5)


def _bounded(case: Case, share: Array, product: float) -> tuple[Array, Array, Array, Array]:
    """Shares with those who stay, and multipliers of both bounds that make complementary products of this size.

    The entropy keeps shares inside by itself, but only in the end: Newton steps would run into the bounds before.
    """
    some = case.demand > 0.0
    return share, 1.0 - share, jnp.where(some, product / share, 0.0), jnp.where(some, product / (1.0 - share), 0.0)


def _step(case: Case, point: Point) -> Point:
    """One iteration of Mehrotra's predictor and corrector."""
    r = residuals_of(case, point)
    factors = factorise(case, point, r.complementarity)
    products = products_of(point, point)
    aim = direction(case, point, factors, r, jax.tree.map(jnp.negative, products))
    length = jnp.minimum(1.0, longest_step(point, aim))
    ahead = jax.tree.map(lambda value, change: value + length * change, point, aim)
    left = mean_product(case, ahead)
    target = r.complementarity * jnp.clip((left / r.complementarity) ** 3, 1e-6, 1.0)
    some = case.demand > 0.0
    each = target / jnp.where(some, case.demand, 1.0)  # the bounds' multipliers are per passenger
    targets = Products(target, target, each, each)
    wanted = jax.tree.map(lambda t, now, ahead: t - now - ahead, targets, products, products_of(aim, aim))
    wanted = wanted._replace(low=jnp.where(some, wanted.low, 0.0), high=jnp.where(some, wanted.high, 0.0))
    step = direction(case, point, factors, r, wanted)
    length = jnp.minimum(1.0, 0.995 * longest_step(point, step))
    return jax.tree.map(lambda value, change: value + length * change, point, step)
