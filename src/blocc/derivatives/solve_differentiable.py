"""``solve`` as a part of a larger JAX program: the answer as a differentiable function of the data."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Float, PyTree
from blocc._lib.callbacks import call_back
from blocc._lib.precision import double_precision
from blocc._lib.tracing import is_traced
from blocc.derivatives.arguments import data_of, need_double_precision
from blocc.derivatives.implicit import ActiveSet, KKTPoint, spoil
from blocc.derivatives.leader import FlatAnswer, RegularAnswer, differentiable_answer, leader_rows, regular_answer
from blocc.errors import OptionError, SensitivityError
from blocc.flat_problem import FlatProblem
from blocc.options import OptionNumbers
from blocc.presets import make_options
from blocc.problem import BilevelProblem
from blocc.run.single import Callback, Report
from blocc.solve import solve, start_in


class DifferentiableAnswer(NamedTuple):
    """The answer of a solve; a pytree of arrays, all NaN where the run did not converge."""

    x: PyTree
    y: PyTree
    value: Float[AnyArray, "*batch"]  #: f(x, y)


def solve_differentiable(
    problem: BilevelProblem,
    data: PyTree,
    x0: PyTree | None = None,
    *,
    preset: str = "default",
    callback: Callback | None = None,
    progress: bool | Report | None = False,
    **options: Unpack[OptionNumbers],
) -> DifferentiableAnswer:
    """Solve ``problem.with_data(data)`` from ``x0``, as a function of the data that JAX can differentiate.

    It may be used inside ``jax.grad``, ``jax.jit``, ``jax.vmap`` (one solve after the other) and the other
    transformations, with 64-bit floats enabled there. What is given by name is as in :func:`~blocc.solve.solve`. A run
    that does not converge returns NaN, and a ``RuntimeWarning`` says why. At a regular answer x is refined to full
    accuracy. Elsewhere all derivatives are NaN; ``solve(...).sensitivity(problem)`` says why.
    """
    if not isinstance(problem, BilevelProblem):
        raise OptionError(f"problem must be a BilevelProblem, got {type(problem).__name__}")
    problem.renew()
    problem = problem.lifted
    start_in(problem, x0)
    make_options(preset, dict(options))
    settings = {"preset": preset, "callback": callback, "progress": progress, **options}

    def run(numbers: PyTree) -> RegularAnswer:
        return _solved(problem.with_data(jax.tree.map(np.asarray, numbers)), x0, settings)

    traced = is_traced(data)
    if traced:
        need_double_precision("solve_differentiable")
    with nullcontext() if traced else double_precision():
        numbers = data_of(problem, data)
        known = _known(run, _shapes(problem.flat), numbers)
        found = problem.flat.once(_traceable)(known, numbers)
        x, y, value = found if traced else jax.device_get(found)
        return DifferentiableAnswer(problem.x_set.unravel(x), problem.y_set.unravel(y), value)


def _traceable(flat: FlatProblem) -> Callable[[RegularAnswer, PyTree], FlatAnswer]:
    """The answer with its derivatives in the data, traced once, wherever it is used."""
    return jax.jit(lambda known, data: spoil(differentiable_answer(flat, known, data), known.regular))


def _known(run: Callable[[PyTree], RegularAnswer], shapes: RegularAnswer, data: PyTree) -> RegularAnswer:
    """``run(data)`` as a constant of the data: here and now where they are numbers, otherwise by a callback."""

    @jax.custom_jvp
    def solved(data: PyTree) -> RegularAnswer:
        return call_back(run, shapes, data) if is_traced(data) else jax.tree.map(jnp.asarray, run(data))

    @solved.defjvp
    def rule(primals: tuple[PyTree], tangents: tuple[PyTree]) -> tuple[RegularAnswer, RegularAnswer]:
        known = solved(*primals)
        return known, jax.tree.map(jnp.zeros_like, known)

    return solved(data)


def _shapes(flat: FlatProblem) -> RegularAnswer:
    """The shapes of all numbers of an answer."""

    def numbers(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, np.float64)

    levels: list[Any] = []
    for size, rows in ((flat.n_x, flat.once(leader_rows)), (flat.n_y, flat.follower_rows)):
        levels += [KKTPoint(numbers(size), *map(numbers, rows)), ActiveSet(numbers(rows[0]), numbers(size), numbers())]
    return RegularAnswer(*levels)


def _solved(problem: BilevelProblem, x0: PyTree | None, settings: dict[str, Any]) -> RegularAnswer:
    """One solve, its answer refined where it is regular."""
    result = solve(problem, x0, **settings)
    try:
        return jax.tree.map(np.asarray, regular_answer(problem, result))
    except SensitivityError:
        pass
    flat = problem.flat
    known = jax.tree.map(lambda leaf: np.zeros(leaf.shape), _shapes(flat))
    x, y = flat.x_set.ravel(result.x), flat.y_set.ravel(result.y)
    if not result.success:
        warnings.warn(f"solve_differentiable returns NaN: {result.message}", RuntimeWarning, stacklevel=2)
        x, y = np.full_like(x, np.nan), np.full_like(y, np.nan)
    return known._replace(leader=known.leader._replace(z=x), follower=known.follower._replace(z=y))
