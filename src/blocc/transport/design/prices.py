"""The design problem in the space of link prices, where one evaluation costs two shortest-path computations.

For a set X = {x >= 0} the penalty function needs no inner solver. With D(costs; t_ext) the travellers' least cost when
passing link a costs ``costs[a]`` and nothing limits the flow, weak duality of the lower level gives

    min over x of F_gamma(x)
        =  min over p >= 0 of  gamma [D(t + p + c / gamma; t_ext + m / gamma) - D(t + p; t_ext)] - sum w m.

p is the follower's prices, p + c / gamma the penalised ones, and the gradient in p is gamma times the difference of the
two flows: it vanishes where both answers fill the same capacities. D is explicit (cheapest costs and a logit), so a
small ``temperature`` that spreads passengers over nearly cheapest paths makes the whole a smooth function. gamma from 1
upwards and temperature downwards are followed together.

A design that the descent has reached is a local answer. Closing a link, or opening one that is closed, and descending
again from there may lead to a better one. Such moves are first ranked by one evaluation each, and only the most
promising are tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from blocc._lib.arrays import AnyArray, Array, Bool, Float, Int, NDArray
from blocc._lib.rounding import ROUNDED, TINY
from blocc.transport.travellers.graph import Graph, at_origin, beside, cheapest, differences, far_ends, sweep, usable

#: gamma of the homotopy, up to the one wanted: doubled each time. Ten times each, or half that, ends lower on random
#: networks; half steps take a quarter more evaluations and end no higher.
GAMMAS = tuple(2.0**k for k in range(18))
#: Later temperatures at the last gamma, in units of time.
FINEST = (1e-3, 3e-4, 1e-4, 3e-5, 1e-5)


#: Nodes that each origin reaches, and links that its passengers may take.
Ways = tuple[Bool[Array, "origins nodes"], Bool[Array, "origins links"]]


class Loading(NamedTuple):
    """Travellers on a network without capacities, spread over nearly cheapest paths."""

    value: Float[AnyArray, ""]  #: D: their least cost
    flow: Float[AnyArray, "links"]  #: passengers on each link, the gradient of D in the costs
    potential: Float[AnyArray, "origins nodes"] | None  #: cost to each node, where it was asked for
    share: Float[AnyArray, "origins nodes"]


def stochastic_loading(
    graph: Graph,
    costs: Float[Array, "links"],
    alternative: Float[Array, "origins nodes"],
    is_open: Bool[AnyArray, "links"],
    temperature: Float[Array, ""],
    ways: Ways | None = None,
) -> Loading:
    """Load the network when passing link a costs ``costs[a]``; pure, and its flows are the gradient of its value.

    A path's weight is exp(-cost / temperature). Weights are taken relative to the cheapest path, so that no exponential
    overflows, and their sum over all paths solves a linear system by fixed-point iteration.

    :param ways: what ``usable`` says about the open links, where that is known
    """
    nodes, links = usable(graph, is_open) if ways is None else ways
    reference = cheapest(graph, costs, nodes, links)
    weight = jnp.where(links, jnp.exp(-(costs[None, :] - differences(graph, reference)) / temperature), 0.0)

    def settle(
        source: Float[Array, "origins nodes"], incident: Int[AnyArray, "nodes degree"], ends: Int[Array, "nodes degree"]
    ) -> Float[Array, "origins nodes"]:
        """Solve u = source + (u at the far end of each incident link, times its weight)."""
        by_link = beside(weight.T, 0.0)[incident]

        def differs(new: Array, old: Array) -> Array:
            return jnp.max(jnp.abs(new - old) / (TINY + jnp.abs(new))) > ROUNDED

        given = source.T
        return sweep(lambda old: given + jnp.sum(by_link * old[ends], axis=1), given, differs, 500).T

    before, after = far_ends(graph)
    reach = settle(at_origin(graph).astype(weight.dtype), graph.into, before)
    potential = jnp.where(nodes, reference - temperature * jnp.log(jnp.where(nodes, reach, 1.0)), 0.0)
    demand = jnp.where(nodes, graph.demand, 0.0)
    share = jnp.where(nodes, jax.nn.sigmoid(alternative - potential), 0.0)
    pull = settle(demand * share / jnp.where(nodes, reach, 1.0), graph.out_of, after)
    flow = jnp.sum(pull[:, graph.head] * weight * reach[:, graph.tail], axis=0)
    gain = demand * jax.nn.softplus(alternative - potential)
    return Loading(jnp.sum(graph.demand * (alternative - 1.0) - gain), flow, potential, share)


class PricePenalty(NamedTuple):
    """The penalty function at one vector of prices."""

    value: Float[AnyArray, ""]  #: the least F_gamma over the capacities that these prices support
    gradient: Float[AnyArray, "links"]
    follower: Loading
    penalised: Loading


def evaluate_prices(
    graph: Graph,
    prices: Float[Array, "links"],
    gamma: Float[Array, ""],
    is_open: Bool[AnyArray, "links"],
    temperature: Float[Array, ""],
    ways: Ways | None = None,
) -> PricePenalty:
    """Value and gradient of the penalty function in the prices."""
    # Where a cycle costs next to nothing the sum over all paths diverges; times get a floor that vanishes with the
    # temperature.
    least = temperature * (1.0 + jnp.log(jnp.max(jnp.bincount(graph.tail, length=graph.demand.shape[1]))))
    time = jnp.maximum(graph.time, least)
    costs = jnp.stack([time + prices, time + prices + graph.cost / gamma])
    alternatives = jnp.stack([graph.alternative, graph.alternative + graph.revenue / gamma])
    both = jax.vmap(lambda c, t: stochastic_loading(graph, c, t, is_open, temperature, ways))(costs, alternatives)
    follower, penalised = (jax.tree.map(lambda leaf, i=i: leaf[i], both) for i in (0, 1))
    value = gamma * (penalised.value - follower.value) - jnp.sum(graph.demand * graph.revenue)
    return PricePenalty(value, gamma * (penalised.flow - follower.flow), follower, penalised)


class Descent(NamedTuple):
    """Where a descent in the prices ended."""

    prices: Float[NDArray, "links"]
    capacity: Float[NDArray, "links"]  #: the follower's flows there
    penalised: Float[NDArray, "links"]  #: the penalised flows: the capacities that minimise F_gamma at these prices
    value: float


@dataclass(frozen=True)
class PriceProblem:
    """The penalty function in the prices at one gamma and one temperature, and what a descent of it keeps to."""

    evaluate: Callable[[Float[NDArray, "links"], Bool[NDArray, "links"]], PricePenalty]  #: of prices and open links
    ceiling: float  #: the largest price
    group: Int[NDArray, "links"]  #: links of one group are opened and closed together
    forced: Bool[NDArray, "links"]  #: links that are there even where they are not open: no more than they must be
    #: Called with every evaluation that improves: the prices, which links are open, and what was found.
    observe: Callable[[Float[NDArray, "links"], Bool[NDArray, "links"], PricePenalty], None] = lambda *found: None
    most_steps: int = 100  #: of one descent; none takes more where that would help


def temperature_of(gamma: float, unit: float) -> float:
    """How much smoothing goes with gamma: a tenth of the unit of time at first, less as gamma grows."""
    return 0.1 * unit * min(1.0, (3.0 / gamma) ** 0.7)


def descend(problem: PriceProblem, prices: Float[NDArray, "links"], is_open: Bool[NDArray, "links"]) -> Descent:
    """Minimise over the prices of the open links."""
    able = is_open | problem.forced
    free = np.flatnonzero(able)
    least, where = np.inf, prices
    found: PricePenalty | None = None

    def objective(values: Float[NDArray, "free"]) -> tuple[float, Float[NDArray, "free"]]:
        nonlocal least, where, found
        trial = prices.copy()
        trial[free] = values
        ahead = problem.evaluate(trial, is_open)
        value = float(ahead.value)
        if value < least:
            least, where, found = value, trial, ahead
            problem.observe(trial, is_open, ahead)
        return value, np.asarray(ahead.gradient)[free]

    start = np.clip(prices[free], 0.0, problem.ceiling)
    if len(free):
        bounds = [(0.0, problem.ceiling)] * len(free)
        options = {"maxiter": problem.most_steps, "maxcor": 20, "ftol": 1e-12, "gtol": 1e-6}
        minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    else:
        objective(start)
    assert found is not None
    follower, penalised = (np.where(able, np.asarray(s.flow), 0.0) for s in (found.follower, found.penalised))
    return Descent(where, follower, penalised, least)


#: Smaller gains (relative to the value) are not worth a move.
GAIN = 1e-6
#: On more links than these, not every move is evaluated: so many links and moves in all.
LARGE, MOST_EVALUATED = 300, 40_000


def polish(
    problem: PriceProblem,
    start: Descent,
    is_open: Bool[NDArray, "links"],
    allowed: Bool[NDArray, "links"],
    *,
    threshold: float,
    max_failures: int,
    max_moves: int,
) -> tuple[Descent, Bool[NDArray, "links"]]:
    """Move while it pays; returns where that led and which links are open there.

    :param allowed: links that may be open; the others stay closed
    :param threshold: less flow than this on a link is none
    :param max_failures: so many moves in a row that gain nothing end the search
    """
    best, group = start, problem.group
    for _ in range(max_moves):
        moves = []
        for leader in _promising(best, group, allowed, threshold):
            links = (group == leader) & allowed
            closing = bool((is_open[links] & (best.capacity[links] > threshold)).any())
            changed, prices = is_open.copy(), best.prices.copy()
            changed[links] = not closing
            if not closing:
                prices[links] = 0.0  # as attractive as it can be: the descent then finds what it is worth
            moves.append((float(problem.evaluate(prices, changed).value), changed, prices))
        moves.sort(key=lambda move: move[0])
        for _, changed, prices in moves[:max_failures]:
            found = descend(problem, prices, changed)
            if found.value < best.value - GAIN * (1.0 + abs(best.value)):
                best, is_open = found, changed
                break
        else:
            break
    return best, is_open


def _promising(
    best: Descent, group: Int[NDArray, "links"], allowed: Bool[NDArray, "links"], threshold: float
) -> Int[NDArray, "leaders"]:
    """The groups of links worth a look: all, or of many those that carry least and those that cost least."""
    leaders = np.unique(group[allowed])
    if len(leaders) <= LARGE:
        return leaders
    carrying = best.capacity[leaders] > threshold
    half = max(5, MOST_EVALUATED // len(leaders) // 2)
    smallest = leaders[carrying][np.argsort(best.capacity[leaders[carrying]], kind="stable")[:half]]
    cheapest = leaders[~carrying][np.argsort(best.prices[leaders[~carrying]], kind="stable")[:half]]
    return np.concatenate((smallest, cheapest))
