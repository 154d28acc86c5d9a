"""Bilevel problems whose follower is written in CVXPY: what a user writes, and ``solve``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np

from blocc._lib.checks import as_float_array, in_words
from blocc._lib.notebook import Shown
from blocc.cvxpy.data_checks import check_constants, check_parameters, check_real
from blocc.cvxpy.expressions import check_follower, minimised
from blocc.cvxpy.leader_set import LeaderSet
from blocc.cvxpy.model import Model, Vector
from blocc.cvxpy.recorded import model_fingerprint
from blocc.cvxpy.run import ConicRun
from blocc.cvxpy.run_options import make_run_options
from blocc.errors import OptionError, ProblemError
from blocc.outer.monitor import StopRequest
from blocc.result import Result
from blocc.resume.file import open_recording
from blocc.resume.recording import Recording
from blocc.run.progress import Files, log_end, with_remark
from blocc.solve import start_in

if TYPE_CHECKING:
    from blocc.judge.verification import Verification
    from blocc.multi_result import MultiResult


class BilevelProblem(Shown):
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
        self.followers = _listed(follower, cp.Problem)
        self.x = _listed(x, cp.Parameter)
        if all(isinstance(one, cp.Parameter) for one in self.x):
            self.x.sort(key=lambda one: str(one.name()))  # the order in which dicts by name are flattened
        self.constraints = _listed(constraints, cp.Constraint)
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
            check_real([*one.variables(), *one.parameters()], what)
            shared = seen & {variable.id for variable in one.variables()}
            if shared:
                raise ProblemError(f"{what} shares a variable with another: followers answer on their own")
            seen |= {variable.id for variable in one.variables()}
            called = [variable.name() for variable in one.variables()]
            if len(set(called)) < len(called):
                raise ProblemError(f"{what}: two variables have one name ({', '.join(called)}); give each its own")
        check_constants(self._parts())
        used = {one.id for problem in self.followers for one in problem.parameters()}
        if not isinstance(self.objective, (cp.Minimize, cp.Maximize)):
            return
        used |= {one.id for one in self.objective.parameters()}
        for one in self.x:
            if one.id not in used:
                raise ProblemError(f"x: {one.name()} is in neither the objective nor a follower")

    def _parts(self) -> list[tuple[str, Any]]:
        """Objectives and constraints, with their names in errors."""
        found: list[tuple[str, Any]] = [("constraints", one) for one in self.constraints]
        if isinstance(self.objective, (cp.Minimize, cp.Maximize)):
            found.append(("objective", self.objective))
        for index, one in enumerate(self.followers):
            what = "follower" if len(self.followers) == 1 else f"follower {index}"
            found += [(what, one.objective), *((what, rule) for rule in one.constraints)]
        return found

    def renew(self) -> None:
        """Take over the values of parameters that are no decisions, checked."""
        mine = {one.id for one in self.x}
        known = {one.id: one for _, part in self._parts() for one in part.parameters() if one.id not in mine}
        check_parameters(known.values())
        self.model.refresh()

    def __str__(self) -> str:
        """What each level decides and wants, as CVXPY writes it."""
        name = getattr(self.objective, "__name__", "a function")
        wanted = f"minimize {name}" if _is_plain(self.objective) else str(self.objective)
        lines = [f"{self.name}: bilevel problem", f"  leader decides    {', '.join(one.name() for one in self.x)}"]
        lines += [f"  leader wants      {wanted}", *(f"  subject to        {one}" for one in self.constraints)]
        for one in self.followers:
            lines += [f"  follower answers  {', '.join(variable.name() for variable in one.variables())}"]
            lines += [
                f"  follower wants    {one.objective}",
                *(f"  subject to        {row}" for row in one.constraints),
            ]
        return "\n".join(lines)

    @property
    def x_set(self) -> LeaderSet:
        """X: dicts of arrays by the names of the leader's parameters."""
        return self.model.x_set

    def solve(
        self,
        x0: Any = None,
        *,
        checkpoint: str | Path | None = None,
        resume: str | Path | None = None,
        checkpoint_seconds: float = 5.0,
        **options: Any,
    ) -> Result:
        """Solve from ``x0`` (by default the parameters' values, or the middle of their set).

        :param x0: an array for a single parameter, or a dict by their names
        :param checkpoint: a file that the run keeps itself in
        :param resume: such a file, to continue from: same problem, start and options (``time_limit`` may differ)
        :param checkpoint_seconds: how often, at most
        :param options: fields of :class:`~blocc.cvxpy.run_options.RunOptions`
        """
        request = StopRequest()  # what the user waits for begins here
        settings = make_run_options(options)
        self.renew()
        start = self.start(x0)
        files = Files(checkpoint, resume, checkpoint_seconds)
        recording = Recording()
        if files.wanted:
            recording = open_recording(model_fingerprint(self.model), settings.described(), start, *files)
        with closing(recording):
            result = ConicRun(self, settings, request, recording).solve(start)
        return log_end(with_remark(result, recording))

    def solve_many(
        self,
        x0s: Sequence[Any] | None = None,
        *,
        starts: int | None = None,
        executor: Any = None,
        checkpoint: str | Path | None = None,
        resume: str | Path | None = None,
        checkpoint_seconds: float = 5.0,
        **options: Any,
    ) -> MultiResult:
        """Solve from many starts: those in ``x0s``, or ``starts`` random points of X drawn with ``seed``.

        The parameters, variables and constraints carry the best answer at the end. ``time_limit`` is for all starts
        together.

        :param executor: who computes them: None (this process, one after the other), ``"processes"``, ``"dask"``, or
            an executor of :mod:`blocc.executors`
        :param checkpoint: a file that all starts keep themselves in, where they are computed in this process
        :param resume: such a file, to continue from: same problem, starts and options (``time_limit`` may differ)
        :param checkpoint_seconds: how often, at most
        """
        from blocc.cvxpy.many import solve_many  # a worker builds this class out of what that file sends

        return solve_many(self, x0s, starts, executor, Files(checkpoint, resume, checkpoint_seconds), options)

    def verify(self, result: Result, *, tolerance: float = 1e-4) -> Verification:
        """Recompute everything that a result claims, by another solver than the one that found it."""
        from blocc.cvxpy.verify import verify

        return verify(self, result, tolerance=tolerance)

    def start(self, x0: Any, name: str = "x0") -> Vector:
        """A start as one vector, in X."""
        model = self.model
        if x0 is None and all(one.value is not None for one in model.parameters):
            known = np.concatenate([np.ravel(_dense(one.value)) for one in model.parameters])
            return model.x_set.nearest_flat(known)
        if x0 is None:
            return model.x_set.interior_flat()
        if not isinstance(x0, dict):
            if len(model.parameters) > 1:
                raise OptionError(f"{name} must be a dict by name: {', '.join(one.name() for one in model.parameters)}")
            x0 = {model.parameters[0].name(): x0}
        return start_in(self, {key: as_float_array(name, _dense(value)) for key, value in x0.items()}, name)


def _dense(value: Any) -> Any:
    return value.toarray() if hasattr(value, "toarray") else value


def _listed(given: Any, kind: type) -> list[Any]:
    """One object or several as a list; what is neither is left to the check that names it."""
    return list(given) if isinstance(given, Iterable) and not isinstance(given, kind) else [given]


def _is_plain(objective: Any) -> bool:
    """Whether the leader's objective is a function, and no expression of CVXPY's."""
    return callable(objective) and not isinstance(objective, (cp.Minimize, cp.Maximize, cp.Expression))
