"""Where the starts of one call have ended: what is known about a place need not be found out twice.

A start is followed step by step: its first phase, the verdict, cheap attempts to go on, dear ones. Every phase ends
somewhere. Where an earlier start has been in that place and ended with success, so will this one; and a start
that is stuck at a value clearly worse than another's is given up before anything dear is tried. :meth:`Places.settle`
decides from what was computed, so the decision is the same whether a start was followed here, knowing of all earlier
ones, or elsewhere, knowing of some.
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
#: What a start says of itself that ended in a known place.
_MERGED = "It was not followed to the end: an earlier start came to the same place, and this is what came of that one."


@dataclass(frozen=True)
class End:
    """Where one phase of a start has ended."""

    found: Result  #: there, not judged, with the counts so far
    best: float = np.inf  #: the value of the best phase before it
    flat: tuple[int, ...] = ()  #: entries of x that neither f nor the follower's answer depends on around it
    onward: bool = True  #: whether the start went on from there

    @property
    def x(self) -> Float[NDArray, "n_x"]:
        """The leader's variables, flat."""
        return joined(self.found.x)


@dataclass(frozen=True)
class Descent:
    """One start of one problem, as far as it was followed."""

    first: Result  #: of its first phase, not judged, with the counts so far
    ends: tuple[End, ...] = ()  #: of its phases in turn; none where there is nothing to judge
    early: Result | None = None  #: judged, before anything dear was tried; None where nothing dear was called for
    cheap: int = 0  #: phases that came before that
    final: Result | None = None  #: None where it ended in a known place or was given up
    flat: tuple[int, ...] = ()  #: as in :class:`End`, around the final x


class _Place(NamedTuple):
    end: End
    result: Result  #: what came of it
    dear: int  #: evaluations that it took from there

    def holds(self, end: End) -> bool:
        """Whether another phase has ended in this place, and nothing better was known before it."""
        if end.found.status not in OPEN or self.result.upper_value > end.best:
            return False
        x, here, flat = end.x, self.end.x, list(self.end.flat)
        if near(x, here):
            return True
        x[flat] = here[flat]
        there, mine = end.found, self.end.found
        values = np.array([there.upper_value, mine.upper_value])
        return bool(flat) and all(
            near(*pair) for pair in ((x, here), (values[:1], values[1:]), (joined(there.y), joined(mine.y)))
        )


class Places:
    """Ends of descents with the results that came of them."""

    def __init__(self) -> None:
        self._known: list[_Place] = []
        self._best = np.inf  #: the least value of a success

    def settle(self, told: Descent) -> Result | None:
        """The result of a start after the earlier ones; None where it was not followed far enough to tell."""
        if not told.ends:
            return told.first
        merged = self._merged(told.ends[: told.cheap])
        if merged is not None:
            return merged
        result = told.final
        if told.early is not None and self.hopeless(told.early):
            result = replace(
                told.early,
                message=f"{told.early.message} It was not followed further: an earlier start has ended clearly better.",
                counts={**told.early.counts, "given_up": 1},
            )
        elif (merged := self._merged(told.ends[told.cheap :])) is not None:
            return merged
        if result is not None and result.success:  # another start may fare better where this one is stuck
            self._add(told, result)
        return result

    def _merged(self, ends: tuple[End, ...]) -> Result | None:
        """What came of another start in the first known place among these ends."""
        for end in ends:
            if (place := self._at(end)) is not None:
                result, found = place.result, end.found
                message = result.message if result.message.endswith(_MERGED) else f"{result.message} {_MERGED}"
                counts = {**found.counts, "merged": 1, "evaluations_saved": place.dear}
                return replace(result, message=message, history=found.history, counts=counts, seconds=found.seconds)
        return None

    def known(self, end: End) -> bool:
        """Whether an earlier start has been where a phase has ended."""
        return self._at(end) is not None

    def hopeless(self, result: Result) -> bool:
        """Whether a result without success is clearly worse than the best success."""
        return not result.success and result.upper_value - self._best > _CLEARLY * abs(self._best)

    def _add(self, told: Descent, result: Result) -> None:
        spent = result.counts["evaluations"]
        last = End(result, flat=told.flat if result is told.final else ())
        passed = [end for end in told.ends if end.onward] if result is told.final else told.ends[:1]
        self._known += [_Place(end, result, spent - end.found.counts["evaluations"]) for end in passed]
        self._known.append(_Place(last, result, spent - told.first.counts["evaluations"]))
        if result.certificate.exact:
            self._best = min(self._best, result.upper_value)

    def light(self) -> Places:
        """The same without histories, to be sent to where another start is followed."""
        other = Places()
        other._best = self._best
        for place in self._known:
            found, result = (replace(one, history=History([])) for one in (place.end.found, place.result))
            other._known.append(_Place(replace(place.end, found=found), result, place.dear))
        return other

    def _at(self, end: End) -> _Place | None:
        return next((place for place in self._known if place.holds(end)), None)
