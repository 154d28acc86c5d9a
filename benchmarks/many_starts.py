"""Many starts: ``solve_many`` beside a loop of ``solve`` over the same starts, in the same run.

    python benchmarks/many_starts.py [--problem toll pricing toy] [--starts N] [--workers 0] [--limits 1 5 20]

Three problems. *toll*: tolls on four arcs of a little network, three groups of travellers who take their cheapest ways
(a linear program), 16 starts. *pricing*: two prices, four customers who buy what is worth most to
them, 8 and 30 starts.
*toy*: the toy of the paper with gamma on automatic, 40 starts. Each line gives CPU seconds, how many starts converged,
how many ended at revenue 0, and the best value. Two starts are solved before the clock runs, and leave their compiled
code to both. With
``--workers N``, ``solve_many`` runs once more on N worker processes: each of them compiles for itself. With
``--limits``, instead of all that: what ``solve_many`` from 200 starts takes of the clock under each time limit.
"""

from __future__ import annotations

import argparse
import time

import jax.numpy as jnp
import numpy as np

from blocc import BilevelProblem, Box, solve, solve_many
from blocc.executors.processes import ProcessExecutor
from blocc.problems.toy import toy_problem

#: Arcs of the toll problem: from, to, cost, and whether it has a toll. Each group of travellers has a way without one.
_ARCS = (
    (0, 1, 2.0, True),
    (1, 2, 1.0, True),
    (2, 3, 2.0, True),
    (0, 4, 3.0, False),
    (4, 1, 3.0, False),
    (4, 2, 4.0, True),
    (4, 3, 9.0, False),
    (1, 3, 8.0, False),
    (0, 2, 10.0, False),
)
#: Groups of travellers: from, to, how many.
_TRIPS = ((0, 3, 3.0), (0, 2, 2.0), (1, 3, 1.0))
_CURVATURE = 0.1


def toll() -> BilevelProblem:
    """Tolls that pay: travellers leave arcs that become too dear."""
    cost = np.array([arc[2] for arc in _ARCS])
    tolled = np.flatnonzero([arc[3] for arc in _ARCS])
    nodes = 1 + max(node for arc in _ARCS for node in arc[:2])
    incidence = np.zeros((nodes, len(_ARCS)))
    for index, (tail, head, *_) in enumerate(_ARCS):
        incidence[tail, index], incidence[head, index] = 1.0, -1.0
    supply = np.zeros((len(_TRIPS), nodes))
    for index, (origin, destination, _) in enumerate(_TRIPS):
        supply[index, origin], supply[index, destination] = 1.0, -1.0
    weight = np.array([trip[2] for trip in _TRIPS])

    def price(x):
        return jnp.asarray(cost).at[tolled].add(x)

    return BilevelProblem(
        upper=lambda x, y: -jnp.sum(weight[:, None] * y[:, tolled] * x),
        lower=lambda x, y: jnp.sum(weight[:, None] * y * price(x)),
        equality=lambda x, y: (y @ incidence.T - supply)[:, 1:],
        x_set=Box(np.zeros(len(tolled)), 12.0),
        y_set=Box(np.zeros((len(_TRIPS), len(_ARCS))), 1.0),
        name="toll",
    )


def pricing() -> BilevelProblem:
    """Prices of two goods; each of four customers buys one, or nothing, and there is not enough of the first."""
    worth = np.random.default_rng(3).uniform(2.0, 10.0, size=(4, 2))
    stock = np.array([1.5, 4.0])
    return BilevelProblem(
        upper=lambda x, y: -jnp.sum(x * y),
        lower=lambda x, y: jnp.sum((x - worth) * y + 0.5 * _CURVATURE * y**2),
        inequality=lambda x, y: jnp.concatenate([jnp.sum(y, axis=1) - 1.0, jnp.sum(y, axis=0) - stock]),
        x_set=Box(np.zeros(2), 12.0),
        y_set=Box(np.zeros((4, 2)), 1.0),
        name="pricing",
    )


def _measured(run):
    """What ``run()`` returns, with CPU and wall seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    return run(), time.process_time() - cpu, time.perf_counter() - wall


def _line(name, results, cpu, wall, remark=""):
    values = [result.upper_value for result in results]
    converged, zero = sum(result.success for result in results), sum(abs(value) < 1e-6 for value in values)
    print(f"  {name:22}{cpu:9.2f}{wall:9.2f}{converged:11d}{zero:8d}{min(values):14.6f}  {remark}", flush=True)


def compare(problem, count, workers, seed=0):
    """One problem from ``count`` random starts, by the loop and by ``solve_many``."""
    points = [problem.x_set.unravel(problem.x_set.sample_flat(np.random.default_rng((seed, i)))) for i in range(count)]
    for x in points[:2]:
        solve(problem, x)  # compiles
    print(f"{problem.name}, {count} starts{'':10}{'CPU s':>8}{'wall s':>9}{'converged':>11}{'at 0':>8}{'best':>14}")
    loop, cpu, wall = _measured(lambda: [solve(problem, x) for x in points])
    _line("loop of solve", loop, cpu, wall)
    many, cpu_many, wall_many = _measured(lambda: solve_many(problem, points))
    counts = many.counts
    told = f"{counts['merged']} merged, {len(many.basins)} places"
    _line("solve_many", many.results, cpu_many, wall_many, told)
    print(f"  solve_many takes {cpu_many / cpu:.2f} of the loop's CPU time")
    if workers:
        spread, cpu, wall = _measured(lambda: solve_many(problem, points, executor=ProcessExecutor(workers)))
        _line(f"on {workers} processes", spread.results, cpu, wall, "CPU seconds of this process alone")
        same = all(np.array_equal(a.x, b.x) for a, b in zip(many.results, spread.results, strict=True))
        print(f"  the same results bit by bit: {same}")


def limited(problem, seconds, starts=200):
    """How long ``solve_many`` takes under a time limit, and what comes of it."""
    many, _, wall = _measured(lambda: solve_many(problem, starts=starts, time_limit=seconds))
    begun = sum(result.counts["evaluations"] > 0 for result in many.results)
    print(
        f"{problem.name}, {starts} starts, limit {seconds:g} s: ended after {wall:.2f} s "
        f"({many.seconds['compile']:.2f} s of it compilation), {begun} starts begun, "
        f"{sum(result.success for result in many.results)} converged, best {many.best.upper_value:.6f}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problem", nargs="+", choices=("toll", "pricing", "toy"), default=("toll", "pricing", "toy"))
    parser.add_argument("--starts", type=int, nargs="+", help="how many starts (default: as above)")
    parser.add_argument("--workers", type=int, default=0, help="worker processes of one more run (default none)")
    parser.add_argument("--limits", type=float, nargs="+", default=(), help="seconds, for 200 starts")
    options = parser.parse_args()
    cases = {"toll": (toll(), (16,)), "pricing": (pricing(), (8, 30)), "toy": (toy_problem(), (40,))}
    for name in options.problem:
        problem, counts = cases[name]
        for seconds in options.limits:
            limited(problem, seconds)
        if options.limits:
            continue
        for count in options.starts or counts:
            compare(problem, count, options.workers)


if __name__ == "__main__":
    main()
