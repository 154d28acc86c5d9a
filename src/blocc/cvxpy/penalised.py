"""The penalised problem: the leader's cone program and the followers' in one, with weights.

    minimise  s f(x, y) + w (g(x, y) - v(x))   over y feasible below, with the leader's constraints on y

The columns of the follower's variables are shared, so that f and g are canonicalised apart, once, and their weights are
mere numbers. A leader whose objective has prices in it meets a follower that is a pair of an answer z and multipliers
lambda: feasible each, with the gap of duality ``q'z + z'Pz + b'lambda`` in the place of ``g - v``, which is zero
exactly at a pair of solutions. Payments, prices times quantities, are a row each where strong duality writes them as
linear functions, and squares that a large gamma makes up for; other products are majorised around an anchor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from blocc._lib.arrays import Float, Int, NDArray
from blocc.cvxpy.assembly import SortedRows, Triplets
from blocc.cvxpy.cone_program import Block, ConeProgram, ConeSizes, Numbers
from blocc.cvxpy.payments import PaymentPlace, linear_part

Vector = Float[NDArray, " n"]


class PricePlace(NamedTuple):
    """Where a variable of the leader's that stands for multipliers has them."""

    follower: int
    rows: Block


class Part(NamedTuple):
    """Where one follower lies in the penalised problem."""

    answer: Block  #: columns of z
    prices: Block | None  #: columns of lambda, where the leader looks at any
    rows: Int[NDArray, " m"]
    dual_rows: Int[NDArray, " dual"]  #: of stationarity, then of lambda in the dual cone


class Weighted(NamedTuple):
    """One instance: weights of f and g, and the parameters of every program."""

    upper: float
    lower: float
    leader: Vector
    followers: tuple[Vector, ...]
    anchors: tuple[Anchor, ...] = ()  #: of every payment
    bend: Bend | None = None  #: in the place of a plain function


class Bend(NamedTuple):
    """A quadratic of the columns of the followers' variables."""

    slope: Vector
    matrix: sp.csr_array


class Anchor(NamedTuple):
    """Around what a product of prices and quantities is majorised."""

    prices: Vector
    quantity: Vector


def _dual_map(cones: ConeSizes) -> sp.csr_array:
    """The matrix D for which lambda is in the dual cone exactly where ``D lambda`` is in K, without the rows of zeros.

    All cones but two are their own duals. ``(u, v, w)`` is in the dual exponential cone where ``(u - v, -u, w)`` is in
    the exponential one, and a dual power cone is one in ``u / a`` and ``v / (1 - a)``.
    """
    own = sp.eye_array(sum(cones.kinds[1:4]), format="csr")
    turn = sp.csr_array(np.array([[1.0, -1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))
    blocks = [own, *[turn] * cones.exponential]
    blocks += [sp.csr_array(np.diag([1.0 / a, 1.0 / (1.0 - a), 1.0])) for a in cones.power]
    lower = sp.block_diag(blocks, format="csr")
    return sp.csr_array(sp.hstack([sp.csr_array((lower.shape[0], cones.zero)), lower]))


@dataclass
class Penalised:
    """The penalised problem of a leader and followers."""

    leader: ConeProgram
    followers: tuple[ConeProgram, ...]
    priced: dict[int, PricePlace] = field(default_factory=dict)  #: by the identity of the leader's variable
    payments: tuple[PaymentPlace, ...] = ()

    def __post_init__(self) -> None:
        priced = {one.follower for one in self.priced.values()} | {one.follower for one in self.payments}
        sizes = [self.leader.cones]
        for index, program in enumerate(self.followers):
            sizes.append(program.cones)
            dual = program.cones._replace(zero=program.n) if index in priced else ConeSizes(0, 0)
            sizes.append(dual)
        rows = SortedRows([*sizes, ConeSizes(len(self.payments), 0)])
        self._payment_rows = rows.rows[-1]
        self.cones, self._leader_rows = rows.cones, rows.rows[0]
        self.parts, at = [], 0
        for index, program in enumerate(self.followers):
            answer = Block(at, program.n)
            at += program.n
            prices = Block(at, program.m) if index in priced else None
            at += program.m if prices is not None else 0
            self.parts.append(Part(answer, prices, rows.rows[1 + 2 * index], rows.rows[2 + 2 * index]))
        self.n_below = at  #: columns of the followers' answers and prices, which come first
        self.leader_columns, self.n = self._share(at)
        self._dual_maps = [_dual_map(program.cones) for program in self.followers]

    @cached_property
    def seen_columns(self) -> Int[NDArray, " n"]:
        """Columns of the followers' variables, follower by follower, in the order of their identities."""
        blocks = [
            part.answer.start + np.arange(block.start, block.start + block.size)
            for part, program in zip(self.parts, self.followers, strict=True)
            for _, block in sorted(program.variables.items())
        ]
        return np.concatenate(blocks)

    def _share(self, at: int) -> tuple[Int[NDArray, " n"], int]:
        """Columns of the leader's variables: the followers' own, or new ones."""
        columns = np.full(self.leader.n, -1)
        for identity, block in self.leader.variables.items():
            columns[block.slice] = self._column(identity, block)
        new = columns < 0
        columns[new] = at + np.arange(new.sum())
        return columns, at + int(new.sum())

    def _column(self, identity: int, block: Block) -> Int[NDArray, " size"] | int:
        if identity in self.priced:
            one = self.priced[identity]
            prices = self.parts[one.follower].prices
            assert prices is not None
            return prices.start + one.rows.start + np.arange(block.size)
        for part, program in zip(self.parts, self.followers, strict=True):
            if identity in program.variables:
                return part.answer.start + program.variables[identity].start + np.arange(block.size)
        return -1

    def numbers(self, at: Weighted, *, squares: bool = True) -> Numbers:
        """The cone program at given weights and parameters, with or without what payments have of squares."""
        linear, offset, constant = np.zeros(self.n), np.zeros(sum(self.cones.kinds)), 0.0
        quadratic, matrix = Triplets(), Triplets()
        own = self.leader.at(at.leader)
        linear[self.leader_columns] += at.upper * own.linear
        offset[self._leader_rows] = own.offset
        constant += at.upper * own.constant
        quadratic.add(at.upper * own.quadratic, self.leader_columns, self.leader_columns)
        matrix.add(own.matrix, self._leader_rows, self.leader_columns)
        for part, program, theta, dual_map in zip(
            self.parts, self.followers, at.followers, self._dual_maps, strict=True
        ):
            one, columns = program.at(theta), np.arange(part.answer.start, part.answer.start + part.answer.size)
            linear[columns] += at.lower * one.linear
            offset[part.rows] = one.offset
            matrix.add(one.matrix, part.rows, columns)
            quadratic.add((1.0 if part.prices is None else 2.0) * at.lower * one.quadratic, columns, columns)
            if part.prices is None:
                constant += at.lower * one.constant
                continue
            prices = np.arange(part.prices.start, part.prices.start + part.prices.size)
            linear[prices] += at.lower * one.offset
            balance, dual = part.dual_rows[: program.n], part.dual_rows[program.n :]
            offset[balance] = one.linear
            matrix.add(one.quadratic, balance, columns)
            matrix.add(-one.matrix.T, balance, prices)
            matrix.add(dual_map, dual, prices)
        if at.bend is not None:
            linear[self.seen_columns] += at.upper * at.bend.slope
            quadratic.add(at.upper * at.bend.matrix, self.seen_columns, self.seen_columns)
        for index in range(len(self.payments)):
            self._settle(index, at, own, linear, quadratic if squares else Triplets(), matrix)
        m = len(offset)
        return Numbers(quadratic.matrix(self.n, self.n), linear, constant, matrix.matrix(m, self.n), offset)

    def _settle(
        self, index: int, at: Weighted, own: Numbers, linear: Vector, quadratic: Triplets, matrix: Triplets
    ) -> None:
        """Add a payment: a row that says what it is, and what is left of it to the objective."""
        payment = self.payments[index]
        prices, answer, quantity = self._columns_of(payment)
        here, total = self._payment_rows[[index]], self.leader_columns[[payment.total]]
        matrix.add(sp.csr_array([[1.0]]), here, total)
        weight = at.upper * payment.weight
        if payment.shares is None:
            anchor = at.anchors[index]
            size = _size_ratio(anchor)
            linear[prices[payment.rows.slice]] += weight * anchor.quantity - abs(weight) * anchor.prices / size
            linear[quantity] += weight * anchor.prices - abs(weight) * anchor.quantity * size
            count = len(quantity)
            for columns, factor in ((prices[payment.rows.slice], 1.0 / size), (quantity, size)):
                quadratic.add(sp.diags_array(np.full(count, abs(weight) * factor)), columns, columns)
            return
        follower = self.followers[payment.follower].at(at.followers[payment.follower])
        found = linear_part(payment, follower, own)
        matrix.add(sp.csr_array(-found.prices[None]), here, prices)
        matrix.add(sp.csr_array(-found.columns[None]), here, answer)
        shares = sp.diags_array(weight * payment.shares.columns)
        quadratic.add(shares @ follower.quadratic + follower.quadratic @ shares, answer, answer)

    def _columns_of(self, payment: PaymentPlace) -> tuple[Int[NDArray, " m"], Int[NDArray, " n"], Int[NDArray, " k"]]:
        """Columns of a follower's prices, of its answer, and of a payment's quantity."""
        part = self.parts[payment.follower]
        assert part.prices is not None
        prices = np.arange(part.prices.start, part.prices.start + part.prices.size)
        answer = np.arange(part.answer.start, part.answer.start + part.answer.size)
        return prices, answer, self.leader_columns[payment.quantity.slice]

    def paid_prices(self, payment: PaymentPlace) -> Int[NDArray, " k"]:
        """Columns of the prices at which a payment is made."""
        return self._columns_of(payment)[0][payment.rows.slice]

    def below(self, answers: Sequence[Vector], prices: Sequence[Vector]) -> Vector:
        """The followers' columns out of their answers and prices."""
        found = np.zeros(self.n_below)
        for part, z, own in zip(self.parts, answers, prices, strict=True):
            found[part.answer.slice] = z
            if part.prices is not None:
                found[part.prices.slice] = own
        return found

    @property
    def has_products(self) -> bool:
        """Whether a payment is majorised, so that one solution is not enough."""
        return any(one.shares is None for one in self.payments)

    def anchors(self, z: Vector) -> tuple[Anchor, ...]:
        """Prices and quantities of all payments at a point."""
        found = []
        for payment in self.payments:
            prices, _, quantity = self._columns_of(payment)
            found.append(Anchor(z[prices[payment.rows.slice]], z[quantity]))
        return tuple(found)

    def product_constant(self, at: Weighted) -> float:
        """What majorised payments have beside what depends on the columns."""
        found = 0.0
        for payment, anchor in zip(self.payments, at.anchors, strict=False):
            if payment.shares is None:
                weight, size = at.upper * payment.weight, _size_ratio(anchor)
                squares = anchor.prices @ anchor.prices / size + size * anchor.quantity @ anchor.quantity
                found += float(0.5 * abs(weight) * squares - weight * anchor.prices @ anchor.quantity)
        return found

    def is_bent(self, numbers: Numbers) -> bool:
        """Whether squares of payments outweigh gamma: the problem is not convex then."""
        return bool((numbers.quadratic.diagonal() < 0.0).any())

    def slopes(self, at: Weighted, z: Vector, prices: Vector) -> tuple[Vector, tuple[Vector, ...]]:
        """Derivatives of the optimal value in the leader's parameters and in each follower's."""
        upper = self.leader.slope(z[self.leader_columns], prices[self._leader_rows], at.upper)
        below = []
        for part, program in zip(self.parts, self.followers, strict=True):
            answer, own = z[part.answer.slice], prices[part.rows]
            if part.prices is None:
                below.append(program.slope(answer, own, at.lower))
                continue
            multipliers, pull = z[part.prices.slice], prices[part.dual_rows[: program.n]]
            found = program.slope_of_costs(np.append(at.lower * answer - pull, 0.0))
            found = found + program.quadratic.slope(at.lower * answer - pull, answer)
            found = found - program.constraint.slope(own, np.append(answer, 1.0))
            below.append(found + program.constraint.slope(multipliers, np.append(pull, at.lower)))
        for row, payment in zip(self._payment_rows, self.payments, strict=True):
            if payment.shares is not None:
                self._settled_slope(at, z, float(prices[row]), payment, upper, below)
        return upper, tuple(below)

    def _settled_slope(
        self, at: Weighted, z: Vector, pull: float, payment: PaymentPlace, upper: Vector, below: list[Vector]
    ) -> None:
        """Add the derivative of what strong duality wrote."""
        assert payment.shares is not None
        prices, answer, _ = self._columns_of(payment)
        program, shares = self.followers[payment.follower], payment.shares
        paid = np.zeros(self.leader.m)
        paid[payment.rule.slice] = -z[prices[payment.rows.slice]] / payment.unit
        upper += pull * self.leader.constraint.slope(paid, np.eye(1, self.leader.n + 1, self.leader.n)[0])
        last = np.eye(1, program.n + 1, program.n)[0]
        found = -program.constraint.slope(shares.rows * z[prices], last)
        found = found + program.slope_of_costs(np.append(shares.columns * z[answer], 0.0))
        squares = program.quadratic.slope(shares.columns * z[answer], z[answer])
        below[payment.follower] = below[payment.follower] + pull * found + at.upper * payment.weight * squares

    def has_prices(self, index: int) -> bool:
        """Whether the leader looks at multipliers of this follower."""
        return self.parts[index].prices is not None

    def answers(self, z: Vector) -> list[Vector]:
        """The columns of every follower's own answer."""
        return [z[part.answer.slice] for part in self.parts]

    def multipliers(self, z: Vector) -> list[Vector | None]:
        """The multipliers of every follower that is looked at for them."""
        return [None if part.prices is None else z[part.prices.slice] for part in self.parts]


def _size_ratio(anchor: Anchor) -> float:
    """Size of prices by size of quantities, to balance the squares that majorise their products."""
    prices, quantity = (1e-3 + float(np.max(np.abs(part), initial=0.0)) for part in anchor)
    return prices / quantity
