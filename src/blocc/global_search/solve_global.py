"""The front door for global answers: `solve_global`."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from blocc._lib.arrays import Float, NDArray, PyTree
from blocc._lib.compiled import compile_seconds
from blocc._lib.precision import double_precision
from blocc.corners import kinks_of
from blocc.errors import OptionError, ProblemError
from blocc.global_search.answer import judged_result
from blocc.global_search.boxes import BoxSearch
from blocc.global_search.complementarity import Search
from blocc.global_search.forms import NotConvex, NotRecognised, constraints_of, follower_of
from blocc.global_search.relaxation import Relaxation
from blocc.global_search.reply import is_answer
from blocc.inner.choice import choose_oracles
from blocc.outer.evaluator import Evaluator
from blocc.outer.monitor import Monitor, StopReason, StopRequest, interruptible
from blocc.problem import BilevelProblem
from blocc.reformulate.smoothing import invert_smoothing, smoothed
from blocc.result import Result, Status
from blocc.solve import check_arguments, solve, start_in

#: Leader's variables up to which boxes are searched.
MOST_BOXED = 3
#: Share of the time limit that boxes leave for a last descent and the verdict.
_LAST_SHARE = 0.2
#: Residual of the optimality conditions, in units of their largest coefficients, at which y is the follower's answer.
_ANSWERED = 1e-8


def solve_global(
    problem: BilevelProblem,
    x0: PyTree | None = None,
    *,
    time_limit: float | None = 60.0,
    gap_tolerance: float = 1e-6,
    lipschitz: float | None = None,
    starts: int = 1,
    seed: int = 0,
) -> Result:
    """Find a global optimum of a bilevel problem and prove it, or prove how far the answer can be from one.

    A follower with a linear or convex quadratic objective and affine constraints is replaced by its optimality
    conditions, and their complementarity is searched by branch and bound with HiGHS. Products of x and y in the
    follower's objective are allowed; the leader's functions may be any quadratic ones, with bounded variables where
    they bend downwards. For any other convex follower, boxes of x are searched if there are at most three, all bounded:
    ``lipschitz``, a constant with ``|f(x, y(x)) - f(x', y(x'))| <= lipschitz |x - x'|`` (Euclidean), makes that a
    proof. Where the follower is indifferent, the answer that suits the leader counts.

    The search begins at the local answers of :func:`blocc.solve` from ``x0`` (by default the middle of X) and from
    ``starts - 1`` random points; their values are in ``settings["local_upper_values"]``. The run ends when
    ``upper_value - bound <= gap_tolerance * max(1, |upper_value|)``, after ``time_limit`` seconds, or at Ctrl-C, with
    the best point and the bound so far. ``result.bound`` and ``result.gap`` are None where nothing is proven.

    :raises ProblemError: where nothing can be proven about a problem of this form, naming the term in the way
    """
    check_arguments(problem, None)
    problem = problem.lifted
    _check_numbers(time_limit, gap_tolerance, lipschitz, starts, seed)
    first = start_in(problem, x0)
    run = _Run(problem, time_limit, float(gap_tolerance), lipschitz, starts, seed)
    with double_precision(), interruptible(run.request):
        return run.result(first)


def _check_numbers(time_limit: Any, gap_tolerance: Any, lipschitz: Any, starts: Any, seed: Any) -> None:
    """Every number before any work."""
    for name, value, least in (
        ("time_limit", time_limit, None),
        ("gap_tolerance", gap_tolerance, None),
        ("lipschitz", lipschitz, 0.0),
    ):
        if value is None and name != "gap_tolerance":
            continue
        number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        if not number or not np.isfinite(value) or value < 0.0 or (least is None and value == 0.0):
            kind = "positive" if least is None else "nonnegative"
            raise OptionError(f"{name} must be a {kind} number, got {value!r}")
    for name, value in (("starts", starts), ("seed", seed)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
            raise OptionError(f"{name} must be a nonnegative integer, got {value!r}")


@dataclass
class _Run:
    """One run of `solve_global`."""

    problem: BilevelProblem
    time_limit: float | None
    gap_tolerance: float
    lipschitz: float | None
    starts: int
    seed: int
    request: StopRequest = field(default_factory=StopRequest)
    began: float = field(default_factory=lambda: time.perf_counter())
    compiled: float = field(default_factory=compile_seconds)
    local: list[Result] = field(default_factory=list)
    reserve: float = 0.0  #: seconds that the search leaves for what follows

    @property
    def deadline(self) -> float:
        return np.inf if self.time_limit is None else self.began + self.time_limit - self.reserve

    def stopped(self) -> bool:
        return self.request.reason is not None or time.perf_counter() >= self.deadline

    def result(self, first: Float[NDArray, "n_x"]) -> Result:
        flat, relaxation, convex, constraints, reason = self.problem.flat, None, None, None, ""
        try:
            constraints = constraints_of(flat)
        except NotRecognised as refusal:
            reason = str(refusal)
        try:
            follower = follower_of(flat)
            if constraints is not None:
                relaxation = Relaxation(constraints, follower)
        except NotConvex as refusal:
            raise ProblemError(f"solve_global needs a convex follower: {refusal}") from None
        except NotRecognised as refusal:
            reason = reason or str(refusal)
        if relaxation is None:
            self._check_boxes(reason)
            with suppress(NotRecognised):
                convex = None if constraints is None else Relaxation(constraints, None)
        self._descend(first)
        if relaxation is not None:
            return self._by_complementarity(relaxation)
        return self._by_boxes(convex, reason)

    def _check_boxes(self, reason: str) -> None:
        """Refuse what can be searched neither way."""
        flat = self.problem.flat
        low, high = flat.x_set.bounds_flat()
        if flat.n_x <= MOST_BOXED and flat.x_set.is_box and np.isfinite(low).all() and np.isfinite(high).all():
            return
        raise ProblemError(
            f"solve_global has no proof for this problem: {reason}. Other followers need at most {MOST_BOXED} leader's "
            "variables in a bounded Box; blocc.solve and blocc.solve_many find local answers"
        )

    def _descend(self, first: Float[NDArray, "n_x"]) -> None:
        """Local answers, to begin with. Their number ends them, not a share of the time: how fast the machine is tells
        nothing about where they lead."""
        within = self.problem.x_set
        for number in range(self.starts):
            if self.stopped():
                return
            left = None if self.time_limit is None else self.deadline - time.perf_counter()
            start = within.unravel(first) if number == 0 else within.sample(self.seed + number)
            self._local_from(start, left)

    def _local_from(self, start: PyTree, seconds: float | None) -> None:
        stop = lambda state: self.request.reason is not None  # noqa: E731
        self.local.append(solve(self.problem, start, time_limit=seconds, seed=self.seed, callback=stop, progress=False))

    def _flat(self, result: Result) -> tuple[NDArray, NDArray]:
        return self.problem.x_set.ravel(result.x), self.problem.y_set.ravel(result.y)

    # --- complementarity ----------------------------------------------------------------------------------------------
    def _by_complementarity(self, relaxation: Relaxation) -> Result:
        relaxation.deadline = self.deadline
        search = Search(relaxation, self.gap_tolerance, self.stopped)
        for result in self.local:
            if result.certificate.exact and not self.stopped():
                x, y = self._flat(result)
                search.try_around(x, y / relaxation.constraints.unit)
        if not search.unbounded:
            search.run()
        counts = {"nodes": search.nodes, "linear programs": relaxation.solved, "evaluations": relaxation.solved}
        point, answered = None, False
        assert relaxation.follower is not None
        end = search.rough if search.point is None else search.point
        if end is not None:
            x, y = np.split(end[: relaxation.n], [self.problem.flat.n_x])
            answered = relaxation.residual(end) <= _ANSWERED and is_answer(
                relaxation.constraints, relaxation.follower, x, y
            )
            y = y * relaxation.constraints.unit
            point = np.clip(x, *self.problem.x_set.bounds_flat()), np.clip(y, *self.problem.y_set.bounds_flat())
        found = self._judged(point, "complementarity", counts)
        if answered:
            # At a tie between the follower's answers the slope of g is a difference of terms, and the judge, who sees
            # the difference alone, cannot call it zero.
            found = replace(found, certificate=replace(found.certificate, exact=True))
        if search.unbounded:
            message = "The leader's objective falls without limit among the follower's answers."
            return replace(found, status=Status.UNBOUNDED, message=message)
        if search.finished and search.point is None and search.closed == np.inf:
            message = "No x in X has an answer of the follower that meets the leader's constraints: proven."
            return replace(found, status=Status.INFEASIBLE, message=message)
        how = "by branch and bound with HiGHS, whose bounds are checked in exact arithmetic"
        return self._concluded(found, search.point is not None, search.bound, search.finished, how)

    # --- boxes --------------------------------------------------------------------------------------------------------
    def _by_boxes(self, relaxation: Relaxation | None, reason: str) -> Result:
        problem, left = self.problem, None
        for result in self.local:
            if result.status is Status.NOT_CONVEX:
                return result
        if self.time_limit is not None:
            self.reserve = _LAST_SHARE * self.time_limit
            left = self.deadline - time.perf_counter()
        if relaxation is not None:
            relaxation.deadline = self.deadline
        easier = smoothed(problem) if kinks_of(problem) else problem  # oracles need derivatives
        monitor = Monitor(problem.x_set.unravel, time_limit=left, request=self.request)
        evaluator = Evaluator(easier.flat, choose_oracles(easier, "auto"), monitor, self.seed)
        low, high = (np.asarray(bound, dtype=np.float64) for bound in problem.x_set.bounds_flat())
        search = BoxSearch(evaluator, low, high, self.gap_tolerance, self.stopped, self.lipschitz, relaxation)
        for result in self.local:
            if result.certificate.exact:
                search.offer(*self._flat(result), result.upper_value)
        search.run()
        if not search.finished and search.best is not None and not self.stopped():
            left = None if self.time_limit is None else self.deadline + 0.5 * self.reserve - time.perf_counter()
            self._local_from(problem.x_set.unravel(search.best.x), left)
            if self.local[-1].certificate.exact:
                search.offer(*self._flat(self.local[-1]), self.local[-1].upper_value)
        counts = {"nodes": search.nodes, "evaluations": evaluator.evaluations}
        point = None if search.best is None else (search.best.x, search.best.y)
        found = self._judged(point, "boxes", counts)
        if not search.proves or search.bound == -np.inf:
            best = "no feasible point" if search.best is None else "the best point"
            why = search.contradiction or reason
            message = f"Estimated, not proven: {best} of {search.nodes} boxes of x, because {why}."
            message += " A Lipschitz constant that holds, given as lipschitz, makes this a proof."
            return replace(found, status=self._why(), message=message + found.message)
        how = "by boxes of x" + ("" if self.lipschitz is None else f" with the Lipschitz constant {self.lipschitz:g}")
        return self._concluded(found, search.best is not None, search.bound, search.finished, how)

    # --- results ------------------------------------------------------------------------------------------------------
    def _judged(self, point: tuple[NDArray, NDArray] | None, approach: str, counts: dict[str, int]) -> Result:
        """The point with its certificate; the middle of both sets where there is none."""
        flat = self.problem.flat
        settings = {
            "method": "global",
            "approach": approach,
            "gap_tolerance": self.gap_tolerance,
            "time_limit": self.time_limit,
            "lipschitz": self.lipschitz,
            "starts": self.starts,
            "seed": self.seed,
            "local_upper_values": [result.upper_value for result in self.local],
            "local_statuses": [result.status.value for result in self.local],
        }
        x, y = point or (flat.x_set.interior_flat(), flat.y_set.interior_flat())
        kinks = kinks_of(self.problem)
        found = judged_result(smoothed(self.problem) if kinks else self.problem, x, y, settings)
        found = invert_smoothing(self.problem, found, kinks) if kinks else found
        compiling = compile_seconds() - self.compiled
        seconds = {"compile": compiling, "run": time.perf_counter() - self.began - compiling}
        return replace(found, counts=counts, seconds=seconds)

    def _concluded(self, found: Result, known: bool, bound: float, finished: bool, how: str) -> Result:
        """Status, sentence, bound and gap."""
        proven = float(bound) if np.isfinite(bound) else None
        gap = max(found.upper_value - bound, 0.0) if known and proven is not None else None
        allowed = self.gap_tolerance * max(1.0, abs(found.upper_value))
        # A value below what is proven is that of a point that misses its rows.
        closed = gap is not None and gap <= allowed and found.upper_value >= bound - allowed
        if closed and found.certificate.exact:
            status, message = Status.CONVERGED, f"Global optimum, proven {how}."
        elif not finished:
            what = "the best point so far" if known else "no feasible point was found"
            status, message = self._why(), f"Stopped before the gap was closed; {what}, and what is proven {how}."
        elif not known:
            status, message = (
                Status.STALLED,
                f"No feasible point was found, and numerical trouble leaves a doubt ({how}).",
            )
        elif not closed:
            status, message = Status.STALLED, f"The gap could not be closed further ({how})."
        else:
            status, message = (
                Status.STALLED,
                f"The gap is closed ({how}), but y is not shown to be the follower's answer.",
            )
        values = [result.upper_value for result in self.local if result.certificate.exact]
        if values:
            message += f" The best local answer had {min(values):.5g}."
        certificate = found.certificate
        if gap is not None and np.isnan(certificate.stationarity_x):  # at a kink or a jump: what could still be gained
            certificate = replace(certificate, stationarity_x=gap)
        message += found.message  # about corners, if any
        return replace(found, status=status, message=message, bound=proven, gap=gap, certificate=certificate)

    def _why(self) -> Status:
        if self.request.reason is StopReason.INTERRUPTED:
            return Status.INTERRUPTED
        return Status.TIME_LIMIT if self.stopped() else Status.STALLED
