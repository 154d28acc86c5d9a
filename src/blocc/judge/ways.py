"""Ways: directions in which a model of phi falls, from its gradient, the rows at x, and the Hessian of the Lagrangian.

A gradient is held against the normals of X and of active rows; what multipliers of the right sign leave of it, and the
Hessian on the tangent space of the rows with positive multipliers, say where phi should fall, by how much, and how far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from blocc.flat_problem import FlatProblem
from blocc.judge.lower_level import TOUCHED
from blocc.local.copositivity import Curved, curved_down
from blocc.local.derivatives import LARGEST
from blocc.local.fit import lengths_of, nonnegative_fit

#: Step of central differences of gradients, in sizes of x: the fourth root of the rounding of a number, for which
#: truncation (the square of the step) and rounding (over the step) stay below 1e-7 and 1e-11.
STEP = float(np.finfo(float).eps) ** 0.25
#: Dimensions of a tangent space up to which its whole Hessian is computed; beyond it, the smallest eigenvalue alone.
WHOLE = 256
KRYLOV = 40  #: products of a Hessian that its smallest eigenvalue takes by Lanczos iterations
_NULL = STEP  #: share of the largest curvature below which second derivatives decide nothing: the accuracy of a secant
_RANK = 1e-9  #: singular values below this share of the largest are zero
SECANT = 0.1  #: distance, in sizes of x, of the secant that tells what curvature there is where the Hessian is zero
_BENT = 6  #: steps back to where phi is stationary across a null space; each multiplies the distance by the slope's


#: A gradient as a function of x; None where there is none.
Gradient = Callable[[np.ndarray], np.ndarray | None]


class Way(NamedTuple):
    """A direction in which a model of phi falls."""

    direction: np.ndarray  #: in the user's units; its largest entry is one size of x
    slope: float  #: by which the model falls for a unit of it, at first
    curvature: float  #: second derivative along it; NaN if unknown
    lengths: tuple[float, ...] = ()  #: where the model has its minimum; where a row of the piece ends within one
    hold: Callable[[np.ndarray], np.ndarray] | None = None  #: back onto the rows with positive multipliers
    null: bool = False  #: whether the Hessian is singular along it, and ``hold`` makes phi stationary across it

    @property
    def length(self) -> float:
        """How far the minimum of the model is away, at most one unit."""
        return min(1.0, self.slope / self.curvature) if self.curvature > 0.0 else 1.0

    def within(self, units: np.ndarray) -> Way:
        """The same way, as far as no variable moves by more than its unit."""
        moved = self.direction != 0.0
        return self._scaled(float(np.min(units[moved] / np.abs(self.direction[moved]), initial=1.0)))

    def lengthened(self, floor: float, widest: np.ndarray) -> Way:
        """The same way, as far as values must go to resolve its slope, if X is that wide: units may be small."""
        if self.curvature < 0.0 or not 0.0 < self.slope <= 2.0 * floor:
            return self
        moved = self.direction != 0.0
        share = 4.0 * floor / self.slope
        if share * float(np.max(np.abs(self.direction[moved]) / widest[moved], initial=0.0)) > 1.0:
            return self
        return self._scaled(share)._replace(lengths=(1.0,))

    def _scaled(self, share: float) -> Way:
        return self._replace(
            direction=share * self.direction,
            slope=share * self.slope,
            curvature=share**2 * self.curvature,
            lengths=tuple(length / share for length in self.lengths),
        )

    def falls(self, tolerance: float, floor: float) -> bool:
        """Whether its minimum is farther away than the tolerance, and lower by more than values resolve."""
        return self.length > tolerance and 0.5 * self.slope * self.length > floor

    def matters(self, tolerance: float, floor: float) -> bool:
        """The same, or whether it bends down, or falls by more than values resolve beyond one size of x."""
        far = max(self.lengths, default=0.0)
        falls = self.falls(tolerance, floor) or (far > 1.0 and 0.5 * self.slope * far > floor)
        return (self.curvature < 0.0 and -0.5 * self.curvature > floor) or falls


class Ways(NamedTuple):
    """All of them."""

    found: tuple[Way, ...]
    decided: bool = True  #: whether x is a minimum of the quadratic model if there is none


class LeaderRows(NamedTuple):
    """The leader's constraints at one x beyond the bounds of X: rows of X and of G(x, y(x)); derivatives in x."""

    value: np.ndarray  #: of the inequalities
    jacobian: np.ndarray
    equality_jacobian: np.ndarray


class Weighed(NamedTuple):
    """A gradient against the constraints at one x."""

    left: np.ndarray
    normals: np.ndarray  #: of the active inequalities (bounds of X first), then equalities with either sign
    multipliers: np.ndarray
    slack: np.ndarray  #: of the normals' rows, at most the tolerance of a touch
    active: np.ndarray  #: which of the rows given are among them
    firm: np.ndarray  #: which of the normals every critical direction keeps: multipliers that are positive, equalities


def weigh(
    flat: FlatProblem,
    x: np.ndarray,
    gradient: np.ndarray,
    sizes: np.ndarray,
    rows: LeaderRows,
    always: np.ndarray | None = None,
) -> Weighed:
    """The gradient of phi, and what the normals of X and of active rows leave of it, each with a multiplier >= 0."""
    low, high = flat.x_set.bounds_flat()
    own = sizes[: flat.n_x]  # variables beyond those of x have no bounds
    at_low, at_high = x - low <= TOUCHED * own, high - x <= TOUCHED * own
    active = rows.value >= -TOUCHED * np.abs(rows.jacobian) @ sizes
    if always is not None:
        active |= always
    others = np.concatenate([rows.jacobian[active], rows.equality_jacobian, -rows.equality_jacobian])
    if not len(others) and flat.n_x > LARGEST:
        left = np.where((at_low & (gradient > 0.0)) | (at_high & (gradient < 0.0)), 0.0, gradient)
        return Weighed(left, others, np.zeros(0), np.zeros(0), active, np.zeros(0, bool))
    identity = np.eye(flat.n_x, len(sizes))
    normals = np.concatenate([-identity[at_low], identity[at_high], others])
    if len(others):
        lengths = lengths_of(normals * sizes)
        columns = normals * sizes / np.where(lengths > 0.0, lengths, 1.0)[:, None]
        multipliers = nonnegative_fit(columns.T, -sizes * gradient) / np.where(lengths > 0.0, lengths, 1.0)
    else:  # bounds alone take what points out of X, entry by entry
        multipliers = np.maximum(-normals @ gradient, 0.0)
    count = 2 * len(rows.equality_jacobian)
    slack = np.concatenate([(x - low)[at_low], (high - x)[at_high], -rows.value[active], np.zeros(count)])
    firm = (multipliers > 0.0) | (np.arange(len(multipliers)) >= len(multipliers) - count)
    return Weighed(gradient + normals.T @ multipliers, normals, multipliers, slack, active, firm)


def with_firm_rows(
    weighed: Weighed, x: np.ndarray, sizes: np.ndarray, rows: LeaderRows, lagrangian: Gradient, tolerance: float
) -> Weighed:
    """The same without multipliers that x within the tolerance may feign.

    Where x moves by a share of its sizes the gradient changes by that share of the curvature across a row: a multiplier
    below that may as well be zero, and what leaving the row costs is for second derivatives to say.
    """
    count = len(weighed.multipliers) - 2 * len(rows.equality_jacobian)
    normals = weighed.normals[:count] * sizes
    lengths = lengths_of(normals) if count else np.zeros(0)
    prices, firm = weighed.multipliers[:count] * lengths, weighed.firm.copy()
    here = lagrangian(x) if (prices > 0.0).any() else None
    if here is None:
        return weighed

    def bend(across: np.ndarray) -> float:
        there = lagrangian(x + STEP * sizes * across)
        return 0.0 if there is None else float(np.linalg.norm(sizes * (there - here))) / STEP

    across = np.random.default_rng(0).standard_normal(len(sizes))
    most = tolerance * bend(across / float(np.max(np.abs(across))))
    for row in np.flatnonzero((prices > 0.0) & (prices <= most)):
        firm[row] = prices[row] > tolerance * bend(normals[row] / lengths[row])
    return weighed._replace(firm=firm)


def row_multipliers(weighed: Weighed, rows: LeaderRows) -> np.ndarray:
    """The multiplier of each of the rows that were weighed; zero of those that are not active, or not firm."""
    found, count = np.zeros(len(rows.value)), int(weighed.active.sum())
    start = len(weighed.multipliers) - count - 2 * len(rows.equality_jacobian)
    found[weighed.active] = np.where(weighed.firm, weighed.multipliers, 0.0)[start : start + count]
    return found


def ways_of(x: np.ndarray, weighed: Weighed, sizes: np.ndarray, rows: LeaderRows, lagrangian: Gradient | None) -> Ways:
    """Directions in which a quadratic model falls: on the tangent space of the firm rows, and on the critical cone.

    ``lagrangian`` is the gradient of f(x, y(x)) plus multipliers times normals, as a function of x; None if other
    points are too expensive.
    """
    if lagrangian is None:
        fall = float(np.linalg.norm(sizes * weighed.left))
        return Ways((way_along(-sizes * weighed.left / fall, fall, np.nan, sizes, rows),) if fall else ())
    basis = _tangent_space(weighed, sizes)
    dimension = basis.shape[1]
    snap = _snap(weighed, sizes, rows)
    if dimension == 0:
        return Ways(snap)
    reduced, free = basis.T @ (sizes * weighed.left), weighed.normals[~weighed.firm] * sizes @ basis

    def product(direction: np.ndarray) -> np.ndarray:
        return _product(lagrangian, x, sizes, basis, direction)

    if dimension <= WHOLE:
        hessian = np.array([product(row) for row in np.eye(dimension)])
        if not np.isfinite(hessian).all():  # without loose rows there is no cone to decide: values of phi speak
            return Ways((*snap, *_down(reduced, basis, sizes, rows)), decided=not len(free))
        hessian = 0.5 * (hessian + hessian.T)
        values, vectors = np.linalg.eigh(hessian)
        cone = curved_down(hessian, free, _NULL)
        found = [
            way_along(basis @ vector, -float(vector @ reduced), value, sizes, rows)
            for value, vector in zip(values, vectors.T, strict=True)
            if not (len(free) and value < 0.0)
        ]
        if cone.down is not None and len(free):
            bent = float(cone.down @ hessian @ cone.down)
            found.append(way_along(basis @ cone.down, -float(cone.down @ reduced), bent, sizes, rows, turned=False))
        null = _null_ways(x, basis, values, vectors, sizes, rows, lagrangian)
        curved = np.maximum(np.abs(values), np.finfo(float).eps * float(np.max(np.abs(values))) + 1e-300)
        newton = -(vectors * np.clip(vectors.T @ reduced / curved, -1.0, 1.0)) @ np.ones(dimension)
        if np.any(newton):
            whole = way_along(basis @ newton, -float(newton @ reduced), float(newton @ hessian @ newton), sizes, rows)
            length = float(np.max(np.abs(basis @ newton)))
            found.insert(0, whole._replace(lengths=tuple(one for one in (length, *whole.lengths) if one <= 1.0)))
        down = _down(reduced, basis, sizes, rows, lambda direction: hessian @ direction)
        return Ways((*snap, *found, *down, *null), cone.decided)
    smallest = smallest_curvature(product, dimension)
    least = () if smallest is None else (way_along(basis @ smallest[1], 0.0, smallest[0], sizes, rows),)
    decided = smallest is not None and (smallest[0] >= 0.0 or not len(free))
    return Ways((*snap, *least, *_down(reduced, basis, sizes, rows, product)), decided)


def critical_cone(
    weighed: Weighed, sizes: np.ndarray, lagrangian: Gradient, x: np.ndarray, pairs: Sequence[tuple[int, int]]
) -> Curved:
    """Where phi bends down on the critical cone, in sizes; of each of the ``pairs`` of rows at least one stays zero."""
    basis = _tangent_space(weighed, sizes)
    if not basis.shape[1]:
        return Curved()
    if basis.shape[1] > WHOLE:
        return Curved(decided=False)
    hessian = np.array([_product(lagrangian, x, sizes, basis, row) for row in np.eye(basis.shape[1])])
    if not np.isfinite(hessian).all():
        return Curved(decided=False)
    loose = np.flatnonzero(~weighed.firm)
    # Where each of the rows that were weighed is among those that are loose.
    first = len(weighed.firm) - int(weighed.active.sum())
    place = np.full(len(weighed.active), -1)
    place[weighed.active] = first + np.arange(int(weighed.active.sum()))
    among = {row: index for index, row in enumerate(loose)}
    both = [(among.get(place[one]), among.get(place[other])) for one, other in pairs]
    exclusive = [(one, other) for one, other in both if one is not None and other is not None]
    found = curved_down(0.5 * (hessian + hessian.T), weighed.normals[loose] * sizes @ basis, _NULL, exclusive)
    return found if found.down is None else found._replace(down=basis @ found.down)


def _product(
    lagrangian: Gradient, x: np.ndarray, sizes: np.ndarray, basis: np.ndarray, direction: np.ndarray
) -> np.ndarray:
    """The Hessian of the Lagrangian times a direction of the basis, in it, by a central difference of gradients."""
    step = sizes * (basis @ direction)
    length = STEP / float(np.max(np.abs(step) / sizes))
    ends = [lagrangian(x + sign * length * step) for sign in (1.0, -1.0)]
    if ends[0] is None or ends[1] is None:
        return np.full(basis.shape[1], np.nan)
    return np.asarray(basis.T @ (sizes * (ends[0] - ends[1])) / (2.0 * length))


def _null_ways(
    x: np.ndarray,
    basis: np.ndarray,
    values: np.ndarray,
    vectors: np.ndarray,
    sizes: np.ndarray,
    rows: LeaderRows,
    lagrangian: Callable[[np.ndarray], np.ndarray | None],
) -> tuple[Way, ...]:
    """Ways along which the Hessian is singular, bent so that phi is stationary across all of them.

    Where phi curves up across the null space, x is a minimum if and only if it is one of the reduced function, the
    least of phi over the complement (the splitting lemma: Poston and Stewart, Catastrophe Theory, 1978, chapter 4).
    """
    across = basis @ np.random.default_rng(0).standard_normal(len(values))
    across *= SECANT / float(np.max(np.abs(across)))
    here, ends = lagrangian(x), [lagrangian(x + sign * sizes * across) for sign in (1.0, -1.0)]
    if here is None:
        return ()
    secants = [basis.T @ (sizes * (end - here)) for end in ends if end is not None]
    largest = (
        max(float(lengths_of(one[None])[0]) / float(np.linalg.norm(across)) for one in secants) if secants else 0.0
    )
    largest = max(largest, float(np.max(np.abs(values))))
    null, firm = np.abs(values) <= _NULL * largest, values > _NULL * largest
    normal = basis @ vectors[:, firm]

    def hold(point: np.ndarray) -> np.ndarray:
        for _ in range(_BENT):
            there = lagrangian(point)
            if there is None:
                break
            point = point - sizes * (normal @ ((normal.T @ (sizes * (there - here))) / values[firm]))
        return point

    return tuple(
        Way(sizes * turned, 0.0, 0.0, hold=hold if firm.any() else None, null=True)
        for turned in ((basis @ vector) / float(np.max(np.abs(basis @ vector))) for vector in vectors[:, null].T)
    )


def _snap(weighed: Weighed, sizes: np.ndarray, rows: LeaderRows) -> tuple[Way, ...]:
    """The way onto all rows with a positive multiplier that x touches without lying on them, as far as it goes."""
    held = weighed.multipliers > 0.0
    gain = float(weighed.multipliers[held] @ weighed.slack[held])
    if not gain > 0.0:
        return ()
    step = np.linalg.lstsq(weighed.normals[held] * sizes, weighed.slack[held], rcond=None)[0]
    length = float(np.max(np.abs(step)))
    if not 0.0 < length <= 1.0:
        return ()
    way = way_along(step, gain, np.nan, sizes, rows)
    return (way._replace(slope=gain / length, curvature=gain / length**2, lengths=(length,)),)


def _tangent_space(weighed: Weighed, sizes: np.ndarray) -> np.ndarray:
    """An orthonormal basis, in sizes of x, of the directions that keep every firm row."""
    held = weighed.normals[weighed.firm] * sizes
    if not len(held):
        return np.eye(sizes.size)
    lengths = lengths_of(held)
    held = held[lengths > 0.0] / lengths[lengths > 0.0, None]
    _, values, right = np.linalg.svd(held)
    rank = int((values > _RANK * np.max(values, initial=0.0)).sum())
    return np.asarray(right[rank:].T)


def _down(
    reduced: np.ndarray,
    basis: np.ndarray,
    sizes: np.ndarray,
    rows: LeaderRows,
    product: Callable[[np.ndarray], np.ndarray] | None = None,
) -> tuple[Way, ...]:
    """Steepest descent in the tangent space, and each coordinate of the gradient by itself."""
    if not np.any(reduced):
        return ()
    fall = float(lengths_of(reduced[None])[0])  # squares of its entries may be too large for numbers
    unit = -reduced / fall
    bend = np.nan if product is None else float(unit @ product(unit))
    return (way_along(basis @ unit, fall, bend, sizes, rows),)


def way_along(
    direction: np.ndarray, slope: float, curvature: float, sizes: np.ndarray, rows: LeaderRows, turned: bool = True
) -> Way:
    """A way along ``direction`` (in sizes of x), ``turned`` so that it falls, in units of its largest entry."""
    largest = float(np.max(np.abs(direction)))
    ahead = direction / largest * (-1.0 if turned and slope < 0.0 else 1.0)
    along = rows.jacobian @ (sizes * ahead)
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = np.where((along > 0.0) & (rows.value < 0.0), -rows.value / along, np.inf)
    nearest = float(np.min(ends, initial=np.inf))
    fall, bend = (abs(slope) if turned else max(slope, 0.0)) / largest, curvature / largest**2
    lengths = [fall / bend] if bend > 0.0 else []
    lengths = [length for length in lengths if np.isfinite(length) and length > 0.0]
    return Way(sizes * ahead, fall, bend, (*lengths, *([nearest] if 0.0 < nearest <= 1.0 else [])))


def smallest_curvature(product: Callable[[np.ndarray], np.ndarray], dimension: int) -> tuple[float, np.ndarray] | None:
    """The smallest eigenvalue of a Hessian with its vector, by Lanczos iterations on its products."""
    # Importing this takes a fifth of a second, which most runs need not spend.
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

    operator = LinearOperator((dimension, dimension), matvec=lambda v: product(v.ravel()), dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(dimension)
    try:
        values, vectors = eigsh(operator, k=1, which="SA", tol=1e-3, maxiter=3, ncv=min(dimension, KRYLOV), v0=start)
    except (ArpackError, ValueError):
        return None
    return float(values[0]), vectors[:, 0]
