"""Is it true? The followers' answers once more, from the numbers that CVXPY gives a solver.

Nothing here uses the programs, the gradients or the penalty that led to x. Where a follower has several best answers,
the one that suits the leader counts (the optimistic one), and the spread between that and the worst is measured: the
answers within eps of the optimum spread like ``c + d sqrt(eps) + e eps``, so three values of eps tell c.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from blocc.cvxpy import best_pairs
from blocc.cvxpy.best_pairs import Pairs
from blocc.cvxpy.cone_program import ConeSizes, Numbers
from blocc.cvxpy.expressions import Told
from blocc.cvxpy.implicit import is_unique, sharpened
from blocc.cvxpy.model import Model, Vector
from blocc.cvxpy.scaling import scaled
from blocc.cvxpy.solvers import ConeAnswer, Outcome, SolverName, measured, solve

#: Relative slack of the follower's value within which answers count as equally good, larger first.
_NEAR = (1e-5, 1e-6, 1e-7)
#: Residuals of a follower's answer, in the program's own units, up to which it counts as one.
EXACT = 1e-5
#: Residuals of an answer to the last digit.
SHARP = 1e-9
#: Accuracies that solvers are asked for, one after the other.
_TIGHT, USUAL = 1e-10, 1e-8


class Exact(NamedTuple):
    """The leader's value at the followers' answers."""

    upper: float
    lower: tuple[float, ...]  #: the followers' values, minimised
    violation: float  #: of the leader's constraints
    values: tuple[Any, ...]  #: of the followers' variables and of prices, in order
    prices: tuple[tuple[Any, ...], ...]  #: of every constraint of every follower, in the parts that CVXPY gives them
    worst: int = 0  #: which of these is violated most
    sharp: bool = False  #: whether the answers meet the conditions of an optimum to the last digit
    pairs: Pairs | None = None  #: where answers and prices were chosen in the leader's favour
    units: tuple[float, ...] = ()  #: usual sizes of the followers' objectives: at a tie one may vanish


class Residual(NamedTuple):
    """What is wrong with one follower's answer."""

    told: tuple[float, float, float]  #: stationarity, feasibility and complementarity, in the user's units
    is_exact: bool  #: whether they are small in the units of the follower's program, whatever those of the user are


def _extrapolated(found: list[float]) -> tuple[float, float]:
    """The value at answers that are exactly best, and how sure that is.

    By the polynomial in sqrt(eps) through the values that are found, and by the line through the last two.
    """
    roots = np.sqrt(_NEAR)
    weights = [np.prod([other / (other - one) for other in roots if other != one]) for one in roots]
    line = (roots[1] * found[2] - roots[2] * found[1]) / (roots[1] - roots[2])
    value = float(np.dot(weights, found))
    return value, abs(value - float(line))


class Judge:
    """Answers by CVXPY itself."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.problems = [cp.Problem(cp.Minimize(one.objective), one.constraints) for one in model.followers]
        self.limits = [cp.Parameter(value=0.0) for _ in self.problems]
        best: list[cp.Constraint] = []
        for one, limit in zip(model.followers, self.limits, strict=True):
            best += [*one.constraints, one.objective <= limit]
        self.usual = [0.0] * len(self.problems)  #: largest sizes that their objectives had
        self.leader_rules = list(model.soft.constraints)
        self.has_prices = bool(model.price_variables)
        programs = [one.program for one in model.followers]
        self.any_linear = any(one.cones.is_linear and not one.quadratic.rows.size for one in programs)
        self.optimistic: cp.Problem | None = None
        self.pessimistic: cp.Problem | None = None
        if not self.has_prices and model.plain is None:
            objective = model.joint  # the rest is a number at every x
            self.optimistic = cp.Problem(cp.Minimize(objective), best + self.leader_rules)
            if objective.is_concave() and cp.Maximize(objective).is_dcp(dpp=True):
                self.pessimistic = cp.Problem(cp.Maximize(objective), best)

    def at(self, x: Vector, *, inside: bool = False) -> Exact | None:
        """The value at the follower's answer as the solver finds it; None where there is none.

        :param inside: of linear followers an answer inside of all that are as good, and no vertex
        """
        model = self.model
        for one, value in zip(model.parameters, model.values(x), strict=True):
            one.save_value(value if one.shape else float(value))
        lower, units, sharp = [], [], True
        for problem in self.problems:
            found, sharply = solved(problem, inside=inside)
            if not found:
                return None
            sharp = sharp and sharply
            lower.append(float(np.asarray(problem.objective.value)))
            units.append(objective_unit(problem))
        self.usual = [max(pair) for pair in zip(self.usual, units, strict=True)]
        for variable in model.price_variables:
            variable.take()
        return self._read(tuple(lower))._replace(sharp=sharp, units=tuple(self.usual))

    def is_unique(self) -> bool:
        """Whether the followers have no other answers and multipliers as good, at the values of the parameters."""
        for problem, usual in zip(self.problems, self.usual, strict=True):
            data, _, _ = problem.get_problem_data(cp.CLARABEL)
            if not is_unique(_numbers(data), _sizes(data["dims"]), _raw(problem)[0], usual):
                return False
        return True

    def _read(self, lower: tuple[float, ...]) -> Exact:
        model = self.model
        upper = model.leader_value()
        violated = [_violated(one) for one in self.leader_rules]
        values = tuple(np.array(one.value) for one in self._variables())
        prices = tuple(map(_prices_of, self._constraints()))
        return Exact(upper, lower, max(violated, default=0.0), values, prices, int(np.argmax([*violated, 0.0])))

    def _constraints(self) -> list[cp.Constraint]:
        return [one for follower in self.model.followers for one in follower.constraints]

    def _variables(self) -> list[cp.Variable]:
        own = [variable for follower in self.model.followers for variable in follower.variables]
        return [*own, *self.model.price_variables]

    def restore(self, x: Vector, exact: Exact) -> None:
        """Leave the user's parameters, variables and constraints with the values of an answer."""
        model = self.model
        for one, value in zip(model.parameters, model.values(x), strict=True):
            one.save_value(value if one.shape else float(value))
        for variable, value in zip(self._variables(), exact.values, strict=True):
            variable.save_value(value)
        for constraint, prices in zip(self._constraints(), exact.prices, strict=True):
            for one, price in zip(constraint.dual_variables, prices, strict=True):
                one.save_value(price)
        for payment in model.tied:
            payment.total.settle()

    def among_best(self, x: Vector, exact: Exact, *, worst: bool = False) -> tuple[float, float, Exact] | None:
        """The leader's best (worst) value over the followers' best answers, how sure it is, and the best such answer.

        None where that is no convex problem.
        """
        if self.has_prices:
            return self._among_pairs(x, exact, worst=worst)
        problem = self.pessimistic if worst else self.optimistic
        if problem is None:
            return None
        found: list[float] = []
        last = exact
        for near in _NEAR:
            for limit, value, unit in zip(self.limits, exact.lower, exact.units, strict=True):
                limit.value = value + near * (1e-2 * unit + abs(value))
            if not solved(problem, sharply=False)[0]:  # a limit on a value makes Newton's matrix dense
                return None
            last = self._read(exact.lower)._replace(prices=exact.prices, units=exact.units)
            found.append(last.upper)
        return *_extrapolated(found), last

    def _among_pairs(self, x: Vector, exact: Exact, *, worst: bool) -> tuple[float, float, Exact] | None:
        """The same where the leader looks at prices: pairs of answers and prices."""
        model = self.model
        if not best_pairs.is_possible(model, worst=worst):
            return None
        found: list[float] = []
        last = exact
        own = [_raw(problem)[0] for problem in self.problems]
        for near in _NEAR:
            pairs = best_pairs.best_pairs(model, x, own, near, worst=worst)
            if pairs is None:
                return None
            last = self._read(exact.lower)._replace(
                prices=self._with_prices(exact, pairs), pairs=pairs, units=exact.units
            )
            found.append(pairs.upper)
        return *_extrapolated(found), last

    def _with_prices(self, exact: Exact, pairs: Pairs) -> tuple[tuple[Any, ...], ...]:
        """The multipliers of an answer with those of linear rows taken from pairs."""
        found, at = list(exact.prices), 0
        for follower, prices in zip(self.model.followers, pairs.prices, strict=True):
            for constraint in follower.constraints:
                rows = follower.program.constraints.get(constraint.id)
                if prices is not None and rows is not None:
                    found[at] = (np.reshape(prices[rows.slice], constraint.shape, order="F"),)
                for one in self.model.price_variables:
                    if prices is not None and one.constraint is constraint:
                        found[at] = one.told(prices[self.model.priced[one.id].rows.slice])
                at += 1
        return tuple(found)

    def residuals(self, exact: Exact) -> Iterator[Residual]:
        """Stationarity, feasibility and complementarity of every follower, from the numbers that CVXPY gives a solver.

        An answer that was chosen among several in the leader's favour is measured by its value instead. The user's
        variables must hold the answer.
        """
        for index, (problem, one, lower) in enumerate(
            zip(self.problems, self.model.followers, exact.lower, strict=True)
        ):
            data, _, _ = problem.get_problem_data(cp.CLARABEL)
            numbers, cones = _numbers(data), _sizes(data["dims"])
            found = _raw(problem)[0]
            prices = None if exact.pairs is None else exact.pairs.prices[index]
            if exact.pairs is not None and prices is not None:
                found = measured(numbers, cones, Outcome.SOLVED, exact.pairs.answers[index], prices)
            chosen = abs(float(np.asarray(one.objective.value)) - lower)
            broken = max(map(_violated, one.constraints), default=0.0)
            told = (found.stationarity, max(found.feasibility, broken), max(found.complementarity, chosen))
            units = scaled(numbers, cones)
            own = measured(units.numbers, cones, found.outcome, found.z / units.columns, found.prices / units.rows)
            worst = max(own.stationarity, own.feasibility, own.complementarity, chosen / units.objective)
            length = 1.0 + max(float(np.max(np.abs(value), initial=0.0)) for value in exact.values)
            small = worst <= EXACT * max(_size(own), 1.0 + abs(lower) / units.objective)
            yield Residual(told, small and broken <= EXACT * length)


def is_exact(residuals: Iterable[Residual]) -> bool:
    """Whether answers are the followers' own."""
    return all(one.is_exact for one in residuals)


def objective_unit(problem: cp.Problem) -> float:
    """The size of a follower's objective, in which it is judged: whoever counts in other units is told the same."""
    data, _, _ = problem.get_problem_data(cp.CLARABEL)
    return scaled(_numbers(data), _sizes(data["dims"])).objective


def _numbers(data: dict[str, Any]) -> Numbers:
    n = len(data["c"])
    quadratic = sp.csc_array(data["P"]) if data.get("P") is not None else sp.csc_array((n, n))
    return Numbers(quadratic, data["c"], 0.0, sp.csc_array(-data["A"]), data["b"])


def _sizes(dims: Any) -> ConeSizes:
    return ConeSizes(dims.zero, dims.nonneg, tuple(dims.soc), tuple(dims.psd), dims.exp, tuple(dims.p3d))


def _violated(constraint: cp.Constraint) -> float:
    return float(np.max(np.abs(constraint.violation()), initial=0.0))


def _prices_of(constraint: cp.Constraint) -> tuple[Any, ...]:
    """Multipliers of a constraint; those of a second-order or an exponential cone have several parts."""
    values = (one.value for one in constraint.dual_variables)
    return tuple(None if value is None else np.array(value) for value in values)


def _raw(
    problem: cp.Problem,
    accuracy: float = _TIGHT,
    *,
    inside: bool = False,
    sharply: bool = True,
    solver: SolverName = "clarabel",
) -> tuple[ConeAnswer, tuple[Any, Any]]:
    """An answer of the numbers that CVXPY would give Clarabel, to the last digit, and CVXPY's way back.

    A value within 1e-10 of the best leaves answers off by as much as 1e-5. Where the conditions of an optimum are
    regular, Newton's method meets them to rounding; residuals tell whether it did.
    """
    data, chain, inverse = problem.get_problem_data(cp.CLARABEL, solver_opts={})
    numbers, cones = _numbers(data), _sizes(data["dims"])
    linear = cones.is_linear and numbers.quadratic.count_nonzero() == 0
    vertex = linear and not inside  # close to a tie only vertices are exact
    found = solve(numbers, cones, accuracy, "highs" if vertex else solver)
    return (sharpened(numbers, cones, found) if found.is_usable and sharply else found), (chain, inverse)


def second_value(problem: cp.Problem) -> tuple[float | None, str]:
    """The value by another solver than the runs', whose answer is left in the user's objects, and how it ended.

    Only an answer with small residuals is believed, whatever its solver says.
    """
    found, way_back = _raw(problem, USUAL, solver="second")
    if not found.is_usable:
        return None, found.outcome.value
    problem.unpack_results(Told(found.z, found.prices, "Solved", found.value), *way_back)
    return float(np.asarray(problem.objective.value)), "another solver"


def solved(problem: cp.Problem, *, inside: bool = False, sharply: bool = True) -> tuple[bool, bool]:
    """Leave the answer in the user's objects; whether there is one, and whether it is one to the last digit."""
    for accuracy in (_TIGHT, USUAL):  # the accuracy asked for cannot always be had
        found, way_back = _raw(problem, accuracy, inside=inside, sharply=sharply)
        if found.is_usable:
            break
    else:
        return False, False
    sharp = max(found.stationarity, found.feasibility, found.complementarity) <= SHARP * _size(found)
    problem.unpack_results(Told(found.z, found.prices, "Solved", found.value), *way_back)
    return bool(problem.status == cp.OPTIMAL), sharp


def _size(found: ConeAnswer) -> float:
    """The size of an answer, its multipliers and its value: what rounding errors are relative to."""
    parts = (found.z, found.prices, np.array([found.value]))
    return 1.0 + max(float(np.max(np.abs(part), initial=0.0)) for part in parts)
