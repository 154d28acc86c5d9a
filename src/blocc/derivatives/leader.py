"""The leader's answer as a function of data: her problem with the follower's answer put in.

    minimise f(x, y(x, d), d)   over x in X   subject to   G(x, y(x, d), d) <= 0

Around a regular answer y(x, d) is smooth, so this is a program like the follower's own, one level up. A run ends within
its tolerance of the answer; Newton steps, with the follower solved again after each, go the rest of the way.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Array, Bool, Float, PyTree
from blocc._lib.precision import double_precision
from blocc.derivatives.implicit import (
    SOLVED,
    ActiveSet,
    Examined,
    Finding,
    KKTPoint,
    ParametricProgram,
    examine,
    fit_multipliers,
    follow,
    newton_step,
)
from blocc.derivatives.lower_level import follower_program, solve_follower
from blocc.errors import SensitivityError
from blocc.flat_problem import FlatProblem
from blocc.inner.choice import choose_oracles
from blocc.inner.protocol import InnerOracle
from blocc.problem import BilevelProblem
from blocc.result import Result

_TOUCHED = 1e-4  #: rows with no more slack than this, relative to their size, may have a price: a run is not exact
_NEWTON = 12
_MOVED = 1e-2  #: Newton steps that lead further away, relative to the size of x, have found another answer
_BELOW = {
    Finding.NOT_SOLVED: "the follower's answer could not be computed to full accuracy",
    Finding.NOT_STRICT: (
        "the follower touches a constraint without a price there (strict complementarity fails), so that y(x) may have "
        "a kink"
    ),
    Finding.DEPENDENT: "the constraints that hold the follower are linearly dependent (LICQ fails)",
    Finding.NOT_CURVED: "the follower's objective has no curvature in some direction in which y is free",
}
_ABOVE = {
    Finding.NOT_SOLVED: "x is not a stationary point of f(x, y(x)): it may lie at a kink, or the run was not accurate",
    Finding.NOT_STRICT: (
        "the leader touches a bound or a constraint without a price there (strict complementarity fails), so that x "
        "may have a kink as a function of the data"
    ),
    Finding.DEPENDENT: "the constraints that hold the leader are linearly dependent (LICQ fails)",
    Finding.NOT_CURVED: "f(x, y(x)) is flat, or not at a minimum, along some direction in which x is free",
}


class RegularAnswer(NamedTuple):
    """Both levels at a regular answer, or (``regular`` of either 0) at one that is not. Numbers for compiled code."""

    leader: KKTPoint
    leader_active: ActiveSet
    follower: KKTPoint
    follower_active: ActiveSet

    @property
    def regular(self) -> Bool[Array, "*batch"]:
        """Whether the answer has derivatives in the data."""
        return (self.leader_active.regular > 0.0) & (self.follower_active.regular > 0.0)


def leader_program(flat: FlatProblem) -> ParametricProgram:
    """The leader's problem with p = (data, the follower's point, what holds it)."""
    low, high = flat.x_set.bounds_flat()
    program = follower_program(flat)

    def reply(x: Array, p: PyTree) -> Array:
        data, point, active = p
        return follow(program, point, active, (x, data)).z

    def inequality(x: Array, p: PyTree) -> Array:
        coupled = flat.bind(p[0]).upper_inequality(x, reply(x, p)) if flat.n_upper_inequality else jnp.zeros(0)
        return jnp.concatenate([coupled, flat.x_set.inequality_flat(x)])

    return ParametricProgram(
        lambda x, p: flat.bind(p[0]).upper(x, reply(x, p)),
        inequality,
        lambda x, p: flat.x_set.equality_flat(x),
        low,
        high,
    )


def leader_rows(flat: FlatProblem) -> tuple[int, int]:
    """Number of inequalities (G, and those of X that are no bounds) and equalities of the leader."""
    point = jax.ShapeDtypeStruct((flat.n_x,), np.float64)
    n_set = jax.eval_shape(flat.x_set.inequality_flat, point).shape[0]
    return flat.n_upper_inequality + n_set, jax.eval_shape(flat.x_set.equality_flat, point).shape[0]


class _Step(NamedTuple):
    """Both levels at one x, and where the leader's Newton step leads."""

    leader: Examined
    follower: Examined
    moved: KKTPoint


def _step(flat: FlatProblem, oracle: InnerOracle, point: KKTPoint, first: Bool[Array, ""]) -> _Step:
    follower = solve_follower(flat, oracle, point.z).examined
    program, p = leader_program(flat), (flat.data, follower.point, follower.active)
    fitted = fit_multipliers(program, point.z, p, leader_rows(flat), _TOUCHED)
    point = jax.tree.map(lambda fresh, old: jnp.where(first, fresh, old), fitted, point)
    return _Step(examine(program, point, p), follower, newton_step(program, point, p))


def regular_answer(problem: BilevelProblem, result: Result) -> RegularAnswer:
    """The answer refined to full accuracy, with what holds both levels.

    :raises SensitivityError: where it has no derivative, with the reason
    """
    if not result.success:
        raise SensitivityError(
            f"the answer has no derivatives, because the run did not converge ({result.status.value}): {result.message}"
        )
    with double_precision():
        flat, oracle = problem.flat, choose_oracles(problem, "auto")[0]
        start = flat.x_set.ravel(result.x, "result.x")
        rows = flat.once(leader_rows)
        point = KKTPoint(jnp.asarray(start), *(jnp.zeros(count) for count in rows))
        best: _Step | None = None
        for count in range(_NEWTON):
            found = flat.program(_step, oracle)(point, jnp.asarray(count == 0))
            if best is None or not found.leader.error >= best.leader.error:
                best = found
            if found.follower.finding != Finding.REGULAR or found.leader.error <= 1e-3 * SOLVED:
                break
            point = jax.tree.map(jnp.asarray, found.moved)
    assert best is not None
    away = np.abs(best.leader.point.z - start) / np.maximum(1.0, np.abs(start))
    below, above = Finding(int(best.follower.finding)), Finding(int(best.leader.finding))
    if above is Finding.REGULAR and np.max(away) > _MOVED:
        above = Finding.NOT_SOLVED
    for finding, sentences in ((below, _BELOW), (above, _ABOVE)):
        if finding is not Finding.REGULAR:
            raise SensitivityError(f"the answer has no derivatives, because {sentences[finding]}")
    return RegularAnswer(best.leader.point, best.leader.active, best.follower.point, best.follower.active)


class FlatAnswer(NamedTuple):
    """x, y and f(x, y)."""

    x: Float[Array, "n_x"]
    y: Float[Array, "n_y"]
    value: Float[Array, ""]


def differentiable_answer(flat: FlatProblem, known: RegularAnswer, data: PyTree) -> FlatAnswer:
    """The ``known`` answer at ``data`` as a differentiable function of them; of derivative zero if not regular."""
    p = (data, known.follower, known.follower_active)
    x = follow(leader_program(flat), known.leader, known.leader_active, p).z
    y = follow(follower_program(flat), known.follower, known.follower_active, (x, data)).z
    return FlatAnswer(x, y, flat.bind(data).upper(x, y))
