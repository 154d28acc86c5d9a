"""Norms of the follower's objective as further variables of its own, so that every solver sees a smooth problem.

An entry that an L1 norm is of becomes the difference of two nonnegative numbers, whose sum stands for its size; a group
gets a number that is at least its norm. Weights are nonnegative, so that the follower makes both as small as they can
be. Nobody sees these variables: the set of (y, further variables) shows y alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, Float, NDArray, PyTree
from blocc.sets import ConvexSet, Vector
from blocc.terms import FlatFunction, GroupL2, Terms

#: Smallest number that stands for the norm of a group: at zero itself a cone has no derivative.
_TIP = 1e-9
#: Groups with smaller numbers are zero: what else is left of them is the tip and what solvers are off by.
_NOTHING = 10.0 * _TIP


class _Groups(NamedTuple):
    """Groups of one array, and where their numbers lie among the flat variables."""

    members: slice
    negative: slice | None  #: the negative parts of the members, where an L1 norm is of the array too
    norms: slice
    shape: tuple[int, ...]


class Lifted(ConvexSet):
    """Members y of a set together with what stands for their norms.

    A flat vector holds y, with positive parts in the place of entries that have been split, then the negative parts of
    these, then a number for each group. :meth:`ravel`, :meth:`unravel` and ``template`` are those of y.
    """

    def __init__(self, within: ConvexSet, terms: Terms) -> None:
        self.within, self.template, self._terms = within, within.template, terms
        low, high = within.bounds_flat()
        entries = np.zeros(within.size, dtype=bool)
        for placed in terms.placed:
            if not isinstance(placed.term, GroupL2):
                entries[placed.where] = True
        split = entries & (low < 0.0) & (high > 0.0)
        self._split = np.flatnonzero(split)
        self._end = within.size + self._split.size  #: of y and the negative parts
        self._place = np.where(split, np.cumsum(split) - 1, self._split.size)  #: of each negative part among them
        self._sign = np.where(high <= 0.0, -1.0, 1.0)  #: of entries that have only one
        self._groups: list[_Groups] = []
        self._magnitudes: list[slice | None] = []  #: of each term: where the norms are, None for an L1 norm
        self.size = self._end
        for placed in terms.placed:
            if not isinstance(placed.term, GroupL2):
                self._magnitudes.append(None)
                continue
            norms = slice(self.size, self.size + int(np.prod(placed.shape[:-1], dtype=int)))
            self.size = norms.stop
            negative = None
            if split[placed.where].any():
                first = within.size + int(self._place[placed.where.start])
                negative = slice(first, first + placed.where.stop - placed.where.start)
            self._magnitudes.append(norms)
            self._groups.append(_Groups(placed.where, negative, norms, placed.shape))
        zero = np.zeros(self._split.size)
        ends = np.where(split, 0.0, low), high
        self._bounds = (
            np.concatenate([ends[0], zero, np.full(self.size - self._end, _TIP)]),
            np.concatenate([ends[1], -low[split], np.full(self.size - self._end, np.inf)]),
        )

    def __repr__(self) -> str:
        return repr(self.within)

    def terms_flat(self, point: Vector, x: PyTree, *data: PyTree) -> Array:
        """The sum of all terms, by the variables that stand for their norms."""
        point, n = jnp.asarray(point), self.within.size
        sizes = self._sign * point[:n] + self._negative(point)
        parts = []
        for (term, where, shape), norms in zip(self._terms.placed, self._magnitudes, strict=True):
            magnitudes = sizes[where].reshape(shape) if norms is None else point[norms].reshape(shape[:-1])
            parts.append(jnp.sum(term.weight_at(x, *data) * magnitudes))
        return jnp.sum(jnp.stack(parts))

    def added_to(self, smooth: FlatFunction, x_set: ConvexSet, *data: PyTree) -> FlatFunction:
        """A function of flat vectors with the terms."""
        return lambda x, y: smooth(x, y) + self.terms_flat(y, x_set.unravel(x), *data)

    def lift_flat(self, visible: Float[AnyArray, " visible"]) -> Any:
        """The smallest further variables that suit a flat y."""
        xp: Any = np if isinstance(visible, np.ndarray) else jnp
        negative = xp.maximum(-visible[self._split], 0.0)
        norms = [xp.sqrt(xp.sum(visible[g.members].reshape(g.shape) ** 2, axis=-1)).ravel() for g in self._groups]
        positive = xp.where(self._place < self._split.size, xp.maximum(visible, 0.0), visible)
        return xp.concatenate([positive, negative, *(xp.maximum(norm, _TIP) for norm in norms)])

    def visible_flat(self, flat: Vector) -> Any:
        """The flat y of a member."""
        return flat[: self.within.size] - self._negative(flat)

    def _negative(self, flat: Vector) -> Any:
        """The negative part of every entry of y; zero for those that were not split."""
        xp: Any = np if isinstance(flat, np.ndarray) else jnp
        parts = flat[self.within.size : self._end]
        if parts.size == self.within.size:
            return parts
        return xp.concatenate([parts, xp.zeros(1)])[self._place]

    def unravel(self, flat: Vector) -> PyTree:
        """The member y alone."""
        return self.within.unravel(self.visible_flat(flat))

    def shown(self, flat: Vector) -> PyTree:
        """The member y alone, in NumPy, with groups at the tips of their cones where they belong: at zero."""
        point = np.asarray(flat)
        visible = np.array(self.visible_flat(point))
        for group in self._groups:
            members = visible[group.members].reshape(-1, group.shape[-1])
            members[point[group.norms] <= _NOTHING] = 0.0
        return self.within.shown(visible)

    def descended_flat(self, flat: Float[NDArray, " size"], slope: Float[NDArray, " size"]) -> Float[NDArray, " size"]:
        """The same member with groups that are zero moved to the lowest place in the tips of their cones."""
        found = flat.copy()
        for group in self._groups:
            parts = [part for part in (group.members, group.negative) if part is not None]
            down = np.concatenate([-slope[part].reshape(-1, group.shape[-1]) for part in parts], axis=1)
            down = np.maximum(down, 0.0) if group.negative is not None else down
            length = np.linalg.norm(down, axis=1, keepdims=True)
            zero = (flat[group.norms] <= _TIP)[:, None] & (length > 0.0)
            moved = np.where(zero, _TIP * down / np.where(zero, length, 1.0), 0.0)
            for part, change in zip(parts, np.split(moved, len(parts), axis=1), strict=True):
                found[part] += change.ravel()
        return found

    @property
    def is_smooth(self) -> bool:
        """Whether the inequalities have derivatives all over the set: without groups."""
        return self.within.is_smooth and not self._groups

    @property
    def is_box(self) -> bool:
        """Whether the bounds describe the set completely: without groups."""
        return self.within.is_box and not self._groups

    def bounds_flat(self) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of the coordinates."""
        return self._bounds

    def inequality_flat(self, point: Vector) -> Float[Array, " rows"]:
        """Those of the set of y, and one row for each group."""
        point = jnp.asarray(point)
        rows = [self.within.inequality_flat(self.visible_flat(point))]
        for group in self._groups:
            square = jnp.sum(self._members(point, group) ** 2, axis=-1).ravel()
            norm = point[group.norms]
            # Convex in both, and smooth but at the tip; halved, so that near the boundary it is a distance.
            rows.append(0.5 * (square / norm - norm))
        return jnp.concatenate(rows)

    def equality_flat(self, point: Vector) -> Float[Array, " rows"]:
        """Those of the set of y."""
        return self.within.equality_flat(self.visible_flat(jnp.asarray(point)))

    def _members(self, point: Array, group: _Groups) -> Array:
        """The members of every group; where they have been split both parts, of which one is zero in the end."""
        members = point[group.members].reshape(group.shape)
        if group.negative is None:
            return members
        return jnp.concatenate([members, point[group.negative].reshape(group.shape)], axis=-1)

    def project_flat(self, point: Vector) -> Float[Array, " size"]:
        """Nearest member."""
        low, high = self._bounds
        point, n = jnp.asarray(point), self.within.size
        kept = jnp.where(self._place < self._split.size, point[:n], self.within.project_flat(point[:n]))
        projected = jnp.clip(jnp.concatenate([kept, point[n:]]), low, high)
        for group in self._groups:
            members, norm = self._members(projected, group), point[group.norms].reshape(group.shape[:-1])
            members, norm = _onto_cone(members, norm)
            count = group.shape[-1]
            projected = projected.at[group.members].set(members[..., :count].ravel())
            if group.negative is not None:
                projected = projected.at[group.negative].set(members[..., count:].ravel())
            projected = projected.at[group.norms].set(norm.ravel())
        return projected

    def interior_flat(self) -> Float[NDArray, " size"]:
        """A point in the relative interior."""
        _, high = self._bounds
        inside = np.concatenate([self.within.interior_flat(), np.zeros(self.size - self.within.size)])
        both = np.concatenate([self._split, np.arange(self.within.size, self._end)])
        inside[both] = np.where(np.isfinite(high[both]), 0.5 * high[both], 1.0)
        for group in self._groups:
            parts = [part for part in (group.members, group.negative) if part is not None]
            members = np.concatenate([inside[part].reshape(group.shape) for part in parts], axis=-1)
            inside[group.norms] = 1.0 + 2.0 * np.linalg.norm(members, axis=-1).ravel()
        return inside

    def sample_flat(self, generator: np.random.Generator) -> Float[NDArray, " size"]:
        """A random member, with the smallest further variables."""
        return np.asarray(self.lift_flat(self.within.sample_flat(generator)))


def _onto_cone(members: Array, norm: Array) -> tuple[Array, Array]:
    """The nearest of all pairs in which ``norm`` is at least that of the members, and at least the tip."""
    square = jnp.sum(members**2, axis=-1)
    length = jnp.sqrt(jnp.where(square > 0.0, square, 1.0)) * (square > 0.0)
    reached = jnp.where(length <= norm, norm, jnp.where(length <= -norm, 0.0, 0.5 * (length + norm)))
    reached = jnp.maximum(reached, _TIP)
    share = jnp.where(length > reached, reached / jnp.where(length > 0.0, length, 1.0), 1.0)
    return members * share[..., None], reached
