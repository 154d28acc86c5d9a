"""The penalised problem: the leader's cone program and the followers' in one, with weights.

    minimise  s f(x, y) + w (g(x, y) - v(x))   over y feasible below, with the leader's constraints on y

The columns of the follower's variables are shared, so that f and g are canonicalised apart, once, and their weights are
mere numbers. A leader whose objective has prices in it meets a follower that is a pair of an answer z and multipliers
lambda: feasible each, with the gap of duality ``q'z + z'Pz + b'lambda`` in the place of ``g - v``, which is zero
exactly at a pair of solutions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from blocc._lib.arrays import Float, Int, NDArray
from blocc.cvxpy.cone_program import Block, ConeProgram, ConeSizes, Numbers

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


class _Rows:
    """Rows of several programs, sorted by the kind of their cones."""

    def __init__(self, parts: list[ConeSizes]) -> None:
        self.cones = ConeSizes.joined(parts)
        begins = np.concatenate([[0], np.cumsum(self.cones.kinds)])[:-1]
        self.rows = []
        for part in parts:
            self.rows.append(
                np.concatenate([start + np.arange(size) for start, size in zip(begins, part.kinds, strict=True)])
            )
            begins = begins + np.asarray(part.kinds)


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

    def __post_init__(self) -> None:
        priced = {one.follower for one in self.priced.values()}
        sizes = [self.leader.cones]
        for index, program in enumerate(self.followers):
            sizes.append(program.cones)
            dual = program.cones._replace(zero=program.n) if index in priced else ConeSizes(0, 0)
            sizes.append(dual)
        rows = _Rows(sizes)
        self.cones, self._leader_rows = rows.cones, rows.rows[0]
        self.parts, at = [], 0
        for index, program in enumerate(self.followers):
            answer = Block(at, program.n)
            at += program.n
            prices = Block(at, program.m) if index in priced else None
            at += program.m if prices is not None else 0
            self.parts.append(Part(answer, prices, rows.rows[1 + 2 * index], rows.rows[2 + 2 * index]))
        self._leader_columns, self.n = self._share(at)
        self._dual_maps = [_dual_map(program.cones) for program in self.followers]

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

    def numbers(self, at: Weighted) -> Numbers:
        """The cone program at given weights and parameters."""
        linear, offset, constant = np.zeros(self.n), np.zeros(sum(self.cones.kinds)), 0.0
        quadratic, matrix = _Triplets(), _Triplets()
        own = self.leader.at(at.leader)
        linear[self._leader_columns] += at.upper * own.linear
        offset[self._leader_rows] = own.offset
        constant += at.upper * own.constant
        quadratic.add(at.upper * own.quadratic, self._leader_columns, self._leader_columns)
        matrix.add(own.matrix, self._leader_rows, self._leader_columns)
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
        m = len(offset)
        return Numbers(quadratic.matrix(self.n, self.n), linear, constant, matrix.matrix(m, self.n), offset)

    def slopes(self, at: Weighted, z: Vector, prices: Vector) -> tuple[Vector, tuple[Vector, ...]]:
        """Derivatives of the optimal value in the leader's parameters and in each follower's."""
        upper = self.leader.slope(z[self._leader_columns], prices[self._leader_rows], at.upper)
        below = []
        for part, program in zip(self.parts, self.followers, strict=True):
            answer, own = z[part.answer.slice], prices[part.rows]
            if part.prices is None:
                below.append(program.slope(answer, own, at.lower))
                continue
            multipliers, pull = z[part.prices.slice], prices[part.dual_rows[: program.n]]
            found = program.objective.T @ np.append(at.lower * answer - pull, 0.0)
            found = found + program.quadratic.slope(at.lower * answer - pull, answer)
            found = found - program.constraint.slope(own, np.append(answer, 1.0))
            below.append(found + program.constraint.slope(multipliers, np.append(pull, at.lower)))
        return upper, tuple(below)

    def has_prices(self, index: int) -> bool:
        """Whether the leader looks at multipliers of this follower."""
        return self.parts[index].prices is not None

    def answers(self, z: Vector) -> list[Vector]:
        """The columns of every follower's own answer."""
        return [z[part.answer.slice] for part in self.parts]

    def multipliers(self, z: Vector) -> list[Vector | None]:
        """The multipliers of every follower that is looked at for them."""
        return [None if part.prices is None else z[part.prices.slice] for part in self.parts]


class _Triplets:
    """A sparse matrix that is put together from blocks."""

    def __init__(self) -> None:
        self.data: list[Vector] = []
        self.rows: list[Int[NDArray, " n"]] = []
        self.columns: list[Int[NDArray, " n"]] = []

    def add(self, block: sp.sparray, rows: Int[NDArray, " m"], columns: Int[NDArray, " n"]) -> None:
        """A block at given rows and columns."""
        one = sp.coo_array(block)
        self.data.append(one.data)
        self.rows.append(rows[one.coords[0]])
        self.columns.append(columns[one.coords[1]])

    def matrix(self, n_rows: int, n_columns: int) -> sp.csc_array:
        """The matrix."""
        entries = (np.concatenate(self.rows), np.concatenate(self.columns))
        return sp.csc_array((np.concatenate(self.data), entries), shape=(n_rows, n_columns))
