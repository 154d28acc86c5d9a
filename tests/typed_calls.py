"""Calls that mypy must accept, and misspelt ones that it must reject: checked by ``make lint``, never run.

A comment that ignores an error is an error itself where there is none (``warn_unused_ignores``).
"""

from __future__ import annotations

from blocc import solve, solve_differentiable, solve_many
from blocc.problems.toy import toy_problem


def accepted() -> None:
    """Options by their names, and those of another method."""
    solve(toy_problem(), tolerance=1e-6)
    solve(toy_problem(), method="lv-hba", alpha=0.1)
    solve_many(toy_problem(), starts=3, time_limit=3.0)


def rejected() -> None:
    """Misspelt names, and a number where a word belongs."""
    solve(toy_problem(), tolerence=1e-6)  # type: ignore[call-overload]
    solve_many(toy_problem(), starts=3, time_limits=3.0)  # type: ignore[call-arg]
    solve_differentiable(toy_problem(), None, tolerence=1e-6)  # type: ignore[call-arg]
