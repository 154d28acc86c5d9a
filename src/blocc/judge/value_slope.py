"""The leader's side of an answer: is x stationary for ``phi(x) = f(x, y(x))``, the value that really happens?

On every piece of phi (:mod:`blocc.judge.pieces`) the hypergradient is held against the rows of the piece, of X and of
G: what multipliers of the right sign leave of it must vanish (B-stationarity). What is left, and the Hessian of the
Lagrangian on the tangent space of the rows with positive multipliers, give *ways*: directions along which phi should
fall, each with the slope and the distance at which a quadratic model has its minimum. Each eigenvector of the Hessian
is a way of its own, so that an expensive direction does not hide a cheap one. Whether a way matters is decided by
values of phi (:mod:`blocc.judge.verdict`), never by the sizes of terms, which may cancel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from blocc.flat_problem import FlatProblem
from blocc.judge.creases import Point, held_at, sides_at, ways_along
from blocc.judge.derivatives import LARGEST
from blocc.judge.fit import lengths_of, nonnegative_fit
from blocc.judge.lower_level import TOUCHED, Reply
from blocc.judge.pieces import Piece, Relaxed, piece_at, pieces_at, relaxed

#: Step of central differences of gradients, in sizes of x: the fourth root of the rounding of a number, for which
#: truncation (the square of the step) and rounding (over the step) stay below 1e-7 and 1e-11.
_STEP = float(np.finfo(float).eps) ** 0.25
_CORRECTIONS = 3  #: each squares what a step along the tangent has left the rows by
#: Dimensions of a tangent space up to which its whole Hessian is computed; beyond it, the smallest eigenvalue alone.
_WHOLE = 256


class Way(NamedTuple):
    """A direction in which a model of phi falls."""

    direction: np.ndarray  #: in the user's units; its largest entry is one size of x
    slope: float  #: by which the model falls for a unit of it, at first
    curvature: float  #: second derivative along it; NaN if unknown
    lengths: tuple[float, ...] = ()  #: where the model has its minimum; where a row of the piece ends within one
    hold: Callable[[np.ndarray], np.ndarray] | None = None  #: back onto the rows with positive multipliers

    @property
    def length(self) -> float:
        """How far the minimum of the model is away, at most one unit."""
        return min(1.0, self.slope / self.curvature) if self.curvature > 0.0 else 1.0

    def falls(self, tolerance: float, floor: float) -> bool:
        """Whether its minimum is farther away than the tolerance, and lower by more than values resolve."""
        return self.length > tolerance and 0.5 * self.slope * self.length > floor

    def matters(self, tolerance: float, floor: float) -> bool:
        """The same, or whether it bends down, or falls by more than values resolve beyond one size of x."""
        far = max(self.lengths, default=0.0)
        falls = self.falls(tolerance, floor) or (far > 1.0 and 0.5 * self.slope * far > floor)
        return (self.curvature < 0.0 and -0.5 * self.curvature > floor) or falls


class Slope(NamedTuple):
    """The derivative of phi, on the piece that is farthest from stationary."""

    gradient: np.ndarray  #: of phi
    sizes: np.ndarray  #: of x: such that y, too, moves by no more than its sizes
    constraint: np.ndarray  #: Jacobian of G(x, y(x))
    left: np.ndarray  #: what bounds, X, G and the rows of the piece cannot take of the gradient, in the user's units
    ways: tuple[Way, ...]  #: over all pieces
    row_units: np.ndarray  #: what each row of G changes by when x moves by its sizes
    across: tuple[np.ndarray, ...] = ()  #: points just beyond rows of the piece that end within the tolerance of x
    worth: float = 0.0  #: what f gains by violations of G
    moved: float = 0.0  #: how far the response lies from the y that was judged, in sizes of y
    error: float = 0.0  #: accuracy of the value of f, as far as that of y decides


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


def slope_at(flat: FlatProblem, r: Reply, tolerance: float, watch: Callable[[], None]) -> Slope | None:
    """The derivative of phi at (x, y) on every piece; None if some piece is not regular.

    ``watch`` is called before everything that takes time, and may raise.
    """
    pieces = pieces_at(flat, r)
    slopes: list[Slope]
    if not pieces.complete:
        first = next((piece for piece in pieces.found if not np.isin(piece.held, pieces.biactive).any()), None)
        program = None if first is None else relaxed(flat, r, first, pieces.biactive)
        if first is None or program is None:
            return None
        slope = _slope(flat, r, first, tolerance, watch)
        return slope._replace(**_strongly(flat, r, slope, program))
    slopes = [_slope(flat, r, piece, tolerance, watch) for piece in pieces.found]
    worst = max(slopes, key=lambda slope: float(np.max(np.abs(slope.left) * slope.sizes, initial=0.0)))
    return worst._replace(ways=tuple(way for slope in slopes for way in slope.ways))


def _slope(
    flat: FlatProblem,
    r: Reply,
    piece: Piece,
    tolerance: float,
    watch: Callable[[], None],
) -> Slope:
    """One piece: what is left of its gradient, and the ways down."""
    with np.errstate(divide="ignore"):
        moving = np.min(r.sizes.y[:, None] / np.abs(piece.sensitivity), axis=0, initial=np.inf)
    sizes = np.maximum(np.minimum(r.sizes.x, moving), 1e-6 * np.abs(r.x))
    rows = LeaderRows(piece.rows, piece.jacobian, piece.equality_jacobian)
    weighed = weigh(flat, r.x, piece.gradient, sizes, rows, always=piece.open)

    def lagrangian(x: np.ndarray) -> np.ndarray | None:
        watch()
        near = piece_at(flat, r, x, piece.y + piece.sensitivity @ (x - piece.x), piece.held, piece.biactive)
        return None if near is None else near.gradient + _turning(near, weighed)

    def hold(x: np.ndarray) -> np.ndarray:
        """Newton steps back onto the curved rows with a positive multiplier: second-order correction."""
        for _ in range(_CORRECTIONS):
            near = piece_at(flat, r, x, piece.y + piece.sensitivity @ (x - piece.x), piece.held, piece.biactive)
            if near is None:
                break
            step = np.linalg.lstsq(near.jacobian[firm] * sizes, -near.rows[firm], rcond=None)[0]
            x = x + sizes * step
        return x

    active = np.flatnonzero(weighed.active)
    start = len(weighed.multipliers) - len(active) - 2 * len(piece.equality_jacobian)
    prices = weighed.multipliers[start : start + len(active)]
    firm = active[prices > 0.0]
    leader = piece.jacobian[piece.leader]
    ways = ways_of(r.x, weighed, sizes, rows, lagrangian)
    bent = _along_creases(flat, r, piece, sizes, rows, tolerance, watch)
    priced = np.zeros(len(piece.rows))
    priced[active] = prices
    return Slope(
        gradient=piece.gradient,
        sizes=sizes,
        constraint=leader,
        left=weighed.left,
        ways=(*bent, *(way._replace(hold=hold) if len(firm) else way for way in ways)),
        worth=float(priced[piece.leader] @ np.maximum(piece.rows[piece.leader], 0.0)),
        moved=float(np.max(np.abs(piece.y - r.y) / r.sizes.y, initial=0.0)),
        row_units=np.abs(leader) @ sizes,
        across=_across(piece, sizes, tolerance),
        error=piece.error,
    )


def _along_creases(
    flat: FlatProblem,
    r: Reply,
    piece: Piece,
    sizes: np.ndarray,
    rows: LeaderRows,
    tolerance: float,
    watch: Callable[[], None],
) -> tuple[Way, ...]:
    """Ways along kinks of the leader's functions that x lies on, by less than the tolerance."""
    side, slopes = sides_at(flat, piece.x, piece.y)
    n_x = flat.n_x
    total = slopes[:, :n_x] + slopes[:, n_x:] @ piece.sensitivity
    reach = np.abs(total) @ sizes
    touched = np.flatnonzero((np.abs(side) <= tolerance * reach) & (reach > 0.0))
    if not len(touched):
        return ()
    kept = LeaderRows(rows.value, rows.jacobian, np.concatenate([rows.equality_jacobian, total[touched]]))
    weighed = weigh(flat, r.x, piece.gradient, sizes, kept, always=piece.open)
    count = int(weighed.active.sum()) + 2 * len(kept.equality_jacobian)
    bounds = len(weighed.multipliers) - count
    firm = np.flatnonzero(weighed.active)[weighed.multipliers[bounds : bounds + int(weighed.active.sum())] > 0.0]

    def at(x: np.ndarray) -> Point | None:
        watch()
        near = piece_at(flat, r, x, piece.y + piece.sensitivity @ (x - piece.x), piece.held, piece.biactive)
        if near is None:
            return None
        side, slopes = sides_at(flat, x, near.y)
        jacobian = (slopes[:, :n_x] + slopes[:, n_x:] @ near.sensitivity)[touched]
        values = np.concatenate([near.rows[firm], np.zeros(len(near.equality_jacobian)), side[touched]])
        return Point(near.gradient, values, np.concatenate([near.jacobian[firm], near.equality_jacobian, jacobian]))

    fixed = (weighed.normals * sizes)[:bounds][weighed.multipliers[:bounds] > 0.0]
    always = np.arange(len(firm) + len(piece.equality_jacobian) + len(touched)) < len(firm) + len(
        piece.equality_jacobian
    )
    base = at(piece.x)
    return tuple(
        _way(way.direction, way.slope, way.curvature, sizes, rows)._replace(
            hold=held_at(at, way.keeping, base.rows, sizes)
        )
        for way in ways_along(at, piece.x, sizes, always, fixed)
        if base is not None
    )


def _strongly(flat: FlatProblem, r: Reply, slope: Slope, program: Relaxed) -> dict[str, Any]:
    """What multipliers of the relaxed program leave of its gradient, and the way down that this is."""
    sizes = np.concatenate([slope.sizes, program.sizes])
    rows = LeaderRows(program.rows, program.jacobian, program.equality_jacobian)
    weighed = weigh(flat, r.x, program.gradient, sizes, rows)
    n_x = flat.n_x
    left = weighed.left * sizes
    fall = float(np.linalg.norm(left))
    if fall == 0.0:
        return {"left": weighed.left[:n_x], "ways": ()}
    # A fall in the multipliers alone happens only as x moves: the way is then where the rows give way together.
    moving = -left[:n_x] if np.any(left[:n_x]) else -(program.jacobian[:, :n_x].sum(axis=0)) * slope.sizes
    if not np.any(moving):
        return {"left": weighed.left[:n_x], "ways": ()}
    own = LeaderRows(program.rows[:0], program.jacobian[:0, :n_x], program.equality_jacobian[:0, :n_x])
    return {"left": weighed.left[:n_x], "ways": (*slope.ways, _way(moving, fall, np.nan, slope.sizes, own))}


def _across(piece: Piece, sizes: np.ndarray, tolerance: float) -> tuple[np.ndarray, ...]:
    """Points twice as far away as the rows of the follower that end within the tolerance."""
    found = []
    for row in range(piece.leader.stop, len(piece.rows)):
        normal = piece.jacobian[row]
        reach = float(np.abs(normal) @ sizes)
        if not piece.open[row] and 0.0 <= -piece.rows[row] <= tolerance * reach and reach > 0.0:
            found.append(piece.x - 2.0 * piece.rows[row] / reach * sizes * np.sign(normal))
    return tuple(found)


def _turning(near: Piece, weighed: Weighed) -> np.ndarray:
    """The multipliers times the normals that change with x; those of bounds do not."""
    moving = np.concatenate([near.jacobian[weighed.active], near.equality_jacobian, -near.equality_jacobian])
    multipliers = weighed.multipliers[len(weighed.multipliers) - len(moving) :]
    return np.asarray(moving.T @ multipliers)


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
        return Weighed(left, others, np.zeros(0), np.zeros(0), active)
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
    return Weighed(gradient + normals.T @ multipliers, normals, multipliers, slack, active)


def ways_of(
    x: np.ndarray,
    weighed: Weighed,
    sizes: np.ndarray,
    rows: LeaderRows,
    lagrangian: Callable[[np.ndarray], np.ndarray | None] | None,
) -> tuple[Way, ...]:
    """Directions in which a quadratic model falls on the tangent space of the rows with positive multipliers.

    ``lagrangian`` is the gradient of f(x, y(x)) plus multipliers times normals, as a function of x; None if other
    points are too expensive.
    """
    if lagrangian is None:
        fall = float(np.linalg.norm(sizes * weighed.left))
        return (_way(-sizes * weighed.left / fall, fall, np.nan, sizes, rows),) if fall else ()
    basis = _tangent_space(weighed, sizes)
    dimension = basis.shape[1]
    snap = _snap(weighed, sizes, rows)
    if dimension == 0:
        return snap
    reduced = basis.T @ (sizes * weighed.left)

    def product(direction: np.ndarray) -> np.ndarray:
        step = sizes * (basis @ direction)
        length = _STEP / float(np.max(np.abs(step) / sizes))
        ends = [lagrangian(x + sign * length * step) for sign in (1.0, -1.0)]
        if ends[0] is None or ends[1] is None:
            return np.full(dimension, np.nan)
        return np.asarray(basis.T @ (sizes * (ends[0] - ends[1])) / (2.0 * length))

    if dimension <= _WHOLE:
        hessian = np.array([product(row) for row in np.eye(dimension)])
        if not np.isfinite(hessian).all():
            return (*snap, *_down(reduced, basis, sizes, rows))
        values, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
        found = [
            _way(basis @ vector, -float(vector @ reduced), value, sizes, rows)
            for value, vector in zip(values, vectors.T, strict=True)
        ]
        curved = np.maximum(np.abs(values), np.finfo(float).eps * float(np.max(np.abs(values))) + 1e-300)
        newton = -(vectors * np.clip(vectors.T @ reduced / curved, -1.0, 1.0)) @ np.ones(dimension)
        if np.any(newton):
            whole = _way(basis @ newton, -float(newton @ reduced), float(newton @ hessian @ newton), sizes, rows)
            length = float(np.max(np.abs(basis @ newton)))
            found.insert(0, whole._replace(lengths=tuple(one for one in (length, *whole.lengths) if one <= 1.0)))
        return (*snap, *found, *_down(reduced, basis, sizes, rows, lambda direction: hessian @ direction))
    smallest = _smallest(product, dimension)
    bent = () if smallest is None else (_way(basis @ smallest[1], 0.0, smallest[0], sizes, rows),)
    return (*snap, *bent, *_down(reduced, basis, sizes, rows, product))


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
    way = _way(step, gain, np.nan, sizes, rows)
    return (way._replace(slope=gain / length, curvature=gain / length**2, lengths=(length,)),)


def _tangent_space(weighed: Weighed, sizes: np.ndarray) -> np.ndarray:
    """An orthonormal basis, in sizes of x, of the directions that keep every row with a positive multiplier."""
    held = weighed.normals[weighed.multipliers > 0.0] * sizes
    if not len(held):
        return np.eye(sizes.size)
    lengths = lengths_of(held)
    held = held[lengths > 0.0] / lengths[lengths > 0.0, None]
    _, values, right = np.linalg.svd(held)
    rank = int((values > 1e-9 * np.max(values, initial=0.0)).sum())
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
    return (_way(basis @ unit, fall, bend, sizes, rows),)


def _way(direction: np.ndarray, slope: float, curvature: float, sizes: np.ndarray, rows: LeaderRows) -> Way:
    """A way along ``direction`` (in sizes of x), turned so that it falls, in units of its largest entry."""
    largest = float(np.max(np.abs(direction)))
    turned = direction / largest * (1.0 if slope >= 0.0 else -1.0)
    along = rows.jacobian @ (sizes * turned)
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = np.where((along > 0.0) & (rows.value < 0.0), -rows.value / along, np.inf)
    nearest = float(np.min(ends, initial=np.inf))
    fall, bend = abs(slope) / largest, curvature / largest**2
    lengths = [fall / bend] if bend > 0.0 else []
    lengths = [length for length in lengths if np.isfinite(length) and length > 0.0]
    return Way(sizes * turned, fall, bend, (*lengths, *([nearest] if 0.0 < nearest <= 1.0 else [])))


def _smallest(product: Callable[[np.ndarray], np.ndarray], dimension: int) -> tuple[float, np.ndarray] | None:
    """The smallest eigenvalue of a Hessian with its vector, by Lanczos iterations on its products."""
    # Importing this takes a fifth of a second, which most runs need not spend.
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

    operator = LinearOperator((dimension, dimension), matvec=lambda v: product(v.ravel()), dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(dimension)
    try:
        values, vectors = eigsh(operator, k=1, which="SA", tol=1e-3, maxiter=3, ncv=min(dimension, 40), v0=start)
    except (ArpackError, ValueError):
        return None
    return float(values[0]), vectors[:, 0]
