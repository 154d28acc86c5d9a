"""A follower's answer to the last digit, and its derivative in the parameters, by the conditions of an optimum.

    Pz + q - A'lambda = 0,    s = proj_K(s - lambda)   with   s = Az + b

are as many equations as unknowns, and piecewise smooth. A cone solver's answer is close enough for Newton's method,
and the same matrix is that of the implicit function theorem.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from blocc._lib.arrays import Float, NDArray
from blocc.cvxpy.cone_program import ConeProgram, ConeSizes, Numbers
from blocc.cvxpy.cone_projection import project
from blocc.cvxpy.solvers import ConeAnswer, measured

Vector = Float[NDArray, " n"]
_NEWTON = 4  #: steps at most
#: Weight, relative to the rows, of what keeps columns and prices that are not unique from moving; on kinks.
_STEADY, _BETWEEN = 1e-11, 1e-6
#: Derivatives larger than this tell nothing.
_WILD = 1e9
#: Of the residuals of linear systems, relative to their sides; and of the conditions, relative to their terms.
_ACCURATE, _MET = 1e-7, 1e-9


class _System(NamedTuple):
    """The conditions at one pair, and their derivative."""

    left: Vector
    matrix: sp.csc_array
    turned: sp.csr_array  #: ``I - E`` with the derivative E of the projection


class ExactAnswer:
    """An answer at which the conditions of an optimum hold to rounding, with their derivative factorised."""

    def __init__(self, program: ConeProgram, answer: ConeAnswer, system: _System, factors: Any) -> None:
        self.program, self.answer, self._system, self._factors = program, answer, system, factors

    def moved(self, sides: Float[NDArray, "rows k"]) -> Float[NDArray, "rows k"] | None:
        """How answer and prices (one below the other) move: solutions for sides of :meth:`sides`."""
        found = _solved(self._factors, self._system.matrix, -sides)
        return found if found is not None else self._between(-sides)

    def pulled(self, answer: Vector, prices: Vector) -> Vector | None:
        """The derivative in theta of a function whose derivatives in answer and prices are given."""
        side = np.concatenate([answer, prices])
        force = _solved(self._factors, self._system.matrix, side, turned=True)
        force = force if force is not None else self._between(side, turned=True)
        return None if force is None else np.asarray(-self.sides.T @ force)

    def _between(self, side: NDArray, *, turned: bool = False) -> NDArray | None:
        """On a kink, where more rows hold the answer than can: a derivative between those on its sides."""
        factors = _factorised(self._system.matrix, _BETWEEN)
        found = None if factors is None else factors.solve(side, "T" if turned else "N")
        largest = _WILD * (1.0 + float(np.max(np.abs(side), initial=0.0)))
        return found if found is not None and float(np.max(np.abs(found), initial=0.0)) <= largest else None

    @property
    def sides(self) -> sp.csr_array:
        """Derivatives of the conditions in theta."""
        program, z, prices = self.program, self.answer.z, self.answer.prices
        bent, rows = program.quadratic, program.constraint
        inside = np.flatnonzero(rows.columns < program.n)
        above = gathered(bent.rows, z[bent.columns], bent.map, program.n)
        above = above + sp.csr_array(program.objective)[: program.n]
        above = above - gathered(rows.columns[inside], prices[rows.rows[inside]], rows.map[inside], program.n)
        below = gathered(rows.rows, np.append(z, 1.0)[rows.columns], rows.map, program.m)
        return sp.csr_array(sp.vstack([above, self._system.turned @ below]))


def exact_answer(program: ConeProgram, theta: Vector, found: ConeAnswer) -> ExactAnswer | None:
    """Newton's method from a solver's answer; None where the conditions have no regular solution near it."""
    ended = _newton(program.at(theta), program.cones, found)
    return None if ended is None else ExactAnswer(program, *ended)


def sharpened(numbers: Numbers, cones: ConeSizes, found: ConeAnswer) -> ConeAnswer:
    """The answer alone, where that is better by its residuals; otherwise the solver's own."""
    ended = _newton(numbers, cones, found)
    if ended is None:
        return found
    worst = lambda one: max(one.stationarity, one.feasibility, one.complementarity)  # noqa: E731
    return ended[0] if worst(ended[0]) < worst(found) else found


def _newton(numbers: Numbers, cones: ConeSizes, found: ConeAnswer) -> tuple[ConeAnswer, _System, Any] | None:
    z, prices, n = found.z.copy(), found.prices.copy(), len(found.z)
    size = _sizes(numbers, z, prices)
    best = np.inf
    for _ in range(_NEWTON):
        system = _conditions(numbers, cones, z, prices)
        if system is None:
            return None
        factors = _factorised(system.matrix, _STEADY)
        if factors is None:
            return None
        error = float(np.max(np.abs(system.left) / size, initial=0.0))
        step = _solved(factors, system.matrix, system.left)
        if step is None or error <= 1e-15 or error >= 0.5 * best:
            break
        best = error
        z, prices = z - step[:n], prices - step[n:]
    if system is None or not error <= _MET:
        return None
    return measured(numbers, cones, found.outcome, z, prices, found.iterations), system, factors


def _sizes(numbers: Numbers, z: Vector, prices: Vector) -> Vector:
    largest = lambda *parts: 1.0 + max(float(np.max(np.abs(part), initial=0.0)) for part in parts)  # noqa: E731
    forces = largest(numbers.linear, numbers.quadratic @ z, numbers.matrix.T @ prices)
    lengths = largest(numbers.offset, numbers.matrix @ z, prices)
    return np.concatenate([np.full(len(z), forces), np.full(len(prices), lengths)])


def _conditions(numbers: Numbers, cones: ConeSizes, z: Vector, prices: Vector) -> _System | None:
    slack = numbers.matrix @ z + numbers.offset
    found = project(slack - prices, cones, slack)
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
    system, kind = (matrix.T, "T") if turned else (matrix, "N")
    found = factors.solve(side, kind)
    for _ in range(3):
        found = found + factors.solve(side - system @ found, kind)
    if not np.isfinite(found).all():
        return None
    left = float(np.max(np.abs(side - system @ found), initial=0.0))
    return found if left <= _ACCURATE * (float(np.max(np.abs(side), initial=0.0)) or 1.0) else None


def gathered(places: NDArray, factors: Vector, maps: sp.csr_array, n: int) -> sp.csr_array:
    """Rows of a map, times factors, added up by place."""
    count = len(places)
    adding = sp.csr_array((factors, (places, np.arange(count))), shape=(n, count))
    return sp.csr_array(adding @ maps)
