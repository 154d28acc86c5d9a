"""Choose the margins: a convex relaxation that is often exact, and otherwise a descent over sets of support vectors.

The leader pays for c_i but never gains from more of it, so c_i = max(0, 1 - margin_i) at every optimum and the leader's
objective is a convex function R of the classifier y alone. What remains of the follower is: w must be a nonnegative
combination of the samples with margin at most 1, balanced in b.

1. Minimise R without that condition: a lower bound for every bilevel answer. Where classes overlap, the follower's
   answer to the resulting c is that very classifier (its feasible set is a single point), and then the answer is a
   global optimum, proved.
2. Otherwise start from a classifier with a ridge, hold the samples with margin at most 1, and solve for the best
   answer with these: convex again. Its multipliers tell which held samples with neither weight nor forgiveness should
   be released, and which others should be held; the old answer stays feasible, so the objective only falls. When no
   sample gains by changing sides, the answer is (strongly) stationary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from blocc._lib.arrays import Bool, NDArray
from blocc._lib.compiled import clock
from blocc._lib.rounding import ASKED, EXACT, KEPT, PLACED
from blocc.outer.monitor import Stop, StopReason
from blocc.result import HistoryRow, Status
from blocc.run.single import reason_of
from blocc.svm.margins import MarginProblem, Margins, Y
from blocc.svm.optimality import Classifier, follower_residual, refined, stationarity, switching_gains
from blocc.svm.padded import FollowerSolution, LeaderSolution, Solvers, Stopped

#: Ridges of the starting classifiers, per validation sample, in features of unit size.
RIDGES = (1e-4, 1e-3, 3e-3, 1e-2, 1e-1)
#: With more features than this Newton's matrices are no longer small: three ridges must do, or one.
SEVERAL_FEATURES, MANY_FEATURES = 32, 128
BRANCH_TOLERANCE = 1e-9
MAX_BRANCHES = 300
#: A smaller gain, relative, is rounding.
LEAST_GAIN = 1e-9

_STOPPED = {
    StopReason.TIME_LIMIT: (Status.TIME_LIMIT, "The time limit was reached"),
    StopReason.INTERRUPTED: (Status.INTERRUPTED, "Interrupted"),
}
NOTHING = HistoryRow._make([np.nan] * len(HistoryRow._fields))  #: no step has a gamma or a penalised answer
Held = Bool[NDArray, "n"]
Solution = TypeVar("Solution", FollowerSolution, LeaderSolution)


@dataclass
class Choice:
    """How a descent went: its answer, the lower bound, and every step."""

    best: Classifier | None = None
    bound: float = -np.inf  #: no c has a smaller upper value
    is_global: bool = False
    status: Status = Status.STALLED
    message: str = ""
    rows: list[HistoryRow] = field(default_factory=list)
    path: list[Y] = field(default_factory=list)  #: the classifier of each history row
    branches: int = 0
    newton_steps: int = 0
    stationarity: float = np.inf  #: what the conditions of an optimum lack, relative to the leader's gradient


class _End(NamedTuple):
    """Where one descent ended."""

    classifier: Classifier
    status: Status
    message: str
    stationarity: float


@dataclass
class _SetDescent:
    """A descent over sets of held samples: where it stands, and what was tried in vain."""

    current: Classifier
    tried: Held  #: samples that changed sides alone, without gain, since the last gain
    alone: bool = False  #: whether samples change sides one by one

    def take(self, candidate: Classifier, sound: bool) -> bool:
        """Go to the answer with another set where it gains; whether it is at least no worse."""
        least = LEAST_GAIN * (1.0 + abs(self.current.value))
        gain = self.current.value - candidate.value if sound else -np.inf
        changed = candidate.held != self.current.held
        if gain > least:
            self.tried, self.alone = np.zeros_like(self.tried), False
        elif changed.sum() == 1:
            self.tried = self.tried | changed
        else:
            self.alone = True  # together they gain nothing; one by one they may
        # A change without gain is not kept: by its multipliers the samples would gain by changing back.
        if gain > least or (gain >= -least and not changed.any()):
            self.current = candidate
        return gain >= -least

    def gains(self, problem: MarginProblem) -> Margins:
        """What samples that were not tried gain by changing sides."""
        return switching_gains(problem, self.current) * ~self.tried

    def next_set(self, gains: Margins) -> Held:
        """The held samples, with those on the other side that gain: all of them, or the one that gains most."""
        changing = gains > 0.0
        return self.current.held ^ (changing & (np.arange(len(gains)) == gains.argmax()) if self.alone else changing)


@dataclass
class Descent:
    """One run, until it is done or the solvers are stopped. ``report`` sees every history row."""

    solvers: Solvers
    tolerance: float = 1e-6
    report: Callable[[int, HistoryRow], None] | None = None
    begun: float = field(default_factory=clock)
    choice: Choice = field(default_factory=Choice)
    _leaders: Y | None = None  #: the last answer of one of the leader's problems

    @property
    def problem(self) -> MarginProblem:
        """The problem, in scaled features."""
        return self.solvers.problem

    def run(self, start: Margins | None, gamma: float) -> Choice:
        """From margins ``start`` (None: from ridges alone) to the answer; ``gamma`` shapes the first step."""
        choice = self.choice
        try:
            if start is not None:
                answer = self._follower(start)
                self._record(answer.y, self._elapsed(), answer.error, start)
            if not self._relax():
                self._descend_from(start, gamma)
        except (Stop, KeyboardInterrupt) as stop:
            reason = self.solvers.request.reason = reason_of(stop)
            choice.status, what = _STOPPED[reason]
            choice.message = f"{what}; this is the best classifier so far."
            if choice.best is None:
                self._take_unfinished(stop.y if isinstance(stop, Stopped) else None)
                choice.message = (
                    f"{what} before the lower level was solved: y is a classifier on the way, and not yet the "
                    "follower's answer to x."
                )
        return choice

    def _take_unfinished(self, y: Y | None) -> None:
        """Without any answer of the follower: the classifier where the search stood, or one that sees no feature."""
        choice, problem = self.choice, self.problem
        found = [point for point in (self._leaders, y) if point is not None]
        heavier = np.sign(problem.weights.training @ problem.rows[:, -1]) or 1.0
        y = found[0] if found else np.append(np.zeros(problem.rows.shape[1] - 1), heavier)
        c, none = problem.forgiven(y), np.zeros(len(problem.rows))
        choice.best = Classifier(y, c, none, none, np.zeros_like(y), none > 0.0, problem.upper(c, y))
        self._record(y, self._elapsed(), np.nan)

    def _relax(self) -> bool:
        """Solve the relaxation; whether the follower agrees with it."""
        choice, problem = self.choice, self.problem
        begun = self._elapsed()
        found = self._leader()
        relaxed, prices = found.y, found.margin_price
        if not np.isfinite(relaxed).all() or found.error > 1e-4:
            return False
        c = problem.forgiven(relaxed)
        least = problem.upper(c, relaxed)
        # The relaxation is solved to rounding; its residual gradient, over the length of y, makes the bound weaker.
        size = 1.0 + np.abs(problem.validation_slope(relaxed)).max() + np.abs(prices).max()
        choice.bound = max(least - found.error * size * (1.0 + np.abs(relaxed).sum()), 0.0)
        answer = self._follower(c)
        y = answer.y
        value = problem.upper(c, y)
        # The two classifiers may differ where features depend on each other; what counts is the leader's value.
        if found.error > EXACT or answer.error > PLACED or value - least > 1e-8 * (1.0 + least):
            return False
        held = np.zeros(len(c), dtype=bool)
        choice.best = Classifier(y, c, answer.price, prices, np.zeros_like(y), held, value)
        choice.is_global = True
        choice.stationarity = stationarity(problem, choice.best)
        ended = self._elapsed()
        for step, point in enumerate(found.path[1:], start=1):
            self._record(point, begun + (ended - begun) * step / len(found.path), np.nan)
        self._record(y, ended, answer.error)
        good = choice.stationarity <= self.tolerance
        choice.status = Status.CONVERGED if good else Status.STALLED
        choice.message = (
            "A global optimum: no margins have a smaller upper value, by a convex relaxation, and the follower's "
            "answer is the relaxation's classifier."
            if good
            else f"The relaxation is solved only to {choice.stationarity:.1e}."
        )
        return True

    def _descend_from(self, start: Margins | None, gamma: float) -> None:
        """Descend from one start, or from all ridges; keep the best."""
        choice = self.choice
        if start is not None:
            answer = self._follower(start)
            attempts = [(gamma, gamma * answer.price if answer.error < KEPT else None)]
        else:
            features = self.problem.rows.shape[1]
            ridges = RIDGES[: 1 if features > MANY_FEATURES else 3 if features > SEVERAL_FEATURES else None]
            attempts = [(ridge * self.problem.weights.validation.sum(), None) for ridge in ridges]
        ends = [end for end in (self._descend(ridge, charge) for ridge, charge in attempts) if end is not None]
        if not ends:
            self._take_unfinished(None)
            choice.status = Status.STALLED
            choice.message = (
                "The lower level could not be solved at any start: y is a classifier of the leader's, and not the "
                "follower's answer to x."
            )
            return
        # The smallest value among the proved ones; if none is proved, the smallest of all.
        best = min(ends, key=lambda end: (end.status is not Status.CONVERGED, end.classifier.value))
        choice.best, choice.status, choice.message, choice.stationarity = best

    def _descend(self, ridge: float, charge: Margins | None) -> _End | None:
        """One descent over sets of held samples, from the classifier with this ridge."""
        problem = self.problem
        smooth = self._leader(ridge=ridge, charge=charge)
        follower = self._follower(problem.forgiven(smooth.y))
        if follower.error > 1e-5:
            return None
        held = problem.rows @ follower.y <= 1.0 + EXACT
        first, error, sound = self._branch(held, follower.y, follower.price, settle=False)
        if not sound:
            return self._answer_alone(follower)
        sets = _SetDescent(first, np.zeros_like(held))
        self._note(first, error, sets.tried)
        settle = False
        for _ in range(MAX_BRANCHES - 1):
            gains = sets.gains(problem)
            if not gains.any() and (settle or problem.c_penalty != "norm"):
                break
            # The norm of c needs a few more solves once no sample changes sides, and none before.
            settle = not gains.any()
            now = sets.current
            candidate, error, sound = self._branch(sets.next_set(gains), now.y, now.support, settle)
            if sets.take(candidate, sound):
                self._note(candidate, error, sets.tried)
        lack = stationarity(problem, sets.current, sets.tried)
        if lack <= self.tolerance:
            message = "No sample gains by changing sides: the margins are stationary, and y is the follower's answer."
            return _End(sets.current, Status.CONVERGED, message, lack)
        message = f"The conditions of an optimum lack {lack:.1e} (relative; wanted {self.tolerance:.0e})."
        return _End(sets.current, Status.STALLED, message, lack)

    def _answer_alone(self, follower: FollowerSolution) -> _End:
        """The follower's answer to the leader's first margins, where no set of held samples could be solved."""
        problem, y = self.problem, follower.y
        c, none = problem.forgiven(y), np.zeros_like(y)  # with the least margins that let y pass it stays the answer
        held = problem.rows @ y <= 1.0 + EXACT
        price = np.maximum(follower.price, 0.0)
        answer = Classifier(y, c, price, np.zeros_like(c), none, held, problem.upper(c, y))
        self._record(y, self._elapsed(), follower.error)
        message = "y is the follower's answer to x, but no better margins could be computed from here."
        return _End(answer, Status.STALLED, message, np.inf)

    def _branch(self, held: Held, y: Y, support: Margins, settle: bool) -> tuple[Classifier, float, bool]:
        """The best answer with these held samples, how well it is solved, and whether it can be trusted.

        The follower's conditions are made exact: y is computed from its multipliers.
        """
        problem = self.problem
        found = self._leader(held=held, y=y, support=support, settle=settle)
        self.choice.branches += 1
        support, y = refined(problem, np.where(held, np.maximum(found.support, 0.0), 0.0), found.y)
        c = problem.forgiven(y)
        prices = found.margin_price, found.coupling_price
        classifier = Classifier(y, c, support, *prices, held, problem.upper(c, y))
        sound = found.error < 1e-4 and follower_residual(problem, classifier) < KEPT
        return classifier, found.error, sound

    def _note(self, candidate: Classifier, error: float, tried: Held) -> None:
        """A step of the history, and the best answer so far."""
        choice = self.choice
        if choice.best is None or candidate.value < choice.best.value:
            choice.best, choice.stationarity = candidate, stationarity(self.problem, candidate, tried)
        self._record(candidate.y, self._elapsed(), error)

    def _leader(self, *, settle: bool = True, **options: Any) -> LeaderSolution:
        """The leader's convex problem; the norm of c by squares that touch it from above, one or until they settle."""
        problem = self.problem
        branch = options.get("held") is not None
        tolerance = BRANCH_TOLERANCE if branch else 1e-11
        each = problem.c_weight * problem.weights.training
        if problem.c_penalty == "squared":
            return self._count(self.solvers.leader(tolerance=tolerance, c_weight=each, **options))
        if problem.c_penalty == "sum":
            charge = options.pop("charge", None)
            price = each if charge is None else each + charge
            return self._count(self.solvers.leader(tolerance=tolerance, charge=price, **options))

        def length(y: Y) -> float:
            return max(problem.length(problem.forgiven(y)), 1e-6)

        touching = length(options["y"]) if "y" in options else problem.length(np.ones(len(problem.rows)))
        for _ in range(50):
            found = self._count(self.solvers.leader(tolerance=tolerance, c_weight=each / touching, **options))
            options["y"] = found.y
            reached = length(found.y)
            if not settle or abs(reached - touching) <= ASKED * (1.0 + touching):
                break
            touching *= (reached / touching) ** 1.5  # a little further than it went
        return found

    def _follower(self, c: Margins) -> FollowerSolution:
        return self._count(self.solvers.follower(c))

    def _count(self, answer: Solution) -> Solution:
        self.choice.newton_steps += answer.iterations
        if isinstance(answer, LeaderSolution) and np.isfinite(answer.y).all():
            self._leaders = answer.y
        return answer

    def _record(self, y: Y, when: float, error: float, c: Margins | None = None) -> None:
        problem, choice = self.problem, self.choice
        margins = problem.forgiven(y) if c is None else c
        value = problem.upper(margins, y)
        step = float(np.linalg.norm(y - choice.path[-1])) if choice.path else 0.0
        lack = choice.stationarity if choice.best is not None and choice.best.y is y else np.nan
        row = NOTHING._replace(
            time=when,
            upper_value=value,
            lower_value=problem.lower(y),
            stationarity=lack,
            inner_residual=error,
            step=step,
            evaluations=self.solvers.solves,
        )
        choice.rows.append(row)
        choice.path.append(y)
        if self.report is not None:
            self.report(len(choice.rows), row)

    def _elapsed(self) -> float:
        """Seconds since the start, on the clock of every history."""
        return clock() - self.begun
