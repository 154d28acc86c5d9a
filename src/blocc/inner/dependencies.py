"""What single operations of a program do to the dependencies of its arrays.

The dependencies of an array are a Boolean matrix: its entries by the variables they depend on. Operations that move
entries move its rows, sums add them up, and products with known zeros drop them. What is not known in detail is taken
to depend on everything that goes in: a pattern may have too many entries, never too few.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.sparse as sp

from blocc._lib.arrays import NDArray

#: Linear operations whose output entries depend on the input entries at the same place.
_ELEMENTWISE = frozenset(
    ("add", "add_any", "convert_element_type", "copy", "div", "mul", "neg", "reduce_precision", "select_n", "sub")
)
#: Operations that move entries, and how many of their first inputs are moved (None: all); other inputs say where.
_MOVES: dict[str, int | None] = {
    "broadcast_in_dim": 1,
    "concatenate": None,
    "dynamic_slice": 1,
    "dynamic_update_slice": 2,
    "expand_dims": 1,
    "gather": 1,
    "optimization_barrier": None,
    "pad": 2,
    "reshape": 1,
    "rev": 1,
    "slice": 1,
    "split": 1,
    "squeeze": 1,
    "transpose": 1,
}
_SCATTERS = {"scatter", "scatter-add", "scatter-sub", "scatter-mul"}


class TooDense(Exception):
    """A matrix of dependencies has more entries than are wanted."""


class Known(NamedTuple):
    """What is known of an array: its numbers, or which variables its entries depend on (None: on none)."""

    value: NDArray | None
    pattern: sp.csr_array | None


class Operations:
    """Operations on arrays that depend on ``size`` variables; no matrix may have more than ``limit`` entries."""

    def __init__(self, size: int, limit: int) -> None:
        self.size, self.limit = size, limit

    def apply(self, equation: Any, given: list[Known]) -> list[Known]:
        """What is known of the outputs of one operation, some inputs of which depend on the variables."""
        name = equation.primitive.name
        moved = _MOVES.get(name, 0)
        places = given[moved:] if moved else []
        if name in _ELEMENTWISE:
            return [Known(None, self._elementwise(equation, given))]
        if name in _MOVES and all(each.value is not None for each in places):
            return self._moved(equation, given, len(given) if moved is None else moved)
        if name == "reduce_sum":
            return [Known(None, self._reduced(equation, given[0]))]
        if name == "cumsum":
            return [Known(None, self._cumulated(equation, given[0]))]
        if name == "dot_general":
            return [Known(None, self._product(equation, given))]
        if name in _SCATTERS and given[1].value is not None:
            return [Known(None, self._scattered(equation, given))]
        return self.everything(equation, given)

    def pattern(self, known: Known, rows: int) -> sp.csr_array:
        """The dependencies of an array with so many entries."""
        return sp.csr_array((rows, self.size), dtype=bool) if known.pattern is None else known.pattern

    def _checked(self, pattern: sp.csr_array, rows: NDArray) -> sp.csr_array:
        """The given rows, where they are not too many entries; a negative number stands for an empty row."""
        lengths = np.diff(pattern.indptr)
        empty = (rows < 0) | (rows >= pattern.shape[0])
        if pattern.shape[0] == 0 or empty.all():
            return sp.csr_array((rows.size, self.size), dtype=bool)
        total = int(np.where(empty, 0, lengths[np.where(empty, 0, rows)]).sum())
        if total > self.limit:
            raise TooDense
        if not empty.any():
            return pattern[rows]
        keep = np.flatnonzero(~empty)
        choice = sp.csr_array((np.ones(keep.size, dtype=bool), (keep, rows[keep])), shape=(rows.size, pattern.shape[0]))
        return self._sums(choice, pattern)

    def _sums(self, operator: sp.csr_array, pattern: sp.csr_array) -> sp.csr_array:
        """The union of rows of ``pattern`` that each row of ``operator`` names."""
        lengths = np.diff(pattern.indptr)
        if float((operator.astype(np.int64) @ lengths).sum()) > 4.0 * self.limit:
            raise TooDense
        found = sp.csr_array(operator.astype(bool) @ pattern)
        return self._limited(found)

    def _limited(self, pattern: sp.csr_array) -> sp.csr_array:
        if pattern.nnz > self.limit:
            raise TooDense
        return pattern

    def union(self, patterns: list[sp.csr_array]) -> sp.csr_array:
        """All dependencies that any of the matrices has."""
        found = patterns[0]
        for other in patterns[1:]:
            found = found if other.nnz == 0 else other if found.nnz == 0 else sp.csr_array(found + other)
        return self._limited(found)

    def _elementwise(self, equation: Any, given: list[Known]) -> sp.csr_array:
        name, shape = equation.primitive.name, equation.outvars[0].aval.shape
        choice = given[0].value if name == "select_n" else None
        first = 1 if name == "select_n" else 0
        patterns = []
        for place, part in enumerate(given[first:]):
            if part.pattern is None:
                continue
            pattern, own = part.pattern, equation.invars[first + place].aval.shape
            if own != shape:  # sides of length one are repeated, and so are numbers
                numbers = np.arange(math.prod(own)).reshape(own)
                pattern = self._checked(pattern, np.broadcast_to(numbers, shape).ravel())
            if choice is not None:
                pattern = self._masked(pattern, np.broadcast_to(choice.astype(int) == place, shape))
            if name == "mul" and (other := given[1 - place].value) is not None:
                pattern = self._masked(pattern, np.broadcast_to(other != 0, shape))
            patterns.append(pattern)
        return self.union(patterns) if patterns else sp.csr_array((math.prod(shape), self.size), dtype=bool)

    def _masked(self, pattern: sp.csr_array, kept: NDArray) -> sp.csr_array:
        return pattern if kept.all() else self._checked(pattern, np.where(kept.ravel(), np.arange(kept.size), -1))

    def _moved(self, equation: Any, given: list[Known], moved: int) -> list[Known]:
        """Apply the operation to the numbers of the entries instead of the entries."""
        sizes = [math.prod(variable.aval.shape) for variable in equation.invars[:moved]]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        numbers = [
            np.arange(start, start + size, dtype=np.int64).reshape(variable.aval.shape)
            for start, size, variable in zip(starts[:-1], sizes, equation.invars[:moved], strict=True)
        ]
        pieces = [self.pattern(each, size) for each, size in zip(given[:moved], sizes, strict=True)]
        stacked = pieces[0] if moved == 1 else sp.csr_array(sp.vstack(pieces, format="csr", dtype=bool))
        outputs = _move(equation, numbers, [each.value for each in given[moved:]])
        return [Known(None, self._checked(stacked, np.asarray(output).ravel())) for output in outputs]

    def _reduced(self, equation: Any, operand: Known) -> sp.csr_array:
        shape, axes = equation.invars[0].aval.shape, equation.params["axes"]
        kept = tuple(1 if axis in axes else length for axis, length in enumerate(shape))
        output = np.broadcast_to(np.arange(math.prod(kept)).reshape(kept), shape).ravel()
        return self._sums(_operator(output, np.arange(output.size), (math.prod(kept), output.size)), operand.pattern)

    def _cumulated(self, equation: Any, operand: Known) -> sp.csr_array:
        shape, axis = equation.invars[0].aval.shape, equation.params["axis"]
        length, total = shape[axis], math.prod(shape)
        if total * (length + 1) / 2 > self.limit:
            raise TooDense
        numbers = np.moveaxis(np.arange(total).reshape(shape), axis, 0).reshape(length, -1)
        later, earlier = np.tril_indices(length)
        if equation.params.get("reverse"):
            later, earlier = earlier, later
        return self._sums(_operator(numbers[later].ravel(), numbers[earlier].ravel(), (total, total)), operand.pattern)

    def _product(self, equation: Any, given: list[Known]) -> sp.csr_array:
        """``dot_general``: each side is a linear operation on the other, with the zeros of what is known."""
        contracted, batched = equation.params["dimension_numbers"]
        shapes = [variable.aval.shape for variable in equation.invars]
        arranged, frees = [], []
        for side in (0, 1):
            free = [axis for axis in range(len(shapes[side])) if axis not in (*contracted[side], *batched[side])]
            numbers = np.arange(math.prod(shapes[side])).reshape(shapes[side])
            lengths = [
                math.prod(shapes[side][axis] for axis in axes) for axes in (batched[side], free, contracted[side])
            ]
            arranged.append(numbers.transpose([*batched[side], *free, *contracted[side]]).reshape(lengths))
            frees.append(lengths[1])
        batch, _, inner = arranged[0].shape
        rows = math.prod(equation.outvars[0].aval.shape)
        output = np.arange(rows).reshape(batch, frees[0], frees[1])
        patterns = []
        for side in (0, 1):
            if given[side].pattern is None:
                continue
            mine, other = arranged[side], arranged[1 - side]
            factor = given[1 - side].value
            entries = np.ones(other.shape, dtype=bool) if factor is None else (factor.ravel()[other] != 0)
            if int(entries.sum()) * frees[side] > 4 * self.limit:
                raise TooDense
            b, o, k = np.nonzero(entries)
            out = output if side == 0 else output.transpose(0, 2, 1)
            operator = _operator(out[b, :, o].ravel(), mine[b, :, k].ravel(), (rows, mine.size))
            patterns.append(self._sums(operator, given[side].pattern))
        assert inner == arranged[1].shape[2]
        return self.union(patterns)

    def _scattered(self, equation: Any, given: list[Known]) -> sp.csr_array:
        operand, indices, updates = given
        assert indices.value is not None
        at = indices.value
        total, count = (math.prod(equation.invars[place].aval.shape) for place in (0, 2))
        params = {name: equation.params[name] for name in ("dimension_numbers", "mode")}
        zeros = np.zeros(equation.invars[0].aval.shape)

        def add(values: Any) -> Any:
            return jax.lax.scatter_add(zeros, at, values, **params)

        # The transposed operation brings to each update the number of the entry that it goes to; 0 is nowhere.
        _, pull = jax.vjp(add, np.zeros(equation.invars[2].aval.shape))
        target = np.asarray(pull(np.arange(1.0, total + 1.0).reshape(zeros.shape))[0]).ravel().astype(int) - 1
        inside = target >= 0
        operator = _operator(target[inside], np.flatnonzero(inside), (total, count))
        return self.union([self.pattern(operand, total), self._sums(operator, self.pattern(updates, count))])

    def everything(self, equation: Any, given: list[Known]) -> list[Known]:
        """Every entry of every output depends on all that any input depends on."""
        columns = np.unique(np.concatenate([each.pattern.indices for each in given if each.pattern is not None]))
        outputs = []
        for variable in equation.outvars:
            rows = math.prod(variable.aval.shape)
            if rows * columns.size > self.limit:
                raise TooDense
            starts = np.arange(rows + 1) * columns.size
            entries = (np.ones(rows * columns.size, dtype=bool), np.tile(columns, rows), starts)
            outputs.append(Known(None, sp.csr_array(entries, shape=(rows, self.size))))
        return outputs


def _operator(rows: NDArray, columns: NDArray, shape: tuple[int, int]) -> sp.csr_array:
    return sp.csr_array((np.ones(rows.size, dtype=bool), (rows, columns)), shape=shape)


def _move(equation: Any, numbers: list[NDArray], places: list[Any]) -> Sequence[Any]:
    """The operation on arrays of whole numbers: in NumPy where it is simple, which spares a compilation."""
    name, p, shape = equation.primitive.name, equation.params, equation.outvars[0].aval.shape
    simple: dict[str, Callable[[], Any]] = {
        "reshape": lambda: numbers[0].reshape(shape),
        "squeeze": lambda: numbers[0].reshape(shape),
        "expand_dims": lambda: numbers[0].reshape(shape),
        "transpose": lambda: numbers[0].transpose(p["permutation"]),
        "rev": lambda: np.flip(numbers[0], p["dimensions"]),
        "concatenate": lambda: np.concatenate(numbers, p["dimension"]),
        "slice": lambda: numbers[0][
            tuple(map(slice, p["start_indices"], p["limit_indices"], p["strides"] or (1,) * len(shape)))
        ],
    }
    if name == "broadcast_in_dim":
        lengths = np.ones(len(shape), dtype=int)
        lengths[list(p["broadcast_dimensions"])] = numbers[0].shape
        return [np.broadcast_to(numbers[0].reshape(lengths), shape)]
    if (name == "reshape" and p.get("dimensions") is None) or (name in simple and name != "reshape"):
        return [simple[name]()]
    if name == "optimization_barrier":
        return numbers
    if name == "gather":
        p = {**p, "fill_value": -1}
    found = equation.primitive.bind(*numbers, *places, **p)
    return found if equation.primitive.multiple_results else [found]
