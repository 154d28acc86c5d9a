"""Derivatives of a piece at one x: the hypergradient, those of its rows and of G, and second ones of a Lagrangian."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Array, Float, Int, NDArray
from blocc.flat_problem import FlatProblem
from blocc.local.derivatives import TOGETHER
from blocc.local.derivatives import priced as rows_priced
from blocc.pieces.kinks import Kinks, kink_rows, kinks_along, none_of, number_of, on_sides
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
    kinks: Kinks  #: of f and G themselves

    def own(self, row: int) -> int:
        """Which of the follower's rows a row of the piece belongs to."""
        return int(self.free[row]) if row < len(self.free) else int(self.piece.held[row - len(self.free)])

    def row_of(self, own: int) -> int:
        """The row of the piece that one of the follower's belongs to."""
        held = np.flatnonzero(self.piece.held == own)
        return len(self.free) + int(held[0]) if len(held) else int(np.searchsorted(self.free, own))


def model_of(followers: Followers, piece: Piece) -> Model:
    """First derivatives of a piece, by one more solution of its system."""
    flat, rows, sided = followers.flat, piece.rows, None
    if not followers.is_large and (count := number_of(flat)):
        turned = np.isin(np.arange(count), list(piece.turned))
        sided = on_sides(flat, piece.x, piece.y, turned)
        forced = piece.found._replace(upper_gradient=sided.upper_gradient, upper_inequality_jacobian=sided.jacobian)
        piece = piece._replace(found=forced)
    found, n_x, n_y, held = piece.found, flat.n_x, flat.n_y, piece.held
    own = np.eye(n_x + n_y, n_x)
    right = np.concatenate([piece.of.cross(found), rows.jacobian[held] @ own, found.equality_jacobian @ own])
    solved = -piece.solve(right)
    response, prices = solved[:n_y], solved[n_y:]
    free = np.setdiff1d(np.arange(len(piece.mu)), held)
    both = np.concatenate([np.eye(n_x), response])
    along = lambda jacobian: jacobian @ both  # noqa: E731
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
    kinks = none_of(flat, len(leader))
    if sided is not None:
        first = len(free) + len(held)
        kinks = kinks_along(flat, sided, response, size, units[first : first + len(leader)], turned)
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
        kinks=kinks,
    )


class Priced(NamedTuple):
    """The Lagrangian of f under multipliers for rows of a piece, as the follower's system sees it."""

    adjoint: Float[NDArray, "n_y"]
    held: Float[NDArray, "held"]  #: multipliers of ``c_i = 0``
    equality: Float[NDArray, "equalities"]
    free: Float[NDArray, "free"]
    leader: Float[NDArray, "n_leader"]
    x_rows: Float[NDArray, "n_x_rows"]
    kinks: Float[NDArray, "all"]  #: of rows for kinks of the leader's
    turned: Float[NDArray, "all"]  #: -1 for those whose other side is looked at


def priced(followers: Followers, model: Model, multipliers: np.ndarray, kinked: np.ndarray | None = None) -> Priced:
    """Multipliers of the follower's conditions for those of the rows of a model; ``kinked`` of its kinks."""
    piece, n_x, n_y = model.piece, followers.flat.n_x, followers.flat.n_y
    found, held = piece.found, piece.held
    prices = multipliers / model.units
    free, signs = prices[: len(model.free)], prices[len(model.free) : model.n_own]
    leader = prices[model.n_own : model.n_own + model.n_leader]
    slope = found.upper_gradient + free @ piece.rows.jacobian[model.free] + leader @ found.upper_inequality_jacobian
    kinked = np.zeros(len(model.kinks.among)) if kinked is None else kinked
    slope = slope + kinked @ model.kinks.both
    weights = np.zeros(len(model.kinks.signs))
    weights[model.kinks.among] = kinked / model.kinks.units
    right = np.concatenate([slope[n_x:], -signs, np.zeros(len(found.equality))])
    solved = -piece.solve(right)
    return Priced(
        solved[:n_y],
        solved[n_y : n_y + len(held)],
        solved[n_y + len(held) :],
        free,
        leader,
        prices[model.n_own + model.n_leader :],
        weights,
        np.where(np.isin(np.arange(len(weights)), list(piece.turned)), -1.0, 1.0),
    )


def other_side(
    followers: Followers, model: Model, multipliers: np.ndarray, kinked: np.ndarray | None = None
) -> Float[NDArray, "own"]:
    """For each row of the piece its multiplier on the neighbouring piece, relative to its own there.

    That of mu_i = 0 for a row that is not held, of c_i = 0 for one that is. With c_i and mu_i at zero, both multipliers
    must be nonnegative (strong stationarity).
    """
    piece, n_x = model.piece, followers.flat.n_x
    p = priced(followers, model, multipliers, kinked)
    free = piece.rows.jacobian[model.free][:, n_x:] @ p.adjoint
    return np.concatenate([free * piece.price_size[model.free], p.held * piece.rows.size[piece.held]])


def bend(
    followers: Followers, model: Model, multipliers: np.ndarray, kinked: np.ndarray | None = None
) -> Float[NDArray, "n_x n_x"]:
    """The Hessian in x of the Lagrangian: f on the piece and the priced rows."""
    flat, piece = followers.flat, model.piece
    (general, _), p = flat.follower_rows, priced(followers, model, multipliers, kinked)
    coupled = piece.held < general  # bounds have no second derivatives
    weights, moves = np.zeros(len(piece.mu)), np.zeros((general, flat.n_x))
    weights[model.free], weights[piece.held] = p.free, p.held
    moves[piece.held[coupled]] = model.prices[: len(coupled)][coupled]
    along = np.concatenate([np.eye(flat.n_x), model.response, moves, model.prices[len(coupled) :]])
    given = p._replace(held=weights[:general], free=np.zeros(0))
    found = flat.program(_bend)(piece.x, piece.y, piece.mu[:general], piece.nu, given, along)
    return np.asarray(0.5 * (found + found.T))


def _bend(flat: FlatProblem, x: Array, y: Array, mu: Array, nu: Array, p: Priced, along: Array) -> Array:
    """Second derivatives along the moves of x, y and the multipliers of what these are a stationary point of.

    That is f, the priced rows and, along the adjoint, the follower's own conditions.
    """
    cuts = tuple(np.cumsum([x.size, y.size, mu.size]))

    def value(z: Array) -> Array:
        a, b, m, n = jnp.split(z, cuts)
        _, pull = jax.jvp(lambda v: flat.lower(a, v) + rows_priced(flat, a, v, m, n), (b,), (p.adjoint,))
        total = flat.upper(a, b) + pull + rows_priced(flat, a, b, p.held, p.equality)
        if p.leader.size:
            total = total + p.leader @ flat.upper_inequality(a, b)
        if p.kinks.size:
            total = total + p.kinks @ kink_rows(flat, a, b, p.turned)
        return total + p.x_rows @ flat.x_set.inequality_flat(a) if p.x_rows.size else total

    _, push = jax.linearize(jax.grad(value), jnp.concatenate([x, y, mu, nu]))
    return jax.lax.map(push, along.T, batch_size=TOGETHER) @ along
