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
from jax.scipy.linalg import cho_solve, solve_triangular

from blocc.applications.transport.graph import (
    Graph,
    arrivals,
    cheapest,
    differences,
    negative_entropy,
    usable,
)

Array = Any

MAX_ITERATIONS = 120
#: A warm start that has not led to the solution by then was a bad one: the iteration begins again without it.
PATIENCE = 25
#: Rounding has the last word: after so many iterations without progress the best point is the answer.
IDLE = 20


class Point(NamedTuple):
    """Primal and dual variables. ``share`` and ``potential`` stand at (origin, node), ``flow`` at (origin, link)."""

    flow: Array
    reduced_cost: Array  #: multiplier of flow >= 0
    price: Array  #: multiplier of each capacity
    slack: Array  #: capacity left on each link
    potential: Array  #: cheapest cost to each node, prices included
    share: Array
    stay: Array  #: 1 - share, kept apart because it loses no digits near 0
    low: Array  #: multiplier of share >= 0, per passenger
    high: Array  #: multiplier of stay >= 0, per passenger


class LowerLevel(NamedTuple):
    """The travellers' answer, its value from both sides, and how well it is solved."""

    point: Point
    value: Array  #: the objective at the flows and shares
    bound: Array  #: the dual objective: no answer can be cheaper
    error: Array  #: largest residual, relative to the network's scales
    iterations: Array
    nodes: Array  #: which nodes each origin reaches
    links: Array  #: which links its passengers may take


class _Case(NamedTuple):
    """One lower level, with what stays fixed during the iteration."""

    graph: Graph
    capacity: Array
    alternative: Array
    demand: Array  #: 0 where nobody can travel
    is_open: Array
    nodes: Array
    links: Array

    @property
    def scales(self) -> tuple[Array, Array]:
        """Units of passengers and of time."""
        return 1.0 + jnp.max(self.demand), 1.0 + jnp.max(self.graph.time)


class _Progress(NamedTuple):
    """State of the iteration."""

    point: Point
    best: Point
    error: Array  #: of the best point
    idle: Array  #: iterations since the error fell by a third
    count: Array


class _Residuals(NamedTuple):
    dual: Array
    balance: Array
    capacity: Array
    choice: Array
    complementarity: Array  #: mean product of the complementary pairs


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
    case = _Case(graph, capacity, alternative, jnp.where(nodes, graph.demand, 0.0), is_open, nodes, links)
    first = _start(case)
    is_warm = jnp.any(warm.price > 0.0)
    begin = jax.tree.map(lambda a, b: jnp.where(is_warm, a, b), _warmed(case, warm), first)

    def advance(state: _Progress) -> _Progress:
        again = is_warm & (state.count == PATIENCE)
        point = jax.tree.map(lambda a, b: jnp.where(again, a, b), first, state.point)
        point = _step(case, point)
        error = _error(case, point)
        better = error < state.error
        best = jax.tree.map(lambda a, b: jnp.where(better, a, b), point, state.best)
        idle = jnp.where((error < 0.7 * state.error) | again, 0, state.idle + 1)
        return _Progress(point, best, jnp.where(better, error, state.error), idle, state.count + 1)

    def unfinished(state: _Progress) -> Array:
        hopeful = (state.idle < IDLE) | (is_warm & (state.count <= PATIENCE))
        return ~(state.error <= tolerance) & hopeful & (state.count < MAX_ITERATIONS)

    zero = jnp.asarray(0)
    error = jnp.nan_to_num(_error(case, begin), nan=jnp.inf)
    ended = lax.while_loop(unfinished, advance, _Progress(begin, begin, error, zero, zero))
    point, error, count = ended.best, ended.error, ended.count
    # The shares that belong to the potentials exactly: tiny shares are then right in their own scale too.
    point = point._replace(share=jnp.where(nodes, jax.nn.sigmoid(alternative - point.potential), 0.0))
    value, bound = _values(case, point)
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
    case = _Case(graph, capacity, graph.alternative, demand, is_open, solution.nodes, solution.links)
    point = _in_units(solution.point, 1.0 / unit)
    factors = _factorise(case, point, _residuals(case, point).complementarity)
    inverse = cho_solve((factors.schur, True), jnp.eye(len(capacity)))
    return jnp.where(is_open[:, None] & is_open[None, :], 0.5 * (inverse + inverse.T) / unit, 0.0)


# --- where to begin ------------------------------------------------------------------------------------------------
def _start(case: _Case) -> Point:
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


def _warmed(case: _Case, warm: Point) -> Point:
    """An earlier solution, pushed a little into the interior."""
    least, small = 1e-3, 1e-3 * jnp.minimum(case.capacity, 1.0)
    flow = jnp.where(case.links, jnp.maximum(warm.flow, small), 0.0)
    reduced = jnp.where(case.links, jnp.maximum(warm.reduced_cost, least), 1.0)
    price = jnp.where(case.is_open, jnp.maximum(warm.price, least), 0.0)
    slack = jnp.where(case.is_open, jnp.maximum(case.capacity - flow.sum(axis=0), small), 1.0)
    potential = jnp.where(case.nodes, warm.potential, 0.0)
    return Point(flow, reduced, price, slack, potential, *_bounded(case, _logit(case, potential, 1e-9), 1e-4))


def _logit(case: _Case, potential: Array, margin: float) -> Array:
    share = jnp.clip(jax.nn.sigmoid(case.alternative - potential), margin, 1.0 - margin)
    return jnp.where(case.nodes, share, 0.5)


def _bounded(case: _Case, share: Array, product: float) -> tuple[Array, Array, Array, Array]:
    """Shares with those who stay, and multipliers of both bounds that make complementary products of this size.

    The entropy keeps shares inside by itself, but only in the end: Newton steps would run into the bounds before.
    """
    some = case.demand > 0.0
    return share, 1.0 - share, jnp.where(some, product / share, 0.0), jnp.where(some, product / (1.0 - share), 0.0)


# --- residuals -----------------------------------------------------------------------------------------------------
def _residuals(case: _Case, point: Point) -> _Residuals:
    graph, links, is_open = case.graph, case.links, case.is_open
    dual = graph.time + point.price - differences(graph, point.potential) - point.reduced_cost
    balance = jnp.where(case.nodes, arrivals(graph, point.flow), 0.0) - case.demand * point.share
    capacity = case.capacity - point.flow.sum(axis=0) - point.slack
    choice = jnp.log(point.share) - jnp.log(point.stay) - case.alternative + point.potential - point.low + point.high
    return _Residuals(
        jnp.where(links, dual, 0.0),
        balance,
        jnp.where(is_open, capacity, 0.0),
        jnp.where(case.demand > 0.0, choice, 0.0),
        _mean_product(case, point),
    )


def _mean_product(case: _Case, point: Point) -> Array:
    total = jnp.sum(jnp.where(case.links, point.flow * point.reduced_cost, 0.0))
    total += jnp.sum(jnp.where(case.is_open, point.slack * point.price, 0.0))
    total += jnp.sum(case.demand * (point.share * point.low + point.stay * point.high))
    return total / jnp.maximum(case.links.sum() + case.is_open.sum() + 2 * (case.demand > 0).sum(), 1)


def _error(case: _Case, point: Point) -> Array:
    r, (passengers, time) = _residuals(case, point), case.scales
    parts = (
        jnp.max(jnp.abs(r.dual)) / time,
        jnp.max(jnp.abs(r.balance)) / passengers,
        jnp.max(jnp.abs(r.capacity)) / passengers,
        jnp.max(jnp.abs(r.choice) * point.share * (1.0 - point.share)),
        r.complementarity / (passengers * time),
    )
    return jnp.max(jnp.stack(parts))


def _values(case: _Case, point: Point) -> tuple[Array, Array]:
    """The objective at the point, and the dual objective at its prices and potentials."""
    graph, everyone = case.graph, case.graph.demand * (case.alternative - 1.0)
    cost = jnp.sum(point.flow * graph.time)
    cost += jnp.sum(everyone + case.demand * (negative_entropy(point.share) - case.alternative * point.share))
    gain = case.demand * jax.nn.softplus(case.alternative - point.potential)
    return cost, jnp.sum(everyone - gain) - jnp.dot(point.price, case.capacity)


# --- Newton's system -----------------------------------------------------------------------------------------------
class _Factors(NamedTuple):
    conductance: Array  #: how much a flow answers to its cost
    blocks: Array  #: Cholesky factor of each origin's block
    coupling: Array  #: each block's inverse factor applied to incidence times conductance
    schur: Array  #: Cholesky factor of the Schur complement in the prices


def _give(point: Point) -> Array:
    """How much a share answers to its cost: y (1 - y) in the end, where the bounds' multipliers are gone."""
    return 1.0 / ((1.0 + point.low) / point.share + (1.0 + point.high) / point.stay)


def _factorise(case: _Case, point: Point, complementarity: Array) -> _Factors:
    graph, nodes = case.graph, case.nodes
    n_origins, n_nodes, n_links = graph.shape
    # A small proximal term bounds the conductance of used links; were it larger than the complementarity asks for, it
    # would push reduced costs through zero, and without any the Schur complement loses its definiteness to rounding.
    proximal = jnp.clip(0.1 * complementarity, 1e-11, 1e-6)
    flow = jnp.where(case.links, point.flow, 1.0)
    conductance = jnp.where(case.links, 1.0 / (point.reduced_cost / flow + proximal), 0.0)
    response = case.demand * _give(point)
    off = jnp.zeros((n_origins, n_nodes * n_nodes))
    off = off.at[:, graph.head * n_nodes + graph.tail].add(-conductance)
    off = off.at[:, graph.tail * n_nodes + graph.head].add(-conductance)
    diagonal = jnp.zeros((n_origins, n_nodes)).at[:, graph.head].add(conductance).at[:, graph.tail].add(conductance)
    diagonal = jnp.where(nodes, diagonal + response + 1e-12, 1.0)
    inside = nodes[:, :, None] & nodes[:, None, :]
    block = jnp.where(inside, off.reshape(n_origins, n_nodes, n_nodes), 0.0)
    blocks = jnp.linalg.cholesky(block + jnp.eye(n_nodes) * diagonal[:, :, None])
    each = jnp.arange(n_links)
    incidence = jnp.zeros((n_nodes, n_links)).at[graph.head, each].add(1.0).at[graph.tail, each].add(-1.0)
    right = jnp.where(nodes[:, :, None], incidence[None], 0.0) * conductance[:, None, :]
    coupling = solve_triangular(blocks, right, lower=True)
    stacked = coupling.reshape(n_origins * n_nodes, n_links)
    give = jnp.where(case.is_open, point.slack / jnp.where(case.is_open, point.price, 1.0), 1.0)
    schur = jnp.diag(conductance.sum(axis=0) + give) - stacked.T @ stacked
    return _Factors(conductance, blocks, coupling, jnp.linalg.cholesky(schur))


class _Products(NamedTuple):
    """The complementary products, or what should be added to them."""

    flow: Array
    slack: Array
    low: Array
    high: Array


def _products(left: Point, right: Point) -> _Products:
    return _Products(
        left.flow * right.reduced_cost, left.slack * right.price, left.share * right.low, left.stay * right.high
    )


def _direction(case: _Case, point: Point, f: _Factors, r: _Residuals, wanted: _Products) -> Point:
    """Newton's direction towards complementary products that are larger by ``wanted``."""
    graph, links, is_open = case.graph, case.links, case.is_open
    price = jnp.where(is_open, point.price, 1.0)
    push = jnp.where(links, wanted.flow / jnp.where(links, point.flow, 1.0), 0.0)
    free = f.conductance * (push - r.dual)  # the flows' step if prices and potentials stood still
    give = _give(point)
    choice = jnp.where(case.demand > 0.0, r.choice - wanted.low / point.share + wanted.high / point.stay, 0.0)
    response = case.demand * give
    right = -r.balance - response * choice - jnp.where(case.nodes, arrivals(graph, free), 0.0)
    half = solve_triangular(f.blocks, right[..., None], lower=True)[..., 0]
    load = free.sum(axis=0) + jnp.einsum("onl,on->l", f.coupling, half) - r.capacity
    load = jnp.where(is_open, load + wanted.slack / price, 0.0)
    d_price = jnp.where(is_open, cho_solve((f.schur, True), load), 0.0)
    whole = half + jnp.einsum("onl,l->on", f.coupling, d_price)
    d_potential = solve_triangular(f.blocks, whole[..., None], lower=True, trans=1)[..., 0]
    d_potential = jnp.where(case.nodes, d_potential, 0.0)
    d_reduced = jnp.where(links, r.dual + d_price - differences(graph, d_potential), 0.0)
    d_share = jnp.where(case.demand > 0.0, -give * (choice + d_potential), 0.0)
    return Point(
        flow=f.conductance * (push - d_reduced),
        reduced_cost=d_reduced,
        price=d_price,
        slack=jnp.where(is_open, (wanted.slack - point.slack * d_price) / price, 0.0),
        potential=d_potential,
        share=d_share,
        stay=-d_share,
        low=(wanted.low - point.low * d_share) / point.share,
        high=(wanted.high + point.high * d_share) / point.stay,
    )


def _longest(point: Point, step: Point) -> Array:
    """The longest step that keeps every variable with a bound inside it."""

    def ratio(value: Array, change: Array) -> Array:
        return jnp.min(jnp.where(change < 0, -value / jnp.where(change < 0, change, -1.0), jnp.inf))

    bounded = [name for name in Point._fields if name != "potential"]
    return jnp.min(jnp.stack([ratio(getattr(point, name), getattr(step, name)) for name in bounded]))


def _step(case: _Case, point: Point) -> Point:
    """One iteration of Mehrotra's predictor and corrector."""
    r = _residuals(case, point)
    factors = _factorise(case, point, r.complementarity)
    products = _products(point, point)
    aim = _direction(case, point, factors, r, jax.tree.map(jnp.negative, products))
    length = jnp.minimum(1.0, _longest(point, aim))
    ahead = jax.tree.map(lambda value, change: value + length * change, point, aim)
    left = _mean_product(case, ahead)
    target = r.complementarity * jnp.clip((left / r.complementarity) ** 3, 1e-6, 1.0)
    some = case.demand > 0.0
    each = target / jnp.where(some, case.demand, 1.0)  # the bounds' multipliers are per passenger
    targets = _Products(target, target, each, each)
    wanted = jax.tree.map(lambda t, now, ahead: t - now - ahead, targets, products, _products(aim, aim))
    wanted = wanted._replace(low=jnp.where(some, wanted.low, 0.0), high=jnp.where(some, wanted.high, 0.0))
    step = _direction(case, point, factors, r, wanted)
    length = jnp.minimum(1.0, 0.995 * _longest(point, step))
    return jax.tree.map(lambda value, change: value + length * change, point, step)
