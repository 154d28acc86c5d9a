"""The core on whatever device JAX finds: numpy, scipy and jax suffice, so it also runs on a bare GPU machine.

Prints compile and run seconds of the first and of the second solve, and the error against the known value. Run it once
as it is and once with JAX_PLATFORMS=cpu to compare. Without an installed package: PYTHONPATH=src.
"""

from __future__ import annotations

import sys

import jax

from blocc import solve, solve_many
from blocc.problems.textbook import known_problem
from blocc.problems.toy import toy_problem

NAMES = ("shared_optimum", "water_filling_1000", "obstacle_control_1000", "budget_10000", "obstacle_control_10000")


def main() -> int:
    print(f"jax {jax.__version__} on {jax.devices()[0]}")
    print(f"{'problem':<24} {'status':<12} {'error':>8} {'compile':>9} {'first run':>10} {'second run':>11}")
    toy, failures = toy_problem(), 0
    first, second = (solve_many(toy, starts=200) for _ in range(2))
    solved = sum(result.success for result in second.results)
    failures += solved < 200
    print(
        f"{'toy, 200 starts':<24} {f'{solved} solved':<12} {'':>8} {first.seconds['compile']:>8.2f}s "
        f"{first.seconds['run']:>9.2f}s {second.seconds['run']:>10.2f}s"
    )
    for name in NAMES:
        known = known_problem(name)
        one, two = (solve(known.problem, known.starts[0]) for _ in range(2))
        error = abs(two.upper_value - known.upper_value) / (1.0 + abs(known.upper_value))
        failures += not two.success or error > 1e-4
        print(
            f"{name:<24} {two.status.value:<12} {error:>8.1e} {one.seconds['compile']:>8.2f}s "
            f"{one.seconds['run']:>9.2f}s {two.seconds['run']:>10.2f}s",
            flush=True,
        )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
