"""What users write, taken apart: signs, prices, terms of the leader's variables alone; errors that name the place."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from cvxpy.atoms.affine.affine_atom import AffAtom
from cvxpy.atoms.affine.binary_operators import DivExpression, MulExpression

from blocc._lib.arrays import Float, NDArray
from blocc.cvxpy.leader_set import as_variables
from blocc.errors import ProblemError

_LENGTH = 120  #: of an expression in an error


class PriceVariable(cp.Variable):  # type: ignore[misc]
    """A variable that stands for the multipliers of a follower's constraint."""

    def __init__(self, constraint: cp.Constraint) -> None:
        self.constraint = constraint
        super().__init__(constraint.shape, name=f"dual({shown(constraint)})")

    def take(self) -> None:
        """Take the value that the constraint's multipliers have."""
        self.save_value(self.constraint.dual_value)

    def told(self, rows: Float[NDArray, " rows"]) -> tuple[Any, ...]:
        """Multipliers of the rows of a cone program in the parts that CVXPY gives them."""
        return (np.reshape(rows, self.shape, order="F"),)


class ConePriceVariable(PriceVariable):
    """The same for a cone: a number for each row of the cone program, of which CVXPY's parts are linear functions."""

    def __init__(self, constraint: cp.Constraint) -> None:
        self.constraint, self.map = constraint, _parts_of_rows(constraint)
        self.shapes = [one.shape for one in constraint.dual_variables]
        cp.Variable.__init__(self, self.map.shape[1], name=f"dual({shown(constraint)})")

    @property
    def parts(self) -> list[cp.Expression]:
        """CVXPY's parts as expressions."""
        cuts = np.cumsum([0, *(int(np.prod(shape)) for shape in self.shapes)])
        pieces = [self.map[a:b] @ self for a, b in pairwise(cuts)]
        return [cp.reshape(one, shape, order="F") for one, shape in zip(pieces, self.shapes, strict=True)]

    def take(self) -> None:
        """Take the value that the constraint's multipliers have."""
        told = [np.ravel(one.value, order="F") for one in self.constraint.dual_variables]
        self.save_value(np.linalg.lstsq(self.map, np.concatenate(told), rcond=None)[0])

    def told(self, rows: Float[NDArray, " rows"]) -> tuple[Any, ...]:
        """Multipliers of the rows of a cone program in the parts that CVXPY gives them."""
        pieces = np.split(self.map @ rows, np.cumsum([int(np.prod(shape)) for shape in self.shapes])[:-1])
        return tuple(np.reshape(one, shape, order="F") for one, shape in zip(pieces, self.shapes, strict=True))


class Told(NamedTuple):
    """What CVXPY reads out of an answer of Clarabel's."""

    x: Float[NDArray, " n"]
    z: Float[NDArray, " m"]
    status: str = "Solved"
    obj_val: float = 0.0
    solve_time: float = 0.0
    iterations: int = 0


def _parts_of_rows(constraint: cp.Constraint) -> Float[NDArray, "entries rows"]:
    """The map from the rows of a cone program to CVXPY's multipliers: CVXPY itself, asked about every row."""
    alone = cp.Problem(cp.Minimize(0.0), [constraint])
    unset = [one for one in alone.parameters() if one.value is None]
    for one in unset:
        one.value = one.project(np.ones(one.shape))
    try:
        data, chain, inverse = alone.get_problem_data(cp.CLARABEL, solver_opts={"verbose": False})
    finally:
        for one in unset:
            one.value = None
    rows, skipped = len(data["b"]), data["dims"].zero + data["dims"].nonneg
    columns = []
    for index in range(skipped, rows):
        told = Told(np.zeros(len(data["c"])), np.eye(1, rows, index)[0])
        found = chain.invert(told, inverse).dual_vars[constraint.id]
        parts = found if isinstance(found, list) else [found]
        columns.append(np.concatenate([np.ravel(part, order="F") for part in parts]))
    return np.stack(columns, axis=1)


_LINEAR = (cp.constraints.Equality, cp.constraints.Inequality, cp.Zero, cp.NonNeg, cp.NonPos)
_CONES = (cp.SOC, cp.PSD, cp.ExpCone)


def dual(constraint: cp.Constraint) -> Any:
    """The multipliers of a follower's constraint, for the leader's objective and constraints.

    They have CVXPY's signs and shapes: at an answer they are ``constraint.dual_value``. Those of a second-order or an
    exponential cone are a list of expressions, as there.
    """
    if not isinstance(constraint, (*_LINEAR, *_CONES)):
        raise ProblemError(
            f"dual: {type(constraint).__name__} is not known; give an equality, an inequality, cp.SOC, cp.ExpCone or a "
            "semidefinite constraint of the follower"
        )
    if not hasattr(constraint, "_blocc_price"):
        kind = PriceVariable if isinstance(constraint, _LINEAR) else ConePriceVariable
        constraint._blocc_price = kind(constraint)
    price: cp.Variable = constraint._blocc_price
    if not isinstance(price, ConePriceVariable):
        return price
    return price.parts if len(price.shapes) > 1 else price.parts[0]


def shown(expression: Any) -> str:
    """An expression in the words of an error."""
    text = str(expression)
    return text if len(text) <= _LENGTH else text[: _LENGTH - 3] + "..."


def culprit(part: Any, *, dpp: bool) -> Any:
    """The smallest part of an expression, an objective or a constraint that breaks CVXPY's rules."""
    for one in getattr(part, "args", ()):
        if not (one.is_dcp(dpp=True) if dpp else one.is_dcp()):
            return culprit(one, dpp=dpp)
    return part


def minimised(objective: cp.Minimize | cp.Maximize, what: str) -> tuple[cp.Expression, float]:
    """The expression to minimise, and the factor that turns its value into the user's."""
    if isinstance(objective, cp.Minimize):
        return objective.args[0], 1.0
    if isinstance(objective, cp.Maximize):
        return -objective.args[0], -1.0
    raise ProblemError(f"{what} must be cp.Minimize(...) or cp.Maximize(...), got {type(objective).__name__}")


def check_follower(problem: cp.Problem, what: str) -> None:
    """Convex, and affine in its parameters in the way that lets one canonical form serve all of them."""
    parts = [("objective", problem.objective), *((f"constraint {i}", one) for i, one in enumerate(problem.constraints))]
    for name, part in parts:
        if not part.is_dcp():
            raise ProblemError(
                f"{what}: its {name} is not convex by CVXPY's rules, for {shown(culprit(part, dpp=False))}. Where a "
                "sign of a parameter is needed, declare it: cp.Parameter(nonneg=True)"
            )
        if not part.is_dcp(dpp=True):
            raise ProblemError(
                f"{what}: its {name} is not DPP, for {shown(culprit(part, dpp=True))}. Parameters must enter affinely: "
                "no product of two of them, no function of one that multiplies a variable; make that function a "
                "leader's variable of its own"
            )
    for variable in problem.variables():
        if variable.attributes["boolean"] or variable.attributes["integer"]:
            raise ProblemError(f"{what}: {variable.name()} is an integer variable; a follower must be convex")


class Split(NamedTuple):
    """A leader's objective in two parts."""

    joint: cp.Expression  #: terms with variables of the follower
    alone: cp.Expression  #: terms of parameters alone


#: Affine atoms that multiply their arguments with each other; all others are linear in all arguments together.
_PRODUCTS = (MulExpression, DivExpression, cp.multiply, cp.kron, cp.conv, cp.convolve)


def split(expression: cp.Expression) -> Split:
    """Take the terms apart that have no variable in them, through sums, factors and whatever else is linear.

    CVXPY evaluates squares of parameters that it finds in a quadratic objective once and for all, so none must stay.
    """
    if not expression.variables():
        return Split(_zeros(expression), expression)
    constant = [not (one.variables() or one.parameters()) for one in expression.args]
    products = isinstance(expression, _PRODUCTS)
    if not isinstance(expression, AffAtom) or (products and constant.count(False) > 1):
        return Split(expression, _zeros(expression))
    parts = [split(one) for one in expression.args]
    if all(part.alone.is_zero() for part in parts):
        return Split(expression, _zeros(expression))
    kept = lambda index, part: expression.args[index] if products and constant[index] else part  # noqa: E731
    return Split(
        expression.copy([kept(index, part.joint) for index, part in enumerate(parts)]),
        expression.copy([kept(index, part.alone) for index, part in enumerate(parts)]),
    )


def _zeros(like: cp.Expression) -> cp.Expression:
    return cp.Constant(np.zeros(like.shape))


def check_leader(expression: cp.Expression, what: str) -> None:
    """Convex in the follower's variables, and affine in parameters where those meet variables."""
    if not expression.is_convex():
        raise ProblemError(
            f"{what}: not convex in the follower's variables by CVXPY's rules, for "
            f"{shown(culprit(expression, dpp=False))}. Where a sign of a parameter is needed, declare it: "
            "cp.Parameter(nonneg=True)"
        )
    if not cp.Minimize(expression).is_dcp(dpp=True):
        raise ProblemError(
            f"{what}: not DPP, for {shown(culprit(expression, dpp=True))}. Where they meet variables, parameters "
            "must enter affinely; terms of parameters alone may be anything"
        )


#: Entries of x up to which terms of the leader's own are written as a quadratic.
_LARGEST_QUADRATIC = 200


class OwnTerms:
    """The terms of the leader's variables alone, with their derivative."""

    def __init__(self, expression: cp.Expression, parameters: Sequence[cp.Parameter]) -> None:
        self.expression = expression
        self._copies = as_variables(parameters)
        self._parameters = list(parameters)
        self._copied = expression.tree_copy(self._copies)
        self.is_constant = not self._copied.variables()
        self._seen: list[Float[NDArray, "..."]] | None = None  #: values of the other parameters
        self._quadratic: tuple[float, Float[NDArray, " n_x"], Float[NDArray, "n_x n_x"]] | None = None

    def renew(self) -> None:
        """Take over the values of parameters that are no decisions."""
        values = [np.array(one.value, dtype=np.float64) for one in self._copied.parameters()]
        if self._seen is not None and all(map(np.array_equal, values, self._seen)):
            return
        self._seen, self._quadratic = values, None
        n = sum(one.size for one in self._parameters)
        if self.is_constant or n > _LARGEST_QUADRATIC or not self._copied.is_quadratic():
            return
        value, slope = self._by_cvxpy(self._shaped(np.zeros(n)))
        rows = [self._by_cvxpy(self._shaped(unit))[1] - slope for unit in np.eye(n)]
        self._quadratic = value, slope, np.stack(rows)

    def _shaped(self, x: Float[NDArray, " n_x"]) -> list[Any]:
        cuts = np.cumsum([one.size for one in self._parameters])[:-1]
        return [part.reshape(one.shape) for part, one in zip(np.split(x, cuts), self._parameters, strict=True)]

    def value_and_slope(self, values: Sequence[Any]) -> tuple[float, Float[NDArray, " n_x"]]:
        """At the values of the leader's parameters; the derivative in the order of their entries."""
        if self._quadratic is None:
            return self._by_cvxpy(values)
        constant, slope, matrix = self._quadratic
        x = np.concatenate([np.ravel(value) for value in values])
        curved = matrix @ x
        return constant + float(slope @ x + 0.5 * x @ curved), slope + curved

    def bend(self) -> Float[NDArray, "n_x n_x"]:
        """The second derivative where it is known and constant; zeros elsewhere."""
        n = sum(one.size for one in self._parameters)
        return np.zeros((n, n)) if self._quadratic is None else self._quadratic[2]

    def _by_cvxpy(self, values: Sequence[Any]) -> tuple[float, Float[NDArray, " n_x"]]:
        for one, value in zip(self._parameters, values, strict=True):
            self._copies[id(one)].value = value
        value = float(np.ravel(self._copied.value)[0])
        if self.is_constant:
            return value, np.zeros(sum(one.size for one in self._parameters))
        gradient = self._copied.grad
        slopes = []
        for one in self._parameters:
            found = gradient.get(self._copies[id(one)])
            if found is None:
                slopes.append(np.zeros(one.size))
                continue
            dense = np.asarray(found.todense() if hasattr(found, "todense") else found, dtype=np.float64)
            slopes.append(dense.reshape(one.shape, order="F").ravel())
        return value, np.concatenate(slopes)


def without_negative(matrix: Float[NDArray, "n n"]) -> Float[NDArray, "n n"]:
    """A symmetric matrix without its negative eigenvalues."""
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    return (vectors * np.maximum(values, 0.0)) @ vectors.T
