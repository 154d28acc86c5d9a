"""What one iteration of every method costs, as the lower level grows: seconds, and the fitted exponents.

    python benchmarks/methods.py [--most 10000] [--out FOLDER]

Two sweeps of a lower level with dense affine constraints: d_y variables with 10 constraints, and d_c constraints on 10
variables (equalities, fewer than variables, for AiPOD). Numbers are fixed; what is measured is the cost of a step, not
how many steps are needed. A method stops where its dense matrices no longer fit, or where a step takes more than two
seconds. blocc's row is one evaluation of F_gamma with its gradient, which a step of Algorithm 1 needs.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc import BilevelProblem, Reals
from blocc.inner.auto import choose_oracles
from blocc.methods.gam import active_gradient
from blocc.methods.registry import NAMES, make_method
from blocc.outer.function import PenaltyFunction
from blocc.outer.monitor import Monitor
from blocc.penalty import no_leader
from blocc.precision import double_precision

#: Sizes beyond which a method's dense matrices are hopeless on a small machine.
DENSE = {"gam": 3_000, "aipod": 1_000, "e-aipod": 1_000, "lv-hba": 1_000}
PATIENCE = 2.0


def family(d_y: int, d_c: int, equality: bool) -> BilevelProblem:
    generator = np.random.default_rng(0)
    A = generator.standard_normal((d_c, d_y)) / np.sqrt(d_y)
    B = generator.standard_normal((d_c, 5))
    C = generator.standard_normal((d_y, 5)) / np.sqrt(5)
    coupled: dict[str, Any] = (
        {"equality": lambda x, y: A @ y - B @ x} if equality else {"inequality": lambda x, y: A @ y - B @ x - 1.0}
    )
    return BilevelProblem(
        upper=lambda x, y: 0.5 * jnp.sum((y - 1.0) ** 2) + 0.5 * jnp.sum(x**2),
        lower=lambda x, y: 0.5 * jnp.sum((y - C @ x) ** 2),
        x_set=Reals(5),
        y_set=Reals(d_y),
        **coupled,
    )


def per_call(function: Any, *arguments: Any) -> float:
    """Median seconds of a compiled call."""
    jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - begun)
        if sum(times) > PATIENCE:
            break
    return float(np.median(times))


def cost(name: str, d_y: int, d_c: int) -> float:
    """Seconds of one iteration."""
    problem = family(d_y, d_c, equality="aipod" in name)
    flat = problem.flat
    x, y = jnp.zeros(5), jnp.zeros(d_y)
    if name in ("blocc", "gam"):
        function = PenaltyFunction(flat, choose_oracles(problem, "auto"), problem.cache, Monitor(lambda point: point))
        leader = jax.device_get(no_leader(flat))
        places = itertools.cycle(0.5 * np.random.default_rng(1).standard_normal((7, 5)))  # a step away from each other
        evaluation = per_call(lambda: function(next(places), 10.0, leader, 1e-8).value)
        if name == "blocc":
            return evaluation
        gradient = jax.jit(lambda a, b, mu, active: active_gradient(flat, a, b, mu, active))
        prices, active = jnp.ones(d_c), jnp.arange(d_c) < min(d_c, d_y) // 2
        return evaluation / 2.0 + per_call(gradient, x, y, prices, active)  # an evaluation holds two inner solutions
    method = make_method(name, "paper")
    numbers = {key: jnp.asarray(value) for key, value in method.given.items()}
    state = method.start(flat, x, y)

    def several(state: Any) -> Any:
        return jax.lax.fori_loop(0, 10, lambda k, s: method.step(flat, numbers, s, k), state)

    return per_call(jax.jit(several), state) / 10.0


def sweep(axis: str, most: int) -> dict[str, list[tuple[int, float]]]:
    sizes = [size for size in (10, 30, 100, 300, 1_000, 3_000, 10_000) if size <= most]
    print(f"\n{axis} grows, the other is 10; milliseconds of one iteration")
    print(f"{'method':<10}" + "".join(f"{size:>10}" for size in sizes) + f"{'exponent':>10}")
    found: dict[str, list[tuple[int, float]]] = {}
    for name in NAMES:
        rows: list[tuple[int, float]] = []
        for size in sizes:
            if "aipod" in name and axis == "d_c":
                continue  # more equalities than variables have no answer
            d_y, d_c = (size, 10) if axis == "d_y" else (10, size)
            if "aipod" in name:
                d_c = 5
            if size > DENSE.get(name, most) or (rows and rows[-1][1] > PATIENCE):
                break
            rows.append((size, cost(name, d_y, d_c)))
        found[name] = rows
        large = [(size, seconds) for size, seconds in rows if size >= 100]
        slope = np.polyfit(*np.log(np.array(large)).T, 1)[0] if len(large) >= 2 else np.nan
        cells = "".join(f"{1e3 * seconds:>10.3g}" for _, seconds in rows) + " " * 10 * (len(sizes) - len(rows))
        print(f"{name:<10}{cells}{slope:>10.2f}", flush=True)
    return found


def draw(sweeps: dict[str, dict[str, list[tuple[int, float]]]], folder: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    figure, panels = plt.subplots(1, len(sweeps), figsize=(11, 4.2), sharey=True, layout="constrained")
    for panel, (axis, found) in zip(panels, sweeps.items(), strict=True):
        for place, (name, rows) in enumerate(found.items()):
            if rows:
                panel.loglog(*np.array(rows).T, marker="o", markersize=3.5, label=name, color=f"C{place}")
        panel.set_xlabel({"d_y": "lower-level variables", "d_c": "coupled constraints"}[axis])
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("seconds of one iteration")
    panels[0].legend(fontsize=8)
    figure.savefig(folder / "cost_per_iteration.png", dpi=150)
    print(f"\nwritten: {folder / 'cost_per_iteration.png'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=10_000)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with double_precision():
        sweeps = {axis: sweep(axis, arguments.most) for axis in ("d_y", "d_c")}
    if arguments.out:
        draw(sweeps, arguments.out)


if __name__ == "__main__":
    main()
