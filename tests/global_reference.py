"""Bilevel problems with linear followers whose global optimum is known by enumeration, for the global search."""

from __future__ import annotations

from itertools import combinations, product

import jax.numpy as jnp
import numpy as np
from scipy.optimize import linprog

from blocc import BilevelProblem, Box

#: Links of a small network: tail, head, and whether it may be tolled.
TOLL_LINKS = ((0, 1, 0), (0, 2, 1), (1, 2, 0), (1, 3, 1), (2, 3, 0), (2, 4, 1), (3, 4, 0), (0, 4, 0), (1, 4, 0))
TRIPS = ((0, 4), (1, 4))
LARGEST_TOLL = 12.0


def toll_problem() -> BilevelProblem:
    """Travellers of both trips take cheapest paths; the leader earns the tolls. Data: costs and demands."""
    tails, heads, tolled = map(np.asarray, zip(*TOLL_LINKS, strict=True))
    n_links, n_tolls = len(TOLL_LINKS), int(tolled.sum())
    incidence = np.zeros((5, n_links))
    incidence[tails, np.arange(n_links)] += 1.0
    incidence[heads, np.arange(n_links)] -= 1.0
    supply = np.zeros((len(TRIPS), 5))
    for trip, (origin, destination) in enumerate(TRIPS):
        supply[trip, origin], supply[trip, destination] = 1.0, -1.0
    place = np.zeros((n_links, n_tolls))
    place[np.flatnonzero(tolled), np.arange(n_tolls)] = 1.0
    return BilevelProblem(
        upper=lambda x, y, d: -jnp.sum(d["demand"] @ y @ (place @ x)),
        lower=lambda x, y, d: jnp.sum(d["demand"] @ y @ (d["cost"] + place @ x)),
        equality=lambda x, y, d: y @ incidence.T - supply,
        x_set=Box(0.0, LARGEST_TOLL, shape=n_tolls),
        y_set=Box.nonnegative((len(TRIPS), n_links)),
        data={"cost": np.ones(n_links), "demand": np.ones(len(TRIPS))},
        name="tolls",
    )


def _paths(origin: int, destination: int) -> list[list[int]]:
    """All simple paths as lists of links."""
    if origin == destination:
        return [[]]
    return [
        [link, *rest]
        for link, (tail, head, _) in enumerate(TOLL_LINKS)
        if tail == origin
        for rest in _paths(head, destination)
    ]


def toll_revenue(cost: np.ndarray, demand: np.ndarray) -> float:
    """The largest revenue: over all choices of one path for each trip, by the tolls that keep those paths cheapest."""
    tolled = [link for link, (_, _, toll) in enumerate(TOLL_LINKS) if toll]
    of = lambda path: np.array([float(link in path) for link in tolled])  # noqa: E731
    choices = [_paths(*trip) for trip in TRIPS]
    best = 0.0
    for chosen in product(*choices):
        rows = [of(one) - of(other) for one, others in zip(chosen, choices, strict=True) for other in others]
        right = [
            cost[other].sum() - cost[one].sum() for one, others in zip(chosen, choices, strict=True) for other in others
        ]
        earned = sum(weight * of(path) for weight, path in zip(demand, chosen, strict=True))
        found = linprog(-earned, A_ub=np.array(rows), b_ub=np.array(right), bounds=(0.0, LARGEST_TOLL))
        if found.status == 0:
            best = max(best, -float(found.fun))
    return best


#: A network with cycles, on which flows have no upper bounds: tail, head, cost.
RING_LINKS = (
    *((0, 3, 7.0), (1, 2, 8.0), (1, 3, 6.0), (2, 0, 6.0), (2, 1, 3.0)),
    *((2, 3, 8.0), (3, 0, 2.0), (3, 2, 7.0), (0, 1, 19.0), (2, 0, 13.0)),
)
RING_TRIPS = ((0, 1), (2, 0), (3, 1))
RING_TOLLED = 4


def ring_problem() -> BilevelProblem:
    """One toll on a network with cycles. Data: the weights of trips for the leader and the follower."""
    n_links = len(RING_LINKS)
    incidence, cost = np.zeros((4, n_links)), np.array([link[2] for link in RING_LINKS])
    for index, (tail, head, _) in enumerate(RING_LINKS):
        incidence[tail, index], incidence[head, index] = 1.0, -1.0
    supply = np.zeros((len(RING_TRIPS), 4))
    for trip, (origin, destination) in enumerate(RING_TRIPS):
        supply[trip, origin], supply[trip, destination] = 1.0, -1.0
    tolled = np.eye(n_links)[RING_TOLLED]
    return BilevelProblem(
        upper=lambda x, y, d: -x * (d["leader"] @ y @ tolled),
        lower=lambda x, y, d: d["follower"] @ y @ (cost + x * tolled),
        equality=lambda x, y, d: y @ incidence[:-1].T - supply[:, :-1],
        x_set=Box(0.0, 10.0),
        y_set=Box.nonnegative((len(RING_TRIPS), n_links)),
        data={"leader": np.ones(len(RING_TRIPS)), "follower": np.ones(len(RING_TRIPS))},
        name="ring",
    )


def ring_value(leader: np.ndarray) -> float:
    """The least upper value: at the tolls at which a trip is indifferent between the tolled link and its way around."""

    def distances(links: list[tuple[int, int, float]]) -> np.ndarray:
        length = np.where(np.eye(4) > 0.0, 0.0, np.inf)
        for tail, head, cost in links:
            length[tail, head] = min(length[tail, head], cost)
        for between in range(4):
            length = np.minimum(length, length[:, between, None] + length[between])
        return length

    around = distances([link for index, link in enumerate(RING_LINKS) if index != RING_TOLLED])
    direct = distances(list(RING_LINKS))
    worth = np.array([around[trip] - direct[trip] for trip in RING_TRIPS])
    best = 0.0
    for toll in [0.0, 10.0, *worth[worth <= 10.0]]:
        best = min(best, -toll * float(leader @ (worth >= toll - 1e-9)))
    return best


FLOW_LINKS = ((0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (2, 4), (3, 4), (1, 4))


def interdiction_problem() -> BilevelProblem:
    """The leader removes capacity within a budget; the follower sends as much as it can from node 0 to node 4."""
    incidence = np.zeros((5, len(FLOW_LINKS)))
    for link, (tail, head) in enumerate(FLOW_LINKS):
        incidence[tail, link], incidence[head, link] = 1.0, -1.0
    sent = incidence[0]
    return BilevelProblem(
        upper=lambda x, y, d: sent @ y,
        lower=lambda x, y, d: -sent @ y,
        inequality=lambda x, y, d: y - d["capacity"] * (1.0 - x),
        equality=lambda x, y, d: incidence[1:4] @ y,
        upper_inequality=lambda x, y, d: jnp.sum(x) - d["budget"],
        x_set=Box(0.0, 1.0, shape=len(FLOW_LINKS)),
        y_set=Box.nonnegative(len(FLOW_LINKS)),
        data={"capacity": np.ones(len(FLOW_LINKS)), "budget": 1.0},
        name="interdiction",
    )


def least_flow(capacity: np.ndarray, budget: float) -> float:
    """The least maximal flow: over all cuts, what is left of one after its largest links are removed."""
    best = np.inf
    for size in range(4):
        for inner in combinations((1, 2, 3), size):
            side = {0, *inner}
            cut = sorted(
                (capacity[k] for k, (a, b) in enumerate(FLOW_LINKS) if a in side and b not in side), reverse=True
            )
            removed = np.clip(budget - np.arange(len(cut)), 0.0, 1.0)
            best = min(best, float(np.sum(np.asarray(cut) * (1.0 - removed))))
    return best
