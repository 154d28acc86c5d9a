"""The sets X and Y: simple convex sets that know their projection, membership, an interior point and their shape.

A set carries the shape of the variable that lives in it, so a problem never has to be told dimensions twice.
Solvers see every set through flat vectors (``*_flat`` methods): bounds, smooth inequalities and affine equalities,
which is what an interior-point method needs, and a projection, which is what a first-order method needs. The
projections are written here rather than taken from optax, because the core must run with numpy, scipy and jax alone;
the tests compare them with optax's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, Float, NDArray, PyTree
from blocc._lib.checks import as_float_array, as_shape, in_words
from blocc._lib.precision import double_precision
from blocc.errors import ProblemError

Vector = Float[AnyArray, " size"]


class ConvexSet(ABC):
    """A closed convex set of arrays, or of pytrees of arrays for a :class:`Product`."""

    #: A pytree of float64 zeros with the structure and shapes of the members.
    template: PyTree
    #: Number of scalars in a member.
    size: int

    # --- what a set must say about itself, in flat coordinates -------------------------------------------------
    @abstractmethod
    def project_flat(self, point: Vector) -> Float[Array, " size"]:
        """Nearest member of the set (Euclidean norm). Traceable by JAX."""

    @abstractmethod
    def interior_flat(self) -> Float[NDArray, " size"]:
        """A point in the relative interior, away from every bound."""

    @abstractmethod
    def sample_flat(self, generator: np.random.Generator) -> Float[NDArray, " size"]:
        """A random member: uniform where the set is bounded, otherwise of order one around the interior point."""

    def bounds_flat(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds implied coordinate by coordinate (infinite where there is none)."""
        return np.full(self.size, -np.inf), np.full(self.size, np.inf)

    def inequality_flat(self, point: Vector) -> Float[Array, " rows"]:
        """Smooth convex functions that must be <= 0 beyond the bounds (empty for a box)."""
        return jnp.zeros(0, dtype=jnp.asarray(point).dtype)

    def equality_flat(self, point: Vector) -> Float[Array, " rows"]:
        """Affine functions that must vanish (empty for a set with full dimension)."""
        return jnp.zeros(0, dtype=jnp.asarray(point).dtype)

    def bounded_flat(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which coordinates have a lower bound, which an upper one, and which may move: never traced."""
        low, high = self.bounds_flat()
        return np.isfinite(low), np.isfinite(high), np.asarray(high > low)

    @property
    def is_box(self) -> bool:
        """Whether the bounds describe the set completely."""
        return False

    @property
    def is_smooth(self) -> bool:
        """Whether :meth:`inequality_flat` has derivatives all over the set."""
        return True

    # --- what users call ----------------------------------------------------------------------------------------
    def ravel(self, point: PyTree, name: str = "point") -> np.ndarray:
        """Flatten a member-shaped pytree into a float64 vector, or explain why its shape does not fit."""
        if isinstance(self.template, np.ndarray) and isinstance(point, (list, tuple)):
            point = as_float_array(name, point)  # a plain list of numbers is a point too
        leaves, structure = jax.tree.flatten(point)
        expected_leaves, expected_structure = jax.tree.flatten(self.template)
        if structure != expected_structure:  # type: ignore[operator]
            raise ProblemError(f"{name} has the structure {in_words(point)}, expected {in_words(self.template)}")
        flat = []
        for leaf, expected in zip(leaves, expected_leaves, strict=True):
            array = as_float_array(name, leaf)
            if array.shape != expected.shape:
                raise ProblemError(f"{name} has shape {array.shape}, expected {expected.shape}")
            flat.append(array.ravel())
        return np.asarray(self.lift_flat(np.concatenate(flat) if flat else np.zeros(0)))

    def lift_flat(self, visible: Float[AnyArray, " visible"]) -> Any:
        """A member from the numbers that its pytree holds: all of them, but for sets with hidden variables."""
        return visible

    def unravel(self, flat: Vector) -> PyTree:
        """The inverse of :meth:`ravel`. Traceable by JAX."""
        leaves, structure = jax.tree.flatten(self.template)
        if len(leaves) == 1:
            only = flat if flat.shape == leaves[0].shape else flat.reshape(leaves[0].shape)
            return jax.tree.unflatten(structure, [only])
        pieces, start = [], 0
        for leaf in leaves:
            pieces.append(flat[start : start + leaf.size].reshape(leaf.shape))
            start += leaf.size
        return jax.tree.unflatten(structure, pieces)

    def shown(self, flat: Vector) -> PyTree:
        """A member as a user is shown it: in NumPy, without what hidden variables leave of zeros."""
        return jax.tree.map(np.asarray, self.unravel(np.asarray(flat)))

    def descended_flat(self, flat: Float[NDArray, " size"], slope: Float[NDArray, " size"]) -> Float[NDArray, " size"]:
        """The lowest member, by a slope, of all that :meth:`shown` shows alike: in most sets this one alone."""
        return flat

    def nearest_flat(self, point: Float[NDArray, " size"]) -> Float[NDArray, " size"]:
        """The same as :meth:`project_flat` in NumPy: nothing is compiled for a box."""
        if self.is_box:
            return np.clip(point, *self.bounds_flat())
        with double_precision():
            return np.asarray(self.project_flat(jnp.asarray(point)))

    def project(self, point: PyTree) -> PyTree:
        """Nearest member of the set, with the structure of ``point``."""
        return self.unravel(self.nearest_flat(self.ravel(point)))

    def contains(self, point: PyTree, tolerance: float = 1e-9) -> bool:
        """Whether ``point`` lies in the set, up to ``tolerance`` relative to its size."""
        return self.distance(point) <= tolerance * (1.0 + float(np.abs(self.ravel(point)).max(initial=0.0)))

    def distance(self, point: PyTree) -> float:
        """Euclidean distance from ``point`` to the set."""
        flat = self.ravel(point)
        return float(np.linalg.norm(self.nearest_flat(flat) - flat))

    def interior_point(self) -> PyTree:
        """A point in the (relative) interior."""
        return self.unravel(self.interior_flat())

    def sample(self, seed: int = 0) -> PyTree:
        """One random member."""
        return self.unravel(self.sample_flat(np.random.default_rng(seed)))


class Box(ConvexSet):
    """All arrays between ``lower`` and ``upper``; scalars broadcast, and infinite entries mean no bound.

    ``Box(0.0, 3.0)`` is an interval of the real line, ``Box(0.0, 1.0, shape=5)`` the unit cube of R^5.
    """

    def __init__(self, lower: Any, upper: Any, shape: int | tuple[int, ...] | None = None) -> None:
        low, high = as_float_array("lower", lower), as_float_array("upper", upper)
        try:
            full = np.broadcast_shapes(low.shape, high.shape)
            if shape is not None:
                full = as_shape(shape)
            self.lower, self.upper = np.broadcast_to(low, full), np.broadcast_to(high, full)
        except ValueError as error:
            raise ProblemError(
                f"lower has shape {low.shape} and upper has shape {high.shape}: they do not broadcast to "
                f"{'one shape' if shape is None else as_shape(shape)}"
            ) from error
        if (self.lower > self.upper).any():
            index = tuple(int(i) for i in np.argwhere(self.lower > self.upper)[0])
            raise ProblemError(f"lower exceeds upper at index {index}: {self.lower[index]} > {self.upper[index]}")
        if np.isposinf(self.lower).any() or np.isneginf(self.upper).any():
            raise ProblemError("lower must be below +inf and upper above -inf everywhere")
        self.template, self.size = np.zeros(full), int(np.prod(full))

    @classmethod
    def nonnegative(cls, shape: int | tuple[int, ...]) -> Box:
        """The nonnegative orthant."""
        return cls(0.0, np.inf, shape=shape)

    def __repr__(self) -> str:
        ends = [f"{a.flat[0]:g}" if a.size and (a == a.flat[0]).all() else "..." for a in (self.lower, self.upper)]
        return f"{type(self).__name__}({ends[0]}, {ends[1]}, shape={self.lower.shape})"

    @property
    def is_box(self) -> bool:
        return True

    def bounds_flat(self) -> tuple[np.ndarray, np.ndarray]:
        return self.lower.ravel(), self.upper.ravel()

    def project_flat(self, point: Vector) -> Float[Array, " size"]:
        low, high = self.bounds_flat()
        return jnp.clip(point, low, high)

    def interior_flat(self) -> Float[NDArray, " size"]:
        return self._middle.copy()

    @cached_property
    def _middle(self) -> Float[NDArray, " size"]:
        low, high = self.bounds_flat()
        below, above = np.isfinite(low), np.isfinite(high)
        with np.errstate(invalid="ignore"):  # infinite ends are not chosen
            middle = low + 0.5 * (high - low)
        return np.select([below & above, below, above], [middle, low + 1.0, high - 1.0], default=0.0)

    def sample_flat(self, generator: np.random.Generator) -> Float[NDArray, " size"]:
        low, high = self.bounds_flat()
        bounded = np.isfinite(low) & np.isfinite(high)
        spread = self.interior_flat() + generator.standard_normal(self.size)
        inside = np.clip(spread, low, high)
        uniform = generator.uniform(size=self.size)
        inside[bounded] = low[bounded] + uniform[bounded] * (high - low)[bounded]
        return inside


class Reals(Box):
    """All arrays of a shape: no constraint at all. ``Reals()`` is the real line, ``Reals(3)`` is R^3."""

    def __init__(self, shape: int | tuple[int, ...] = ()) -> None:
        super().__init__(-np.inf, np.inf, shape=shape)

    def __repr__(self) -> str:
        return f"Reals({self.template.shape})"

    def project_flat(self, point: Vector) -> Float[Array, " size"]:
        return jnp.asarray(point)


class Product(ConvexSet):
    """A pytree of sets: ``Product({"w": Reals(3), "b": Reals()})`` holds dictionaries with those two arrays."""

    def __init__(self, sets: PyTree) -> None:
        self.sets = sets
        leaves, structure = jax.tree.flatten(sets, is_leaf=lambda node: isinstance(node, ConvexSet))
        if not leaves:
            raise ProblemError(f"a Product needs at least one set, got {sets!r}")
        for leaf in leaves:
            if not isinstance(leaf, ConvexSet):
                raise ProblemError(f"every leaf of a Product must be a set, got {type(leaf).__name__}")
        self._parts: list[ConvexSet] = leaves
        self.template = jax.tree.unflatten(structure, [part.template for part in leaves])
        self.size = sum(part.size for part in leaves)
        cuts = np.cumsum([0] + [part.size for part in leaves])
        self._slices = [slice(int(a), int(b)) for a, b in pairwise(cuts)]

    def __repr__(self) -> str:
        return f"Product({self.sets!r})"

    def _each(self, method: str, point: Vector) -> Array:
        pieces = [getattr(p, method)(point[s]) for p, s in zip(self._parts, self._slices, strict=True)]
        return jnp.concatenate(pieces) if pieces else jnp.zeros(0)

    @property
    def is_box(self) -> bool:
        return all(part.is_box for part in self._parts)

    @property
    def is_smooth(self) -> bool:
        return all(part.is_smooth for part in self._parts)

    def bounds_flat(self) -> tuple[np.ndarray, np.ndarray]:
        pairs = [part.bounds_flat() for part in self._parts]
        return _joined([low for low, _ in pairs]), _joined([high for _, high in pairs])

    def bounded_flat(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        parts = [part.bounded_flat() for part in self._parts]
        return (
            np.concatenate([below for below, _, _ in parts]),
            np.concatenate([above for _, above, _ in parts]),
            np.concatenate([free for _, _, free in parts]),
        )

    def inequality_flat(self, point: Vector) -> Float[Array, " rows"]:
        return self._each("inequality_flat", point)

    def equality_flat(self, point: Vector) -> Float[Array, " rows"]:
        return self._each("equality_flat", point)

    def project_flat(self, point: Vector) -> Float[Array, " size"]:
        return self._each("project_flat", point)

    def interior_flat(self) -> Float[NDArray, " size"]:
        return _joined([part.interior_flat() for part in self._parts])

    def sample_flat(self, generator: np.random.Generator) -> Float[NDArray, " size"]:
        return np.concatenate([part.sample_flat(generator) for part in self._parts])


def _joined(parts: list[Any]) -> Any:
    """One vector; traced where a part is."""
    return (np if all(isinstance(part, np.ndarray) for part in parts) else jnp).concatenate(parts)
