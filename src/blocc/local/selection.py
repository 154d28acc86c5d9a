"""The optimistic response: of all that cost the follower the same, the one that suits the leader best.

Where the follower's optimal set is a face, a solver returns any point of it, while f(x, y(x)) means the best one for
the leader. The minimisers of a convex program around one of them, y, are the feasible points on which

    mu_i c_i = 0,   <dg/dy, d> = 0,   (d2L/dy2) d = 0   for d = y' - y

(Mangasarian, Operations Research Letters 7, 1988): an affine set, of which the other rows cut out the face. Where g is
linear or quadratic in y and its rows are affine, this is the face exactly. Elsewhere a point at which g is larger is
cut off by the tangent of g there (Kelley), and nothing is returned that costs the follower more than y.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Float, Int, NDArray
from blocc._lib.rounding import ROUNDED, TINY
from blocc.flat_problem import FlatProblem
from blocc.local.derivatives import Local, local
from blocc.local.fit import lengths_of, nonnegative_fit
from blocc.local.follower import Rows, fitted_multipliers, rows_of, slopes_of
from blocc.local.quadratic import Program, Solution, solve
from blocc.local.scales import Sizes, sizes_at

_EPS = float(np.finfo(float).eps)
#: Slack of a touched row and multiplier of a priced one, relative to their sizes: what an interior point leaves.
_TOUCHED, _PRICED = 1e-5, 1e-6
#: Curvature that is none, in units in which the follower's slopes change by one over the variables' sizes.
_FLAT = _EPS**0.5
#: By how much more a response may cost the follower, relative to what g varies by: the curvature that is none.
_COST = _EPS**0.5
#: Quadratic programs over one face: f that is quadratic needs two, Newton's method on another a handful.
_STEPS = 30
#: Price of a violation of G, in units of what f varies by over the face: beyond any multiplier that is well scaled.
_PRICE = 1e6


class Face(NamedTuple):
    """The affine set around the follower's optimal face at one point, and what it was read from."""

    x: Float[NDArray, "n_x"]
    y: Float[NDArray, "n_y"]
    found: Local
    sizes: Sizes
    rows: Rows
    held: Int[NDArray, "held"]  #: rows with positive multipliers
    mu: Float[NDArray, "rows"]
    nu: Float[NDArray, "equalities"]
    basis: Float[NDArray, "n_y k"]  #: of its directions, each of which moves y by its size
    unit: Float[NDArray, "n_y"]  #: balanced units of y
    steep: float  #: what g varies by, over the sizes of y


class Selected(NamedTuple):
    """The optimistic response, and what it is held by."""

    face: Face
    y: Float[NDArray, "n_y"]
    found: Local  #: there
    binding: Int[NDArray, "binding"]  #: rows of the follower that hold it beside ``face.held``
    leader: Int[NDArray, "leader"]  #: rows of G that do


def face_at(flat: FlatProblem, x: np.ndarray, y: np.ndarray, sizes: Sizes | None = None) -> Face | None:
    """The follower's optimal face around a response; None where that is the response alone, or y is none."""
    n_x = flat.n_x
    found = local(flat, x, y)
    if not found.finite:
        return None
    sizes = sizes_at(flat, found, x, y) if sizes is None else sizes
    rows, slope = rows_of(flat, found, sizes, y), slopes_of(flat, found, sizes)
    touched = np.flatnonzero(rows.value >= -_TOUCHED * np.maximum(rows.size, TINY))
    mu, nu = fitted_multipliers(flat, found, rows, touched, sizes.y / slope)
    steep = float(np.max(slope, initial=TINY))
    left = found.lower_gradient[n_x:] + mu @ rows.jacobian[:, n_x:] + nu @ found.equality_jacobian[:, n_x:]
    if np.max(np.abs(left) * sizes.y, initial=0.0) > _TOUCHED * steep:
        return None
    held = np.flatnonzero(mu * rows.size > _PRICED * steep)
    if mu[: len(found.inequality)].any() or nu.any():
        found = local(flat, x, y, mu[: len(found.inequality)], nu)
    unit = sizes.y / np.sqrt(slope)
    normals = np.concatenate([rows.jacobian[held], found.equality_jacobian])[:, n_x:] * unit
    free = null_space(normals)
    bend = (found.lower_hessian + found.constraint_hessian)[n_x:, n_x:] * unit[:, None] * unit
    values, vectors = np.linalg.eigh(free.T @ bend @ free)
    basis = unit[:, None] * (free @ vectors[:, np.abs(values) <= _FLAT])
    if not basis.shape[1]:
        return None
    basis = basis / np.max(np.abs(basis) / sizes.y[:, None], axis=0)
    return Face(x, y, found, sizes, rows, held, mu, nu, basis, unit, steep)


def null_space(rows: np.ndarray) -> Float[NDArray, "n k"]:
    """An orthonormal basis of the directions in which no row changes."""
    if not len(rows):
        return np.eye(rows.shape[1])
    lengths = lengths_of(rows)
    _, singular, right = np.linalg.svd(rows / np.where(lengths > 0.0, lengths, 1.0)[:, None])
    return np.asarray(right[int((singular > _FLAT * max(float(singular[0]), TINY)).sum()) :].T)


def select(flat: FlatProblem, face: Face) -> Selected:
    """The best point of a face for the leader; of a concave f the best of those that were reached."""
    ends = [_descend(flat, face, start) for start in _starts(flat, face)]
    violations = [float(np.max(found.upper_inequality, initial=0.0)) for _, found in ends]
    size = 1.0 + float(np.max(np.abs(face.found.upper_inequality), initial=0.0))
    allowed = max(2.0 * min(violations), _EPS**0.5 * size)
    admissible = [end for end, violation in zip(ends, violations, strict=True) if violation <= allowed]
    return _held_by(flat, face, *min(admissible, key=lambda end: float(end[1].upper)))


def _held_by(flat: FlatProblem, face: Face, y: np.ndarray, found: Local) -> Selected:
    """The selection with the rows whose multipliers explain it."""
    n_x, basis = flat.n_x, face.basis
    rows = rows_of(flat, found, face.sizes, y)
    others = np.setdiff1d(np.arange(len(rows.value)), face.held)
    leader = found.upper_inequality_jacobian[:, n_x:] @ basis
    normals = np.concatenate([rows.jacobian[others, n_x:] @ basis, leader])
    lengths = lengths_of(normals)
    slack = np.concatenate([-rows.value[others], -found.upper_inequality])
    touched = np.flatnonzero((slack <= _TOUCHED * lengths) & (lengths > 0.0))
    gradient = basis.T @ found.upper_gradient[n_x:]
    prices = nonnegative_fit((normals[touched] / lengths[touched][:, None]).T, -gradient)
    priced = touched[prices > _PRICED * float(np.max(np.abs(gradient), initial=0.0))]
    own = priced < len(others)
    return Selected(face, y, found, others[priced[own]], priced[~own] - len(others))


def optimistic(
    flat: FlatProblem, x: np.ndarray, y: np.ndarray, sizes: Sizes | None = None
) -> Float[NDArray, "n_y"] | None:
    """The optimistic response at x, given any response y; None where y is the only one."""
    face = face_at(flat, x, y, sizes)
    return None if face is None else select(flat, face).y


def _starts(flat: FlatProblem, face: Face) -> Iterator[np.ndarray]:
    """Where descents over the face begin: y, and the ends of the face if f bends down along it."""
    yield face.y
    n_x, basis = flat.n_x, face.basis
    bend = basis.T @ face.found.upper_hessian[n_x:, n_x:] @ basis
    if np.linalg.eigvalsh(bend)[0] >= -_FLAT * max(float(np.max(np.abs(bend))), TINY):
        return
    for direction in (*np.eye(basis.shape[1]), *-np.eye(basis.shape[1])):
        solution = _program(flat, face, face.found, face.y, direction, 0.0 * bend, [])
        if solution is not None:
            yield face.y + basis @ solution.step


def _descend(flat: FlatProblem, face: Face, start: np.ndarray) -> tuple[np.ndarray, Local]:
    """Newton steps of f over the face, each a quadratic program, on values of f."""
    n_x, basis = flat.n_x, face.basis
    begin = None if start is face.y else _cheap(flat, face, start, [])
    at, here = (face.y, face.found) if begin is None else (start, begin)
    cuts: list[tuple[np.ndarray, float]] = []  #: (normal, limit) on y: tangents of g
    unit = float(np.max(np.abs(basis.T @ face.found.upper_gradient[n_x:]), initial=0.0))
    for _ in range(_STEPS):
        gradient = basis.T @ here.upper_gradient[n_x:]
        bend = basis.T @ here.upper_hessian[n_x:, n_x:] @ basis
        values, vectors = np.linalg.eigh(bend)
        unit = max(unit, float(np.max(np.abs(gradient), initial=0.0)), float(np.max(np.abs(bend), initial=0.0)), TINY)
        convex = (vectors * np.maximum(values, 0.0)) @ vectors.T
        solution = _program(flat, face, here, at, gradient / unit, convex / unit, cuts)
        if solution is None:
            return at, here
        promised = -float(gradient @ solution.step + 0.5 * solution.step @ convex @ solution.step)
        violation = float(np.max(here.upper_inequality, initial=0.0))
        improves = solution.violation < violation
        if np.max(np.abs(solution.step), initial=0.0) <= 1e3 * _EPS or (promised <= 4 * _EPS * unit and not improves):
            return at, here
        share = 1.0
        while share >= _EPS**0.5:
            y = at + share * (basis @ solution.step)
            known = len(cuts)
            found = _cheap(flat, face, y, cuts)
            if found is not None and (improves or float(found.upper) <= float(here.upper) - 1e-4 * share * promised):
                at, here = y, found
                break
            if len(cuts) > known:
                break
            share *= 0.5
        else:
            return at, here
    return at, here


def _cheap(flat: FlatProblem, face: Face, y: np.ndarray, cuts: list[tuple[np.ndarray, float]]) -> Local | None:
    """The functions at a point of the face; None, and a cut, if it costs the follower more or breaks a row of its."""
    n_x = flat.n_x
    found = local(flat, face.x, y)
    if not found.finite:
        return None
    excess = float(found.lower - face.found.lower)
    rows = rows_of(flat, found, face.sizes, y)
    broken = np.flatnonzero(rows.value > np.maximum(face.rows.value, _EPS**0.5 * np.maximum(rows.size, TINY)))
    expensive = excess > _COST * face.steep + ROUNDED * abs(float(face.found.lower))
    if expensive:
        normal = found.lower_gradient[n_x:]
        cuts.append((normal / face.steep, (float(normal @ y) - excess) / face.steep))
    for row in broken:
        normal, size = rows.jacobian[row, n_x:], max(float(rows.size[row]), TINY)
        cuts.append((normal / size, (float(normal @ y) - float(rows.value[row])) / size))
    return None if expensive or len(broken) else found


def _program(
    flat: FlatProblem,
    face: Face,
    found: Local,
    y: np.ndarray,
    gradient: np.ndarray,
    hessian: np.ndarray,
    cuts: list[tuple[np.ndarray, float]],
) -> Solution | None:
    """A step over the face from y that minimises a quadratic model of f; None if there is none."""
    n_x, basis = flat.n_x, face.basis
    rows = rows_of(flat, found, face.sizes, y)
    others = np.setdiff1d(np.arange(len(rows.value)), face.held)
    leader = found.upper_inequality_jacobian[:, n_x:] @ basis
    normals = [rows.jacobian[others, n_x:] @ basis, leader, *(cut[None] @ basis for cut, _ in cuts)]
    limits = [
        np.maximum(-rows.value[others], 0.0),
        -found.upper_inequality,
        *(np.atleast_1d(c - n @ y) for n, c in cuts),
    ]
    lengths = [rows.size[others], np.max(np.abs(leader), axis=1, initial=0.0), *(np.ones(1) for _ in cuts)]
    size = np.concatenate(lengths)
    size = np.where(size > 0.0, size, 1.0)
    elastic = np.zeros(len(size))
    elastic[len(others) : len(others) + len(leader)] = 1.0
    k = basis.shape[1]
    program = Program(
        gradient,
        hessian,
        np.concatenate(normals) / size[:, None],
        np.concatenate(limits) / size,
        elastic,
        np.zeros((0, k)),
        np.zeros(0),
        np.full(k, -np.inf),
        np.full(k, np.inf),
        _PRICE,
    )
    for reach in (np.inf, 1.0):  # over a set without an end the model may have none: then no farther than y's size
        solution = solve(program._replace(low=np.full(k, -reach), high=np.full(k, reach)))
        if solution.solved and np.isfinite(solution.step).all():
            return solution
    return None
