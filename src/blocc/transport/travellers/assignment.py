"""The travellers' answer to given capacities: an interior-point method that uses the network's structure.

The flows of one origin are added up over its destinations (time and capacity see no more than that), which leaves

    minimise    sum t q + sum w [t_ext (1 - y) + y ln y + (1 - y) ln(1 - y) - 1]
    subject to  what arrives at a node  =  w y,      sum over the origins of q  <=  x,      q >= 0.

Newton's system then falls into one small positive definite block for each origin, all factorised in one batch, and one
Schur complement over the links, whose unknowns are the prices. Links of capacity 0 take no part: they are closed. Nor
do links on which an origin's flow can only be 0, since nobody's destination lies behind them: without an interior
their multipliers would grow without limit.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.scipy.special import xlogy

from blocc._lib.arrays import AnyArray, Array, Bool, Float, Int
from blocc.inner.mehrotra import IterationState, Limits, Pairs, Products, corrected_direction, iterate, move
from blocc.transport.travellers.graph import Graph, arrivals, cheapest, differences, needed, usable


class AssignmentPoint(NamedTuple):
    """Primal and dual variables."""

    flow: Float[AnyArray, "origins links"]
    reduced_cost: Float[AnyArray, "origins links"]  #: multiplier of flow >= 0
    price: Float[AnyArray, "links"]  #: multiplier of each capacity
    slack: Float[AnyArray, "links"]  #: capacity left on each link
    potential: Float[AnyArray, "origins nodes"]  #: cheapest cost to each node, prices included
    share: Float[AnyArray, "origins nodes"]
    stay: Float[AnyArray, "origins nodes"]  #: 1 - share, kept apart because it loses no digits near 0
    low: Float[AnyArray, "origins nodes"]  #: multiplier of share >= 0, per passenger
    high: Float[AnyArray, "origins nodes"]  #: multiplier of stay >= 0, per passenger


class Case(NamedTuple):
    """One lower level, with what stays fixed during the iteration."""

    graph: Graph
    capacity: Float[Array, "links"]
    alternative: Float[Array, "origins nodes"]
    demand: Float[Array, "origins nodes"]  #: 0 where nobody can travel
    is_open: Bool[Array, "links"]
    nodes: Bool[Array, "origins nodes"]
    links: Bool[Array, "origins links"]

    @property
    def scales(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Units of passengers and of time."""
        return 1.0 + jnp.max(self.demand), 1.0 + jnp.max(self.graph.time)

    @property
    def pairs(self) -> Pairs:
        """The complementary pairs; the multipliers of a share's bounds are per passenger."""
        names = (("flow", "reduced_cost"), ("slack", "price"), ("share", "low"), ("stay", "high"))
        return Pairs(names, (self.links * 1.0, self.is_open * 1.0, self.demand, self.demand))


class Residuals(NamedTuple):
    """How far a point is from a solution, equation by equation."""

    dual: Float[Array, "origins links"]
    balance: Float[Array, "origins nodes"]
    capacity: Float[Array, "links"]
    choice: Float[Array, "origins nodes"]


# --- residuals -----------------------------------------------------------------------------------------------------
def residuals_of(case: Case, point: AssignmentPoint) -> Residuals:
    """All residuals at a point."""
    graph = case.graph
    dual = graph.time + point.price - differences(graph, point.potential) - point.reduced_cost
    balance = jnp.where(case.nodes, arrivals(graph, point.flow), 0.0) - case.demand * point.share
    capacity = case.capacity - point.flow.sum(axis=0) - point.slack
    choice = jnp.log(point.share) - jnp.log(point.stay) - case.alternative + point.potential - point.low + point.high
    return Residuals(
        jnp.where(case.links, dual, 0.0),
        balance,
        jnp.where(case.is_open, capacity, 0.0),
        jnp.where(case.demand > 0.0, choice, 0.0),
    )


def error_of(case: Case, point: AssignmentPoint) -> Float[Array, ""]:
    """The largest residual, relative to the network's scales."""
    r, (passengers, time) = residuals_of(case, point), case.scales
    parts = (
        jnp.max(jnp.abs(r.dual)) / time,
        jnp.max(jnp.abs(r.balance)) / passengers,
        jnp.max(jnp.abs(r.capacity)) / passengers,
        jnp.max(jnp.abs(r.choice) * point.share * (1.0 - point.share)),
        case.pairs.average(point) / (passengers * time),
    )
    return jnp.max(jnp.stack(parts))


def values_of(case: Case, point: AssignmentPoint) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The objective at the point, and the dual objective at its prices and potentials."""
    graph, everyone = case.graph, case.graph.demand * (case.alternative - 1.0)
    entropy = xlogy(point.share, point.share) + xlogy(1.0 - point.share, 1.0 - point.share)  # exactly 0 at both ends
    cost = jnp.sum(point.flow * graph.time)
    cost += jnp.sum(everyone + case.demand * (entropy - case.alternative * point.share))
    gain = case.demand * jax.nn.softplus(case.alternative - point.potential)
    return cost, jnp.sum(everyone - gain) - jnp.dot(point.price, case.capacity)


# --- Newton's system -----------------------------------------------------------------------------------------------
class Factors(NamedTuple):
    """Newton's matrix, factorised."""

    conductance: Float[Array, "origins links"]  #: how much a flow answers to its cost
    elasticity: Float[Array, "origins nodes"]  #: how much a share answers to its cost
    blocks: Float[Array, "origins nodes nodes"]  #: Cholesky factor of each origin's block
    coupling: Float[Array, "origins nodes links"]  #: each block's inverse factor times incidence times conductance
    schur: Float[Array, "links links"]  #: Cholesky factor of the Schur complement in the prices


def factorise(case: Case, point: AssignmentPoint) -> Factors:
    """Factorise every origin's block and the Schur complement at a point."""
    graph, nodes = case.graph, case.nodes
    n_origins, n_nodes, n_links = graph.shape
    # A small proximal term bounds the conductance of used links; were it larger than the complementarity asks for, it
    # would push reduced costs through zero, and without any the Schur complement loses its definiteness to rounding.
    proximal = jnp.clip(0.1 * case.pairs.average(point), 1e-11, 1e-6)
    flow = jnp.where(case.links, point.flow, 1.0)
    conductance = jnp.where(case.links, 1.0 / (point.reduced_cost / flow + proximal), 0.0)
    # y (1 - y) in the end, where the bounds' multipliers are gone
    elasticity = jnp.reciprocal((1.0 + point.low) / point.share + (1.0 + point.high) / point.stay)
    off = jnp.zeros((n_origins, n_nodes * n_nodes))
    off = off.at[:, graph.head * n_nodes + graph.tail].add(-conductance)
    off = off.at[:, graph.tail * n_nodes + graph.head].add(-conductance)
    diagonal = jnp.zeros((n_origins, n_nodes)).at[:, graph.head].add(conductance).at[:, graph.tail].add(conductance)
    diagonal = jnp.where(nodes, diagonal + case.demand * elasticity + 1e-12, 1.0)
    inside = nodes[:, :, None] & nodes[:, None, :]
    block = jnp.where(inside, off.reshape(n_origins, n_nodes, n_nodes), 0.0)
    blocks = jnp.linalg.cholesky(block + jnp.eye(n_nodes) * diagonal[:, :, None])
    each = jnp.arange(n_links)
    incidence = jnp.zeros((n_nodes, n_links)).at[graph.head, each].add(1.0).at[graph.tail, each].add(-1.0)
    right = jnp.where(nodes[:, :, None], incidence[None], 0.0) * conductance[:, None, :]
    coupling = solve_triangular(blocks, right, lower=True)
    stacked = coupling.reshape(n_origins * n_nodes, n_links)
    slack_per_price = jnp.where(case.is_open, point.slack / jnp.where(case.is_open, point.price, 1.0), 1.0)
    schur = jnp.diag(conductance.sum(axis=0) + slack_per_price) - stacked.T @ stacked
    return Factors(conductance, elasticity, blocks, coupling, jnp.linalg.cholesky(schur))


def direction(case: Case, point: AssignmentPoint, f: Factors, r: Residuals, wanted: Products) -> AssignmentPoint:
    """Newton's direction towards complementary products that are larger by ``wanted``, in the order of the pairs."""
    graph, links, is_open = case.graph, case.links, case.is_open
    wanted_flow, wanted_slack, wanted_low, wanted_high = wanted
    price = jnp.where(is_open, point.price, 1.0)
    push = jnp.where(links, wanted_flow / jnp.where(links, point.flow, 1.0), 0.0)
    free = f.conductance * (push - r.dual)  # the flows' step if prices and potentials stood still
    choice = jnp.where(case.demand > 0.0, r.choice - wanted_low / point.share + wanted_high / point.stay, 0.0)
    right = -r.balance - case.demand * f.elasticity * choice - jnp.where(case.nodes, arrivals(graph, free), 0.0)
    half = solve_triangular(f.blocks, right[..., None], lower=True)[..., 0]
    load = free.sum(axis=0) + jnp.einsum("onl,on->l", f.coupling, half) - r.capacity
    load = jnp.where(is_open, load + wanted_slack / price, 0.0)
    d_price = jnp.where(is_open, cho_solve((f.schur, True), load), 0.0)
    whole = half + jnp.einsum("onl,l->on", f.coupling, d_price)
    d_potential = solve_triangular(f.blocks, whole[..., None], lower=True, trans=1)[..., 0]
    d_potential = jnp.where(case.nodes, d_potential, 0.0)
    d_reduced = jnp.where(links, r.dual + d_price - differences(graph, d_potential), 0.0)
    d_share = jnp.where(case.demand > 0.0, -f.elasticity * (choice + d_potential), 0.0)
    return AssignmentPoint(
        flow=f.conductance * (push - d_reduced),
        reduced_cost=d_reduced,
        price=d_price,
        slack=jnp.where(is_open, (wanted_slack - point.slack * d_price) / price, 0.0),
        potential=d_potential,
        share=d_share,
        stay=-d_share,
        low=(wanted_low - point.low * d_share) / point.share,
        high=(wanted_high + point.high * d_share) / point.stay,
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
    reached, passable = usable(graph, is_open)
    nodes = needed(graph, reached, passable)
    links = passable & nodes[:, graph.head]
    case = Case(graph, capacity, jnp.asarray(alternative), jnp.where(nodes, graph.demand, 0.0), is_open, nodes, links)
    first = _start(case)
    is_warm = jnp.any(warm.price > 0.0)
    begin = jax.tree.map(lambda a, b: jnp.where(is_warm, a, b), _warmed(case, warm), first)

    def step(state: IterationState) -> AssignmentPoint:
        again = is_warm & (state.iteration == PATIENCE)
        return _step(case, jax.tree.map(lambda a, b: jnp.where(again, a, b), first, state.point))

    ended = iterate(begin, step, partial(error_of, case), jnp.asarray(tolerance), LIMITS)
    # The shares that belong to the potentials exactly: tiny shares are then right in their own scale too.
    share = jnp.where(case.demand > 0.0, jax.nn.sigmoid(alternative - ended.best.potential), 0.0)
    point = ended.best._replace(share=share)
    value, bound = values_of(case, point)
    point = _completed(case, point, reached, passable)
    answer = _in_units(point, unit), unit * value, unit * bound
    return LowerLevel(*answer, ended.best_error, ended.iteration, reached, passable)


def _completed(
    case: Case, point: AssignmentPoint, reached: Bool[Array, "origins nodes"], passable: Bool[Array, "origins links"]
) -> AssignmentPoint:
    """With the multipliers of nodes and links that nobody needs: cheapest costs on from the other nodes."""
    costs, aside = case.graph.time + point.price, passable & ~case.links
    known = jnp.where(case.nodes, point.potential, jnp.inf)
    beyond = cheapest(case.graph, costs, reached, aside, known)
    potential = jnp.where(case.nodes, point.potential, beyond)
    reduced = jnp.where(aside, costs - differences(case.graph, potential), point.reduced_cost)
    return point._replace(potential=potential, reduced_cost=reduced)


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
