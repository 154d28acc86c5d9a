"""The penalised problem, solved: once where it is convex; again and again where a part of it is majorised.

Products of prices and quantities that strong duality cannot write, and plain functions of the leader's, have convex
functions put in their place that touch them at an anchor. The next anchor is the answer, until it stays. Anchors are
extrapolated from the last few (Anderson's mixing), and taken back where that makes the answer worse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from blocc._lib.arrays import Float, NDArray
from blocc._lib.rounding import ROUNDED
from blocc.cvxpy.majorised import PlainObjective
from blocc.cvxpy.model import Model, Vector
from blocc.cvxpy.penalised import Anchor, Bend, Weighted
from blocc.cvxpy.solvers import ConeAnswer, Outcome, solve, without_answer

#: Convex problems in the place of one that is not, at most.
_MOST = 40
#: More than so many tell that gamma is too small to make it convex.
_FEW = 12
#: Relative change of the anchor that ends them.
_SETTLED = 1e-8
#: Anchors that are extrapolated from.
_MEMORY = 5


class Joint(NamedTuple):
    """An answer of the penalised problem."""

    answer: ConeAnswer
    at: Weighted  #: the instance that was solved last
    constant: float  #: what its value leaves out
    slope: Vector  #: derivative of what the instance does not know of in x, in the leader's units
    is_bent: bool = False  #: so many convex problems were needed that it is most likely not convex

    @property
    def value(self) -> float:
        """The value of the penalised problem."""
        return self.answer.value + self.constant


#: From an anchor, and the curvature to add, to an answer and the next anchor.
Step = Callable[[Vector, float], tuple[Joint, Vector]]


def solve_joint(model: Model, x: Vector, at: Weighted, followers: Sequence[ConeAnswer], tolerance: float) -> Joint:
    """Solve the penalised problem at x; ``followers`` are the followers' own answers there.

    Every call begins alike, so that a resumed run sees the same.
    """
    if model.plain is not None:
        own = model.own_columns([one.z for one in followers])
        return _until_it_stays(_quadratics(model, model.plain, x, at, tolerance), own)
    if model.penalised.has_products:
        anchors = _own_anchors(model, x, followers)
        return _until_it_stays(_products(model, x, at, tolerance, anchors), _flat(anchors))
    return Joint(_convex(model, at, tolerance), at, 0.0, np.zeros(len(x)))


def _convex(model: Model, at: Weighted, tolerance: float) -> ConeAnswer:
    numbers = model.penalised.numbers(at)
    if model.penalised.is_bent(numbers):
        return without_answer(numbers, Outcome.UNBOUNDED)
    return solve(numbers, model.penalised.cones, tolerance)


def _until_it_stays(step: Step, anchor: Vector) -> Joint:
    tried: list[tuple[Vector, Vector]] = []  # anchors, and what came out
    best: Joint | None = None
    more, mixed, last = 0.0, False, anchor
    for turn in range(_MOST):
        joint, found = step(anchor, more)
        worse = best is not None and not joint.value <= best.value + ROUNDED * (1.0 + abs(best.value))
        if not joint.answer.is_usable or worse:
            if best is None or more > 1e12:
                return best or joint
            if not mixed:  # not an anchor too far, but too little curvature
                more = max(10.0 * more, 1e-2)
            anchor, mixed, tried = last, False, []
            continue
        best, last, more = joint._replace(is_bent=turn > _FEW), found, 0.1 * more
        if float(np.linalg.norm(found - anchor)) <= _SETTLED * (1e-3 + float(np.linalg.norm(found))):
            break
        tried = [*tried[1 - _MEMORY :], (anchor, found)]
        anchor, mixed = _mixed(tried)
    assert best is not None
    return best


def _mixed(tried: list[tuple[Vector, Vector]]) -> tuple[Vector, bool]:
    """The next anchor by Anderson's mixing, and whether it is anything else than what came out last."""
    before, after = (np.stack(part) for part in zip(*tried, strict=True))
    if len(tried) < 3:
        return after[-1], False
    left = after - before
    factors, *_ = np.linalg.lstsq(np.diff(left, axis=0).T, left[-1], rcond=1e-10)
    return after[-1] - factors @ np.diff(after, axis=0), True


# --- products of prices and quantities --------------------------------------------------------------------------------
def _flat(anchors: tuple[Anchor, ...]) -> Vector:
    return np.concatenate([part for one in anchors for part in one])


def _products(model: Model, x: Vector, at: Weighted, tolerance: float, like: tuple[Anchor, ...]) -> Step:
    sizes = [len(part) for one in like for part in one]

    def step(anchor: Vector, more: float) -> tuple[Joint, Vector]:
        parts = iter(np.split(anchor, np.cumsum(sizes)[:-1]))
        here = at._replace(anchors=tuple(Anchor(next(parts), next(parts)) for _ in like))
        found = _convex(model, here, tolerance)
        joint = Joint(found, here, model.penalised.product_constant(here), np.zeros(len(x)))
        return joint, _flat(model.penalised.anchors(found.z)) if found.is_usable else anchor

    return step


def _own_anchors(model: Model, x: Vector, followers: Sequence[ConeAnswer]) -> tuple[Anchor, ...]:
    """Prices and quantities at the followers' own answers."""
    model.put(x, [one.z for one in followers], [one.prices for one in followers])
    pairs = ((one.total.price.value, one.total.quantity.value) for one in model.tied)
    return tuple(Anchor(*(np.ravel(part, order="F").astype(np.float64) for part in pair)) for pair in pairs)


# --- plain functions --------------------------------------------------------------------------------------------------
def _quadratics(model: Model, plain: PlainObjective, x: Vector, at: Weighted, tolerance: float) -> Step:
    def step(y: Vector, more: float) -> tuple[Joint, Vector]:
        slope, bend = plain.at(x, y).y, _bend(plain.bends(x, y), len(y), more)
        here = at._replace(bend=Bend(slope - bend @ y, bend))
        found = solve(model.penalised.numbers(here), model.penalised.cones, tolerance)
        if not found.is_usable:
            return Joint(found, here, 0.0, np.zeros(len(x))), y
        other = model.own_columns(model.penalised.answers(found.z))
        there = plain.at(x, other)
        told = float(here.bend.slope @ other + 0.5 * other @ (bend @ other)) if here.bend is not None else 0.0
        return Joint(found, here, at.upper * (there.value - told), there.x), other

    return step


def _bend(own: Float[NDArray, "n n"], n: int, more: float) -> sp.csr_array:
    """A matrix of curvatures with a relative share of ``more`` added to its diagonal."""
    if not own.size:
        return sp.csr_array(sp.diags_array(np.full(n, 1.0 + more)))
    return sp.csr_array(own + more * (float(np.max(np.abs(own))) or 1.0) * np.eye(n))
