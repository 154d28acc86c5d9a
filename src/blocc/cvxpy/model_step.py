"""One step of the piecewise method: the leader's own convex program, with the followers moved along their pieces.

    minimise over x in X   f(x, y0 + J (x - x0)) + (x - x0)'B(x - x0) / 2   subject to   rows of the piece

f keeps its maxima, norms and constraints with a price. On pieces with several answers as good, these are unknowns of
the step beside x, held together by the equations of the piece: the leader has the choice (the optimistic view).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from blocc._lib.arrays import Float, Int, NDArray
from blocc.cvxpy.assembly import SortedRows, Triplets
from blocc.cvxpy.cone_program import ConeSizes, Numbers, gathered
from blocc.cvxpy.exact import View
from blocc.cvxpy.model import Model, Vector
from blocc.cvxpy.solvers import solve

Matrix = Float[NDArray, "n_x n_x"]
#: As fine as cone solvers get.
_TOLERANCE = 1e-11


class Step(NamedTuple):
    """A step, and what it promises; in the leader's units."""

    x: Vector
    change: Vector  #: of x, and of pairs on pieces with several answers
    gain: float
    slope: Vector  #: of f at the end of the step, by the model
    pull: Vector  #: derivative of f in the columns that the leader looks at, there
    prices: Vector  #: of the rows of the leader's program
    forces: Vector  #: multipliers of the rows of the piece


def step_from(
    model: Model, x: Vector, view: View, bend: Matrix, short: Matrix, held: Int[NDArray, " held"]
) -> Step | None:
    """The best step by the model, or None where its solver finds none.

    :param bend: curvature that f(x, y(x)) is believed to have beyond the model's own
    :param short: curvature that is added to it to keep the step short
    :param held: the rows of the piece that count
    """
    program, moves = model.leader_program, view.moves
    parts = program.parts(model.leader_theta(x), view.known, program.quantities(view.columns))
    numbers, paid = parts.numbers, len(program.payments)
    theirs, across, mine = program.curved(numbers)
    own = view.columns[program.own]
    entries, ones = program.program.constraint, np.append(view.columns, 1.0)
    direct = gathered(entries.rows, ones[entries.columns], entries.map, program.program.m)
    rows = parts.known @ moves
    rows[paid:, : model.n_x] += model.leader_columns_in_x(direct).toarray()[program.kept]
    offset = parts.known @ view.known
    offset[:paid] = 0.0
    offset = offset + parts.offset
    costs = program.program.slope(view.columns, np.zeros(program.program.m))
    flat = program.pull(parts, view.columns, np.zeros(len(offset))) - across.T @ own
    alone = moves.T @ view.plain
    alone[: model.n_x] += model.slope_in_x(costs, [None] * len(model.followers)) + view.own_slope
    linear, square = moves.T @ flat + alone, moves.T @ (theirs @ moves)
    square[: model.n_x, : model.n_x] += bend + short
    above, places = model.x_set.described()  # columns of the set's program are measured from x
    n_above, n_v = len(above.linear), moves.shape[1]
    at_v = np.concatenate([places, n_above + np.arange(n_v - model.n_x)])
    at_own = n_above + n_v - model.n_x + np.arange(len(own))
    n = n_above + n_v - model.n_x + len(own)
    piece = ConeSizes(view.equations.shape[0], len(held))
    sorted_rows = SortedRows([model.x_set.program.cones, parts.cones, piece])
    m = sum(sorted_rows.cones.kinds)
    quadratic, matrix, side, cost = Triplets(), Triplets(), np.zeros(m), np.zeros(n)
    for block, down, right in (
        (sp.csr_array(square), at_v, at_v),
        (sp.csr_array(across @ moves), at_own, at_v),
        (sp.csr_array((across @ moves).T), at_v, at_own),
        (mine, at_own, at_own),
    ):
        quadratic.add(block, down, right)
    matrix.add(above.matrix, sorted_rows.rows[0], np.arange(n_above))
    matrix.add(sp.csr_array(rows), sorted_rows.rows[1], at_v)
    matrix.add(parts.own, sorted_rows.rows[1], at_own)
    matrix.add(view.equations, sorted_rows.rows[2][: piece.zero], at_v)
    matrix.add(sp.csr_array(view.slopes[held]), sorted_rows.rows[2][piece.zero :], at_v)
    side[sorted_rows.rows[2][piece.zero :]] = np.maximum(view.rows[held], 0.0)
    base = np.zeros(n_above)
    base[places] = x
    side[sorted_rows.rows[0]], side[sorted_rows.rows[1]] = above.offset + above.matrix @ base, offset
    cost[at_v], cost[at_own] = linear, numbers.linear[program.own] + across @ view.known
    whole = Numbers(quadratic.matrix(n, n), cost, 0.0, matrix.matrix(m, n), side)
    found = solve(whole, sorted_rows.cones, _TOLERANCE, "clarabel")
    if not found.is_usable:
        return None
    change, prices = found.z[at_v], found.prices[sorted_rows.rows[1]]
    move = change[: model.n_x]
    columns = program.columns(view.known + moves @ change, found.z[at_own])
    value = lambda at: float(numbers.linear @ at + 0.5 * at @ (numbers.quadratic @ at))  # noqa: E731
    gain = value(view.columns) - value(columns) - float(alone @ change + 0.5 * move @ bend @ move)
    slope, forces = (bend + short) @ move, found.prices[sorted_rows.rows[2]][piece.zero :]
    return Step(
        model.project_x(x + move),
        change,
        gain,
        slope,
        program.pull(parts, columns, prices),
        program.all_prices(prices),
        forces,
    )
