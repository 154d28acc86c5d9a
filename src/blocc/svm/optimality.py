"""When margins are optimal, by the leader's multipliers; and which samples would gain on the other side.

A sample is held (d_i . y + c_i = 1, and it may carry weight in w) or not (it carries none). With the leader's prices nu
of the margins and pi of "w is a combination of the samples", an answer is strongly stationary when

    gradient of the validation loss = sum_i nu_i d_i + diag(q) pi,
    nu_i <= phi'(c_i), with equality where c_i > 0;     pi . d_i >= 0, with equality where the sample carries weight;

where nu_i >= 0 for samples that could be released (neither weight nor forgiveness) and pi . d_i >= 0 for those that
could be held. A sample whose other side was tried, alone and without gain, may break its sign.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blocc._lib.arrays import Bool, NDArray
from blocc._lib.rounding import EXACT
from blocc.svm.margins import MarginProblem, Margins, Y

#: What counts as zero for a margin, and for a multiplier beside the largest one.
ZERO = 1e-6


@dataclass(frozen=True, eq=False)
class Classifier:
    """A classifier with the proof that it answers c, in the scaled features."""

    y: Y
    c: Margins
    support: Margins  #: the follower's multipliers
    margin_price: Margins  #: nu
    coupling_price: Y  #: pi; zero for an answer of the relaxation
    held: Bool[NDArray, "n"]
    value: float


def refined(problem: MarginProblem, support: Margins, y: Y) -> tuple[Margins, Y]:
    """The follower's conditions made exact: y computed from its multipliers, carrying samples at their margin.

    An interior point leaves small residuals in both; the multipliers that carry weight move a little to close them.
    """
    rows, ridge = problem.rows, problem.ridge
    signs = rows[:, -1]
    fixed = ridge > 0.0  # the components of y that the multipliers determine
    carrying = support > ZERO * (1.0 + support.max())
    if not carrying.any():
        return support, np.where(fixed, 0.0, y)
    support = np.where(carrying, support, 0.0)
    if not fixed[-1]:
        support[carrying] -= signs[carrying] * (signs @ support) / carrying.sum()

    def answer(multipliers: Margins, intercept: float) -> Y:
        return np.append((rows[:, :-1].T @ multipliers), (signs @ multipliers) / ridge[-1] if fixed[-1] else intercept)

    first = answer(support, y[-1])
    kink = np.flatnonzero(carrying & (rows @ first > 1.0 - 1e-5))
    if len(kink) == 0 or len(kink) > 4 * rows.shape[1]:
        return support, first
    # Weights and b move together: margins of exactly 1 at the kinks, and the weights stay balanced.
    part = rows[kink][:, fixed]
    gram = (part / ridge[fixed]) @ part.T
    free = 0 if fixed[-1] else 1
    system = np.zeros((len(kink) + free, len(kink) + free))
    system[: len(kink), : len(kink)] = gram
    if free:
        system[-1, :-1] = system[:-1, -1] = signs[kink]
    target = np.append(1.0 - rows[kink] @ first, np.zeros(free))
    move = np.linalg.lstsq(system, target, rcond=1e-13)[0]
    moved = support.copy()
    moved[kink] += move[: len(kink)]
    if (moved < 0.0).any():
        return support, first
    second = answer(moved, first[-1] + (move[-1] if free else 0.0))
    closer = np.abs(rows[kink] @ second - 1.0).max() < np.abs(rows[kink] @ first - 1.0).max()
    return (moved, second) if closer else (support, first)


def scale(problem: MarginProblem, now: Classifier) -> float:
    """The size of the leader's gradient, which the conditions are measured against."""
    return 1.0 + float(max(np.abs(problem.validation_slope(now.y)).max(), np.abs(now.margin_price).max()))


def switching_gains(problem: MarginProblem, now: Classifier) -> Margins:
    """What each sample would gain, to first order, by changing sides; 0 where that is rounding."""
    gain = np.maximum(*_gains(problem, now))
    return np.where(gain > ZERO * scale(problem, now), gain, 0.0)


def follower_residual(problem: MarginProblem, now: Classifier) -> float:
    """The follower's KKT residuals at c, relative to y; stationarity also to the multipliers' mean beyond 100."""
    steep = max(1.0, float(now.support.mean()) / 100.0)
    slack = problem.rows @ now.y - 1.0 + now.c
    stationary = np.abs(problem.ridge * now.y - problem.rows.T @ now.support).max() / steep
    complementary = np.minimum(np.maximum(slack, 0.0), now.support).max()
    worst = max(float(stationary), float(-slack.min()), float(complementary), float(-now.support.min()))
    return worst / (1.0 + float(np.abs(now.y).max()))


def stationarity(problem: MarginProblem, now: Classifier, tried: Bool[NDArray, "n"] | None = None) -> float:
    """The largest violation of the conditions, relative; samples that were ``tried`` on both sides may break signs."""
    pull = problem.rows @ now.coupling_price
    slack = np.maximum(problem.rows @ now.y - 1.0, 0.0)
    slope = problem.rows.T @ now.margin_price + problem.ridge * now.coupling_price
    released, taken = _gains(problem, now)
    counts = np.ones(len(now.c), dtype=bool) if tried is None else ~tried
    carrying = now.held & (now.support > ZERO * (1.0 + now.support.max()))
    forgiving = np.abs(np.minimum(now.c, problem.price_slope(now.c) - now.margin_price))
    if problem.c_penalty == "norm" and np.linalg.norm(now.c) <= ZERO:
        # At c = 0 the norm has a ball of subgradients, in the dual norm.
        dual = np.maximum(now.margin_price, 0.0) / np.sqrt(problem.weights.training)
        forgiving = np.array([max(np.linalg.norm(dual) - problem.c_weight, 0.0)])
    violations = (
        np.abs(problem.validation_slope(now.y) - slope),
        forgiving,
        np.abs(np.minimum(slack, now.margin_price))[~now.held],
        np.abs(np.minimum(now.support, pull))[carrying],
        released[counts],
        taken[counts],
    )
    return max(float(np.max(part, initial=0.0)) for part in violations) / scale(problem, now)


def _gains(problem: MarginProblem, now: Classifier) -> tuple[Margins, Margins]:
    """The gain of held samples, with neither weight nor forgiveness, by release; and of others by being held."""
    idle = now.held & (now.support <= ZERO * (1.0 + now.support.max())) & (now.c <= ZERO)
    near = ~now.held & (problem.rows @ now.y <= 1.0 + EXACT)
    pull = problem.rows @ now.coupling_price
    return np.where(idle, np.maximum(-now.margin_price, 0.0), 0.0), np.where(near, np.maximum(-pull, 0.0), 0.0)
