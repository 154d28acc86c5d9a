"""What each number and rule of a design's search is worth, on random networks that were not used to choose them.

    python benchmarks/transport_ablation.py [--part prices|search] [--networks 12] [--seed 30] [--processes 1]

``prices``: the exact answers of travellers on paths. Every field of ``NewtonSettings`` is taken times and by three; per
setting iterations of a cold answer and of three that begin with it, CPU time, and answers that are not solved.
``search``: designs, free, within half of the money, within limits of links, and at a gamma. Every rule is left out and
every number changed, one at a time; per variant what that costs in utility (in F_gamma at a given gamma), in how many
cases, and in evaluations. What is said of each number in the source comes from here.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from multiprocessing import get_context
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import blocc.transport.design.capacity_set as capacity_set
import blocc.transport.design.certificate as certificate
import blocc.transport.design.incumbent as incumbent
import blocc.transport.design.limited_prices as limited_prices
import blocc.transport.design.prices as prices
import blocc.transport.design.search as search
import blocc.transport.travellers.price_newton as price_newton
from blocc.errors import BloccError
from blocc.transport import DesignModel, TransportNetwork, city_network, design_network, grid_network
from blocc.transport.travellers.path_assignment import PathTravellers

Change = tuple[Any, str, Any]
#: Differences of utility below this part of it are none.
SAME = 1e-4


def random_network(seed: int, most: int) -> TransportNetwork:
    """A grid or a city with at most so many nodes in a row, or zones."""
    random = np.random.default_rng([7, seed])
    if seed % 2 == 0:
        rates = {"cost_per_time": random.uniform(0.7, 1.4), "revenue_per_time": random.uniform(0.6, 1.1)}
        return grid_network(int(random.integers(3, most)), int(random.integers(3, most)), seed=seed, **rates)
    zones = int(random.integers(most + 1, 2 * most))
    junctions = int(random.integers(zones, 2 * zones))
    for links in range(2 * zones + 3 * junctions, 2 * zones + 2 * junctions - 3, -1):
        try:
            return city_network(zones, junctions, links, seed=seed, trip_time=random.uniform(2.0, 6.0))
        except BloccError:
            continue
    raise AssertionError("a tree both ways can always be built")


@contextmanager
def changed(changes: list[Change]) -> Iterator[None]:
    """Other numbers or rules for a while."""
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def judged_alone(self: Any, capacity: Any, warm: Any = None) -> None:
    found = self.judge(capacity, warm)
    self._adopt(capacity, found, found)


def exactly(self: Any, at: Any) -> None:
    self.roughly = False
    afford(self, at)


afford = limited_prices.LimitedPrices._afford
RULES: dict[str, list[Change]] = {
    "polishing": [(search, "polish", lambda problem, start, is_open, allowed, **_: (start, is_open))],
    "squeezing": [(search.Search, "_squeeze", lambda self: True)],
    "beginning once more": [(search.Search, "_return", lambda self: True)],
    "drawing limits in": [(capacity_set.CapacitySet, "contracted", lambda self, wide: [self])],
    "finer temperatures": [(search, "FINEST", ())],
    "lower levels of gamma": [(search, "LEVELS", ())],
    "paths opened": [(certificate, "openings", lambda *_: [])],
    "links closed in the end": [(search, "MOST_CLOSED", 0)],
    "equal minimisers": [(search.Search, "_look_for_equals", lambda self: None)],
    "idle capacity": [(incumbent.Incumbent, "keep", judged_alone)],
    "negligible links": [(incumbent.Incumbent, "trim", lambda self, stop=None: None)],
    "flows on cheapest paths": [(incumbent.Incumbent, "_look_at", lambda self, met, estimate: None)],
    "rough budgets": [(limited_prices.LimitedPrices, "_afford", exactly)],
}
NUMBERS: dict[str, list[Change]] = {
    **{f"gamma times {step:.3g}": [(search, "GAMMAS", tuple(step**k for k in range(40)))] for step in (2**0.5, 4.0)},
    **{f"polished at {gamma:g}": [(search, "POLISHED_AT", gamma)] for gamma in (2.0, 32.0)},
    **{f"handed over at {gamma:g}": [(search, "HANDED_OVER_AT", gamma)] for gamma in (2.0, 32.0)},
    **{f"{count} steps": [(search, "MOST_STEPS", count)] for count in (30, 300)},
    **{f"squeezed to {part}": [(search, "SQUEEZED_TO", (part,))] for part in (0.5, 0.95)},
    **{
        f"temperature {times:g} times as high": [
            (search, "temperature_of", lambda gamma, unit, times=times: times * prices.temperature_of(gamma, unit))
        ]
        for times in (1 / 3, 3.0)
    },
}


def designs_of(seed: int) -> list[tuple[str, str, float, int]]:
    """Kind, variant, value and evaluations of one network's designs."""
    network = random_network(seed, 4)
    model, rows = DesignModel(network), []
    free = design_network(network, starts=1, model=model, seed=seed)
    kinds: dict[str, dict[str, Any]] = {"free": {}, "gamma": {"gamma": 4.0}}
    if free.built.any():
        kinds["budget"] = {"budget": 0.5 * free.follower.construction_cost}
        kinds["limits"] = {"max_capacity": float(np.median(free.capacity[free.built])), "symmetric": True}
    variants = {"": [], **{f"without {name}": changes for name, changes in RULES.items()}, **NUMBERS}
    for kind, options in kinds.items():
        for name, changes in variants.items():
            with changed(changes):
                design = design_network(network, starts=1, model=model, seed=seed, **options)
            value = design.utility + (design.certificate.penalty_gap if kind == "gamma" else 0.0)
            rows.append((kind, name, value, design.starts[0].evaluations))
    return rows


def answers_of(seed: int) -> list[tuple[str, list[int], float, int]]:
    """Setting, iterations of four answers, CPU seconds, and how many are not solved, on one network."""
    network, random = random_network(seed, 7), np.random.default_rng(seed)
    travellers, usual = PathTravellers(network), network.alternative_time
    flow = travellers.answer(np.full(network.n_links, 1e6), usual)[0].point.flow.sum(axis=0)
    capacity = np.maximum(flow, 0.02 * flow.max()) * random.uniform(0.3, 1.2, len(flow))
    capacity[random.random(len(flow)) < 0.3] = 0.0
    opened = np.where(capacity > 0.0, capacity, 0.1 * capacity.max() * (random.random(len(flow)) < 0.1))
    nearby = (capacity * np.exp(0.1 * random.normal(size=len(flow))), opened, capacity)
    times = (usual, usual, usual + network.revenue / 1e4)
    usual_settings, rows = price_newton.SETTINGS, []
    variants = {"": usual_settings}
    for one in fields(usual_settings):
        value = getattr(usual_settings, one.name)
        for factor, word in ((3.0, "times 3"), (1 / 3, "by 3")):
            other = replace(usual_settings, **{one.name: type(value)(factor * value)})
            variants[f"{one.name} {word}"] = other
    for name, settings in variants.items():
        with changed([(price_newton, "SETTINGS", settings)]):
            began = time.process_time()
            first, warm = travellers.answer(capacity, usual)
            found = [first, *(travellers.answer(*each, warm)[0] for each in zip(nearby, times, strict=True))]
            seconds = time.process_time() - began
        unsolved = sum(float(one.error) > 1e-9 for one in found)
        rows.append((name, [int(one.iterations) for one in found], seconds, unsolved))
    return rows


def print_designs(found: list[list[tuple[str, str, float, int]]]) -> None:
    rivals = defaultdict(list)
    for rows in found:
        usual = {kind: (value, count) for kind, name, value, count in rows if not name}
        for kind, name, value, count in rows:
            if name:
                own, evaluations = usual[kind]
                rivals[name, kind].append(((value - own) / (1.0 + abs(own)), (1 + count) / (1 + evaluations)))
    print(f"{'variant':<32} {'kind':<8} {'cases':>5} {'mean':>9} {'worse':>5} {'better':>6} {'evaluations':>11}")
    for (name, kind), pairs in sorted(rivals.items()):
        change, counts = np.array(pairs).T
        worse, better = int((change < -SAME).sum()), int((change > SAME).sum())
        times = float(np.exp(np.log(counts).mean()))
        print(f"{name:<32} {kind:<8} {len(pairs):>5} {change.mean():>9.1e} {worse:>5} {better:>6} {times:>11.2f}")


def print_answers(found: list[list[tuple[str, list[int], float, int]]]) -> None:
    print(f"{'setting':<26} {'iterations: cold, near, opened, other times':<44} {'CPU s':>6} {'unsolved':>8}")
    for rows in zip(*found, strict=True):
        iterations = np.sum([row[1] for row in rows], axis=0).tolist()
        seconds, unsolved = sum(row[2] for row in rows), sum(row[3] for row in rows)
        print(f"{rows[0][0] or 'as it is':<26} {iterations!s:<44} {seconds:>6.1f} {unsolved:>8}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("prices", "search"), default="prices")
    parser.add_argument("--networks", type=int, default=12)
    parser.add_argument("--seed", type=int, default=30)
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    seeds = range(arguments.seed, arguments.seed + arguments.networks)
    work, show = (answers_of, print_answers) if arguments.part == "prices" else (designs_of, print_designs)
    with get_context("spawn").Pool(arguments.processes) as pool:
        show(pool.map(work, seeds, chunksize=1))  # type: ignore[operator, arg-type]


if __name__ == "__main__":
    main()
