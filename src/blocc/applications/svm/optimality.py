"""When margins are optimal, told by the leader's prices; and which samples would rather be on the other side.

A sample is held (d_i . y + c_i = 1, and it may carry weight in w) or not (it carries none). With the leader's prices nu
of the margins and pi of "w is a combination of the samples", an answer is strongly stationary when

    gradient of the validation loss = sum_i nu_i d_i + diag(q) pi,
    nu_i <= phi'(c_i), with equality where c_i > 0;     pi . d_i >= 0, with equality where the sample carries weight;

where nu_i >= 0 for samples that could be released (neither weight nor forgiveness) and pi . d_i >= 0 for those that
could be held. A sample whose other side was tried without gain may break its sign: there is no descent on either side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blocc.applications.svm.margins import MarginProblem

#: What counts as zero for a margin, and for a multiplier beside the largest one.
ZERO = 1e-6


@dataclass(frozen=True, eq=False)
class Classifier:
    """A classifier with the proof that it answers c, in the scaled features."""

    y: np.ndarray
    c: np.ndarray
    support: np.ndarray  #: the follower's multipliers
    margin_price: np.ndarray  #: nu
    coupling_price: np.ndarray  #: pi; zero for an answer of the relaxation
    held: np.ndarray
    value: float


def scale(problem: MarginProblem, now: Classifier) -> float:
    """The size of the leader's gradient, which the conditions are measured against."""
    return 1.0 + float(max(np.abs(problem.validation_slope(now.y)).max(), np.abs(now.margin_price).max()))


def wishes(problem: MarginProblem, now: Classifier) -> np.ndarray:
    """Samples that would gain by changing sides."""
    least = ZERO * scale(problem, now)
    released, taken = _grudges(problem, now)
    return (released > least) | (taken > least)


def stationarity(problem: MarginProblem, now: Classifier, tried: np.ndarray | None = None) -> float:
    """The largest violation of the conditions, relative; samples that were ``tried`` on both sides may break signs."""
    pull = problem.rows @ now.coupling_price
    slack = np.maximum(problem.rows @ now.y - 1.0, 0.0)
    slope = problem.rows.T @ now.margin_price + problem.ridge * now.coupling_price
    released, taken = _grudges(problem, now)
    counts = np.ones(len(now.c), dtype=bool) if tried is None else ~tried
    carrying = now.held & (now.support > ZERO * (1.0 + now.support.max()))
    violations = (
        np.abs(problem.validation_slope(now.y) - slope),
        np.abs(np.minimum(now.c, problem.price_slope(now.c) - now.margin_price)),
        np.abs(np.minimum(slack, now.margin_price))[~now.held],
        np.abs(np.minimum(now.support, pull))[carrying],
        released[counts],
        taken[counts],
    )
    return max(float(np.max(part, initial=0.0)) for part in violations) / scale(problem, now)


def _grudges(problem: MarginProblem, now: Classifier) -> tuple[np.ndarray, np.ndarray]:
    """How much held samples without a task would gain by release, and others by being held."""
    idle = now.held & (now.support <= ZERO * (1.0 + now.support.max())) & (now.c <= ZERO)
    near = ~now.held & (problem.rows @ now.y <= 1.0 + 1e-9)
    pull = problem.rows @ now.coupling_price
    return np.where(idle, np.maximum(-now.margin_price, 0.0), 0.0), np.where(near, np.maximum(-pull, 0.0), 0.0)
