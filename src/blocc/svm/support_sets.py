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
   sample wants to change sides, the answer is (strongly) stationary.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from blocc.result import HistoryRow, Status
from blocc.svm.margins import MarginProblem
from blocc.svm.optimality import Classifier, follower_residual, refined, stationarity, wishes
from blocc.svm.padded import Answer, Solvers

#: Ridges of the starting classifiers, per validation sample, in features of unit size.
RIDGES = (1e-4, 1e-3, 3e-3, 1e-2, 1e-1)
#: With more features than this Newton's matrices are no longer small: three ridges must do, or one.
SEVERAL_FEATURES, MANY_FEATURES = 32, 128
BRANCH_TOLERANCE = 1e-9
MAX_BRANCHES = 300
#: A smaller gain, relative, is rounding.
LEAST_GAIN = 1e-9


@dataclass
class Choice:
    """How a descent went: its answer, the lower bound, and every step."""

    best: Classifier | None = None
    bound: float = -np.inf  #: no c has a smaller upper value
    is_global: bool = False
    status: Status = Status.STALLED
    message: str = ""
    rows: list[HistoryRow] = field(default_factory=list)
    path: list[np.ndarray] = field(default_factory=list)  #: the classifier of each history row
    branches: int = 0
    newton_steps: int = 0
    stationarity: float = np.inf  #: what the conditions of an optimum lack, relative to the leader's gradient


@dataclass
class Descent:
    """One run. ``report`` sees every history row; the run ends after ``time_limit`` seconds."""

    solvers: Solvers
    tolerance: float = 1e-6
    time_limit: float | None = None
    report: Callable[[int, HistoryRow], None] | None = None
    begun: float = field(default_factory=time.perf_counter)
    choice: Choice = field(default_factory=Choice)

    @property
    def problem(self) -> MarginProblem:
        """The problem, in scaled features."""
        return self.solvers.problem

    def run(self, start: np.ndarray | None, gamma: float) -> Choice:
        """From margins ``start`` (None: from ridges alone) to the answer; ``gamma`` shapes the first step."""
        choice = self.choice
        try:
            if start is not None:
                self._record_start(start)
            if not self._relax():
                self._descend_from(start, gamma)
        except KeyboardInterrupt:
            if choice.best is None:
                raise
            choice.status, choice.message = Status.INTERRUPTED, "Interrupted; this is the best classifier so far."
        except _TimeIsUp:
            choice.status, choice.message = Status.TIME_LIMIT, "The time limit was reached; this is the best so far."
        return choice

    def _relax(self) -> bool:
        """Solve the relaxation; whether the follower agrees with it."""
        choice, problem = self.choice, self.problem
        begun = self._elapsed()
        found = self._leader()
        if not np.isfinite(found["y"]).all() or found.error > 1e-4:
            return False
        c = problem.forgiven(found["y"])
        least = problem.upper(c, found["y"])
        # The relaxation is solved to rounding; its residual gradient, over the length of y, makes the bound weaker.
        size = 1.0 + np.abs(problem.validation_slope(found["y"])).max() + np.abs(found["margin_price"]).max()
        choice.bound = max(least - found.error * size * (1.0 + np.abs(found["y"]).sum()), 0.0)
        answer = self._follower(c)
        y = answer["y"]
        value = problem.upper(c, y)
        # The two classifiers may differ where features depend on each other; what counts is the leader's value.
        if found.error > 1e-9 or answer.error > 1e-7 or value - least > 1e-8 * (1.0 + least):
            return False
        none = np.zeros_like(y)
        choice.best = Classifier(
            y, c, answer["price"], found["margin_price"], none, np.zeros(len(c), dtype=bool), value
        )
        choice.is_global = True
        choice.stationarity = stationarity(problem, choice.best)
        ended = self._elapsed()
        path = found.path if found.path is not None else y[None]
        for step, point in enumerate(path[1:], start=1):
            self._record(point, begun + (ended - begun) * step / len(path), np.nan)
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

    def _descend_from(self, start: np.ndarray | None, gamma: float) -> None:
        """Descend from one start, or from all ridges; keep the best."""
        choice = self.choice
        attempts: list[tuple[float, np.ndarray | None]]
        if start is not None:
            answer = self._follower(start)
            usable = answer.error < 1e-6
            attempts = [(gamma, gamma * answer["price"] if usable else None)]
        else:
            features = self.problem.rows.shape[1]
            ridges = RIDGES[: 1 if features > MANY_FEATURES else 3 if features > SEVERAL_FEATURES else None]
            attempts = [(ridge * len(self.problem.validation), None) for ridge in ridges]
        ends: list[tuple[float, Status, str, float, Classifier]] = []
        for ridge, charge in attempts:
            end = self._branches(ridge, charge)
            if end is not None:
                ends.append(end)
        if not ends:
            choice.status, choice.message = Status.STALLED, "The lower level could not be solved at any start."
            return
        # The smallest value among the proved ones; if none is proved, the smallest of all.
        _, status, message, lack, best = min(ends, key=lambda e: (e[1] is not Status.CONVERGED, e[0]))
        choice.best, choice.status, choice.message, choice.stationarity = best, status, message, lack

    def _branches(self, ridge: float, charge: np.ndarray | None) -> tuple[float, Status, str, float, Classifier] | None:
        """One descent over sets of held samples."""
        problem, choice = self.problem, self.choice
        smooth = self._leader(ridge=ridge, charge=charge)
        follower = self._follower(problem.forgiven(smooth["y"]))
        if follower.error > 1e-5:
            return None
        y, support = follower["y"], follower["price"]
        held = problem.rows @ y <= 1.0 + 1e-9
        current: Classifier | None = None
        tried = np.zeros(len(held), dtype=bool)  # changed sides alone, without gain, since the last gain
        alone = settle = False
        for _ in range(MAX_BRANCHES):
            found = self._leader(held=held, y=y, support=support, settle=settle)
            choice.branches += 1
            candidate = self._classifier(found, held)
            sound = found.error < 1e-4 and follower_residual(problem, candidate) < 1e-6
            if current is None and not sound:
                return None
            least = 0.0 if current is None else LEAST_GAIN * (1.0 + abs(current.value))
            improved = sound and (current is None or candidate.value < current.value - least)
            changed = np.zeros_like(tried) if current is None else held != current.held
            if improved:
                tried, alone = np.zeros_like(tried), False
            elif changed.sum() == 1:
                tried = tried | changed
            else:
                alone = True  # together they gain nothing; one by one they may
            if sound and (current is None or candidate.value <= current.value + least):
                # A change without gain is not kept: its multipliers would wish it back.
                current = candidate if improved or not changed.any() else current
                if choice.best is None or candidate.value < choice.best.value:
                    choice.best, choice.stationarity = candidate, stationarity(problem, candidate, tried)
                self._record(candidate.y, self._elapsed(), found.error)
            assert current is not None
            wishing = wishes(problem, current) * ~tried
            if not wishing.any() and (settle or problem.c_penalty != "norm"):
                break
            # The norm of c needs a few more solves once the samples are content, and none before.
            settle = not wishing.any()
            changing = np.arange(len(held)) == wishing.argmax() if alone else wishing > 0.0
            held = current.held ^ (changing & (wishing > 0.0))
            y, support = current.y, current.support
        if current is None:
            return None
        lack = stationarity(problem, current, tried)
        if lack <= self.tolerance:
            message = "No sample gains by changing sides: the margins are stationary, and y is the follower's answer."
            return current.value, Status.CONVERGED, message, lack, current
        message = f"The conditions of an optimum lack {lack:.1e} (relative; wanted {self.tolerance:.0e})."
        return current.value, Status.STALLED, message, lack, current

    def _classifier(self, found: Answer, held: np.ndarray) -> Classifier:
        """The solution with the follower's conditions made exact: y is computed from its multipliers."""
        problem = self.problem
        support = np.where(held, np.maximum(found["support"], 0.0), 0.0)
        support, y = refined(problem, support, found["y"])
        c = problem.forgiven(y)
        value = problem.upper(c, y)
        return Classifier(y, c, support, found["margin_price"], found["coupling_price"], held, value)

    def _leader(self, *, settle: bool = True, **options: Any) -> Answer:
        """The leader's convex problem; the norm of c by squares that touch it from above, one or until they settle."""
        self._check_time()
        problem = self.problem
        branch = options.get("held") is not None
        tolerance = BRANCH_TOLERANCE if branch else 1e-11
        if problem.c_penalty == "squared":
            return self._count(self.solvers.leader(tolerance=tolerance, **options))
        if problem.c_penalty == "sum":
            charge = options.pop("charge", None)
            price = np.full(len(problem.rows), problem.c_weight) + (0.0 if charge is None else charge)
            return self._count(self.solvers.leader(tolerance=tolerance, c_weight=0.0, charge=price, **options))

        def length(y: np.ndarray) -> float:
            return max(float(np.linalg.norm(problem.forgiven(y))), 1e-6)

        touching = length(options["y"]) if "y" in options else float(np.sqrt(len(problem.rows)))
        for _ in range(50):
            c_weight = problem.c_weight / touching
            found = self._count(self.solvers.leader(tolerance=tolerance, c_weight=c_weight, **options))
            options["y"] = found["y"]
            reached = length(found["y"])
            if not settle or abs(reached - touching) <= 1e-10 * (1.0 + touching):
                break
            touching *= (reached / touching) ** 1.5  # a little further than it went
        return found

    def _follower(self, c: np.ndarray) -> Answer:
        self._check_time()
        return self._count(self.solvers.follower(c))

    def _count(self, answer: Answer) -> Answer:
        self.choice.newton_steps += answer.iterations
        return answer

    def _record_start(self, c: np.ndarray) -> None:
        answer = self._follower(c)
        self._record(answer["y"], self._elapsed(), answer.error, c)

    def _record(self, y: np.ndarray, when: float, error: float, c: np.ndarray | None = None) -> None:
        problem, choice = self.problem, self.choice
        margins = problem.forgiven(y) if c is None else c
        value = problem.upper(margins, y)
        step = float(np.linalg.norm(y - choice.path[-1])) if choice.path else 0.0
        lack = choice.stationarity if choice.best is not None and choice.best.y is y else np.nan
        row = HistoryRow(
            time=when,
            gamma=np.nan,
            upper_value=value,
            upper_value_penalty=np.nan,
            lower_value=problem.lower(y),
            penalty_value=np.nan,
            stationarity=lack,
            inner_residual=error,
            distance=np.nan,
            step=step,
            evaluations=self.solvers.solves,
        )
        choice.rows.append(row)
        choice.path.append(y)
        if self.report is not None:
            self.report(len(choice.rows), row)

    def _elapsed(self) -> float:
        """Seconds since the start, compilation included, as in every history."""
        return time.perf_counter() - self.begun

    def _check_time(self) -> None:
        if self.time_limit is not None and self._elapsed() > self.time_limit and self.choice.best is not None:
            raise _TimeIsUp


class _TimeIsUp(Exception):
    """The time limit has passed, and there is a classifier to return."""
