"""One cone program, solved in units of its own: by Clarabel, or by HiGHS where it is linear; and how good an answer is.

The residuals are computed here from the numbers of the program, not taken from a solver.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal, NamedTuple

import clarabel
import numpy as np
import scipy.sparse as sp

from blocc._lib.arrays import Float, NDArray
from blocc._lib.rounding import TINY
from blocc.cvxpy.alternatives import elastic, rays
from blocc.cvxpy.cone_program import ConeSizes, Numbers
from blocc.cvxpy.scaling import scaled
from blocc.cvxpy.second_solver import second_point

SolverName = Literal["auto", "clarabel", "highs", "second"]


class Outcome(Enum):
    """How a solver ended."""

    SOLVED = "solved"
    INACCURATE = "inaccurate"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    FAILED = "failed"


class ConeAnswer(NamedTuple):
    """An answer with its multipliers and what is wrong with them."""

    outcome: Outcome
    z: Float[NDArray, " n"]
    prices: Float[NDArray, " m"]  #: multipliers of ``Az + b in K``, members of the dual cone
    value: float
    stationarity: float
    feasibility: float
    complementarity: float
    iterations: int

    @property
    def is_usable(self) -> bool:
        """Whether there is an answer to work with."""
        return self.outcome in (Outcome.SOLVED, Outcome.INACCURATE)


_CLARABEL = {
    "Solved": Outcome.SOLVED,
    "AlmostSolved": Outcome.INACCURATE,
    "InsufficientProgress": Outcome.INACCURATE,
    "PrimalInfeasible": Outcome.INFEASIBLE,
    "AlmostPrimalInfeasible": Outcome.INFEASIBLE,
    "DualInfeasible": Outcome.UNBOUNDED,
    "AlmostDualInfeasible": Outcome.UNBOUNDED,
}
#: Columns from which HiGHS was faster than Clarabel on sparse random linear programs.
LARGE_LINEAR = 300
#: Residuals, relative to the sizes of the terms, below which an answer that the solver is unsure of is used.
_CLOSE = 1e-6
#: Size of numbers that a solver gives up at: products of more would overflow.
_ENDLESS = 1e100
#: Accuracy of the programs that are asked whether there is no answer.
_CONFIRMED = 1e-8


def solve(numbers: Numbers, cones: ConeSizes, tolerance: float, solver: SolverName = "auto") -> ConeAnswer:
    """Solve to ``tolerance``, relative to the program's size; ``auto``: large linear programs by HiGHS.

    ``second``: by HiGHS or SCS, and by Clarabel only where these find no answer whose residuals are small.
    That there is no answer is claimed only if another program, which has one, says so too.
    """
    units = scaled(numbers, cones)
    own = units.numbers
    linear = cones.is_linear and own.quadratic.count_nonzero() == 0
    large = solver == "auto" and linear and len(own.linear) >= LARGE_LINEAR
    highs_first = solver == "highs" or large or (solver == "second" and linear)
    if solver == "second" and not linear:
        found = _by_another(own, cones)
    else:
        found = _by_highs(own, cones) if highs_first else _by_clarabel(own, cones, tolerance)
    if not found.is_usable and not _is_confirmed(found.outcome, own, cones):
        other = _by_highs(own, cones) if linear and not highs_first else _by_clarabel(own, cones, tolerance)
        agreed = other.is_usable or _is_confirmed(other.outcome, own, cones)
        found = other if agreed else without_answer(own, Outcome.FAILED, found.iterations)
    if not found.is_usable:
        return without_answer(numbers, found.outcome, found.iterations)
    z, prices = units.z(found.z), units.prices(found.prices)
    answer = measured(numbers, cones, found.outcome, z, prices, found.iterations)
    if _close_enough(numbers, answer) is not Outcome.FAILED:
        return answer
    plain = _by_clarabel(numbers, cones, tolerance)  # a solution in the program's units, but not in the user's
    return plain if plain.is_usable else without_answer(numbers, Outcome.FAILED, plain.iterations)


def _is_confirmed(outcome: Outcome, numbers: Numbers, cones: ConeSizes) -> bool:
    """Whether there is no answer, by the least violation of the constraints or by the rays of the feasible set."""
    if outcome is Outcome.INFEASIBLE:
        found = _by_clarabel(*elastic(numbers, cones), _CONFIRMED)
        return found.is_usable and found.z[-1] > _CLOSE
    if outcome is Outcome.UNBOUNDED:
        found = _by_clarabel(*rays(numbers, cones), _CONFIRMED)
        return found.is_usable and found.value < -_CLOSE
    return False


def _by_clarabel(numbers: Numbers, cones: ConeSizes, tolerance: float) -> ConeAnswer:
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads, settings.max_iter = False, 1, 200
    settings.tol_feas = settings.tol_gap_abs = settings.tol_gap_rel = max(tolerance, 1e-12)
    settings.presolve_enable = False
    solution: Any = clarabel.DefaultSolver(
        sp.csc_matrix(sp.triu(numbers.quadratic, format="csc") if numbers.quadratic.nnz else numbers.quadratic),
        numbers.linear,
        sp.csc_matrix(-numbers.matrix),
        numbers.offset,
        _clarabel_cones(cones),
        settings,
    ).solve()
    outcome = _CLARABEL.get(str(solution.status), Outcome.FAILED)
    z, prices = np.asarray(solution.x), np.asarray(solution.z)
    if outcome in (Outcome.INFEASIBLE, Outcome.UNBOUNDED):
        return without_answer(numbers, outcome, int(solution.iterations))
    found = measured(numbers, cones, outcome, z, prices, int(solution.iterations))
    return found if outcome is Outcome.SOLVED else found._replace(outcome=_close_enough(numbers, found))


def _clarabel_cones(cones: ConeSizes) -> list[Any]:
    found: list[Any] = []
    if cones.zero:
        found.append(clarabel.ZeroConeT(cones.zero))
    if cones.nonnegative:
        found.append(clarabel.NonnegativeConeT(cones.nonnegative))
    found += [clarabel.SecondOrderConeT(size) for size in cones.second_order]
    found += [clarabel.PSDTriangleConeT(order) for order in cones.semidefinite]
    found += [clarabel.ExponentialConeT() for _ in range(cones.exponential)]
    return found + [clarabel.PowerConeT(exponent) for exponent in cones.power]


def _by_another(numbers: Numbers, cones: ConeSizes) -> ConeAnswer:
    point = second_point(numbers, cones)
    if point is None:
        return without_answer(numbers, Outcome.FAILED)
    found = measured(numbers, cones, Outcome.SOLVED, *point)
    return found if found.outcome is Outcome.FAILED else found._replace(outcome=_close_enough(numbers, found))


def _by_highs(numbers: Numbers, cones: ConeSizes) -> ConeAnswer:
    """A linear program by HiGHS (through SciPy): a vertex, and its prices."""
    import scipy.optimize

    assert cones.is_linear
    assert numbers.quadratic.count_nonzero() == 0
    equal = slice(0, cones.zero)
    above = slice(cones.zero, None)
    found: Any = scipy.optimize.linprog(
        numbers.linear,
        A_ub=-numbers.matrix[above],
        b_ub=numbers.offset[above],
        A_eq=numbers.matrix[equal],
        b_eq=-numbers.offset[equal],
        bounds=(None, None),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9},
    )
    outcome = {0: Outcome.SOLVED, 2: Outcome.INFEASIBLE, 3: Outcome.UNBOUNDED}.get(found.status, Outcome.FAILED)
    if outcome is not Outcome.SOLVED:
        return without_answer(numbers, outcome, int(found.nit or 0))
    prices = np.concatenate([found.eqlin.marginals, -found.ineqlin.marginals])
    return measured(numbers, cones, outcome, found.x, prices, int(found.nit))


def without_answer(numbers: Numbers, outcome: Outcome, iterations: int = 0) -> ConeAnswer:
    """No answer, and why."""
    z, prices = (np.full(len(part), np.nan) for part in (numbers.linear, numbers.offset))
    return ConeAnswer(outcome, z, prices, np.nan, np.inf, np.inf, np.inf, iterations)


def measured(
    numbers: Numbers,
    cones: ConeSizes,
    outcome: Outcome,
    z: Float[NDArray, " n"],
    prices: Float[NDArray, " m"],
    iterations: int = 0,
) -> ConeAnswer:
    """An answer with its value and residuals."""
    if not max(_largest(z), _largest(prices)) < _ENDLESS:
        return without_answer(numbers, Outcome.FAILED, iterations)
    slack = numbers.matrix @ z + numbers.offset
    curved = numbers.quadratic @ z
    value = float(numbers.linear @ z + 0.5 * z @ curved + numbers.constant)
    pull = numbers.matrix.T @ prices
    stationarity = _largest(numbers.linear + curved - pull)
    feasibility = max(outside(slack, cones), outside(prices, cones, dual=True))
    complementarity = abs(float(slack @ prices))
    return ConeAnswer(outcome, z, prices, value, stationarity, feasibility, complementarity, iterations)


def _close_enough(numbers: Numbers, found: ConeAnswer) -> Outcome:
    """What becomes of an answer that its solver is unsure of: used where its residuals are small."""
    curved, pull = numbers.quadratic @ found.z, numbers.matrix.T @ found.prices
    forces = 1.0 + max(_largest(numbers.linear), _largest(curved), _largest(pull))
    sizes = 1.0 + max(_largest(numbers.offset), _largest(found.z))
    small = found.stationarity <= _CLOSE * forces and found.feasibility <= _CLOSE * sizes
    small = small and found.complementarity <= _CLOSE * (1.0 + abs(found.value))
    return Outcome.INACCURATE if small else Outcome.FAILED


def _largest(vector: Float[NDArray, " n"]) -> float:
    return float(np.max(np.abs(vector), initial=0.0))


def outside(point: Float[NDArray, " m"], cones: ConeSizes, *, dual: bool = False) -> float:
    """How far a point is outside of K (of the dual cone), in the largest violation of any row or block."""
    worst, at = 0.0, cones.zero
    if not dual:
        worst = _largest(point[:at])
    worst = max(worst, float(np.max(-point[at : at + cones.nonnegative], initial=0.0)))
    at += cones.nonnegative
    for size in cones.second_order:
        worst = max(worst, float(np.linalg.norm(point[at + 1 : at + size]) - point[at]))
        at += size
    for order in cones.semidefinite:
        size = order * (order + 1) // 2
        worst = max(worst, -float(np.linalg.eigvalsh(triangle_matrix(point[at : at + size], order))[0]))
        at += size
    for _ in range(cones.exponential):
        worst = max(worst, _outside_exponential(point[at : at + 3], dual))
        at += 3
    for exponent in cones.power:
        worst = max(worst, _outside_power(point[at : at + 3], exponent, dual))
        at += 3
    return worst


def triangle_matrix(triangle: Float[NDArray, " size"], order: int) -> Float[NDArray, " order order"]:
    """The symmetric matrix whose upper triangle, column by column, has its entries off the diagonal times sqrt(2)."""
    columns, rows = np.tril_indices(order)
    entries = np.where(rows == columns, triangle, triangle / np.sqrt(2.0))
    matrix = np.zeros((order, order))
    matrix[rows, columns] = entries
    matrix[columns, rows] = entries
    return matrix


def _outside_exponential(point: Float[NDArray, " 3"], dual: bool) -> float:
    """Of ``y exp(x / y) <= z, y > 0``, or of ``x <= y log(z / y)`` where that is less; dual: ``-u exp(v / u) <= e w``.

    Either tells how far one coordinate is from a member; close to the edge ``y = 0`` the first is any number.
    """
    if dual:  # (u, v, w) is a member where (u - v, -u, w) is one of the cone itself
        point = np.array([point[0] - point[1], -point[0], point[2]])
    x, y, z = (float(part) for part in point)
    if y <= 0.0 or z <= 0.0:
        tiny = y <= TINY  # an exponent would overflow
        return max(-y, -z, 0.0, x if tiny else float(y * np.exp(min(x / y, 700.0))) - z)
    return max(0.0, min(float(y * np.exp(min(x / y, 700.0))) - z, x - y * float(np.log(z) - np.log(y))))


def _outside_power(point: Float[NDArray, " 3"], exponent: float, dual: bool) -> float:
    """Of ``x^a y^(1 - a) >= |z|, x, y >= 0``; dual: the same in ``x / a`` and ``y / (1 - a)``."""
    x, y, z = (float(part) for part in point)
    if dual:
        x, y = x / exponent, y / (1.0 - exponent)
    product = max(x, 0.0) ** exponent * max(y, 0.0) ** (1.0 - exponent)
    return max(-x, -y, abs(z) - product, 0.0)
