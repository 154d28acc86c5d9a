"""Evaluations of F_gamma that failed: why, and from where else an oracle may begin.

The first oracle of several is general and knows where it started, so most of what is tried here is for it alone. What
proves that the follower has no answer at x ends the search.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from blocc._lib.arrays import AnyArray, Float, NDArray
from blocc.flat_problem import FlatProblem
from blocc.inner.protocol import InnerCode, InnerOracle, WarmStart
from blocc.penalty import Evaluation, UpperMultipliers, paired

if TYPE_CHECKING:
    from blocc.outer.evaluator import Evaluator

#: A violation beyond this proves that the follower has no answer.
_VIOLATED = 1e-9


class Question(NamedTuple):
    """Where F_gamma is wanted."""

    x: Float[AnyArray, "n_x"]
    gamma: float
    leader: UpperMultipliers
    tolerance: float
    sloped: bool = True  #: False: the derivative is not wanted, and zero where it takes a system of its own


def beside_the_middle(flat: FlatProblem) -> Float[NDArray, "n_y"]:
    """A point of Y near its middle, and off it in every coordinate by another length."""
    middle = np.asarray(flat.y_set.interior_flat())
    steps = 0.1 * (1.0 + np.abs(middle)) * (1.0 + np.arange(middle.size) % 7 / 10.0)
    return flat.y_set.nearest_flat(middle + steps)


def _undecided(failed: Evaluation) -> bool:
    """Whether the oracle could not tell why it failed."""
    codes = {int(failed.follower.code), int(failed.penalised.code)}
    return not codes & {InnerCode.INFEASIBLE, InnerCode.UNBOUNDED, InnerCode.NOT_FINITE}


def _is_first_of_several(evaluator: Evaluator, oracle: InnerOracle) -> bool:
    return len(evaluator.oracles) > 1 and oracle == evaluator.oracles[0]


def is_infeasible(evaluator: Evaluator, oracle: InnerOracle, failed: Evaluation) -> bool:
    """Whether the first oracle of several failed, without knowing why, because the follower has no answer."""
    if not _is_first_of_several(evaluator, oracle) or not _undecided(failed):
        return False
    if evaluator.flat.n_inequality + evaluator.flat.n_equality == 0:
        return False
    found = evaluator.violation(np.asarray(failed.x))
    return bool(found.solved) and float(found.value) > _VIOLATED


def is_final(evaluator: Evaluator, oracle: InnerOracle, failed: Evaluation) -> bool:
    """Whether no other oracle will do better: the failure is proven, or the lower level is not convex.

    A method that cannot see negative curvature must not cover up what another one has seen.
    """
    concave = bool(failed.follower.concave) or bool(failed.penalised.concave)
    return concave or not _undecided(failed) or is_infeasible(evaluator, oracle, failed)


def at_the_answer(evaluator: Evaluator, oracle: InnerOracle, failed: Evaluation) -> WarmStart | None:
    """The follower's answer, where only the penalised problem failed: f may have no value in the middle of Y."""
    codes = int(failed.follower.code), int(failed.penalised.code)
    if codes != (InnerCode.CONVERGED, InnerCode.NOT_FINITE):
        return None
    return paired(jax.tree.map(lambda leaf: leaf[0], jax.device_get(failed.warm)))


def off_center(evaluator: Evaluator, oracle: InnerOracle, failed: Evaluation) -> WarmStart | None:
    """Away from the middle of Y, where a function has no derivative (a norm at its origin)."""
    if oracle != evaluator.oracles[0] or int(failed.follower.code) != InnerCode.NOT_FINITE:
        return None
    start = oracle.begin_at(evaluator.flat, beside_the_middle(evaluator.flat))
    return None if start is None else paired(start)


def with_slack(evaluator: Evaluator, oracle: InnerOracle, failed: Evaluation) -> WarmStart | None:
    """A point with all constraints slack, where the first of several oracles failed although there is room.

    Between curved constraints that nearly touch, such a point is found more easily by itself than on the way.
    """
    flat = evaluator.flat
    if not _is_first_of_several(evaluator, oracle) or not _undecided(failed):
        return None
    if flat.n_inequality == 0 or flat.n_equality > 0 or failed.follower.concave or failed.penalised.concave:
        return None
    found = evaluator.violation(np.asarray(failed.x))
    if not found.solved or found.value >= 0.0:
        return None
    start = oracle.begin_at(flat, found.y)
    return None if start is None else paired(start)


#: In the order in which they are tried; each is given the failure so far.
STARTS: tuple[Callable[[Evaluator, InnerOracle, Evaluation], WarmStart | None], ...] = (
    at_the_answer,
    off_center,
    with_slack,
)
