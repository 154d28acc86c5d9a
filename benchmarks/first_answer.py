"""From the start of a process to the first answer: importing, compiling and solving the small problem of the README.

Each figure is the median over fresh processes: without a cache of compiled programs, and with one that an earlier
process has filled (``blocc.cache_compilations``). The peer is the least that any program on JAX waits for: importing it
and compiling one multiplication. ``--against SRC`` measures another version of this package as well, turn by turn with
this one, and prints the ratio: SRC is the folder that holds its ``blocc``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

FLOOR = """
import json, resource, time
begun = time.perf_counter()
import jax
imported = time.perf_counter()
jax.block_until_ready(jax.jit(lambda x: 2.0 * x)(1.0))
ended = time.perf_counter()
spent = resource.getrusage(resource.RUSAGE_SELF)
cpu = spent.ru_utime + spent.ru_stime
print(json.dumps(dict(imported=imported - begun, solved=ended - imported, compile=0.0, programs=1, cpu=cpu)))
"""

ANSWER = """
import json, resource, sys, time
begun = time.perf_counter()
import jax.numpy as jnp
from blocc import BilevelProblem, Box, Reals, solve
imported = time.perf_counter()
import jax
if len(sys.argv) > 1:
    from blocc import cache_compilations
    cache_compilations(sys.argv[1])
programs = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **_: event.endswith("backend_compile_duration") and programs.append(seconds)
)
started = time.perf_counter()
problem = BilevelProblem(
    upper=lambda x, y: (x - 3) ** 2 + (y - 1) ** 2,
    lower=lambda x, y: (y - 2 * x) ** 2,
    inequality=lambda x, y: y - x,
    x_set=Box(0.0, 3.0),
    y_set=Reals(),
)
result = solve(problem, progress=False)
ended = time.perf_counter()
assert result.success and abs(float(result.x) - 2.0) < 1e-4
spent = resource.getrusage(resource.RUSAGE_SELF)
cpu = spent.ru_utime + spent.ru_stime
print(json.dumps(dict(imported=imported - begun, solved=ended - started, compile=result.seconds["compile"],
                      programs=len(programs), cpu=cpu)))
"""


def once(program: str, *arguments: str, source: str | None = None) -> dict[str, float]:
    """One fresh process."""
    mine = ("JAX_COMPILATION_CACHE_DIR", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in mine}
    if source is not None:
        environment["PYTHONPATH"] = source
    call = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(call, capture_output=True, text=True, check=True, env=environment)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(rows: dict[str, tuple[tuple[str, ...], str | None]], runs: int) -> dict[str, dict[str, float]]:
    """Medians over fresh processes, turn by turn; one more before them loads files and keeps what can be kept."""
    found = [{name: once(*call, source=source) for name, (call, source) in rows.items()} for _ in range(runs + 1)]
    return {
        name: {figure: statistics.median(turn[name][figure] for turn in found[1:]) for figure in found[0][name]}
        for name in rows
    }


def main() -> None:
    """Measure the peer, the first answer, and the first answer of a later process, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="processes for each figure")
    parser.add_argument("--against", help="folder with another version of the package")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows: dict[str, tuple[tuple[str, ...], str | None]] = {
            "JAX alone (peer)": ((FLOOR,), None),
            "blocc": ((ANSWER,), None),
            "blocc, compiled before": ((ANSWER, folder), None),
        }
        if given.against:
            rows["the other version"] = (ANSWER,), given.against
        found = measure(rows, given.runs)
    peer = found["JAX alone (peer)"]
    print(f"{'median seconds':<24} {'import':>7} {'solve':>7} {'compile':>8} {'programs':>8} {'CPU':>6} {'to peer':>8}")
    for name, row in found.items():
        ratio = _seconds(row) / _seconds(peer)
        print(
            f"{name:<24} {row['imported']:7.2f} {row['solved']:7.2f} {row['compile']:8.2f} {row['programs']:8.0f} "
            f"{row['cpu']:6.2f} {ratio:8.2f}"
        )
    if given.against:
        own, other = found["blocc"], found["the other version"]
        parts = ", ".join(f"{part} {own[part] / other[part]:.2f}" for part in ("imported", "solved"))
        print(f"of the other version's seconds: {parts}, together {_seconds(own) / _seconds(other):.2f}")


def _seconds(row: dict[str, float]) -> float:
    return row["imported"] + row["solved"]


if __name__ == "__main__":
    main()
