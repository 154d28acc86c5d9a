"""Designs within budgets: does more money earn more, and never less than the design without a budget, scaled down?

    python benchmarks/transport_budgets.py [--starts 2] [--networks three nine seville 0 1 2 3 4 5 6 7 8 9]

A number stands for a generated grid of 6 to 20 nodes with that seed. Utilities are exact. "lost" is what the utility
falls by where the budget grows, and "below" what it falls short of the scaled design; both should be (next to) nothing.
"""

from __future__ import annotations

import argparse
import time

from blocc.transport import DesignModel, design_network, grid_network, read_network

PARTS = (0.1, 0.25, 0.5, 0.7, 0.85, 0.95, 1.1)
SIZES = ((2, 3), (3, 3), (3, 4), (4, 4), (4, 5))


def random_network(seed: int):
    """A grid whose demand, costs and revenues differ from seed to seed."""
    rows, columns = SIZES[seed % len(SIZES)]
    demand, cost = (2.65, 60.0)[seed % 2], (0.6, 1.095, 1.6)[seed % 3]
    return grid_network(rows, columns, seed=seed, demand=demand, cost_per_time=cost)


def budgets(network, starts: int) -> tuple[float, float]:
    """Print one row for each budget; returns the worst fall and the worst shortfall, relative to the utility."""
    model = DesignModel(network)
    free = design_network(network, starts=starts, model=model)
    full = free.follower.construction_cost
    print(f"\n{network.name}: unlimited utility {free.utility:.4f} at cost {full:.4f}, {free.status.value}", flush=True)
    print(f"  {'budget':>10} {'spent':>10} {'utility':>12} {'scaled':>12} {'s':>6}  status")
    before, lost, below = 0.0, 0.0, 0.0
    for part in PARTS:
        began = time.process_time()
        design = design_network(network, starts=starts, budget=part * full, model=model)
        seconds, scale = time.process_time() - began, min(1.0, part)
        scaled = float(model.capacities(scale * free.capacity, design.gamma).utility)
        spent = design.follower.construction_cost
        status = design.status.value if design.success else f"{design.status.value}: {design.message}"
        row = f"{part * full:>10.3f} {spent:>10.3f} {design.utility:>12.5f} {scaled:>12.5f} {seconds:>6.1f}"
        print(f"  {row}  {status}", flush=True)
        size = 1.0 + abs(free.utility)
        lost, below = max(lost, (before - design.utility) / size), max(below, (scaled - design.utility) / size)
        before = design.utility
    print(f"  lost {lost:.1e}, below {below:.1e}", flush=True)
    return lost, below


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=2)
    parser.add_argument("--networks", nargs="+", default=["three", "nine", "seville", *map(str, range(10))])
    arguments = parser.parse_args()
    worst = (0.0, 0.0)
    for name in arguments.networks:
        network = random_network(int(name)) if name.isdigit() else read_network(name)
        lost, below = budgets(network, arguments.starts)
        worst = max(worst[0], lost), max(worst[1], below)
    print(f"\nworst of all: lost {worst[0]:.1e}, below {worst[1]:.1e} (parts of 1 + utility)")


if __name__ == "__main__":
    main()
