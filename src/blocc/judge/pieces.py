"""The pieces that ``phi(x) = f(x, y(x))`` is made of around one answer, each smooth, with its derivatives.

A *piece* is a set A of the follower's rows: y_A(x) solves its KKT conditions with exactly these rows held at zero. By
the implicit function theorem y_A is smooth wherever the matrix of that square system is regular. At an answer with the
active set A+ (positive multipliers) and the biactive set B (neither a multiplier nor slack) phi is made of the pieces A
with ``A+ <= A <= A+ + B``, each of them where its *rows* hold: ``c_i <= 0`` for the rows of B that are not held and
``mu_i >= 0`` for those that are (Scholtes, Introduction to Piecewise Differentiable Equations, 2012; Luo, Pang and
Ralph, Mathematical Programs with Equilibrium Constraints, 1996).
"""

from __future__ import annotations

from itertools import combinations, product
from math import comb
from typing import NamedTuple

import numpy as np

from blocc._lib.rounding import TINY
from blocc.flat_problem import FlatProblem
from blocc.judge.lower_level import TOUCHED, LowerKKT, Newton, all_rows, held_rows, kkt_system
from blocc.local.derivatives import local
from blocc.local.fit import lengths_of

#: A row is biactive if both its multiplier and its slack are below this, relative to their sizes.
STRICT = 1e-6
#: Largest condition number of a KKT system, in balanced variables, whose solution is trusted.
_CONDITION = 1e9
#: Biactive rows up to which all pieces are looked at; beyond it strong stationarity decides (:func:`relaxed`).
_ENUMERATED = 6
#: Newton steps to y_A next to a point where it is known. They converge quadratically or not at all.
_NEWTON = 12
_ROUNDING = 1e-13  #: a step below this share of the size of y is rounding


class Piece(NamedTuple):
    """One piece at one x. Rows are inequalities ``<= 0`` in x: those of X, of G(x, y_A(x)), and the piece's own."""

    held: np.ndarray
    x: np.ndarray
    y: np.ndarray
    multipliers: np.ndarray  #: of the rows held, then of the equalities
    upper: float
    gradient: np.ndarray  #: of f(x, y_A(x))
    sensitivity: np.ndarray  #: dy_A/dx
    error: float  #: what the last Newton step changed f by: the accuracy of its value
    rows: np.ndarray
    jacobian: np.ndarray
    equality_jacobian: np.ndarray
    biactive: np.ndarray  #: rows of the follower that are active with no multiplier on this piece
    open: np.ndarray  #: which of the rows are those of biactive ones, zero up to rounding
    leader: slice  #: which of the rows are G


class Pieces(NamedTuple):
    """The pieces at an answer; ``complete`` if they are all of them and all are regular."""

    found: tuple[Piece, ...]
    biactive: np.ndarray
    complete: bool


def pieces_at(flat: FlatProblem, r: LowerKKT) -> Pieces:
    """The pieces of phi at a judged answer."""
    sure, biactive = active_rows(r)
    if _dependent(flat, r, np.union1d(sure, biactive).astype(int)):
        return _bases(flat, r)
    choices = [biactive[:0], biactive]
    if len(biactive) <= _ENUMERATED:
        choices = [biactive[np.array(one, bool)] for one in product((False, True), repeat=len(biactive))]
    found = [piece_at(flat, r, r.x, r.y, np.union1d(sure, more).astype(int), biactive) for more in choices]
    regular = tuple(piece for piece in found if piece is not None)
    return Pieces(regular, biactive, len(regular) == len(found) and len(biactive) <= _ENUMERATED)


def _normals(flat: FlatProblem, r: LowerKKT, held: np.ndarray) -> np.ndarray:
    """Normals of the rows held and the equalities in y, each of length one in natural units."""
    rows = np.concatenate([r.rows.jacobian[held], r.local.equality_jacobian[:, flat.n_x :]])
    rows = rows * r.sizes.y / np.sqrt(r.slope)
    lengths = lengths_of(rows) if len(rows) else np.zeros(0)
    return np.asarray(rows / np.where(lengths > 0.0, lengths, 1.0)[:, None])


def _dependent(flat: FlatProblem, r: LowerKKT, held: np.ndarray) -> bool:
    """Whether the normals of active rows are linearly dependent: then there are many multipliers."""
    normals = _normals(flat, r, held)
    if len(normals) > flat.n_y:
        return True
    values = np.linalg.svd(normals, compute_uv=False)
    return bool(len(values)) and not values[-1] * np.sqrt(_CONDITION) > values[0]


def _bases(flat: FlatProblem, r: LowerKKT) -> Pieces:
    """Pieces at an answer whose active rows are dependent: every independent choice of them that has multipliers >= 0.

    Under a constant rank y(x) is always one of these (Ralph and Dempe, Mathematical Programming 70, 1995). A linear
    follower at a degenerate vertex is the common case: the choices are its optimal bases.
    """
    touched = np.flatnonzero(r.rows.value >= -TOUCHED * np.maximum(r.rows.size, TINY))
    gradient = r.local.lower_gradient[flat.n_x :]
    unit = r.sizes.y / np.sqrt(r.slope)
    rank = int(np.linalg.matrix_rank(_normals(flat, r, touched), tol=1.0 / np.sqrt(_CONDITION)))
    most = rank - len(r.local.equality_jacobian)
    sizes = range(max(0, min(most, len(touched))), -1, -1)
    if sum(comb(len(touched), size) for size in sizes) > 2**_ENUMERATED:
        return Pieces((), touched, complete=False)
    found, complete = [], True
    for held in (np.array(one, dtype=int) for size in sizes for one in combinations(touched, size)):
        normals = np.concatenate([r.rows.jacobian[held], r.local.equality_jacobian[:, flat.n_x :]])
        if _dependent(flat, r, held):
            continue
        prices = np.linalg.lstsq((normals * unit).T, -gradient * unit, rcond=None)[0]
        left = np.abs(gradient + normals.T @ prices) * r.sizes.y / r.slope
        relative = prices[: len(held)] * r.rows.size[held] / float(np.max(r.slope, initial=TINY))
        if np.max(left, initial=0.0) > STRICT or np.min(relative, initial=0.0) < -STRICT:
            continue  # no multipliers of these rows explain y
        biactive = np.union1d(np.setdiff1d(touched, held), held[relative <= STRICT]).astype(int)
        piece = piece_at(flat, r, r.x, r.y, held, biactive)
        complete &= piece is not None
        found += [] if piece is None else [piece]
    return Pieces(tuple(found), touched, complete and bool(found))


def smooth_piece(flat: FlatProblem, r: LowerKKT) -> Piece | None:
    """The one piece at an answer without biactive rows; None at any other, or if it is not regular."""
    sure, biactive = active_rows(r)
    return None if len(biactive) else piece_at(flat, r, r.x, r.y, sure.astype(int), biactive)


def active_rows(r: LowerKKT) -> tuple[np.ndarray, np.ndarray]:
    """The rows with a multiplier, and those with neither a multiplier nor slack."""
    multipliers = np.concatenate([r.mu, r.bound]) * r.rows.size / float(np.max(r.slope, initial=TINY))
    slack = np.maximum(-r.rows.value, 0.0) / np.maximum(r.rows.size, TINY)
    biactive = np.flatnonzero(np.maximum(multipliers, slack) <= STRICT)
    return np.setdiff1d(held_rows(r), biactive), biactive


def piece_at(
    flat: FlatProblem,
    r: LowerKKT,
    x: np.ndarray,
    y: np.ndarray,
    held: np.ndarray,
    biactive: np.ndarray,
    prices: np.ndarray | None = None,
) -> Piece | None:
    """The piece with the rows ``held`` at an x near the judged one, by Newton's method from ``y``.

    With ``prices``, multipliers of the biactive rows, the relaxed program instead: nothing holds those rows, and the
    prices are further variables beside x. None if its system is singular there, or Newton's method does not converge.
    """
    n_x, n_y, general = flat.n_x, flat.n_y, r.rows.n_general
    given = np.zeros(len(r.rows.value))
    if prices is not None:
        given[biactive] = prices
    mu, nu = given[:general].copy(), r.nu
    among = held < general
    mu[held[among]] = r.mu[held[among]]
    last, at_base = np.inf, np.array_equal(x, r.x)
    for _ in range(_NEWTON):
        found = local(flat, x, y, mu, nu)
        if not found.finite:
            return None
        at = r._replace(x=x, y=y, local=found, rows=all_rows(flat, found, r.sizes, x, y))
        system = kkt_system(flat, at, found, held)
        if at_base and last == np.inf:
            values = np.linalg.svd(system.matrix, compute_uv=False)
            if len(values) and not values[-1] * _CONDITION > values[0]:
                return None
        slope = found.lower_gradient[n_x:] + given @ at.rows.jacobian
        right = np.concatenate([system.unit * slope, system.row_unit * system.value])
        try:
            solved = -np.linalg.solve(system.matrix, right)
        except np.linalg.LinAlgError:
            return None
        if not np.isfinite(solved).all():
            return None
        change, multipliers = system.unit * solved[:n_y], system.row_unit * solved[n_y:]
        size = float(np.max(np.abs(change) / r.sizes.y, initial=0.0))
        if size <= _ROUNDING or last <= size <= STRICT:  # a small step before a large one has left the piece
            error = float(abs(found.upper_gradient[n_x:] @ change))
            return _piece(flat, at, system, held, multipliers, biactive, prices, error)
        y, last = y + change, size
        mu = given[:general].copy()
        mu[held[among]] = multipliers[: len(held)][among]
        nu = multipliers[len(held) :]
    return None


def _piece(
    flat: FlatProblem,
    r: LowerKKT,
    system: Newton,
    held: np.ndarray,
    multipliers: np.ndarray,
    biactive: np.ndarray,
    prices: np.ndarray | None,
    error: float,
) -> Piece:
    """Derivatives of a piece at a point of it."""
    n_x, n_y, found, every = flat.n_x, flat.n_y, r.local, r.rows
    bend = (found.lower_hessian + found.constraint_hessian)[n_x:, :n_x]
    right = np.concatenate([system.unit[:, None] * bend, system.row_unit[:, None] * system.jacobian_x])
    priced = np.zeros(0) if prices is None else prices
    if len(priced):
        more = np.zeros((len(right), len(priced)))
        more[:n_y] = system.unit[:, None] * every.jacobian[biactive].T
        right = np.concatenate([right, more], axis=1)
    solved = -np.linalg.solve(system.matrix, right)
    change = system.unit[:, None] * solved[:n_y]
    n = n_x + len(priced)
    both = np.concatenate([np.eye(n_x, n), change])
    free = np.setdiff1d(np.arange(len(every.value)), held)
    total = np.concatenate([every.jacobian_x, every.jacobian], axis=1) @ both
    leader = found.upper_inequality_jacobian @ both
    start = len(found.x_inequality)
    every_price = np.ones(len(priced), bool)
    return Piece(
        held=held,
        biactive=biactive,
        x=r.x,
        y=r.y,
        multipliers=multipliers,
        upper=float(found.upper),
        gradient=both.T @ found.upper_gradient,
        sensitivity=change,
        error=error,
        rows=np.concatenate(
            [found.x_inequality, found.upper_inequality, every.value[free], -multipliers[: len(held)], -priced]
        ),
        jacobian=np.concatenate(
            [
                found.x_inequality_jacobian[:, :n_x] @ np.eye(n_x, n),
                leader,
                total[free],
                -(system.row_unit[:, None] * solved[n_y:])[: len(held)],
                -np.eye(len(priced), n, n_x),
            ]
        ),
        equality_jacobian=found.x_equality_jacobian[:, :n_x] @ np.eye(n_x, n),
        open=np.concatenate(
            [np.zeros(start + len(leader), bool), np.isin(free, biactive), np.isin(held, biactive), every_price]
        ),
        leader=slice(start, start + len(leader)),
    )
