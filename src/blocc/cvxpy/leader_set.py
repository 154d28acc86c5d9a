"""The leader's set X: what CVXPY constraints on the leader's variables alone describe."""

from __future__ import annotations

from collections.abc import Sequence

import cvxpy as cp
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, Float, Int, NDArray
from blocc._lib.rounding import PLACED
from blocc.cvxpy.cone_program import Block, ConeProgram, Numbers, canonical
from blocc.cvxpy.elastic import least_violation
from blocc.cvxpy.implicit import sharpened
from blocc.cvxpy.solvers import solve
from blocc.errors import ProblemError
from blocc.sets import Box, ConvexSet

#: Attributes of a parameter that describe a matrix by fewer numbers than it has entries.
_REDUCED = ("symmetric", "diag", "PSD", "NSD", "hermitian", "complex", "imag", "sparsity", "boolean", "integer")


def as_variables(parameters: Sequence[cp.Parameter]) -> dict[int, cp.Variable]:
    """A free variable for each of the leader's parameters, for CVXPY's ``tree_copy``."""
    return {id(one): cp.Variable(one.shape, name=one.name()) for one in parameters}


def attribute_rules(parameter: cp.Parameter, variable: cp.Variable) -> list[cp.Constraint]:
    """What the attributes of a parameter say, as constraints on a variable in its place."""
    for name in _REDUCED:
        if parameter.attributes.get(name) is not None and parameter.attributes.get(name) is not False:
            raise ProblemError(
                f"the leader's variable {parameter.name()} has the attribute {name}; use a plain cp.Parameter and "
                "build the matrix from it"
            )
    rules: list[cp.Constraint] = []
    if parameter.attributes.get("nonneg") or parameter.attributes.get("pos"):
        rules.append(variable >= 0)
    if parameter.attributes.get("nonpos") or parameter.attributes.get("neg"):
        rules.append(variable <= 0)
    if parameter.attributes.get("bounds") is not None:
        for limit, sign in zip(parameter.attributes["bounds"], (1.0, -1.0), strict=True):
            limits = np.broadcast_to(np.asarray(limit, dtype=np.float64), parameter.shape)
            finite = np.isfinite(limits)
            if finite.all():
                rules.append(sign * variable >= sign * limits)
            elif finite.any():  # only entries that have a limit
                rules.append(sign * variable[finite] >= sign * limits[finite])
    return rules


class LeaderSet(ConvexSet):
    """Any set that CVXPY can describe; its projection is a cone program."""

    def __init__(self, parameters: Sequence[cp.Parameter], constraints: Sequence[cp.Constraint]) -> None:
        copies = as_variables(parameters)
        self.template = {one.name(): np.zeros(one.shape) for one in parameters}
        self.size = sum(one.size for one in parameters)
        flat = cp.hstack([cp.vec(copies[id(one)], order="C") for one in parameters])
        self._point = cp.Parameter(self.size)
        rules = [rule for one in parameters for rule in attribute_rules(one, copies[id(one)])]
        rules += [one.tree_copy(copies) for one in constraints]
        for given, rule in zip([None] * (len(rules) - len(constraints)) + list(constraints), rules, strict=True):
            if not rule.is_dcp():
                raise ProblemError(f"constraints: {given} is not convex in the leader's variables")
        everything = cp.Variable(self.size)
        self.program: ConeProgram = canonical(
            cp.sum_squares(everything) / 2 - self._point @ everything, [everything == flat, *rules], "the leader's set"
        )
        self._columns = self.program.variables[everything.id].slice
        self._bounds = self._find_bounds(
            [self.program.variables[copies[id(one)].id] for one in parameters], [one.shape for one in parameters]
        )

    def _find_bounds(self, blocks: list[Block], shapes: list[tuple[int, ...]]) -> tuple[np.ndarray, np.ndarray, bool]:
        """Bounds of single variables among the rows, and whether there is nothing else."""
        numbers = self.program.at(self.program.theta({self._point.id: np.zeros(self.size)}))
        low, high = np.full(self.size, -np.inf), np.full(self.size, np.inf)
        position = np.full(self.program.n, -1)
        at = 0
        for block, shape in zip(blocks, shapes, strict=True):
            position[block.slice] = at + np.arange(block.size).reshape(shape).ravel(order="F")
            at += block.size
        cones = self.program.cones
        is_box = cones.is_linear and cones.zero == self.size
        rows = numbers.matrix.tocsr()
        for row in range(cones.zero, cones.zero + cones.nonnegative):
            columns = rows.indices[rows.indptr[row] : rows.indptr[row + 1]]
            entries = rows.data[rows.indptr[row] : rows.indptr[row + 1]]
            columns, entries = columns[entries != 0.0], entries[entries != 0.0]
            if len(columns) != 1 or position[columns[0]] < 0:
                is_box = is_box and len(columns) == 0 and bool(numbers.offset[row] >= 0.0)
                continue
            index, bound = position[columns[0]], -numbers.offset[row] / entries[0]
            if entries[0] > 0.0:
                low[index] = max(low[index], bound)
            else:
                high[index] = min(high[index], bound)
        return low, high, is_box

    @property
    def is_box(self) -> bool:
        return self._bounds[2]

    def bounds_flat(self) -> tuple[np.ndarray, np.ndarray]:
        return self._bounds[:2]

    def sizes(self, x: Float[NDArray, " size"]) -> Float[NDArray, " size"]:
        """What each number varies over: its range where it has one, else the size of x."""
        low, high = self.bounds_flat()
        ranged = np.isfinite(high - low) & (high > low)
        return np.where(ranged, np.where(ranged, high - low, 1.0), 1.0 + float(np.max(np.abs(x), initial=0.0)))

    def nearest_flat(self, point: Float[NDArray, " size"]) -> Float[NDArray, " size"]:
        """The nearest member, by the cone program (by clipping for a box)."""
        if self.is_box:
            return np.clip(point, *self.bounds_flat())
        theta = self.program.theta({self._point.id: np.asarray(point)})
        numbers = self.program.at(theta)
        found = solve(numbers, self.program.cones, 1e-11)
        if not found.is_usable:
            raise ProblemError(f"constraints: the leader's set has no member ({found.outcome.value})")
        found = sharpened(numbers, self.program.cones, found)
        low, high = self.bounds_flat()
        return np.clip(found.z[self._columns], low, high)

    def described(self) -> tuple[Numbers, Int[NDArray, " size"]]:
        """The set as a cone program (whose objective is of no use here), and its columns that are x."""
        numbers = self.program.at(self.program.theta({self._point.id: np.zeros(self.size)}))
        return numbers, np.arange(self.program.n)[self._columns]

    def project_flat(self, point: Float[AnyArray, " size"]) -> Float[Array, " size"]:
        if self.is_box:
            return jnp.clip(point, *self.bounds_flat())
        return jnp.asarray(self.nearest_flat(np.asarray(point)))  # called with numbers only, never traced

    def interior_flat(self) -> Float[NDArray, " size"]:
        low, high, is_box = self._bounds
        if (low > high).any():
            index = int(np.argmax(low > high))
            raise ProblemError(f"constraints: number {index} of the leader's variables must be both above and below")
        if is_box:
            return Box(low, high).interior_flat()
        found = least_violation(self.program, self.program.theta({self._point.id: np.zeros(self.size)}))
        if not found.solved or found.value > PLACED:
            raise ProblemError("constraints: the leader's set has no member")
        return self.nearest_flat(found.z[self._columns])

    def sample_flat(self, generator: np.random.Generator) -> Float[NDArray, " size"]:
        low, high, is_box = self._bounds
        if is_box:
            return Box(low, high).sample_flat(generator)
        middle = self.interior_flat()
        size = (1.0 + np.abs(middle)) * 10.0 ** generator.uniform(-1.0, 1.0)
        return self.nearest_flat(np.clip(middle + size * generator.standard_normal(self.size), low, high))
