"""Where the starts of one call have ended: what is known about a place need not be found out twice.

A start is followed step by step: its first phase, the verdict, cheap attempts to go on, dear ones. What the earlier
starts have found decides where it may end early. :meth:`Places.settle` decides from what was computed, so the decision
is the same whether a start was followed here, knowing of all earlier ones, or elsewhere, knowing of some.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.multi_result import joined, near
from blocc.result import History, Result
from blocc.run.phase import OPEN

#: A value that is worse than the best by this share of it is clearly worse.
_CLEARLY = 0.01


@dataclass(frozen=True)
class Descent:
    """One start of one problem, as far as it was followed."""

    first: Result  #: of its first phase, not judged, with the counts so far
    end: Float[NDArray, "n_x"] | None = None  #: where that ended; None where there is nothing to judge
    early: Result | None = None  #: judged, before anything dear was tried; None where nothing dear was called for
    final: Result | None = None  #: None where it ended in a known place or was given up
    flat: tuple[int, ...] = ()  #: entries of x that neither f nor the follower's answer depends on around the final x


class _Place(NamedTuple):
    x: Float[NDArray, "n_x"]
    result: Result
    dear: int  #: evaluations after the first phase
    flat: tuple[int, ...] = ()  #: entries of x that may be anything while f and the follower's answer stay the same

    def holds(self, x: Float[NDArray, "n_x"], found: Result) -> bool:
        """Whether a descent that ended at x, and found this there, has ended in this place."""
        if near(x, self.x):
            return True
        moved = x.copy()
        moved[list(self.flat)] = self.x[list(self.flat)]
        values = np.array([found.upper_value, self.result.upper_value])
        return bool(self.flat) and all(
            near(*pair)
            for pair in ((moved, self.x), (values[:1], values[1:]), (joined(found.y), joined(self.result.y)))
        )


class Places:
    """Ends of descents with the results that came of them."""

    def __init__(self) -> None:
        self._known: list[_Place] = []
        self._best = np.inf  #: the least value of a success

    def settle(self, told: Descent) -> Result | None:
        """The result of a start after the earlier ones; None where it was not followed far enough to tell."""
        if told.end is None:
            return told.first
        place = self._at(told.end, told.first)
        if place is not None:
            counts = {**told.first.counts, "merged": 1, "evaluations_saved": place.dear}
            return replace(place.result, history=told.first.history, counts=counts, seconds=told.first.seconds)
        result = told.final
        if told.early is not None and self.hopeless(told.early):
            result = replace(
                told.early,
                message=f"{told.early.message} It was not followed further: an earlier start has ended clearly better.",
                counts={**told.early.counts, "given_up": 1},
            )
        if result is not None and result.status in OPEN:
            self._add(told, result)
        return result

    def known(self, x: Float[NDArray, "n_x"], found: Result) -> bool:
        """Whether an earlier descent has ended at x, where this was found."""
        return self._at(x, found) is not None

    def hopeless(self, result: Result) -> bool:
        """Whether a result without success is clearly worse than the best success."""
        return not result.success and result.upper_value - self._best > _CLEARLY * abs(self._best)

    def _add(self, told: Descent, result: Result) -> None:
        assert told.end is not None
        dear = result.counts["evaluations"] - told.first.counts["evaluations"]
        flat = told.flat if result is told.final else ()
        self._known += [_Place(told.end, result, dear), _Place(joined(result.x), result, dear, flat)]
        if result.success and result.certificate.exact:
            self._best = min(self._best, result.upper_value)

    def light(self) -> Places:
        """The same without histories, to be sent to where another start is followed."""
        other = Places()
        other._best = self._best
        other._known = [place._replace(result=replace(place.result, history=History([]))) for place in self._known]
        return other

    def _at(self, x: Float[NDArray, "n_x"], found: Result) -> _Place | None:
        return next((place for place in self._known if place.holds(x, found)), None)
