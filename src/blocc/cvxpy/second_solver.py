"""A cone program once more, by a solver that no descent asks: HiGHS for quadratic programs, SCS for curved cones.

Both are given the program in its own units (``scaling.py``), so that their absolute limits are relative ones, and an
answer counts only where the residuals computed here are small.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from blocc._lib.arrays import Float, Int, NDArray
from blocc.cvxpy.cone_program import ConeSizes, Numbers

#: Iterations of HiGHS's active-set method for each row and column of a quadratic program. It changes a row at a time
#: and may cycle for ever: random programs take 2 of them at most, or 77 and more (``benchmarks/highs_iterations.py``).
_EACH = 10
#: What SCS is asked for, in the program's own units.
_SCS = {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iters": 200_000, "verbose": False}

Point = tuple[Float[NDArray, " n"], Float[NDArray, " m"]]  #: columns and multipliers


def second_point(numbers: Numbers, cones: ConeSizes) -> Point | None:
    """Columns and multipliers where the solver ends with some, however good they are."""
    return _by_highs(numbers, cones) if cones.is_linear else _by_scs(numbers, cones)


def _by_highs(numbers: Numbers, cones: ConeSizes) -> Point | None:
    found = highs(numbers, cones, _EACH * sum(numbers.matrix.shape))
    if found.getModelStatus().name != "kOptimal":
        return None
    solution = found.getSolution()
    return np.array(solution.col_value), np.array(solution.row_dual)


def highs(numbers: Numbers, cones: ConeSizes, most: int) -> Any:
    """HiGHS after it has run on a quadratic program, for so many iterations at most."""
    import highspy

    rows, (m, n) = sp.csc_array(numbers.matrix), numbers.matrix.shape
    lower = sp.csc_array(sp.tril(numbers.quadratic, format="csc"))
    model = highspy.HighsModel()
    lp, bent = model.lp_, model.hessian_
    lp.num_col_, lp.num_row_ = n, m
    lp.col_cost_ = numbers.linear
    lp.col_lower_, lp.col_upper_ = np.full(n, -np.inf), np.full(n, np.inf)
    lp.row_lower_ = -numbers.offset
    lp.row_upper_ = np.where(np.arange(m) < cones.zero, -numbers.offset, np.inf)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = rows.indptr, rows.indices, rows.data
    bent.dim_, bent.format_ = n, highspy.HessianFormat.kTriangular
    bent.start_, bent.index_, bent.value_ = lower.indptr, lower.indices, lower.data
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("qp_iteration_limit", most)
    solver.setOptionValue("threads", 1)
    solver.passModel(model)
    solver.run()
    return solver


def _by_scs(numbers: Numbers, cones: ConeSizes) -> Point | None:
    import scs

    order = _of_triangles(cones)
    data = {
        "P": sp.csc_matrix(sp.triu(numbers.quadratic, format="csc")),
        "A": sp.csc_matrix(-sp.csr_array(numbers.matrix)[order]),
        "b": numbers.offset[order],
        "c": numbers.linear,
    }
    sizes = {"z": cones.zero, "l": cones.nonnegative, "q": list(cones.second_order), "s": list(cones.semidefinite)}
    sizes |= {"ep": cones.exponential, "p": list(cones.power)}
    found = scs.SCS(data, sizes, **_SCS).solve()
    if found["info"]["status_val"] not in (1, 2):  # solved, or nearly
        return None
    prices = np.empty(len(order))
    prices[order] = found["y"]
    return np.asarray(found["x"]), prices


def _of_triangles(cones: ConeSizes) -> Int[NDArray, " m"]:
    """Rows in SCS's order: it takes the lower triangle of a semidefinite matrix, Clarabel the upper one, by columns."""
    before = cones.zero + cones.nonnegative + sum(cones.second_order)
    found = [np.arange(before)]
    for order in cones.semidefinite:
        columns, rows = np.tril_indices(order)
        place = np.zeros((order, order), dtype=np.int64)
        place[rows, columns] = before + np.arange(len(rows))
        found += [place[column, column:] for column in range(order)]
        before += len(rows)
    return np.concatenate([*found, np.arange(before, before + 3 * (cones.exponential + len(cones.power)))])
