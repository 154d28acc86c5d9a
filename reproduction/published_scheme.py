"""The scheme that was published for the networks: inexact inner loops with fixed steps, fixed eta.

Each inner loop alternates one step of the multipliers and one of y until its iterates hardly move, which is usually
one iteration from a warm start, so the multipliers lag behind x. That lag, not Algorithm 1, makes a large gamma fail
at a fixed eta: the penalised loop divides its steps by gamma, and with exact inner solutions the same eta converges.
The rules and numbers below were read off the authors' programs for three nodes, nine nodes and Seville. Two of them
are kept as they are there, though they are slips where demands are not 1: the price of a link enters the slope of a
flow without the demand, and the penalised loop descends the revenue without it. Cells of their tables that are no link
carry no flow and fall out of the cost early; they are left out here.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.networks.kernels import kernel
from blocc.transport.network.network import TransportNetwork

PRIMAL_STEP, DUAL_STEP = 1e-2, 0.4  #: of the follower's loop; both are divided by gamma in the penalised loop
LEAST_SHARE, LEAST_CAPACITY = 1e-2, 1e-3  #: Y is [0.01, 0.99] for shares and [0, 1] for flows
NO_PRICE = 1.0  #: eta becomes the long step where every price of the follower's was below 1 one step of x ago
#: What the authors' figures leave out: capacities and shares so small count as none.
COUNTED_CAPACITY, COUNTED_SHARE = 1e-2, 2e-2
#: Most inner iterations of a run for each of its steps of x, and of one inner loop: ten times those of the first one on
#: Seville, which begins with nothing.
PER_STEP, OF_ONE = 20, 40_000
#: Where the follower's loop and the penalised one end: the mean change of a share, the change of a flow (its mean; the
#: mean over markets of the largest), and what a market's flows may miss of its share at the origin.
ENDS = ((2e-2, 1e-2, 0.2), (3e-2, 0.1, 0.3))


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


class Side(NamedTuple):
    """An inner loop: the follower's or the penalised one."""

    share: Float[NDArray, "markets"]
    flow: Float[NDArray, "links markets"]
    price: Float[NDArray, "links"]  #: multipliers of the capacities
    potential: Float[NDArray, "nodes markets"]  #: multipliers of the conservation rows, all of them
    load: Float[NDArray, "links"]  #: passengers by link
    balance: Float[NDArray, "nodes markets"]  #: flow that leaves every node less what arrives there

    def copy(self) -> Side:
        """The same in other memory."""
        return Side(*(part.copy() for part in self))


class Run(NamedTuple):
    """A run after some steps of x."""

    capacity: Float[NDArray, "links"]
    sides: tuple[Side, Side]  #: the follower's loop and the penalised one
    step: int  #: steps of x so far
    inner: int  #: inner iterations so far
    seconds: float  #: since it began


class Tables(NamedTuple):
    """The network as the loops want it."""

    tail: NDArray
    head: NDArray
    origin: NDArray
    destination: NDArray
    leaving: NDArray  #: links by the node that they leave
    first: NDArray  #: where each node's begin
    time: Float[NDArray, "links"]
    cost: Float[NDArray, "links"]
    demand: Float[NDArray, "markets"]
    alternative: Float[NDArray, "markets"]
    revenue: Float[NDArray, "markets"]


def tables_of(network: TransportNetwork) -> Tables:
    """The arrays of a network."""
    leaving = np.argsort(network.tail, kind="stable")
    first = np.searchsorted(network.tail[leaving], np.arange(network.n_nodes + 1))
    ends = (network.tail, network.head, network.origin, network.destination, leaving, first)
    rows = (network.time, network.cost, network.demand, network.alternative_time, network.revenue)
    return Tables(
        *(np.ascontiguousarray(part, dtype=np.int64) for part in ends),
        *(np.ascontiguousarray(part, dtype=np.float64) for part in rows),
    )


# Loops over markets are short functions of rows: so few arrays each that the compiler proves them apart.
@kernel
def _next_flow(
    new: NDArray,
    flow: NDArray,
    tail: NDArray,
    head: NDArray,
    demand: NDArray,
    primal: float,
    time_: float,
    price: float,
) -> None:
    for k in range(len(flow)):
        value = flow[k] - primal * (time_ * demand[k] + price + tail[k] - head[k])
        new[k] = min(max(value, 0.0), 1.0)


@kernel
def _note_change(flow: NDArray, new: NDArray, total: NDArray, most: NDArray) -> None:
    for k in range(len(flow)):
        change = abs(new[k] - flow[k])
        total[k] += change
        most[k] = max(most[k], change)
        flow[k] = new[k]


@kernel
def _note_balance(flow: NDArray, leaves: NDArray, arrives: NDArray) -> None:
    for k in range(len(flow)):
        leaves[k] += flow[k]
        arrives[k] -= flow[k]


@kernel
def inner_iteration(
    net: Tables, side: Side, capacity: NDArray, weight: float, penalised: bool, rule: tuple[float, int], work: NDArray
) -> bool:
    """One step of the multipliers, one of y, in place; and whether the loop's stopping rule is met.

    :param rule: the slack of a link, and how many links may be over it
    :param work: rows over the markets
    """
    share, flow, price, potential, load, balance = side
    links, markets = flow.shape
    nodes = len(potential)
    primal, dual = PRIMAL_STEP / weight, DUAL_STEP / weight
    total, most, new = work[0], work[1], work[2]
    for k in range(markets):
        balance[net.origin[k], k] -= share[k]
        balance[net.destination[k], k] += share[k]
    potential += dual * balance
    for link in range(links):
        price[link] = max(price[link] + dual * (load[link] - capacity[link]), 0.0)
    moved = 0.0
    for k in range(markets):
        slope = weight * net.demand[k] * (np.log(share[k] / (1.0 - share[k])) - net.alternative[k])
        slope += potential[net.destination[k], k] - potential[net.origin[k], k]
        if penalised:
            slope -= net.revenue[k]
        value = min(max(share[k] - primal * slope, LEAST_SHARE), 1.0 - LEAST_SHARE)
        moved += abs(value - share[k])
        share[k] = value
    balance[:], total[:], most[:] = 0.0, 0.0, 0.0
    for link in range(links):
        tail, head = net.tail[link], net.head[link]
        time_ = weight * net.time[link]
        _next_flow(new, flow[link], potential[tail], potential[head], net.demand, primal, time_, price[link])
        _note_change(flow[link], new, total, most)
        _note_balance(new, balance[tail], balance[head])
    np.dot(flow, net.demand, load)
    # The published stopping rules. Their means run over nodes x nodes tables, diagonals included, and changes are
    # measured in units of the primal step with the weight of g taken out, which is PRIMAL_STEP in both loops.
    cells = float(nodes * nodes)
    drift = most.sum() if penalised else total.sum() / cells
    end = ENDS[1] if penalised else ENDS[0]
    if not (moved / cells / PRIMAL_STEP <= end[0] and drift / cells / PRIMAL_STEP <= end[1]):
        return False
    over = 0
    for link in range(links):
        over += load[link] >= capacity[link] + rule[0]
    if over > rule[1]:
        return False
    for k in range(markets):
        missing, at = share[k], net.origin[k]
        for place in range(net.first[at], net.first[at + 1]):
            missing -= flow[net.leaving[place], k]
        if not abs(missing) <= end[2]:
            return False
    return True


@kernel
def advance(
    net: Tables,
    rules: Rules,
    sides: tuple[Side, Side],
    capacity: NDArray,
    work: NDArray,
    state: tuple[int, int, bool],
    numbers: tuple[float, float],
    limits: tuple[int, int, int],
) -> tuple[int, int, bool]:
    """A run, in place, up to ``limits[0]`` steps of x, ``limits[1]`` inner iterations or ``limits[2]`` of one loop: how
    many it has made.

    :param state: steps and inner iterations so far, and whether no price was felt at the last step of x
    :param numbers: gamma and eta
    """
    step, inner, calm = state
    gamma, eta = numbers
    while step < limits[0]:
        for index in range(2):
            over, before = False, inner
            while not over:
                if inner >= limits[1] or inner - before >= limits[2]:
                    return step, inner, calm
                weight = gamma if index == 1 else 1.0
                rule = (rules.slack, rules.over[index])
                over = inner_iteration(net, sides[index], capacity, weight, index == 1, rule, work)
                inner += 1
        length = rules.long_step if calm and step > 0 else eta
        for link in range(len(capacity)):
            gradient = net.cost[link] + gamma * sides[0].price[link] - sides[1].price[link]
            capacity[link] = max(capacity[link] - length * gradient, LEAST_CAPACITY)
        calm = bool(np.max(sides[0].price) < NO_PRICE)
        step += 1
    return step, inner, calm


def cold_side(network: TransportNetwork) -> Side:
    """Shares at their least, no flow, no prices."""
    links, markets, nodes = network.n_links, network.n_markets, network.n_nodes
    zeros = [np.zeros(shape) for shape in ((links, markets), links, (nodes, markets), links, (nodes, markets))]
    return Side(np.full(markets, LEAST_SHARE), *zeros)


def run_published(
    network: TransportNetwork,
    start: Float[NDArray, "links"],
    gamma: float,
    eta: float,
    steps: int,
    samples: int = 100,
    rules: Rules = RULES["three"],
) -> list[Run]:
    """The run at about ``samples`` equally spaced steps of x, the last of them at ``steps``.

    One whose inner loops do not end is cut off, and is then seen only as far as it went.
    """
    net, capacity = tables_of(network), np.array(start, dtype=np.float64)
    sides = (cold_side(network), cold_side(network))
    work = np.zeros((3, network.n_markets))
    state, numbers, most = (0, 0, False), (float(gamma), float(eta)), PER_STEP * steps + OF_ONE
    advance(net, rules, sides, capacity, work, state, numbers, (0, 0, 0))  # compiles
    began = time.perf_counter()
    seen = []
    for limit in np.unique(np.linspace(0, steps, samples + 1).astype(int)[1:]).tolist():
        state = advance(net, rules, sides, capacity, work, state, numbers, (limit, most, OF_ONE))
        copies = (sides[0].copy(), sides[1].copy())
        seen.append(Run(capacity.copy(), copies, state[0], state[1], time.perf_counter() - began))
        if state[0] < limit:
            break
    return seen


def counted_utility(
    network: TransportNetwork, capacity: Float[NDArray, "links"], share: Float[NDArray, "markets"]
) -> float:
    """Revenue less cost as the authors' program counts it: tiny capacities and shares are left out."""
    kept = np.where(capacity < COUNTED_CAPACITY, 0.0, capacity)
    served = np.where(share < COUNTED_SHARE, 0.0, share)
    return float((network.revenue * network.demand) @ served - network.cost @ kept)
