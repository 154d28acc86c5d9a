"""How the time of a design grows: grids from 25 to 100 nodes, and generated networks with the shape of cities.

    python benchmarks/transport_scaling.py [--networks 25,50,100,anaheim] [--starts 1] [--engine auto] [--lower-level]
                                           [--prices]

The 100-node grid has 400 links and 9,900 markets: about four million lower-level variables in the full formulation.
"anaheim" and "chicago" are generated networks of the sizes of Anaheim (38 zones, 416 nodes, 914 links) and of the
Chicago sketch (387 zones, 933 nodes, 2,950 links, 93,135 markets). With ``--lower-level`` only the parts are timed: one
evaluation in the prices, and one of the travellers' answers; with ``--prices`` the first of these alone, by the clock,
for the engines "paths" and "mixed" (which searches on an accelerator). Needs numpy, scipy, jax and numba.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable

import jax
import numpy as np

from blocc.transport import DesignModel, TransportNetwork, design_network, grid_network
from blocc.transport.design.forecast import forecast
from blocc.transport.network.generators import city_network

NETWORKS: dict[str, Callable[[], TransportNetwork]] = {
    "25": lambda: grid_network(5, 5),
    "50": lambda: grid_network(5, 10),
    "100": lambda: grid_network(10, 10),
    "anaheim": lambda: city_network(38, 378, 914, name="anaheim's size"),
    "chicago": lambda: city_network(387, 546, 2950, markets=93_135, name="chicago's size"),
}


def peak() -> float:
    """Largest memory of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def design(network: TransportNetwork, starts: int, engine: str) -> str:
    began = time.process_time()
    found = design_network(network, starts=starts, engine=engine)
    evaluations = sum(start.evaluations for start in found.starts)
    return (
        f"utility {found.utility:.2f}, {found.status.value}, {int(found.built.sum())} links built, "
        f"run {found.seconds['run']:.1f} s, compile {found.seconds['compile']:.1f} s, "
        f"CPU {time.process_time() - began:.1f} s, {evaluations} evaluations"
    )


def parts(network: TransportNetwork, engine: str) -> str:
    model = DesignModel(network, engine)
    unit, is_open = model.time_unit, np.ones(network.n_links, dtype=bool)
    prices = np.random.default_rng(0).uniform(0.0, 3.0 * unit, network.n_links)

    def evaluate(temperature: float) -> tuple[float, np.ndarray]:
        model.prices(prices, 10.0, is_open, temperature, network.cost)  # compiled
        began = time.process_time()
        found = model.prices(prices, 10.0, is_open, temperature, network.cost)
        return time.process_time() - began, np.asarray(found.follower.flow)

    (warm, _), (cold, flow) = evaluate(0.1 * unit), evaluate(1e-4 * unit)
    capacity = np.where(flow > model.threshold, flow, 0.0)
    began = time.process_time()
    found = model.capacities(capacity, 1e4)
    return (
        f"prices {warm:.4f} s (0.1) and {cold:.4f} s (1e-4), both answers {time.process_time() - began:.2f} s, "
        f"{int(found.follower.iterations)} + {int(found.penalised.iterations)} steps, error {found.error:.1e} (CPU)"
    )


def in_prices(network: TransportNetwork) -> str:
    """Milliseconds of one evaluation, by temperature and engine."""
    told = []
    for engine in ("paths", "mixed"):
        model = DesignModel(network, engine)
        unit, is_open = model.time_unit, np.ones(network.n_links, dtype=bool)
        prices, figures = np.random.default_rng(0).uniform(0.0, unit, network.n_links), []
        for temperature in (0.1 * unit, 1e-2 * unit, 1e-4 * unit):
            model.prices(prices, 10.0, is_open, temperature, network.cost)  # compiled
            began = time.perf_counter()
            for _ in range(10):
                model.prices(prices, 10.0, is_open, temperature, network.cost)
            figures.append(f"{100.0 * (time.perf_counter() - began):.2f}")
        told.append(f"{engine} {' / '.join(figures)} ms")
    return "; ".join(told)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default="25,50,100,anaheim", help=", ".join(NETWORKS))
    parser.add_argument("--starts", type=int, default=1)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--lower-level", action="store_true")
    parser.add_argument("--prices", action="store_true")
    arguments = parser.parse_args()
    print(f"device: {jax.devices()[0].device_kind}, jax {jax.__version__}")
    for name in arguments.networks.split(","):
        network = NETWORKS[name]()
        expected = forecast(network, arguments.engine)
        print(
            f"{name}: {network.n_nodes} nodes, {network.n_links} links, {network.n_markets} markets, "
            f"{network.sizes.variables:,} variables in full; engine {expected.engine}, expected "
            f"{expected.memory / 1e9:.1f} GB and {expected.seconds:.0f} s",
            flush=True,
        )
        if arguments.prices:
            told = in_prices(network)
        elif arguments.lower_level:
            told = parts(network, arguments.engine)
        else:
            told = design(network, arguments.starts, arguments.engine)
        print(f"    {told}, peak {peak():.2f} GB", flush=True)


if __name__ == "__main__":
    main()
