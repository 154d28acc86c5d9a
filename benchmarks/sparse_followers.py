"""Large followers in which every variable meets few others: seconds and memory, by oracle and by size.

Each cell runs in a process of its own. A cell solves the follower's problem from a cold start, then again from the
warm start at a nearby x, with the sparse interior point and with PDHG, the choice for such followers without it. With
``--solve`` it runs ``blocc.solve`` instead, where x tunes the scale of the follower's points and the width of rows.

    python benchmarks/sparse_followers.py [--sizes 2000 20000 100000] [--families banded block] [--limit 120] [--solve]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from blocc import BilevelProblem, Box, PrimalDualHybridGradient, Reals, SparseInteriorPoint, solve
from blocc._lib.compiled import compile_ahead
from blocc._lib.precision import double_precision
from blocc.lagrangian import weights

ORACLES = {"sparse-interior-point": SparseInteriorPoint(), "pdhg": PrimalDualHybridGradient()}


def banded(x, y):
    """Rotated boxes that overlap: sums and differences of neighbours are bounded."""
    difference, total = y[1:] - y[:-1], y[1:] + y[:-1]
    return jnp.concatenate([difference - x[1], -difference - x[1], total - 1.0, -total - 1.0])


def block(x, y):
    """Blocks of five with a bounded sum and a bounded length."""
    blocks = y.reshape(-1, 5)
    return jnp.concatenate([jnp.sum(blocks, axis=1) - x[1], jnp.sum(blocks**2, axis=1) - 4.0])


FAMILIES = {"banded": banded, "block": block}


def problem(family: str, size: int) -> BilevelProblem:
    """A follower near given points, with curvatures from 0.01 to 1; the leader wants other points."""
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


def follower_alone(family: str, size: int, name: str) -> dict[str, float | int]:
    """One cold and one warm solution."""
    flat, oracle = problem(family, size).flat, ORACLES[name]
    with double_precision():
        x, accuracy = jnp.ones(2), jnp.asarray(1e-9)
        function = lambda x, warm: oracle.solve(flat, x, weights(flat), warm, accuracy)  # noqa: E731
        compiled, compiling = compile_ahead(function, x, oracle.cold(flat))
        begun = time.perf_counter()
        cold = jax.block_until_ready(compiled(x, oracle.cold(flat)))
        between = time.perf_counter()
        warm = jax.block_until_ready(compiled(1.01 * x, cold.warm))
        ended = time.perf_counter()
    return {
        "compile": compiling,
        "cold": between - begun,
        "warm": ended - between,
        "iterations": int(cold.iterations),
        "code": max(int(cold.code), int(warm.code)),
        "residual": float(max(*cold.residuals, *warm.residuals)),
    }


def whole_run(family: str, size: int, name: str, limit: float) -> dict[str, float | int | str]:
    """One run of the leader's problem."""
    begun = time.perf_counter()
    inner = "auto" if name == "sparse-interior-point" else name
    result = solve(problem(family, size), np.array([1.0, 0.5]), inner=inner, progress=False, time_limit=limit)
    return {
        "seconds": time.perf_counter() - begun,
        "compile": result.seconds["compile"],
        "evaluations": result.counts["evaluations"],
        "status": result.status.value,
        "value": result.upper_value,
        "residual": max(result.certificate.stationarity, result.certificate.feasibility),
    }


def cell(family: str, size: int, name: str, limit: float, whole: bool) -> dict[str, float | int | str]:
    """The numbers of one process; only ``seconds`` where it was stopped."""
    arguments = [
        sys.executable,
        __file__,
        "--cell",
        family,
        str(size),
        name,
        str(limit),
        *(["--solve"] if whole else []),
    ]
    begun = time.perf_counter()
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=limit + 60.0, check=True)
    except subprocess.TimeoutExpired:
        return {"stopped after": time.perf_counter() - begun}
    found: dict[str, float | int | str] = json.loads(done.stdout.splitlines()[-1])
    return found


def _short(value: float | int | str) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def main() -> None:
    """Print one line for each cell, and the ratio of both oracles."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[2000, 20000, 100000])
    parser.add_argument("--families", nargs="+", default=list(FAMILIES))
    parser.add_argument("--limit", type=float, default=120.0)
    parser.add_argument("--solve", action="store_true")
    parser.add_argument("--cell", nargs=4)
    given = parser.parse_args()
    if given.cell:
        family, size, name, limit = given.cell
        if given.solve:
            found = whole_run(family, int(size), name, float(limit))
        else:
            found = dict(follower_alone(family, int(size), name))
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({**found, "MB": round(megabytes)}))
        return
    measure = "seconds" if given.solve else "cold"
    for family in given.families:
        for size in given.sizes:
            times = []
            for name in ORACLES:
                found = cell(family, size, name, given.limit, given.solve)
                times.append(float(found.get(measure, found.get("stopped after", np.nan))))
                shown = ", ".join(f"{key} {_short(value)}" for key, value in found.items())
                print(f"{family:7} {size:7} {name:22} {shown}", flush=True)
            print(f"{family:7} {size:7} pdhg / sparse: {times[1] / times[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
