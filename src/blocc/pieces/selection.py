"""Pieces of the optimistic selection: y(x) where the follower's optimal set is a face and the leader chooses from it.

With A the rows that have multipliers on the face, the selection is the solution z = (y, mu, nu) of

    min over z of f(x, y)   subject to   M dL/dy (x, y, mu, nu) = 0,   c_A = 0,   mu_i = 0 for i not in A,   h = 0,
                                         c_i <= 0 for i not in A,   mu_A >= 0,   G <= 0,

where M leaves out the directions of the face, in which dL/dy vanishes anyway: a follower of its own, whose response is
regular where that of the follower's is not. Its pieces (:mod:`blocc.pieces.piece`) are those of f(x, y(x)), with their
derivatives; directions of the face in which f does not change either stay where they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array
from blocc._lib.compiled import Store
from blocc._lib.rounding import TINY
from blocc.flat_problem import FlatProblem
from blocc.local.derivatives import Local, equalities, inequalities, local, size_of
from blocc.local.scales import Sizes, sizes_at
from blocc.local.selection import Selected, face_at, null_space, select
from blocc.pieces.piece import Followers, Piece
from blocc.sets import Reals

_EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Selections(Followers):
    """The pieces of the selection around one face; ``base`` are those of the follower itself."""

    base: Followers | None = None

    def response(self, piece: Piece) -> np.ndarray:
        """The follower's part of z."""
        assert self.base is not None
        return piece.y[: self.base.flat.n_y]

    def slopes(self, found: Local) -> np.ndarray:
        """One scale for all: f knows neither multipliers nor all of y."""
        own = super().slopes(found)
        return np.full(len(own), float(np.max(own)))

    def respond(self, x: np.ndarray, y: np.ndarray, held: np.ndarray, mu: np.ndarray, nu: np.ndarray) -> Piece | None:
        """The same, if what M leaves out vanishes as well: the face may be another one at x."""
        piece = super().respond(x, y, held, mu, nu)
        return piece if piece is not None and self._answers(piece) else None

    def _answers(self, piece: Piece) -> bool:
        assert self.base is not None
        flat = self.base.flat
        y, prices = piece.y[: flat.n_y], piece.y[flat.n_y :]
        found = local(flat, piece.x, y)
        rows, slope = self.base.rows(found, y), self.base.slopes(found)
        count = len(rows.value)
        gradient = found.lower_gradient + prices[:count] @ rows.jacobian + prices[count:] @ found.equality_jacobian
        left = np.abs(gradient[flat.n_x :]) * self.base.sizes.y
        return bool(np.max(left, initial=0.0) <= _EPS**0.5 * float(np.max(slope)))


def identified(followers: Followers, x: np.ndarray, y: np.ndarray) -> Piece | None:
    """The piece at a response of the follower's: of its own, or of the selection where it has many responses."""
    piece = followers.identified(x, y)
    if piece is not None or size_of(followers.flat) > followers.settings.largest:
        return piece
    face = face_at(followers.flat, x, y, followers.sizes)
    return None if face is None else _selected(followers, select(followers.flat, face))


def _selected(followers: Followers, s: Selected) -> Piece | None:
    """The piece of the selection at an optimistic response; None if it is not regular."""
    flat, face = followers.flat, s.face
    equations, stay = _equations(flat, s)
    count = len(face.rows.value)
    inside = np.isin(np.arange(count), face.held).astype(float)
    data = (flat.data, inside, equations, stay, s.y)
    store = flat.once(_stores).setdefault(len(equations), Store())
    problem = _problem(flat, data, store)
    mu = np.where(inside > 0.0, face.mu, 0.0)
    z = np.concatenate([s.y, mu, face.nu])
    if size_of(problem) > followers.settings.largest:
        return None
    found = local(problem, face.x, z)
    if not found.finite:
        return None
    sizes = Sizes(followers.sizes.x, sizes_at(problem, found, face.x, z).y)
    selections = Selections(problem, sizes, followers.settings, base=followers)
    held = np.concatenate([s.binding, count + s.leader]).astype(int)
    n_rows, n_equal = problem.n_inequality, problem.n_equality
    return selections.respond(face.x, z, held, np.zeros(n_rows), np.zeros(n_equal))


def _stores(flat: FlatProblem) -> dict[int, Store]:
    """Compiled programs of selections, by the number of their equations."""
    return {}


def _equations(flat: FlatProblem, s: Selected) -> tuple[np.ndarray, np.ndarray]:
    """What must vanish: ``equations @ dL/dy + stay @ (y - y0)``."""
    face, n_x = s.face, flat.n_x
    directions = face.basis / face.unit[:, None]
    directions = np.linalg.qr(directions)[0]
    across = null_space(directions.T).T * face.unit
    rows = np.concatenate([face.rows.jacobian[s.binding], s.found.upper_inequality_jacobian[s.leader]])[:, n_x:]
    free = face.basis @ null_space(rows @ face.basis) if len(rows) else face.basis
    bend = free.T @ s.found.upper_hessian[n_x:, n_x:] @ free
    scale = float(np.max(np.abs(face.basis.T @ s.found.upper_hessian[n_x:, n_x:] @ face.basis), initial=0.0))
    scale = max(scale, float(np.max(np.abs(face.basis.T @ s.found.upper_gradient[n_x:]), initial=0.0)), TINY)
    values, vectors = np.linalg.eigh(bend)
    idle = free @ vectors[:, np.abs(values) <= _EPS**0.5 * scale]
    stay = (idle / face.sizes.y[:, None] ** 2).T
    n_y = flat.n_y
    equations = np.concatenate([across, np.zeros((len(stay), n_y))])
    return equations, np.concatenate([np.zeros((len(across), n_y)), stay])


def _problem(flat: FlatProblem, data: Any, store: Store) -> FlatProblem:
    """The selection as the lower level of a problem with the same leader."""
    inner, inside, equations, stay, begin = data
    flat = flat.bind(inner)
    n_y, (general, n_equal) = flat.n_y, flat.follower_rows
    low, high = flat.y_set.bounds_flat()
    below, above = np.flatnonzero(np.isfinite(low)), np.flatnonzero(np.isfinite(high))
    count = general + len(below) + len(above)

    def rows(x: AnyArray, y: AnyArray) -> Array:
        return jnp.concatenate([inequalities(flat, x, y), low[below] - y[below], y[above] - high[above]])

    def split(z: AnyArray) -> tuple[AnyArray, AnyArray, AnyArray]:
        return z[:n_y], z[n_y : n_y + count], z[n_y + count :]

    def lagrangian(y: AnyArray, x: AnyArray, mu: AnyArray, nu: AnyArray) -> Array:
        total = flat.lower(x, y)
        if count:
            total = total + mu @ rows(x, y)
        if n_equal:
            total = total + nu @ equalities(flat, x, y)
        return total

    def equality(x: AnyArray, z: AnyArray) -> Array:
        y, mu, nu = split(z)
        slope = jax.grad(lagrangian)(y, x, mu, nu)
        first = jnp.asarray(equations) @ slope + jnp.asarray(stay) @ (y - jnp.asarray(begin))
        return jnp.concatenate([first, inside * rows(x, y) + (1.0 - inside) * mu, equalities(flat, x, y)])

    def inequality(x: AnyArray, z: AnyArray) -> Array:
        y, mu, _ = split(z)
        return jnp.concatenate([(1.0 - inside) * rows(x, y) - inside * mu, flat.upper_inequality(x, y)])

    def upper(x: AnyArray, z: AnyArray) -> Array:
        return flat.upper(x, z[:n_y])

    return FlatProblem(
        upper=upper,
        lower=upper,
        inequality=inequality,
        equality=equality,
        upper_inequality=lambda x, z: jnp.zeros(0),
        x_set=flat.x_set,
        y_set=Reals(n_y + count + n_equal),
        n_inequality=count + flat.n_upper_inequality,
        n_equality=len(equations) + count + n_equal,
        n_upper_inequality=0,
        data=data,
        store=store,
        rebind=lambda other: _problem(flat, other, store),
    )
