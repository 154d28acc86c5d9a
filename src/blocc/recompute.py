"""Every number that a result claims, computed once more from the problem's functions, by other means where they exist.

Residuals come from plain derivatives. The lower level is solved by SciPy where it is small. F_gamma is evaluated from a
cold start, by an oracle other than the one that produced the result as long as that one is accurate enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from blocc.inner.auto import DENSE_LAST, general_oracles
from blocc.inner.interior_point import InteriorPoint
from blocc.inner.pdhg import PrimalDualHybridGradient
from blocc.inner.protocol import InnerOracle
from blocc.lagrangian import weights
from blocc.outer import continuation, kinks, walls
from blocc.outer.continuation import Goal
from blocc.outer.function import PenaltyFunction
from blocc.outer.monitor import Monitor, Stop, inner_residual
from blocc.outer.stage import measure
from blocc.penalty import Evaluation, Leader
from blocc.problem import BilevelProblem, FlatProblem
from blocc.scaling import Units
from blocc.sets import Box

Array = Any

#: Up to this many of the follower's variables SciPy solves the lower level.
SCIPY_LARGEST = 50
#: Seconds for a descent that tests an answer.
PROBE_SECONDS = 20.0
_STARTS = 4
_DRAWS = 6
_ROWS = ("inequality", "equality", "upper_inequality")


class Kkt(NamedTuple):
    """Residuals of (y, mu, nu) for the follower's own problem, and how much rounding may blur them."""

    stationarity: float
    feasibility: float
    complementarity: float
    noise: float


def kkt(flat: FlatProblem, x: np.ndarray, y: np.ndarray, inequality: np.ndarray, equality: np.ndarray) -> Kkt:
    """The residuals, by the definitions in :class:`~blocc.result.Certificate`."""
    at_x, at_y = jnp.asarray(x), jnp.asarray(y)
    slope = np.asarray(jax.grad(lambda z: flat.lower(at_x, z))(at_y))
    held, pull = jax.vjp(lambda z: (flat.inequality(at_x, z), flat.equality(at_x, z)), at_y)
    push = np.asarray(pull((jnp.asarray(inequality), jnp.asarray(equality)))[0])
    project = lambda point: np.asarray(flat.y_set.project_flat(jnp.asarray(point)))  # noqa: E731
    inside = project(y)
    step = inside - project(inside - slope - push)
    violated, missed = np.asarray(held[0]), np.asarray(held[1])
    slack = np.maximum(-violated, 0.0)
    feasibility = max(_largest(np.maximum(violated, 0.0)), _largest(missed), _largest(inside - y))
    complementarity = max(_largest(np.minimum(inequality, slack)), _largest(np.maximum(-inequality, 0.0)))
    terms = (slope, push, y, inequality, equality, violated, missed)
    return Kkt(_largest(step), feasibility, complementarity, 1e-12 * (1.0 + sum(_largest(term) for term in terms)))


def _largest(vector: np.ndarray) -> float:
    return float(np.max(np.abs(vector), initial=0.0))


def in_units(problem: BilevelProblem, units: Units) -> BilevelProblem:
    """The problem over flat vectors with ``x = units.x * z``, ``y = units.y * w`` and functions times their units."""
    flat = problem.flat
    for name, size in (("x", flat.n_x), ("y", flat.n_y), *((row, getattr(flat, f"n_{row}")) for row in _ROWS)):
        if getattr(units, name).shape != (size,):
            raise ValueError(f"{name} needs {size} units")
    if not all(np.isfinite(part).all() and (part > 0.0).all() for part in units):
        raise ValueError("units must be positive")

    def scaled(name: str) -> Any:
        function, unit = getattr(flat, name), getattr(units, name)
        return lambda x, y: function(units.x * x, units.y * y) * unit

    sets = [(flat.x_set.bounds_flat(), units.x), (flat.y_set.bounds_flat(), units.y)]
    x_set, y_set = (Box(low / unit, high / unit) for (low, high), unit in sets)
    rows = {name: scaled(name) for name in _ROWS if getattr(flat, f"n_{name}")}
    return BilevelProblem(upper=scaled("upper"), lower=scaled("lower"), x_set=x_set, y_set=y_set, **rows)


# --- the lower level -------------------------------------------------------------------------------------------------
class Below(NamedTuple):
    """An independent solution of the lower level."""

    value: float  #: the smallest g found
    violation: float  #: of that point
    solver: str


def solve_below(flat: FlatProblem, x: np.ndarray, y: np.ndarray) -> Below | None:
    """Minimise g(x, .) afresh: by SciPy from several starts, or by an oracle from a cold one; None if none succeeds."""
    found = _by_scipy(flat, x, y) if flat.n_y <= SCIPY_LARGEST else None
    if found is not None:
        return found
    for oracle in general_oracles(flat):
        solve = jax.jit(lambda point, o=oracle: o.solve(flat, point, weights(flat), o.cold(flat), jnp.asarray(1e-10)))
        solution = jax.device_get(solve(jnp.asarray(x))._replace(warm=()))
        size = 1.0 + _largest(solution.y)
        if max(float(r) for r in solution.residuals) <= 1e-6 * size:
            value = float(flat.lower(jnp.asarray(x), jnp.asarray(solution.y)))
            return Below(value, float(solution.residuals.feasibility), _name(oracle))
    return None


def _by_scipy(flat: FlatProblem, x: np.ndarray, y: np.ndarray) -> Below | None:
    at_x, within = jnp.asarray(x), flat.y_set
    value = jax.jit(jax.value_and_grad(lambda z: flat.lower(at_x, z)))
    inequality = jax.jit(lambda z: -jnp.concatenate([flat.inequality(at_x, z), within.inequality_flat(z)]))
    equality = jax.jit(lambda z: jnp.concatenate([flat.equality(at_x, z), within.equality_flat(z)]))
    constraints = []
    for kind, function in (("ineq", inequality), ("eq", equality)):
        if jax.eval_shape(function, jnp.asarray(y)).size:
            slopes = jax.jit(jax.jacrev(function))
            constraints.append(
                {
                    "type": kind,
                    "fun": lambda z, f=function: np.asarray(f(jnp.asarray(z))),
                    "jac": lambda z, f=slopes: np.asarray(f(jnp.asarray(z))),
                }
            )

    def objective(z: np.ndarray) -> tuple[float, np.ndarray]:
        height, slope = value(jnp.asarray(z))
        return float(height), np.asarray(slope)

    low, high = within.bounds_flat()
    generator = np.random.default_rng(0)
    best: Below | None = None
    for start in (within.interior_flat(), y, *(within.sample_flat(generator) for _ in range(_STARTS))):
        ended = minimize(
            objective,
            np.clip(start, low, high),
            jac=True,
            method="SLSQP",
            bounds=list(zip(low, high, strict=True)),
            constraints=constraints,
            options={"ftol": 1e-14, "maxiter": 500},
        )
        point = np.clip(ended.x, low, high)
        if not np.isfinite(point).all():
            continue
        short = max([float(-inequality(point).min(initial=0.0)), _largest(np.asarray(equality(point)))])
        height = objective(point)[0]
        feasible = short <= 1e-7 * (1.0 + _largest(point))
        if feasible and np.isfinite(height) and (best is None or height < best.value):
            best = Below(height, max(short, 0.0), "SciPy's SLSQP")
    return best


# --- the penalty function --------------------------------------------------------------------------------------------
def _name(oracle: InnerOracle) -> str:
    return type(oracle).__name__


class Penalty(NamedTuple):
    """F_gamma at the result's x."""

    evaluation: Evaluation
    function: PenaltyFunction
    solver: str


def _oracles(problem: BilevelProblem, used: Any) -> Sequence[InnerOracle]:
    """Oracles for the second opinion: those that were not used first, the one that was last."""
    flat = problem.flat
    general = list(general_oracles(flat))
    if problem.oracle is not None:
        size = flat.n_y + flat.n_inequality + flat.n_equality
        return (*(general if size <= DENSE_LAST else ()), problem.oracle)
    first: type = PrimalDualHybridGradient if isinstance(general[0], InteriorPoint) else InteriorPoint
    if used == "pdhg":
        first = InteriorPoint
    elif used not in ("auto", "interior-point"):
        first = type(general[0])
    return sorted(general, key=lambda oracle: not isinstance(oracle, first))


def penalty_at(
    problem: BilevelProblem, x: np.ndarray, gamma: float, leader: Leader, goal: Goal, used: Any
) -> Penalty | None:
    """F_gamma at x from a cold start; None where the lower level cannot be solved accurately enough."""
    last: Penalty | None = None
    for oracle in _oracles(problem, used):
        function = PenaltyFunction(problem.flat, (oracle,), problem.cache, Monitor(problem.x_set.unravel))
        found = function(x, gamma, leader, max(goal.inner(gamma, final=True), getattr(oracle, "finest", 0.0)))
        if not found.usable:
            continue
        # gamma magnifies what the inner solutions leave over.
        if max(gamma, 1.0) * inner_residual(found) <= 0.1 * goal.slope(found, goal.tolerance):
            return Penalty(found, function, _name(oracle))
        if last is None or inner_residual(found) < inner_residual(last.evaluation):
            last = Penalty(found, function, _name(oracle))
    return last


class Slope(NamedTuple):
    """How far x is from stationary, and how that was found out."""

    size: float
    how: str


def slope_at(penalty: Penalty, leader: Leader, goal: Goal, radius: float) -> Slope:
    """Stationarity of x for F_gamma: by the gradient at x or, where ``radius`` is given, by those around it."""
    e, function = penalty.evaluation, penalty.function
    plain = measure(function, e)
    wanted = goal.slope(e, goal.tolerance)
    if plain <= wanted or radius == 0.0 or e.x.size > walls.LARGEST_DIMENSION:
        return Slope(plain, f"{penalty.solver}, cold start")
    size = 1.0 + _largest(e.x)
    best = Slope(plain, f"{penalty.solver}, cold start")
    accuracy = goal.inner(float(e.gamma), final=True)
    for factor in (1.0, 10.0, 100.0):
        within = min(factor * radius, 1e-3 * size)
        length = kinks.stationarity_within(function, e, leader, accuracy, within, wanted, _DRAWS)
        if length < best.size:
            best = Slope(length, f"{penalty.solver}, gradients within {within:.0e}")
        if length <= wanted:
            break
    return best


def gain_at(penalty: Penalty, leader: Leader, goal: Goal) -> Slope:
    """What a short descent of F_gamma from x still gains: the test for methods that know no gradient of F_gamma."""
    e, function = penalty.evaluation, penalty.function
    function.monitor.time_limit = function.monitor.elapsed() + PROBE_SECONDS
    short = replace(goal, max_iterations=20)
    try:
        reached, _ = continuation.minimise(function, e, leader, short, fixed_gamma=True)
    except Stop:
        return Slope(np.inf, f"no answer within {PROBE_SECONDS:g} s")
    return Slope(max(float(e.value) - float(reached.evaluation.value), 0.0), "what a descent from x gains")
