"""A function of a long vector as one of few of its entries, where all others are zero.

The answer of a follower with an L1 term has few entries other than zero. What a function does with the many zeros need
not be computed: ``A y`` takes a few columns of A, and a sum over y few terms. So the program of the function is
followed operation by operation. Operations by entries are done for the few alone, sums and products with a vector that
is zero elsewhere too, and every other operation on whole vectors: up to rounding the numbers are those of the function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Array
from blocc._lib.jaxprs import is_literal
from blocc.flat_problem import FlatProblem
from blocc.sets import Reals

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr

#: Operations by entries that lead from zero to zero.
_KEEP_ZERO = frozenset(
    {"abs", "asinh", "atan", "convert_element_type", "copy", "expm1", "integer_pow", "log1p", "neg", "sign", "sin"}
    | {"reduce_precision", "sinh", "sqrt", "square", "stop_gradient", "tan", "tanh"}
)
#: Operations by entries of several vectors, which are zero where all of those are.
_TOGETHER = frozenset(("add", "add_any", "max", "min", "sub", "select_n"))
#: Other operations by entries.
_BY_ENTRIES = frozenset(
    {"and", "clamp", "cos", "cosh", "div", "eq", "exp", "ge", "gt", "le", "log", "logistic", "lt", "mul", "ne", "not"}
    | {"or", "pow"}
)
_CALLS = frozenset(("jit", "pjit", "closed_call"))

#: Entries from which on it pays to look at few of them: at most so many, and at most this share of all.
_LONG, _MOST, _SHARE = 500, 3000, 0.1
#: Halvings of the size from which an entry is wanted, where too many are.
_HALVINGS = 30


def most_places(flat: FlatProblem) -> int:
    """How many entries of the follower's answer count as few; 0 where nothing keeps the others at zero."""
    return min(_MOST, int(_SHARE * flat.n_y)) if flat.prox is not None and flat.n_y >= _LONG else 0


def few_places(kept: Array, wanted: Array, most: int) -> Array:
    """The places of entries that are not zero in ``kept``, and of the largest in ``wanted`` as far as there is room."""
    sizes = jnp.abs(wanted)

    def chosen(level: Array) -> Array:
        return (kept != 0.0) | (sizes > level)

    def lower(_: int, level: Array) -> Array:
        return jnp.where(jnp.sum(chosen(0.5 * level)) <= most, 0.5 * level, level)

    level = jax.lax.fori_loop(0, _HALVINGS, lower, jnp.max(sizes, initial=0.0))
    level = jnp.where(jnp.sum(chosen(jnp.zeros(()))) <= most, 0.0, level)
    return jnp.nonzero(chosen(level), size=most, fill_value=kept.size)[0]


@dataclass(eq=False)
class Restriction:
    """The entries of a vector at ``places``; places beyond its ``size`` hold nothing."""

    places: Array
    size: int
    #: Parts of arrays that were taken before, by the identity of the arrays, which are kept so that no other gets it.
    _taken: dict[tuple[int, int], tuple[Array, Array]] = field(default_factory=dict)
    _remembers: bool = False

    @property
    def count(self) -> int:
        """How many places there are."""
        return int(self.places.shape[0])

    def take(self, array: Array, axis: int = 0) -> Array:
        """The entries of an array along one axis; zero where a place holds nothing."""
        known = self._taken.get((id(array), axis))
        if known is not None:
            return known[1]
        part = jnp.take(array, self.places, axis=axis, mode="fill", fill_value=0)
        if self._remembers:
            self._taken[id(array), axis] = array, part
        return part

    def put(self, values: Array) -> Array:
        """The whole vector with these values at the places."""
        return jnp.zeros(self.size, values.dtype).at[self.places].set(values, mode="drop")

    def within(self, start: int, size: int) -> Restriction:
        """The same entries of a part of the vector."""
        inside = (self.places >= start) & (self.places < start + size)
        return Restriction(jnp.where(inside, self.places - start, size), size)

    def of(self, function: Callable[..., Array], *shapes: Any) -> Callable[..., Any]:
        """``function(x, y, *others)`` as a function of x, the entries of y, and the others.

        Where it returns a vector like y, the entries of that are returned. ``shapes`` are those of its arguments. Parts
        of large arrays are taken now, so that a loop which calls it does not take them again and again.
        """
        program = jax.make_jaxpr(function)(*shapes)

        def restricted(x: Array, values: Array, *others: Any) -> Any:
            known = jnp.where(self.places < self.size, values, 0.0)
            few = _Few(self, known, True, lambda: self.put(known))
            (found,) = _run(program, [jnp.asarray(x), few, *map(jnp.asarray, others)])
            if not isinstance(found, _Few) and found.shape != (self.size,):
                return found
            entries = found.values if isinstance(found, _Few) and found.of is self else self.take(_whole(found))
            return jnp.where(self.places < self.size, entries, 0.0)

        self._remembers = True
        restricted(*(jnp.zeros(shape.shape if k != 1 else self.count, shape.dtype) for k, shape in enumerate(shapes)))
        self._remembers = False
        return restricted


def restricted_to(flat: FlatProblem, few: Restriction) -> FlatProblem:
    """The problem over few entries of y, for a follower without coupled constraints and with simple terms."""
    number = jnp.zeros(()).dtype
    vector = lambda size: jax.ShapeDtypeStruct((size,), number)  # noqa: E731
    x, y, scalar = vector(flat.n_x), vector(flat.n_y), jax.ShapeDtypeStruct((), number)
    catch, prox = flat.catch, flat.prox
    assert prox is not None, "only simple terms make entries zero"
    caught = None if catch is None else few.of(lambda pattern, point: catch(point, pattern), y, y)
    return replace(
        flat,
        upper=few.of(flat.upper, x, y),
        lower=few.of(flat.lower, x, y),
        upper_inequality=few.of(flat.upper_inequality, x, y) if flat.n_upper_inequality else flat.upper_inequality,
        y_set=Reals(few.count),
        prox=few.of(prox, x, y, scalar),
        catch=None if caught is None else lambda point, pattern: caught(few.put(pattern), point),
    )


@dataclass(frozen=True, eq=False)
class _Few:
    """A vector of which few entries are known."""

    of: Restriction
    values: Array
    zero: bool  #: whether all others are zero
    whole: Callable[[], Array]

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.of.size,)


@dataclass(frozen=True, eq=False)
class _Same:
    """A vector of equal entries."""

    entry: Array
    shape: tuple[int, ...]

    def whole(self) -> Array:
        return jnp.broadcast_to(self.entry, self.shape)


def _whole(value: Any) -> Array:
    found: Array = value.whole() if isinstance(value, _Few | _Same) else value
    return found


def _run(program: ClosedJaxpr, arguments: Sequence[Any]) -> list[Any]:
    inner = program.jaxpr
    known: dict[Any, Any] = dict(zip(inner.constvars, program.consts, strict=True))
    known.update(zip(inner.invars, arguments, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if is_literal(atom) else known[atom]

    for equation in inner.eqns:
        known.update(zip(equation.outvars, _apply(equation, [read(atom) for atom in equation.invars]), strict=True))
    return [read(atom) for atom in inner.outvars]


def _apply(equation: Any, given: list[Any]) -> list[Any]:
    """The outputs of one operation."""
    name = equation.primitive.name
    few = [each for each in given if isinstance(each, _Few)]
    if few and name in _CALLS:
        return _run(equation.params["jaxpr"], given)
    if name == "broadcast_in_dim" and np.shape(given[0]) == () and len(equation.params["shape"]) == 1:
        return [_Same(given[0], equation.params["shape"])]
    found = _reduced(equation, given, few[0]) if few else None
    return _bound(equation, given) if found is None else [found]


def _bound(equation: Any, given: Sequence[Any]) -> list[Any]:
    """The operation itself, on whole arrays."""
    asked: Any = equation.primitive.get_bind_params(equation.params)
    functions, params = ((), asked) if isinstance(asked, dict) else asked  # JAX before 0.10 keeps functions apart
    found = equation.primitive.bind(*functions, *map(_whole, given), **params)
    return list(found) if equation.primitive.multiple_results else [found]


def _reduced(equation: Any, given: list[Any], first: _Few) -> Any:
    """The output of an operation that needs few entries; None for one that needs whole vectors."""
    name, params = equation.primitive.name, equation.params
    if name in _KEEP_ZERO | _TOGETHER | _BY_ENTRIES:
        return _by_entries(equation, given, first)
    if name == "reduce_sum" and first.zero:
        return jnp.sum(first.values)
    if name == "dot_general":
        return _product(given, params)
    if name == "slice" and params["strides"] in (None, (1,)):
        start, end = params["start_indices"][0], params["limit_indices"][0]
        part = first.of.within(start, end - start)
        values = jnp.where(part.places < part.size, first.values, jnp.zeros((), first.values.dtype))
        return _Few(part, values, first.zero, lambda: first.whole()[start:end])
    if name == "scatter" and np.shape(given[2]) == np.shape(given[0]) and np.size(given[1]) == 0:
        return given[2]  # every entry is replaced
    return None


def _by_entries(equation: Any, given: list[Any], first: _Few) -> _Few | None:
    """The few entries of what an operation by entries returns."""
    name, of = equation.primitive.name, first.of
    parts: list[Array] = []
    for each in given:
        if isinstance(each, _Few):
            if each.of is not of:
                return None
            parts.append(each.values)
        elif isinstance(each, _Same):
            parts.append(jnp.broadcast_to(each.entry, first.values.shape))
        else:
            parts.append(each if np.shape(each) == () else of.take(each))
    zeros = [isinstance(each, _Few) and each.zero for each in given]
    if name in _KEEP_ZERO:
        zero = zeros[0] and not (name == "integer_pow" and equation.params["y"] <= 0)
    elif name in _TOGETHER:
        zero = all(zeros[1:] if name == "select_n" else zeros)
    else:
        zero = (name == "mul" and any(zeros)) or (name == "div" and zeros[0] and not zeros[1])
    return _Few(of, _bound(equation, parts)[0], zero, lambda: _bound(equation, given)[0])


def _product(given: list[Any], params: dict[str, Any]) -> Array | None:
    """A product with a vector that is zero but for few entries."""
    axes, batch = params["dimension_numbers"]
    side = next((k for k in (0, 1) if isinstance(given[k], _Few) and given[k].zero), None)
    if side is None or any(batch) or len(axes[0]) != 1:
        return None
    few, other = given[side], given[1 - side]
    if isinstance(other, _Few):
        return jnp.dot(few.values, other.values) if other.of is few.of else None
    axis = axes[1 - side][0]
    return jnp.tensordot(few.values, few.of.take(_whole(other), axis), axes=((0,), (axis,)))
