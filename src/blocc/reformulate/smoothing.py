"""Functions with kinks, made smooth: ``abs``, ``maximum``, ``minimum``, ``where`` and ``relu`` with rounded corners.

A Newton method below and gradients above need derivatives that do not jump. ``abs(z)`` becomes
``sqrt(z^2 + e^2) - e``, the larger of two numbers the mean of their sum and the rounded distance between them, and a
choice by a comparison the larger or the smaller of its branches. For convex functions that is convex again, and below
the function by at most a few ``e``: a constraint is relaxed by as much. The width ``e`` is an argument of the compiled
program, so that solvers may come from wide corners to sharp ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, PyTree
from blocc._lib.precision import double_precision
from blocc.corners import FUNCTIONS, Corner, Kink, leader_sides, named, program_of, run
from blocc.flat_problem import FlatProblem
from blocc.lagrangian import figures, zero_multipliers
from blocc.problem import BilevelProblem
from blocc.result import Result

#: Widths of the corners: the last is what an answer is computed with, the others lead there.
WIDTHS = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)


def _rounded(width: AnyArray) -> Corner:
    """Corners of a width."""

    def distance(z: AnyArray) -> AnyArray:
        return jnp.sqrt(z * z + width * width) - width

    def corner(kink: Kink) -> AnyArray:
        first, second = kink.pieces
        if kink.kind == "abs":
            return distance(first)
        apart = first - second
        larger: AnyArray | float = -1.0 if kink.kind == "min" else 1.0
        if kink.kind == "where":  # branches that meet at the switch are the larger or the smaller of the two around it
            larger = jax.lax.stop_gradient(jnp.where(apart * kink.side < 0.0, -1.0, 1.0))
        return 0.5 * (first + second + larger * distance(apart))

    return corner


class _Smoothed(BilevelProblem):
    """A problem whose data are those of another one and the width of the corners."""

    sharp: Callable[[PyTree], FlatProblem]  #: the other one, over its data

    def _flat_over(self, data: PyTree) -> FlatProblem:
        def easier(sharp: PyTree) -> list[PyTree]:
            return [(sharp[0], np.asarray(width)) for width in WIDTHS[:-1]]

        return replace(super()._flat_over(data), easier=easier, sides=partial(leader_sides, self.sharp(data[0])))


def smoothed(problem: BilevelProblem) -> BilevelProblem:
    """The same problem with corners as wide as the last of ``WIDTHS``; x, y and multipliers keep their structure."""
    data = (() if problem.data is None else problem.data, np.asarray(WIDTHS[-1]))
    made: BilevelProblem = problem.shared.store.get((_Smoothed,), lambda: _with_round_corners(problem, data))
    return made.with_data(data)


def _with_round_corners(problem: BilevelProblem, data: PyTree) -> BilevelProblem:
    def rounded(name: str) -> Callable[..., Any] | None:
        if getattr(problem, name) is None:
            return None
        program = program_of(problem, name)

        def smooth(x: PyTree, y: PyTree, data: PyTree) -> PyTree:
            given, width = data
            return run(program, _rounded(width), x, y, *(() if problem.data is None else (given,)))

        return smooth

    made = _Smoothed(
        **{name: rounded(name) for name in FUNCTIONS},  # type: ignore[arg-type]
        x_set=problem.x_set,
        y_set=problem.y_set,
        lower_terms=[term.over(lambda data: data[:1] * (problem.data is not None)) for term in problem.lower_terms],
        data=data,
        name=problem.name,
    )
    object.__setattr__(made, "sharp", problem.flat.bind)
    return made


def invert_smoothing(problem: BilevelProblem, result: Result, kinks: dict[str, set[str]]) -> Result:
    """A result of the problem with rounded corners, with the values of the user's own functions."""
    flat = problem.flat
    with double_precision():
        x, y, y_penalty = (
            within.ravel(point)
            for within, point in (
                (problem.x_set, result.x),
                (problem.y_set, result.y),
                (problem.y_set, result.y_penalty),
            )
        )
        told = figures(flat, x, y, zero_multipliers(flat))
        penalised = figures(flat, x, y_penalty, zero_multipliers(flat))
    upper, gap = float(told.upper), 0.0
    if 0.0 < result.gamma < np.inf:  # of the functions themselves: times gamma, rounded corners are no small matter
        gap = upper - float(penalised.upper) + result.gamma * float(told.lower - penalised.lower)
    certificate = replace(
        result.certificate,
        penalty_gap=gap,
        leader_violation=float(np.max(told.upper_inequality, initial=0.0)),
    )
    return replace(
        result,
        upper_value=upper,
        lower_value=float(told.lower),
        upper_value_penalty=float(penalised.upper),
        certificate=certificate,
        message=f"{result.message} Corners were rounded off by {WIDTHS[-1]:.0e}: {named(kinks)}.",
    )
