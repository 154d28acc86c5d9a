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


class _Place(NamedTuple):
    x: Float[NDArray, "n_x"]
    result: Result
    dear: int  #: evaluations after the first phase


class Places:
    """Ends of descents with the results that came of them."""

    def __init__(self) -> None:
        self._known: list[_Place] = []
        self._best = np.inf  #: the least value of a success

    def settle(self, told: Descent) -> Result | None:
        """The result of a start after the earlier ones; None where it was not followed far enough to tell."""
        if told.end is None:
            return told.first
        place = self._at(told.end)
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
            self._add(told.end, result, result.counts["evaluations"] - told.first.counts["evaluations"])
        return result

    def known(self, x: Float[NDArray, "n_x"]) -> bool:
        """Whether an earlier descent has ended at x."""
        return self._at(x) is not None

    def hopeless(self, result: Result) -> bool:
        """Whether a result without success is clearly worse than the best success."""
        return not result.success and result.upper_value - self._best > _CLEARLY * abs(self._best)

    def _add(self, end: Float[NDArray, "n_x"], result: Result, dear: int) -> None:
        self._known += [_Place(np.array(x), result, dear) for x in (end, joined(result.x))]
        if result.success and result.certificate.exact:
            self._best = min(self._best, result.upper_value)

    def light(self) -> Places:
        """The same without histories, to be sent to where another start is followed."""
        other = Places()
        other._best = self._best
        other._known = [place._replace(result=replace(place.result, history=History([]))) for place in self._known]
        return other

    def _at(self, x: Float[NDArray, "n_x"]) -> _Place | None:
        return next((place for place in self._known if near(x, place.x)), None)
