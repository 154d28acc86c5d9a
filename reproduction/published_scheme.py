"""The scheme that was published for the networks: inexact inner loops with fixed steps, fixed eta.

Each inner loop alternates one step of the multipliers and one of y until its iterates hardly move, which is usually
one iteration from a warm start, so the multipliers lag behind x. That lag, not Algorithm 1, makes a large gamma fail
at a fixed eta: the penalised loop divides its steps by gamma, and with exact inner solutions the same eta converges.
The rules and numbers below were read off the authors' programs for three nodes, nine nodes and Seville. Two of them
are kept as they are there, though they are slips where demands are not 1: the price of a link enters the slope of a
flow without the demand, and the penalised loop descends the revenue without it. Cells of their tables that are no link
carry no flow and fall out of the cost early; they are left out here.

Many runs advance together. In one tick every run makes one inner iteration of its own current loop (the follower's or
the penalised one) and moves x when that loop is over, so that no run waits for another. A large network advances
alone, each loop in full.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, Bool, Float, Int, NDArray
from blocc._lib.compiled import compile_ahead
from blocc._lib.precision import double_precision
from blocc.transport.network.network import TransportNetwork

PRIMAL_STEP, DUAL_STEP = 1e-2, 0.4  #: of the follower's loop; both are divided by gamma in the penalised loop
LEAST_SHARE, LEAST_CAPACITY = 1e-2, 1e-3  #: Y is [0.01, 0.99] for shares and [0, 1] for flows
NO_PRICE = 1.0  #: eta becomes the long step where every price of the follower's was below 1 one step of x ago
#: What the authors' figures leave out: capacities and shares so small count as none.
COUNTED_CAPACITY, COUNTED_SHARE = 1e-2, 2e-2
#: Most inner iterations of a run, for each of its steps of x, and for the first ones, which begin with nothing.
TICKS_PER_STEP, FIRST_TICKS = 20, 40_000
#: A network with more flows than this advances one run at a time.
LARGE = 10_000


class Rules(NamedTuple):
    """What differs between the three programs."""

    long_step: float  #: the step of x while no price is felt
    slack: float  #: a link is over its capacity from so much on
    over: tuple[int, int]  #: so many links may be, in the follower's loop and in the penalised one
    eta: float  #: the step of x in the file
    steps: int  #: of x in the file


#: Three nodes: no link over its capacity, or at most half of the nine cells of the table. The paper says eta 1.6e-4.
RULES = {
    "three": Rules(1e-3, 1e-2, (0, 4), 3.2e-6, 1_200_000),
    "nine": Rules(1e-2, 0.2, (10, 10), 1.6e-4, 200_000),
    "seville": Rules(1e-2, 0.3, (10, 10), 1.6e-4, 1_100_000),
}

Number = Float[Array, ""]
Count = Int[Array, ""]
Switch = Bool[Array, ""]


class Side(NamedTuple):
    """An inner loop: the follower's or the penalised one; or several of them, stacked."""

    share: Float[AnyArray, "*stack markets"]
    flow: Float[AnyArray, "*stack links markets"]
    price: Float[AnyArray, "*stack links"]  #: multipliers of the capacities
    potential: Float[AnyArray, "*stack nodes markets"]  #: multipliers of the conservation rows, all of them


class RunState(NamedTuple):
    """One run, or several of them, stacked."""

    capacity: Float[AnyArray, "*runs links"]
    sides: Side  #: both loops, stacked: 0 the follower's, 1 the penalised one
    calm: Bool[AnyArray, "*runs"]  #: whether no price was felt at the last step of x
    phase: Int[AnyArray, "*runs"]  #: which loop is going on
    step: Int[AnyArray, "*runs"]  #: steps of x so far
    inner: Int[AnyArray, "*runs"]  #: inner iterations so far


class Tables(NamedTuple):
    """The network as the compiled loop wants it."""

    tail: tuple[int, ...]
    head: tuple[int, ...]
    n_nodes: int
    ends: Float[NDArray, "nodes markets"]  #: -1 at the origin, +1 at the destination
    leaving: Float[NDArray, "links markets"]  #: 1 where a link begins at a market's own origin
    time: Float[NDArray, "links"]
    cost: Float[NDArray, "links"]
    demand: Float[NDArray, "markets"]
    alternative: Float[NDArray, "markets"]
    revenue: Float[NDArray, "markets"]


def tables_of(network: TransportNetwork) -> Tables:
    """The arrays of a network."""
    nodes = np.eye(network.n_nodes)
    return Tables(
        tuple(network.tail.tolist()),
        tuple(network.head.tolist()),
        network.n_nodes,
        (nodes[network.destination] - nodes[network.origin]).T,
        (network.tail[:, None] == network.origin[None, :]).astype(np.float64),
        network.time,
        network.cost,
        network.demand,
        network.alternative_time,
        network.revenue,
    )


def _balance(net: Tables, side: Side) -> Float[Array, "nodes markets"]:
    """What leaves every node and does not arrive there, market by market."""
    rows = [jnp.zeros_like(side.share)] * net.n_nodes
    for link, (tail, head) in enumerate(zip(net.tail, net.head, strict=True)):
        rows[tail] = rows[tail] + side.flow[link]
        rows[head] = rows[head] - side.flow[link]
    return jnp.stack(rows) + net.ends * side.share


def _inner_iteration(
    net: Tables, rules: Rules, side: Side, capacity: Float[AnyArray, "links"], gamma: Number, penalised: Switch
) -> tuple[Side, Switch]:
    """One step of the multipliers, one of y; and whether the loop's stopping rule is met."""
    weight = jnp.where(penalised, gamma, 1.0)
    revenue = jnp.where(penalised, net.revenue, 0.0)
    primal, dual = PRIMAL_STEP / weight, DUAL_STEP / weight
    price = jnp.maximum(side.price + dual * (side.flow @ net.demand - capacity), 0.0)
    potential = side.potential + dual * _balance(net, side)
    slope = weight * net.demand * (jnp.log(side.share / (1.0 - side.share)) - net.alternative) - revenue
    slope = slope + jnp.sum(net.ends * potential, axis=0)
    share = jnp.clip(side.share - primal * slope, LEAST_SHARE, 1.0 - LEAST_SHARE)
    climb = jnp.stack([potential[tail] - potential[head] for tail, head in zip(net.tail, net.head, strict=True)])
    cost = weight * net.time[:, None] * net.demand + price[:, None] + climb
    flow = jnp.clip(side.flow - primal * cost, 0.0, 1.0)
    done = _is_over(net, rules, side, share, flow, capacity, penalised)
    return Side(share, flow, price, potential), done


def _is_over(
    net: Tables,
    rules: Rules,
    before: Side,
    share: Float[Array, "markets"],
    flow: Float[Array, "links markets"],
    capacity: Float[AnyArray, "links"],
    penalised: Switch,
) -> Switch:
    """The published stopping rules. Their means run over nodes x nodes tables, diagonals included."""
    cells = float(net.n_nodes**2)
    # Changes are measured in units of the primal step with the weight of g taken out, which is PRIMAL_STEP in both.
    moved = jnp.sum(jnp.abs(share - before.share)) / cells / PRIMAL_STEP
    change = jnp.abs(flow - before.flow)
    drift_mean = jnp.sum(change) / cells**2 / PRIMAL_STEP
    drift_worst = jnp.sum(jnp.max(change, axis=0)) / cells / PRIMAL_STEP
    over = jnp.sum(flow @ net.demand >= capacity + rules.slack)
    missing = jnp.max(jnp.abs(jnp.sum(flow * net.leaving, axis=0) - share))  # of each market, at its own origin
    follower = (moved <= 2e-2) & (drift_mean <= 1e-2) & (over <= rules.over[0]) & (missing <= 0.2)
    loose = (moved <= 3e-2) & (drift_worst <= 0.1) & (over <= rules.over[1]) & (missing <= 0.3)
    return jnp.where(penalised, loose, follower)


def _moved(net: Tables, rules: Rules, gamma: Number, eta: Number, state: RunState, sides: Side) -> Array:
    """The capacities after a step of x."""
    length = jnp.where(state.calm & (state.step > 0), rules.long_step, eta)
    gradient = net.cost + gamma * sides.price[0] - sides.price[1]
    return jnp.maximum(state.capacity - length * gradient, LEAST_CAPACITY)


def _tick(net: Tables, rules: Rules, gamma: Number, eta: Number, limit: Count, state: RunState) -> RunState:
    penalised = state.phase == 1
    side = jax.tree.map(lambda leaf: jnp.where(penalised, leaf[1], leaf[0]), state.sides)
    after, over = _inner_iteration(net, rules, side, state.capacity, gamma, penalised)
    running = state.step < limit
    chosen = (jnp.arange(2) == state.phase) & running
    sides = jax.tree.map(
        lambda old, new: jnp.where(chosen.reshape((2,) + (1,) * new.ndim), new, old), state.sides, after
    )
    stepping = over & penalised & running
    capacity = jnp.where(stepping, _moved(net, rules, gamma, eta, state, sides), state.capacity)
    calm = jnp.where(stepping, jnp.max(sides.price[0]) < NO_PRICE, state.calm)
    phase = jnp.where(over & running, 1 - state.phase, state.phase)
    return RunState(capacity, sides, calm, phase, state.step + stepping, state.inner + running)


def _chunk(
    net: Tables,
    rules: Rules,
    states: RunState,
    gamma: Float[Array, "runs"],
    eta: Float[Array, "runs"],
    limit: Count,
    ticks: Count,
) -> RunState:
    one = jax.vmap(partial(_tick, net, rules), in_axes=(0, 0, None, 0))
    return jax.lax.fori_loop(0, ticks, lambda _, now: one(gamma, eta, limit, now), states)


def _chunk_alone(
    net: Tables, rules: Rules, states: RunState, gamma: Float[Array, "one"], eta: Float[Array, "one"], limit: Count
) -> RunState:
    """Steps of x of a single run up to ``limit``, or to the most inner iterations for so many.

    Each inner loop ends by its rule, or at a limit of iterations.
    """

    def loop(state: RunState, index: int) -> RunState:
        side = jax.tree.map(lambda leaf: leaf[index], state.sides)
        side, made, _ = jax.lax.while_loop(
            lambda now: ~now[2] & (now[1] < FIRST_TICKS),
            lambda now: _counted(
                _inner_iteration(net, rules, now[0], state.capacity, gamma[0], jnp.asarray(index == 1)), now[1]
            ),
            (side, jnp.asarray(0), jnp.asarray(False)),
        )
        sides = jax.tree.map(lambda leaf, new: leaf.at[index].set(new), state.sides, side)
        return state._replace(sides=sides, inner=state.inner + made)

    def step(state: RunState) -> RunState:
        state = loop(loop(state, 0), 1)
        capacity = _moved(net, rules, gamma[0], eta[0], state, state.sides)
        calm = jnp.max(state.sides.price[0]) < NO_PRICE
        return state._replace(capacity=capacity, calm=calm, step=state.step + 1)

    alone = jax.tree.map(lambda leaf: leaf[0], states)
    most = TICKS_PER_STEP * limit + FIRST_TICKS
    ended = jax.lax.while_loop(lambda state: (state.step < limit) & (state.inner < most), step, alone)
    return jax.tree.map(lambda leaf: leaf[None], ended)


def _counted(found: tuple[Side, Switch], made: Count) -> tuple[Side, Count, Switch]:
    return found[0], made + 1, found[1]


def cold_states(network: TransportNetwork, starts: Float[NDArray, "runs links"]) -> RunState:
    """Runs that have not begun: shares at their least, no flow, no prices."""
    count, k, a, s = len(starts), network.n_markets, network.n_links, network.n_nodes
    sides = Side(
        jnp.full((count, 2, k), LEAST_SHARE),
        jnp.zeros((count, 2, a, k)),
        jnp.zeros((count, 2, a)),
        jnp.zeros((count, 2, s, k)),
    )
    zero = jnp.zeros(count, dtype=int)
    return RunState(jnp.asarray(starts), sides, jnp.zeros(count, dtype=bool), zero, zero, zero)


def is_large(network: TransportNetwork) -> bool:
    """Whether runs on this network advance one at a time."""
    return network.n_links * network.n_markets > LARGE


def run_published(
    network: TransportNetwork,
    starts: Float[NDArray, "runs links"],
    gammas: Float[NDArray, "runs"],
    etas: Float[NDArray, "runs"],
    steps: int,
    samples: int = 100,
    rules: Rules = RULES["three"],
) -> tuple[list[RunState], list[float], float]:
    """Run all rows of ``starts``, each with its own gamma and eta, for ``steps`` steps of x.

    Returns the states at about ``samples`` equally spaced moments, the last one at the end, the seconds until each of
    them, and the seconds to compile. A run whose inner loops do not end is cut off (:data:`TICKS_PER_STEP`).
    """
    with double_precision():
        states = cold_states(network, np.asarray(starts, dtype=np.float64))
        net = tables_of(network)
        numbers = (jnp.asarray(gammas, jnp.float64), jnp.asarray(etas, jnp.float64))
        advance_alone = is_large(network) and len(starts) == 1
        if advance_alone:
            advance, compiled = compile_ahead(partial(_chunk_alone, net, rules), states, *numbers, jnp.asarray(0))
            limits = np.unique(np.linspace(0, steps, samples + 1).astype(int)[1:])
            moments: list[Any] = [(*numbers, jnp.asarray(limit)) for limit in limits]
        else:
            ticks = max(1, -(-2 * steps // samples))  # a step of x takes two ticks and rarely more
            every = (*numbers, jnp.asarray(steps), jnp.asarray(ticks))
            advance, compiled = compile_ahead(partial(_chunk, net, rules), states, *every)
            moments = [every] * -(-(TICKS_PER_STEP * steps + FIRST_TICKS) // ticks)
        began = time.perf_counter()
        seen: list[RunState] = []
        seconds: list[float] = []
        for place, arguments in enumerate(moments):
            states = advance(states, *arguments)
            done = bool((states.step >= steps).all())
            if advance_alone:
                done |= int(states.step[0]) < int(arguments[-1])  # its inner loops no longer end
            if place < samples or done or place == len(moments) - 1:
                seen.append(jax.device_get(states))
                seconds.append(time.perf_counter() - began)
            if done:
                break
        return seen, seconds, compiled


def counted_utility(
    network: TransportNetwork, capacity: Float[NDArray, "links"], share: Float[NDArray, "markets"]
) -> float:
    """Revenue less cost as the authors' program counts it: tiny capacities and shares are left out."""
    kept = np.where(capacity < COUNTED_CAPACITY, 0.0, capacity)
    served = np.where(share < COUNTED_SHARE, 0.0, share)
    return float((network.revenue * network.demand) @ served - network.cost @ kept)
