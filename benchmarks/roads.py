"""Roads: the published variants of Sioux Falls, designs of networks of cities' sizes, and assignment against a peer.

    python benchmarks/roads.py                                  # Sioux Falls and a network of Anaheim's size
    python benchmarks/roads.py --parts sioux,assign,anaheim,chicago
    python benchmarks/roads.py --parts assign --peer-gap 1e-5   # AequilibraE to this relative gap

Sioux Falls is widened as in the literature: capacities x 0.001, demand x 0.0011, times x 0.01, ten links, quadratic
costs, at most 25 for each. The literature has four variants, told apart by the objective without expansion: 101.0615,
100.9690, 99.9413 and 99.9411. The built-in figures are the third; files of the others can be given. The networks of
cities are generated: 30 % of the links of one of Anaheim's size, 50 links of one of Chicago Sketch's. Compiled kernels
are kept on disk; the first run after an installation compiles them, and what that takes is told apart.

Assignments are compared with AequilibraE (bi-conjugate Frank-Wolfe) where it is installed (pip install aequilibrae):
the same network, the same relative gap, judged here by SciPy's cheapest paths at the volumes of each. ``--parts
halves`` shows why flow is shifted in one thread: in two halves of the pairs at once it takes more sweeps and paths.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import time
from collections.abc import Callable
from importlib.metadata import version

import numpy as np

from blocc._lib.threads import thread_count
from blocc.networks.kernels import cuts, in_threads
from blocc.networks.paths import cheapest_costs
from blocc.roads import RoadNetwork, assign, equilibrium, expand_network, read_road_network
from blocc.roads.generators import city_roads
from blocc.roads.link_costs import evaluate

LINKS = [16, 17, 19, 20, 25, 26, 29, 39, 48, 74]
COSTS = [0.026, 0.040, 0.026, 0.040, 0.025, 0.025, 0.048, 0.034, 0.048, 0.034]


def anaheim() -> RoadNetwork:
    return city_roads(38, 378, 914, seed=1, name="of Anaheim's size")


def chicago() -> RoadNetwork:
    return city_roads(387, 546, 2950, pairs=93_135, seed=1, name="of Chicago Sketch's size")


def sioux_variants(files: list[str]) -> dict[str, RoadNetwork]:
    """The built-in figures, and those of files, in the units of the literature."""
    found = {"sioux-falls": read_road_network("sioux-falls")} | {file: read_road_network(file) for file in files}
    return {name: network.scaled(demand=0.0011, capacity=0.001, time=0.01) for name, network in found.items()}


def peak() -> float:
    """Largest memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


# --- assignment ----------------------------------------------------------------------------------------------------
def relative_gap(network: RoadNetwork, volume: np.ndarray) -> float:
    """What drivers pay above SciPy's cheapest paths at these volumes, relative to what they pay."""
    cost = network.free_flow_time * (1.0 + network.b * (volume / network.capacity) ** network.power) + network.toll
    origins, row = np.unique(network.origin, return_inverse=True)
    cheapest = cheapest_costs(network.tail, network.head, cost, network.through, origins)[row, network.destination]
    paid = float(cost @ volume)
    return (paid - float(network.demand @ cheapest)) / paid


def peer(network: RoadNetwork, gap: float, most: int) -> tuple[str, np.ndarray, float]:
    """AequilibraE's volumes, and how long its assignment took."""
    import pandas as pd
    from aequilibrae.matrix import AequilibraeMatrix
    from aequilibrae.paths import Graph, TrafficAssignment, TrafficClass

    zones = np.unique(np.concatenate((network.origin, network.destination)))
    # Its centroids come first: nodes are numbered anew.
    number = np.empty(network.n_nodes, dtype=np.int64)
    number[np.concatenate((zones, np.setdiff1d(np.arange(network.n_nodes), zones)))] = np.arange(1, network.n_nodes + 1)
    graph = Graph()
    graph.network = pd.DataFrame(
        {
            "link_id": np.arange(1, network.n_links + 1),
            "a_node": number[network.tail],
            "b_node": number[network.head],
            "direction": np.ones(network.n_links, dtype=np.int8),
            "id": np.arange(1, network.n_links + 1),
            "capacity": network.capacity,
            "free_flow_time": np.maximum(network.free_flow_time, 1e-9),
            "b": network.b,
            "power": np.maximum(network.power, 1.0),
        }
    )
    graph.prepare_graph(np.arange(1, len(zones) + 1), remove_dead_ends=False)
    graph.set_graph("free_flow_time")
    graph.set_blocked_centroid_flows(bool((~network.through).any()))
    matrix = AequilibraeMatrix()
    matrix.create_empty(zones=len(zones), matrix_names=["trips"], memory_only=True)
    matrix.index[:] = np.arange(1, len(zones) + 1)
    matrix.matrix["trips"][:, :] = 0.0
    matrix.matrix["trips"][number[network.origin] - 1, number[network.destination] - 1] = network.demand
    matrix.computational_view(["trips"])
    drivers = TrafficClass("car", graph, matrix)
    assignment = TrafficAssignment()
    assignment.set_classes([drivers])
    assignment.set_vdf("BPR")
    assignment.set_vdf_parameters({"alpha": "b", "beta": "power"})
    assignment.set_capacity_field("capacity")
    assignment.set_time_field("free_flow_time")
    assignment.set_cores(thread_count())
    assignment.max_iter, assignment.rgap_target = most, gap
    assignment.set_algorithm("bfw")
    began = time.perf_counter()
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):  # its progress bars
        assignment.execute(log_specification=False)
    seconds = time.perf_counter() - began
    volume = assignment.results()["PCE_AB"].reindex(np.arange(1, network.n_links + 1)).fillna(0.0).to_numpy()
    return f"AequilibraE {version('aequilibrae')}, {len(assignment.report())} iterations", volume, seconds


def assignments(peer_gap: float, most: int) -> None:
    """One line for each network and each program."""
    for network in (read_road_network("sioux-falls"), anaheim(), chicago()):
        print(f"assignment, {network}", flush=True)
        for gap in (peer_gap, 1e-10, 1e-12):
            began = time.process_time()
            found = assign(network, relative_gap=gap)
            print(
                f"    blocc to {gap:.0e}: {found.seconds:.3f} s ({time.process_time() - began:.3f} s of CPU), "
                f"{found.iterations} iterations, {found.n_paths} paths, relative gap {found.relative_gap:.1e}, "
                f"by SciPy's paths {relative_gap(network, found.flow):.1e}, peak {peak():.2f} GB",
                flush=True,
            )
        try:
            name, volume, seconds = peer(network, peer_gap, most)
        except ImportError as error:
            print(f"    peer skipped: {error} (pip install aequilibrae)")
            continue
        off = float(np.abs(volume - found.flow).max() / found.flow.max())
        print(
            f"    {name} to {peer_gap:.0e}: {seconds:.3f} s, by SciPy's paths {relative_gap(network, volume):.1e}, "
            f"volumes within {off:.1e} of the largest",
            flush=True,
        )


# --- threads -------------------------------------------------------------------------------------------------------
class Halves:
    """Sweeps over two halves of the pairs at once, each with the other's volumes as they were, then a common step."""

    def __init__(self, parts: int) -> None:
        self.parts, self.one, self.sweeps, self.seconds = parts, equilibrium.sweep, 0, 0.0

    def __call__(self, of_market, first, links, flow, costs, volume, cost, slope, room, target, most):  # type: ignore[no-untyped-def]
        began, paths = time.perf_counter(), np.diff(of_market)
        bounds = cuts(np.where(paths > 1, paths, 0).astype(float), self.parts)
        left = np.inf

        def part(i: int) -> tuple[float, np.ndarray]:
            own = [figures.copy() for figures in (volume, cost, slope)]
            pairs = of_market[bounds[i] : bounds[i + 1] + 1]
            return self.one(pairs, first, links, flow, costs, *own, np.empty_like(room), 0.0, 1), own[0]

        for _ in range(most):
            self.sweeps += 1
            if self.parts == 1:
                left = self.one(of_market, first, links, flow, costs, volume, cost, slope, room, target, 1)
            else:
                before = flow.copy()
                found = in_threads(part, self.parts)
                left, change = sum(one[0] for one in found), sum(one[1] - volume for one in found)
                step, downhill = 1.0, abs(float(change @ cost))
                while step > 0.1 and float(change @ costs.at(np.maximum(volume + step * change, 0.0))) > 0.1 * downhill:
                    step *= 0.7
                flow[:] = before + step * (flow - before)
                volume[:] = np.maximum(volume + step * change, 0.0)
                evaluate(costs, volume, cost, slope)
            if left <= target:
                break
        self.seconds += time.perf_counter() - began
        return left


def halves() -> None:
    """What sweeps in parallel would cost and gain."""
    network = chicago()
    assign(network, relative_gap=1e-2)
    plain = equilibrium.sweep
    for parts in (1, 2):
        made = Halves(parts)
        equilibrium.sweep = made
        found = assign(network, relative_gap=1e-10)
        equilibrium.sweep = plain
        print(
            f"sweeps in {parts} part{'s' if parts > 1 else ''}, {network.name}, to 1e-10: {found.seconds:.2f} s, of it "
            f"sweeps {made.seconds:.2f} s; {made.sweeps} sweeps, {found.iterations} iterations, {found.n_paths} paths",
            flush=True,
        )


# --- designs -------------------------------------------------------------------------------------------------------
def design(network: RoadNetwork, label: str, **options: object) -> None:
    """One line about one design."""
    began = time.process_time()
    found = expand_network(network, **options)  # type: ignore[arg-type]
    assert found.bound is not None
    assert found.gap is not None
    print(
        f"{label}: {found.before.total_travel_time:.4f} without, {found.objective:.6g} found, bound {found.bound:.6g}, "
        f"gap {100.0 * found.gap:.2f} %, {found.status.value}, relative gap {found.relative_gap:.1e}, "
        f"{found.evaluations} evaluations, {len(found.starts)} starts, {found.seconds:.2f} s "
        f"({time.process_time() - began:.2f} s of CPU), peak {peak():.2f} GB",
        flush=True,
    )


def sioux(files: list[str], starts: int) -> None:
    """The ten links of the literature."""
    for label, network in sioux_variants(files).items():
        options = {"candidates": LINKS, "cost": COSTS, "exponent": 2.0, "max_expansion": 25.0, "starts": starts}
        design(network, f"Sioux Falls, {label}", **options)


def city(network: RoadNetwork, count: int, starts: int, time_limit: float) -> None:
    """The links of most delay may be widened, at a cost that makes about as many of them worth it as not."""
    today = assign(network)
    delay = (today.time - network.free_flow_time) * today.flow
    candidates = np.argsort(-delay)[:count]
    # A unit of capacity costs what it saves on the median candidate when little is built.
    saved = (network.power * delay / network.capacity)[candidates]
    design(
        network,
        f"{network.name}, {count} links expandable",
        candidates=[network.link_ids[a] for a in np.sort(candidates).tolist()],
        cost=float(np.median(saved)),
        starts=starts,
        time_limit=time_limit,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="sioux,assign,anaheim", help="sioux, assign, halves, anaheim, chicago")
    parser.add_argument("--variant", action="append", default=[], help="another *_net.tntp file of Sioux Falls")
    parser.add_argument("--starts", type=int, default=1)
    parser.add_argument("--time-limit", type=float, default=600.0, help="seconds for each design of a city")
    parser.add_argument("--peer-gap", type=float, default=1e-4)
    parser.add_argument("--peer-iterations", type=int, default=2000)
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores, {thread_count()} threads")
    began = time.perf_counter()
    expand_network(read_road_network("sioux-falls"), candidates=[16], starts=1, time_limit=1.0)
    print(f"kernels compiled or read: {time.perf_counter() - began:.1f} s", flush=True)
    parts: dict[str, Callable[[], None]] = {
        "halves": halves,
        "sioux": lambda: sioux(given.variant, given.starts),
        "assign": lambda: assignments(given.peer_gap, given.peer_iterations),
        "anaheim": lambda: city(anaheim(), round(0.3 * 914), given.starts, given.time_limit),
        "chicago": lambda: city(chicago(), 50, given.starts, given.time_limit),
    }
    for part in given.parts.split(","):
        parts[part]()


if __name__ == "__main__":
    main()
