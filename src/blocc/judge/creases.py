"""Ways along creases: where x lies on kinks of the leader's own functions, and phi falls along them alone.

The arguments of ``abs``, ``maximum``, ``minimum`` and of comparisons are found by tracing. Those that vanish at an
answer are *creases*: smooth equations ``k(x, y_A(x)) = 0`` on every piece. On a steep one, every straight line rises,
and a derivative of phi may say nothing or anything. So the way is bent: the gradient of phi is projected on the tangent
space of the creases and of the piece's rows with positive multipliers, and a point beside x is brought back onto them
by Newton's method. Differences of projected gradients on the manifold are its Riemannian Hessian (Absil, Mahony and
Sepulchre, Optimization Algorithms on Matrix Manifolds, 2008, 5.3), whatever side of a kink rounding puts a point on.
One crease after the other is left, too, while the others are kept: the edges on which they meet.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from math import comb
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array
from blocc._lib.rounding import TINY
from blocc.corners import leader_sides
from blocc.flat_problem import FlatProblem
from blocc.judge.lower_level import LowerKKT
from blocc.judge.pieces import Piece, piece_at
from blocc.judge.ways import SECANT, STEP, WHOLE, LeaderRows, Ways, row_multipliers, way_along, weigh
from blocc.local.fit import lengths_of

#: Steps of Newton's method back onto creases: each squares a distance of 0.1 sizes, which is rounding after five.
_CORRECTIONS = 6
#: Tangent spaces up to this dimension get their Hessian, for two derivatives of phi each.
_WHOLE = 32
_RANK = 1e-9  #: singular values below this share of the largest are zero


class _Point(NamedTuple):
    """phi at one x of a piece."""

    gradient: np.ndarray
    rows: np.ndarray  #: values of what is to be kept at those at the answer: rows of the piece, then creases
    jacobian: np.ndarray


class _Along(NamedTuple):
    """A way that is bent; all numbers in sizes of x."""

    direction: np.ndarray
    slope: float  #: by which phi falls along it at first
    curvature: float  #: NaN if unknown
    keeping: np.ndarray  #: which of the rows it keeps
    null: bool = False  #: whether phi has no curvature along it


def along_creases(
    flat: FlatProblem,
    r: LowerKKT,
    piece: Piece,
    sizes: np.ndarray,
    rows: LeaderRows,
    tolerance: float,
    watch: Callable[[], None],
) -> Ways:
    """Ways along kinks of the leader's functions that x lies on, by less than the tolerance."""
    side, slopes = _sides_at(flat, piece.x, piece.y)
    n_x = flat.n_x
    total = slopes[:, :n_x] + slopes[:, n_x:] @ piece.sensitivity
    reach = np.abs(total) @ sizes
    touched = np.flatnonzero((np.abs(side) <= tolerance * reach) & (reach > 0.0))
    if not len(touched):
        return Ways(())
    kept = LeaderRows(rows.value, rows.jacobian, np.concatenate([rows.equality_jacobian, total[touched]]))
    weighed = weigh(flat, r.x, piece.gradient, sizes, kept, always=piece.open)
    bounds = len(weighed.multipliers) - int(weighed.active.sum()) - 2 * len(kept.equality_jacobian)
    firm = np.flatnonzero(row_multipliers(weighed, kept) > 0.0)

    def at(x: np.ndarray) -> _Point | None:
        watch()
        near = piece_at(flat, r, x, piece.y + piece.sensitivity @ (x - piece.x), piece.held, piece.biactive)
        if near is None:
            return None
        side, slopes = _sides_at(flat, x, near.y)
        jacobian = (slopes[:, :n_x] + slopes[:, n_x:] @ near.sensitivity)[touched]
        values = np.concatenate([near.rows[firm], np.zeros(len(near.equality_jacobian)), side[touched]])
        return _Point(near.gradient, values, np.concatenate([near.jacobian[firm], near.equality_jacobian, jacobian]))

    fixed = (weighed.normals * sizes)[:bounds][weighed.multipliers[:bounds] > 0.0]
    constant = len(firm) + len(piece.equality_jacobian)
    always = np.arange(constant + len(touched)) < constant
    base = at(piece.x)
    if base is None:
        return Ways(())
    onto = np.where(always, base.rows, 0.0)  # a crease that x misses by rounding may be steep
    ways, decided = _ways_along(at, piece.x, sizes, always, fixed)
    found = (
        way_along(way.direction, way.slope, way.curvature, sizes, rows)._replace(
            hold=_held_at(at, way.keeping, onto, sizes), null=way.null
        )
        for way in ways
    )
    return Ways(tuple(found), decided)


def _sides_at(flat: FlatProblem, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What is zero on the kinks of the leader's functions, and its derivatives in (x, y), x first."""
    if not flat.once(_number):
        return np.zeros(0), np.zeros((0, flat.n_x + flat.n_y))
    value, jacobian = flat.program(_with_jacobian)(np.asarray(x), np.asarray(y))
    return np.asarray(value), np.asarray(jacobian)


def _sides(flat: FlatProblem, x: AnyArray, y: AnyArray) -> Array:
    return flat.sides(x, y) if flat.sides is not None else leader_sides(flat, x, y)


def _with_jacobian(flat: FlatProblem, x: Array, y: Array) -> Any:
    def both(z: Array) -> tuple[Array, Array]:
        value = _sides(flat, z[: flat.n_x], z[flat.n_x :])
        return value, value

    jacobian, value = jax.jacfwd(both, has_aux=True)(jnp.concatenate([x, y]))
    return value, jacobian


def _number(flat: FlatProblem) -> int:
    at = (jax.ShapeDtypeStruct((n,), np.float64) for n in (flat.n_x, flat.n_y))
    return int(jax.eval_shape(lambda x, y: _sides(flat, x, y), *at).size)


def _held_at(
    at: Callable[[np.ndarray], _Point | None], keeping: np.ndarray, target: np.ndarray, sizes: np.ndarray
) -> Callable[[np.ndarray], np.ndarray]:
    """Newton's method back onto the rows ``keeping``, to the values that they have at the answer."""

    def hold(x: np.ndarray) -> np.ndarray:
        for _ in range(_CORRECTIONS):
            near = at(x)
            if near is None:
                break
            step = np.linalg.lstsq(near.jacobian[keeping] * sizes, target[keeping] - near.rows[keeping], rcond=None)[0]
            x = x + sizes * step
            if float(np.max(np.abs(step), initial=0.0)) <= 4.0 * np.finfo(float).eps:
                break
        return x

    return hold


def _ways_along(
    at: Callable[[np.ndarray], _Point | None], x: np.ndarray, sizes: np.ndarray, firm: np.ndarray, fixed: np.ndarray
) -> tuple[list[_Along], bool]:
    """Ways down on the manifold of all rows, and along the edges on which all but one of the creases meet.

    Where creases are dependent (more of them than directions that they fix) each independent choice is an edge, and to
    first order phi, linear between them, falls nowhere if it falls along none. No more of them are looked along than
    the largest Hessian that is computed has directions, for two derivatives of phi each; if there are more, it is found
    out whether phi is convex there to first order, and zero a convex combination of its gradients around the vertex.
    Also whether that decides.

    :param at: phi on one piece, at points near x
    :param firm: which of the rows are rows of the piece, that are always kept
    :param fixed: normals of bounds with positive multipliers, in sizes of x, that every way keeps
    """
    here = at(x)
    if here is None:
        return [], True
    every = np.ones(len(here.rows), bool)
    found = _on(at, here, x, sizes, every, fixed)
    creases = np.flatnonzero(~firm)
    base = _null_space(np.concatenate([here.jacobian[firm] * sizes, fixed]))
    rank = base.shape[1] - _null_space(here.jacobian[creases] * sizes @ base).shape[1]
    edges = comb(len(creases), rank - 1) if rank else 0
    for kept in combinations(creases, rank - 1) if 0 < edges <= WHOLE else ():
        others = firm.copy()
        others[list(kept)] = True
        edge = _null_space(np.concatenate([here.jacobian[others] * sizes, fixed]))
        left = np.setdiff1d(creases, kept)
        crease = left[int(np.argmax(np.linalg.norm(here.jacobian[left] * sizes @ edge, axis=1)))]
        found += _off(at, here, x, sizes, int(crease), others, fixed)
    if edges <= WHOLE:
        return found, True
    space = _null_space(np.concatenate([here.jacobian[firm] * sizes, fixed]))
    return found, _is_convex_minimum(at, here, x, sizes, creases, space)


def _is_convex_minimum(
    at: Callable[[np.ndarray], _Point | None],
    here: _Point,
    x: np.ndarray,
    sizes: np.ndarray,
    creases: np.ndarray,
    space: np.ndarray,
) -> bool:
    """Whether phi, to first order at a vertex of creases, is convex across each of them, and falls nowhere.

    Across a crease alone the slope must grow. Then x is a minimum if and only if zero is in the convex hull of the
    gradients around it: their combination of least norm is followed, and the gradient met there joins them (Wolfe,
    Finding the nearest point in a polytope, Mathematical Programming 11, 1976).
    """
    generator = np.random.default_rng(0)
    _, values, right = np.linalg.svd(here.jacobian[creases] * sizes @ space, full_matrices=False)
    space = space @ right[values > _RANK * np.max(values)].T  # along the others phi is smooth, and judged as such
    normals = here.jacobian[creases] * sizes @ space
    normals = normals[lengths_of(normals) > 0.0]
    normals /= lengths_of(normals)[:, None]
    seen: list[np.ndarray] = []

    def gradient(direction: np.ndarray) -> np.ndarray | None:
        near = at(x + STEP * sizes * (space @ (direction / np.linalg.norm(direction))))
        return None if near is None else space.T @ (sizes * near.gradient)

    for normal in normals:
        along = generator.standard_normal(len(normal))
        along -= (along @ normal) * normal
        others = np.abs(normals @ along)
        across = np.abs(normals @ normal)
        apart = (across > _RANK) & (others > _RANK * np.linalg.norm(along))
        width = 0.5 * float(np.min(others[apart] / across[apart], initial=np.linalg.norm(along)))
        sides = [gradient(along + sign * width * normal) for sign in (1.0, -1.0)]
        if sides[0] is None or sides[1] is None:
            return False
        size = float(np.linalg.norm(sides[0]) + np.linalg.norm(sides[1]))
        if (sides[0] - sides[1]) @ normal < -STEP * size:
            return False
        seen += [sides[0], sides[1]]
    from scipy.optimize import nnls  # importing it takes time that most runs need not spend

    for _ in range(WHOLE):
        hull = np.array(seen).T
        unit = float(np.max(lengths_of(hull.T), initial=0.0))
        if unit == 0.0:
            return True
        weights = nnls(np.vstack([hull / unit, np.ones(len(seen))]), np.append(np.zeros(len(hull)), 1.0))[0]
        least = hull @ weights / max(float(weights.sum()), TINY)
        if np.linalg.norm(least) <= _RANK * unit:
            return True
        met = gradient(-least)
        if met is None or met @ least > 0.0:  # phi falls there
            return False
        seen.append(met)
    return False


def _on(
    at: Callable[[np.ndarray], _Point | None],
    here: _Point,
    x: np.ndarray,
    sizes: np.ndarray,
    keeping: np.ndarray,
    fixed: np.ndarray,
) -> list[_Along]:
    """Steepest descent, Newton's step and directions of negative curvature on the manifold."""
    basis = _null_space(np.concatenate([here.jacobian[keeping] * sizes, fixed]))
    dimension, hold = basis.shape[1], _held_at(at, keeping, here.rows, sizes)
    if dimension == 0:
        return []
    reduced = basis.T @ (sizes * here.gradient)

    def product(direction: np.ndarray) -> np.ndarray:
        ends = []
        for sign in (1.0, -1.0):
            near = at(hold(x + sign * STEP * sizes * direction))
            ends.append(np.full(x.size, np.nan) if near is None else _projected(near, sizes, keeping, fixed))
        return np.asarray(basis.T @ (ends[0] - ends[1]) / (2.0 * STEP))

    def way(inside: np.ndarray, bend: float) -> _Along:
        slope = -float(inside @ reduced)
        return _Along(basis @ (inside if slope >= 0.0 else -inside), abs(slope), bend, keeping)

    fall = float(lengths_of(reduced[None])[0])
    if dimension > _WHOLE:
        return [way(-reduced / fall, np.nan)] if fall else []
    hessian = np.array([product(column) for column in basis.T])
    if not np.isfinite(hessian).all():
        return [way(-reduced / fall, np.nan)] if fall else []
    hessian = 0.5 * (hessian + hessian.T)
    values, vectors = np.linalg.eigh(hessian)
    across = basis @ np.random.default_rng(0).standard_normal(dimension)
    far = at(hold(x + SECANT * sizes * across / float(np.max(np.abs(across)))))  # what curvature there is beyond
    turned = 0.0 if far is None else lengths_of((basis.T @ _projected(far, sizes, keeping, fixed) - reduced)[None])[0]
    scale = max(float(np.max(np.abs(values))), float(turned) / SECANT)
    found = [
        way(vector, float(value))._replace(null=bool(abs(value) <= STEP * scale))
        for value, vector in zip(values, vectors.T, strict=True)
    ]
    if fall:
        unit = -reduced / fall
        found.insert(0, way(unit, float(unit @ hessian @ unit)))
    return found


def _off(
    at: Callable[[np.ndarray], _Point | None],
    here: _Point,
    x: np.ndarray,
    sizes: np.ndarray,
    crease: int,
    others: np.ndarray,
    fixed: np.ndarray,
) -> list[_Along]:
    """Away from one crease to either side, if phi falls there, on the others.

    Their tangents are those beside x: at x itself rounding decides on which side of the crease they are.
    """
    basis = _null_space(np.concatenate([here.jacobian[others] * sizes, fixed]))
    away = here.jacobian[crease] * sizes
    across = basis @ (basis.T @ away)
    length = float(lengths_of(across[None])[0])
    if not length > _RANK * float(lengths_of(away[None])[0]):
        return []
    hold, found = _held_at(at, others, here.rows, sizes), []
    for sign in (1.0, -1.0):
        start = sign * across / length
        near = at(hold(x + STEP * sizes * start))
        if near is None:
            continue
        beside = _null_space(np.concatenate([near.jacobian[others] * sizes, fixed]))
        direction = beside @ (beside.T @ (near.jacobian[crease] * sizes))
        direction = -direction if direction @ start < 0.0 else direction
        turned = float(lengths_of(direction[None])[0])
        if not turned > _RANK * float(lengths_of((near.jacobian[crease] * sizes)[None])[0]):
            continue
        direction /= turned
        slope = -float(_projected(near, sizes, others, fixed) @ direction)
        if slope > 0.0:
            found.append(_Along(direction, slope, np.nan, others))
    return found


def _projected(near: _Point, sizes: np.ndarray, keeping: np.ndarray, fixed: np.ndarray) -> np.ndarray:
    """The gradient on the tangent space of what is kept."""
    basis = _null_space(np.concatenate([near.jacobian[keeping] * sizes, fixed]))
    return np.asarray(basis @ (basis.T @ (sizes * near.gradient)))


def _null_space(rows: np.ndarray) -> np.ndarray:
    """An orthonormal basis of what the rows leave free, each measured by its own length."""
    lengths = lengths_of(rows) if len(rows) else np.zeros(0)
    held = rows[lengths > 0.0] / lengths[lengths > 0.0, None]
    if not len(held):
        return np.eye(rows.shape[1])
    _, values, right = np.linalg.svd(held)
    return np.asarray(right[int((values > _RANK * np.max(values)).sum()) :].T)
