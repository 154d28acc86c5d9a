"""The follower's answer at any x, with derivatives, for use inside larger JAX programs: ``lower_level``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from blocc._lib.arrays import AnyArray, Array, Bool, Float, Int, PyTree
from blocc._lib.precision import double_precision
from blocc._lib.tracing import is_traced
from blocc.corners import kinks_of, named
from blocc.derivatives.arguments import data_of, flat_point, need_double_precision, need_problem
from blocc.derivatives.danskin import spoil_unsettled
from blocc.derivatives.implicit import (
    Examined,
    KKTPoint,
    ParametricProgram,
    examine,
    fit_multipliers,
    follow,
    lagrangian,
    newton_step,
    spoil,
)
from blocc.errors import ProblemError
from blocc.flat_problem import FlatProblem
from blocc.inner.choice import choose_oracles
from blocc.inner.protocol import InnerCode, InnerOracle, InnerSolution
from blocc.lagrangian import Multipliers, Residuals, residuals, weights
from blocc.problem import BilevelProblem
from blocc.reformulate.epigraph import EpigraphForm, epigraph_form

_TOLERANCE = 1e-11  #: asked of the oracle; a few Newton steps do the rest
_TOUCHED = 1e-6  #: rows with no more slack than this, relative to their size, may have a price
_NEWTON = 3


class LowerLevel(NamedTuple):
    """The follower's answer at one x. A pytree of arrays: it passes through ``jax.jit`` and ``jax.vmap``.

    ``y``, ``multipliers`` and ``value`` are NaN where there is no answer; ``code`` says why. Where y(x) has no
    derivative, ``regular`` is False and all derivatives of ``y`` and ``multipliers`` are NaN; so are those of ``value``
    in numbers in which they are not the same for all answers and all multipliers there.
    """

    y: PyTree  #: in the structure of ``y_set``
    multipliers: Multipliers  #: prices of gc and h, in the structure that the constraint functions return
    value: Float[AnyArray, "*batch"]  #: g(x, y)
    regular: Bool[AnyArray, "*batch"]  #: whether y and the multipliers have derivatives here
    residuals: Residuals  #: of y and the multipliers
    code: Int[AnyArray, "*batch"]  #: an :class:`~blocc.inner.protocol.InnerCode`; 0 is an answer


def lower_level(problem: BilevelProblem, x: PyTree, data: PyTree | None = None) -> LowerLevel:
    """The follower's answer at ``x``, for the problem's own data or for ``data``.

    It may be used inside ``jax.jit``, ``jax.vmap``, ``jax.grad`` and the other transformations, with 64-bit floats
    enabled there; called with plain numbers it needs no setting and returns NumPy's arrays. Derivatives of y and of the
    multipliers, in x and in data, come from the implicit function theorem, that of the value is Danskin's.
    """
    need_problem(problem)
    problem.renew()
    problem = problem.lifted
    exact = _without_kinks(problem)
    target = problem if exact is None else exact.problem
    traced = is_traced(x, data)
    if traced:
        need_double_precision("lower_level")
    with nullcontext() if traced else double_precision():
        flat, point, numbers = target.flat, flat_point(problem, x), data_of(problem, data)
        oracle = choose_oracles(target, "auto")[0]
        if traced:
            found = flat.once(_traceable, oracle)(numbers, point)
        else:
            found = flat.bind(numbers).program(_answer, oracle)(point)
        prices = found.multipliers.inequality
        return LowerLevel(
            problem.y_set.unravel(found.y[: problem.flat.n_y]),
            Multipliers(
                problem.unravel_multipliers("inequality", prices if exact is None else exact.merged(prices)),
                problem.unravel_multipliers("equality", found.multipliers.equality),
            ),
            *found[2:],
        )


def _without_kinks(problem: BilevelProblem) -> EpigraphForm | None:
    """The follower in epigraph form; None where it has none. Only then do its derivatives tell the truth."""
    kinks = {name: kinds for name, kinds in kinks_of(problem).items() if name in ("lower", "inequality", "equality")}
    if not kinks:
        return None
    found = epigraph_form(problem)
    if found is None:
        raise ProblemError(
            f"lower_level needs a follower without kinks, or with convex ones that have an epigraph form: "
            f"{named(kinks)}. Write them as further variables and constraints of the follower's, or as lower_terms"
        )
    return found


def _traceable(flat: FlatProblem, oracle: InnerOracle) -> Callable[[PyTree, Array], LowerLevel]:
    """The answer as a function of data and x that is traced once, wherever it is used.

    It has two parts, because what is not differentiated is then compiled once for all transformations.
    """
    first = jax.jit(lambda data, x: solve_follower(flat.bind(data), oracle, x))
    second = jax.jit(lambda data, x, reply: _differentiable(flat.bind(data), x, reply))
    return lambda data, x: second(data, x, first(*lax.stop_gradient((data, x))))


def follower_program(flat: FlatProblem) -> ParametricProgram:
    """The follower's problem with p = (x, data). It takes its data from p alone."""
    low, high = flat.y_set.bounds_flat()

    def inequality(y: Array, p: PyTree) -> Array:
        return jnp.concatenate([flat.bind(p[1]).inequality(p[0], y), flat.y_set.inequality_flat(y)])

    def equality(y: Array, p: PyTree) -> Array:
        return jnp.concatenate([flat.bind(p[1]).equality(p[0], y), flat.y_set.equality_flat(y)])

    return ParametricProgram(lambda y, p: flat.bind(p[1]).lower(p[0], y), inequality, equality, low, high)


class Response(NamedTuple):
    """The follower's answer as the oracle left it, and the same refined by Newton steps and examined."""

    solution: InnerSolution
    examined: Examined


def solve_follower(flat: FlatProblem, oracle: InnerOracle, x: Float[Array, "n_x"]) -> Response:
    """Solve the lower level at x and look at it closely; nothing of this is differentiated."""
    tolerance = jnp.asarray(max(_TOLERANCE, oracle.finest))
    solution = oracle.solve(flat, x, weights(flat), oracle.cold(flat), tolerance)
    program, p = follower_program(flat), (x, flat.data)
    point = fit_multipliers(program, solution.y, p, flat.follower_rows, _TOUCHED)
    point = lax.fori_loop(0, _NEWTON, lambda _, point: newton_step(program, point, p), point)
    return Response(solution, examine(program, point, p))


def _answer(flat: FlatProblem, oracle: InnerOracle, x: Float[Array, "n_x"]) -> LowerLevel:
    return _differentiable(flat, x, solve_follower(flat, oracle, x))


def _differentiable(flat: FlatProblem, x: Float[Array, "n_x"], reply: Response) -> LowerLevel:
    """The follower's answer over flat vectors as a differentiable function of x and of the data."""
    solution, examined = reply
    regular = examined.active.regular > 0.0
    # Where the answer is not regular, Newton's method proves nothing, and the oracle's own answer stands.
    pad = lambda prices, refined: jnp.concatenate([prices, jnp.zeros(refined.size - prices.size)])  # noqa: E731
    given = KKTPoint(
        jnp.asarray(solution.y),
        pad(solution.multipliers.inequality, examined.point.inequality),
        pad(solution.multipliers.equality, examined.point.equality),
    )
    point = jax.tree.map(lambda refined, own: jnp.where(regular, refined, own), examined.point, given)
    program, p = follower_program(flat), (x, flat.data)
    point = follow(program, point, examined.active, p)
    value = program.objective(lax.stop_gradient(point.z), lax.stop_gradient(p))
    slope = lagrangian(program, point, spoil_unsettled(program, point, p, regular))
    value = value + (slope - lax.stop_gradient(slope))  # the value is g, its derivative that of the Lagrangian
    n_c, n_e = flat.n_inequality, flat.n_equality
    multipliers = Multipliers(point.inequality[:n_c], point.equality[:n_e])
    found = lax.stop_gradient(residuals(flat, x, point.z, multipliers, weights(flat)))
    solved = regular | (solution.code == InnerCode.CONVERGED)
    # Added, because a constant in their place would have the derivative zero.
    nothing = jnp.where(solved, 0.0, jnp.nan)
    told = jax.tree.map(lambda part: part + nothing, (point.z, multipliers, value))
    y, multipliers = spoil(told[:2], regular)
    value = spoil(told[2], solved)
    code = jnp.where(solved, int(InnerCode.CONVERGED), solution.code)
    return LowerLevel(y, multipliers, value, regular, found, code)
