"""Prices times quantities: rewritten by strong duality where that makes them linear, otherwise a product.

At a pair of solutions every row has ``lambda_i (Az + b)_i = 0`` (every block of a curved cone as a whole), and every
column ``z_j (q + Pz - A'lambda)_j = 0``. So a product ``lambda'Ez`` with ``E = diag(a) A + A diag(c)`` is

    -(a b)'lambda + (c q)'z + (c z)'Pz,

which is linear for a linear program. The shares a and c are potentials on the graph whose nodes are rows and columns,
and whose edges are the entries of A; they exist where all cycles agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from scipy.sparse import csgraph

from blocc._lib.arrays import Float, Int, NDArray
from blocc.cvxpy.cone_program import Block, ConeProgram, Numbers
from blocc.cvxpy.expressions import PriceVariable, dual, shown
from blocc.cvxpy.scaling import row_blocks
from blocc.errors import ProblemError

Vector = Float[NDArray, " n"]
_SAME = 1e-9


class PaymentVariable(cp.Variable):  # type: ignore[misc]
    """A number that stands for the sum of prices times quantities."""

    def __init__(self, constraint: cp.Constraint, quantity: cp.Expression) -> None:
        self.constraint, self.quantity = constraint, quantity
        self.price = dual(constraint)
        super().__init__((), name=f"payment({shown(constraint)}, {shown(quantity)})")

    def settle(self) -> None:
        """Take the value that prices and quantities have."""
        self.save_value(np.sum(np.asarray(self.price.value) * np.asarray(self.quantity.value)))


def payment(constraint: cp.Constraint, quantity: cp.Expression | float) -> cp.Variable:
    """What is paid for ``quantity`` at the price of a follower's constraint: ``sum(dual * quantity)``.

    For the leader's objective and constraints, in CVXPY's signs: the price of ``supply == demand`` that a textbook
    calls positive may be negative here, as ``constraint.dual_value`` is. ``quantity`` is affine in the follower's
    variables, of the constraint's shape (or one number for all its rows). Where strong duality can, it writes the
    product as a linear one; otherwise it is majorised by convex functions, again and again.
    """
    price = dual(constraint)
    if not isinstance(price, cp.Variable):
        raise ProblemError(
            f"payment: {shown(constraint)} is a cone, whose prices have several parts; write the product of "
            "blocc.cvxpy.dual and a number, or give an equality or an inequality"
        )
    found = cp.Constant(quantity) if not isinstance(quantity, cp.Expression) else quantity
    if found.shape != price.shape:
        if found.size != 1:
            raise ProblemError(
                f"payment: the quantity {shown(found)} has the shape {found.shape}, the constraint {price.shape}; they "
                "must be the same, or the quantity one number"
            )
        found = cp.sum(found) * np.ones(price.shape)
    if not found.is_affine():
        raise ProblemError(f"payment: the quantity {shown(found)} must be affine in the follower's variables")
    if any(isinstance(one, (PriceVariable, PaymentVariable)) for one in found.variables()):
        raise ProblemError(f"payment: the quantity {shown(found)} has prices in it; quantities are of y and x")
    return PaymentVariable(constraint, found)


class Tied(NamedTuple):
    """A payment with a variable of the leader's that equals its quantity."""

    total: PaymentVariable
    quantity: cp.Variable
    rule: cp.Constraint


def tie(payments: Sequence[PaymentVariable]) -> list[Tied]:
    """Give every quantity a variable, so that the leader's cone program knows how it depends on parameters."""
    found = []
    for one in payments:
        quantity = cp.Variable(one.price.shape)
        found.append(Tied(one, quantity, quantity == one.quantity))
    return found


class Shares(NamedTuple):
    """The two diagonals that make a matrix of products out of A."""

    rows: Vector
    columns: Vector


class PaymentPlace(NamedTuple):
    """One payment in the penalised problem."""

    follower: int
    rows: Block  #: of the follower's constraint
    total: int  #: column in the leader's program
    quantity: Block  #: columns in the leader's program
    rule: Block  #: rows of the leader's program that say what the quantity is
    unit: Vector  #: the quantity's own factor in these rows
    shares: Shares | None  #: None: a product that stays one
    weight: float  #: the payment's own factor in the leader's objective


class Linear(NamedTuple):
    """A payment as a linear function of prices and of the follower's columns."""

    prices: Vector  #: factors of lambda
    columns: Vector  #: factors of z


def place(tied: Tied, leader: ConeProgram, followers: Sequence[ConeProgram]) -> PaymentPlace:
    """Where a payment lies, and how strong duality writes it."""
    homes = [index for index, one in enumerate(followers) if tied.total.constraint.id in one.constraints]
    if not homes:
        raise ProblemError(f"payment: no follower has the constraint {shown(tied.total.constraint)}")
    program = followers[homes[0]]
    rows, quantity = program.constraints[tied.total.constraint.id], leader.variables[tied.quantity.id]
    rule, total = leader.constraints[tied.rule.id], leader.variables[tied.total.id].start
    unit = _units(leader, rule, quantity)
    known = {identity for identity in program.variables if identity in leader.variables}
    matrix = _products(tied, leader, program, known, rows, rule, unit)
    shares = None if matrix is None else shares_of(program, matrix)
    if shares is not None and _curves(program, shares) and not _is_diagonal(program, shares):
        shares = None
    factors = leader.objective[[total]]
    found = PaymentPlace(homes[0], rows, total, quantity, rule, unit, shares, float(factors[0, -1]))
    alone = not (leader.constraint.columns == total).any() and not (leader.quadratic.columns == total).any()
    if (shares is None or _curves(program, shares)) and not (alone and factors[:, :-1].count_nonzero() == 0):
        raise ProblemError(
            f"{shown(tied.total)} cannot be written as a linear expression here, so it may only be a term of the "
            "leader's objective with a number before it, not of a constraint, inside of a function or times a parameter"
        )
    return found


def linear_part(one: PaymentPlace, follower: Numbers, leader: Numbers) -> Linear:
    """What strong duality writes, at given parameters."""
    assert one.shares is not None
    prices = -one.shares.rows * follower.offset
    prices[one.rows.slice] += -leader.offset[one.rule.slice] / one.unit
    return Linear(prices, one.shares.columns * follower.linear)


def _curves(program: ConeProgram, shares: Shares) -> bool:
    """Whether squares of the follower's columns are left over."""
    return bool((np.abs(shares.columns[program.quadratic.rows]) > _SAME).any())


def _is_diagonal(program: ConeProgram, shares: Shares) -> bool:
    """Whether only squares are left over, no products: a large gamma makes up for them."""
    rows, columns = program.quadratic.rows, program.quadratic.columns
    touched = (np.abs(shares.columns[rows]) > _SAME) | (np.abs(shares.columns[columns]) > _SAME)
    return bool((rows[touched] == columns[touched]).all())


def _units(leader: ConeProgram, rule: Block, quantity: Block) -> Vector:
    entries = leader.constraint
    own = (entries.rows >= rule.start) & (entries.rows < rule.start + rule.size)
    own &= entries.columns - quantity.start == entries.rows - rule.start
    found = np.zeros(rule.size)
    found[entries.rows[own] - rule.start] = np.asarray(entries.map[np.flatnonzero(own)][:, [-1]].todense()).ravel()
    return found


def _products(
    tied: Tied,
    leader: ConeProgram,
    program: ConeProgram,
    known: set[int],
    rows: Block,
    rule: Block,
    unit: Vector,
) -> sp.csr_array | None:
    """The matrix E over the follower's own rows and columns; None where it depends on x or on another follower."""
    if any(one.id not in known for one in tied.total.quantity.variables()):
        return None
    place_of = np.full(leader.n + 1, -1)
    for identity in known:
        place_of[leader.variables[identity].slice] = np.arange(program.n)[program.variables[identity].slice]
    entries = leader.constraint
    mine = (entries.rows >= rule.start) & (entries.rows < rule.start + rule.size) & (place_of[entries.columns] >= 0)
    picked = np.flatnonzero(mine)
    values = entries.map[picked]
    if picked.size and sp.csr_array(values[:, :-1]).count_nonzero():
        return None
    local = entries.rows[picked] - rule.start
    factors = -np.asarray(values[:, [-1]].todense()).ravel() / unit[local]
    where = (rows.start + local, place_of[entries.columns[picked]])
    return sp.csr_array((factors, where), shape=(program.m, program.n))


def shares_of(program: ConeProgram, matrix: sp.csr_array) -> Shares | None:
    """Diagonals a and c with ``E = diag(a) A + A diag(c)`` at all parameters, or None."""
    entries = program.constraint
    inside = (entries.columns < program.n) & (np.abs(entries.map).sum(axis=1) > 0.0)
    rows, columns = entries.rows[inside], entries.columns[inside]
    values = entries.map[np.flatnonzero(inside)]
    moving = np.asarray(np.abs(values[:, :-1]).sum(axis=1)).ravel() > 0.0
    wanted = np.asarray(matrix[rows, columns]).ravel()
    if np.count_nonzero(wanted) < matrix.count_nonzero() or (moving & (wanted != 0.0)).any():
        return None
    fixed = np.where(moving, 1.0, np.asarray(values[:, [-1]].todense()).ravel())
    blocks = row_blocks(program.cones)
    n_blocks = int(blocks[-1]) + 1 if len(blocks) else 0
    found = _potentials(blocks[rows], n_blocks + columns, wanted / fixed, n_blocks + program.n, n_blocks)
    if found is None:
        return None
    return Shares(found[:n_blocks][blocks], -found[n_blocks:])


def _potentials(
    tails: Int[NDArray, " edges"], heads: Int[NDArray, " edges"], steps: Vector, n: int, n_blocks: int
) -> Vector | None:
    """Numbers with ``number[tail] - number[head] = step`` on every edge, 0 for most columns; None if cycles differ."""
    graph = sp.csr_array((np.ones(len(tails)), (tails, heads)), shape=(n, n))
    _, component = csgraph.connected_components(graph, directed=False)
    known = dict(zip(zip(tails.tolist(), heads.tolist(), strict=True), steps.tolist(), strict=True))
    found = np.zeros(n)
    for one in np.unique(component[tails[steps != 0.0]]):
        members = np.flatnonzero(component == one)
        order, before = csgraph.breadth_first_order(graph, members[0], directed=False)
        for node in order[1:].tolist():
            parent = int(before[node])
            found[node] = (
                found[parent] - known[parent, node] if (parent, node) in known else found[parent] + known[node, parent]
            )
        columns = members[members >= n_blocks]
        levels, counts = np.unique(np.round(found[columns], 9), return_counts=True)
        found[members] -= levels[np.argmax(counts)]
    size = 1.0 + float(np.max(np.abs(steps), initial=0.0))
    return found if np.max(np.abs(found[tails] - found[heads] - steps), initial=0.0) <= _SAME * size else None
