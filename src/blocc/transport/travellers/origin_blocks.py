"""Newton's system of the transport lower level: residuals, factors and directions.

The unknowns are flows, shares and slacks with their multipliers, potentials and prices. Eliminating all but the last
two leaves one positive definite block for each origin; eliminating the potentials, one Schur complement in the prices.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular

from blocc.transport.travellers.graph import Graph, arrivals, differences, negative_entropy

Array = Any


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


class Case(NamedTuple):
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


class Residuals(NamedTuple):
    """How far a point is from a solution, equation by equation."""

    dual: Array
    balance: Array
    capacity: Array
    choice: Array
    complementarity: Array  #: mean product of the complementary pairs


# --- residuals -----------------------------------------------------------------------------------------------------
def residuals_of(case: Case, point: Point) -> Residuals:
    """All residuals at a point."""
    graph, links, is_open = case.graph, case.links, case.is_open
    dual = graph.time + point.price - differences(graph, point.potential) - point.reduced_cost
    balance = jnp.where(case.nodes, arrivals(graph, point.flow), 0.0) - case.demand * point.share
    capacity = case.capacity - point.flow.sum(axis=0) - point.slack
    choice = jnp.log(point.share) - jnp.log(point.stay) - case.alternative + point.potential - point.low + point.high
    return Residuals(
        jnp.where(links, dual, 0.0),
        balance,
        jnp.where(is_open, capacity, 0.0),
        jnp.where(case.demand > 0.0, choice, 0.0),
        mean_product(case, point),
    )


def mean_product(case: Case, point: Point) -> Array:
    """Mean of the complementary products: zero at a solution."""
    total = jnp.sum(jnp.where(case.links, point.flow * point.reduced_cost, 0.0))
    total += jnp.sum(jnp.where(case.is_open, point.slack * point.price, 0.0))
    total += jnp.sum(case.demand * (point.share * point.low + point.stay * point.high))
    return total / jnp.maximum(case.links.sum() + case.is_open.sum() + 2 * (case.demand > 0).sum(), 1)


def error_of(case: Case, point: Point) -> Array:
    """The largest residual, relative to the network's scales."""
    r, (passengers, time) = residuals_of(case, point), case.scales
    parts = (
        jnp.max(jnp.abs(r.dual)) / time,
        jnp.max(jnp.abs(r.balance)) / passengers,
        jnp.max(jnp.abs(r.capacity)) / passengers,
        jnp.max(jnp.abs(r.choice) * point.share * (1.0 - point.share)),
        r.complementarity / (passengers * time),
    )
    return jnp.max(jnp.stack(parts))


def values_of(case: Case, point: Point) -> tuple[Array, Array]:
    """The objective at the point, and the dual objective at its prices and potentials."""
    graph, everyone = case.graph, case.graph.demand * (case.alternative - 1.0)
    cost = jnp.sum(point.flow * graph.time)
    cost += jnp.sum(everyone + case.demand * (negative_entropy(point.share) - case.alternative * point.share))
    gain = case.demand * jax.nn.softplus(case.alternative - point.potential)
    return cost, jnp.sum(everyone - gain) - jnp.dot(point.price, case.capacity)


# --- Newton's system -----------------------------------------------------------------------------------------------
class Factors(NamedTuple):
    """Newton's matrix, factorised."""

    conductance: Array  #: how much a flow answers to its cost
    blocks: Array  #: Cholesky factor of each origin's block
    coupling: Array  #: each block's inverse factor applied to incidence times conductance
    schur: Array  #: Cholesky factor of the Schur complement in the prices


def _give(point: Point) -> Array:
    """How much a share answers to its cost: y (1 - y) in the end, where the bounds' multipliers are gone."""
    return 1.0 / ((1.0 + point.low) / point.share + (1.0 + point.high) / point.stay)


def factorise(case: Case, point: Point, complementarity: Array) -> Factors:
    """Factorise every origin's block and the Schur complement at a point."""
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
    return Factors(conductance, blocks, coupling, jnp.linalg.cholesky(schur))


class Products(NamedTuple):
    """The complementary products, or what should be added to them."""

    flow: Array
    slack: Array
    low: Array
    high: Array


def products_of(left: Point, right: Point) -> Products:
    """Primal variables of one point times the multipliers of another."""
    return Products(
        left.flow * right.reduced_cost, left.slack * right.price, left.share * right.low, left.stay * right.high
    )


def direction(case: Case, point: Point, f: Factors, r: Residuals, wanted: Products) -> Point:
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


def longest_step(point: Point, step: Point) -> Array:
    """The longest step that keeps every variable with a bound inside it."""

    def ratio(value: Array, change: Array) -> Array:
        return jnp.min(jnp.where(change < 0, -value / jnp.where(change < 0, change, -1.0), jnp.inf))

    bounded = [name for name in Point._fields if name != "potential"]
    return jnp.min(jnp.stack([ratio(getattr(point, name), getattr(step, name)) for name in bounded]))
