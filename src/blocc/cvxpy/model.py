"""A bilevel problem of CVXPY's as the numerics see it: programs over x, and the way back to the user's variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.reductions.cvx_attr2constr import recover_value_for_leaf

from blocc._lib.arrays import Float, Int, NDArray
from blocc._lib.precision import double_precision
from blocc.cvxpy.cone_program import ConeProgram, canonical
from blocc.cvxpy.expressions import OwnTerms, PriceVariable, check_leader, shown, split
from blocc.cvxpy.leader_set import LeaderSet
from blocc.cvxpy.leader_value import LeaderProgram
from blocc.cvxpy.majorised import PlainObjective, Seen
from blocc.cvxpy.payments import PaymentVariable, place, tie
from blocc.cvxpy.penalised import Penalised, PricePlace
from blocc.errors import ProblemError

Vector = Float[NDArray, " n"]


class Follower(NamedTuple):
    """One follower: what it minimises, and over what."""

    objective: cp.Expression
    constraints: list[cp.Constraint]
    variables: list[cp.Variable]
    program: ConeProgram


class Where(NamedTuple):
    """Which entries of theta are entries of x."""

    base: Vector  #: theta with the numbers that are no decisions
    theta: Int[NDArray, " k"]
    x: Int[NDArray, " k"]

    def at(self, x: Vector) -> Vector:
        """Theta at x."""
        found = self.base.copy()
        found[self.theta] = x[self.x]
        return found

    def slope(self, slope: Vector, n_x: int) -> Vector:
        """A derivative in theta as one in x."""
        found = np.zeros(n_x)
        np.add.at(found, self.x, slope[self.theta])
        return found

    def columns(self, slopes: sp.csr_array, n_x: int) -> sp.csr_array:
        """Columns of derivatives in theta as columns of derivatives in x."""
        count = len(self.x)
        into = sp.csr_array((np.ones(count), (np.arange(count), self.x)), shape=(count, n_x))
        return sp.csr_array(slopes[:, self.theta] @ into)


class Softened(NamedTuple):
    """The leader's constraints on the follower's answer, with a price on their violation."""

    constraints: list[cp.Constraint]  #: as given
    rules: list[cp.Constraint]  #: with slack
    slack: cp.Expression  #: sum of all slack
    price: cp.Parameter


class Model:
    """Everything that is made once for a problem."""

    n_upper_inequality = 0  #: constraints of the leader's are softened in the penalised problem itself

    def __init__(
        self,
        objective: cp.Expression | Callable[..., Any],
        followers: Sequence[tuple[cp.Expression, list[cp.Constraint]]],
        parameters: Sequence[cp.Parameter],
        constraints: Sequence[cp.Constraint],
    ) -> None:
        self.parameters = list(parameters)
        coupled = [one for one in constraints if one.variables()]
        self.x_set = LeaderSet(parameters, [one for one in constraints if not one.variables()])
        self.n_x = self.x_set.size
        self.followers = [self._follower(index, *one) for index, one in enumerate(followers)]
        self.plain: PlainObjective | None = None
        if not isinstance(objective, cp.Expression):
            self.plain = PlainObjective(objective, parameters, self._seen())
            objective = cp.Constant(0.0)
        self.objective, parts = objective, split(objective)
        self.joint = parts.joint  #: the terms with variables of the followers
        check_leader(parts.joint, "objective")
        self.own, self.is_affine = OwnTerms(parts.alone, parameters), bool(parts.joint.is_affine())
        self.soft = _softened(coupled)
        for one in coupled:
            check_leader_constraint(one)
        used = {one.id: one for part in (objective, *coupled) for one in part.variables()}
        self.tied = tie([one for one in used.values() if isinstance(one, PaymentVariable)])
        self._check_variables(used)
        rules = [*self.soft.rules, *(one.rule for one in self.tied)]
        self.leader = canonical(parts.joint + self.soft.price * self.soft.slack, rules, "the leader's problem")
        self.priced = self._priced(used)
        programs = [one.program for one in self.followers]
        payments = tuple(place(one, self.leader, programs) for one in self.tied)
        self.penalised = Penalised(self.leader, tuple(programs), self.priced, payments)
        also = None if self.plain is None else self.penalised.seen_columns
        self.leader_program = LeaderProgram(self.penalised, also)
        self.n_y = sum(one.program.n for one in self.followers)
        self.n_seen = sum(
            one.program.variables[variable.id].size for one in self.followers for variable in one.variables
        ) + sum(one.size for one in self.price_variables)
        self.n_inequality, self.n_equality = sum(one.program.m for one in self.followers), 0
        self.refresh()

    def _follower(self, index: int, objective: cp.Expression, constraints: list[cp.Constraint]) -> Follower:
        program = canonical(objective, constraints, f"follower {index}")
        variables = cp.Problem(cp.Minimize(objective), constraints).variables()
        return Follower(objective, constraints, sorted(variables, key=lambda one: one.id), program)

    @property
    def has_exponentials(self) -> bool:
        """Whether answers may change by less than their rounding, and yet change."""
        return any(one.program.cones.exponential for one in self.followers)

    @property
    def variable_names(self) -> list[str]:
        """Names of the followers' variables; with the follower's number where two followers use one name."""
        plain = [one.name() for one in self._own_variables()]
        if len(set(plain)) == len(plain):
            return plain
        return [f"{index}.{one.name()}" for index, each in enumerate(self.followers) for one in each.variables]

    def _own_variables(self) -> list[cp.Variable]:
        return [variable for follower in self.followers for variable in follower.variables]

    def _priced(self, used: dict[int, cp.Variable]) -> dict[int, PricePlace]:
        found = {}
        paid = {one.total.price.id: one.total.price for one in self.tied}
        self.price_variables = [one for one in (used | paid).values() if isinstance(one, PriceVariable)]
        for one in self.price_variables:
            for index, follower in enumerate(self.followers):
                rows = follower.program.constraints | follower.program.cone_rows
                if one.constraint.id in rows:
                    found[one.id] = PricePlace(index, rows[one.constraint.id])
                    break
            else:
                raise ProblemError(f"dual: no follower has the constraint {shown(one.constraint)}")
        return found

    def _check_variables(self, used: dict[int, cp.Variable]) -> None:
        known = {one.id for one in self._own_variables()}
        quantities = {variable.id: variable for one in self.tied for variable in one.total.quantity.variables()}
        for one in (used | quantities).values():
            if one.id not in known and not isinstance(one, (PriceVariable, PaymentVariable)):
                raise ProblemError(
                    f"the leader uses the variable {one.name()}, which no follower has; what the leader decides is a "
                    "cp.Parameter and belongs in x"
                )

    def refresh(self) -> None:
        """Take over the numbers of all parameters that are no decisions."""
        self._leader_where = self._where(self.leader, "the leader's problem")
        self._where_followers = [self._where(one.program, "a follower") for one in self.followers]
        self.own.renew()

    def _where(self, program: ConeProgram, what: str) -> Where:
        mine = {one.id: one for one in self.parameters}
        base = np.ones(program.n_parameters + 1)
        theta, x, at = [], [], 0
        starts = {}
        for one in self.parameters:
            starts[one.id] = at
            at += one.size
        known = {one.id: one for one in self._all_parameters()}
        for identity, block in program.parameters.items():
            if identity in mine:
                own = np.arange(block.size).reshape(mine[identity].shape).ravel(order="F")
                theta.append(block.start + np.arange(block.size))
                x.append(starts[identity] + own)
                continue
            value = known[identity].value
            if value is None:
                raise ProblemError(
                    f"{what} has the parameter {known[identity].name()}, which has no value and is not in x"
                )
            base[block.slice] = np.asarray(value, dtype=np.float64).ravel(order="F")
        join = lambda parts: np.concatenate(parts) if parts else np.zeros(0, dtype=int)  # noqa: E731
        return Where(base, join(theta), join(x))

    def _all_parameters(self) -> list[cp.Parameter]:
        found = [*self.objective.parameters(), self.soft.price]
        for one in (*self.soft.constraints, *self.soft.rules, *(tied.rule for tied in self.tied)):
            found += one.parameters()
        for follower in self.followers:
            found += cp.Problem(cp.Minimize(follower.objective), follower.constraints).parameters()
        return found

    def project_x(self, point: Vector) -> Vector:
        """The nearest member of X."""
        return self.x_set.nearest_flat(np.asarray(point))

    # --- the way between x and the user's objects ------------------------------------------------------------------
    def leader_theta(self, x: Vector) -> Vector:
        """Parameters of the leader's program."""
        return self._leader_where.at(x)

    def follower_thetas(self, x: Vector) -> tuple[Vector, ...]:
        """Parameters of the followers' programs."""
        return tuple(where.at(x) for where in self._where_followers)

    def slope_in_x(self, leader: Vector | None, followers: Sequence[Vector | None]) -> Vector:
        """Derivatives in the programs' parameters, added up in x."""
        found = np.zeros(self.n_x)
        if leader is not None:
            found += self._leader_where.slope(leader, self.n_x)
        for where, slope in zip(self._where_followers, followers, strict=True):
            if slope is not None:
                found += where.slope(slope, self.n_x)
        return found

    def columns_in_x(self, follower: int, slopes: sp.csr_array) -> sp.csr_array:
        """Derivatives in a follower's parameters, column by column, in x."""
        return self._where_followers[follower].columns(slopes, self.n_x)

    def leader_columns_in_x(self, slopes: sp.csr_array) -> sp.csr_array:
        """Derivatives in the parameters of the leader's program, in x."""
        return self._leader_where.columns(slopes, self.n_x)

    def values(self, x: Vector) -> list[Any]:
        """x in the shapes of the leader's parameters."""
        found, at = [], 0
        for one in self.parameters:
            found.append(x[at : at + one.size].reshape(one.shape))
            at += one.size
        return found

    def put(self, x: Vector, answers: Sequence[Vector], prices: Sequence[Vector | None]) -> None:
        """Give the user's parameters and variables the values of x and of the followers' answers."""
        for one, value in zip(self.parameters, self.values(x), strict=True):
            one.save_value(value if one.shape else float(value))
        for follower, z in zip(self.followers, answers, strict=True):
            for variable in follower.variables:
                variable.save_value(value_of(variable, z[follower.program.variables[variable.id].slice]))
        for variable in self.price_variables:
            where = self.priced[variable.id]
            multipliers = prices[where.follower]
            assert multipliers is not None
            variable.save_value(multipliers[where.rows.slice].reshape(variable.shape, order="F"))

    def leader_value(self) -> float:
        """f at the values that the user's parameters and variables have."""
        for one in self.tied:
            one.total.settle()
        if self.plain is None:
            return float(np.ravel(self.objective.value)[0])
        x = {one.name(): np.asarray(one.value) for one in self.parameters}
        y = dict(zip(self.variable_names, (np.asarray(one.value) for one in self._own_variables()), strict=True))
        with double_precision():
            return float(self.plain.function(x, y))

    def own_columns(self, answers: Sequence[Vector]) -> Vector:
        """The columns of the followers' variables alone, without what CVXPY added."""
        pairs = zip(self.followers, answers, strict=True)
        return np.concatenate([z[one.program.variables[v.id].slice] for one, z in pairs for v in one.variables])

    def _seen(self) -> list[Seen]:
        found = []
        own = [(one, variable) for one in self.followers for variable in one.variables]
        for name, (follower, variable) in zip(self.variable_names, own, strict=True):
            size = follower.program.variables[variable.id].size
            spread = None
            if size != variable.size:
                units = np.eye(size)
                spread = np.stack([np.ravel(value_of(variable, unit), order="F") for unit in units], axis=1)
            found.append(Seen(name, variable.shape, size, spread))
        return found

    def upper(self, x: Vector, answers: Sequence[Vector], prices: Sequence[Vector | None]) -> tuple[float, float]:
        """f, and the largest violation of the leader's constraints, at given answers."""
        self.put(x, answers, prices)
        value = self.leader_value()
        violated = [float(np.max(np.abs(one.violation()), initial=0.0)) for one in self.soft.constraints]
        return value, max(violated, default=0.0)

    def seen(self, answers: Sequence[Vector], prices: Sequence[Vector | None]) -> Vector:
        """Everything of the followers' answers that users see, in one vector."""
        parts = [
            z[follower.program.variables[variable.id].slice]
            for follower, z in zip(self.followers, answers, strict=True)
            for variable in follower.variables
        ]
        for variable in self.price_variables:
            where = self.priced[variable.id]
            multipliers = prices[where.follower]
            assert multipliers is not None
            parts.append(multipliers[where.rows.slice])
        return np.concatenate(parts)


def value_of(variable: cp.Variable, columns: Vector) -> Any:
    """The value of a variable out of its columns, which may be fewer than its entries (a symmetric matrix)."""
    found = recover_value_for_leaf(variable, columns, project=False)
    return found if np.shape(found) == variable.shape else np.reshape(found, variable.shape, order="F")


def check_leader_constraint(constraint: cp.Constraint) -> None:
    """Convex in the follower's variables, and affine in parameters."""
    if not constraint.is_dcp(dpp=True):
        raise ProblemError(
            f"constraints: {shown(constraint)} must be convex in the follower's variables and DPP in the parameters"
        )


def _softened(constraints: list[cp.Constraint]) -> Softened:
    rules, slacks = [], []
    for one in constraints:
        if isinstance(one, cp.constraints.Inequality):
            sides = [one.args[0] - one.args[1]]
        elif isinstance(one, cp.constraints.Equality):
            sides = [one.args[0] - one.args[1], one.args[1] - one.args[0]]
        else:
            raise ProblemError(f"constraints: {shown(one)} is neither <= nor ==; write it as one of them")
        for side in sides:
            slack = cp.Variable(side.shape, nonneg=True)
            rules.append(side <= slack)
            slacks.append(cp.sum(slack))
    price = cp.Parameter(nonneg=True, value=1.0)
    total = sum(slacks[1:], start=slacks[0]) if slacks else cp.Constant(0.0)
    return Softened(constraints, rules, total, price)
