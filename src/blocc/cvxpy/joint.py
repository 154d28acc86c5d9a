"""The penalised problem, solved: once where it is convex; again and again where a part of it is majorised.

Products of prices and quantities that strong duality cannot write, and plain functions of the leader's, have convex
functions put above them that touch them at an anchor. The next anchor is the answer, until it stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from blocc.cvxpy.majorised import PlainObjective, Slopes
from blocc.cvxpy.model import Model, Vector
from blocc.cvxpy.penalised import Anchor, Weighted
from blocc.cvxpy.solvers import ConeAnswer, Outcome, solve, without_answer

#: Convex problems in the place of one that is not, at most.
_MOST = 60
#: Relative change of the anchor that ends them.
_SETTLED = 1e-8
_FIRST_CURVATURE = 1.0


class Joint(NamedTuple):
    """An answer of the penalised problem."""

    answer: ConeAnswer
    at: Weighted  #: the instance that was solved last
    constant: float  #: what its value leaves out
    slope: Vector  #: derivative of what the instance does not know of in x, in the leader's units


def solve_joint(model: Model, x: Vector, at: Weighted, followers: Sequence[ConeAnswer], tolerance: float) -> Joint:
    """Solve the penalised problem at x; ``followers`` are the followers' own answers there."""
    if model.plain is not None:
        return _by_quadratics(model, model.plain, x, at, followers, tolerance)
    nothing = np.zeros(len(x))
    if model.penalised.has_products:
        at = at._replace(anchors=_own_anchors(model, x, followers))
    found = _convex(model, at, tolerance)
    for _ in range(_MOST if model.penalised.has_products else 0):
        if not found.is_usable:
            break
        following = model.penalised.anchors(found.z)
        if all(_stays(old, new) for old, new in zip(at.anchors, following, strict=True)):
            break
        at = at._replace(anchors=following)
        found = _convex(model, at, tolerance)
    return Joint(found, at, model.penalised.product_constant(at), nothing)


def _convex(model: Model, at: Weighted, tolerance: float) -> ConeAnswer:
    numbers = model.penalised.numbers(at)
    if model.penalised.is_bent(numbers):
        return without_answer(numbers, Outcome.UNBOUNDED)
    return solve(numbers, model.penalised.cones, tolerance)


def _own_anchors(model: Model, x: Vector, followers: Sequence[ConeAnswer]) -> tuple[Anchor, ...]:
    """Prices and quantities at the followers' own answers."""
    model.put(x, [one.z for one in followers], [one.prices for one in followers])
    pairs = ((one.total.price.value, one.total.quantity.value) for one in model.tied)
    return tuple(Anchor(*(np.ravel(part, order="F").astype(np.float64) for part in pair)) for pair in pairs)


def _stays(old: Anchor, new: Anchor) -> bool:
    sizes = [1e-6 + float(np.max(np.abs(part), initial=0.0)) for part in new]
    moved = (float(np.max(np.abs(b - a), initial=0.0)) for a, b in zip(old, new, strict=True))
    return all(length <= _SETTLED * size for length, size in zip(moved, sizes, strict=True))


def _by_quadratics(
    model: Model, plain: PlainObjective, x: Vector, at: Weighted, followers: Sequence[ConeAnswer], tolerance: float
) -> Joint:
    """Where the leader's objective is a plain function. Every call begins alike: a resumed run sees the same."""

    def known(answers: Sequence[Vector]) -> tuple[Vector, Slopes]:
        model.put(x, answers, [one.prices for one in followers])
        own = model.values_of_answers()
        return np.concatenate([part.ravel(order="F") for part in own]), plain.at(model.values(x), own)

    (y, here), curvature = known([one.z for one in followers]), _FIRST_CURVATURE
    accepted: Joint | None = None
    for _ in range(_MOST):
        plain.set(here.y - curvature * y, curvature)
        at = at._replace(leader=model.leader_theta(x))
        found = solve(model.penalised.numbers(at), model.penalised.cones, tolerance)
        if not found.is_usable:
            return accepted or Joint(found, at, 0.0, np.zeros(len(x)))
        other, there = known(model.penalised.answers(found.z))
        step = other - y
        above = here.value + here.y @ step + 0.5 * curvature * step @ step
        if not there.value <= above + 1e-12 * (1.0 + abs(here.value)):
            curvature *= 4.0
            continue
        told = float(np.asarray(plain.expression.value))
        accepted = Joint(found, at, at.upper * (there.value - told), there.x)
        y, here, length = other, there, float(np.linalg.norm(step))
        if length <= _SETTLED * (1e-3 + float(np.linalg.norm(y))):
            break
        curvature *= 0.5
    return accepted or Joint(found, at, 0.0, np.zeros(len(x)))
