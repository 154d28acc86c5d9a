"""What one iteration of every method costs, as the lower level grows: seconds, and the fitted exponents.

    python -m benchmarks.methods [--most 10000] [--out FOLDER]

Two sweeps of a lower level with dense affine constraints: d_y variables with 10 constraints, and d_c constraints on 10
variables (equalities, fewer than variables, for AiPOD). The measurement is that of ``python -m reproduction
complexity``; see ``reproduction.complexity_costs``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from reproduction.complexity import STUDIES, draw, run_sweep
from reproduction.complexity_costs import METHODS, SIZES

#: Published after the paper whose complexity table the figure shows.
SUCCESSORS = ("alt-pbgd", "pbgd-free", "log-barrier")


def print_sweep(axis: str, most: int) -> list[dict[str, Any]]:
    """Measure and print every method along one axis."""
    sizes = [size for size in SIZES if size <= most]
    print(f"\n{axis} grows, the other is 10; milliseconds of one iteration")
    print(f"{'method':<12}" + "".join(f"{size:>10}" for size in sizes) + f"{'exponent':>10}")
    rows = []
    for method in (*METHODS, *SUCCESSORS):
        row = {"method": method, **run_sweep(method, axis, sizes, seed=0)}
        rows.append(row)
        cells = "".join(f"{1e3 * seconds:>10.3g}" for seconds in row["step_seconds"])
        slope = "" if row["exponent"] is None else f"{row['exponent']:.2f}"
        print(f"{method:<12}{cells:<{10 * len(sizes)}}{slope:>10}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=10_000)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = {study: print_sweep(axis, arguments.most) for axis, study in STUDIES.items()}
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        compared = {study: [row for row in found if row["method"] in METHODS] for study, found in rows.items()}
        draw(compared)["cost"].savefig(arguments.out / "cost_per_iteration.png", dpi=150)
        print(f"\nwritten: {arguments.out / 'cost_per_iteration.png'}")


if __name__ == "__main__":
    main()
