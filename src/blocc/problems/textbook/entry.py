"""One bilevel problem together with its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, SupportsFloat

import numpy as np

from blocc._lib.arrays import AnyArray, Array, Float, PyTree
from blocc.problem import BilevelProblem
from blocc.sets import ConvexSet

#: Relative error of an upper value, against 1 + its size, that a solver is expected to stay within.
TOLERANCE = 1e-4


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownProblem:
    """A bilevel problem whose optimal value is known, with points from which descent should find it.

    ``upper_value`` is the optimistic optimal value: where the follower is indifferent, the answer that suits the leader
    counts. It is the global optimum, unless ``tags`` holds ``"local"``; then it is the local minimum that lies downhill
    of every start, and ``note`` says what the global one is.
    """

    name: str
    #: Where the problem comes from, or that it was made for this collection.
    source: str
    problem: BilevelProblem
    upper_value: float
    #: The leader's answer, or None where several are equally good.
    x: PyTree | None
    #: The follower's answer at ``x``, or None where ``x`` is None.
    y: PyTree | None
    #: Points of the leader's set from which a descent method meets no other local minimum first.
    starts: tuple[PyTree, ...]
    #: Words to choose problems by, see :data:`TAGS`.
    tags: frozenset[str]
    #: What is special about the problem: why it is hard, or where this answer differs from the published one.
    note: str = ""
    #: :data:`TOLERANCE`, or more where its functions leave no other choice, and ``note`` says why.
    tolerance: float = TOLERANCE


def known(
    name: str,
    source: str = "constructed",
    *,
    sets: tuple[ConvexSet, ConvexSet],
    answer: tuple[SupportsFloat, PyTree | None, PyTree | None],
    starts: Sequence[PyTree],
    tags: str,
    note: str = "",
    tolerance: float = TOLERANCE,
    **functions: Any,
) -> KnownProblem:
    """An entry from plain numbers and lists.

    ``sets`` are X and Y, ``answer`` is the upper value with x and y, ``tags`` are separated by spaces (the one for
    its origin is added), and ``functions`` are those of the problem.
    """
    (x_set, y_set), (value, x, y) = sets, answer
    origin = "constructed" if source.startswith("constructed") else "literature"
    return KnownProblem(
        name=name,
        source=source,
        problem=BilevelProblem(name=name, x_set=x_set, y_set=y_set, **functions),
        upper_value=float(value),
        x=_as_arrays(x),
        y=_as_arrays(y),
        starts=tuple(map(_as_arrays, starts)),
        tags=frozenset((origin, *tags.split())),
        note=note,
        tolerance=tolerance,
    )


def half_square(difference: Float[AnyArray, "n"]) -> Float[Array, ""] | float:
    """Half the squared length, of arrays of NumPy and of JAX alike."""
    return 0.5 * (difference**2).sum()


def _as_arrays(value: PyTree | None) -> PyTree | None:
    if value is None or isinstance(value, dict):
        return value and {key: _as_arrays(part) for key, part in value.items()}
    return np.asarray(value, dtype=np.float64)


#: Every word that may appear in ``KnownProblem.tags``, with its meaning.
TAGS: dict[str, str] = {
    "literature": "published elsewhere",
    "constructed": "made for this collection, with an answer in closed form",
    "local": "the value is that of a local minimum; a better one exists elsewhere",
    "unconstrained": "the follower has no constraint at all",
    "affine-coupled": "the follower's inequality involves x and is affine in y",
    "nonlinear-coupled": "the follower's inequality involves x and is curved in y",
    "nonlinear-constraint": "the follower's inequality is curved in y and does not involve x",
    "affine-constraint": "the follower's inequality is affine in y and does not involve x",
    "equality": "the follower has an equality constraint",
    "upper-constraint": "the leader has a constraint on (x, y)",
    "box-y": "Y is a box with at least one finite bound",
    "simplex-y": "Y is a simplex",
    "ball-y": "Y is a ball",
    "halfspace-y": "Y is a halfspace",
    "affine-y": "Y is an affine subspace",
    "simplex-x": "X is a simplex",
    "ball-x": "X is a ball",
    "halfspace-x": "X is a halfspace",
    "affine-x": "X is an affine subspace",
    "pytree": "x or y is a pytree with more than one leaf",
    "kink": "the leader's value has a kink at the answer",
    "no-strict-complementarity": "at the answer a constraint of the follower holds with equality and multiplier zero",
    "edge-of-feasibility": "the follower has no strictly feasible point at the answer",
    "infeasible-for-some-x": "for some x in X the follower has no feasible point",
    "no-multipliers": "at the answer the follower's problem has no multipliers",
    "no-licq": "the gradients of the follower's active constraints are linearly dependent at the answer",
    "merely-convex": "the lower objective is not strongly convex in y for every x",
    "many-minimisers": "at some x, often the answer, the follower has many best answers",
    "discontinuous": "the leader's value jumps at some x",
    "linear": "every function is affine",
    "large": "at least 1,000 variables in x or y",
}
