"""Is a point around x better? The judge's probes of f(x, y(x)), with values from a cone solver.

Points that violate the leader's constraints more than x does are no counterexample. Where constraints hold x, the
values seen tell what f and the violation change by, and probes along the constraints are added. Where derivatives say
that f bends down, as at a saddle, the way along which it bends most is looked along first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.rounding import HALF_DIGITS
from blocc.judge.probe import DISTANCES, FINE, Probed, Probing, Value, lines, merged, probe
from blocc.judge.tangent import RADII, Surroundings, look_around, tangent_directions
from blocc.judge.ways import KRYLOV, STEP, smallest_curvature

Vector = Float[NDArray, " n"]
Slope = Callable[[Vector], Vector | None]
#: Distances where answers may fall off exponentially, and x may lie on a plateau: up to the size of x as well.
FURTHER = (1.0, 0.5, 0.2, *DISTANCES)
#: Directions that are probed at most; the same where followers have more than so many columns.
MOST_DIRECTIONS, FEW_DIRECTIONS, LARGE = 40, 4, 5000


def sizes_of(x: Vector) -> Vector:
    """One size for all of x: what a user may give it in any units."""
    return np.full(len(x), 1.0 + float(np.max(np.abs(x), initial=0.0)))


def around(
    look: Callable[[Vector], Value | None],
    project: Callable[[Vector], Vector],
    here: Value,
    plan: Probing,
    seed: int,
    most: int = MOST_DIRECTIONS,
    gradient: Vector | None = None,
    slope: Slope | None = None,
    kinked: bool = False,
) -> Probed:
    """What probes around x find, until one of them gains more than it may.

    :param slope: the derivative of f(x, y(x)) as a function of x, which only says where to look
    :param kinked: whether f itself has kinks, along which ways down are looked for
    """
    seen: list[Value] = []

    def value(point: Vector) -> Value | None:
        found = look(point)
        if found is not None:
            seen.append(found)
        return found

    ways = lines(len(here.x), plan.sizes, gradient, np.random.default_rng(seed), most)
    if slope is not None and len(here.x) > 1:
        ways = [*_bent(slope, project, here.x, plan.sizes, most), *ways]
    found = _looked(value, project, here, ways, plan)
    if found.better is None and len(here.x) > 1:
        found = merged([found, _looked(value, project, here, _along(here, seen, plan.sizes), plan)])
    if found.better is None and kinked and slope is not None and len(here.x) > 1:
        fine = plan._replace(distances=FINE)
        for radius in RADII:
            ways = list(_along_kinks(slope, project, here.x, plan.sizes, radius, seed))
            found = merged([found, _looked(value, project, here, ways, fine)])
    return found


def _along_kinks(
    slope: Slope, project: Callable[[Vector], Vector], x: Vector, sizes: Vector, radius: float, seed: int
) -> Iterator[Vector]:
    """Ways that go down on every side of kinks that was seen beside x."""

    def gradient(point: Vector) -> tuple[Vector, Vector] | None:
        found = slope(point)
        return None if found is None else (found, np.zeros((0, len(x))))

    beside = look_around(gradient, lambda _: None, project, x, sizes, radius, np.random.default_rng(seed))
    for way in tangent_directions(beside):
        yield sizes * way


def _looked(
    value: Callable[[Vector], Value | None],
    project: Callable[[Vector], Vector],
    here: Value,
    ways: Sequence[Vector],
    plan: Probing,
) -> Probed:
    found = []
    for way in ways:
        found.append(probe(value, project, here, [way], plan))
        if found[-1].better is not None:
            break
    return merged(found)


def _bent(slope: Slope, project: Callable[[Vector], Vector], x: Vector, sizes: Vector, most: int) -> list[Vector]:
    """The way along which f bends down most where X allows both directions; nothing where it bends up everywhere.

    The whole Hessian by differences of derivatives takes no more of them than Lanczos iterations up to ``KRYLOV``
    dimensions. Of followers so large that few lines are probed, no more than these.
    """
    steps = np.diag(STEP * sizes)
    both = [np.array_equal(project(x + one), x + one) and np.array_equal(project(x - one), x - one) for one in steps]
    free = np.flatnonzero(both)
    if not len(free) or (most <= FEW_DIRECTIONS < len(free)):
        return []

    def product(direction: Vector) -> Vector:
        step, length = np.zeros_like(x), STEP / float(np.max(np.abs(direction)))
        step[free] = length * sizes[free] * direction
        ends = [slope(x + step), slope(x - step)]
        if ends[0] is None or ends[1] is None:
            return np.full(len(free), np.nan)
        return np.asarray((sizes * (ends[0] - ends[1]))[free] / (2.0 * length))

    if len(free) > KRYLOV:
        found = smallest_curvature(product, len(free))
    else:
        hessian = np.array([product(one) for one in np.eye(len(free))])
        if not np.isfinite(hessian).all():
            return []
        values, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
        found = float(values[0]), vectors[:, 0]
    if found is None or not found[0] < 0.0:
        return []
    way = np.zeros_like(x)
    way[free] = sizes[free] * found[1] / np.max(np.abs(found[1]))
    return [way]


def _along(here: Value, seen: Sequence[Value], sizes: Vector) -> list[Vector]:
    """Downhill along the constraints that probes ran into, and a little inside of them; nothing where none did."""
    near = [one for one in seen if 0.0 < np.max(np.abs(one.x - here.x) / sizes) <= DISTANCES[1]]
    broken = [one for one in near if one.violation - here.violation > HALF_DIGITS * np.max(np.abs(one.x - here.x))]
    if not broken:
        return []
    normal = _fitted(here, broken, sizes, lambda one: one.violation)
    slope = _fitted(here, near, sizes, lambda one: one.upper)
    return [sizes * way for way in tangent_directions(Surroundings(slope[None], normal[None]))]


def _fitted(here: Value, seen: Sequence[Value], sizes: Vector, what: Callable[[Value], float]) -> Vector:
    """The derivative, in sizes, that explains what changes between points best, each by its distance."""
    moves = np.stack([(one.x - here.x) / sizes for one in seen])
    lengths = np.linalg.norm(moves, axis=1)
    changes = np.array([what(one) - what(here) for one in seen])
    return np.asarray(np.linalg.lstsq(moves / lengths[:, None], changes / lengths, rcond=None)[0])
