"""A result about a problem in CVXPY, recomputed: every follower by another solver than the one that found it.

Linear and quadratic followers are solved by HiGHS, others by SCS, in units of their own; an answer of theirs counts
where its residuals are small. Only x and y are taken from the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np

from blocc.cvxpy.around import FEW_DIRECTIONS, FURTHER, LARGE, MOST_DIRECTIONS, around, sizes_of
from blocc.cvxpy.exact import exact_point
from blocc.cvxpy.implicit import polished
from blocc.cvxpy.judge import USUAL, objective_unit, second_value
from blocc.cvxpy.model import Vector
from blocc.cvxpy.solvers import solve
from blocc.errors import OptionError
from blocc.judge.probe import DISTANCES, Probing, Value
from blocc.judge.verification import Check, Verification
from blocc.result import Result, Status

if TYPE_CHECKING:
    from blocc.cvxpy.problem import BilevelProblem

#: A slope of f(x, y(x)), by what it varies by over the size of x, is taken for one from so many tolerances on.
_SLOPE = 10.0
#: Ends at which there is no follower's answer to recompute.
_WITHOUT_ANSWER = (Status.INFEASIBLE, Status.UNBOUNDED)


def verify(problem: BilevelProblem, result: Result, *, tolerance: float = 1e-4) -> Verification:
    """Compare every claim of a result with what comes out by another solver."""
    if not isinstance(result, Result):
        raise OptionError(f"result must be a Result (see Result.load), got {type(result).__name__}")
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 0.0 < tolerance < 1.0:
        raise OptionError(f"tolerance must be a number between 0 and 1, got {tolerance!r}")
    problem.renew()
    return _Checks(problem, result, tolerance).all()


class _Checks:
    def __init__(self, problem: BilevelProblem, result: Result, tolerance: float) -> None:
        self.problem, self.result, self.tolerance = problem, result, tolerance
        self.model, self.checks = problem.model, list[Check]()
        self.x: Vector = problem.x_set.ravel(result.x, "x of the result")
        self.broken = 0.0  #: how far the leader's constraints are violated at the y that is told
        self.unit = 1.0 + abs(result.upper_value) if np.isfinite(result.upper_value) else 1.0

    def _add(self, name: str, claimed: float | str, found: float | str, ok: bool | None, note: str = "") -> None:
        self.checks.append(Check(name, claimed, found, ok, note))

    def all(self) -> Verification:
        """Every check."""
        r, away = self.result, self.problem.x_set.distance(self.result.x)
        self._add(
            "x in X", "a member", away, away <= self.tolerance * (1.0 + float(np.max(np.abs(self.x), initial=0.0)))
        )
        if r.status in _WITHOUT_ANSWER and not np.isfinite(r.upper_value):
            self._add("no answer", r.status.value, *self._answerless())
        else:
            self._answers()
        return Verification(r.name, self.tolerance, tuple(self.checks), r.success)

    def _answerless(self) -> tuple[str, bool]:
        self._put()
        found = [second_value(one) for one in self.problem.followers]
        return ", ".join(how for _, how in found), any(value is None for value, _ in found)

    def _put(self) -> None:
        for one, value in zip(self.model.parameters, self.model.values(self.x), strict=True):
            one.save_value(value if one.shape else float(value))

    def _answers(self) -> None:
        """The followers' values by another solver, and the leader's value at the answers that are told."""
        r, total = self.result, 0.0
        for index, one in enumerate(self.problem.followers):
            self._put()
            value, how = second_value(one)
            unit = objective_unit(one)
            self._tell()
            told, broken = float(np.asarray(one.objective.value)), _violation(one.constraints)
            size = 1.0 + abs(told) + float(np.max(np.abs(np.concatenate([np.ravel(v.value) for v in one.variables()]))))
            what = "" if len(self.problem.followers) == 1 else f" of follower {index}"
            self._add(f"y is feasible{what}", "yes", broken, broken <= self.tolerance * size, "the user's constraints")
            if value is None:
                self._add(f"follower's value{what}", told, how, None, "another solver")
                continue
            close = abs(told - value) <= self.tolerance * (unit + abs(told))
            self._add(f"follower's value{what}", told, value, close, how)
            total += told
        close = abs(total - r.lower_value) <= self.tolerance * (1.0 + abs(total))
        self._add("lower value", r.lower_value, total, close, "at the y that is told")
        upper = self.problem.sign * self.model.leader_value()
        self._add("upper value", r.upper_value, upper, abs(upper - r.upper_value) <= self.tolerance * self.unit)
        broken = self.broken = _violation(self.model.soft.constraints)
        told = r.certificate.leader_violation
        true = not r.success or abs(told - broken) <= self.tolerance * self.unit
        self._add("leader's constraints", told, broken, broken <= self.tolerance * self.unit and true)
        if r.success:
            self._certificate()
            self._around()

    def _certificate(self) -> None:
        """Whether the residuals are those of an answer: the claims are held within the tolerance."""
        c, r = self.result.certificate, self.result
        largest = max(float(np.max(np.abs(one), initial=0.0)) for one in (self.x, *map(np.asarray, r.y.values())))
        worst = max(c.stationarity, c.feasibility, c.complementarity)
        sound = min(c.stationarity, c.feasibility, c.complementarity, c.stationarity_x, c.radius, c.distance) >= 0.0
        sound = sound and worst <= self.tolerance * (1.0 + largest + abs(r.lower_value)) and c.exact
        self._add("residuals of the followers", f"within {self.tolerance:g}", worst, sound, "as told, relative")

    def _tell(self) -> None:
        """Give the variables the values that the result tells."""
        names = self.model.variable_names
        if set(self.result.y) != set(names):
            raise OptionError(f"y of the result has the names {sorted(self.result.y)}, the problem has {sorted(names)}")
        own = [variable for follower in self.model.followers for variable in follower.variables]
        for name, variable in zip(names, own, strict=True):
            value = np.asarray(self.result.y[name], dtype=np.float64)
            if value.shape != variable.shape:
                raise OptionError(f"{name} of the result has the shape {value.shape}, the problem {variable.shape}")
            variable.save_value(value)
        told: Any = self.result.multipliers
        kinds: dict[str, Any] = {**told.inequality, **told.equality}
        for index, follower in enumerate(self.model.followers):
            for place, constraint in enumerate(follower.constraints):
                price = kinds.get(f"{place}" if len(self.model.followers) == 1 else f"{index}.{place}")
                for variable in self.model.price_variables:
                    if variable.constraint is constraint and price is not None:
                        _give(constraint, price)
                        variable.take()

    def _around(self) -> None:
        """Values of the leader at answers of another solver around x: none may be better."""
        model = self.model

        def look(point: Vector) -> Value | None:
            for one, value in zip(model.parameters, model.values(point), strict=True):
                one.save_value(value if one.shape else float(value))
            if any(second_value(one)[0] is None for one in self.problem.followers):
                return None
            for variable in model.price_variables:
                variable.take()
            return Value(point, np.zeros(0), model.leader_value(), _violation(model.soft.constraints))

        told = Value(self.x, np.zeros(0), self.problem.sign * self.result.upper_value, self.broken)
        again = look(self.x)  # what two solvers differ by
        unsure, broken = (0.0, 0.0) if again is None else (abs(again.upper - told.upper), again.violation)
        distances = FURTHER if model.has_exponentials else DISTANCES
        allowed = 2.0 * max(broken, self.broken)
        plan = Probing(sizes_of(self.x), 2.0 * unsure, _SLOPE * self.tolerance, allowed, distances=distances)
        most = MOST_DIRECTIONS if model.n_y <= LARGE else FEW_DIRECTIONS
        gradient = self._slope(self.x)
        kinked = model.plain is not None and model.plain.is_kinked
        found = around(look, model.project_x, told, plan, 1, most, gradient, self._slope, kinked)
        text, ok = (f"gain {found.gain:.2g}", False) if found.better is not None else ("none", True)
        self._add("no better x nearby", "none", text, ok, "probes")

    def _slope(self, x: Vector) -> Vector | None:
        """The derivative of f(x, y(x)) at answers of the other solver; it says where to look, and values decide."""
        pairs = []
        for one, theta in zip(self.model.followers, self.model.follower_thetas(x), strict=True):
            numbers = one.program.at(theta)
            answer = solve(numbers, one.program.cones, USUAL, "second")
            pair = polished(numbers, one.program.cones, answer) if answer.is_usable else None
            if pair is None:
                return None
            pairs.append(pair)
        point = exact_point(self.model, x, pairs)
        return None if point is None else point.gradient


def _give(constraint: cp.Constraint, price: Any) -> None:
    """Give a constraint the multipliers that a result tells, part after part."""
    sizes = [one.size for one in constraint.dual_variables]
    for one, part in zip(constraint.dual_variables, np.split(np.ravel(price), np.cumsum(sizes)[:-1]), strict=True):
        one.save_value(np.reshape(part, one.shape))


def _violation(constraints: Any) -> float:
    return max((float(np.max(np.abs(one.violation()), initial=0.0)) for one in constraints), default=0.0)
