"""Is the lower level convex in y? Jensen's inequality on random pairs of points.

``c((a + b) / 2) <= (c(a) + c(b)) / 2`` must hold for a convex c. One violated pair is a proof of the contrary; pairs
that all pass are evidence, not proof. It costs a few function values, at any size, and is part of every solve. Where a
large constant in g leaves doubt about what its values show, second derivatives along the same pairs decide.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from blocc._lib.arrays import AnyArray, Array
from blocc._lib.jaxprs import is_program
from blocc._lib.rounding import EXACT, KEPT, TINY
from blocc.flat_problem import FlatProblem
from blocc.judge.curvature import bends_down
from blocc.problem import BilevelProblem
from blocc.result import Result, Status

_PAIRS, _FEWEST = 48, 8
_NUMBERS = 2_000_000  #: that all points of the pairs may hold together: a large follower is shown fewer of them
#: Further pairs on segments from y through the follower's set, at most; each segment is cut into so many of them. A
#: second well is seen where an end of any pair falls into it: on a line, at this number, one of 0.5 % of its length.
_FAR, _CUTS = 1024, 8
_FARTHEST = 1e3
_INWARD = 24  #: further pairs just inside the follower's set, half of them where g bends down most
_DENSE = 300  #: variables of the follower up to which that direction is looked for
_ENTRIES = 1_000_000  #: of a Jacobian, up to which it is looked at
_ALLOWED = 1e-7  #: excess relative to the values, below which it is rounding
_EPSILON = float(np.finfo(np.float64).eps)


class Jensen(NamedTuple):
    """Largest relative excess over Jensen's inequality; positive beyond rounding means: not convex (or not affine)."""

    lower: float  #: of g, over pairs that satisfy the constraints
    inequality: float  #: of gc, over pairs in Y
    equality: float  #: of h, in either direction: h must be affine
    penalised: float  #: of f + gamma g, over pairs that satisfy the constraints
    doubtful: bool = False  #: neither values nor second derivatives show whether g is convex

    def penalised_bends(self) -> bool:
        """Whether f + gamma g is not convex in y on the follower's set: gamma is too small."""
        return self.penalised > _ALLOWED

    def doubt(self) -> str:
        """Why nothing can be said about g."""
        return (
            "Whether lower(x, y) is convex in y cannot be judged: what it varies by drowns in the rounding of its "
            "value, and its second derivatives are not finite. Leave out of lower what does not depend on y."
        )

    def failure(self) -> str | None:
        """Which function fails, in words; None if all pass."""
        if self.lower > _ALLOWED:
            return "lower(x, y) is not convex in y on the follower's set"
        if self.inequality > _ALLOWED:
            return "inequality(x, y) is not convex in y"
        if self.equality > _ALLOWED:
            return "equality(x, y) is not affine in y"
        return None


class _Values(NamedTuple):
    """All functions at points of Y, a row for each."""

    lower: Array
    penalised: Array  #: f + gamma g
    inequality: Array
    equality: Array


def _all_excesses(flat: FlatProblem, x: Array, gamma: Array, points: Array) -> tuple[Array, ...]:
    """Excesses of g, gc, h and f + gamma g for pairs of consecutive points; whether both satisfy the constraints.

    Points are moved to the nearest member of Y first.
    """

    def at(y: Array) -> _Values:
        lower, none = flat.lower(x, y), jnp.zeros(0)
        inequality = flat.inequality(x, y) if flat.n_inequality else none
        equality = flat.equality(x, y) if flat.n_equality else none
        return _Values(lower, flat.upper(x, y) + gamma * lower, inequality, equality)

    members = jax.vmap(flat.y_set.project_flat)(points)
    a, b = members[0::2], members[1::2]
    found = jax.vmap(at)(jnp.concatenate([a, b, 0.5 * (a + b)]))  # every function is compiled once

    def excess(values: Array) -> Array:
        first, second, middle = jnp.split(values, 3)
        return (middle - 0.5 * (first + second)) / (1.0 + jnp.abs(first) + jnp.abs(second))

    ends = jnp.stack(jnp.split(found.lower, 3))

    size = EXACT * (1.0 + jnp.max(jnp.abs(a), axis=1) + jnp.max(jnp.abs(b), axis=1))
    feasible = jnp.ones(len(a), dtype=bool)
    inequality, equality = jnp.full(len(a), -jnp.inf), jnp.zeros(len(a))
    if flat.n_inequality:
        worst = jnp.max(found.inequality, axis=1)
        feasible &= (worst[: len(a)] <= size) & (worst[len(a) : 2 * len(a)] <= size)
        inequality = jnp.max(excess(found.inequality), axis=1)
    if flat.n_equality:
        worst = jnp.max(jnp.abs(found.equality), axis=1)
        feasible &= (worst[: len(a)] <= size) & (worst[len(a) : 2 * len(a)] <= size)
        equality = jnp.max(jnp.abs(excess(found.equality)), axis=1)
    return excess(found.lower), inequality, equality, excess(found.penalised), feasible, ends, a, b


def jensen(flat: FlatProblem, x: AnyArray, y: AnyArray, gamma: float = 1.0, seed: int = 0) -> Jensen:
    """Test g, gc, h and f + gamma g on pairs of points of Y around ``y``, near and far."""
    generator = np.random.default_rng(seed)
    size = 1.0 + float(np.max(np.abs(y), initial=0.0))
    count = 2 * min(_PAIRS, max(_FEWEST, _NUMBERS // (4 * y.size)))  # even, and two points each
    spread = size * 10.0 ** generator.uniform(-2.0, 0.5, size=(count, 1))
    offsets = spread * generator.standard_normal((count, y.size))
    # Every other pair goes from y itself towards a random member of Y, which stays feasible more often.
    offsets[0:count:4] = 0.0
    towards = len(offsets[1:count:4])
    members = np.stack([flat.y_set.sample_flat(generator) for _ in range(towards)])
    offsets[1:count:4] = generator.uniform(size=(towards, 1)) * (members - y)
    local = _local(flat, x, y)
    parts = [_inside(local, size, generator, y.size)[:count], _tangent(local, offsets)]
    offsets = np.concatenate([*parts, _across(flat, local, np.asarray(y), generator)])
    arguments = (np.asarray(part, np.float64) for part in (x, gamma, y + offsets))
    found = flat.program(_all_excesses)(*arguments)
    lower, inequality, equality, penalised, feasible, ends, a, b = (np.asarray(part) for part in found)

    def worst(values: np.ndarray, mask: np.ndarray) -> float:
        usable = values[mask & np.isfinite(values)]
        return float(usable.max()) if usable.size else 0.0

    everywhere = np.ones(len(feasible), dtype=bool)
    result = Jensen(
        worst(lower, feasible), worst(inequality, everywhere), worst(equality, everywhere), worst(penalised, feasible)
    )
    # Pairs along random directions hardly see one that bends down among very many.
    is_hidden = result.lower <= _ALLOWED and y.size > _DENSE and flat.y_set.is_box
    if is_hidden and bends_down(flat, np.asarray(x), [np.asarray(y), np.asarray(flat.y_set.interior_flat())]):
        return result._replace(lower=np.inf)
    unclear = _unclear(ends, np.linalg.norm(a - b, axis=1)) & feasible
    if result.lower > _ALLOWED or not unclear.any():
        return result
    most = min(_INWARD, max(_FEWEST, _NUMBERS // (8 * y.size)))
    those = np.flatnonzero(unclear)
    chosen = those[
        np.minimum(np.append(np.arange(most), np.linspace(0, len(those) - 1, most)), len(those) - 1).astype(int)
    ]
    bends = flat.program(_bends)(np.asarray(x, np.float64), a[chosen], b[chosen])
    reach = np.linalg.norm(a[chosen], axis=1) + np.linalg.norm(b[chosen], axis=1)
    return result._replace(**_judged(bends, reach, float(np.linalg.norm(local.hessian))))


def with_convexity(problem: BilevelProblem, result: Result, seed: int = 0) -> Result:
    """The result, which claims that y is the follower's answer only where no pair of points speaks against it.

    However it was found, and in the user's own units.
    """
    if result.status not in (Status.CONVERGED, Status.STALLED) or not result.certificate.exact:
        return result
    x, y = problem.x_set.ravel(result.x), problem.y_set.ravel(result.y)
    found = jensen(problem.flat, x, y, 1.0, seed)
    if failure := found.failure():
        message = f"{failure}, so y may be only a local answer of the follower."
        return replace(result, status=Status.NOT_CONVEX, message=message)
    doubtful = found.doubtful and result.success
    return replace(result, status=Status.STALLED, message=found.doubt()) if doubtful else result


def _unclear(ends: np.ndarray, distance: np.ndarray) -> np.ndarray:
    """Pairs over which the values of g may hide what they are measured by: where the excess is large beside what g
    varies by though not beside its value, or where rounding of the value is."""
    with np.errstate(invalid="ignore", over="ignore"):
        first, second, middle = ends
        varies = np.abs(first - middle) + np.abs(second - middle)
        near = distance <= 2.0 * distance[:, None]  # of each pair, those that are not much longer
        most = np.where(near & np.isfinite(varies), varies, 0.0).max(axis=1, initial=0.0)
        rounding = 16.0 * _EPSILON * (np.abs(ends).sum(axis=0) + most)
        excess = middle - 0.5 * (first + second)
        drowned = (varies > 0.0) & (varies < rounding)
        return np.asarray(np.isfinite(ends).all(axis=0) & ((excess > _ALLOWED * varies + rounding) | drowned))


def _bends(flat: FlatProblem, x: Array, first: Array, second: Array) -> tuple[Array, Array, Array, Array]:
    """Curvature of g along each pair, at three points; the size of what it is made of; rise and size of the slope.

    A constant in g leaves no trace in them, nor do linear terms in the first.
    """
    slope = jax.grad(flat.lower, argnums=1)

    def along(a: Array, b: Array) -> tuple[Array, Array, Array, Array]:
        way = (b - a) / jnp.maximum(jnp.linalg.norm(b - a), TINY)

        def at(share: Array) -> tuple[Array, Array]:
            turned = jax.jvp(lambda y: slope(x, y), (a + share * (b - a),), (way,))[1]
            return way @ turned, jnp.linalg.norm(turned)

        bend, size = jax.vmap(at)(jnp.array([0.0, 0.5, 1.0]))
        one, other = slope(x, a), slope(x, b)
        return bend, size, way @ (other - one), jnp.linalg.norm(one) + jnp.linalg.norm(other)

    return jax.vmap(along)(first, second)


def _judged(bends: tuple[AnyArray, AnyArray, AnyArray, AnyArray], reach: np.ndarray, most: float) -> dict[str, Any]:
    """What second derivatives, and slopes at the ends, say in the place of values.

    ``most`` is what g bends by around y, ``reach`` how far the pairs lie from zero: along directions in which g is flat
    both derivatives are the rounding of such terms.
    """
    bend, size, rise, steep = map(np.asarray, bends)
    if not (np.isfinite(bend).all() and np.isfinite(rise).all()):
        return {"doubtful": True}
    most = max(most, float(size.max(initial=0.0)))
    relative = -bend / np.maximum(np.maximum(size, _ALLOWED * most), TINY)
    falls = -rise / np.maximum(np.maximum(steep, _ALLOWED * most * reach), TINY)
    return {"lower": max(float(relative.max()), float(falls.max()), 0.0)}


def _largest(flat: FlatProblem) -> int:
    """How many numbers the largest array has that an evaluation of the follower's functions makes."""

    def of(program: Any) -> int:
        inner = getattr(program, "jaxpr", program)
        sizes = [int(np.prod(getattr(atom.aval, "shape", ()))) for each in inner.eqns for atom in each.outvars]
        return max(
            [1, *sizes, *(of(value) for each in inner.eqns for value in each.params.values() if is_program(value))]
        )

    at = (jax.ShapeDtypeStruct((flat.n_x,), np.float64), jax.ShapeDtypeStruct((flat.n_y,), np.float64))
    functions = (flat.upper, flat.lower, flat.inequality, flat.equality)
    return max(flat.n_y, *(of(jax.make_jaxpr(lambda x, y, f=f: f(x, y))(*at)) for f in functions))


def _across(flat: FlatProblem, local: _Local, y: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Offsets of pairs on segments from y to random members of Y, which may have further wells anywhere.

    Where Y has no end the segments have lengths of all orders up to ``_FARTHEST`` times that of a member drawn there.
    """
    count = min(_FAR, _NUMBERS // (8 * flat.once(_largest))) // _CUTS
    members = [flat.y_set.sample_flat(generator) - y for _ in range(count)]
    if not members:
        return np.zeros((0, y.size))
    low, high = flat.y_set.bounds_flat()
    stretch = _FARTHEST ** generator.uniform(size=(count, 1))
    ways = _tangent(local, np.stack(members) * np.where(np.isfinite(low) & np.isfinite(high), 1.0, stretch))
    marks = np.sort(generator.uniform(size=(count, _CUTS + 1)), axis=1)
    pairs = np.stack([marks[:, :-1], marks[:, 1:]], axis=2).reshape(count, 2 * _CUTS)
    return (pairs[:, :, None] * ways[:, None, :]).reshape(-1, y.size)


class JensenTest:
    """The test for one run, made once for all x that are close to each other."""

    def __init__(self, flat: FlatProblem, seed: int = 0) -> None:
        self.flat, self.seed = flat, seed
        self._found: dict[tuple[bytes, float], Jensen] = {}

    def __call__(self, x: AnyArray, y: AnyArray, gamma: float = 1.0) -> Jensen:
        """What the pairs around (x, y) say; y is the middle of Y where it is not finite."""
        size = 1e-2 * (1.0 + float(np.max(np.abs(x), initial=0.0)))
        key = (np.round(np.asarray(x) / size).tobytes(), gamma)
        if key not in self._found:
            around = y if np.isfinite(y).all() else self.flat.y_set.interior_flat()
            self._found[key] = jensen(self.flat, x, around, gamma, self.seed)
        return self._found[key]


class _Local(NamedTuple):
    """The follower's problem around one y; empty parts where they would be large or are not finite."""

    slack: AnyArray  #: of the inequalities, bounds of Y included
    inequality: AnyArray  #: Jacobian in y
    equality: AnyArray  #: Jacobian in y
    hessian: AnyArray  #: of g in y


def _around(flat: FlatProblem, x: Array, y: Array) -> _Local:
    none = jnp.zeros((0, flat.n_y))

    def rows(function: Any, count: int) -> tuple[Array, Array]:
        """Values, and their Jacobian in y."""
        if count == 0 or flat.n_y * count > _ENTRIES:
            return none[:, 0], none
        jacobian, value = jax.jacrev(lambda y: (found := function(x, y), found), has_aux=True)(y)
        return value, jacobian

    inequality, slopes = rows(flat.inequality, flat.n_inequality)
    hessian = jax.hessian(flat.lower, argnums=1)(x, y) if flat.n_y <= _DENSE else none
    return _Local(-inequality, slopes, rows(flat.equality, flat.n_equality)[1], hessian)


def _local(flat: FlatProblem, x: AnyArray, y: AnyArray) -> _Local:
    found = flat.program(_around)(np.asarray(x), np.asarray(y))
    local = _Local(*(part if np.isfinite(part).all() else part[:0] for part in found))
    if flat.y_set.is_box and flat.n_y <= _DENSE and len(local.slack) == len(local.inequality):
        low, high = flat.y_set.bounds_flat()
        unit = np.eye(flat.n_y)
        slack = np.concatenate([local.slack, y - low, high - y])
        local = local._replace(slack=slack, inequality=np.concatenate([local.inequality, -unit, unit]))
    return local


def _tangent(local: _Local, offsets: np.ndarray) -> np.ndarray:
    """Half of the offsets projected on the directions that keep the equalities."""
    rows = local.equality
    if len(rows) == 0:
        return offsets
    half = len(offsets) // 2
    kept = offsets[:half] - (np.linalg.pinv(rows) @ (rows @ offsets[:half].T)).T
    return np.concatenate([kept, offsets[half:]])


def _inside(local: _Local, size: float, generator: np.random.Generator, n_y: int) -> np.ndarray:
    """Offsets of pairs at all distances from the edge that y lies on.

    In a corner of a small set random points are hardly ever feasible: these go inside first, against all constraints
    that y touches, and then to both sides, not as far. Every other pair takes the direction in which g bends down.
    """
    inward, room = _inward(local, size, n_y)
    distances = size * 10.0 ** generator.uniform(-3.0, 0.5, size=(_INWARD, 1))
    sides = generator.standard_normal((_INWARD, n_y))
    down = _down(local)
    if down is not None:
        sides[::2] = down
    sides *= 0.7 * room / np.maximum(np.linalg.norm(sides, axis=1, keepdims=True), TINY)
    pairs = np.stack([distances * (inward + sides), distances * (inward - sides)], axis=1)
    return pairs.reshape(2 * _INWARD, n_y)


def _inward(local: _Local, size: float, n_y: int) -> tuple[np.ndarray, float]:
    """A direction away from all inequalities that y touches, and how far the nearest is left by a unit of it."""
    if len(local.inequality) == 0 or len(local.slack) != len(local.inequality):
        return np.zeros(n_y), 1.0
    lengths = np.linalg.norm(local.inequality, axis=1)
    touched = (lengths > 0.0) & (local.slack <= KEPT * size * lengths)
    if not touched.any():
        return np.zeros(n_y), 1.0
    rows = local.inequality[touched] / lengths[touched, None]
    inward = np.linalg.lstsq(rows, -np.ones(len(rows)), rcond=None)[0]
    room = float(-(rows @ inward).max())
    # Where the set has no interior the pairs are y twice, and show nothing.
    return (inward, room) if room > 0.0 else (np.zeros(n_y), 0.0)


def _down(local: _Local) -> np.ndarray | None:
    """The direction in which g bends down most, among those that keep the equalities; None where it bends up."""
    bend = local.hessian
    if len(bend) == 0:
        return None
    free = scipy.linalg.null_space(local.equality) if len(local.equality) else np.eye(len(bend))
    if free.shape[1] == 0:
        return None
    values, vectors = np.linalg.eigh(free.T @ (0.5 * (bend + bend.T)) @ free)
    return free @ vectors[:, 0] if values[0] < 0.0 else None
