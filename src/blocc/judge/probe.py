"""Probes: does f(x, y(x)) fall right next to x, or for ever along a ray, or not change at all?

The probes know nothing of derivatives: they compare what the leader gets at x with what it gets at points near x, from
the follower's response there. A gain counts if it is more than rounding and inexact responses explain, and more than
``tolerance * distance`` of what f(x, y(x)) itself varies by along that line over a distance of the size of x. Nothing
else is a yardstick: terms of f may be large and cancel. A gain is a proof that x is no minimum; no gain among the
probes is evidence, not proof.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from blocc._lib.rounding import EXACT

#: Distances of the probes, in sizes of x; the fine ones are for points where phi has no derivative.
DISTANCES = (1e-1, 1e-2, 1e-3)
FINE = (*DISTANCES, 1e-4, 1e-5, 1e-6)
_LEAST = (1.0 - 1e-3) * FINE[-1]  #: nearer points, but for rounding, are not told from x
NEAR = (1e-2,)
PAIR = (1e-2, 1e-4)  #: where every coordinate of many is probed, because nothing else is known
#: Distances over which f(x, y(x)) is seen to vary. Next to a minimum it varies as the square of the distance, so both
#: tell what it varies by over one size of x, and the smaller one is not misled by what only happens far away.
_FAR = (1.0, 0.1)
_BESIDE = 0.01  #: how far beside a line a point may lie, in distances from x
#: Largest dimension in which every coordinate is probed in both directions.
ALL_COORDINATES = 8


class Value(NamedTuple):
    """What the leader gets at one x."""

    x: np.ndarray
    y: np.ndarray
    upper: float
    violation: float  #: largest violation of G, relative to what its rows change by with x


#: The follower's response at x with its value; None if there is none or it could not be found accurately.
ReducedObjective = Callable[[np.ndarray], Value | None]


class Probed(NamedTuple):
    """What the probes showed."""

    better: Value | None  #: the best point that gains more than it may
    gain: float  #: of that point
    steepest: float  #: largest gain per distance among all probes, in the user's units; 0 if nothing gains
    flat: tuple[int, ...]  #: coordinates of x along which neither the value nor the follower's response changes
    asked: int
    unanswered: tuple[np.ndarray, ...] = ()  #: the farthest points of directions in which probes had no answer
    variation: float = 0.0  #: largest variation of f(x, y(x)) over a size of x among the lines that were probed


NOTHING = Probed(None, 0.0, 0.0, (), 0)


class Probing(NamedTuple):
    """How to look, and what counts."""

    sizes: np.ndarray  #: of x
    floor: float  #: what rounding and the accuracy of y may feign in f
    tolerance: float
    allowed_violation: float  #: of the leader's constraints, relative to their rows
    blur: float = 0.0  #: how far, in sizes, x is known where the follower's response is
    distances: Sequence[float] = DISTANCES


def lines(
    n: int,
    sizes: np.ndarray,
    downhill: np.ndarray | None,
    generator: np.random.Generator,
    most: int,
    every: bool = False,
) -> list[np.ndarray]:
    """Which way to look: downhill, along coordinates (``every`` one or some), at random; as far as the sizes of x."""
    found: list[np.ndarray] = []
    if n > 1 and downhill is not None and np.isfinite(downhill).all() and np.any(downhill):
        scaled = downhill * sizes  # steepest descent with every variable measured by its size
        found.append(-sizes * scaled / np.max(np.abs(scaled)))
    chosen = range(n) if every or n <= ALL_COORDINATES else generator.choice(n, size=4, replace=False)
    for index in chosen:
        axis = np.zeros(n)
        axis[index] = sizes[index]
        found.append(axis)
    found += [sizes * way for way in (np.ones(n), *generator.uniform(-1.0, 1.0, (3, n)))] if n > 1 else []
    return found if every else found[:most]


class Line:
    """The values of f(x, y(x)) along one line through x, each asked for once."""

    def __init__(
        self,
        reduced_objective: ReducedObjective,
        project: Callable[[np.ndarray], np.ndarray],
        here: Value,
        way: np.ndarray,
        sizes: np.ndarray,
    ) -> None:
        self.reduced_objective, self.project, self.here, self.way = reduced_objective, project, here, way
        self.sizes = sizes * float(np.max(np.abs(way) / sizes))  # a distance of one is the whole way
        self._seen: dict[float, tuple[Value | None, float, np.ndarray]] = {}

    @property
    def asked(self) -> int:
        """How many points have been asked for."""
        return sum(moved > 0.0 for _, moved, _ in self._seen.values())

    def at(self, distance: float) -> tuple[Value | None, float, np.ndarray]:
        """The value at a signed distance, how far that is from x in sizes, and the point; 0 if X ends before."""
        if distance not in self._seen:
            point = self.project(self.here.x + distance * self.way)
            moved = float(np.max(np.abs(point - self.here.x) / self.sizes, initial=0.0))
            moved = moved if moved > 1e-3 * abs(distance) else 0.0
            self._seen[distance] = (self.reduced_objective(point) if moved else None, moved, point)
        return self._seen[distance]

    def _beside(self, seen: tuple[Value, float, np.ndarray]) -> float:
        """How far beside the line a point lies, in sizes."""
        step = (seen[2] - self.here.x) / self.sizes
        way = self.way / self.sizes
        return float(np.max(np.abs(step - way * (step @ way) / (way @ way)), initial=0.0))

    def variation(self, distances: Sequence[float] = _FAR) -> float:
        """What f(x, y(x)) varies by along the line over a distance of one size; NaN if nothing answered."""
        found = []
        for distance in distances:
            ends = [self.at(sign * distance) for sign in (1.0, -1.0)]
            seen = [(value, moved, point) for value, moved, point in ends if value is not None]
            # Ends that X has cut off lie beside the line, where f may do what it does not along it.
            on = [
                one for one, far in zip(seen, map(self._beside, seen), strict=True) if far <= _BESIDE * one[1]
            ] or seen
            changes = [abs(value.upper - self.here.upper) / moved**2 for value, moved, _ in on]
            found += [max(changes)] if changes else []
        return min(found, default=np.nan)


def probe(
    reduced_objective: ReducedObjective,
    project: Callable[[np.ndarray], np.ndarray],
    here: Value,
    ways: Sequence[np.ndarray],
    probing: Probing,
    both: bool = True,
) -> Probed:
    """Look along lines through ``here``, ``both`` ways or only forwards."""
    found = [_look(Line(reduced_objective, project, here, way, probing.sizes), probing, both) for way in ways]
    return merged(found)


def merged(found: Sequence[Probed]) -> Probed:
    """What several probes showed together; a coordinate is flat only if no probe saw it change."""
    if not found:
        return NOTHING
    best = max(found, key=lambda one: one.gain if one.better is not None else -np.inf)
    return Probed(
        best.better,
        best.gain,
        max(one.steepest for one in found),
        tuple(sorted({index for one in found for index in one.flat})),
        sum(one.asked for one in found),
        tuple(point for one in found for point in one.unanswered),
        max(one.variation for one in found),
    )


def _look(line: Line, probing: Probing, both: bool) -> Probed:
    here, distances = line.here, probing.distances
    variation = line.variation()
    variation = 0.0 if np.isnan(variation) else variation
    floor = max(probing.floor, probing.blur * variation)
    better: Value | None = None
    best, steepest = 0.0, 0.0
    along = np.flatnonzero(line.way)
    still = len(along) == 1
    unanswered: list[np.ndarray] = []
    for sign in (1.0, -1.0) if both else (1.0,):
        without, answered, blank = [], False, False
        for distance in distances:
            found, moved, point = line.at(sign * distance)
            if not moved:
                continue
            if found is None and moved >= _LEAST:
                without.append(point)
                blank = blank or distance == DISTANCES[-1]
            answered = answered or found is not None
            if found is None or found.violation > max(probing.allowed_violation, here.violation):
                still = False
                continue
            gain = here.upper - found.upper
            still = still and abs(gain) <= floor and bool(np.max(np.abs(found.y - here.y), initial=0.0) <= EXACT)
            if moved < _LEAST:
                continue
            if gain > floor:
                steepest = max(steepest, gain / float(np.linalg.norm(point - here.x)))
            if gain > max(probing.tolerance * variation * moved, floor) and gain > best:
                if distance >= DISTANCES[0] and not _same_valley(line, point, floor):
                    continue
                better, best = found, gain
        unanswered += without[:1] if blank or not answered else []  # the radius of the claim must be seen
    flat = (int(along[0]),) if still and line.asked else ()
    return Probed(better, best, steepest, flat, line.asked, tuple(unanswered), variation)


def _same_valley(line: Line, point: np.ndarray, floor: float) -> bool:
    """Whether f does not rise on the way to the point: otherwise that is another valley, and x may be a minimum."""
    here = line.here
    for share in (0.03, 0.1, 0.3, 0.6):
        found = line.reduced_objective(line.project(here.x + share * (point - here.x)))
        if found is None or found.upper > here.upper + floor:
            return False
    return True


def unbounded_along(
    reduced_objective: ReducedObjective,
    project: Callable[[np.ndarray], np.ndarray],
    here: Value,
    direction: np.ndarray,
    floor: float,
) -> bool:
    """Whether f keeps falling along a ray that X does not end, to minus infinity or to an asymptote.

    The first fall must be more than ``floor``, later ones more than their own rounding, and f may never rise.
    """
    length = float(np.max(np.abs(direction), initial=0.0))
    if length == 0.0:
        return False
    unit = direction / length * max(1.0, float(np.max(np.abs(here.x), initial=0.0)))
    last, falls = here.upper, 0
    for distance in (1.0, 2.0, 4.0, 10.0, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10):
        wanted = here.x + distance * unit
        point = project(wanted)
        if np.max(np.abs(point - wanted)) > 1e-3 * np.max(np.abs(wanted - here.x)):
            return False  # X ends here
        found = reduced_objective(point)
        if found is None:
            break
        rounding = floor if falls == 0 else 4.0 * np.finfo(float).eps * abs(last)
        if found.upper > last + rounding or (falls == 0 and found.upper >= last - rounding):
            return False
        falls += found.upper < last - rounding
        last = found.upper
    return falls >= 3
