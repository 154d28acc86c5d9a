"""The leader's side of an answer: is x stationary for ``phi(x) = f(x, y(x))``, the value that really happens?

On every piece of phi (:mod:`blocc.judge.pieces`) the hypergradient is held against the rows of the piece, of X and of
G: what multipliers of the right sign leave of it must vanish (B-stationarity). What is left, and the Hessian of the
Lagrangian on the tangent space of the rows with positive multipliers, give *ways*: directions along which phi should
fall, each with the slope and the distance at which a quadratic model has its minimum. Each eigenvector of the Hessian
is a way of its own, so that an expensive direction does not hide a cheap one. Whether a way matters is decided by
values of phi (:mod:`blocc.judge.examine`), never by the sizes of terms, which may cancel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from blocc.flat_problem import FlatProblem
from blocc.judge.creases import along_creases
from blocc.judge.lower_level import LowerKKT
from blocc.judge.pieces import Piece, Relaxed, piece_at, pieces_at, relaxed
from blocc.judge.ways import LeaderRows, Way, Weighed, row_multipliers, way_along, ways_of, weigh
from blocc.local.scales import reach, resolved

_CORNER = 1e-4  #: share of a size below which a natural one is asked where it comes from: the step of secants
_CORRECTIONS = 3  #: each squares what a step along the tangent has left the rows by


class Hypergradient(NamedTuple):
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
    whole: bool = True  #: whether these are all pieces: only then is phi stationary where no way leads down
    one_piece: bool = False  #: whether curvature is known on one of many pieces alone


def slope_at(flat: FlatProblem, r: LowerKKT, tolerance: float, watch: Callable[[], None]) -> Hypergradient | None:
    """The derivative of phi at (x, y) on every regular piece; None if there is none.

    Where the response jumps (a linear follower at a tie) some pieces are singular. On the others phi is smooth up to
    the surface on which it jumps, and along it, however high the jump.

    ``watch`` is called before everything that takes time, and may raise.
    """
    pieces = pieces_at(flat, r)
    slopes: list[Hypergradient]
    if not pieces.complete:
        first = next((piece for piece in pieces.found if not np.isin(piece.held, pieces.biactive).any()), None)
        program = None if first is None else relaxed(flat, r, first, pieces.biactive)
        if first is not None and program is not None:
            slope = _slope(flat, r, first, tolerance, watch)
            return slope._replace(**_strongly(flat, r, slope, program), one_piece=True)
    slopes = [_slope(flat, r, piece, tolerance, watch) for piece in pieces.found]
    if not slopes:
        return None
    worst = max(slopes, key=lambda slope: float(np.max(np.abs(slope.left) * slope.sizes, initial=0.0)))
    beyond = (
        () if pieces.complete else tuple(point for piece in pieces.found for point in _beyond(piece, worst, tolerance))
    )
    return worst._replace(
        ways=tuple(way for slope in slopes for way in slope.ways),
        across=(*worst.across, *beyond),
        whole=pieces.complete,
    )


def _slope(
    flat: FlatProblem,
    r: LowerKKT,
    piece: Piece,
    tolerance: float,
    watch: Callable[[], None],
) -> Hypergradient:
    """One piece: what is left of its gradient, and the ways down."""
    rows = LeaderRows(piece.rows, piece.jacobian, piece.equality_jacobian)

    def lagrangian(x: np.ndarray) -> np.ndarray | None:
        watch()
        near = piece_at(flat, r, x, piece.y + piece.sensitivity @ (x - piece.x), piece.held, piece.biactive)
        return None if near is None else near.gradient + _turning(near, weighed)

    # Geometry and curvature are those of the widest units over which phi is what its derivatives say: an expensive
    # term would make some units small, and every way along it bent.
    wide = reach(*flat.x_set.bounds_flat(), r.x)
    weighed = weigh(flat, r.x, piece.gradient, wide, rows, always=piece.open)
    # A rounded corner is as narrow as it was made: the functions without it say what is small.
    sizes = resolved(lagrangian, r.x, wide) if flat.easier is None else wide
    weighed = weigh(flat, r.x, piece.gradient, sizes, rows, always=piece.open)
    with np.errstate(divide="ignore"):
        moving = np.min(r.sizes.y[:, None] / np.abs(piece.sensitivity), axis=0, initial=np.inf)
    natural = np.maximum(np.minimum(r.sizes.x, moving), 1e-6 * np.abs(r.x))
    units = np.where(_cornered(lagrangian, r.x, natural, sizes), sizes, np.minimum(natural, sizes))

    def hold(x: np.ndarray) -> np.ndarray:
        """Newton steps back onto the curved rows with a positive multiplier: second-order correction."""
        for _ in range(_CORRECTIONS):
            near = piece_at(flat, r, x, piece.y + piece.sensitivity @ (x - piece.x), piece.held, piece.biactive)
            if near is None:
                break
            step = np.linalg.lstsq(near.jacobian[firm] * sizes, -near.rows[firm], rcond=None)[0]
            x = x + sizes * step
        return x

    def held(way: Way) -> Callable[[np.ndarray], np.ndarray]:
        across = way.hold
        return hold if across is None else lambda x: hold(across(x))

    def narrowed(way: Way) -> Way:
        """No farther than phi is what its derivatives say along the way itself, which may cross many coordinates."""
        if not way.curvature < 0.0:
            return way

        def slope(at: np.ndarray) -> np.ndarray | None:
            found = lagrangian(r.x + at[0] * way.direction)
            return None if found is None else np.array([found @ way.direction])

        share = resolved(slope, np.zeros(1), np.ones(1))[0]
        return way.within(share * np.abs(way.direction))

    priced = row_multipliers(weighed, rows)
    firm = np.flatnonzero(priced > 0.0)
    leader = piece.jacobian[piece.leader]
    ways = ways_of(r.x, weighed, sizes, rows, lagrangian)
    bent = along_creases(flat, r, piece, sizes, rows, tolerance, watch)
    return Hypergradient(
        gradient=piece.gradient,
        sizes=units,
        constraint=leader,
        left=weighed.left,
        ways=tuple(
            narrowed(way.within(units))
            for way in (*bent, *(way._replace(hold=held(way)) if len(firm) else way for way in ways))
        ),
        worth=float(priced[piece.leader] @ np.maximum(piece.rows[piece.leader], 0.0)),
        moved=float(np.max(np.abs(piece.y - r.y) / r.sizes.y, initial=0.0)),
        row_units=np.abs(leader) @ natural,
        across=_across(piece, units, tolerance),
        error=piece.error,
    )


def _cornered(
    gradient: Callable[[np.ndarray], np.ndarray | None], x: np.ndarray, natural: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    """Where a natural size comes from the curvature at a corner, which is infinite and tells nothing about x.

    There the curvature over a hundredth of the size is no tenth of what it is over a hundredth of that.
    """
    found, here = np.zeros(len(x), bool), gradient(x)
    if here is None:
        return found
    for index in np.flatnonzero(natural < _CORNER * sizes):
        bends = []
        for share in (1e-2, 1e-4):
            point = x.copy()
            point[index] += share * natural[index]
            there = gradient(point)
            bends.append(np.nan if there is None else abs(float(there[index] - here[index])) / share)
        found[index] = bends[0] < 0.1 * bends[1]
    return found


def _strongly(flat: FlatProblem, r: LowerKKT, slope: Hypergradient, program: Relaxed) -> dict[str, Any]:
    """What multipliers of the relaxed program leave of its gradient, and the way down that this is."""
    sizes = np.concatenate([slope.sizes, program.sizes])
    rows = LeaderRows(program.rows, program.jacobian, program.equality_jacobian)
    weighed = weigh(flat, r.x, program.gradient, sizes, rows)
    n_x = flat.n_x
    left = weighed.left * sizes
    fall = float(np.linalg.norm(left))
    if fall == 0.0:
        return {"left": weighed.left[:n_x], "ways": tuple(way for way in slope.ways if way.curvature < 0.0)}
    # A fall in the multipliers alone happens only as x moves: the way is then where the rows give way together.
    moving = -left[:n_x] if np.any(left[:n_x]) else -(program.jacobian[:, :n_x].sum(axis=0)) * slope.sizes
    if not np.any(moving):
        return {"left": weighed.left[:n_x], "ways": ()}
    own = LeaderRows(program.rows[:0], program.jacobian[:0, :n_x], program.equality_jacobian[:0, :n_x])
    return {"left": weighed.left[:n_x], "ways": (*slope.ways, way_along(moving, fall, np.nan, slope.sizes, own))}


def _across(piece: Piece, sizes: np.ndarray, tolerance: float) -> tuple[np.ndarray, ...]:
    """Points twice as far away as the rows of the follower that end within the tolerance."""
    found = []
    for row in range(piece.leader.stop, len(piece.rows)):
        normal = piece.jacobian[row]
        reach = float(np.abs(normal) @ sizes)
        if not piece.open[row] and 0.0 <= -piece.rows[row] <= tolerance * reach and reach > 0.0:
            found.append(piece.x - 2.0 * piece.rows[row] / reach * sizes * np.sign(normal))
    return tuple(found)


def _beyond(piece: Piece, slope: Hypergradient, tolerance: float) -> list[np.ndarray]:
    """Points just beyond rows of the follower on which x lies, where pieces of another response may begin."""
    steps = (np.sign(piece.jacobian[row]) for row in np.flatnonzero(piece.open))
    return [piece.x + tolerance * slope.sizes * step for step in steps if np.any(step)]


def _turning(near: Piece, weighed: Weighed) -> np.ndarray:
    """The multipliers times the normals that change with x; those of bounds do not."""
    moving = np.concatenate([near.jacobian[weighed.active], near.equality_jacobian, -near.equality_jacobian])
    multipliers = weighed.multipliers[len(weighed.multipliers) - len(moving) :]
    return np.asarray(moving.T @ multipliers)
