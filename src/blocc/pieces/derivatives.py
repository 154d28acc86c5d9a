"""Derivatives of a piece at one x: the hypergradient, those of its rows and of G, and second ones of a Lagrangian."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Array, Float, Int, NDArray
from blocc.flat_problem import FlatProblem
from blocc.local.derivatives import local
from blocc.pieces.piece import Followers, Piece


class Model(NamedTuple):
    """A piece to first order in x. Inequalities ``rows <= 0`` are: the piece's own, G, and those of X, in this order.

    All are in units in which the follower's variables and x move by their sizes.
    """

    piece: Piece
    upper: float
    gradient: Float[NDArray, "n_x"]
    response: Float[NDArray, "n_y n_x"]  #: dy/dx
    prices: Float[NDArray, "m n_x"]  #: derivatives of mu (held rows) and nu
    value: Float[NDArray, "rows"]
    jacobian: Float[NDArray, "rows n_x"]
    units: Float[NDArray, "rows"]  #: by which rows were divided
    free: Int[NDArray, "free"]  #: rows of the follower's that are not held
    n_own: int  #: the piece's own rows: those of ``free``, then one for each of ``piece.held``
    n_leader: int  #: G
    equality: Float[NDArray, "equalities"]  #: of X
    equality_jacobian: Float[NDArray, "equalities n_x"]

    def own(self, row: int) -> int:
        """Which of the follower's rows a row of the piece belongs to."""
        return int(self.free[row]) if row < len(self.free) else int(self.piece.held[row - len(self.free)])

    def row_of(self, own: int) -> int:
        """The row of the piece that one of the follower's belongs to."""
        held = np.flatnonzero(self.piece.held == own)
        return len(self.free) + int(held[0]) if len(held) else int(np.searchsorted(self.free, own))


def model_of(followers: Followers, piece: Piece) -> Model:
    """First derivatives of a piece, by one more solution of its system."""
    flat, found, rows = followers.flat, piece.found, piece.rows
    n_x, n_y, held = flat.n_x, flat.n_y, piece.held
    cross = (found.lower_hessian + found.constraint_hessian)[n_x:, :n_x]
    right = np.concatenate([cross, rows.jacobian[held, :n_x], found.equality_jacobian[:, :n_x]])
    solved = -piece.solve(right)
    response, prices = solved[:n_y], solved[n_y:]
    free = np.setdiff1d(np.arange(len(piece.mu)), held)
    along = lambda jacobian: jacobian[:, :n_x] + jacobian[:, n_x:] @ response  # noqa: E731
    leader, size = along(found.upper_inequality_jacobian), followers.sizes.x
    x_rows = found.x_inequality_jacobian[:, :n_x]
    parts = [
        (rows.value[free], along(rows.jacobian[free]), rows.size[free]),
        (-piece.mu[held], -prices[: len(held)], piece.price_size[held]),
        (found.upper_inequality, leader, np.abs(leader) @ size),
        (found.x_inequality, x_rows, np.abs(x_rows) @ size),
    ]
    units = np.concatenate([part[2] for part in parts])
    units = np.where(units > 0.0, units, 1.0)
    return Model(
        piece=piece,
        upper=float(found.upper),
        gradient=found.upper_gradient[:n_x] + response.T @ found.upper_gradient[n_x:],
        response=response,
        prices=prices,
        value=np.concatenate([part[0] for part in parts]) / units,
        jacobian=np.concatenate([part[1] for part in parts]) / units[:, None],
        units=units,
        free=free,
        n_own=len(free) + len(held),
        n_leader=len(leader),
        equality=found.x_equality,
        equality_jacobian=found.x_equality_jacobian[:, :n_x],
    )


class Priced(NamedTuple):
    """The Lagrangian of f under multipliers for rows of a piece, as the follower's system sees it."""

    adjoint: Float[NDArray, "n_y"]
    held: Float[NDArray, "held"]  #: multipliers of ``c_i = 0``
    equality: Float[NDArray, "equalities"]
    free: Float[NDArray, "free"]
    leader: Float[NDArray, "n_leader"]
    x_rows: Float[NDArray, "n_x_rows"]


def priced(followers: Followers, model: Model, multipliers: np.ndarray) -> Priced:
    """Multipliers of the follower's conditions for those of the rows of a model."""
    piece, n_x, n_y = model.piece, followers.flat.n_x, followers.flat.n_y
    found, held = piece.found, piece.held
    prices = multipliers / model.units
    free, signs = prices[: len(model.free)], prices[len(model.free) : model.n_own]
    leader = prices[model.n_own : model.n_own + model.n_leader]
    slope = found.upper_gradient + free @ piece.rows.jacobian[model.free] + leader @ found.upper_inequality_jacobian
    right = np.concatenate([slope[n_x:], -signs, np.zeros(len(found.equality))])
    solved = -piece.solve(right)
    return Priced(
        solved[:n_y],
        solved[n_y : n_y + len(held)],
        solved[n_y + len(held) :],
        free,
        leader,
        prices[model.n_own + model.n_leader :],
    )


def other_side(followers: Followers, model: Model, multipliers: np.ndarray) -> Float[NDArray, "own"]:
    """For each row of the piece its multiplier on the neighbouring piece, relative to its own there.

    That of mu_i = 0 for a row that is not held, of c_i = 0 for one that is. With c_i and mu_i at zero, both multipliers
    must be nonnegative (strong stationarity).
    """
    piece, n_x = model.piece, followers.flat.n_x
    p = priced(followers, model, multipliers)
    free = piece.rows.jacobian[model.free][:, n_x:] @ p.adjoint
    return np.concatenate([free * piece.price_size[model.free], p.held * piece.rows.size[piece.held]])


def bend(followers: Followers, model: Model, multipliers: np.ndarray) -> Float[NDArray, "n_x n_x"]:
    """The Hessian in x of the Lagrangian: f on the piece and the priced rows.

    Third derivatives of the follower's Lagrangian enter along the adjoint alone: they are differences of its Hessian.
    """
    flat, piece = followers.flat, model.piece
    n_x, general, found = flat.n_x, flat.follower_rows[0], piece.found
    p = priced(followers, model, multipliers)
    total = found.upper_hessian.copy()
    weights = np.zeros(len(piece.mu))
    weights[model.free], weights[piece.held] = p.free, p.held
    if weights[:general].any() or p.equality.any():
        total += local(flat, piece.x, piece.y, weights[:general], p.equality).constraint_hessian
    if p.leader.any() or p.x_rows.any():
        total += np.asarray(flat.program(_leader_bend)(piece.x, piece.y, p.leader, p.x_rows))
    both = np.concatenate([np.eye(n_x), model.response])
    cross = np.zeros((n_x, n_x))
    length = float(np.max(np.abs(p.adjoint) / followers.sizes.y, initial=0.0))
    if length > 0.0:
        step = followers.settings.difference / length
        ends = [
            local(flat, piece.x, piece.y + sign * step * p.adjoint, piece.mu[:general], piece.nu)
            for sign in (1.0, -1.0)
        ]
        if all(end.finite for end in ends):
            third = [end.lower_hessian + end.constraint_hessian for end in ends]
            total += (third[0] - third[1]) / (2.0 * step)
            coupled = piece.held[piece.held < general]
            rows = [np.concatenate([end.inequality_jacobian[coupled], end.equality_jacobian]) for end in ends]
            turned = (rows[0] - rows[1]) / (2.0 * step)
            which = np.concatenate([piece.held < general, np.ones(len(found.equality), bool)])
            cross = (turned @ both).T @ model.prices[which]
    hessian = both.T @ total @ both + cross + cross.T
    return np.asarray(0.5 * (hessian + hessian.T))


def _leader_bend(flat: FlatProblem, x: Array, y: Array, leader: Array, x_rows: Array) -> Array:
    n_x = x.size

    def value(z: Array) -> Array:
        total = jnp.zeros(())
        if leader.size:
            total = total + leader @ flat.upper_inequality(z[:n_x], z[n_x:])
        if x_rows.size:
            total = total + x_rows @ flat.x_set.inequality_flat(z[:n_x])
        return total

    return jax.hessian(value)(jnp.concatenate([x, y]))
