"""Are volumes the drivers' own? They are recomputed from a network, capacities and tolls alone, and compared.

Volumes are held against weak duality: costs at the volumes that are claimed, with SciPy's cheapest paths at them, give
a value that no assignment is below; an assignment that is made anew, whose paths are followed link by link, gives one
that is above. Where the two meet, the claimed volumes are the drivers' own, as far as costs tell volumes apart. Times,
costs and integrals are NumPy's here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array

from blocc._lib.arrays import Float, NDArray
from blocc._lib.rounding import TINY
from blocc.kit.claims import Claims
from blocc.networks.paths import cheapest_costs
from blocc.result import Status
from blocc.roads.assign import PRINCIPLES, RoadAssignment, assign
from blocc.roads.checks import CONSERVED
from blocc.roads.descents import Budget, within
from blocc.roads.equilibrium import PathFlows
from blocc.roads.leader import Leader, Reached
from blocc.roads.network import RoadNetwork
from blocc.roads.question import Question

#: Figures agree to this, relative to their size; volumes, which are flat around the answer, to less.
SAME, SAME_VOLUME = 1e-7, 1e-4
#: A volume is told by its link's cost where the change of that, times the volume's, is above this share of all costs.
UNTOLD = 1e-9
#: Relative gap of the assignments that are made anew, and what duality may leave open.
GAP, OPEN = 1e-12, 1e-9
#: Where exact values are looked at: how many directions, and how far relative to the range of a decision.
_DIRECTIONS, _DISTANCES = 6, (1e-2, 1e-3)


class Prices(NamedTuple):
    """Link costs in NumPy: constant + coefficient v^power."""

    constant: Float[NDArray, "links"]
    coefficient: Float[NDArray, "links"]
    power: Float[NDArray, "links"]

    def at(self, volume: Float[NDArray, "links"]) -> Float[NDArray, "links"]:
        """The cost of each link."""
        return self.constant + self.coefficient * volume**self.power

    def integral(self, volume: Float[NDArray, "links"]) -> float:
        """Beckmann's objective."""
        return float(self.constant @ volume + (self.coefficient / (self.power + 1.0)) @ volume ** (self.power + 1.0))


def prices_of(
    network: RoadNetwork,
    capacity: Float[NDArray, "links"],
    toll: Float[NDArray, "links"] | float = 0.0,
    marginal: bool = False,
) -> Prices:
    """Time and toll; or what one more driver costs all, time alone."""
    room = np.where(network.b > 0.0, capacity, 1.0)
    grown = network.free_flow_time * network.b * ((1.0 + network.power) if marginal else 1.0)
    return Prices(network.free_flow_time + toll, grown / room**network.power, network.power)


def cheapest_of(network: RoadNetwork, costs: Float[NDArray, "links"]) -> Float[NDArray, "pairs"]:
    """The cheapest path of each pair, by SciPy."""
    origins, row = np.unique(network.origin, return_inverse=True)
    return cheapest_costs(network.tail, network.head, costs, network.through, origins)[row, network.destination]


class RoadClaims(Claims):
    """The claims of one answer about roads."""

    def agree(self, name: str, claimed: float, recomputed: float, size: float) -> None:
        """Whether two figures agree, relative to a size."""
        self.same(name, claimed, recomputed, SAME * (TINY + abs(size)))

    def agree_each(self, name: str, claimed: str, one: Float[NDArray, "n"], other: Float[NDArray, "n"]) -> None:
        """Whether many do, each relative to its own size."""
        self.near(name, claimed, float(np.max(np.abs(one - other) / (TINY + np.abs(other)), initial=0.0)), SAME)

    def fits(self, own: RoadNetwork, other: RoadNetwork) -> bool:
        """Whether an answer is about this network at all."""
        same = all(getattr(own, name) == getattr(other, name) for name in ("nodes", "link_ids"))
        same = same and all(
            np.array_equal(getattr(own, name), getattr(other, name))
            for name in ("tail", "head", "origin", "destination")
        )
        self.holds("network", "links and trips", same, "others", "the same")
        return same

    def gain_left(self, leader: Leader, here: Reached, budget: Budget | None, claimed: float) -> None:
        """What exact values around an answer gain; a run that did not converge claims nothing about it."""
        if not self.success:
            sound = bool(np.isnan(claimed)) or claimed >= 0.0
            self.add("gain left", claimed, "a gain" if sound else "no gain", sound)
            return
        question, width = leader.question, leader.question.upper - leader.question.lower
        directions = np.random.default_rng(1).normal(size=(_DIRECTIONS, len(here.x)))
        downhill = -here.slope / (TINY + float(np.abs(here.slope).max()))
        for direction in (*directions, *-directions, downhill):
            for distance in _DISTANCES:
                leader.exact(within(here.x + distance * width * direction, question, budget), sloped=False)
        assert leader.best is not None
        self.gained(question, here.value, claimed, max(0.0, here.value - leader.best.value), "exact values around it")

    def gained(self, question: Question, value: float, claimed: float, gain: float, note: str) -> None:
        """Whether a gain, and what is claimed of it, are within the tolerance."""
        allowed = self.tolerance * question.size(value)
        self.add("gain left", claimed, gain, 0.0 <= claimed <= allowed and gain <= allowed, note)

    def equilibrium(
        self,
        when: str,
        network: RoadNetwork,
        capacity: Float[NDArray, "links"],
        toll: Float[NDArray, "links"],
        claimed: RoadAssignment,
    ) -> float | None:
        """Whether these volumes are the drivers' own; the total travel time, None where the volumes are none."""
        volume = claimed.flow
        sound = bool(np.isfinite(volume).all() and (volume >= 0.0).all())
        self.holds(f"{when}: volumes", "finite, not negative", sound, "not so")
        if not sound:
            return None
        prices = prices_of(network, capacity, toll)
        costs = prices.at(volume)
        cheapest = cheapest_of(network, costs)
        paid = float(costs @ volume)
        excess = paid - float(network.demand @ cheapest)
        relative = excess / paid if paid else 0.0
        wanted = OPEN if claimed.status is Status.CONVERGED else np.inf
        right = abs(relative - claimed.relative_gap) <= max(OPEN, 0.1 * claimed.relative_gap) and relative <= wanted
        self.add(f"{when}: relative gap", claimed.relative_gap, relative, right, "SciPy's cheapest paths")
        anew = assign(network, capacity=capacity, toll=toll, relative_gap=GAP)
        assert anew.paths is not None
        on_paths = loads_of(network, anew.paths)
        above = prices.integral(on_paths)
        below = prices.integral(volume) - excess
        apart = (above - below) / max(abs(above), TINY)
        allowed = OPEN + 2.0 * abs(relative)
        self.add(f"{when}: duality gap", f"within {allowed:.0e}", apart, abs(apart) <= allowed, "an assignment anew")
        if claimed.status is Status.CONVERGED:
            # Volumes are the drivers' own only as far as costs tell them apart.
            told = np.abs((prices.at(on_paths) - costs) * (on_paths - volume)) > UNTOLD * abs(above)
            largest = float(np.max(on_paths, initial=TINY))
            away = float(np.max(np.abs(on_paths - volume)[told], initial=0.0)) / largest
            self.near(f"{when}: volumes of links", "the drivers' own", away, SAME_VOLUME)
        lost = network.lost_trips(volume)
        self.add(f"{when}: conservation", "no trips lost", f"{lost:.1e} of all", lost <= CONSERVED)
        told = claimed.certificate
        each = claimed.relative_gap * paid / float(network.demand.sum())  # what one trip costs too much
        right = told.relative_gap == claimed.relative_gap and abs(told.average_excess_cost - each) <= SAME * abs(each)
        right = right and abs(told.conservation - lost) <= CONSERVED and told.conservation >= 0.0
        self.holds(f"{when}: certificate", "of these volumes", right, "of others", "so it is")
        idle = not claimed.waiting.any() and claimed.principle == PRINCIPLES[0]
        self.holds(f"{when}: no limits", "nobody waits", idle, "waiting or another principle", "so it is")
        times = prices_of(network, capacity).at(volume)
        self.agree_each(f"{when}: times of links", "at the volumes", claimed.time, times)
        total = float(times @ volume)
        self.agree(f"{when}: total travel time", claimed.total_travel_time, total, total)
        self.agree(f"{when}: Beckmann's objective", claimed.objective, prices.integral(volume), claimed.objective)
        self.agree(f"{when}: revenue", claimed.revenue, float(toll @ volume), total)
        self.agree_each(f"{when}: costs of pairs", "of cheapest paths", claimed.path_cost, cheapest)
        return total


def loads_of(network: RoadNetwork, paths: PathFlows) -> Float[NDArray, "links"]:
    """Volumes of paths whose links are looked at one by one, so that nothing about them is believed.

    :raises AssertionError: where a path does not lead from its origin to its destination, or trips are missing
    """
    (market, links), flow = (paths.columns.market, paths.columns.links), paths.flow
    path = np.repeat(np.arange(len(flow)), np.diff(paths.columns.first))
    ends = [(network.head[links], 1.0), (network.tail[links], -1.0)]
    ends += [(network.origin[market], 1.0), (network.destination[market], -1.0)]
    owners = (path, path, np.arange(len(flow)), np.arange(len(flow)))
    signs = np.concatenate([np.full(len(nodes), sign) for nodes, sign in ends])
    places = (np.concatenate(owners), np.concatenate([nodes for nodes, _ in ends]))
    balance = coo_array((signs, places), shape=(len(flow), network.n_nodes)).tocsr()
    balance.sum_duplicates()
    assert not balance.data.any(), "a path does not join its pair"
    at = network.tail[links]
    assert (network.through[at] | (at == network.origin[market][path])).all(), "a path passes a node that it must not"
    carried = np.bincount(market, flow, network.n_pairs)
    assert np.allclose(carried, network.demand, rtol=1e-9, atol=0.0), "trips are missing"
    return np.bincount(links, flow[path], network.n_links)
