"""A bilevel problem over flat float64 vectors, with its compiled programs: what every solver sees."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, Float, NDArray, PyTree
from blocc._lib.compiled import Program, Store
from blocc.sets import ConvexSet
from blocc.terms import FlatFunction

R = TypeVar("R")
Work = Callable[[], Any]

#: Variables from which on, and numbers in data up to which, products without matrices are run sooner than optimised.
_FEW, _MANY = 200, 10_000_000
#: The same for programs around sparse matrices, which others factor: variables and rows up to which.
_MODEST = 20_000


@dataclass(frozen=True)
class FlatProblem:
    """A bilevel problem over flat vectors: what every solver sees.

    ``inequality``, ``equality`` and ``upper_inequality`` always exist and return vectors, possibly of length zero.
    The functions use ``data``. Everything compiled takes the data as an argument, so that problems which differ only
    in their data share it: see :meth:`program`.
    """

    upper: FlatFunction
    lower: FlatFunction
    inequality: FlatFunction
    equality: FlatFunction
    upper_inequality: FlatFunction
    x_set: ConvexSet
    y_set: ConvexSet
    n_inequality: int
    n_equality: int
    n_upper_inequality: int
    joint_projection: Callable[[AnyArray, AnyArray], tuple[Array, Array]] | None = None
    prox: Callable[[AnyArray, AnyArray, AnyArray], Array] | None = None  #: of simple terms; see :meth:`backward`
    catch: Callable[[Array, Array], Array] | None = None  #: moves what is beyond their kinks, from a point, on them
    data: PyTree = ()
    store: Store = field(default_factory=Store, repr=False)  #: what is made once for all data
    rebind: Callable[[PyTree], FlatProblem] | None = None  #: builds this problem over other data
    easier: Callable[[PyTree], list[PyTree]] | None = None  #: other data that lead to these, the easiest first
    sides: FlatFunction | None = None  #: what was zero on kinks of the leader's functions that are rounded off here

    def backward(
        self, x: Float[AnyArray, "n_x"], point: Float[AnyArray, "n_y"], length: Float[AnyArray, ""] | float
    ) -> Float[Array, "n_y"]:
        """The member y of Y that minimises ``length * terms(x, y) + |y - point|^2 / 2``.

        Without simple terms that is the projection on Y. With them, ``lower`` has their values, and its derivative in y
        is that of the smooth part alone: y is the follower's answer where ``y = backward(x, y - lower_y, 1)``.
        """
        return self.y_set.project_flat(point) if self.prox is None else self.prox(x, point, jnp.asarray(length))

    def bind(self, data: PyTree) -> FlatProblem:
        """The same problem over ``data``, which may be traced."""
        return self if self.rebind is None else self.rebind(data)

    def program(self, function: Callable[..., R], *fixed: Hashable, is_loop: bool = False) -> Callable[..., R]:
        """``function(flat, *fixed, *arguments)`` as a compiled function of the arguments, with results in NumPy.

        It is compiled once for each ``function`` and ``fixed``, whatever the data; well where it takes many steps: the
        results of such a loop stay where they are, for the next call of it.
        """
        return partial(self._program(function, fixed, is_loop), self.data)

    def prepare(
        self, function: Callable[..., Any], *fixed: Hashable, arguments: Sequence[Any], meanwhile: Sequence[Work] = ()
    ) -> None:
        """Compile such a program, if nobody has, and do something else in another thread meanwhile."""
        self._program(function, fixed).prepare(self.data, *arguments, meanwhile=meanwhile)

    def _program(self, function: Callable[..., R], fixed: tuple[Hashable, ...], is_loop: bool = False) -> Program[R]:
        key = (Program, function, *fixed)
        return self.store.get(key, lambda: self._make_program(function, fixed, is_loop))

    def _make_program(self, function: Callable[..., R], fixed: tuple[Hashable, ...], is_loop: bool) -> Program[R]:
        def over_data(data: PyTree, *arguments: Any) -> R:
            return function(self.bind(data), *fixed, *arguments)

        over_data.__name__ = function.__name__  # what JAX calls it in its logs and in its cache
        large = self.prox is None and self.n_y + sum(int(np.size(leaf)) for leaf in jax.tree.leaves(self.data)) > _MANY
        rows = self.n_inequality + self.n_equality
        light = rows <= _MODEST - self.n_y if rows else self.n_y >= _FEW
        light &= all(getattr(part, "differentiates", True) for part in fixed)  # other oracles factorise, or loop
        return Program(over_data, quickly=False if is_loop or large else light or None, to_host=not is_loop)

    def once(self, make: Callable[..., R], *fixed: Hashable) -> R:
        """What ``make(flat, *fixed)`` returned for the first of the problems that differ only in their data."""
        return self.store.get((make, *fixed), lambda: make(self, *fixed))

    def project_x(self, point: Float[AnyArray, "n_x"]) -> Float[NDArray, "n_x"]:
        """The nearest member of X, in NumPy."""
        if self.x_set.is_box:
            return self.x_set.nearest_flat(np.asarray(point))
        return np.asarray(self.program(_project_x)(np.asarray(point)))

    @property
    def follower_rows(self) -> tuple[int, int]:
        """Number of inequalities and equalities of the follower, with those of Y that are no bounds."""
        return self.once(_follower_rows)

    @property
    def n_x(self) -> int:
        """Number of the leader's variables."""
        return self.x_set.size

    @property
    def n_y(self) -> int:
        """Number of the follower's variables."""
        return self.y_set.size


def _project_x(flat: FlatProblem, point: Float[Array, "n_x"]) -> Float[Array, "n_x"]:
    return flat.x_set.project_flat(point)


def _follower_rows(flat: FlatProblem) -> tuple[int, int]:
    point = jax.ShapeDtypeStruct((flat.n_y,), np.float64)
    n_set = jax.eval_shape(flat.y_set.inequality_flat, point).shape[0]
    n_affine = jax.eval_shape(flat.y_set.equality_flat, point).shape[0]
    return flat.n_inequality + n_set, flat.n_equality + n_affine
