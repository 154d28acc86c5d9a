"""Among the followers' best answers and prices, those that suit the leader best, and those that suit her least.

With a solution z* of a follower at hand, its solutions are the feasible z with ``Pz = Pz*`` and the same ``q'z``, and
its prices are feasible lambda with the same value of the dual. So the pairs within eps of optimal are a cone program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from blocc.cvxpy.cone_program import Numbers
from blocc.cvxpy.model import Model, Vector
from blocc.cvxpy.penalised import Weighted
from blocc.cvxpy.scaling import scaled
from blocc.cvxpy.solvers import ConeAnswer, solve


class Pairs(NamedTuple):
    """An answer and prices for every follower; prices only where the leader looks at them."""

    upper: float  #: the leader's value
    violation: float  #: of the leader's constraints
    answers: list[Vector]
    prices: list[Vector | None]


def is_possible(model: Model, *, worst: bool) -> bool:
    """Whether the question is a convex problem."""
    if model.plain is not None or model.penalised.has_products:
        return False
    return not worst or (model.is_affine and not model.soft.constraints)


def best_pairs(model: Model, x: Vector, own: Sequence[ConeAnswer], near: float, *, worst: bool = False) -> Pairs | None:
    """The leader's best (worst) pairs within ``near`` of optimal, relative to the followers' values; None without."""
    thetas = model.follower_thetas(x)
    at = Weighted(-1.0 if worst else 1.0, 0.0, model.leader_theta(x), thetas)
    numbers = model.penalised.numbers(at, squares=False)
    rows: list[sp.csr_array] = []
    offsets: list[Vector] = []
    limits: list[sp.csr_array] = []
    room: list[float] = []
    for part, follower, theta, one in zip(model.penalised.parts, model.followers, thetas, own, strict=True):
        here = follower.program.at(theta)
        curved = here.quadratic @ one.z
        bent = np.flatnonzero(np.diff(sp.csr_array(here.quadratic).indptr))
        rows.append(_placed(sp.csr_array(here.quadratic)[bent], part.answer.start, model.penalised.n))
        offsets.append(-curved[bent])
        cost = _placed(sp.csr_array(-here.linear[None]), part.answer.start, model.penalised.n)
        slack = near * (1e-3 * scaled(here, follower.program.cones).objective + abs(one.value))
        if part.prices is None:
            room.append(slack + float(here.linear @ one.z))
        else:
            cost = cost + _placed(sp.csr_array(-here.offset[None]), part.prices.start, model.penalised.n)
            room.append(slack - float(one.z @ curved))
        limits.append(cost)
    found = _solved(model, numbers, rows, offsets, limits, room)
    if found is None:
        return None
    answers, prices = model.penalised.answers(found), model.penalised.multipliers(found)
    upper, violation = model.upper(x, answers, prices)
    return Pairs(upper, violation, answers, prices)


def _solved(
    model: Model,
    numbers: Numbers,
    rows: list[sp.csr_array],
    offsets: list[Vector],
    limits: list[sp.csr_array],
    room: list[float],
) -> Vector | None:
    """Solve with further rows: of zeros in front, and of nonnegative numbers behind those there are."""
    cones = model.penalised.cones
    split = cones.zero + cones.nonnegative
    matrix = sp.vstack([*rows, numbers.matrix[: cones.zero], *limits, numbers.matrix[cones.zero : split]])
    matrix = sp.csc_array(sp.vstack([matrix, numbers.matrix[split:]]))
    offset = np.concatenate(
        [*offsets, numbers.offset[: cones.zero], room, numbers.offset[cones.zero : split], numbers.offset[split:]]
    )
    more = cones._replace(zero=cones.zero + sum(map(len, offsets)), nonnegative=cones.nonnegative + len(room))
    found = solve(numbers._replace(matrix=matrix, offset=offset), more, 1e-9)
    return found.z if found.is_usable else None


def _placed(block: sp.csr_array, start: int, n: int) -> sp.csr_array:
    """A block of rows whose columns begin at ``start`` among n."""
    one = sp.coo_array(block)
    return sp.csr_array((one.data, (one.coords[0], one.coords[1] + start)), shape=(block.shape[0], n))
