"""How the time of a design grows from 25 to 50 to 100 nodes, on whatever device JAX finds.

    python benchmarks/transport_scaling.py [--sizes 25,50,100] [--starts 1]

The 100-node grid has 400 links and 9,900 markets: about four million lower-level variables in the full formulation.
Needs numpy, scipy and jax alone.
"""

from __future__ import annotations

import argparse
import resource

import jax

from blocc.transport import design_network, grid_network

GRIDS = {25: (5, 5), 50: (5, 10), 100: (10, 10)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="25,50,100")
    parser.add_argument("--starts", type=int, default=1)
    arguments = parser.parse_args()
    print(f"device: {jax.devices()[0].device_kind}, jax {jax.__version__}")
    print(
        f"{'nodes':>5} {'links':>6} {'markets':>8} {'full variables':>15} {'utility':>10} {'status':>10} "
        f"{'run s':>8} {'compile s':>10} {'evaluations':>12} {'peak GB':>8}"
    )
    previous = None
    for size in map(int, arguments.sizes.split(",")):
        network = grid_network(*GRIDS[size])
        design = design_network(network, starts=arguments.starts)
        seconds = design.seconds
        evaluations = sum(start.evaluations for start in design.starts)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(
            f"{size:>5} {network.n_links:>6} {network.n_markets:>8} {network.sizes.variables:>15,} "
            f"{design.utility:>10.2f} {design.status.value:>10} {seconds['run']:>8.1f} {seconds['compile']:>10.1f} "
            f"{evaluations:>12} {peak:>8.2f}"
            + (f"   {seconds['run'] / previous:.1f} times the row above" if previous else ""),
            flush=True,
        )
        previous = seconds["run"]


if __name__ == "__main__":
    main()
