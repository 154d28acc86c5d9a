"""Kinks of the leader's own functions: what stands on the other side of each, and what crossing it costs.

``abs``, ``maximum``, ``minimum`` and a choice by a comparison are the larger or the smaller of two smooth pieces. With
h the piece that stands at x, f changes by ``df/dh * max(0, alternative - h)`` where the other one takes over: for a
cost that is not negative, a row ``alternative - h <= e`` and a variable e with this cost say so in a quadratic program,
on both sides of the kink at once (Fletcher, A model algorithm for composite nondifferentiable optimization problems,
Mathematical Programming Study 17, 1982).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, Bool, Float, Int, NDArray
from blocc.corners import Kink, evaluate
from blocc.flat_problem import FlatProblem
from blocc.pieces.settings import SETTINGS

_NAMES = ("upper", "upper_inequality")
_SIGNS = {"picked_max": 1.0, "picked_min": -1.0}


class Sites(NamedTuple):
    """All rows, in the order of the programs."""

    kinds: Float[NDArray, "rows"]  #: 1 where the larger piece counts, -1 where the smaller, 0 at a comparison's choice
    columns: Int[NDArray, "rows"]  #: whose height a row is for: the largest of many entries has many rows
    largest: Bool[NDArray, "rows"]  #: whether a row is one entry of many

    @property
    def heights(self) -> int:
        """How many numbers are the larger or the smaller of others."""
        return int(self.columns.max(initial=-1)) + 1


class Kinks(NamedTuple):
    """Rows ``value + jacobian @ step <= e`` whose violation e > 0 costs f, and rows of G, in proportion.

    Rows of one column share their e, cost and unit.
    """

    among: Int[NDArray, "kinks"]  #: which of all
    value: Float[NDArray, "kinks"]  #: at most zero, in units
    jacobian: Float[NDArray, "kinks n_x"]
    both: Float[NDArray, "kinks n_x+n_y"]  #: the same in x and y
    units: Float[NDArray, "kinks"]  #: by which rows were divided
    cost: Float[NDArray, "kinks"]
    leader: Float[NDArray, "n_leader kinks"]
    concave: Int[NDArray, "concave"]  #: those on which x lies, and across which f, or a row of G, falls
    sites: Sites
    signs: Float[NDArray, "all"]  #: of all: on which side x is; of many entries -1 for the one that is picked
    raw: Float[NDArray, "all"]  #: values of all, not divided

    @property
    def columns(self) -> Int[NDArray, "kinks"]:
        """Whose height each row is for."""
        return self.sites.columns[self.among]

    def seen_from(self, before: Kinks) -> Float[NDArray, "all"]:
        """The values of rows here, as the sides of another point have them."""
        raw = np.where(self.signs == before.signs, self.raw, -self.raw)
        largest, columns = self.sites.largest, self.sites.columns
        picked = np.flatnonzero(largest & (before.signs < 0.0))
        stood = np.zeros(self.sites.heights)
        stood[columns[picked]] = self.raw[picked]
        return np.where(largest, self.raw - stood[columns], raw)


class Leader(NamedTuple):
    """The leader's functions on the given sides of their kinks: derivatives in (x, y), x first."""

    upper_gradient: NDArray
    jacobian: NDArray  #: of G
    cost: NDArray  #: of f by each height
    leader: NDArray  #: of G
    alternative: NDArray  #: what stands on the other side, less what stands here
    alternative_slope: NDArray
    side: NDArray  #: what is zero on the kink
    side_slope: NDArray


def number_of(flat: FlatProblem) -> int:
    """How many rows the kinks of the leader's functions have."""
    return len(flat.once(_sites).kinds)


def on_sides(flat: FlatProblem, x: np.ndarray, y: np.ndarray, turned: Bool[NDArray, "all"]) -> Leader:
    """Derivatives at (x, y); on the other side of the kinks that are ``turned``, on which (x, y) must lie."""
    found: Any = flat.program(_leader)(x, y, np.where(turned, -1.0, 1.0))
    return Leader(*map(np.asarray, found))


def kinks_along(
    flat: FlatProblem, found: Leader, response: np.ndarray, sizes: np.ndarray, units: np.ndarray, turned: np.ndarray
) -> Kinks:
    """The kinks along a response, in units in which x moves by its sizes; ``units`` are those of G."""
    sites, both = flat.once(_sites), np.concatenate([np.eye(flat.n_x), response])
    kinds, columns = sites.kinds, sites.columns
    signs = np.where(found.side >= 0.0, 1.0, -1.0) * np.where(turned & ~sites.largest, -1.0, 1.0)
    along, across = found.alternative_slope @ both, -signs[:, None] * (found.side_slope @ both)
    # Branches of a choice meet where the comparison turns, and cross there at some angle.
    steep = np.sum(across * across, axis=1)
    angle = np.divide(np.sum(along * across, axis=1), steep, out=np.zeros_like(steep), where=steep > 0.0)
    chosen = kinds == 0.0
    height = np.where(chosen, angle, kinds)
    raw = np.where(chosen, -signs * found.side, kinds * found.alternative)
    turning = np.where(chosen, -signs, kinds)[:, None]
    slope = turning * np.where(chosen[:, None], found.side_slope, found.alternative_slope)
    jacobian = slope @ both
    cost, leader = height * found.cost[columns], height * found.leader[:, columns] / units[:, None]
    size = np.abs(jacobian) @ sizes
    unit = np.zeros(sites.heights)
    np.maximum.at(unit, columns, size)
    told = (size > 0.0) & np.isfinite(cost) & np.isfinite(leader).all(axis=0)
    concave = told & ((cost < 0.0) | (leader < 0.0).any(axis=0))
    kept = np.flatnonzero(told & ~concave & ((cost > 0.0) | (leader > 0.0).any(axis=0)))
    on = concave & (np.abs(raw) <= SETTINGS.biactive * size)
    by = unit[columns[kept]]
    return Kinks(
        kept,
        raw[kept] / by,
        jacobian[kept] / by[:, None],
        slope[kept] / by[:, None],
        by,
        cost[kept] * by,
        leader[:, kept] * by,
        np.flatnonzero(on),
        sites,
        signs,
        raw,
    )


def none_of(flat: FlatProblem, n_leader: int) -> Kinks:
    """No kinks."""
    n_x, n_y = flat.n_x, flat.n_y
    few, number = np.zeros(0), np.zeros(0, int)
    rows, both = np.zeros((0, n_x)), np.zeros((0, n_x + n_y))
    sites = Sites(few, number, np.zeros(0, bool))
    return Kinks(number, few, rows, both, few, few, np.zeros((n_leader, 0)), number, sites, few, few)


def kink_rows(flat: FlatProblem, x: Array, y: Array, turned: AnyArray) -> Array:
    """The rows before they are divided."""
    sites = flat.once(_sites)
    _, _, other, side = _run(flat, x, y, jnp.zeros(sites.heights), turned)
    signs = jax.lax.stop_gradient(jnp.where(side >= 0.0, 1.0, -1.0)) * turned
    return jnp.where(sites.kinds == 0.0, -signs * side, sites.kinds * other)


def _sites(flat: FlatProblem) -> Sites:
    if flat.prox is not None or flat.easier is not None:
        return Sites(np.zeros(0), np.zeros(0, int), np.zeros(0, bool))
    kinds: list[float] = []
    columns: list[int] = []
    largest: list[bool] = []

    def add(kind: float, heights: int, entries: int) -> None:
        first = columns[-1] + 1 if columns else 0
        kinds.extend([kind] * (heights * entries))
        columns.extend(np.repeat(first + np.arange(heights), entries).tolist())
        largest.extend([entries > 1] * (heights * entries))

    def corner(kink: Kink) -> None:
        add({"min": -1.0, "where": 0.0}.get(kink.kind, 1.0), int(np.prod(_shape(kink))), 1)

    def picked(name: str, entries: AnyArray) -> None:
        if entries.shape[-1] > 1:
            add(_SIGNS[name], int(np.prod(entries.shape[:-1])), entries.shape[-1])

    def look(x: AnyArray, y: AnyArray) -> None:
        for name in _NAMES:
            evaluate(jax.make_jaxpr(getattr(flat, name))(x, y), [x, y], corner, picked=picked)

    jax.eval_shape(look, *(jax.ShapeDtypeStruct((n,), np.float64) for n in (flat.n_x, flat.n_y)))
    return Sites(np.array(kinds), np.array(columns, int), np.array(largest, bool))


def _shape(kink: Kink) -> tuple[int, ...]:
    return np.broadcast_shapes(*(np.shape(piece) for piece in kink.pieces))


def _run(flat: FlatProblem, x: Array, y: Array, more: Array, turned: AnyArray) -> tuple[Array, Array, Array, Array]:
    """f, G, the alternatives and the sides, with ``more`` added to each height."""
    alternatives: list[AnyArray] = [jnp.zeros(0)]
    sides: list[AnyArray] = [jnp.zeros(0)]
    row = column = 0

    def add(shape: tuple[int, ...], entries: int) -> tuple[AnyArray, AnyArray]:
        """What is added to heights of a shape, and which of their rows are turned."""
        nonlocal row, column
        heights = int(np.prod(shape))
        found = more[column : column + heights].reshape(shape), turned[row : row + heights * entries]
        row, column = row + heights * entries, column + heights
        return found

    def corner(kink: Kink) -> AnyArray:
        shape = _shape(kink)
        height, turn = add(shape, 1)
        first, second = (jnp.broadcast_to(piece, shape) for piece in kink.pieces)
        side = jnp.broadcast_to(kink.side, shape)
        sign = jax.lax.stop_gradient(jnp.where(side >= 0.0, 1.0, -1.0)) * turn.reshape(shape)
        upper = (sign > 0.0) != (kink.kind == "min")
        here, there = jnp.where(upper, first, second), jnp.where(upper, second, first)
        alternatives.append((there - here).ravel())
        sides.append(side.ravel())
        return here + height

    def picked(name: str, entries: AnyArray) -> AnyArray | None:
        if entries.shape[-1] < 2:
            return None
        height, turn = add(entries.shape[:-1], entries.shape[-1])
        turn = turn.reshape(entries.shape)
        ranked = jnp.where(turn < 0.0, jnp.inf, _SIGNS[name] * entries)  # an entry that ties may be picked by hand
        place = jnp.argmax(jax.lax.stop_gradient(ranked), axis=-1, keepdims=True)
        here = jnp.take_along_axis(entries, place, axis=-1)
        alternatives.append((entries - here).ravel())
        sides.append(jnp.ravel(jnp.where(jnp.arange(entries.shape[-1]) == place, -1.0, 1.0)))
        return here[..., 0] + height

    upper, rows = (
        jnp.asarray(evaluate(jax.make_jaxpr(getattr(flat, name))(x, y), [x, y], corner, picked=picked)[0])
        for name in _NAMES
    )
    return upper, rows, jnp.concatenate(alternatives), jnp.concatenate(sides)


def _leader(flat: FlatProblem, x: Array, y: Array, turned: Array) -> Any:
    n_x, n, count, heights = x.size, x.size + y.size, turned.size, flat.once(_sites).heights

    def values(both: Array) -> tuple[Array, tuple[Array, Array]]:
        x, y, more = jnp.split(both, (n_x, n))
        upper, rows, other, side = _run(flat, x, y, more, turned)
        return jnp.concatenate([upper[None], rows, other, side]), (other, side)

    jacobian, (other, side) = jax.jacfwd(values, has_aux=True)(jnp.concatenate([x, y, jnp.zeros(heights)]))
    ends = len(jacobian) - 2 * count, len(jacobian) - count
    leader, alternative, across = jnp.split(jacobian, ends)
    return (
        leader[0, :n],
        leader[1:, :n],
        leader[0, n:],
        leader[1:, n:],
        other,
        alternative[:, :n],
        side,
        across[:, :n],
    )
