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
from typing import NamedTuple

import numpy as np

from blocc._lib.rounding import EPS, TINY
from blocc.flat_problem import FlatProblem
from blocc.judge.creases import along_creases
from blocc.judge.lower_level import TOUCHED, LowerKKT
from blocc.judge.pieces import Piece, active_rows, piece_at, pieces_at
from blocc.judge.ways import (
    LeaderRows,
    Way,
    Ways,
    Weighed,
    critical_cone,
    row_multipliers,
    way_along,
    ways_of,
    weigh,
    with_firm_rows,
)
from blocc.local.complementarity import steepest
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
    decided: bool = True  #: whether second derivatives tell that x is a minimum where no way leads down


def slope_at(
    flat: FlatProblem, r: LowerKKT, tolerance: float, watch: Callable[[], None], ways: bool = True
) -> Hypergradient | None:
    """The derivative of phi at (x, y) on every regular piece; None if there is none.

    Where the response jumps (a linear follower at a tie) some pieces are singular. On the others phi is smooth up to
    the surface on which it jumps, and along it, however high the jump.

    ``watch`` is called before everything that takes time, and may raise. Without ``ways`` none is looked for.
    """
    pieces = pieces_at(flat, r)
    joint = None if pieces.complete or not ways else _joint_slope(flat, r, tolerance, watch)
    if joint is not None:
        return joint
    slopes = [_slope(flat, r, piece, tolerance, watch, ways) for piece in pieces.found]
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
        decided=all(slope.decided for slope in slopes),
    )


def _slope(
    flat: FlatProblem,
    r: LowerKKT,
    piece: Piece,
    tolerance: float,
    watch: Callable[[], None],
    with_ways: bool = True,
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
    sizes = resolved(lagrangian, r.x, wide, _rounding(r, piece)) if flat.easier is None else wide
    weighed = weigh(flat, r.x, piece.gradient, sizes, rows, always=piece.open)
    weighed = with_firm_rows(weighed, r.x, sizes, rows, lagrangian, tolerance)
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
    ways = ways_of(r.x, weighed, sizes, rows, lagrangian) if with_ways else Ways(())
    bent = along_creases(flat, r, piece, sizes, rows, tolerance, watch) if with_ways else Ways(())
    return Hypergradient(
        gradient=piece.gradient,
        sizes=units,
        constraint=leader,
        left=weighed.left,
        ways=tuple(
            narrowed(way.within(units))
            for way in (*bent.found, *(way._replace(hold=held(way)) if len(firm) else way for way in ways.found))
        ),
        worth=float(priced[piece.leader] @ np.maximum(piece.rows[piece.leader], 0.0)),
        moved=float(np.max(np.abs(piece.y - r.y) / r.sizes.y, initial=0.0)),
        row_units=np.abs(leader) @ natural,
        across=_across(piece, units, tolerance),
        error=piece.error,
        decided=ways.decided and bent.decided,
    )


def _rounding(r: LowerKKT, piece: Piece) -> np.ndarray:
    """Of the entries of the gradient of phi: terms that cancel, and what rounding of (x, y) changes them by."""
    at = np.abs(r.local.upper_gradient) + np.abs(r.local.upper_hessian) @ np.abs(np.concatenate([r.x, r.y]))
    return np.asarray(4.0 * EPS * (at[: len(r.x)] + np.abs(piece.sensitivity.T) @ at[len(r.x) :]))


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


def _joint_slope(flat: FlatProblem, r: LowerKKT, tolerance: float, watch: Callable[[], None]) -> Hypergradient | None:
    """All pieces at once: the one that holds no biactive row, and one on which phi falls, if there is any.

    With the multipliers of the biactive rows as variables beside x, phi is a smooth function under rows that exclude
    one another in pairs. Multipliers of the right signs for all of them (strong stationarity) prove every piece
    stationary (Scheel and Scholtes, Mathematical Programs with Complementarity Constraints, 2000), and the Hessian of
    one Lagrangian on one cone decides about their curvatures. None if that program is singular.
    """
    sure, biactive = active_rows(r)
    sure, prices = sure.astype(int), np.zeros(len(biactive))
    first = piece_at(flat, r, r.x, r.y, sure, biactive)
    program = None if first is None else piece_at(flat, r, r.x, r.y, sure, biactive, prices)
    if first is None or program is None:
        return None
    slope, n_x = _slope(flat, r, first, tolerance, watch), flat.n_x
    with np.errstate(divide="ignore"):
        reach = np.min(r.sizes.y[:, None] / np.abs(program.sensitivity[:, n_x:]), axis=0, initial=np.inf)
    if not np.isfinite(reach).all():
        return None
    sizes, base = np.concatenate([slope.sizes, reach]), np.concatenate([r.x, prices])
    rows = LeaderRows(program.rows, program.jacobian, program.equality_jacobian)
    weighed = weigh(flat, r.x, program.gradient, sizes, rows, always=program.open)

    def lagrangian(z: np.ndarray) -> np.ndarray | None:
        watch()
        guess = program.y + program.sensitivity @ (z - base)
        near = piece_at(flat, r, z[:n_x], guess, sure, biactive, z[n_x:])
        return None if near is None else near.gradient + _turning(near, weighed)

    weighed = with_firm_rows(weighed, base, sizes, rows, lagrangian, tolerance)
    # The slack of each biactive row, and its multiplier: rows of the program of which one is always zero.
    free = np.setdiff1d(np.arange(len(r.rows.value)), sure)
    slack = program.leader.stop + np.searchsorted(free, biactive)
    price = np.arange(len(program.rows) - len(biactive), len(program.rows))
    cone = critical_cone(weighed, sizes, lagrangian, base, list(zip(slack, price, strict=True)))
    falls = [cone.down, _falling(flat, r.x, program, weighed, sizes, slack)]
    left, more = weighed.left[:n_x], []
    fall = float(np.linalg.norm(left * slope.sizes))
    if fall:  # which no piece may show: multipliers need not be unique
        more.append(way_along(-left * slope.sizes / fall, fall, np.nan, slope.sizes, _without_rows(n_x)))
    for way in (one for one in falls if one is not None):
        ahead = np.abs(program.jacobian * sizes) @ np.ones(len(sizes))
        given = way[n_x:] > -(program.jacobian[slack] * sizes) @ way / np.maximum(ahead[slack], TINY)
        piece = piece_at(flat, r, r.x, r.y, np.union1d(sure, biactive[given]).astype(int), biactive)
        more += [] if piece is None else list(_slope(flat, r, piece, tolerance, watch).ways)
    return slope._replace(left=left, ways=(*slope.ways, *more), decided=cone.decided)


def _without_rows(n: int) -> LeaderRows:
    return LeaderRows(np.zeros(0), np.zeros((0, n)), np.zeros((0, n)))


def _falling(
    flat: FlatProblem, x: np.ndarray, program: Piece, weighed: Weighed, sizes: np.ndarray, slack: np.ndarray
) -> np.ndarray | None:
    """Where f falls fastest to first order over all pieces, in sizes; None where it does not, or none can tell."""
    n_x, count = flat.n_x, len(sizes) - flat.n_x
    gradient = program.gradient * sizes
    unit = float(np.max(np.abs(gradient), initial=0.0))
    if unit == 0.0:
        return None

    def scaled(rows: np.ndarray) -> np.ndarray:
        lengths = np.maximum(np.sum(np.abs(rows * sizes), axis=1), TINY)
        return np.asarray(rows * sizes / lengths[:, None])

    low, high = -np.ones(len(sizes)), np.ones(len(sizes))
    least, most = flat.x_set.bounds_flat()
    low[:n_x][x - least <= TOUCHED * sizes[:n_x]] = 0.0
    high[:n_x][most - x <= TOUCHED * sizes[:n_x]] = 0.0
    others = weighed.active.copy()
    others[slack] = False
    others[len(others) - count :] = False
    second = np.eye(count, len(sizes), n_x)
    found = steepest(
        gradient / unit,
        scaled(program.equality_jacobian),
        scaled(program.jacobian[others]),
        scaled(program.jacobian[slack]),
        second,
        low,
        high,
    )
    return None if found is None or not found.fall > 0.0 else found.direction


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
