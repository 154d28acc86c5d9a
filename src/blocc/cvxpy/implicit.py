"""A follower's response on one piece: to the last digit, with its derivative in the parameters.

    Pz + q - A'lambda = 0,    s = proj_K(s - lambda)   with   s = Az + b

are as many equations as unknowns. A *piece* says of every linear row whether it is free (its multiplier is zero) or
active (its slack is): the equations are smooth then, and a solver's answer is close enough for Newton's method. The
same matrix is that of the implicit function theorem. Where it is regular, the response on the piece is a function of
the parameters; where it is singular (a linear follower at a tie, a flat one) the piece has several answers as good.

The piece is the truth as long as its *rows* are positive: slacks of free rows, multipliers of active ones, and the
spectral values of ``s - lambda`` in second-order and semidefinite cones, whose signs say on which face they are. All
is done in units of the program's own (``scaling.py``).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from blocc._lib.arrays import Bool, Float, NDArray
from blocc.cvxpy.cone_program import ConeProgram, ConeSizes, Numbers, gathered
from blocc.cvxpy.cone_projection import project
from blocc.cvxpy.scaling import Scaled, scaled
from blocc.cvxpy.solvers import ConeAnswer, Outcome, measured, triangle_matrix

Vector = Float[NDArray, " n"]
Free = Bool[NDArray, " rows"]
_NEWTON = 12  #: steps at most: they converge quadratically, but where an exponential is tiny by a unit of its logarithm
#: Weight, relative to the rows, of what keeps columns and prices that are not unique from moving; on kinks.
_STEADY, _BETWEEN = 1e-14, 1e-6
#: Derivatives larger than this tell nothing; solutions larger than the pair by more are those of singular systems.
_WILD, _SINGULAR = 1e9, 1e7
#: Of the residuals of linear systems, relative to their sides; and of the conditions, relative to their terms.
_ACCURATE, _MET = 1e-7, 1e-9
#: Rows of a piece, in the program's own units, up to which they count as vanished: what a cone solver's step leaves.
VANISHED = 1e-7


class Pair(NamedTuple):
    """An answer and its multipliers that meet the equations of a piece to rounding, in the user's units."""

    z: Vector
    prices: Vector
    free: Free  #: of the linear rows that may be slack
    iterations: int = 0


class Rows(NamedTuple):
    """What must stay positive for the piece to be the truth, in the program's own units, and how it depends."""

    values: Vector
    by_slack: sp.csr_array  #: derivative in the user's ``s``
    by_prices: sp.csr_array  #: derivative in the user's multipliers
    linear: NDArray  #: the linear row each one stands for, -1 for those of curved cones


class _System(NamedTuple):
    """The equations at one pair, and their derivative."""

    left: Vector
    matrix: sp.csc_array
    turned: sp.csr_array  #: ``I - E`` with the derivative E of the projection


def polished(numbers: Numbers, cones: ConeSizes, found: Pair | ConeAnswer, free: Free | None = None) -> Pair | None:
    """Newton's method on the equations of a piece; None where it does not end at a solution.

    :param free: the piece; None: that of the answer itself
    """
    units = scaled(numbers, cones)
    z, prices = found.z / units.columns, found.prices / units.rows
    size, best = _sizes(units.numbers, z, prices), np.inf
    linear = slice(cones.zero, cones.zero + cones.nonnegative)
    for _ in range(_NEWTON):
        system = _equations(units.numbers, cones, z, prices, free)
        factors = None if system is None else _factorised(system.matrix, _STEADY)
        if system is None or factors is None:
            return None
        error = float(np.max(np.abs(system.left) / size, initial=0.0))
        step = _solved(factors, system.matrix, system.left)
        if step is None or error <= 1e-15 or error >= 0.5 * best:
            break
        best = error
        z, prices = z - step[: len(z)], prices - step[len(z) :]
    if not error <= _MET:
        return None
    if free is None:
        free = (units.numbers.matrix @ z + units.numbers.offset - prices)[linear] > 0.0
    return Pair(units.columns * z, units.rows * prices, free, found.iterations)


def sharpened(numbers: Numbers, cones: ConeSizes, found: ConeAnswer) -> ConeAnswer:
    """The answer alone, where that is better by its residuals; otherwise the solver's own."""
    pair = polished(numbers, cones, found)
    if pair is None:
        return found
    ended = measured(numbers, cones, found.outcome, pair.z, pair.prices, found.iterations)
    worst = lambda one: max(one.stationarity, one.feasibility, one.complementarity)  # noqa: E731
    return ended if worst(ended) < worst(found) else found


def is_unique(numbers: Numbers, cones: ConeSizes, found: ConeAnswer, usual: float) -> bool:
    """Whether no other answer and no other multipliers are as good: the equations are regular on all pieces around.

    :param usual: the size of the objective where it is no smaller than usual: at a tie it may vanish as a whole
    """
    units = scaled(numbers, cones)
    z, prices = found.z / units.columns, found.prices / units.rows
    w = units.numbers.matrix @ z + units.numbers.offset - prices
    if any(np.min(np.abs(spectrum), initial=np.inf) <= VANISHED for _, _, spectrum in _spectral(w, cones)):
        return False
    linear = w[cones.zero : cones.zero + cones.nonnegative]
    small = VANISHED * max(1.0, usual / units.objective)
    for side in (linear > VANISHED, linear > -small):
        system = _equations(units.numbers, cones, z, prices, side)
        if system is None or not _is_regular(system, _factorised(system.matrix, _STEADY), _largest(z, prices)):
            return False
    return True


def _largest(*parts: Vector) -> float:
    return 1.0 + max(float(np.max(np.abs(part), initial=0.0)) for part in parts)


def _is_regular(system: _System, factors: Any, size: float) -> bool:
    """Whether a system has solutions of the size of the pair it belongs to, and not of the inverse of ``_STEADY``."""
    side = np.random.default_rng(0).standard_normal(system.matrix.shape[0])
    found = _solved(factors, system.matrix, side)
    return found is not None and float(np.max(np.abs(found), initial=0.0)) <= _SINGULAR * size


class Response:
    """A follower's response at one theta, on one piece."""

    def __init__(self, program: ConeProgram, theta: Vector, pair: Pair) -> None:
        self.program, self.pair = program, pair
        numbers = program.at(theta)
        self.answer = measured(numbers, program.cones, Outcome.SOLVED, pair.z, pair.prices, pair.iterations)
        self.units: Scaled = scaled(numbers, program.cones)
        z, prices = pair.z / self.units.columns, pair.prices / self.units.rows
        system = _equations(self.units.numbers, program.cones, z, prices, pair.free)
        self.is_smooth = system is not None
        if system is not None:
            self._system, self._factors = system, _factorised(system.matrix, _STEADY)
        self._w = self.units.numbers.matrix @ z + self.units.numbers.offset - prices

    @cached_property
    def is_regular(self) -> bool:
        """Whether the piece has one answer at every theta nearby."""
        z, prices = self.pair.z / self.units.columns, self.pair.prices / self.units.rows
        return self.is_smooth and _is_regular(self._system, self._factors, _largest(z, prices))

    def moved(self, sides: Float[NDArray, "rows k"]) -> Float[NDArray, "rows k"] | None:
        """How answer and prices (one below the other) move: solutions for sides of :meth:`sides`."""
        found = _solved(self._factors, self._system.matrix, -sides)
        found = found if found is not None else self._between(-sides)
        return None if found is None else self._stretch[:, None] * found

    def pulled(self, answer: Vector, prices: Vector) -> Vector | None:
        """The derivative in theta of a function whose derivatives in answer and prices are given."""
        if self._factors is None:
            return None
        side = self._stretch * np.concatenate([answer, prices])
        force = _solved(self._factors, self._system.matrix, side, turned=True)
        force = force if force is not None else self._between(side, turned=True)
        return None if force is None else np.asarray(-self.sides.T @ force)

    @property
    def _stretch(self) -> Vector:
        return np.concatenate([self.units.columns, self.units.rows])

    @property
    def matrix(self) -> sp.csc_array:
        """Derivatives of the equations in answer and prices of the user's units."""
        return sp.csc_array(self._system.matrix @ sp.diags_array(1.0 / self._stretch))

    def _between(self, side: NDArray, *, turned: bool = False) -> NDArray | None:
        """Where the piece is singular: the derivative of the answer that moves least."""
        factors = _factorised(self._system.matrix, _BETWEEN)
        found = None if factors is None else factors.solve(side, "T" if turned else "N")
        largest = _WILD * (1.0 + float(np.max(np.abs(side), initial=0.0)))
        return found if found is not None and float(np.max(np.abs(found), initial=0.0)) <= largest else None

    @property
    def sides(self) -> sp.csr_array:
        """Derivatives of the equations in theta."""
        program, z, prices = self.program, self.answer.z, self.answer.prices
        above = program.force_sides(z, prices)
        below = self._system.turned @ (sp.diags_array(self.units.slacks) @ self.slack_sides)
        return sp.csr_array(sp.vstack([sp.diags_array(self.units.forces) @ above, below]))

    @property
    def slack_sides(self) -> sp.csr_array:
        """Derivatives of the user's slacks in theta, the answer held."""
        program, rows = self.program, self.program.constraint
        return gathered(rows.rows, np.append(self.answer.z, 1.0)[rows.columns], rows.map, program.m)

    @cached_property
    def rows(self) -> Rows:
        """The rows of the piece."""
        cones = self.program.cones
        at, free = cones.zero, self.pair.free
        linear = np.arange(at, at + cones.nonnegative)
        sign = np.where(free, 1.0, -1.0)
        values, blocks, names = [sign * self._w[linear]], [(linear, sign)], [np.arange(cones.nonnegative)]
        data = [sp.csr_array((s, (np.arange(len(r)), r)), shape=(len(r), len(self._w))) for r, s in blocks]
        for place, normals, spectrum in _spectral(self._w, cones):
            signs = np.where(spectrum > 0.0, 1.0, -1.0)
            values.append(signs * spectrum)
            wide = sp.coo_array(signs[:, None] * normals)
            shape = (len(spectrum), len(self._w))
            data.append(sp.csr_array((wide.data, (wide.coords[0], wide.coords[1] + place)), shape=shape))
            names.append(np.full(len(spectrum), -1))
        normals = sp.csr_array(sp.vstack(data))
        by_slack = sp.csr_array(normals @ sp.diags_array(self.units.slacks))
        by_prices = sp.csr_array(-normals @ sp.diags_array(1.0 / self.units.rows))
        return Rows(np.concatenate(values), by_slack, by_prices, np.concatenate(names))


def _spectral(w: Vector, cones: ConeSizes) -> list[tuple[int, NDArray, Vector]]:
    """Spectral values of every second-order and semidefinite block, with their derivatives and the block's place."""
    found, at = [], cones.zero + cones.nonnegative
    for size in cones.second_order:
        rest = w[at + 1 : at + size]
        length = float(np.linalg.norm(rest))
        unit = rest / length if length > 0.0 else np.zeros(size - 1)
        normals = np.stack([np.append(1.0, unit), np.append(1.0, -unit)])
        found.append((at, normals, np.array([w[at] + length, w[at] - length])))
        at += size
    for order in cones.semidefinite:
        size = order * (order + 1) // 2
        values, vectors = np.linalg.eigh(triangle_matrix(w[at : at + size], order))
        columns, rows = np.tril_indices(order)
        stretch = np.where(rows == columns, 1.0, np.sqrt(2.0))
        found.append((at, (stretch[:, None] * vectors[rows] * vectors[columns]).T, values))
        at += size
    return found


def _sizes(numbers: Numbers, z: Vector, prices: Vector) -> Vector:
    forces = _largest(numbers.linear, numbers.quadratic @ z, numbers.matrix.T @ prices)
    lengths = _largest(numbers.offset, numbers.matrix @ z, prices)
    return np.concatenate([np.full(len(z), forces), np.full(len(prices), lengths)])


def _equations(numbers: Numbers, cones: ConeSizes, z: Vector, prices: Vector, free: Free | None) -> _System | None:
    slack = numbers.matrix @ z + numbers.offset
    found = project(slack - prices, cones, slack, free)
    if found is None:
        return None
    turned = sp.csr_array(sp.eye_array(len(prices)) - found.slope)
    left = np.concatenate([numbers.quadratic @ z + numbers.linear - numbers.matrix.T @ prices, slack - found.point])
    blocks = [[numbers.quadratic, -numbers.matrix.T], [turned @ numbers.matrix, found.slope]]
    return _System(left, sp.csc_array(sp.block_array(blocks)), turned)


def _factorised(matrix: sp.csc_array, share: float) -> Any:
    """Factors of the matrix with a little on its diagonal, or None."""
    import scipy.sparse.linalg

    weight = share * (1.0 + float(np.max(np.abs(matrix.data), initial=0.0)))
    steady = sp.diags_array(np.full(matrix.shape[0], weight))
    try:
        return scipy.sparse.linalg.splu(sp.csc_matrix(matrix + steady))
    except RuntimeError:  # exactly singular
        return None


def _solved(factors: Any, matrix: sp.csc_array, side: NDArray, *, turned: bool = False) -> NDArray | None:
    """A solution of the system without the little on its diagonal, by refinement; None where it has none."""
    if factors is None:
        return None
    system, kind = (matrix.T, "T") if turned else (matrix, "N")
    found = factors.solve(side, kind)
    for _ in range(3):
        found = found + factors.solve(side - system @ found, kind)
    if not np.isfinite(found).all():
        return None
    left = float(np.max(np.abs(side - system @ found), initial=0.0))
    return found if left <= _ACCURATE * (float(np.max(np.abs(side), initial=0.0)) or 1.0) else None
