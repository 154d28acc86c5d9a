"""Second derivatives of what an expansion is worth, in the capacities that are added.

Volumes answer to capacities through the links' costs alone. With V the derivatives of the volumes in the decision (from
:mod:`~blocc.roads.link_response`), and the paths in use kept,

- the least value of an assignment, sum of I(v, c), has the second derivatives  I_cc + I_cv V  (Danskin's theorem);
- the exact value, sum of w(v, c) at the drivers' equilibrium, has those of  w + y t  along (V, 1), where y is how the
  volumes answer to the marginal values: the multipliers of the drivers' conditions, so that the second derivatives of
  the volumes are not needed.

Where paths come into use or fall out of it these derivatives jump; steps that rely on them need a trust region.
"""

from __future__ import annotations

from typing import NamedTuple, TypeGuard

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.roads.descents import MOST_DENSE
from blocc.roads.equilibrium import MANY_PAIRS, Equilibrium
from blocc.roads.expansion import Expansion
from blocc.roads.link_response import MOST_LINKS, LinkResponse, link_response
from blocc.roads.question import Question

#: The continuation by Newton steps, and what a step must promise at each gamma, relatively: the first is the bound, the
#: next leads around the places where paths come into use, the last is exact.
NEWTON_STAGES = ((0.0, 1e-9), (100.0, 1e-6), (np.inf, 1e-7))
#: Beyond so many decisions their matrix takes too much of a checkpoint.
MOST_DECISIONS = 500


def goes_by_newton(question: Question) -> TypeGuard[Expansion]:
    """Whether descents use second derivatives: where they are known, where assignments or decisions are many.

    Elsewhere evaluations cost next to nothing, and quasi-Newton methods end nearer to answers at which paths come into
    use, because they do not see second derivatives jump there. Costs of exponents between 1 and 2 bend without limit
    where nothing is built yet, which no quadratic model tells.
    """
    n, network = len(question.candidates), question.network
    is_large = n > MOST_DENSE or network.n_pairs >= MANY_PAIRS
    if not (isinstance(question, Expansion) and is_large and n <= MOST_DECISIONS and network.n_links <= MOST_LINKS):
        return False
    return bool(((question.exponent == 1.0) | (question.exponent >= 2.0)).all())


class _Bends(NamedTuple):
    """Second derivatives of t0 b (v / c)^p, link by link: in v, in v and c, in c; and the first in c."""

    vv: Float[NDArray, "links"]
    vc: Float[NDArray, "links"]
    cc: Float[NDArray, "links"]
    c: Float[NDArray, "links"]


def exact_curvature(
    question: Expansion, x: Float[NDArray, "n"], answer: Equilibrium
) -> tuple[Float[NDArray, "n"], Float[NDArray, "n n"]]:
    """Slope and second derivatives of the exact value."""
    costs = question.follower_costs(x)
    response = link_response(answer, costs)
    per_cost = response.to_changes(question.marginal(x, answer.volume))
    slope = question.own(x)[1] + question.direct(x, answer.volume) + question.turned(x, answer.volume, per_cost)
    time = _bends(question, x, answer.volume)
    p, v = question.network.power, answer.volume
    # v t has the derivatives of t times v, and those of t once more.
    first_v = np.divide(time.vv * v, p - 1.0, out=response.slope.copy(), where=p != 1.0)
    vv = (v + per_cost) * time.vv + 2.0 * first_v
    vc = (v + per_cost) * time.vc + time.c
    cc = (v + per_cost) * time.cc
    at, rows = question.candidates, response.rising
    moved = response.to_links(at) * time.c[at]
    found = moved.T @ (vv[rows, None] * moved)
    cross = _on_candidates(response, question, moved) * vc[at, None]
    found += cross + cross.T
    found[np.diag_indices(len(at))] += cc[at] + _own_bend(question, x)
    return slope, found


def penalty_curvature(
    question: Expansion, x: Float[NDArray, "n"], gamma: float, penalised: Equilibrium, follower: Equilibrium | None
) -> Float[NDArray, "n n"]:
    """Second derivatives of F_gamma, from its two assignments."""
    found = np.diag(_own_bend(question, x))
    power = question.network.power
    found += _least_bend(question, x, penalised, gamma, 1.0 + gamma + power)
    if follower is not None:
        found -= gamma * _least_bend(question, x, follower, np.inf, np.ones(len(power)))
    return found


def _least_bend(
    question: Expansion,
    x: Float[NDArray, "n"],
    found: Equilibrium,
    gamma: float,
    factor: Float[NDArray, "links"],
) -> Float[NDArray, "n n"]:
    """Of the least value of one assignment, whose growing costs are those of time, times a factor."""
    costs = question.follower_costs(x) if np.isinf(gamma) else question.penalised_costs(x, gamma)
    response, time, at = link_response(found, costs), _bends(question, x, found.volume), question.candidates
    moved = response.to_links(at) * (factor * time.c)[at]
    bend = _on_candidates(response, question, moved) * (factor * time.c)[at, None]
    integral = factor * time.cc * found.volume / (question.network.power + 1.0)
    bend[np.diag_indices(len(at))] += integral[at]
    return 0.5 * (bend + bend.T)


def _on_candidates(
    response: LinkResponse, question: Expansion, moved: Float[NDArray, "rising n"]
) -> Float[NDArray, "n n"]:
    """The rows of the candidates; nothing where their volume does not answer."""
    place = np.full(question.network.n_links, -1)
    place[response.rising] = np.arange(len(response.rising))
    rows = place[question.candidates]
    return np.where(rows[:, None] >= 0, moved[rows], 0.0)


def _bends(question: Expansion, x: Float[NDArray, "n"], volume: Float[NDArray, "links"]) -> _Bends:
    network = question.network
    room = np.where(network.b > 0.0, question.capacity(x), 1.0)
    p, filled = network.power, volume / room
    grown = network.free_flow_time * network.b
    with np.errstate(divide="ignore", invalid="ignore"):
        steep = np.nan_to_num(grown * filled ** (p - 2.0), posinf=0.0)  # powers below 2 on empty links
    return _Bends(
        vv=p * (p - 1.0) * steep / room**2,
        vc=-p * p * steep * filled / room**2,
        cc=p * (p + 1.0) * steep * filled**2 / room**2,
        c=-p * steep * filled**2 / room,
    )


def _own_bend(question: Expansion, x: Float[NDArray, "n"]) -> Float[NDArray, "n"]:
    """Second derivatives of what construction costs; at nothing built they may be infinite, and count as none."""
    e = question.exponent
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        bend = question.cost * e * (e - 1.0) * np.maximum(x, 0.0) ** (e - 2.0)
    return np.where((e > 1.0) & np.isfinite(bend), bend, 0.0)
