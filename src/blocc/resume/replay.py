"""Answers out of a recording, held against the problem that they are said to belong to.

Nothing is solved again. At the points that an evaluation found, the problem's functions must have the values that were
written down with it.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from blocc.flat_problem import FlatProblem
from blocc.lagrangian import residuals, weights
from blocc.penalty import Evaluation
from blocc.resume.recording import CheckpointError

#: Relative to the largest number of an evaluation. Another machine, or another version, rounds differently.
_TOLERANCE = 1e-6


def is_sampled(count: int) -> bool:
    """Whether the answer of this number (1, 2, ...) is looked at: one of each power of two."""
    return count & (count - 1) == 0


def _recomputed(flat: FlatProblem, found: Evaluation) -> dict[str, Any]:
    """The numbers of an evaluation that follow from its points alone, by what they tell about."""
    x, answer, other = found.x, found.follower.y, found.penalised.y
    cross = residuals(flat, x, other, found.follower.multipliers, weights(flat))
    return {
        "upper(x, y)": (flat.upper(x, answer), flat.upper(x, other)),
        "lower(x, y)": (flat.lower(x, answer), flat.lower(x, other)),
        "upper_inequality(x, y)": tuple(flat.upper_inequality(x, y).max(initial=0.0) for y in (answer, other)),
        "inequality(x, y) or equality(x, y)": (cross.feasibility, cross.complementarity),
    }


def _recorded(found: Evaluation) -> dict[str, Any]:
    """The same numbers as they were written down."""
    return {
        "upper(x, y)": (found.upper_follower, found.upper_penalised),
        "lower(x, y)": (found.lower_follower, found.lower_penalised),
        "upper_inequality(x, y)": (found.violation_follower, found.violation_penalised),
        "inequality(x, y) or equality(x, y)": (found.cross.feasibility, found.cross.complementarity),
    }


def compare_with_problem(flat: FlatProblem, found: Evaluation, count: int) -> None:
    """Compare an evaluation out of a recording with the problem.

    :param count: which evaluation of the recording it is, for the message
    :raises CheckpointError: where it is not this problem's
    """
    if not found.usable:  # where the follower has no answer, nothing is to be expected of numbers
        return
    bare = jax.tree.map(np.asarray, found._replace(warm=()))
    now, then = flat.program(_recomputed)(bare), _recorded(bare)
    points = (bare.x, bare.follower.y, bare.penalised.y, bare.follower.multipliers, then)
    size = 1.0 + max(float(np.max(np.abs(leaf), initial=0.0)) for leaf in jax.tree.leaves(points))
    for name, before in then.items():
        for old, new in zip(before, now[name], strict=True):
            if not abs(float(old) - float(new)) <= _TOLERANCE * size:
                raise CheckpointError(
                    f"the checkpoint's evaluations are not this problem's: at number {count}, {name} gave "
                    f"{float(old):.10g} and now gives {float(new):.10g}"
                )
