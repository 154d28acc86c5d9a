"""The way of a run: a finish from its start, a few stages of F_gamma with moderate gamma, and a finish from there.

The finish descends f(x, y(x)) itself (:mod:`blocc.pieces`), in the user's units, and stays in the valley where it
begins; F_gamma with a small gamma finds others. The better end is the run's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import NDArray
from blocc.corners import has_follower_sides
from blocc.options import Options
from blocc.outer.continuation import FACTOR
from blocc.outer.descent import descend
from blocc.outer.evaluator import Evaluator
from blocc.outer.tolerances import Stage, Tolerances, runs_away
from blocc.penalty import Evaluation, UpperMultipliers, answer_of
from blocc.pieces.finish import Asked, Finish
from blocc.pieces.piece import Followers, Guess
from blocc.problem import BilevelProblem
from blocc.reformulate.units import Scaling
from blocc.result import HistoryRow

#: Stages of F_gamma: one finds the valley, and two more tell whether it is one of f(x, y(x)) as well.
_STAGES = 3
_FINISHED = (2,)  #: those after which a finish begins
#: Steps of a stage, and the slope at which it ends, relative to f: a valley is found long before its minimum.
_STEPS, _LOOSE = 5, 1e-2
#: Evaluations that a step may take, on average: hardly more than one where F_gamma is smooth. A search along a line
#: that takes many has met a kink, and there the finish takes over.
_TRIALS = 2
#: Oracles whose answers are accurate enough to read an active set from.
_ACCURATE = ("auto", "interior-point", "sparse-interior-point")


class Known(NamedTuple):
    """An earlier answer, flat and in the user's units, from which a run goes on."""

    x: NDArray
    y: NDArray
    inequality: NDArray  #: multipliers of the coupled rows
    equality: NDArray


class Reached(NamedTuple):
    """The best end of both finishes, in the user's units."""

    end: Asked
    stationary: bool
    gamma: float  #: of the last stage, in the units of the run


class Finishing:
    """The finish of one run; ``scaling`` leads from the units of the run to the user's."""

    def __init__(self, problem: BilevelProblem, scaling: Scaling | None, evaluator: Evaluator) -> None:
        self.flat, self.evaluator = problem.flat, evaluator
        self.tolerances = Tolerances()  #: of the run, from where it begins
        self.units = None if scaling is None else scaling.units
        self.best: Asked | None = None  #: the best value of all finishes
        self._gamma = 1.0  #: at which oracles are asked

    @classmethod
    def of(
        cls, problem: BilevelProblem, scaling: Scaling | None, evaluator: Evaluator, options: Options
    ) -> Finishing | None:
        """None if options were given by hand: the run is then the one that they describe.

        None as well if the follower's functions have kinks in y, at which no row of its ends a piece.
        """
        automatic = isinstance(options.gamma, str) and options.outer == "auto"
        accurate = isinstance(options.inner, str) and options.inner in _ACCURATE
        suited = automatic and accurate and not has_follower_sides(problem.flat)
        return cls(problem, scaling, evaluator) if suited else None

    def descend(self, first: Evaluation, leader: UpperMultipliers, penalty: bool = True) -> Reached | None:
        """The best of all ends, after stages of F_gamma as well if ``penalty``; None if none begins on a regular piece.

        The history is that of its own way.
        """
        monitor, last = self.evaluator.monitor, first
        found: list[tuple[tuple[Asked, bool], list[HistoryRow]]] = []

        def finish(begin: Evaluation) -> None:
            way = list(monitor.rows)
            if (end := self._finish(begin)) is not None:
                found.append((end, monitor.rows))
            monitor.rows = way

        finish(first)
        for number, last in enumerate(self._stages(first, leader) if penalty else ()):
            if number in _FINISHED:
                finish(last)
        if not found:
            return None
        (end, stationary), monitor.rows = min(reversed(found), key=lambda one: self._rank(one[0]))
        return Reached(end, stationary, float(last.gamma))

    def proceed(self, known: Known) -> Reached | None:
        """The end of a finish from an earlier answer alone; None if that is not stationary."""
        followers = Followers.of(self.flat, known.x, known.y)
        guess = None if followers is None else followers.guessed(*known)
        if followers is None or guess is None:
            return None
        found = self._finished(followers, known.x, known.y, guess)
        return Reached(*found, 1.0) if found is not None and found[1] else None

    def _rank(self, found: tuple[Asked, bool]) -> tuple[bool, float, bool]:
        """Admissible ones first, then the lower value, and stationary ones first if that ties."""
        end, stationary = found
        assert self.best is not None
        noise = self.tolerances.tolerance**2 * (1.0 + abs(self.best.upper))
        return end.violation > self.tolerances.leader_tolerance, np.round(end.upper / noise), not stationary

    def _stages(self, first: Evaluation, leader: UpperMultipliers) -> Iterator[Evaluation]:
        """The ends of a few stages of F_gamma, while f does not fall for ever."""
        evaluator, at = self.evaluator, first
        steps = min(_STEPS, self.tolerances.max_iterations)
        for number in range(_STAGES):
            if number:
                gamma = FACTOR * float(at.gamma)
                following = evaluator(at.x, gamma, leader, self.tolerances.inner(gamma))
                if not following.usable:
                    return
                at = following
            accuracy, slope = self.tolerances.inner(float(at.gamma)), self.tolerances.slope(at, _LOOSE)
            at = descend(evaluator, at, Stage(leader, accuracy, slope, steps, _TRIALS)).evaluation
            if runs_away(evaluator, at):
                return
            yield at

    def _finish(self, begin: Evaluation) -> tuple[Asked, bool] | None:
        """The finish from one evaluation; None if it begins on no regular piece, or f falls for ever."""
        x, y = np.asarray(begin.x), np.asarray(begin.answer)
        if self.units is not None:
            x, y = self.flat.project_x(x * self.units.x), y * self.units.y
        followers = Followers.of(self.flat, x, y)
        self._gamma = float(begin.gamma)
        return None if followers is None else self._finished(followers, x, y)

    def _finished(
        self, followers: Followers, x: np.ndarray, y: np.ndarray, guess: Guess | None = None
    ) -> tuple[Asked, bool] | None:
        finish = Finish(followers, self._answer, self._spend, self._note)
        try:
            start = finish.start(x, y, guess)
            if start is None:
                return None
            found = finish.run(start, self.tolerances.max_iterations)
        finally:
            seen = finish.best
            if seen is not None and (self.best is None or finish.rank(seen) < finish.rank(self.best)):
                self.best = seen
        return None if found.runs_away else (found.best, found.stationary)

    @property
    def upper_unit(self) -> float:
        """By which f is multiplied in the units of the run."""
        return 1.0 if self.units is None else float(self.units.upper)

    def inward(self, x: np.ndarray) -> np.ndarray:
        """A flat point in the units of the run."""
        return x if self.units is None else x / self.units.x

    def _answer(self, x: np.ndarray) -> np.ndarray | None:
        """The follower's answer at x by the oracle, in the user's units."""
        leader = UpperMultipliers(np.zeros(self.flat.n_upper_inequality), np.asarray(1.0))
        found = self.evaluator(self.inward(x), self._gamma, leader, self.tolerances.inner(np.inf))
        self.evaluator.evaluations -= 1  # counted by :meth:`_spend`
        y = answer_of(found)
        return y if y is None or self.units is None else y * self.units.y

    def _spend(self) -> None:
        self.evaluator.monitor.spend()
        self.evaluator.evaluations += 1

    def _note(self, at: Asked, slope: float) -> None:
        """A row of the history, in the units of the run."""
        monitor, x = self.evaluator.monitor, self.inward(at.x)
        f = self.upper_unit
        g = 1.0 if self.units is None else float(self.units.lower)
        row = HistoryRow(
            time=monitor.elapsed(),
            gamma=np.inf,
            upper_value=f * at.upper,
            upper_value_penalty=f * at.upper,
            lower_value=g * at.lower,
            penalty_value=f * at.upper,
            stationarity=f * slope,
            inner_residual=0.0,
            distance=0.0,
            step=0.0 if monitor.position is None else float(np.linalg.norm(x - monitor.position)),
            evaluations=self.evaluator.evaluations,
        )
        monitor.append(row, x)
