"""Probes: does f(x, y(x)) fall right next to x, or for ever along a ray, or not change at all?

The probes know nothing of gradients of the penalty: they ask the follower for its answer at points near x and compare
what the leader gets there. A point that gains more than rounding and inexact answers explain is a proof that x is no
minimum; no such point among the probes is evidence, not proof.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

#: Distances of the probes, in sizes of x; the fine ones are for points where phi has no derivative.
DISTANCES = (1e-1, 1e-2, 1e-3)
FINE = (*DISTANCES, 1e-4, 1e-5, 1e-6)
NEAR = (1e-2,)
#: Largest dimension in which every coordinate is probed in both directions.
_ALL_COORDINATES = 8
#: What rounding and the follower's accuracy may feign, relative to the scale of f in x, and in x and y.
_NOISE, _ROUNDING = 1e-9, 1e-13
#: The same where phi has no derivative, in tolerances.
_NOISE_AT_KINKS = 1e-2


class Value(NamedTuple):
    """What the leader gets at one x."""

    x: np.ndarray
    y: np.ndarray
    upper: float
    violation: float  #: largest violation of G, relative to the sizes of its rows


#: The follower's answer at x with its value; None where there is none or it could not be found accurately.
Ask = Callable[[np.ndarray], Value | None]


class Probed(NamedTuple):
    """What the probes showed."""

    better: Value | None  #: the best point that gains more than it may
    gain: float  #: of that point
    steepest: float  #: largest gain per distance among all probes, in the user's units; 0 where nothing gains
    flat: tuple[int, ...]  #: coordinates of x along which neither the value nor the follower's answer changes
    asked: int
    unanswered: tuple[np.ndarray, ...] = ()  #: the farthest points of directions in which no probe had an answer


def directions(
    n: int, sizes: np.ndarray, downhill: np.ndarray | None, generator: np.random.Generator, most: int
) -> list[np.ndarray]:
    """Where to look: downhill, along coordinates, and at random; each as far as the sizes of x."""
    found: list[np.ndarray] = []
    if n > 1 and downhill is not None and np.isfinite(downhill).all() and np.any(downhill):
        scaled = downhill * sizes  # steepest descent where every variable is measured by its size
        found.append(-sizes * scaled / np.max(np.abs(scaled)))
    chosen = range(n) if n <= _ALL_COORDINATES else generator.choice(n, size=4, replace=False)
    for index in chosen:
        axis = np.zeros(n)
        axis[index] = sizes[index]
        found += [axis, -axis]
    for _ in range(3 if n > 1 else 0):
        random = sizes * generator.uniform(-1.0, 1.0, n)
        found += [random, -random]
    return found[:most]


class Probing(NamedTuple):
    """Where to look, and what counts."""

    sizes: np.ndarray  #: of x
    scale: float  #: what f changes by when x moves by its sizes
    whole: float  #: the same when y moves too
    tolerance: float
    allowed_violation: float  #: of the leader's constraints, relative to their rows
    downhill: np.ndarray | None = None  #: a gradient to follow
    seed: int = 0
    most: int = 40  #: directions
    distances: tuple[float, ...] = DISTANCES
    ways: tuple[np.ndarray, ...] = ()  #: directions to look in, in sizes of x, instead of the usual ones


def probe(ask: Ask, project: Callable[[np.ndarray], np.ndarray], here: Value, probing: Probing) -> Probed:
    """Look around ``here``. A gain counts beyond ``tolerance * scale * distance`` and the noise of the values."""
    sizes, scale, whole, tolerance, allowed_violation, downhill, seed, most, distances, ways = probing
    generator = np.random.default_rng(seed)
    noise = max(_NOISE, _NOISE_AT_KINKS * tolerance) if distances is FINE else _NOISE
    floor = max(noise * scale, _ROUNDING * whole, 4e-16 * abs(here.upper))
    better: Value | None = None
    best_gain, steepest, count = 0.0, 0.0, 0
    still: dict[int, bool] = {}  # by coordinate
    unanswered: list[np.ndarray] = []
    usual = directions(here.x.size, sizes, downhill, generator, most)
    for direction in [sizes * way for way in ways] if ways else usual:
        along = np.flatnonzero(direction)
        axis = int(along[0]) if len(along) == 1 else -1
        without, answered = [], False
        for distance in distances:
            point = project(here.x + distance * direction)
            moved = float(np.max(np.abs(point - here.x) / sizes, initial=0.0))
            if moved <= 1e-3 * distance:
                continue
            found = ask(point)
            count += 1
            if found is None and moved >= FINE[-1]:  # nearer points are not told from x
                without.append(point)
            answered = answered or found is not None
            if found is None or found.violation > max(allowed_violation, here.violation):
                still[axis] = False
                continue
            gain = here.upper - found.upper
            same = abs(gain) <= floor and bool(np.max(np.abs(found.y - here.y), initial=0.0) <= 1e-9)
            still[axis] = still.get(axis, True) and same
            if gain > floor:
                steepest = max(steepest, gain / float(np.linalg.norm(point - here.x)))
            if gain > max(tolerance * scale * distance, floor) and gain > best_gain:
                if distance == distances[0] and not _same_valley(ask, here, point, floor):
                    continue
                better, best_gain = found, gain
        unanswered += [] if answered else without[:1]
    flat = tuple(sorted(index for index, kept in still.items() if kept and index >= 0))
    return Probed(better, best_gain, steepest, flat, count, tuple(unanswered))


def _same_valley(ask: Ask, here: Value, point: np.ndarray, floor: float) -> bool:
    """Whether f does not rise on the way to the point: otherwise that is another valley, and x may be a minimum."""
    for share in (0.03, 0.1, 0.3, 0.6):
        found = ask(here.x + share * (point - here.x))
        if found is None or found.upper > here.upper + floor:
            return False
    return True


def falls_for_ever(
    ask: Ask,
    project: Callable[[np.ndarray], np.ndarray],
    here: Value,
    direction: np.ndarray,
    sizes: np.ndarray,
    floor: float,
) -> bool:
    """Whether f keeps falling along a ray that X does not end: at ten times the distance it is lower each time."""
    length = float(np.max(np.abs(direction), initial=0.0))
    if length == 0.0:
        return False
    unit = direction / length * max(1.0, float(np.max(np.abs(here.x), initial=0.0)))
    last, falls = here.upper, 0
    for distance in (1.0, 10.0, 1e2, 1e3, 1e4, 1e5):
        wanted = here.x + distance * unit
        point = project(wanted)
        if np.max(np.abs(point - wanted)) > 1e-3 * np.max(np.abs(wanted - here.x)):
            return False  # X ends here
        found = ask(point)
        if found is None:
            break
        if not found.upper < last - floor:
            return False
        last, falls = found.upper, falls + 1
    return falls >= 3
