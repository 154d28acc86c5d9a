"""A convex problem of CVXPY's as a cone program whose numbers are affine in the parameters.

CVXPY's canonical form, once made, holds sparse maps from the parameters theta to the numbers of

    minimise  q'z + z'Pz/2 + d   subject to   Az + b in K.

So a new theta costs a few sparse products, and so does the derivative of the optimal value in theta: with an answer z
and its multipliers lambda it is that of ``q'z + z'Pz/2 + d - lambda'(Az + b)`` along the same maps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from blocc._lib.arrays import Float, Int, NDArray
from blocc.errors import ProblemError


class Block(NamedTuple):
    """Where a variable, a parameter or a constraint lies in a vector."""

    start: int
    size: int

    @property
    def slice(self) -> slice:
        """The same as a slice."""
        return slice(self.start, self.start + self.size)


@dataclass(frozen=True)
class Entries:
    """The entries of a sparse matrix as an affine function of the parameters (and of the number one behind them)."""

    rows: Int[NDArray, " entries"]
    columns: Int[NDArray, " entries"]
    shape: tuple[int, int]
    map: sp.csr_array  #: from parameters to entries

    @classmethod
    def of(cls, tensor: Any, n_rows: int, n_columns: int, n_parameters: int) -> Entries:
        """From CVXPY's tensor, whose rows are the entries of the matrix column by column."""
        if tensor is None:
            none = np.zeros(0, dtype=np.int64)
            return cls(none, none, (n_rows, n_columns), sp.csr_array((0, n_parameters + 1)))
        # By rows, a tensor would have a pointer for every entry of the matrix, zeros included.
        entries = sp.coo_array(tensor)
        used, places = np.unique(entries.coords[0].astype(np.int64), return_inverse=True)
        shape = (len(used), n_parameters + 1)
        found = sp.csr_array((entries.data, (places, entries.coords[1])), shape=shape)
        return cls(used % n_rows, used // n_rows, (n_rows, n_columns), found)

    @cached_property
    def _starts(self) -> Int[NDArray, " columns"]:
        """Where each column begins among the entries, which are in their order."""
        return np.searchsorted(self.columns, np.arange(self.shape[1] + 1))

    def at(self, theta: Float[NDArray, " parameters"], columns: int | None = None) -> sp.csc_array:
        """The matrix at ``theta``, or its first columns, with the same pattern everywhere."""
        n = self.shape[1] if columns is None else columns
        last = self._starts[n]
        data = self.map @ theta
        return sp.csc_array((data[:last], self.rows[:last], self._starts[: n + 1]), shape=(self.shape[0], n))

    def last_column(self, theta: Float[NDArray, " parameters"]) -> Float[NDArray, " rows"]:
        """The last column at ``theta``, with its zeros."""
        begin, found = self._starts[-2], np.zeros(self.shape[0])
        found[self.rows[begin:]] = self._last @ theta
        return found

    @cached_property
    def _last(self) -> sp.csr_array:
        return self.map[self._starts[-2] :]

    def slope(self, left: Float[NDArray, " rows"], right: Float[NDArray, " columns"]) -> Float[NDArray, " parameters"]:
        """The derivative of ``left' M right`` in the parameters."""
        return np.asarray(self._turned @ (left[self.rows] * right[self.columns]))

    @cached_property
    def _turned(self) -> sp.csr_array:
        return sp.csr_array(self.map.T)


class Numbers(NamedTuple):
    """A cone program at one theta."""

    quadratic: sp.csc_array  #: P
    linear: Float[NDArray, " n"]  #: q
    constant: float  #: d
    matrix: sp.csc_array  #: A
    offset: Float[NDArray, " m"]  #: b


class ConeSizes(NamedTuple):
    """The cones of K in their order: rows of zeros, of nonnegative numbers, then blocks."""

    zero: int
    nonnegative: int
    second_order: tuple[int, ...] = ()
    semidefinite: tuple[int, ...] = ()  #: orders of the matrices, whose upper triangles are the rows
    exponential: int = 0
    power: tuple[float, ...] = ()

    @property
    def is_linear(self) -> bool:
        """Whether there is no curved cone."""
        return not (self.second_order or self.semidefinite or self.exponential or self.power)

    @property
    def kinds(self) -> list[int]:
        """Numbers of rows of each kind, in their order."""
        triangles = sum(order * (order + 1) // 2 for order in self.semidefinite)
        curved = [sum(self.second_order), triangles, 3 * self.exponential, 3 * len(self.power)]
        return [self.zero, self.nonnegative, *curved]

    def some(self, wanted: NDArray) -> ConeSizes:
        """The cones of some of the blocks: rows of zeros and of nonnegative numbers one by one, then curved ones."""
        ends = np.cumsum([self.zero, self.nonnegative, *(len(one) for one in self[2:4]), self.exponential])
        zero, nonnegative, balls, matrices, exponential, power = np.split(wanted, ends)
        kept = lambda sizes, marks: tuple(one for one, mark in zip(sizes, marks, strict=True) if mark)  # noqa: E731
        curved = kept(self.second_order, balls), kept(self.semidefinite, matrices)
        return ConeSizes(
            int(zero.sum()), int(nonnegative.sum()), *curved, int(exponential.sum()), kept(self.power, power)
        )

    @classmethod
    def joined(cls, parts: list[ConeSizes]) -> ConeSizes:
        """The cones of several programs side by side."""
        return cls(*(sum(group[1:], start=group[0]) for group in zip(*parts, strict=True)))


@dataclass(frozen=True)
class ConeProgram:
    """A cone program over parameters."""

    quadratic: Entries
    objective: sp.csr_array  #: from parameters to (q, d)
    constraint: Entries  #: (A, b), b as the last column
    cones: ConeSizes
    variables: dict[int, Block]  #: by the identity of the user's variable; what CVXPY added has none
    parameters: dict[int, Block]
    constraints: dict[int, Block]  #: rows of the user's constraints, for linear cones
    cone_rows: dict[int, Block]  #: the same for second-order, semidefinite and exponential ones
    _known: dict[bytes, Numbers] = field(default_factory=dict, repr=False, compare=False)  #: at the last theta

    @property
    def n(self) -> int:
        """Number of columns."""
        return self.quadratic.shape[0]

    @property
    def m(self) -> int:
        """Number of rows."""
        return self.constraint.shape[0]

    @property
    def n_parameters(self) -> int:
        """Length of theta without the number one behind it."""
        return int(self.objective.shape[1]) - 1

    def theta(self, values: dict[int, Any]) -> Float[NDArray, " parameters"]:
        """The vector of parameters out of their values."""
        found = np.ones(self.n_parameters + 1)
        for identity, block in self.parameters.items():
            found[block.slice] = np.asarray(values[identity], dtype=np.float64).ravel(order="F")
        return found

    def at(self, theta: Float[NDArray, " parameters"]) -> Numbers:
        """The numbers at ``theta``."""
        key = theta.tobytes()
        if key not in self._known:  # an evaluation asks several times
            costs = self.objective @ theta
            matrix, offset = self.constraint.at(theta, self.n), self.constraint.last_column(theta)
            self._known.clear()
            self._known[key] = Numbers(self.quadratic.at(theta), costs[:-1], float(costs[-1]), matrix, offset)
        return self._known[key]

    def slope(
        self, z: Float[NDArray, " n"], prices: Float[NDArray, " m"], weight: float = 1.0
    ) -> Float[NDArray, " parameters"]:
        """The derivative of the Lagrangian ``weight (q'z + z'Pz/2 + d) - prices'(Az + b)`` in the parameters."""
        extended = np.append(z, 1.0)
        costs = self.slope_of_costs(extended) + 0.5 * self.quadratic.slope(z, z)
        return np.asarray(weight * costs - self.constraint.slope(prices, extended))

    def slope_of_costs(self, factors: Float[NDArray, " n_and_one"]) -> Float[NDArray, " parameters"]:
        """The derivative of ``factors'(q, d)`` in the parameters."""
        return np.asarray(self._turned @ factors)

    @cached_property
    def _turned(self) -> sp.csr_array:
        return sp.csr_array(self.objective.T)

    def force_sides(self, z: Float[NDArray, " n"], prices: Float[NDArray, " m"]) -> sp.csr_array:
        """The derivative of ``Pz + q - A'prices`` in the parameters."""
        bent, rows = self.quadratic, self.constraint
        inside = np.flatnonzero(rows.columns < self.n)
        found = sp.csr_array(self.objective)[: self.n] + gathered(bent.rows, z[bent.columns], bent.map, self.n)
        return found - gathered(rows.columns[inside], prices[rows.rows[inside]], rows.map[inside], self.n)


def canonical(objective: cp.Expression, constraints: list[cp.Constraint], what: str) -> ConeProgram:
    """The cone program of ``minimise objective subject to constraints``.

    :param what: the problem in the words of an error
    """
    problem = cp.Problem(cp.Minimize(objective), constraints)
    if not problem.variables():  # CVXPY wants at least one
        problem = cp.Problem(cp.Minimize(objective), [*constraints, cp.Variable() == 0])
    unset = [parameter for parameter in problem.parameters() if parameter.value is None]
    for parameter in unset:  # their numbers are not used, but CVXPY wants some
        parameter.value = parameter.project(np.ones(parameter.shape))
    try:
        data, _, inverse = problem.get_problem_data(cp.CLARABEL, ignore_dpp=False)
    except cp.error.SolverError as error:
        raise ProblemError(f"{what} cannot be written as a cone program: {error}") from error
    finally:
        for parameter in unset:
            parameter.value = None
    program = data["param_prob"]
    if program.cone_dims.pnd:
        raise ProblemError(f"{what} has power cones of more than three dimensions; write geometric means of two")
    return _converted(program, problem, inverse)


def _converted(program: Any, problem: cp.Problem, inverse: Any) -> ConeProgram:
    n, m, count = program.x.size, program.constr_size, program.total_param_size
    dims = program.cone_dims
    cones = ConeSizes(dims.zero, dims.nonneg, tuple(dims.soc), tuple(dims.psd), dims.exp, tuple(dims.p3d))
    parameters = {
        parameter.id: Block(program.param_id_to_col[parameter.id], parameter.size) for parameter in program.parameters
    }
    columns = {one.id: Block(program.var_id_to_col[one.id], one.size) for one in program.variables}
    # A variable with attributes (nonnegative, symmetric, ...) is another one in the cone program.
    lowered = {old: new.id for step in inverse if _lowers(step) for old, new in step[0].items()}
    variables = {one.id: columns[lowered.get(one.id, one.id)] for one in problem.variables()}
    return ConeProgram(
        Entries.of(program.P, n, n, count),
        sp.csr_array(program.q),
        Entries.of(program.A, m, n + 1, count),
        cones,
        variables,
        parameters,
        *_rows(program, problem, inverse),
    )


def _lowers(step: Any) -> bool:
    """Whether a step of CVXPY's on the way to the cone program replaced variables."""
    return isinstance(step, tuple) and len(step) == 3 and isinstance(step[0], dict)


def _rows(program: Any, problem: cp.Problem, inverse: Any) -> tuple[dict[int, Block], dict[int, Block]]:
    """The rows of the user's own constraints: equalities and inequalities, and cones; other kinds have none."""
    found: tuple[dict[int, Block], dict[int, Block]] = ({}, {})
    mine = {_renamed(one.id, inverse): one.id for one in problem.constraints}
    known, at = {kind.__name__: constraints for kind, constraints in program.constr_map.items()}, 0
    for place, kind in enumerate(("Zero", "NonNeg", "SOC", "SvecPSD", "ExpCone")):
        for constraint in known.get(kind, ()):
            if constraint.id in mine:
                found[int(place > 1)][mine[constraint.id]] = Block(at, constraint.size)
            at += constraint.size
    return found


def _renamed(identity: int, inverse: Any) -> int:
    """The number of a constraint at the end of CVXPY's reductions."""
    for step in inverse:
        names = step[2] if _lowers(step) else getattr(step, "cons_id_map", step if isinstance(step, dict) else {})
        after = names.get(identity, identity)
        identity = after if isinstance(after, int) else identity
    return identity


def gathered(places: NDArray, factors: Float[NDArray, " entries"], maps: sp.csr_array, n: int) -> sp.csr_array:
    """Rows of a map, times factors, added up by place."""
    count = len(places)
    adding = sp.csr_array((factors, (places, np.arange(count))), shape=(n, count))
    return sp.csr_array(adding @ maps)
