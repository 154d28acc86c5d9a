"""A solve on a machine that has other work: how much slower is it beside two busy processes?

Ridge regression with 300 coefficients, its weight chosen on a validation set. Each figure is the least of several runs,
each in a process of its own, compilation excluded. A fair share of the cores is what slows a run down at least; threads
that wait for each other actively would slow it down thirty times.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

PROGRAM = """
import json, time
import jax.numpy as jnp
import numpy as np
from blocc import BilevelProblem, Box, Reals, solve
generator = np.random.default_rng(0)
n = {size}
train, other = generator.normal(size=(2 * n, n)), generator.normal(size=(2 * n, n))
planted = generator.normal(size=n)
labels, held_out = (part @ planted + 5.0 * generator.normal(size=2 * n) for part in (train, other))
problem = BilevelProblem(
    upper=lambda x, y: jnp.mean((other @ y - held_out) ** 2),
    lower=lambda x, y: jnp.mean((train @ y - labels) ** 2) + jnp.exp(x) * jnp.mean(y**2),
    x_set=Box(-8.0, 8.0),
    y_set=Reals(n),
)
begun, cpu = time.perf_counter(), time.process_time()
result = solve(problem, inner="interior-point", progress=False)
seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
print(json.dumps(dict(status=result.status.value, seconds=result.seconds["run"], wall=seconds, cpu=cpu)))
"""


def measure(size: int, repeats: int) -> dict[str, float]:
    """The fastest of several runs, each in its own process."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    runs = []
    for _ in range(repeats):
        call = [sys.executable, "-c", PROGRAM.format(size=size)]
        done = subprocess.run(call, capture_output=True, text=True, check=True, env=environment)
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    return min(runs, key=lambda run: float(run["seconds"]))


def main() -> None:
    """Measure alone, then beside busy processes, and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=300, help="coefficients of the follower")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--busy", type=int, default=2, help="processes that do nothing but compute")
    given = parser.parse_args()
    alone = measure(given.size, given.repeats)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: sum(range(1000))"]) for _ in range(given.busy)]
    try:
        beside = measure(given.size, given.repeats)
    finally:
        for process in busy:
            process.kill()
    for name, run in (("alone", alone), (f"beside {given.busy} busy processes", beside)):
        print(
            f"{name:<28} {run['seconds']:6.2f} s running, {run['wall']:6.2f} s in all, {run['cpu']:6.2f} s of CPU time"
        )
    print(f"ratio of running times       {beside['seconds'] / alone['seconds']:6.2f}   ({os.cpu_count()} cores)")


if __name__ == "__main__":
    main()
