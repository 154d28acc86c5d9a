"""y(x) on one active set: a smooth function of x, by Newton's method on the follower's KKT conditions.

For a set A of the follower's rows (gc, the rows of Y and its bounds) let (y_A, mu_A, nu_A)(x) solve

    dg/dy + mu dc/dy + nu dh/dy = 0,   c_i = 0 for i in A,   mu_i = 0 for i not in A,   h = 0.

Where the matrix of this square system is regular, y_A is smooth, and it is the response where ``c_i <= 0`` for the rows
that are not held and ``mu_i >= 0`` for those that are: the *rows* of the piece (Scholtes, Introduction to Piecewise
Differentiable Equations, 2012). One factorisation serves Newton's method, the hypergradient and the derivatives of
the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

from blocc._lib.arrays import Float, Int, NDArray
from blocc._lib.rounding import TINY
from blocc.flat_problem import FlatProblem
from blocc.local.derivatives import Local, local, size_of
from blocc.local.fit import lengths_of
from blocc.local.follower import Rows, fitted_multipliers, rows_of, slopes_of
from blocc.local.scales import Sizes, sizes_at
from blocc.pieces.settings import SETTINGS, Settings

#: Solutions of a piece's KKT system for one right-hand side or several.
Solve = Callable[[np.ndarray], np.ndarray]
#: Which piece: whose, the rows held, and the kinks whose other side is looked at.
Key = tuple[int, bytes, frozenset[int]]


class Guess(NamedTuple):
    """An active set with its multipliers, of the same follower at another x or with other data."""

    held: Int[NDArray, "held"]
    mu: Float[NDArray, "rows"]
    nu: Float[NDArray, "equalities"]


class Piece(NamedTuple):
    """y_A(x) at one x, and the factorised system."""

    x: Float[NDArray, "n_x"]
    y: Float[NDArray, "n_y"]
    held: Int[NDArray, "held"]
    mu: Float[NDArray, "rows"]  #: zero for rows that are not held
    nu: Float[NDArray, "equalities"]
    found: Local
    rows: Rows
    steep: float  #: scale of the slopes of g, times the sizes of y
    solve: Solve  #: the KKT system for one or more right-hand sides; it is symmetric
    of: Followers
    turned: frozenset[int] = frozenset()  #: kinks of the leader's on which x lies, and whose other side is looked at

    @property
    def response(self) -> Float[NDArray, "n_y"]:
        """The follower's own variables among those of the piece."""
        return self.of.response(self)

    @property
    def key(self) -> Key:
        """Which piece it is, whatever its x."""
        return id(self.of), self.held.tobytes(), self.turned

    def like(self, other: Piece) -> bool:
        """Whether it is the same piece, at another x."""
        return self.key == other.key

    @property
    def price_size(self) -> Float[NDArray, "rows"]:
        """The multiplier of each row that moves g as much as g moves by itself."""
        return self.steep / np.maximum(self.rows.size, TINY)


@dataclass(frozen=True)
class Followers:
    """The pieces of one problem; ``sizes`` are natural ones around where the work began."""

    flat: FlatProblem
    sizes: Sizes
    settings: Settings = SETTINGS

    @property
    def is_large(self) -> bool:
        """Whether pieces may be so many that f(x, y(x)) looks smooth across them."""
        return False

    @classmethod
    def of(cls, flat: FlatProblem, x: np.ndarray, y: np.ndarray, settings: Settings = SETTINGS) -> Followers | None:
        """Pieces by dense matrices, for large followers by sparse ones or none; None if there are none."""
        if flat.prox is not None or flat.easier is not None:
            return None
        if size_of(flat) > settings.largest:
            from blocc.pieces.large import LargeFollowers  # SciPy's sparse matrices are loaded by those who need them

            return LargeFollowers.around(flat, x, y, settings)
        found = local(flat, x, y)
        return cls(flat, sizes_at(flat, found, x, y), settings) if found.finite else None

    def derivatives(
        self, x: np.ndarray, y: np.ndarray, mu: np.ndarray | None = None, nu: np.ndarray | None = None
    ) -> Local:
        """All functions at one point, with multipliers of the general rows."""
        return local(self.flat, x, y, mu, nu)

    def cross(self, found: Local) -> Float[NDArray, "n_y n_x"]:
        """The derivative of dL/dy in x."""
        return np.asarray((found.lower_hessian + found.constraint_hessian)[self.flat.n_x :, : self.flat.n_x])

    def rows(self, found: Local, y: np.ndarray) -> Rows:
        """All inequalities of the follower."""
        return rows_of(self.flat, found, self.sizes, y)

    def slopes(self, found: Local) -> Float[NDArray, "n_y"]:
        """The scale of dg/dy, times the sizes of y."""
        return slopes_of(self.flat, found, self.sizes)

    # --- one piece ----------------------------------------------------------------------------------------------
    def newton(self, x: np.ndarray, y: np.ndarray, held: np.ndarray, mu: np.ndarray, nu: np.ndarray) -> Piece | None:
        """y_A(x) for the rows ``held``, from a guess; None if Newton's method meets a singular system or fails."""
        n_y, last = self.flat.n_y, np.inf
        for step in range(self.settings.newton):
            at = self._system(x, y, held, mu, nu)
            if at is None:
                return None
            right = -np.concatenate([at.found.lower_gradient[-n_y:], at.rows.value[held], at.found.equality])
            solved = at.solve(right)
            if not np.isfinite(solved).all():
                return None
            change, prices = solved[:n_y], np.zeros(len(mu))
            prices[held], fresh = solved[n_y : n_y + len(held)], solved[n_y + len(held) :]
            size = float(np.max(np.abs(change) / self.sizes.y, initial=0.0))
            moved = float(np.max(np.abs(prices - mu) / at.price_size, initial=0.0))
            mu, nu = prices, fresh
            settled = size <= self.settings.rounding or (size >= last and last <= np.sqrt(self.settings.rounding))
            if settled and (moved <= np.sqrt(self.settings.rounding) or not at.found.bent):
                return at._replace(mu=mu, nu=nu)
            if step >= 3 and size > last:
                return None
            y, last = y + change, max(size, self.settings.rounding)
        return None

    def _system(self, x: np.ndarray, y: np.ndarray, held: np.ndarray, mu: np.ndarray, nu: np.ndarray) -> Piece | None:
        """The KKT matrix of the rows ``held`` in balanced variables, factorised; None if it is singular."""
        n_x, n_y = self.flat.n_x, self.flat.n_y
        general = self.flat.follower_rows[0]
        found = self.derivatives(x, y, mu[:general], nu)
        if not found.finite:
            return None
        rows, slope = self.rows(found, y), self.slopes(found)
        normals = np.concatenate([rows.jacobian[held], found.equality_jacobian])[:, n_x:]
        if len(normals) > n_y:
            return None
        bend = (found.lower_hessian + found.constraint_hessian)[n_x:, n_x:]
        unit = self.sizes.y / np.sqrt(slope)
        # Multipliers without bound, at an edge of what the follower can meet, bend L beyond the scale of g.
        unit = unit / np.sqrt(np.maximum(1.0, np.max(np.abs(unit[:, None] * bend * unit), axis=1, initial=0.0)))
        lengths = lengths_of(normals * unit)
        if not (lengths > 0.0).all():
            return None
        units = np.concatenate([unit, 1.0 / lengths])
        matrix = np.zeros((units.size, units.size))
        matrix[:n_y, :n_y], matrix[n_y:, :n_y], matrix[:n_y, n_y:] = bend, normals, normals.T
        matrix *= units[:, None] * units
        factor = scipy.linalg.lapack.dgetrf(matrix)
        norm = float(np.max(np.abs(matrix).sum(axis=0), initial=0.0))
        if factor[2] != 0 or not scipy.linalg.lapack.dgecon(factor[0], norm)[0] > self.settings.regular:
            return None
        steep = float(np.max(slope, initial=TINY))

        def solve(right: np.ndarray) -> np.ndarray:
            unit = units if right.ndim == 1 else units[:, None]
            return np.asarray(unit * scipy.linalg.lu_solve(factor[:2], unit * right, check_finite=False))

        return Piece(x, y, held, mu, nu, found, rows, steep, solve, self)

    def response(self, piece: Piece) -> Float[NDArray, "n_y"]:
        """The follower's own variables among those of a piece."""
        return piece.y

    # --- the response -------------------------------------------------------------------------------------------
    def wrong(self, piece: Piece) -> Float[NDArray, "rows"]:
        """By how much each row says that a piece is not the truth: its violation, or the wrong sign of its price."""
        held = np.zeros(len(piece.mu), bool)
        held[piece.held] = True
        return np.where(held, -piece.mu / piece.price_size, piece.rows.value / np.maximum(piece.rows.size, TINY))

    def respond(self, x: np.ndarray, y: np.ndarray, held: np.ndarray, mu: np.ndarray, nu: np.ndarray) -> Piece | None:
        """The piece that is the truth at x, by a primal-dual active set method from a guess; None if it fails."""
        seen: set[bytes] = set()
        before: Piece | None = None
        false = held[:0]
        for _ in range(self.settings.changes):
            piece = self.newton(x, y, held, mu, nu)
            if piece is None:  # a row too many
                exchanged = None if before is None or not len(false) else self.exchanged(before, int(false[-1]))
                if exchanged is None or exchanged.tobytes() in seen:
                    return None
                held, before = exchanged, None
                continue
            wrong = self.wrong(piece)
            false = np.flatnonzero(wrong > self.settings.true)
            if not len(false):
                return piece
            false = false[np.argsort(wrong[false])]
            if held.tobytes() in seen:  # all at once goes in circles: one at a time
                false = false[-1:]
            seen.add(held.tobytes())
            before = piece
            held, y, mu, nu = np.setxor1d(held, false).astype(int), piece.y, piece.mu, piece.nu
        return None

    def exchanged(self, piece: Piece, row: int) -> Int[NDArray, "held"] | None:
        """The active set in which a row that depends on those held takes the place of one, as in the simplex method.

        The one that leaves is the first whose multiplier vanishes as that of the new one grows. None if there is none.
        """
        n_x, held = self.flat.n_x, piece.held
        if row in held:
            return None
        normals = np.concatenate([piece.rows.jacobian[held], piece.found.equality_jacobian])[:, n_x:] * self.sizes.y
        wanted = piece.rows.jacobian[row, n_x:] * self.sizes.y
        shares = np.linalg.lstsq(normals.T, wanted, rcond=None)[0]
        left = float(np.max(np.abs(normals.T @ shares - wanted), initial=0.0))
        if left > self.settings.regular * float(np.max(np.abs(wanted), initial=0.0)):
            return None
        growing = shares[: len(held)] * piece.price_size[row] / piece.price_size[held]
        may = np.flatnonzero(growing > self.settings.regular)
        if not len(may):
            return None
        leaves = may[int(np.argmin(piece.mu[held[may]] / shares[may]))]
        return np.union1d(np.delete(held, leaves), row).astype(int)

    def guessed(self, x: np.ndarray, y: np.ndarray, inequality: np.ndarray, equality: np.ndarray) -> Guess | None:
        """The active set that an earlier answer tells: coupled rows by their multipliers, those of Y by their slack."""
        found, coupled = self.derivatives(x, y), self.flat.n_inequality
        if not found.finite:
            return None
        rows, steep = self.rows(found, y), float(np.max(self.slopes(found), initial=TINY))
        held = rows.value >= -self.settings.touched * np.maximum(rows.size, TINY)
        held[:coupled] = inequality * rows.size[:coupled] / steep > self.settings.touched
        mu, nu = np.zeros(len(held)), np.zeros(len(found.equality))
        mu[:coupled], nu[: len(equality)] = np.where(held[:coupled], inequality, 0.0), equality
        return Guess(np.flatnonzero(held), mu, nu)

    def identified(self, x: np.ndarray, y: np.ndarray) -> Piece | None:
        """The piece at an answer of an oracle: the rows it touches, with a multiplier where that can be told."""
        found = self.derivatives(x, y)
        if not found.finite:
            return None
        rows, slope = self.rows(found, y), self.slopes(found)
        touched = np.flatnonzero(rows.value >= -self.settings.touched * np.maximum(rows.size, TINY))
        mu, nu = fitted_multipliers(self.flat, found, rows, touched, self.sizes.y / slope)
        priced = np.flatnonzero(mu > 0.0)
        choices = [priced] if len(priced) == len(touched) else [priced, touched]
        for held in choices:
            piece = self.respond(x, y, held, np.where(np.isin(np.arange(mu.size), held), mu, 0.0), nu)
            if piece is not None:
                return piece
        return None
