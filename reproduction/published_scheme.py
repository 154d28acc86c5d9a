"""The scheme that was published for the network of three nodes: inexact inner loops with fixed steps, fixed eta.

Each inner loop alternates one step of the multipliers and one of y until its iterates hardly move, which is usually
one iteration from a warm start, so the multipliers lag behind x. That lag, not Algorithm 1, makes a large gamma fail
at a fixed eta: the penalised loop divides its steps by gamma, and with exact inner solutions the same eta converges.
The rules and numbers below were read off the authors' program for three nodes; every demand is 1.

Many runs advance together. In one tick every run makes one inner iteration of its own current loop (the follower's or
the penalised one) and moves x when that loop is over, so that no run waits for another.
"""

from __future__ import annotations

import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Array, Bool, Float, Int, NDArray
from blocc._lib.compiled import compile_ahead
from blocc._lib.precision import double_precision
from blocc.transport.network.network import TransportNetwork

PRIMAL_STEP, DUAL_STEP = 1e-2, 0.4  #: of the follower's loop; both are divided by gamma in the penalised loop
LEAST_SHARE, LEAST_CAPACITY = 1e-2, 1e-3  #: Y is [0.01, 0.99] for shares and [0, 1] for flows
LONG_STEP, NO_PRICE = 1e-3, 1.0  #: eta becomes the long step while every price of the follower's is below 1
#: What the authors' figures leave out: capacities and shares so small count as none.
COUNTED_CAPACITY, COUNTED_SHARE = 1e-2, 2e-2
#: Most inner iterations of a run, for each of its steps of x.
TICKS_PER_STEP = 20


Number = Float[Array, ""]
Count = Int[Array, ""]
Switch = Bool[Array, ""]


class Side(NamedTuple):
    """An inner loop: the follower's or the penalised one; or several of them, stacked."""

    share: Float[Array, "*stack markets"]
    flow: Float[Array, "*stack markets links"]
    price: Float[Array, "*stack links"]  #: multipliers of the capacities
    potential: Float[Array, "*stack markets nodes"]  #: multipliers of the conservation rows, all of them


class RunState(NamedTuple):
    """One run, or several of them, stacked."""

    capacity: Float[Array, "*runs links"]
    sides: Side  #: both loops, stacked: 0 the follower's, 1 the penalised one
    phase: Int[Array, "*runs"]  #: which loop is going on
    step: Int[Array, "*runs"]  #: steps of x so far
    inner: Int[Array, "*runs"]  #: inner iterations so far


class Tables(NamedTuple):
    """The network as the compiled loop wants it."""

    tail: Int[NDArray, "links"]
    head: Int[NDArray, "links"]
    incidence: Float[NDArray, "links nodes"]  #: +1 where a link begins, -1 where it ends
    ends: Float[NDArray, "markets nodes"]  #: -1 at the origin, +1 at the destination
    time: Float[NDArray, "links"]
    cost: Float[NDArray, "links"]
    alternative: Float[NDArray, "markets"]
    revenue: Float[NDArray, "markets"]


def tables_of(network: TransportNetwork) -> Tables:
    """The arrays of a network whose demands are all 1."""
    nodes = np.eye(network.n_nodes)
    return Tables(
        network.tail,
        network.head,
        nodes[network.tail] - nodes[network.head],
        nodes[network.destination] - nodes[network.origin],
        network.time,
        network.cost,
        network.alternative_time,
        network.revenue,
    )


def _inner_iteration(
    net: Tables, side: Side, capacity: Float[Array, "links"], gamma: Number, penalised: Switch
) -> tuple[Side, Switch]:
    """One step of the multipliers, one of y; and whether the loop's stopping rule is met."""
    weight = jnp.where(penalised, gamma, 1.0)
    revenue = jnp.where(penalised, net.revenue, 0.0)
    primal, dual = PRIMAL_STEP / weight, DUAL_STEP / weight
    price = jnp.maximum(side.price + dual * (side.flow.sum(axis=0) - capacity), 0.0)
    net_flow = side.flow @ net.incidence + net.ends * side.share[:, None]
    potential = side.potential + dual * net_flow
    slope = weight * (jnp.log(side.share / (1.0 - side.share)) - net.alternative) - revenue
    slope = slope + jnp.sum(net.ends * potential, axis=1)
    share = jnp.clip(side.share - primal * slope, LEAST_SHARE, 1.0 - LEAST_SHARE)
    cost = weight * net.time + price + potential @ net.incidence.T
    flow = jnp.clip(side.flow - primal * cost, 0.0, 1.0)
    done = _is_over(net, side, share, flow, capacity, penalised)
    return Side(share, flow, price, potential), done


def _is_over(
    net: Tables,
    before: Side,
    share: Float[Array, "markets"],
    flow: Float[Array, "markets links"],
    capacity: Float[Array, "links"],
    penalised: Switch,
) -> Switch:
    """The published stopping rules. Their means run over nodes x nodes tables, diagonals included."""
    cells = float(net.incidence.shape[1] ** 2)
    # Changes are measured in units of the primal step with the weight of g taken out, which is PRIMAL_STEP in both.
    moved = jnp.sum(jnp.abs(share - before.share)) / cells / PRIMAL_STEP
    change = jnp.abs(flow - before.flow)
    drift_mean = jnp.sum(change) / cells**2 / PRIMAL_STEP
    drift_worst = jnp.sum(jnp.max(change, axis=1)) / cells / PRIMAL_STEP
    fits = flow.sum(axis=0) < capacity + 1e-2
    leaving = jnp.sum(flow * (net.ends[:, net.tail] < 0.0), axis=1)  # of each market, from its own origin
    missing = jnp.max(jnp.abs(leaving - share))
    follower = (moved <= 2e-2) & (drift_mean <= 1e-2) & fits.all() & (missing <= 0.2)
    empty = cells - capacity.shape[0]  # the table's cells without a link count as fitting
    half = (jnp.sum(fits) + empty) / cells >= 0.5
    return jnp.where(penalised, (moved <= 3e-2) & half & (missing <= 0.3) & (drift_worst <= 0.1), follower)


def _tick(net: Tables, gamma: Number, eta: Number, limit: Count, state: RunState) -> RunState:
    penalised = state.phase == 1
    side = jax.tree.map(lambda leaf: jnp.where(penalised, leaf[1], leaf[0]), state.sides)
    moved, over = _inner_iteration(net, side, state.capacity, gamma, penalised)
    running = state.step < limit
    chosen = (jnp.arange(2) == state.phase) & running
    sides = jax.tree.map(
        lambda old, new: jnp.where(chosen.reshape((2,) + (1,) * new.ndim), new, old), state.sides, moved
    )
    # The step length samples at the follower's prices one step of x ago; by one inner iteration that is the same.
    length = jnp.where((jnp.max(sides.price[0]) < NO_PRICE) & (state.step > 1), LONG_STEP, eta)
    gradient = net.cost + gamma * sides.price[0] - sides.price[1]
    stepping = over & penalised & running
    capacity = jnp.where(stepping, jnp.maximum(state.capacity - length * gradient, LEAST_CAPACITY), state.capacity)
    phase = jnp.where(over & running, 1 - state.phase, state.phase)
    return RunState(capacity, sides, phase, state.step + stepping, state.inner + running)


def _chunk(
    net: Tables, states: RunState, gamma: Float[Array, "runs"], eta: Float[Array, "runs"], limit: Count, ticks: Count
) -> RunState:
    one = jax.vmap(partial(_tick, net), in_axes=(0, 0, None, 0))
    return jax.lax.fori_loop(0, ticks, lambda _, now: one(gamma, eta, limit, now), states)


def cold_states(network: TransportNetwork, starts: Float[NDArray, "runs links"]) -> RunState:
    """Runs that have not begun: shares at their least, no flow, no prices."""
    count, k, a, s = len(starts), network.n_markets, network.n_links, network.n_nodes
    sides = Side(
        jnp.full((count, 2, k), LEAST_SHARE),
        jnp.zeros((count, 2, k, a)),
        jnp.zeros((count, 2, a)),
        jnp.zeros((count, 2, k, s)),
    )
    zero = jnp.zeros(count, dtype=int)
    return RunState(jnp.asarray(starts), sides, zero, zero, zero)


def run_published(
    network: TransportNetwork,
    starts: Float[NDArray, "runs links"],
    gammas: Float[NDArray, "runs"],
    etas: Float[NDArray, "runs"],
    steps: int,
    samples: int = 100,
) -> tuple[list[RunState], list[float], float]:
    """Run all rows of ``starts``, each with its own gamma and eta, for ``steps`` steps of x.

    Returns the states at about ``samples`` equally spaced moments, the last one at the end, the seconds until each of
    them, and the seconds to compile. A run whose inner loops do not end is cut off (:data:`TICKS_PER_STEP`).
    """
    with double_precision():
        states = cold_states(network, np.asarray(starts, dtype=np.float64))
        ticks = max(1, -(-2 * steps // samples))  # a step of x takes two ticks and rarely more
        arguments = (
            jnp.asarray(gammas, jnp.float64),
            jnp.asarray(etas, jnp.float64),
            jnp.asarray(steps),
            jnp.asarray(ticks),
        )
        advance, compiled = compile_ahead(partial(_chunk, tables_of(network)), states, *arguments)
        began = time.perf_counter()
        seen: list[RunState] = []
        seconds: list[float] = []
        for sample in range(-(-TICKS_PER_STEP * steps // ticks)):
            states = advance(states, *arguments)
            done = bool((states.step >= steps).all())
            if sample < samples or done:
                seen.append(jax.device_get(states))
                seconds.append(time.perf_counter() - began)
            if done:
                break
        else:
            seen.append(jax.device_get(states))
            seconds.append(time.perf_counter() - began)
        return seen, seconds, compiled


def counted_utility(
    network: TransportNetwork, capacity: Float[NDArray, "links"], share: Float[NDArray, "markets"]
) -> float:
    """Revenue less cost as the authors' program counts it: tiny capacities and shares are left out."""
    kept = np.where(capacity < COUNTED_CAPACITY, 0.0, capacity)
    served = np.where(share < COUNTED_SHARE, 0.0, share)
    return float(network.revenue @ served - network.cost @ kept)
