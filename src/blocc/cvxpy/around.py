"""Is a point around x better? Values there, compared at equal violation of the leader's constraints.

A point that gains by breaking a constraint a little more than x does is no counterexample, however little that is: in
the user's units a violation of 1e-6 may be worth much. What a violation is worth is measured by the probes that break
constraints most, and taken off. Where constraints hold x, probes along them are added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Float, NDArray

Vector = Float[NDArray, " n"]
#: Distances of probes, relative to the size of x.
DISTANCES = (1e-2, 1e-3, 1e-4)
#: Such along directions in which nothing changes over these, where answers may fall off exponentially.
FURTHER = tuple(0.1 * one for one in range(1, 11))
#: Directions that are probed at most; the same where followers have more than so many columns.
MOST_DIRECTIONS, FEW_DIRECTIONS, LARGE = 24, 8, 5000
#: Violations in the user's units up to which a point counts; and such that tell nothing.
VIOLATED, _NOTHING = 1e-6, 1e-12
#: Probes that tell what a violation is worth break constraints by this share of the most, or more; how sure that is.
_MOST, _SURE = 0.3, 2.0
_INWARD = 0.1


class Seen(NamedTuple):
    """The leader's value at one x, and how far her constraints are violated there."""

    value: float  #: minimised; infinite where there is none
    violation: float
    noise: float = 0.0  #: what the value may be off by


class Around(NamedTuple):
    """What probes around x found."""

    best: Float[NDArray, " n_x"] | None  #: a better x, if there is one
    improvement: float
    steepest: float  #: largest descent by the length of the step, over the longest ones


class _Probe(NamedTuple):
    point: Vector
    move: Vector
    longest: bool
    gain: float
    excess: float  #: violation beyond that at x
    enough: float  #: a gain of less says nothing


def probe(
    look: Callable[[Vector], Seen],
    project: Callable[[Vector], Vector],
    x: Vector,
    here: Seen,
    seed: int,
    most: int = MOST_DIRECTIONS,
    downhill: Vector | None = None,
    share: float = 1e-5,
    patient: bool = True,
    further: Sequence[float] = (),
    by_slope: bool = False,
) -> Around:
    """Values at points of X around x, in all directions of few variables, in random ones of many, and downhill.

    A gain counts if it is more than a share of what the values vary by along its direction, over the size of x. Where
    values near x differ by no more than that, those further away count too.

    :param further: distances of these: where answers fall off exponentially, x may lie on a plateau
    :param by_slope: whether the share is of the slope that those variations are over the size of x: closer points may
        gain less
    :param patient: whether to look for the best of all; otherwise ten times what counts ends the search
    """
    size = 1.0 + float(np.max(np.abs(x), initial=0.0))
    seen: list[_Probe] = []

    def at(move: Vector, enough: float, *, longest: bool) -> _Probe | None:
        """One probe; None where X leaves no room for it."""
        point = project(x + move)
        if float(np.linalg.norm(point - x)) < 1e-9 * size:
            return None
        found = look(point)
        excess, unsure = max(found.violation - here.violation, 0.0), here.noise + found.noise
        return _Probe(point, point - x, longest, here.value - found.value, excess, enough + unsure)

    def looked(directions: Float[NDArray, "k n_x"]) -> bool:
        """Probes along these; whether one of them is enough."""
        for direction in directions:
            ends = [at(sign * size * direction, 0.0, longest=False) for sign in (1.0, -1.0)]
            gains = [abs(one.gain) for one in ends if one is not None and np.isfinite(one.gain)]
            allowed = share * max(gains, default=0.0)
            for sign, end in zip((1.0, -1.0), ends, strict=True):
                moves = [sign * one * size * direction for one in DISTANCES]
                least = [allowed * (one if by_slope else 1.0) for one in DISTANCES]
                pairs = zip(moves, least, strict=True)
                near = [at(move, enough, longest=index == 0) for index, (move, enough) in enumerate(pairs)]
                found = [one for one in near if one is not None]
                seen.extend(found)
                if any(not patient and one.gain > 10.0 * one.enough and one.excess <= _NOTHING for one in found):
                    return True
                if further and end is not None and all(abs(one.gain) <= one.enough for one in found):  # flat so far
                    beyond = [at(one * end.move, allowed, longest=False) for one in further]
                    seen.extend(one for one in beyond if one is not None)
        return False

    directions = _directions(len(x), most, downhill, np.random.default_rng(seed))
    if not looked(directions) and len(x) > 1:
        looked(_along(seen))
    return _best(seen)


def _directions(n: int, most: int, downhill: Vector | None, generator: np.random.Generator) -> Float[NDArray, "k n_x"]:
    few = 2 * n <= most
    found = np.eye(n) if few else generator.standard_normal((most // 2, n)) / np.sqrt(n)
    if few and n > 1:
        found = np.concatenate([found, generator.standard_normal((min(n, 4), n)) / np.sqrt(n)])
    length = 0.0 if downhill is None else float(np.linalg.norm(downhill))
    if downhill is not None and 0.0 < length < np.inf:
        found = np.concatenate([found, downhill[None] / length])
    return found


def _along(seen: list[_Probe]) -> Float[NDArray, "k n_x"]:
    """Downhill along the constraints that probes ran into, and a little inside of them; nothing where none did."""
    used = [one for one in seen if np.isfinite(one.gain)]
    broken = [one for one in used if one.excess > _NOTHING]
    none = np.zeros((0, len(seen[0].move) if seen else 0))
    if not broken:
        return none
    normal = _fitted(broken, [one.excess for one in broken])
    slope = _fitted(used, [one.gain for one in used])
    length = float(np.linalg.norm(normal))
    if length == 0.0:
        return none
    normal = normal / length
    tangent = slope - float(slope @ normal) * normal
    length = float(np.linalg.norm(tangent))
    if not 0.0 < length < np.inf:
        return none
    return np.stack([tangent / length, tangent / length - _INWARD * normal])


def _fitted(probes: list[_Probe], values: list[float]) -> Vector:
    """The slope that explains values at probes best, each by its distance."""
    lengths = np.array([float(np.linalg.norm(one.move)) for one in probes])
    moves = np.stack([one.move for one in probes]) / lengths[:, None]
    return np.asarray(np.linalg.lstsq(moves, np.asarray(values) / lengths, rcond=None)[0])


def _best(seen: list[_Probe]) -> Around:
    worth = _worth(seen)
    best, improvement, steepest = None, 0.0, 0.0
    for one in seen:
        if one.excess > VIOLATED:
            continue
        gain = one.gain - worth * one.excess
        if one.longest:  # closer, what solvers leave over is larger than any slope
            steepest = max(steepest, gain / float(np.linalg.norm(one.move)))
        if gain > max(improvement, one.enough):
            best, improvement = one.point, gain
    return Around(best, improvement, steepest)


def _worth(seen: list[_Probe]) -> float:
    """What a violation of the leader's constraints gains, at most, by the probes that break them most."""
    broken = [one for one in seen if one.excess > _NOTHING and np.isfinite(one.gain)]
    by_length = [one.excess / float(np.linalg.norm(one.move)) for one in broken]
    clear = [one for one, each in zip(broken, by_length, strict=True) if each >= _MOST * max(by_length)]
    return _SURE * max((one.gain / one.excess for one in clear), default=0.0)
