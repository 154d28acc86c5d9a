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


class Kinks(NamedTuple):
    """Rows ``value + jacobian @ step <= e`` whose violation e > 0 costs f, and rows of G, in proportion."""

    among: Int[NDArray, "kinks"]  #: which of all kinks of the leader's functions
    value: Float[NDArray, "kinks"]  #: at most zero, in units
    jacobian: Float[NDArray, "kinks n_x"]
    both: Float[NDArray, "kinks n_x+n_y"]  #: the same in x and y
    units: Float[NDArray, "kinks"]  #: by which rows were divided
    cost: Float[NDArray, "kinks"]
    leader: Float[NDArray, "n_leader kinks"]
    signs: Float[NDArray, "all"]  #: of all: on which side x is
    concave: Int[NDArray, "concave"]  #: those on which x lies, and across which f, or a row of G, falls


class Leader(NamedTuple):
    """The leader's functions on the given sides of their kinks: derivatives in (x, y), x first."""

    upper_gradient: NDArray
    jacobian: NDArray  #: of G
    cost: NDArray  #: of f by the height of each kink
    leader: NDArray  #: of G
    alternative: NDArray  #: what stands on the other side, less what stands here
    alternative_slope: NDArray
    side: NDArray  #: what is zero on the kink
    side_slope: NDArray


def number_of(flat: FlatProblem) -> int:
    """How many kinks the leader's functions have."""
    return flat.once(_kinds).size


def on_sides(flat: FlatProblem, x: np.ndarray, y: np.ndarray, turned: Bool[NDArray, "all"]) -> Leader:
    """Derivatives at (x, y); on the other side of the kinks that are ``turned``, on which (x, y) must lie."""
    found: Any = flat.program(_leader)(x, y, np.where(turned, -1.0, 1.0))
    return Leader(*map(np.asarray, found))


def kinks_of(
    flat: FlatProblem, found: Leader, response: np.ndarray, sizes: np.ndarray, units: np.ndarray, turned: np.ndarray
) -> Kinks:
    """The kinks along a response, in units in which x moves by its sizes; ``units`` are those of G."""
    kinds, both = flat.once(_kinds), np.concatenate([np.eye(flat.n_x), response])
    signs = np.where(found.side >= 0.0, 1.0, -1.0) * np.where(turned, -1.0, 1.0)
    along, across = found.alternative_slope @ both, -signs[:, None] * (found.side_slope @ both)
    # Branches of a choice meet where the comparison turns, and cross there at some angle.
    steep = np.sum(across * across, axis=1)
    angle = np.divide(np.sum(along * across, axis=1), steep, out=np.zeros_like(steep), where=steep > 0.0)
    chosen = kinds == 0.0
    height = np.where(chosen, angle, kinds)
    sign = np.where(chosen, 1.0, kinds)[:, None]
    value = np.where(chosen, -signs * found.side, kinds * found.alternative)
    slope = sign * np.where(chosen[:, None], -signs[:, None] * found.side_slope, found.alternative_slope)
    jacobian, cost, leader = slope @ both, height * found.cost, height * found.leader / units[:, None]
    size = np.abs(jacobian) @ sizes
    told = (size > 0.0) & np.isfinite(cost) & np.isfinite(leader).all(axis=0)
    concave = told & ((cost < 0.0) | (leader < 0.0).any(axis=0))
    on = np.abs(value) <= SETTINGS.biactive * size
    kept = np.flatnonzero(told & ~concave & ((cost > 0.0) | (leader > 0.0).any(axis=0)))
    unit = size[kept]
    return Kinks(
        kept,
        value[kept] / unit,
        jacobian[kept] / unit[:, None],
        slope[kept] / unit[:, None],
        unit,
        cost[kept] * unit,
        leader[:, kept] * unit,
        signs,
        np.flatnonzero(concave & on),
    )


def none_of(flat: FlatProblem, n_leader: int) -> Kinks:
    """No kinks."""
    n_x, n_y = flat.n_x, flat.n_y
    few, rows = np.zeros(0), np.zeros((0, n_x))
    number = np.zeros(0, int)
    return Kinks(number, few, rows, np.zeros((0, n_x + n_y)), few, few, np.zeros((n_leader, 0)), few, number)


def rows(flat: FlatProblem, x: Array, y: Array, turned: AnyArray) -> Array:
    """The rows before they are divided."""
    _, _, other, side = _run(flat, x, y, jnp.zeros(turned.size), turned)
    kinds = flat.once(_kinds)
    signs = jax.lax.stop_gradient(jnp.where(side >= 0.0, 1.0, -1.0)) * turned
    return jnp.where(kinds == 0.0, -signs * side, kinds * other)


def _kinds(flat: FlatProblem) -> NDArray:
    """Of each kink 1 where the larger piece counts, -1 where the smaller one does, 0 for a choice by a comparison."""
    if flat.prox is not None or flat.easier is not None:
        return np.zeros(0)
    kinds: list[float] = []

    def corner(kink: Kink) -> None:
        kinds.extend([{"min": -1.0, "where": 0.0}.get(kink.kind, 1.0)] * int(np.prod(_shape(kink))))

    def look(x: AnyArray, y: AnyArray) -> None:
        for name in _NAMES:
            evaluate(jax.make_jaxpr(getattr(flat, name))(x, y), [x, y], corner)

    jax.eval_shape(look, *(jax.ShapeDtypeStruct((n,), np.float64) for n in (flat.n_x, flat.n_y)))
    return np.array(kinds)


def _shape(kink: Kink) -> tuple[int, ...]:
    return np.broadcast_shapes(*(np.shape(piece) for piece in kink.pieces))


def _run(flat: FlatProblem, x: Array, y: Array, more: Array, turned: AnyArray) -> tuple[Array, Array, Array, Array]:
    """f, G, the alternatives and the sides, with ``more`` added to the height of each kink."""
    alternatives, sides = [jnp.zeros(0)], [jnp.zeros(0)]
    place = 0

    def corner(kink: Kink) -> AnyArray:
        nonlocal place
        shape = _shape(kink)
        end = place + int(np.prod(shape))
        first, second = (jnp.broadcast_to(piece, shape) for piece in kink.pieces)
        side = jnp.broadcast_to(kink.side, shape)
        sign = jax.lax.stop_gradient(jnp.where(side >= 0.0, 1.0, -1.0)) * turned[place:end].reshape(shape)
        upper = (sign > 0.0) != (kink.kind == "min")
        here, there = jnp.where(upper, first, second), jnp.where(upper, second, first)
        alternatives.append((there - here).ravel())
        sides.append(side.ravel())
        height = here + more[place:end].reshape(shape)
        place = end
        return height

    upper, rows = (
        jnp.asarray(evaluate(jax.make_jaxpr(getattr(flat, name))(x, y), [x, y], corner)[0]) for name in _NAMES
    )
    return upper, rows, jnp.concatenate(alternatives), jnp.concatenate(sides)


def _leader(flat: FlatProblem, x: Array, y: Array, turned: Array) -> Any:
    n_x, count = x.size, turned.size

    def values(both: Array) -> tuple[Array, tuple[Array, Array]]:
        upper, rows, other, side = _run(
            flat, both[:n_x], both[n_x : both.size - count], both[both.size - count :], turned
        )
        return jnp.concatenate([upper[None], rows, other, side]), (other, side)

    jacobian, (other, side) = jax.jacfwd(values, has_aux=True)(jnp.concatenate([x, y, jnp.zeros(count)]))
    leader, kinked = jacobian[: len(jacobian) - 2 * count], jacobian[len(jacobian) - 2 * count :]
    n = n_x + y.size
    return (
        leader[0, :n],
        leader[1:, :n],
        leader[0, n:],
        leader[1:, n:],
        other,
        kinked[:count, :n],
        side,
        kinked[count:, :n],
    )
