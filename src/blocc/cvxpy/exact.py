"""f(x, y(x)) itself and its derivative, from answers to the last digit and the implicit function theorem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.cvxpy.implicit import ExactAnswer, exact_answer
from blocc.cvxpy.leader_value import LeaderValue
from blocc.cvxpy.majorised import Slopes
from blocc.cvxpy.model import Model, Vector
from blocc.cvxpy.solvers import ConeAnswer


class ExactPoint(NamedTuple):
    """Both levels at one x; values in the leader's units."""

    x: Vector
    answers: list[ExactAnswer]
    known: Vector  #: the columns of the followers' that the leader looks at
    leader: LeaderValue
    plain: Slopes | None  #: of a plain function
    own_slope: Vector  #: of her terms in x alone
    value: float  #: with what violations of her constraints cost
    gradient: Vector


def exact_point(model: Model, x: Vector, followers: Sequence[ConeAnswer]) -> ExactPoint | None:
    """From solvers' answers; None where f(x, y(x)) has no derivative by the implicit function theorem."""
    answers = []
    for follower, theta, found in zip(model.followers, model.follower_thetas(x), followers, strict=True):
        one = exact_answer(follower.program, theta, found)
        if one is None:
            return None
        answers.append(one)
    z, prices = ([getattr(one.answer, name) for one in answers] for name in ("z", "prices"))
    known = model.penalised.below(z, prices)[model.leader_program.places]
    leader = model.leader_program.at(model.leader_theta(x), known)
    if leader is None:
        return None
    own, own_slope = model.own.value_and_slope(model.values(x))
    plain = None if model.plain is None else model.plain.at(x, model.own_columns(z))
    pull = np.zeros(model.penalised.n_below)
    pull[model.leader_program.places] += leader.in_known
    if plain is not None:
        pull[model.penalised.seen_columns] += plain.y
        own, own_slope = own + plain.value, own_slope + plain.x
    below = []
    for part, one in zip(model.penalised.parts, answers, strict=True):
        in_prices = np.zeros(one.program.m) if part.prices is None else pull[part.prices.slice]
        slope = one.pulled(pull[part.answer.slice], in_prices)
        if slope is None:
            return None
        below.append(slope)
    gradient = model.slope_in_x(leader.in_theta, below) + own_slope
    value = leader.value + own
    if not (np.isfinite(value) and np.isfinite(gradient).all()):
        return None
    return ExactPoint(x, answers, known, leader, plain, own_slope, value, gradient)


def slopes_of_known(model: Model, point: ExactPoint) -> Float[NDArray, "known n_x"] | None:
    """The derivative in x of the columns that the leader looks at."""
    found = np.zeros((model.penalised.n_below, model.n_x))
    for index, (part, one) in enumerate(zip(model.penalised.parts, point.answers, strict=True)):
        moved = one.moved(model.columns_in_x(index, one.sides).toarray())
        if moved is None:
            return None
        found[part.answer.slice] = moved[: one.program.n]
        if part.prices is not None:
            found[part.prices.slice] = moved[one.program.n :]
    return found[model.leader_program.places]
