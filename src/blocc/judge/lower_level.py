"""The follower's side of an answer: is y the best reply to x, and which multipliers prove it?

Everything is computed from the problem's functions at (x, y): the multipliers are a nonnegative least-squares fit over
the rows that y touches, whatever a solver may have said. :func:`polish` improves an answer by Newton steps on those
rows, which also settles followers so flat that a solver's residual vanishes long before y is accurate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blocc._lib.rounding import EXACT, ROUNDED, TINY
from blocc.flat_problem import FlatProblem
from blocc.local.derivatives import Local, local, wide
from blocc.local.fit import lengths_of, nonnegative_fit
from blocc.local.scales import Sizes, row_sizes, sizes_at
from blocc.local.selection import optimistic

#: Rows are touched that have no more slack than this, relative to their size.
TOUCHED = 1e-6
_SOLVED = 1e-12  #: below this ratio answers differ by rounding, and the one on its rows is preferred
_ROUNDS = 8  #: changes of the set of touched rows in one polish
_NEWTON = 80  #: steps on one set of rows; a follower of power p needs many, for its Newton steps shrink by (p-2)/(p-1)


class Rows(NamedTuple):
    """All inequalities of the follower at one point: coupled ones, those of Y, and its bounds; derivatives in y."""

    value: np.ndarray
    jacobian: np.ndarray
    jacobian_x: np.ndarray
    size: np.ndarray
    n_general: int  #: so many of them have a Hessian; the others are bounds


class LowerKKT(NamedTuple):
    """y at x, judged. Ratios are relative to the natural sizes of :mod:`blocc.local.scales`: 1 is everything."""

    x: np.ndarray
    y: np.ndarray
    mu: np.ndarray  #: of the general inequalities (coupled ones first)
    nu: np.ndarray  #: of the equalities (coupled ones first)
    bound: np.ndarray  #: of the finite bounds of Y
    local: Local
    wide: Local  #: the same to measure by; another one only where functions have rounded corners
    sizes: Sizes
    rows: Rows
    slope: np.ndarray  #: scale of dg/dy, one for each variable, times its size
    stationarity: float  #: ratio
    feasibility: float  #: ratio
    stationarity_raw: float  #: largest entry of the gradient of the Lagrangian in y
    feasibility_raw: float  #: largest violation

    @property
    def worst(self) -> float:
        """The larger of both ratios."""
        return max(self.stationarity, self.feasibility)


def all_rows(flat: FlatProblem, found: Local, sizes: Sizes, x: np.ndarray, y: np.ndarray) -> Rows:
    """The follower's inequalities with one row for each finite bound of Y."""
    n_x, n_y = flat.n_x, flat.n_y
    low, high = flat.y_set.bounds_flat()
    identity = np.eye(n_y)
    below, above = np.isfinite(low), np.isfinite(high)
    z = np.concatenate([x, y])
    general = found.inequality_jacobian
    return Rows(
        np.concatenate([found.inequality, (low - y)[below], (y - high)[above]]),
        np.concatenate([general[:, n_x:], -identity[below], identity[above]]),
        np.concatenate([general[:, :n_x], np.zeros((int(below.sum() + above.sum()), n_x))]),
        np.concatenate([row_sizes(general, sizes.both, z), sizes.y[below], sizes.y[above]]),
        len(general),
    )


def reply(flat: FlatProblem, x: np.ndarray, y: np.ndarray, sizes: Sizes | None = None) -> LowerKKT | None:
    """Judge y as the follower's answer at x; None where functions or derivatives are not finite.

    ``sizes`` are those at a point nearby, if they are known.
    """
    found = local(flat, x, y)
    broad = found if flat.easier is None else wide(flat, x, y)
    if not (found.finite and broad.finite):
        return None
    judged = _judged(flat, x, y, found, broad, sizes_at(flat, broad, x, y) if sizes is None else sizes)
    return judged._replace(stationarity=np.inf) if _underflows(flat, judged) else judged


def _underflows(flat: FlatProblem, r: LowerKKT) -> bool:
    """Whether g has no slope at y only because numbers cannot be as small as it is: exp(-y) far out has no minimum.

    Between the middle of Y and y lies the point where the slope becomes exactly zero. That of a function which is flat
    from some point on goes to zero before it; one that underflows ends at the smallest number there is.
    """
    n_x, middle = flat.n_x, flat.y_set.interior_flat()
    none = (r.local.lower_gradient[n_x:] == 0.0) & (r.local.lower_hessian[n_x:, n_x:] == 0.0).all(axis=1)
    if not none.any():
        return False
    at_middle = np.abs(local(flat, r.x, middle).lower_gradient[n_x:])
    suspects = none & (at_middle > 0.0)
    if not suspects.any():
        return False
    near, far = 0.0, 1.0
    slope = at_middle
    for _ in range(60):
        half = 0.5 * (near + far)
        found = np.abs(local(flat, r.x, middle + half * (r.y - middle)).lower_gradient[n_x:])
        if (found[suspects] > 0.0).any():
            near, slope = half, found
        else:
            far = half
    return bool((slope[suspects] < 1e-200).all())


def _slope_scale(flat: FlatProblem, found: Local, sizes: Sizes) -> np.ndarray:
    """For each of the follower's variables: the terms that g's derivative is made of, times the variable's size.

    Where g is linear in a variable only x changes that derivative, which vanishes at a tie: there counts what x brings.
    """
    n_x = flat.n_x
    slope, bend = np.abs(found.lower_gradient[n_x:]), np.abs(found.lower_hessian[n_x:, n_x:])
    turned = bend @ sizes.y
    own = (slope + np.where(turned > 0.0, turned, np.abs(found.lower_hessian[n_x:, :n_x]) @ sizes.x)) * sizes.y
    # A variable that hardly matters to g is measured by rounding of those that do.
    return np.maximum(own, ROUNDED * float(np.max(own, initial=0.0))) + TINY


def _judged(flat: FlatProblem, x: np.ndarray, y: np.ndarray, found: Local, broad: Local, sizes: Sizes) -> LowerKKT:
    n_x = flat.n_x
    rows, slope = all_rows(flat, found, sizes, x, y), _slope_scale(flat, broad, sizes)
    equality = found.equality_jacobian[:, n_x:]
    equality_size = row_sizes(found.equality_jacobian, sizes.both, np.concatenate([x, y]))
    touched = np.flatnonzero(rows.value >= -TOUCHED * np.maximum(rows.size, TINY))
    gradient, normals = found.lower_gradient[n_x:], np.concatenate([rows.jacobian[touched], equality])
    largest = float(np.max(slope, initial=0.0))
    # A variable that g hardly knows is measured by the priced rows it is in, which cancel; never by more than g itself.
    # The first fit finds those prices, the second the ones that count.
    prices = _fit(gradient, normals, len(touched), sizes.y / largest)
    slope = np.maximum(slope, np.minimum(np.abs(normals).T @ np.abs(prices) * sizes.y, largest))
    prices = _fit(gradient, normals, len(touched), sizes.y / slope)
    held, nu = np.zeros(len(rows.value)), prices[len(touched) :]
    held[touched] = prices[: len(touched)]
    left = gradient + rows.jacobian.T @ held + equality.T @ nu
    violated = np.concatenate([np.maximum(rows.value, 0.0), np.abs(found.equality)])
    size = np.maximum(np.concatenate([rows.size, equality_size]), TINY)
    return LowerKKT(
        x=x,
        y=y,
        mu=held[: rows.n_general],
        nu=nu,
        bound=held[rows.n_general :],
        local=found,
        wide=broad,
        sizes=sizes,
        rows=rows,
        slope=slope,
        stationarity=float(np.max(np.abs(left) * sizes.y / slope, initial=0.0)),
        feasibility=float(np.max(violated / size, initial=0.0)),
        stationarity_raw=float(np.max(np.abs(left), initial=0.0)),
        feasibility_raw=float(np.max(violated, initial=0.0)),
    )


def ratio_with(flat: FlatProblem, r: LowerKKT, mu: np.ndarray, nu: np.ndarray) -> float:
    """The ratio of stationarity, sign and complementarity that multipliers of the coupled rows leave at y.

    Those of Y, which nobody states, are the best there are.
    """
    n_x, n, m = flat.n_x, flat.n_inequality, flat.n_equality
    touched = np.flatnonzero(r.rows.value >= -TOUCHED * np.maximum(r.rows.size, TINY))
    own = r.rows.jacobian[touched[touched >= n]]
    equality = r.local.equality_jacobian[:, n_x:]
    gradient = r.local.lower_gradient[n_x:] + r.rows.jacobian[:n].T @ mu + equality[:m].T @ nu
    normals = np.concatenate([own, equality[m:]])
    left = gradient + normals.T @ _fit(gradient, normals, len(own), r.sizes.y / r.slope)
    largest = float(np.max(r.slope, initial=TINY))
    sign = np.maximum(-mu, 0.0) * r.rows.size[:n] / largest
    slack = np.abs(mu) * np.maximum(-r.rows.value[:n], 0.0) / largest
    return float(max(np.max(np.abs(left) * r.sizes.y / r.slope, initial=0.0), np.max([*sign, *slack], initial=0.0)))


def _fit(gradient: np.ndarray, normals: np.ndarray, signed: int, weight: np.ndarray) -> np.ndarray:
    """Prices of the rows, the first ``signed`` of them nonnegative, that leave least of the weighted gradient."""
    lengths = lengths_of(normals * weight)
    unit = np.where(lengths > 0.0, lengths, 1.0)
    columns = normals * weight / unit[:, None]
    found = nonnegative_fit(np.concatenate([columns, -columns[signed:]]).T, -weight * gradient)
    prices = found[: len(normals)]
    prices[signed:] -= found[len(normals) :]
    return prices / unit


class Newton(NamedTuple):
    """The KKT system on a set of held rows, in balanced variables."""

    matrix: np.ndarray
    unit: np.ndarray  #: of the variables
    row_unit: np.ndarray  #: of the held rows and equalities
    held: np.ndarray
    jacobian: np.ndarray
    jacobian_x: np.ndarray
    value: np.ndarray


def kkt_system(flat: FlatProblem, r: LowerKKT, found: Local, held: np.ndarray) -> Newton:
    """Newton's matrix for the follower's problem with the rows ``held`` kept at zero."""
    n_x, n_y = flat.n_x, flat.n_y
    jacobian = np.concatenate([r.rows.jacobian[held], found.equality_jacobian[:, n_x:]])
    jacobian_x = np.concatenate([r.rows.jacobian_x[held], found.equality_jacobian[:, :n_x]])
    value = np.concatenate([r.rows.value[held], found.equality])
    unit = r.sizes.y / np.sqrt(r.slope)
    scaled = jacobian * unit
    lengths = np.linalg.norm(scaled, axis=1)
    row_unit = 1.0 / np.where(lengths > 0.0, lengths, 1.0)
    bend = found.lower_hessian[n_x:, n_x:] + found.constraint_hessian[n_x:, n_x:]
    count = len(jacobian)
    matrix = np.zeros((n_y + count, n_y + count))
    matrix[:n_y, :n_y] = unit[:, None] * bend * unit
    matrix[n_y:, :n_y] = row_unit[:, None] * scaled
    matrix[:n_y, n_y:] = matrix[n_y:, :n_y].T
    return Newton(matrix, unit, row_unit, held, jacobian, jacobian_x, value)


def solve_symmetric(matrix: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """Solve a system that may be singular; the shortest solution then. None where nothing finite comes out."""
    try:
        solved = np.linalg.solve(matrix, right)
        if (
            np.isfinite(solved).all()
            and np.max(np.abs(matrix @ solved - right), initial=0.0)
            <= 1e-8 * (1.0 + np.max(np.abs(right), initial=0.0))
            and np.max(np.abs(solved), initial=0.0) <= 1e8 * (1.0 + np.max(np.abs(right), initial=0.0))
        ):
            return solved
    except np.linalg.LinAlgError:
        pass
    try:
        solved = np.linalg.lstsq(matrix, right, rcond=1e-11)[0]
    except np.linalg.LinAlgError:
        return None
    return solved if np.isfinite(solved).all() else None


def held_rows(r: LowerKKT) -> np.ndarray:
    """Rows with a price and hardly any slack: those whose price, in units of g, exceeds their slack, in units of c."""
    prices = np.concatenate([r.mu, r.bound])
    largest, size = float(np.max(r.slope, initial=0.0)), np.maximum(r.rows.size, TINY)
    return np.flatnonzero(prices * size / largest > np.maximum(-r.rows.value / size, 0.0))


def polish(flat: FlatProblem, r: LowerKKT) -> LowerKKT:
    """A better answer by Newton steps on the rows that hold y; the same where there is none to be had."""
    best = r
    held = held_rows(r)
    for _ in range(_ROUNDS):
        found = _newton(flat, r, held)
        if found is None:
            return best
        moved, prices, cut = found
        after = reply(flat, r.x, moved, r.sizes)
        if after is None:
            return best
        if after.worst <= max(best.worst, _SOLVED):
            best = after
        negative = prices < -EXACT * np.max(np.abs(prices), initial=0.0)
        broken = np.flatnonzero(after.rows.value > (-EXACT if cut else EXACT) * after.rows.size)
        fresh = np.setdiff1d(broken, held)
        if not negative.any() and not len(fresh):
            return best
        held = np.union1d(np.delete(held, int(np.argmin(prices))) if negative.any() else held, fresh).astype(int)
    return best


def preferred(flat: FlatProblem, r: LowerKKT) -> LowerKKT | None:
    """Of all responses that cost the follower no more, the best for the leader; None where there is but one."""
    y = optimistic(flat, r.x, r.y, r.sizes)
    return None if y is None else reply(flat, r.x, y, r.sizes)


def _newton(flat: FlatProblem, r: LowerKKT, held: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool] | None:
    """Newton's method on a fixed set of rows; returns y, the prices of those rows, and whether a bound cut a step."""
    n_x, n_y = flat.n_x, flat.n_y
    low, high = flat.y_set.bounds_flat()
    y, general = r.y, r.rows.n_general
    mu, nu = np.zeros_like(r.mu), r.nu
    mu[held[held < general]] = r.mu[held[held < general]]
    last, ratio = np.inf, 0.0
    prices, cut = np.zeros(len(held)), False
    for step in range(_NEWTON):
        found = local(flat, r.x, y, mu, nu)
        if not found.finite:
            return None
        sizes = r.sizes
        at = r._replace(
            y=y,
            local=found,
            rows=all_rows(flat, found, sizes, r.x, y),
            slope=_slope_scale(flat, found, sizes) if flat.easier is None else r.slope,
        )
        system = kkt_system(flat, at, found, held)
        right = -np.concatenate([system.unit * found.lower_gradient[n_x:], system.row_unit * system.value])
        solved = solve_symmetric(system.matrix, right)
        if solved is None:
            return None
        change = system.unit * solved[:n_y]
        multipliers = system.row_unit * solved[n_y:]
        prices, nu = multipliers[: len(held)], multipliers[len(held) :]
        mu = np.zeros_like(mu)
        mu[held[held < general]] = prices[held < general]
        size = float(np.max(np.abs(change) / sizes.y, initial=0.0))
        if size > 1e3 or (step > 3 and size > 1.01 * last):
            return None if step == 0 else (y, prices, cut)
        # Steps that shrink by a constant factor sum up to a known length: a follower flatter than a parabola.
        before, ratio = ratio, size / last if np.isfinite(last) and last > 0.0 else 0.0
        stretch = 1.0
        if step >= 3 and 0.3 < ratio < 0.97 and abs(ratio - before) < 0.02:
            stretch, ratio = 1.0 / (1.0 - ratio), 0.0
        wanted = y + stretch * change
        inside = np.clip(wanted, low, high)  # beyond its bounds g may have no value
        cut = cut or bool(np.max(np.abs(wanted - inside) / sizes.y, initial=0.0) > EXACT)
        moved = float(np.max(np.abs(inside - y) / sizes.y, initial=0.0))
        y, last = inside, size
        if size <= ROUNDED or moved <= 1e-15:  # there, or held by bounds that cut the same step again and again
            break
    return y, prices, cut
