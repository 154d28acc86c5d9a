"""Mini-batches: which samples of a problem's data each step of a stochastic method sees.

Every epoch draws a new order of the samples, and its batches are consecutive parts of that order: no sample is seen
twice in an epoch. What is left over when the batch size does not divide their number is another few samples each time.
The order depends on the seed and on the number of the epoch alone, so that a run can be continued at any step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Array, Int, PyTree
from blocc._lib.checks import in_words
from blocc.errors import OptionError
from blocc.methods.base import Counter

Orders = tuple[Int[Array, "drawn"], ...]  #: the samples of one epoch, for each number of samples that arrays have


@dataclass(frozen=True)
class Plan:
    """How batches are drawn, without the data: compiled programs depend on nothing else."""

    size: int
    rows: tuple[int, ...]  #: samples of each array of the data; 0: it is no list of samples, and stays whole

    @property
    def steps(self) -> int:
        """Batches of one epoch: how many the longest list of samples makes."""
        most = max(self.rows)
        return most // min(self.size, most)

    @property
    def lists(self) -> tuple[int, ...]:
        """Numbers of samples that are drawn from; shorter lists than a batch are taken whole."""
        return tuple(sorted({rows for rows in self.rows if rows > self.size}))

    def order(self, key: Array, epoch: Counter) -> Orders:
        """The samples of one epoch; a short list begins anew as often as it is needed."""

        def drawn(rows: int) -> Array:
            own = jax.random.fold_in(jax.random.fold_in(key, epoch), rows)
            count = -(-self.steps * self.size // rows)
            ways = jax.vmap(lambda i: jax.random.permutation(jax.random.fold_in(own, i), rows))(jnp.arange(count))
            return ways.ravel()[: self.steps * self.size]

        return tuple(drawn(rows) for rows in self.lists)

    def take(self, data: PyTree, orders: Orders, step: Counter, kind: Any = np.float64) -> PyTree:
        """The batch of one step of the epoch, its real numbers of one ``kind``."""
        chosen = {
            rows: jax.lax.dynamic_slice_in_dim(order, step * self.size, self.size)
            for rows, order in zip(self.lists, orders, strict=True)
        }
        leaves, structure = jax.tree.flatten(data)
        parts = [
            jnp.asarray(leaf)[chosen[rows]] if rows in chosen else jnp.asarray(leaf)
            for leaf, rows in zip(leaves, self.rows, strict=True)
        ]
        real = [part.astype(kind) if jnp.issubdtype(part.dtype, jnp.floating) else part for part in parts]
        return jax.tree.unflatten(structure, real)


@dataclass(frozen=True, eq=False)
class Batches:
    """Mini-batches of ``data``, for ``solve(problem, method="stochastic", batches=...)``.

    ``data`` is that of the problem, ``BilevelProblem(..., data=data)``: arrays (in a dictionary, say) whose first axis
    counts samples. The problem's functions of (x, y, data) then see a batch in the place of all data, and must be means
    over the samples they are given, so that a batch estimates the whole. Arrays with the same number of samples are
    drawn together; numbers, and what is called ``whole`` (keys of a dictionary), are passed as they are.

    :param size: samples of a batch; of a list that has fewer all are taken
    :param seed: of the order of the samples
    """

    data: PyTree
    size: int
    seed: int = 0
    whole: tuple[str, ...] = ()
    plan: Plan = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name, least in (("size", 1), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value < 2**32:
                raise OptionError(f"Batches: {name} must be a whole number, at least {least}, got {value!r}")
        whole = (self.whole,) if isinstance(self.whole, str) else tuple(self.whole)
        known = set(self.data) if isinstance(self.data, dict) else set()
        if strange := sorted(set(whole) - known):
            raise OptionError(f"Batches: whole names {strange[0]!r}, which is no key of data {in_words(self.data)}")

        def rows(path: Any, leaf: Any) -> int:
            is_whole = bool(path) and getattr(path[0], "key", None) in whole
            return 0 if is_whole or np.ndim(leaf) == 0 else np.shape(leaf)[0]

        counts = tuple(jax.tree.leaves(jax.tree.map_with_path(rows, self.data)))
        if max(counts, default=0) == 0:
            raise OptionError(f"Batches: data has no array whose first axis counts samples, got {in_words(self.data)}")
        if self.size > max(counts):
            raise OptionError(f"Batches: size must be at most {max(counts)}, the number of samples, got {self.size}")
        object.__setattr__(self, "plan", Plan(int(self.size), counts))

    @classmethod
    def all(cls, data: PyTree) -> Batches:
        """One batch of all samples: no gradient is sampled."""
        return cls(data, max(np.shape(leaf)[0] for leaf in jax.tree.leaves(data) if np.ndim(leaf)))

    def check(self, data: PyTree) -> None:
        """Refuse a problem whose data are others."""
        if data is None:
            raise OptionError(
                "batches needs a problem with data: BilevelProblem(..., data=data) with functions of (x, y, data), and "
                "Batches(data, ...) of the same data"
            )
        mine, own = (jax.tree.flatten(tree) for tree in (self.data, data))
        same = mine[1] == own[1] and all(  # type: ignore[operator]
            np.array_equal(a, b) or np.array_equal(a, b, equal_nan=np.asarray(a).dtype.kind == "f")
            for a, b in zip(mine[0], own[0], strict=True)
        )
        if not same:
            raise OptionError(
                f"batches are of other data, {in_words(self.data)}, than the problem's, {in_words(data)}: give "
                "Batches(problem.data, ...)"
            )
