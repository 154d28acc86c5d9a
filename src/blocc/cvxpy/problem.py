"""Bilevel problems whose follower is written in CVXPY: what a user writes, and ``solve``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cvxpy as cp

from blocc._lib.checks import in_words
from blocc.cvxpy.expressions import check_follower, minimised
from blocc.cvxpy.model import Model
from blocc.cvxpy.run import ConicRun, RunOptions
from blocc.errors import ProblemError
from blocc.result import Result


class BilevelProblem:
    """A leader's problem over parameters ``x`` of the follower's problem.

    ``objective`` is ``cp.Minimize`` or ``cp.Maximize`` of an expression of x and of the follower's variables, convex in
    the latter (concave, for Maximize). ``follower`` is a ``cp.Problem`` (or several of them, independent of each other
    once x is known), of which x are ``cp.Parameter``s. Where CVXPY's rules do not allow what the leader wants,
    ``objective`` may be a plain function of two dicts, of x and of y by name, in ``jax.numpy``: it is minimised, by
    convex quadratics above it. ``constraints`` are the leader's: on x alone, or on x and the
    follower's answer. :func:`~blocc.cvxpy.dual` makes prices of the follower's constraints available to the leader.

    After :meth:`solve` the parameters, variables and constraints carry their values, as after ``cp.Problem.solve``.
    """

    def __init__(
        self,
        objective: cp.Minimize | cp.Maximize | Callable[[dict[str, Any], dict[str, Any]], Any],
        follower: cp.Problem | Sequence[cp.Problem],
        x: cp.Parameter | Sequence[cp.Parameter],
        constraints: Sequence[cp.Constraint] = (),
        *,
        name: str = "bilevel problem",
    ) -> None:
        self.objective, self.name = objective, name
        self.followers = [follower] if isinstance(follower, cp.Problem) else list(follower)
        self.x = [x] if isinstance(x, cp.Parameter) else list(x)
        self.constraints = list(constraints)
        self._check()
        expression, self.sign = (objective, 1.0) if _is_plain(objective) else minimised(objective, "objective")
        parts = [minimised(one.objective, "follower") for one in self.followers]
        self.lower_signs = [sign for _, sign in parts]
        below = [(part, list(one.constraints)) for (part, _), one in zip(parts, self.followers, strict=True)]
        self.model = Model(expression, below, self.x, self.constraints)

    def _check(self) -> None:
        if not self.followers or not all(isinstance(one, cp.Problem) for one in self.followers):
            raise ProblemError(f"follower must be a cp.Problem or several of them, got {in_words(self.followers)}")
        if not self.x or not all(isinstance(one, cp.Parameter) for one in self.x):
            raise ProblemError("x must be one cp.Parameter or several: what the leader decides")
        for one in self.constraints:
            if not isinstance(one, cp.Constraint):
                raise ProblemError(f"constraints: {one!r} is no constraint of CVXPY's")
        names = [one.name() for one in self.x]
        if len(set(names)) < len(names):
            raise ProblemError(f"x: two parameters have one name ({', '.join(names)}); give each its own")
        seen: set[int] = set()
        for index, one in enumerate(self.followers):
            what = "follower" if len(self.followers) == 1 else f"follower {index}"
            check_follower(one, what)
            shared = seen & {variable.id for variable in one.variables()}
            if shared:
                raise ProblemError(f"{what} shares a variable with another: followers answer on their own")
            seen |= {variable.id for variable in one.variables()}
        used = {one.id for problem in self.followers for one in problem.parameters()}
        if not isinstance(self.objective, (cp.Minimize, cp.Maximize)):
            return
        used |= {one.id for one in self.objective.parameters()}
        for one in self.x:
            if one.id not in used:
                raise ProblemError(f"x: {one.name()} is in neither the objective nor a follower")

    def solve(self, x0: Any = None, **options: Any) -> Result:
        """Solve from ``x0`` (by default the parameters' values, or the middle of their set).

        :param x0: an array for a single parameter, or a dict by their names
        :param options: fields of :class:`~blocc.cvxpy.run.RunOptions`
        """
        self.model.refresh()
        return ConicRun(self, RunOptions(**options)).solve(x0)


def _is_plain(objective: Any) -> bool:
    """Whether the leader's objective is a function, and no expression of CVXPY's."""
    return callable(objective) and not isinstance(objective, (cp.Minimize, cp.Maximize, cp.Expression))
