"""The published program of LV-HBA for three nodes, emulated with its mixed-up projection.

The program writes capacities, shares and flows into one vector column by column, and the rows of its projection read
that vector row by row. A flow on the link (p, q) of the market (r, s) is thereby projected as a flow on the link (s, r)
of the market (q, p), a capacity of (p, q) as that of (q, p), and a share likewise, while the gradient steps take every
entry for what it is. Every ordered pair of the three nodes is a link and a market, so entries off the diagonals stay
among themselves; those on the diagonals, which the program sets to zero after each projection, are left out.

The projection is exact here; the program's ends at 1e-4. Steps use what was computed before them in the same iteration,
in the order of the program: theta, multipliers, then (a, f, F).
"""

from __future__ import annotations

import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, Float, Int, NDArray
from blocc._lib.compiled import compile_ahead
from blocc._lib.precision import double_precision
from blocc.flat_problem import FlatProblem
from blocc.methods.projection import AffineRows, project, projector
from blocc.sets import Box
from blocc.transport.network.network import TransportNetwork

ALPHA, BETA, ETA = 0.01, 0.02, 0.01  #: steps of (a, f, F), of z, and of theta and the multipliers
GAMMA_1 = GAMMA_2 = 5.0
PENALTY, POWER = 0.1, 0.4  #: c_k = 0.1 (k + 1)^0.4 divides the leader's gradient
ITERATIONS = 8_000
LEAST, MOST_SHARE, MOST = 2e-4, 0.98, 1e3  #: bounds of entries; MOST is that of capacities and multipliers
COUNTED = 1e-2  #: capacities and shares below count as none in the reported utility


class Wires(NamedTuple):
    """The network with a place for each pair of nodes, and how the projection mixes the places up."""

    network: TransportNetwork
    ends: Float[NDArray, "nodes pairs"]  #: +1 where a pair begins, -1 where it ends
    reverse: Int[NDArray, "pairs"]  #: the place of each pair's reverse


class LvHbaState(NamedTuple):
    """One run, or several of them, stacked."""

    capacity: Float[AnyArray, "*runs pairs"]
    share: Float[AnyArray, "*runs pairs"]
    flow: Float[AnyArray, "*runs pairs pairs"]  #: links, then markets
    theta: Float[AnyArray, "*runs pairs"]
    theta_flow: Float[AnyArray, "*runs pairs pairs"]
    price: Float[AnyArray, "*runs pairs"]
    potential: Float[AnyArray, "*runs nodes pairs"]
    z_price: Float[AnyArray, "*runs pairs"]
    z_potential: Float[AnyArray, "*runs nodes pairs"]
    carried: AffineRows  #: from one projection to the next
    iteration: Int[AnyArray, "*runs"]


def wires_of(network: TransportNetwork) -> Wires:
    """The places of a network in which every ordered pair of nodes is a link and a market, in the same order."""
    pairs = list(zip(network.tail.tolist(), network.head.tolist(), strict=True))
    markets = list(zip(network.origin.tolist(), network.destination.tolist(), strict=True))
    if sorted(pairs) != sorted(markets) or len(pairs) != network.n_nodes * (network.n_nodes - 1):
        raise ValueError("the program that is emulated knows networks alone in which every pair is a link and a market")
    if pairs != markets:
        raise ValueError("links and markets must have the same order")
    nodes = np.eye(network.n_nodes)
    reverse = np.array([pairs.index((head, tail)) for tail, head in pairs])
    return Wires(network, (nodes[network.tail] - nodes[network.head]).T, reverse)


def mixed_up(
    wires: Wires,
    capacity: Float[AnyArray, "pairs"],
    share: Float[AnyArray, "pairs"],
    flow: Float[AnyArray, "pairs pairs"],
) -> tuple[Float[AnyArray, "pairs"], Float[AnyArray, "pairs"], Float[AnyArray, "pairs pairs"]]:
    """What the projection takes the entries for; twice is once back."""
    reverse = wires.reverse
    return capacity[reverse], share[reverse], flow[reverse][:, reverse].T


def balance(wires: Wires, share: Float[AnyArray, "pairs"], flow: Float[AnyArray, "pairs pairs"]) -> Array:
    """What leaves every node and does not begin there, market by market."""
    return jnp.asarray(wires.ends @ flow - wires.ends * share)


def coupled_set(wires: Wires) -> FlatProblem:
    """The set of the projection: capacity rows, the independent rows of the balance, bounds."""
    pairs = wires.network.n_links
    kept = wires.ends != 1.0  # the origin's row is minus the sum of the others

    def rows(y: AnyArray) -> tuple[AnyArray, AnyArray]:
        return y[:pairs], y[pairs:].reshape(pairs, pairs)

    nothing = lambda a, y: jnp.zeros(0)  # noqa: E731
    return FlatProblem(
        upper=lambda a, y: jnp.zeros(()),
        lower=lambda a, y: jnp.zeros(()),
        inequality=lambda a, y: rows(y)[1].sum(axis=1) - a,
        equality=lambda a, y: balance(wires, *rows(y))[kept],
        upper_inequality=nothing,
        x_set=Box(LEAST, MOST, shape=pairs),
        y_set=Box(LEAST, MOST_SHARE, shape=pairs + pairs**2),
        n_inequality=pairs,
        n_equality=int(kept.sum()),
        n_upper_inequality=0,
    )


def begin(wires: Wires, capacity: Float[NDArray, "runs pairs"]) -> LvHbaState:
    """Runs that have not moved: shares 0.5, no flow, multipliers -1."""
    runs, pairs = capacity.shape
    nodes = wires.network.n_nodes
    half, none = np.full((runs, pairs), 0.5), np.zeros((runs, pairs, pairs))
    prices, potentials = -np.ones((runs, pairs)), -np.ones((runs, nodes, pairs))
    flat = coupled_set(wires)
    rows = projector(flat, np.ones(pairs), np.full(pairs + pairs**2, 0.5))
    if rows is None:
        raise AssertionError("the rows of the projection are affine")
    carried = AffineRows(*(jnp.broadcast_to(part, (runs, *part.shape)) for part in rows))
    count = np.zeros(runs, dtype=np.int64)
    return LvHbaState(capacity, half, none, half, none, prices, potentials, prices, potentials, carried, count)


def _logit(share: AnyArray) -> AnyArray:
    return jnp.log(share / (1.0 - share))


def iterate(wires: Wires, state: LvHbaState) -> LvHbaState:
    """One iteration of one run."""
    network, ends = wires.network, wires.ends
    time_, cost, revenue, other = network.time, network.cost, network.revenue, network.alternative_time
    weight = PENALTY * (state.iteration + 1.0) ** POWER
    climb = ends.T @ state.potential  # mu_i - mu_j, link by link and market by market
    own = jnp.sum(ends * state.potential, axis=0)  # mu_o - mu_d of every market
    theta = state.theta - ETA * (_logit(state.theta) - other - own + (state.theta - state.share) / GAMMA_1)
    theta = jnp.clip(theta, LEAST, MOST_SHARE)
    slope = time_[:, None] + climb + state.price[:, None] + (state.theta_flow - state.flow) / GAMMA_1
    theta_flow = jnp.clip(state.theta_flow - ETA * slope, 0.0, 1.0)
    over = theta_flow.sum(axis=1) - state.capacity
    price = jnp.clip(state.price + ETA * (over - (state.price - state.z_price) / GAMMA_2), 0.0, MOST)
    moved = balance(wires, theta, theta_flow) - (state.potential - state.z_potential) / GAMMA_2
    potential = jnp.clip(state.potential + ETA * moved, -MOST, MOST)
    capacity = state.capacity - ALPHA * (cost / weight + price)
    share = state.share - ALPHA * (_logit(state.share) - other - (state.share - theta) / GAMMA_1 - revenue / weight)
    flow = state.flow - ALPHA * (time_[:, None] - (state.flow - theta_flow) / GAMMA_1)
    capacity, share, flow, carried = _project(wires, (capacity, share, flow), state.carried)
    z_price = state.z_price + BETA * (price - state.z_price) / GAMMA_2
    z_potential = state.z_potential + BETA * (potential - state.z_potential) / GAMMA_2
    return LvHbaState(
        *(capacity, share, flow, theta, theta_flow, price, potential, z_price, z_potential),
        carried,
        state.iteration + 1,
    )


def _project(
    wires: Wires, point: tuple[AnyArray, AnyArray, AnyArray], carried: AffineRows
) -> tuple[AnyArray, AnyArray, AnyArray, AffineRows]:
    read = mixed_up(wires, *point)
    pairs = wires.network.n_links
    nearest, after = project(coupled_set(wires), jnp.concatenate([part.ravel() for part in read]), carried)
    if after is None:
        raise AssertionError("the rows of the projection are affine")
    parts = nearest[:pairs], nearest[pairs : 2 * pairs], nearest[2 * pairs :].reshape(pairs, pairs)
    return (*mixed_up(wires, *parts), after)


def run_published_lv_hba(
    network: TransportNetwork, starts: Float[NDArray, "runs pairs"], iterations: int = ITERATIONS, samples: int = 100
) -> tuple[list[LvHbaState], list[float], float]:
    """All rows of ``starts`` together; the states at equally spaced moments, seconds until each, seconds to compile."""
    with double_precision():
        wires = wires_of(network)
        states = jax.tree.map(jnp.asarray, begin(wires, np.asarray(starts, dtype=np.float64)))
        one = partial(iterate, wires)

        def chunk(states: LvHbaState, count: Int[Array, ""]) -> LvHbaState:
            # One run after the other: in a batch every projection would wait for the longest one.
            alone = lambda state: jax.lax.fori_loop(0, count, lambda _, now: one(now), state)  # noqa: E731
            return jax.lax.map(alone, states)

        advance, compiled = compile_ahead(chunk, states, jnp.asarray(1))
        began = time.perf_counter()
        seen, seconds = [], []
        for count in np.diff(np.unique(np.linspace(0, iterations, samples + 1).astype(int))):
            states = advance(states, jnp.asarray(count))
            seen.append(jax.device_get(states))
            seconds.append(time.perf_counter() - began)
        return seen, seconds, compiled


def reported_utility(
    network: TransportNetwork, capacity: Float[AnyArray, "pairs"], share: Float[AnyArray, "pairs"]
) -> float:
    """Revenue less cost as the program reports it: small capacities and shares are left out."""
    kept, served = (np.where(part < COUNTED, 0.0, part) for part in (capacity, share))
    return float(network.revenue @ served - network.cost @ kept)
