"""f(x, y(x)) itself on a piece: its value, its hypergradient, and both levels to first order around x."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from blocc._lib.arrays import NDArray
from blocc.cvxpy.implicit import Pair, Response
from blocc.cvxpy.leader_value import LeaderValue
from blocc.cvxpy.majorised import Slopes
from blocc.cvxpy.model import Model, Vector

#: Rows of a piece, in the program's own units, below which a pair is not the followers' answer.
BROKEN = -1e-8


class ExactPoint(NamedTuple):
    """Both levels at one x; values in the leader's units."""

    x: Vector
    responses: list[Response]
    known: Vector  #: the columns of the followers' that the leader looks at
    leader: LeaderValue
    plain: Slopes | None  #: of a plain function
    own_slope: Vector  #: of her terms in x alone
    value: float  #: with what violations of her constraints cost
    gradient: Vector

    @property
    def pairs(self) -> list[Pair]:
        """The followers' answers with their multipliers and pieces."""
        return [one.pair for one in self.responses]

    @property
    def is_true(self) -> bool:
        """Whether the pieces hold: the pairs are the followers' answers."""
        return all(bool((one.rows.values >= BROKEN).all()) for one in self.responses)


class View(NamedTuple):
    """Both levels to first order in v: the change of x, then those of the pairs on pieces with several answers."""

    known: Vector
    moves: NDArray  #: derivative of ``known`` in v
    pairs: list[NDArray]  #: derivatives of every follower's answer and multipliers in v
    equations: sp.csr_array  #: what must vanish in v
    rows: Vector  #: of all pieces
    slopes: NDArray  #: their derivative in v
    names: list[tuple[int, int]]  #: the follower and linear row of each; -1 for a curved cone
    always: NDArray  #: rows that count wherever they are: those of pieces with several answers
    columns: Vector  #: of the leader's own program
    own_slope: Vector  #: derivative of her terms in x alone
    plain: Vector  #: derivative of a plain function in the known columns
    mixed: NDArray  #: derivative of the leader's derivatives in the known columns in x

    @property
    def is_regular(self) -> bool:
        """Whether v is the change of x alone."""
        return self.moves.shape[1] == self.mixed.shape[1]

    @property
    def cross(self) -> NDArray:
        """Curvature in x by products of parameters and answers, which the leader's program is linear in."""
        n = self.mixed.shape[1]
        found = self.moves[:, :n].T @ self.mixed
        return found + found.T


def exact_point(model: Model, x: Vector, pairs: Sequence[Pair]) -> ExactPoint | None:
    """From the followers' pairs; None where a response is not smooth on its piece."""
    responses = []
    for follower, theta, pair in zip(model.followers, model.follower_thetas(x), pairs, strict=True):
        one = Response(follower.program, theta, pair)
        if not one.is_smooth:
            return None
        responses.append(one)
    known = model.penalised.below([one.z for one in pairs], [one.prices for one in pairs])[model.leader_program.places]
    leader = model.leader_program.at(model.leader_theta(x), known)
    if leader is None:
        return None
    own, own_slope = model.own.value_and_slope(model.values(x))
    plain = None if model.plain is None else model.plain.at(x, model.own_columns([one.z for one in pairs]))
    pull = np.zeros(model.penalised.n_below)
    pull[model.leader_program.places] += leader.in_known
    if plain is not None:
        pull[model.penalised.seen_columns] += plain.y
        own, own_slope = own + plain.value, own_slope + plain.x
    below = []
    for part, one in zip(model.penalised.parts, responses, strict=True):
        in_prices = np.zeros(one.program.m) if part.prices is None else pull[part.prices.slice]
        slope = one.pulled(pull[part.answer.slice], in_prices)
        if slope is None:
            return None
        below.append(slope)
    gradient = model.slope_in_x(leader.in_theta, below) + own_slope
    value = leader.value + own
    if not (np.isfinite(value) and np.isfinite(gradient).all()):
        return None
    return ExactPoint(x, responses, known, leader, plain, own_slope, value, gradient)


def view_of(model: Model, point: ExactPoint) -> View | None:
    """Both levels to first order around a point."""
    n_v = model.n_x + sum(one.program.n + one.program.m for one in point.responses if not one.is_regular)
    moves, rows, slopes, always = np.zeros((model.penalised.n_below, n_v)), [], [], []
    pairs, equations, names, at = [], [], [], model.n_x
    for index, (part, one) in enumerate(zip(model.penalised.parts, point.responses, strict=True)):
        n, size = one.program.n, one.program.n + one.program.m
        moved = np.zeros((size, n_v))
        sides = model.columns_in_x(index, one.sides)
        if one.is_regular:
            own = one.moved(sides.toarray())
            if own is None:
                return None
            moved[:, : model.n_x] = own
        else:
            moved[:, at : at + size] = np.eye(size)
            blank = sp.csr_array((size, at - model.n_x))
            rest = sp.csr_array((size, n_v - at - size))
            equations.append(sp.csr_array(sp.hstack([sides, blank, one.matrix, rest])))
            at += size
        numbers = one.program.at(model.follower_thetas(point.x)[index])
        slack = numbers.matrix @ moved[:n]
        slack[:, : model.n_x] += model.columns_in_x(index, one.slack_sides).toarray()
        own_rows = one.rows
        rows.append(own_rows.values)
        slopes.append(own_rows.by_slack @ slack + own_rows.by_prices @ moved[n:])
        names += [(index, int(name)) for name in own_rows.linear]
        always.append(np.full(len(own_rows.values), not one.is_regular))
        pairs.append(moved)
        moves[part.answer.slice] = moved[:n]
        if part.prices is not None:
            moves[part.prices.slice] = moved[n:]
    plain = np.zeros(len(point.known))
    if point.plain is not None:
        plain[np.searchsorted(model.leader_program.places, model.penalised.seen_columns)] = point.plain.y
    mixed = model.leader_program.crossed(point.leader.columns, point.leader.prices)
    return View(
        point.known,
        moves[model.leader_program.places],
        pairs,
        sp.csr_array(sp.vstack(equations)) if equations else sp.csr_array((0, n_v)),
        np.concatenate(rows),
        np.concatenate(slopes),
        names,
        np.concatenate(always),
        point.leader.columns,
        point.own_slope,
        plain,
        model.leader_columns_in_x(mixed).toarray(),
    )
