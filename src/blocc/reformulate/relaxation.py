"""A follower without room: its inequalities relaxed by a small amount, and what that says about the problem proper.

Where no point satisfies all inequalities strictly (no Slater point) multipliers may have no bound, or not exist, and
no solver of Newton's kind comes to an end. Relaxing every inequality by ``amount``, in the user's units, gives the
follower room. The answers tend to that of the problem proper as the amount goes to zero, perhaps only like its root:
so two amounts are tried, and the answer counts where they agree and it is one of the problem proper: both amounts may
also be so large, for a row with large coefficients, that the answers rest on bounds far from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from blocc._lib.arrays import PyTree
from blocc._lib.precision import double_precision
from blocc._lib.rounding import TINY
from blocc._lib.trees import flattened
from blocc.lagrangian import Multipliers, figures
from blocc.problem import BilevelProblem
from blocc.result import Result, Status

AMOUNTS = (1e-6, 1e-8)
#: Values of f at both amounts agree within this share of what f differs by between the relaxed answer and the start's.
_AGREE = 1e-4


def relaxed(problem: BilevelProblem, amount: float) -> BilevelProblem:
    """The same problem with ``inequality(x, y) <= amount``."""
    data = (() if problem.data is None else problem.data, np.asarray(amount))
    made: BilevelProblem = problem.shared.store.get((relaxed,), lambda: _with_room(problem, data))
    return made.with_data(data)


def _with_room(problem: BilevelProblem, data: PyTree) -> BilevelProblem:
    def own(name: str) -> Callable[..., Any] | None:
        function = getattr(problem, name)
        if function is None:
            return None
        bare = problem.data is None
        return lambda x, y, data: function(x, y) if bare else function(x, y, data[0])

    original = own("inequality")
    assert original is not None

    def inequality(x: PyTree, y: PyTree, data: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: leaf - data[1], original(x, y, data))

    return BilevelProblem(
        **{name: own(name) for name in ("upper", "lower", "equality", "upper_inequality")},  # type: ignore[arg-type]
        inequality=inequality,
        x_set=problem.x_set,
        y_set=problem.y_set,
        lower_terms=[term.over(lambda data: data[:1] * (problem.data is not None)) for term in problem.lower_terms],
        data=data,
        name=problem.name,
    )


def agreed(problem: BilevelProblem, wide: Result, narrow: Result, holds: bool) -> Result:
    """The answer at the smaller amount, a success only where both amounts have the same one and it ``holds``.

    Its certificate is that of the problem proper, which says by how much the constraints were relaxed.
    """
    amount = AMOUNTS[-1]
    narrow = _in_own_rows(problem, narrow)
    note = (
        f"No point satisfies the follower's inequalities strictly (no Slater point): they were relaxed by {amount:.0e}"
    )
    size = max(abs(wide.upper_value), abs(narrow.upper_value), TINY)
    same = abs(wide.upper_value - narrow.upper_value) <= _AGREE * size
    if narrow.success and wide.success and same and holds:
        return replace(narrow, message=f"{narrow.message} {note}.")
    words = (
        f"{note}, and the answer still depends on that: f is {wide.upper_value:.6g} when relaxed by {AMOUNTS[0]:.0e}."
    )
    if same and not holds:
        words = f"{note}, which is too much for their coefficients: y does not meet them as they are."
    certificate = replace(narrow.certificate, exact=False)
    return replace(narrow, status=Status.STALLED, message=words, certificate=certificate)


def _in_own_rows(problem: BilevelProblem, result: Result) -> Result:
    """The result with the follower's residuals in the problem's own constraints."""
    multipliers = Multipliers(*map(flattened, result.multipliers))
    with double_precision():
        x, y = problem.x_set.ravel(result.x), problem.y_set.ravel(result.y)
        found = figures(problem.flat, x, y, multipliers).residuals
    certificate = replace(
        result.certificate,
        stationarity=float(found.stationarity),
        feasibility=float(found.feasibility),
        complementarity=float(found.complementarity),
    )
    return replace(result, certificate=certificate)
