"""Traffic assignment: where drivers go when each takes the cheapest path, or when one planner sends them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.notebook import Shown
from blocc._lib.rounding import KEPT, ROUNDED, TINY
from blocc.errors import OptionError
from blocc.kit.arguments import check_positive, one_each
from blocc.kit.checks import assumed_lines, check_lines
from blocc.outer.monitor import StopReason, StopRequest, interruptible
from blocc.result import Status
from blocc.roads.capacitated import assign_capacitated
from blocc.roads.checks import assignment_checks
from blocc.roads.equilibrium import Equilibrium, PathFlows, assign_paths
from blocc.roads.link_costs import LinkCosts
from blocc.roads.network import RoadNetwork

#: What the default relative gap is: Wardrop's conditions to ten digits.
RELATIVE_GAP = 1e-10
PRINCIPLES = ("user equilibrium", "system optimum")


@dataclass(frozen=True)
class AssignmentCertificate:
    """Numbers that prove an assignment."""

    relative_gap: float  #: what drivers pay above their cheapest paths, relative to all they pay
    average_excess_cost: float  #: the same for one trip, in units of time
    conservation: float  #: largest difference between trips that should and do enter a node, relative to all trips
    complementarity: float  #: largest excess cost of a path in use, relative to the cheapest of its pair


@dataclass(frozen=True, eq=False)
class RoadAssignment(Shown):
    """Volumes and times of all links, and the proof. ``print`` explains it."""

    network: RoadNetwork
    capacity: Float[NDArray, "links"]  #: of each link: the network's own, or what was given in its place
    toll: Float[NDArray, "links"]  #: of each link, likewise
    flow: Float[NDArray, "links"]  #: volume of each link
    time: Float[NDArray, "links"]  #: travel time of each link at that volume
    path_cost: Float[NDArray, "pairs"]  #: the cheapest path of each pair
    objective: float  #: Beckmann's for the user equilibrium, the total travel time for the system optimum
    total_travel_time: float
    revenue: float  #: of tolls
    waiting: Float[NDArray, "links"]  #: before links whose limit is reached
    relative_gap: float
    certificate: AssignmentCertificate
    principle: str
    status: Status
    message: str
    iterations: int
    n_paths: int
    gaps: tuple[float, ...]  #: relative gap of every iteration
    seconds: float
    paths: PathFlows | None  #: None where the assignment was read from a file
    wanted_gap: float = RELATIVE_GAP  #: the relative gap that was asked for

    @property
    def success(self) -> bool:
        """Whether the gap asked for was reached."""
        return self.status is Status.CONVERGED

    @property
    def volume_over_capacity(self) -> Float[NDArray, "links"]:
        """How full each link is."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.flow / self.capacity

    def __repr__(self) -> str:
        lines = [
            f"{self.network.name}: {self.status.value}",
            f"  {self.message}",
            f"  {self.principle}; {self.network.n_pairs} pairs on {self.n_paths} paths",
            f"  total travel time  {self.total_travel_time:.12g}",
            f"  objective          {self.objective:.15g}",
            *([f"  toll revenue       {self.revenue:.10g}"] if self.revenue else []),
            "  certificate",
            *check_lines(assignment_checks(self)),
            f"  {self.iterations} iterations, {self.seconds:.3g} s",
            *assumed_lines(self.network.assumptions),
        ]
        return "\n".join(lines)


def assign(
    network: RoadNetwork,
    *,
    principle: str = "user equilibrium",
    toll: Any = None,
    capacity: Any = None,
    limit: Any = None,
    relative_gap: float = RELATIVE_GAP,
    time_limit: float | None = None,
    warm: RoadAssignment | None = None,
    report: Callable[[int, float], None] | None = None,
) -> RoadAssignment:
    """Assign all trips to paths.

    :param principle: "user equilibrium" (nobody has a cheaper path) or "system optimum" (least total travel time)
    :param toll: of each link, in units of time, in place of the network's own
    :param capacity: of each link, in place of the network's own
    :param limit: of each link's volume, a hard one (infinite: none): drivers then wait, and ``waiting`` tells how long
    :param relative_gap: where to stop; 1e-12 and less can be reached
    :param time_limit: seconds, after which the flows so far come back with their gap
    :param warm: an assignment of the same trips, to begin with its paths
    :param report: called with the number of every iteration and its gap
    """
    check_network(network)
    if principle not in PRINCIPLES:
        raise OptionError(f"principle must be {' or '.join(map(repr, PRINCIPLES))}, got {principle!r}")
    check_positive("relative_gap", relative_gap)
    check_positive("time_limit", time_limit, optional=True)
    tolls = network.toll if toll is None else one_each("toll", toll, network.n_links, "links")
    room = network.capacity if capacity is None else one_each("capacity", capacity, network.n_links, "links")
    if ((room <= 0.0) & (network.b > 0.0)).any():
        raise OptionError("capacity must be positive on every link whose time grows with the volume")
    if warm is not None and warm.network is not network:
        raise OptionError("warm must be an assignment of the same network")
    is_optimum = principle == PRINCIPLES[1]
    # The system optimum is the equilibrium of marginal costs: t + v t' has b (power + 1) in place of b. Tolls are
    # transfers there, and steer nobody.
    costs = network.bpr(room, 1.0 + network.power) if is_optimum else with_tolls(network.bpr(room), tolls)
    request = StopRequest(limit=time_limit)

    def stop(iteration: int, gap: float) -> bool:
        if report is not None:
            report(iteration, gap)
        request.reason = request.why()
        return request.reason is not None

    paths = None if warm is None else warm.paths
    waiting, over, proven = np.zeros(network.n_links), 0.0, False
    with interruptible(request):
        if limit is None:
            found = assign_paths(network.streets, network.pairs, costs, gap=relative_gap, warm=paths, stop=stop)
        else:
            most = one_each("limit", limit, network.n_links, "links", above_zero=True, finite=False)
            queued = assign_capacitated(
                network.streets, network.pairs, costs, most, gap=relative_gap, warm=paths, stop=stop
            )
            found, waiting, proven = queued.equilibrium, queued.price, queued.is_impossible
            over = queued.violation if proven else max(queued.violation, queued.complementarity)
    status, message = _judged(found, relative_gap, request.reason, over, proven)
    answer = road_assignment(network, found, costs, room, tolls)
    return replace(
        answer,
        waiting=waiting,
        principle=principle,
        status=status,
        message=message,
        seconds=request.elapsed(),
        wanted_gap=float(relative_gap),
    )


def _judged(
    found: Equilibrium, wanted: float, stopped: StopReason | None, over: float, proven: bool
) -> tuple[Status, str]:
    if proven:
        return Status.INFEASIBLE, f"No flows keep the limits (proven): a link is over its own by {100.0 * over:.2g}%."
    if over > KEPT and stopped is None:
        return Status.STALLED, f"Waiting times did not settle: limits or queues are off by {100.0 * over:.2g}%."
    if found.relative_gap <= wanted:
        return Status.CONVERGED, f"No driver has a cheaper path: relative gap {found.relative_gap:.1e}."
    if stopped is not None:
        status = Status.TIME_LIMIT if stopped is StopReason.TIME_LIMIT else Status.INTERRUPTED
        return status, f"Stopped at a relative gap of {found.relative_gap:.1e}; {wanted:.0e} was wanted."
    return Status.STALLED, f"No progress below a relative gap of {found.relative_gap:.1e}; {wanted:.0e} was wanted."


def road_assignment(
    network: RoadNetwork,
    found: Equilibrium,
    costs: LinkCosts,
    capacity: Float[NDArray, "links"],
    toll: Float[NDArray, "links"],
) -> RoadAssignment:
    """An equilibrium in the network's own terms, with its certificate."""
    times = network.travel_times(found.volume, capacity)
    total = float(times @ found.volume)
    return RoadAssignment(
        network=network,
        capacity=capacity,
        toll=toll,
        flow=found.volume,
        time=times,
        path_cost=found.path_cost,
        objective=float(costs.integral(found.volume).sum()),
        total_travel_time=total,
        revenue=float(toll @ found.volume),
        relative_gap=found.relative_gap,
        certificate=certify(network, found),
        waiting=np.zeros(network.n_links),
        principle=PRINCIPLES[0],
        status=Status.CONVERGED,
        message="",
        iterations=found.iterations,
        n_paths=len(found.paths.columns),
        gaps=found.gaps,
        seconds=0.0,
        paths=found.paths,
    )


def certify(network: RoadNetwork, found: Equilibrium) -> AssignmentCertificate:
    """Conservation and complementarity from the paths' flows and the links' costs, gaps from the cheapest paths."""
    columns, flow = found.paths
    trips = float(network.demand.sum())
    excess = columns.costs(found.cost) - found.path_cost[columns.market]
    used = flow > ROUNDED * network.demand[columns.market]
    return AssignmentCertificate(
        relative_gap=found.relative_gap,
        average_excess_cost=found.excess / trips,
        conservation=network.lost_trips(found.volume),
        complementarity=float(np.max(excess[used] / (TINY + found.path_cost[columns.market][used]), initial=0.0)),
    )


def with_tolls(costs: LinkCosts, toll: Float[NDArray, "links"]) -> LinkCosts:
    """Costs with a toll on top."""
    return costs._replace(constant=costs.constant + toll)


def check_network(network: Any) -> None:
    """Refuse what is no road network."""
    if not isinstance(network, RoadNetwork):
        raise OptionError(f"network must be a RoadNetwork (see read_road_network), got {type(network).__name__}")
