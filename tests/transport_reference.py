"""Reference answers for the transport lower level from CVXPY and Clarabel; shares no code with the formulations."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import cvxpy as cp
import numpy as np

from blocc.transport.network.network import TransportNetwork


def tolerances(wanted: float, least: float) -> dict[str, float]:
    """Options of Clarabel: what it aims at, and what it must reach where rounding stops it earlier."""
    kinds = ("tol_gap_abs", "tol_gap_rel", "tol_feas")
    return dict.fromkeys(kinds, wanted) | {f"reduced_{kind}": least for kind in kinds}


#: A gap of 1e-10 leaves the shares with an error of its root; so more is asked for, and 1e-10 insisted on.
PRECISE, ROUGH = tolerances(1e-13, 1e-10), tolerances(1e-10, 1e-7)


class Reference(NamedTuple):
    """The travellers' answer, in the network's units."""

    share: np.ndarray  #: (markets,); 0 for a market without demand or without a way
    flow: np.ndarray  #: (links,): passengers
    price: np.ndarray  #: (links,): minus the derivative of the value in the capacity; NaN for a closed link
    value: float


class InaccurateReference(UserWarning):
    """Clarabel stopped short of 1e-10: the shares may be off by 1e-4."""


def three_nodes() -> TransportNetwork:
    """Three nodes, six links, six markets: small enough to know everything about it."""
    links = [(1, 2, 1.0, 1.0), (1, 3, 10.0, 10.0), (2, 1, 1.0, 1.0), (2, 3, 2.0, 3.0), (3, 1, 10.0, 10.0)]
    links += [(3, 2, 2.0, 3.0)]
    markets = [(1, 2, 2.0), (1, 3, 6.0), (2, 1, 2.0), (2, 3, 1.0), (3, 1, 6.0), (3, 2, 1.0)]
    return TransportNetwork.from_tables(
        [{"id": 1, "x": 0, "y": 0}, {"id": 2, "x": 1, "y": 1}, {"id": 3, "x": 2, "y": 0}],
        [{"from": i, "to": j, "time": t, "cost": c} for i, j, t, c in links],
        [{"origin": o, "destination": d, "demand": 1.0, "revenue": m, "alternative_time": 3.0} for o, d, m in markets],
        name="three nodes",
        start_range=(0.3, 1.0),
    )


def random_network(seed: int, n_nodes: int = 5, density: float = 0.5, zero_demand: bool = False) -> TransportNetwork:
    """A ring in both directions with random chords, and a market for about two thirds of all pairs."""
    generator = np.random.default_rng(seed)
    pairs = [(i, j) for i in range(n_nodes) for j in range(n_nodes) if i != j]
    ring = {(i, (i + 1) % n_nodes) for i in range(n_nodes)}
    ring |= {(j, i) for i, j in ring}
    links = [pair for pair in pairs if pair in ring or generator.uniform() < density]
    markets = [pair for pair in pairs if generator.uniform() < 0.67] or pairs[:1]
    demand = generator.uniform(0.2, 30.0, len(markets))
    if zero_demand:
        demand[generator.integers(len(markets))] = 0.0
    return TransportNetwork.from_tables(
        [{"id": i, "x": float(np.cos(i)), "y": float(np.sin(i))} for i in range(n_nodes)],
        [
            {"from": i, "to": j, "time": generator.uniform(0.5, 3.0), "cost": generator.uniform(0.5, 2.0)}
            for i, j in links
        ],
        [
            {
                "origin": o,
                "destination": d,
                "demand": demand[k],
                "revenue": generator.uniform(1.0, 5.0),
                "alternative_time": generator.uniform(1.0, 5.0),
            }
            for k, (o, d) in enumerate(markets)
        ],
        name=f"random {seed}",
    )


def solve_lower_level(network: TransportNetwork, capacity, alternative_time=None) -> Reference:
    """The travellers' answer to the capacities, with the flows of each origin added up."""
    case = _Case(network, capacity, alternative_time)
    if not len(case.active):
        return case.nobody()
    origins = np.unique(network.origin[case.active])
    flow = cp.Variable((len(origins), len(case.open)), nonneg=True)
    row = np.searchsorted(origins, network.origin[case.active])
    arriving = np.zeros((len(origins) * network.n_nodes, len(case.active)))
    for k, (market, r) in enumerate(zip(case.active, row, strict=True)):
        arriving[r * network.n_nodes + network.destination[market], k] += case.demand[k]
        arriving[r * network.n_nodes + network.origin[market], k] -= case.demand[k]
    at_nodes = cp.reshape(arriving @ case.share, (len(origins), network.n_nodes), order="C")
    rules = [flow @ case.incidence == at_nodes, case.forbidden(flow, origins)]
    return case.solve(cp.sum(flow @ case.time), rules, cp.sum(flow, axis=0))


def solve_lower_level_full(network: TransportNetwork, capacity, alternative_time=None) -> Reference:
    """The same with a flow for each market and link: for small networks."""
    case = _Case(network, capacity, alternative_time)
    if not len(case.active):
        return case.nobody()
    flow = cp.Variable((len(case.active), len(case.open)), nonneg=True)
    ends = np.zeros((len(case.active), network.n_nodes))
    ends[np.arange(len(case.active)), network.destination[case.active]] = 1.0
    ends[np.arange(len(case.active)), network.origin[case.active]] = -1.0
    conservation = flow @ case.incidence == cp.multiply(ends, cp.reshape(case.share, (-1, 1), order="C"))
    rules = [conservation, case.forbidden(flow, network.origin[case.active])]
    return case.solve(case.demand @ (flow @ case.time), rules, case.demand @ flow)


class _Case:
    """What both forms share: open links, markets that somebody can serve, and passengers in units of their mean."""

    def __init__(self, network: TransportNetwork, capacity, alternative_time) -> None:
        self.network = network
        self.capacity = np.asarray(capacity, dtype=float)
        alternative = network.alternative_time if alternative_time is None else np.asarray(alternative_time, float)
        self.alternative = np.broadcast_to(alternative, network.demand.shape)
        self.open = np.flatnonzero(self.capacity > 0)
        self.active = np.array([k for k in range(network.n_markets) if network.demand[k] > 0 and self._served(k)], int)
        self.unit = float(network.demand[self.active].mean()) if len(self.active) else 1.0
        self.demand = network.demand[self.active] / self.unit
        self.time = network.time[self.open]
        self.incidence = np.zeros((len(self.open), network.n_nodes))
        self.incidence[np.arange(len(self.open)), network.head[self.open]] += 1.0
        self.incidence[np.arange(len(self.open)), network.tail[self.open]] -= 1.0
        self.share = cp.Variable(max(len(self.active), 1))

    def forbidden(self, flow, begin):
        """Nobody leaves a node that paths do not pass, but those who begin there."""
        tail = self.network.tail[self.open]
        closed = ~self.network.through[tail] & (tail != begin[:, None])
        return cp.multiply(flow, closed * 1.0) == 0

    def _served(self, market: int) -> bool:
        begin = int(self.network.origin[market])
        reached = {begin}
        while True:
            left = {i for i in reached if i == begin or self.network.through[i]}
            more = {int(self.network.head[a]) for a in self.open if int(self.network.tail[a]) in left} - reached
            if not more:
                return int(self.network.destination[market]) in reached
            reached |= more

    def nobody(self) -> Reference:
        """The answer when nobody travels: everyone pays the alternative time, and the entropy at y = 0 is -1."""
        price = np.full(self.network.n_links, np.nan)
        price[self.open] = 0.0
        value = float(self.network.demand @ (self.alternative - 1.0))
        return Reference(np.zeros(self.network.n_markets), np.zeros(self.network.n_links), price, value)

    def solve(self, time, rules, load) -> Reference:
        stay = -(self.demand * self.alternative[self.active]) @ self.share
        entropy = self.demand @ (cp.entr(self.share) + cp.entr(1 - self.share))
        limit = load <= self.capacity[self.open] / self.unit
        problem = cp.Problem(cp.Minimize(time + stay - entropy), [*rules, limit])
        if not _solved(problem, PRECISE):
            if not _solved(problem, ROUGH):
                raise RuntimeError(f"Clarabel ended on {self.network.name} with status {problem.status}")
            warnings.warn(f"Clarabel is inaccurate on {self.network.name}", InaccurateReference, stacklevel=3)
        share, flow, price, value = self.nobody()
        share[self.active] = self.share.value
        flow[self.open] = self.unit * np.asarray(load.value)
        price[self.open] = limit.dual_value
        return Reference(share, flow, price, value + self.unit * float(problem.value))


def _solved(problem: cp.Problem, options: dict[str, float]) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of every solution short of the first tolerance
        try:
            problem.solve(solver=cp.CLARABEL, max_iter=500, **options)
        except cp.SolverError:
            return False
    return problem.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE)
