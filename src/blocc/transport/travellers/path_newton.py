"""Newton's system of the travellers' problem on columns, and one step of a predictor-corrector method.

With h the flows of the paths, T their times and A which path takes which link, the problem on known paths is

    minimise    sum T h + sum w [t_ext (1 - y) + y ln y + (1 - y) ln(1 - y) - 1]
    subject to  sum of a market's h  =  w y,      A h <= x,      h >= 0.

Every market is a small block that is eliminated by hand. What is left is one Schur complement over the links that are
open, whose unknowns are the prices. The steps are those of :mod:`blocc.inner.mehrotra`, written for NumPy: columns come
and go, and compiled programs would be compiled anew for every number of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs
from scipy.special import expit

from blocc._lib.arrays import Float, NDArray
from blocc.transport.travellers.columns import Columns, price_matrix

#: A path's conductance is its flow over its reduced cost, and no more than the inverse of a number in this range.
#: Were conductances larger, rounding in the costs would show in the flows.
_PROXIMAL = (1e-8, 1e-6)
#: Added to the diagonal of the Schur complement, relatively; more where it is not positive definite in floating point.
_REGULARISATIONS = (1e-14, 1e-12, 1e-10, 1e-8)


#: Complementary products count so many times: a variable and its multiplier that vanish together are only as small as
#: the root of their product.
_SHARPNESS = 1e4


class PathPoint(NamedTuple):
    """Primal and dual variables."""

    flow: Float[NDArray, "paths"]
    reduced_cost: Float[NDArray, "paths"]  #: multiplier of flow >= 0
    price: Float[NDArray, "open_links"]
    slack: Float[NDArray, "open_links"]
    share: Float[NDArray, "markets"]
    low: Float[NDArray, "markets"]  #: multiplier of share >= 0, per passenger
    stay: Float[NDArray, "markets"]  #: 1 - share
    high: Float[NDArray, "markets"]  #: multiplier of stay >= 0, per passenger
    potential: Float[NDArray, "markets"]  #: cost of the cheapest path, prices included

    def moved(self, change: PathPoint, step: float) -> PathPoint:
        """``self + step change``."""
        return PathPoint(*(value + step * along for value, along in zip(self, change, strict=True)))


class Products(NamedTuple):
    """One array for each pair of a variable and its multiplier."""

    flow: Float[NDArray, "paths"]
    slack: Float[NDArray, "open_links"]
    share: Float[NDArray, "markets"]
    stay: Float[NDArray, "markets"]


def products(left: PathPoint, right: PathPoint) -> Products:
    """Variables of one point times multipliers of another."""
    return Products(
        left.flow * right.reduced_cost, left.slack * right.price, left.share * right.low, left.stay * right.high
    )


class Residuals(NamedTuple):
    """How far a point is from a solution, equation by equation."""

    dual: Float[NDArray, "paths"]
    balance: Float[NDArray, "markets"]
    capacity: Float[NDArray, "open_links"]
    choice: Float[NDArray, "markets"]


@dataclass(frozen=True)
class PathCase:
    """One problem on known paths: links that are open, markets that can travel, passengers in units of the mean."""

    columns: Columns
    time: Float[NDArray, "open_links"]
    capacity: Float[NDArray, "open_links"]
    demand: Float[NDArray, "markets"]
    alternative: Float[NDArray, "markets"]
    scales: tuple[float, float]  #: units of passengers and of time

    @cached_property
    def times(self) -> Float[NDArray, "paths"]:
        """Time of each path."""
        return self.columns.costs(self.time)

    def total(self, point: PathPoint) -> float:
        """Sum of the complementary products; those of the shares count for every passenger."""
        flow, slack, share, stay = products(point, point)
        return float(flow.sum() + slack.sum() + self.demand @ (share + stay))

    def average(self, point: PathPoint) -> float:
        """Mean complementary product: the barrier parameter."""
        return self.total(point) / max(1, len(self.columns) + len(self.time) + 2 * len(self.demand))

    def residuals(self, point: PathPoint) -> Residuals:
        """All residuals at a point."""
        columns = self.columns
        odds = np.log(point.share) - np.log(point.stay)
        return Residuals(
            self.times + columns.costs(point.price) - point.potential[columns.market] - point.reduced_cost,
            columns.totals(point.flow) - self.demand * point.share,
            self.capacity - columns.loads(point.flow) - point.slack,
            odds - self.alternative + point.potential - point.low + point.high,
        )

    def error(self, point: PathPoint) -> float:
        """The largest residual, relative to the network's scales."""
        r, (passengers, time) = self.residuals(point), self.scales
        parts = (
            np.max(np.abs(r.dual), initial=0.0) / time,
            np.max(np.abs(r.balance), initial=0.0) / passengers,
            np.max(np.abs(r.capacity), initial=0.0) / passengers,
            np.max(np.abs(r.choice) * point.share * (1.0 - point.share), initial=0.0),
            _SHARPNESS * self.average(point) / (passengers * time),
        )
        return float(np.max(parts))


class Factors(NamedTuple):
    """Newton's matrix, factorised."""

    conductance: Float[NDArray, "paths"]
    elasticity: Float[NDArray, "markets"]  #: how much a share answers to its cost
    block: Float[NDArray, "markets"]  #: how much a market's passengers answer to their cheapest cost
    schur: Float[NDArray, "open_links open_links"]  #: upper Cholesky factor


def factorise(case: PathCase, point: PathPoint) -> Factors | None:
    """Eliminate the markets and factorise the Schur complement; None where it is not positive definite."""
    proximal = float(np.clip(0.1 * case.average(point), *_PROXIMAL))
    conductance = 1.0 / (point.reduced_cost / point.flow + proximal)
    elasticity = 1.0 / ((1.0 + point.low) / point.share + (1.0 + point.high) / point.stay)
    answering = case.demand * elasticity
    schur = price_matrix(case.columns, conductance, answering)
    diagonal = np.einsum("ii->i", schur)
    diagonal += point.slack / point.price
    whole = diagonal.copy()
    block = case.columns.totals(conductance) + answering
    for regularisation in _REGULARISATIONS:
        diagonal[:] = (1.0 + regularisation) * whole
        # The lower triangle by rows is the upper one by columns, as LAPACK reads it.
        factor, info = dpotrf(schur.T, lower=0, overwrite_a=0 if regularisation < _REGULARISATIONS[-1] else 1)
        if info == 0:
            return Factors(conductance, elasticity, block, factor)
    return None


def direction(case: PathCase, point: PathPoint, f: Factors, r: Residuals, wanted: Products) -> PathPoint:
    """Newton's direction towards complementary products that are larger by ``wanted``."""
    columns, market = case.columns, case.columns.market
    free = f.conductance * (wanted.flow / point.flow - r.dual)  # the flows' step if prices and costs stood still
    choice = r.choice - wanted.share / point.share + wanted.stay / point.stay
    right = -r.balance - case.demand * f.elasticity * choice - columns.totals(free)
    load = columns.loads(free + f.conductance * (right / f.block)[market])
    d_price, _ = dpotrs(f.schur, load + wanted.slack / point.price - r.capacity, lower=0)
    d_cost = columns.costs(d_price)
    d_potential = (right + columns.totals(f.conductance * d_cost)) / f.block
    d_reduced = r.dual + d_cost - d_potential[market]
    d_share = -f.elasticity * (choice + d_potential)
    return PathPoint(
        flow=f.conductance * (wanted.flow / point.flow - d_reduced),
        reduced_cost=d_reduced,
        price=d_price,
        slack=(wanted.slack - point.slack * d_price) / point.price,
        share=d_share,
        low=(wanted.share - point.low * d_share) / point.share,
        stay=-d_share,
        high=(wanted.stay + point.high * d_share) / point.stay,
        potential=d_potential,
    )


def longest_step(point: PathPoint, change: PathPoint, fraction: float = 1.0) -> float:
    """The longest step of at most 1 that uses up no more than ``fraction`` of any variable but the potentials."""
    step = 1.0
    for value, along in zip(point[:-1], change[:-1], strict=True):
        falls = along < 0.0
        step = min(step, float(np.min(fraction * value[falls] / -along[falls], initial=1.0)))
    return step


def corrected_step(case: PathCase, point: PathPoint) -> PathPoint | None:
    """One step with Mehrotra's centring and second-order correction; None where there is none."""
    factors = factorise(case, point)
    if factors is None:
        return None
    r, now = case.residuals(point), products(point, point)
    total, average = case.total(point), case.average(point)
    predictor = direction(case, point, factors, r, Products(*(-product for product in now)))
    left = case.total(point.moved(predictor, longest_step(point, predictor))) / total
    target = average * float(np.clip(left**3, 1e-6, 1.0))
    one = np.ones(1)
    weights = (one, one, case.demand, case.demand)
    second = products(predictor, predictor)
    wanted = Products(*(target / w - p - q for w, p, q in zip(weights, now, second, strict=True)))
    change = direction(case, point, factors, r, wanted)
    moved = point.moved(change, longest_step(point, change, 0.995))
    return moved if all(np.isfinite(values).all() for values in moved) else None


def centred(
    case: PathCase, price: Float[NDArray, "open_links"], cheapest: Float[NDArray, "markets"], room: float
) -> PathPoint:
    """A point at these prices that satisfies all but the capacities, with reduced costs of at least ``room``.

    :param cheapest: cost of each market's cheapest path at these prices
    """
    columns, market = case.columns, case.columns.market
    potential = cheapest - room
    reduced = case.times + columns.costs(price) - potential[market]
    share = np.clip(expit(case.alternative - potential), 1e-9, 1.0 - 1e-9)
    part = 1.0 / reduced
    flow = (case.demand * share / columns.totals(part))[market] * part  # all products of a market are alike
    product = float(np.mean(flow * reduced)) if len(flow) else 1.0
    slack = np.maximum(case.capacity - columns.loads(flow), product / price)
    return PathPoint(
        flow, reduced, price, slack, share, product / share, 1.0 - share, product / (1.0 - share), potential
    )


def with_columns(case: PathCase, point: PathPoint, wider: PathCase) -> PathPoint:
    """The point of ``case`` in a case with further columns, which get flows as its complementary products ask for.

    Those flows are taken from the other paths of the same markets, so that no passenger is lost or won.
    """
    old, new = case.columns, wider.columns
    known = np.arange(len(new)) - new.of_market[new.market] < np.diff(old.of_market)[new.market]
    product, total = case.average(point), old.totals(point.flow)
    reduced = wider.times + new.costs(point.price) - point.potential[new.market]
    reduced = np.maximum(reduced, np.sqrt(product))
    flow = np.minimum(product / reduced, 0.05 * total[new.market])
    flow[known] = 0.0
    flow[known] = point.flow * np.maximum(1.0 - new.totals(flow) / total, 0.1)[old.market]
    reduced[known] = point.reduced_cost
    return point._replace(flow=flow, reduced_cost=reduced)
