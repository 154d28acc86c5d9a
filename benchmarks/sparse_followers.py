"""Large followers in which every variable meets few others: seconds and memory, by oracle and by size.

Each cell is a process of its own. ``--what follower`` solves the follower's problem alone from a cold start, then again
from the warm start at a nearby x; ``--what solve`` is a whole run of ``blocc.solve``, judge included, in which x tunes
the scale of the follower's points and the width of rows. Both are measured with the sparse interior point (the choice
of ``inner="auto"``), with PDHG, which needs no matrices, and, up to ``DENSE`` variables, with the dense interior point.
Times are those of the processor, all cores together, so that other work on the machine does not count; of whole runs
compilation is included, and shown apart. Growth is the exponent b of a fit ``time = a * size ** b``.

``--against SRC`` measures another version of this package too: the folder that holds its ``blocc``.

    python benchmarks/sparse_followers.py [--what solve follower] [--sizes 400 2000 20000 100000]
        [--families banded block kinks] [--ways auto pdhg interior-point] [--limit 120] [--against SRC]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

WAYS = ("auto", "pdhg", "interior-point")
#: Most variables of a follower for the dense interior point.
DENSE = 500
START = np.array([1.0, 0.5])


def banded(x, y):
    """Rotated boxes that overlap: sums and differences of neighbours are bounded."""
    difference, total = y[1:] - y[:-1], y[1:] + y[:-1]
    return jnp.concatenate([difference - x[1], -difference - x[1], total - 1.0, -total - 1.0])


def block(x, y):
    """Blocks of five with a bounded sum and a bounded length."""
    blocks = y.reshape(-1, 5)
    return jnp.concatenate([jnp.sum(blocks, axis=1) - x[1], jnp.sum(blocks**2, axis=1) - 4.0])


def kinks(x, y):
    """The rotated boxes once more, by absolute values."""
    return jnp.concatenate([jnp.abs(y[1:] - y[:-1]) - x[1], jnp.abs(y[1:] + y[:-1]) - 1.0])


FAMILIES = {"banded": banded, "block": block, "kinks": kinks}


def problem(family: str, size: int) -> Any:
    """A follower near given points, with curvatures from 0.01 to 1; the leader wants other points."""
    from blocc import BilevelProblem, Box, Reals

    rng = np.random.default_rng(0)
    points, curvature = 3.0 * rng.normal(size=size), 10.0 ** rng.uniform(-2.0, 0.0, size)
    wanted = np.clip(0.2 * points, -0.5, 0.5)
    return BilevelProblem(
        upper=lambda x, y: jnp.mean((y - wanted) ** 2) + 0.1 * jnp.sum((x - 0.5) ** 2),
        lower=lambda x, y: 0.5 * jnp.sum(curvature * (y - points * x[0]) ** 2),
        inequality=FAMILIES[family],
        x_set=Box(0.1, 2.0, shape=2),
        y_set=Reals(size),
        name=family,
    )


def processor() -> float:
    """Seconds of the processor that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def follower_alone(family: str, size: int, way: str) -> dict[str, Any]:
    """One cold and one warm solution."""
    from blocc._lib.compiled import compile_ahead
    from blocc._lib.precision import double_precision
    from blocc.inner.choice import choose_oracles
    from blocc.lagrangian import weights

    made = problem(family, size)
    flat, oracle = made.flat, choose_oracles(made, way)[0]
    with double_precision():
        x, accuracy = jnp.asarray(START), jnp.asarray(1e-9)
        function = lambda x, warm: oracle.solve(flat, x, weights(flat), warm, accuracy)  # noqa: E731
        compiled, compiling = compile_ahead(function, x, oracle.cold(flat))
        begun = processor()
        cold = jax.block_until_ready(compiled(x, oracle.cold(flat)))
        between = processor()
        warm = jax.block_until_ready(compiled(1.01 * x, cold.warm))
        ended = processor()
    return {
        "compile": compiling,
        "cpu": between - begun,
        "warm": ended - between,
        "iterations": int(cold.iterations),
        "code": max(int(cold.code), int(warm.code)),
        "residual": float(max(*cold.residuals, *warm.residuals)),
    }


def whole_run(family: str, size: int, way: str, limit: float) -> dict[str, Any]:
    """One run of the leader's problem."""
    from blocc import solve

    made = problem(family, size)
    before, begun = processor(), time.perf_counter()
    result = solve(made, START, inner=way, progress=False, time_limit=limit)
    return {
        "cpu": processor() - before,
        "wall": time.perf_counter() - begun,
        "compile": result.seconds["compile"],
        "evaluations": result.counts["evaluations"],
        "status": result.status.value,
        "value": result.upper_value,
        "residual": max(result.certificate.stationarity, result.certificate.feasibility),
    }


def cell(what: str, family: str, size: int, way: str, limit: float, source: str | None = None) -> dict[str, Any]:
    """The numbers of one process; none but ``cpu``, at least, where it did not finish."""
    command = [sys.executable, __file__, "--cell", what, family, str(size), way, str(limit)]
    environment = os.environ if source is None else {**os.environ, "PYTHONPATH": source}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=2 * limit + 30.0, check=True, env=environment
        )
    except subprocess.TimeoutExpired:
        return {"cpu": limit, "status": "did not finish"}
    except subprocess.CalledProcessError as error:
        return {"cpu": np.nan, "status": error.stderr.splitlines()[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def growth(times: dict[int, float]) -> str:
    """The exponent of the fit over all sizes from 2,000 on."""
    sizes = [size for size in times if size >= 2000 and np.isfinite(times[size])]
    if len(sizes) < 2:
        return "-"
    return f"{np.polyfit(np.log(sizes), np.log([times[size] for size in sizes]), 1)[0]:.2f}"


def compare(what: str, family: str, given: argparse.Namespace) -> None:
    """One line for each way and size, the ratios of all ways to the first, and how times grow."""
    ways = {way: (way, None) for way in given.ways} | ({"before": ("auto", given.against)} if given.against else {})
    times: dict[str, dict[int, float]] = {way: {} for way in ways}
    for size in given.sizes:
        for label, (way, source) in ways.items():
            if way == "interior-point" and size > DENSE:
                continue
            found = cell(what, family, size, way, given.limit, source)
            # Work that grows with the size; what is compiled does not.
            times[label][size] = found["cpu"] - (found.get("compile", 0.0) if what == "solve" else 0.0)
            shown = ", ".join(f"{key} {_short(value)}" for key, value in found.items())
            print(f"{what:8} {family:6} {size:7} {label:14} {shown}", flush=True)
            if label != given.ways[0] and size in times[given.ways[0]]:
                ratio = times[label][size] / times[given.ways[0]][size]
                print(f"{'':24} {label} / {given.ways[0]}: {ratio:.1f} without compilation", flush=True)
    print(f"{what:8} {family:6} growth", ", ".join(f"{label} {growth(times[label])}" for label in ways), flush=True)


def _short(value: float | int | str) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def main() -> None:
    """Run all cells, or one of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--what", nargs="+", default=["solve", "follower"], choices=["solve", "follower"])
    parser.add_argument("--sizes", type=int, nargs="+", default=[400, 2000, 20000, 100000])
    parser.add_argument("--families", nargs="+", default=list(FAMILIES))
    parser.add_argument("--ways", nargs="+", default=list(WAYS))
    parser.add_argument("--limit", type=float, default=120.0)
    parser.add_argument("--against")
    parser.add_argument("--cell", nargs=5)
    given = parser.parse_args()
    if given.cell:
        what, family, size, way, limit = given.cell
        if what == "solve":
            found = whole_run(family, int(size), way, float(limit))
        else:
            found = follower_alone(family, int(size), way)
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({**found, "MB": round(megabytes)}))
        return
    for what in given.what:
        for family in given.families:
            if not (what == "follower" and family == "kinks"):  # no oracle is for kinks; whole runs unfold them
                compare(what, family, given)


if __name__ == "__main__":
    main()
