"""Iterations of HiGHS's active-set method for each row and column of random quadratic programs.

    python benchmarks/highs_iterations.py

``cvxpy/second_solver.py`` stops it after ten for each: what it solves without cycling takes fewer.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from blocc.cvxpy.cone_program import ConeSizes, Numbers
from blocc.cvxpy.second_solver import highs

SIZES = ((2, 5), (5, 20), (20, 10), (20, 80), (60, 60), (60, 240), (150, 100))


def program(n: int, rows: int, seed: int, *, degenerate: bool) -> Numbers:
    """Bounds on n columns, and more rows; degenerate: half the curvature, and whole numbers in the rows."""
    random = np.random.default_rng(seed)
    factor = random.normal(size=(n // 2 if degenerate else n, n))
    matrix, offset = random.normal(size=(rows, n)), np.abs(random.normal(size=rows))
    if degenerate:
        matrix, offset = np.round(matrix), np.round(offset)
    whole = sp.csc_array(np.vstack([matrix, np.eye(n), -np.eye(n)]))
    sides = np.concatenate([offset, np.full(2 * n, 10.0)])
    return Numbers(sp.csc_array(factor.T @ factor / n), 3.0 * random.normal(size=n), 0.0, whole, sides)


def main() -> None:
    """A line for each size."""
    for degenerate in (False, True):
        for n, rows in SIZES:
            ratios, solved = [], 0
            for seed in range(12):
                numbers = program(n, rows, seed, degenerate=degenerate)
                m = len(numbers.offset)
                found = highs(numbers, ConeSizes(0, m), 100 * (m + n))
                ratios.append(found.getInfo().qp_iteration_count / (m + n))
                solved += found.getModelStatus().name == "kOptimal"
            kind = "degenerate" if degenerate else "regular"
            print(
                f"{kind:10} {n:4} columns {rows:4} rows: {solved} of 12 solved, {max(ratios):.2f} at most", flush=True
            )


if __name__ == "__main__":
    main()
