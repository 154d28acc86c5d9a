"""Kinks in the user's functions: which there are, and programs with something else in their place.

``abs``, ``maximum``, ``minimum``, ``relu``, and ``where`` by a comparison, are each the larger or the smaller of two
pieces; so is the square root of a square, which is an ``abs``. :func:`evaluate` runs a program and asks for what is to
stand in the place of each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from blocc._lib.arrays import AnyArray, Array, PyTree
from blocc._lib.jaxprs import is_closed_program, is_literal
from blocc._lib.precision import double_precision

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr

    from blocc.flat_problem import FlatProblem
    from blocc.problem import BilevelProblem

FUNCTIONS = ("upper", "lower", "inequality", "equality", "upper_inequality")
FOLLOWER = ("lower", "inequality", "equality")
_COMPARISONS = {"gt": 1.0, "ge": 1.0, "lt": -1.0, "le": -1.0}
_KINKS = ("abs", "max", "min", "select_n")
EXTREMES = {"reduce_max", "reduce_min"}  #: largest and smallest entries of arrays
_PLACES = ("argmax", "argmin")
_PICKED = ("picked_max", "picked_min")
ROOTS = {"sqrt", "pow"}
_SHAPING = {"convert_element_type", "reshape", "squeeze", "broadcast_in_dim", "transpose", "slice", "copy"}
_CURVED = ("exp", "log", "log1p", "tanh", "logistic")
_SAMPLES = 64


class Kink(NamedTuple):
    """One operation with a kink, at one point."""

    kind: str  #: "abs", "max", "min" or "where"
    pieces: tuple[AnyArray, AnyArray]  #: it is the larger of them, for "min" the smaller, for "where" one or the other
    side: AnyArray  #: its sign says on which side of the kink the point is


class Site(NamedTuple):
    """Where a program has a kink."""

    kind: str
    shape: tuple[int, ...]
    crossed: bool  #: whether y comes to both sides of it


#: What stands in the place of a kink; None where it stays.
Corner = Callable[[Kink], AnyArray | None]
#: The same for the largest or smallest entry along the last axis of an array.
Extreme = Callable[[str, AnyArray], AnyArray | None]


def kinks_of(problem: BilevelProblem) -> dict[str, set[str]]:
    """Which functions have operations with a kink whose argument depends on y, and which operations these are."""
    found = sites_of(problem).items()
    return {name: {site.kind for site in sites if site.crossed} for name, sites in found}


def sites_of(problem: BilevelProblem) -> dict[str, list[Site]]:
    """All kinks of the functions that y crosses any of, in the order in which :func:`evaluate` comes to them."""
    return problem.flat.once(_find)


def named(kinks: dict[str, set[str]]) -> str:
    """The kinks in words."""
    names = {"max": "maximum", "min": "minimum"}
    told = {function: ", ".join(sorted(names.get(kind, kind) for kind in kinds)) for function, kinds in kinks.items()}
    return ", ".join(f"{function} ({operations})" for function, operations in told.items())


def program_of(problem: BilevelProblem, name: str) -> tuple[ClosedJaxpr, Any]:
    """The program of one of the user's functions, and the structure of what it returns."""
    function = getattr(problem, name)
    last = () if problem.data is None else (problem.data,)
    as_float = lambda leaf: np.zeros(np.shape(leaf))  # noqa: E731
    with double_precision():
        at = (*(jax.tree.map(as_float, s.template) for s in (problem.x_set, problem.y_set)), *last)
        program, shape = jax.make_jaxpr(lambda *given: function(*given), return_shape=True)(*at)
    return program, jax.tree.structure(shape)


def run(program: tuple[ClosedJaxpr, Any], corner: Corner, *arguments: PyTree, extreme: Extreme | None = None) -> PyTree:
    """What the function of a program returns, with ``corner`` in the place of its kinks."""
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(arguments)]
    return jax.tree.unflatten(program[1], evaluate(program[0], leaves, corner, extreme=extreme))


def _find(flat: FlatProblem) -> dict[str, list[Site]]:
    found: dict[str, list[Site]] = {}
    if flat.prox is not None:  # its kinks are handled exactly
        return found
    with double_precision():
        at = (np.zeros(flat.n_x), np.zeros(flat.n_y))
        for name in FUNCTIONS:
            function = getattr(flat, name)
            program = jax.make_jaxpr(lambda x, y, f=function: f(x, y))(*at)
            if _tainted(program, [False, True])[1]:
                sites = _sites(flat, program)
                if any(site.crossed for site in sites):
                    found[name] = sites
    return found


def _sites(flat: FlatProblem, program: ClosedJaxpr) -> list[Site]:
    """Kinks, and whether random y are on both sides: the argument of an ``abs`` may never change its sign."""
    kinds: list[str] = []

    def sides(x: AnyArray, y: AnyArray) -> list[AnyArray]:
        recorded: list[Kink] = []
        evaluate(program, [x, y], recorded.append)
        kinds[:] = [kink.kind for kink in recorded]
        return [kink.side for kink in recorded]

    generator = np.random.default_rng(0)
    low, high = flat.y_set.bounds_flat()
    spread = 10.0 ** generator.uniform(-1.0, 1.5, size=(_SAMPLES, 1))
    around = flat.y_set.interior_flat() + spread * generator.standard_normal((_SAMPLES, flat.n_y))
    members = [flat.y_set.sample_flat(generator) for _ in range(_SAMPLES)]
    y = jnp.asarray(np.concatenate([np.clip(around, low, high), members]))
    look = jax.jit(jax.vmap(sides, in_axes=(None, 0)))
    sites: list[Site] = []
    for x in (flat.x_set.interior_flat(), *(flat.x_set.sample_flat(generator) for _ in range(3))):
        found = jax.device_get(look(jnp.asarray(x), y))  # tracing it fills the kinds
        crossed = [bool(((side > 0.0).any(axis=0) & (side < 0.0).any(axis=0)).any()) for side in found]
        before = [site.crossed for site in sites] or [False] * len(found)
        either = [one or other for one, other in zip(before, crossed, strict=True)]
        sites = [Site(kind, side.shape[1:], both) for kind, side, both in zip(kinds, found, either, strict=True)]
    return sites


def _inner(equation: Any) -> ClosedJaxpr | None:
    """The program inside an operation that only calls it."""
    for name in ("jaxpr", "call_jaxpr"):
        found = equation.params.get(name)
        if is_closed_program(found) and equation.primitive.name not in ("while", "scan", "cond"):
            # A function with a derivative rule of its own (a softplus) is smooth unless it is made of straight pieces.
            ruled = equation.primitive.name.startswith("custom_")
            return None if ruled and _is_curved(found) else found
    return None


def _is_curved(program: ClosedJaxpr) -> bool:
    """Whether a program has operations that no straight piece has."""
    inner = [_inner(equation) for equation in program.jaxpr.eqns]
    names = {equation.primitive.name for equation in program.jaxpr.eqns}
    return bool(names & set(_CURVED)) or any(_is_curved(each) for each in inner if each is not None)


def _tainted(program: ClosedJaxpr, given: list[bool], choices: list[bool] | None = None) -> tuple[list[bool], set[str]]:
    """Which results depend on the marked arguments, and which kinks they pass; ``choices`` are comparisons of these."""
    marks: dict[Any, bool] = dict(zip(program.jaxpr.invars, given, strict=True))
    kinds: set[str] = set()
    compared = {
        atom for atom, known in zip(program.jaxpr.invars, choices or [False] * len(given), strict=True) if known
    }

    def marked(atom: Any) -> bool:
        return not is_literal(atom) and marks.get(atom, False)

    for equation in program.jaxpr.eqns:
        inputs = [marked(atom) for atom in equation.invars]
        name, inner = equation.primitive.name, _inner(equation)
        if name in _COMPARISONS and any(inputs):
            compared.update(equation.outvars)
        if name == "select_n":
            if not is_literal(equation.invars[0]) and equation.invars[0] in compared:
                kinds.add("where")
        elif name in _KINKS and any(inputs):
            kinds.add(name)
        outputs = [any(inputs)] * len(equation.outvars)
        if inner is not None and len(inner.jaxpr.invars) == len(inputs):
            known = [not is_literal(atom) and atom in compared for atom in equation.invars]
            outputs, more = _tainted(inner, inputs, known)
            kinds |= more
        if name == "stop_gradient":
            outputs = [False] * len(outputs)
        marks.update(zip(equation.outvars, outputs, strict=True))
    return [marked(atom) for atom in program.jaxpr.outvars], kinds


def leader_sides(flat: FlatProblem, x: AnyArray, y: AnyArray) -> Array:
    """What is zero on the kinks of the leader's functions. Traceable."""
    return jnp.concatenate([all_sides(flat, name, x, y, signed=False) for name in ("upper", "upper_inequality")])


def all_sides(flat: FlatProblem, name: str, x: AnyArray, y: AnyArray, signed: bool = True) -> Array:
    """What is zero on the kinks of one of the functions, in the order in which they come. Traceable.

    Of the largest or smallest entry of an array, the differences to all: ``signed``, or those of the others' sizes.
    """
    found: list[AnyArray] = [jnp.zeros(0)]

    def record(name: str, entries: AnyArray) -> None:
        ordered = jnp.sort(entries, axis=-1)
        if name == "sort":
            found.append(jnp.diff(ordered, axis=-1))
        elif signed:
            found.append(entries - _picked(name, entries)[..., None])
        else:  # the difference to the one that is picked vanishes wherever it is picked itself
            found.append(
                ordered[..., -1:] - ordered[..., :-1] if name == "argmax" else ordered[..., 1:] - ordered[..., :1]
            )

    # In a FlatProblem the largest entry is picked by its place: see :func:`steady`.
    program = jax.make_jaxpr(getattr(flat, name))(x, y)
    evaluate(program, [x, y], lambda kink: found.append(kink.side), places=record)
    return jnp.concatenate([side.ravel() for side in found])


def has_follower_sides(flat: FlatProblem) -> bool:
    """Whether the follower's functions have a kink that y crosses."""
    return bool(set(FOLLOWER) & set(flat.once(_find)))


def follower_sides(flat: FlatProblem, x: AnyArray, y: AnyArray) -> Array:
    """What is zero on the kinks of the follower's functions that y crosses. Traceable once these are known."""
    found: list[AnyArray] = []
    known = flat.once(_find)
    for name in FOLLOWER:
        sites = iter(known.get(name, ()))

        def record(kink: Kink, sites: Iterator[Site] = sites) -> None:
            if next(sites).crossed:
                found.append(kink.side)

        if name in known:
            evaluate(jax.make_jaxpr(getattr(flat, name))(x, y), [x, y], record)
    return jnp.concatenate([side.ravel() for side in found]) if found else jnp.zeros(0)


def has_kinks(function: Callable[..., AnyArray], *shapes: jax.ShapeDtypeStruct) -> bool:
    """Whether a function has operations whose derivative jumps, for arguments of given shapes."""
    found: list[Any] = []
    note = lambda *kink: found.append(kink)  # noqa: E731
    jax.eval_shape(lambda *at: evaluate(jax.make_jaxpr(function)(*at), at, note, places=note), *shapes)
    return bool(found)


def _last(array: AnyArray, axes: Sequence[int]) -> AnyArray:
    """An array with some of its axes made one, the last."""
    kept = [axis for axis in range(array.ndim) if axis not in axes]
    return jnp.transpose(array, (*kept, *axes)).reshape(*(array.shape[axis] for axis in kept), -1)


def _picked(name: str, entries: AnyArray) -> AnyArray:
    """The largest or smallest entry along the last axis, by its place."""
    return (picked_max if name.endswith("max") else picked_min)(entries)


@jax.jit
def picked_max(entries: AnyArray) -> AnyArray:
    """The largest entry along the last axis; known by its name in programs."""
    return jnp.take_along_axis(entries, jnp.argmax(entries, axis=-1, keepdims=True), axis=-1)[..., 0]


@jax.jit
def picked_min(entries: AnyArray) -> AnyArray:
    """The smallest entry along the last axis; known by its name in programs."""
    return jnp.take_along_axis(entries, jnp.argmin(entries, axis=-1, keepdims=True), axis=-1)[..., 0]


def steady(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, with the largest and smallest entries of arrays picked by their place, and roots of squares
    as absolute values, whose derivative is finite.

    JAX differentiates them by comparing entries with the result, which a compiled program may have rounded otherwise:
    then no entry is the largest, and the derivative is infinite (JAX 0.10.2, XLA's fused multiplications on a CPU).
    """

    def wrapped(*arguments: PyTree) -> PyTree:
        program, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
        return run((program, jax.tree.structure(shape)), lambda _: None, *arguments, extreme=_picked)

    return wrapped


def evaluate(
    program: ClosedJaxpr,
    arguments: Sequence[AnyArray],
    corner: Corner,
    comparisons: list[tuple[float, AnyArray] | None] | None = None,
    extreme: Extreme | None = None,
    places: Callable[[str, AnyArray], None] | None = None,
    bases: list[AnyArray | None] | None = None,
    picked: Extreme | None = None,
) -> list[AnyArray]:
    """Run a program with ``corner`` in the place of its kinks; ``comparisons`` are those among its arguments.

    Those of its arguments that are squares have ``bases``.
    ``extreme`` stands in the place of the largest and smallest entries of arrays, ``picked`` where :func:`steady` has
    picked them, and ``places`` is told of their places.
    """
    values: dict[Any, AnyArray] = dict(zip(program.jaxpr.constvars, program.consts, strict=True))
    values.update(zip(program.jaxpr.invars, arguments, strict=True))
    # A comparison of real numbers: its sign and the difference.
    given = zip(program.jaxpr.invars, comparisons or [None] * len(arguments), strict=True)
    sides: dict[Any, tuple[float, AnyArray]] = {atom: side for atom, side in given if side is not None}
    known = zip(program.jaxpr.invars, bases or [None] * len(arguments), strict=True)
    squared: dict[Any, AnyArray] = {atom: base for atom, base in known if base is not None}

    def read(atom: Any) -> Any:  # an array, or one of JAX's literals
        return atom.val if is_literal(atom) else values[atom]

    def side(atom: Any) -> tuple[float, AnyArray] | None:
        return None if is_literal(atom) else sides.get(atom)

    for equation in program.jaxpr.eqns:
        inputs, name = [read(atom) for atom in equation.invars], equation.primitive.name
        real = all(jnp.issubdtype(jnp.asarray(value).dtype, jnp.floating) for value in inputs[:2])
        inner, kink = _inner(equation), None
        roots = [None if is_literal(atom) else squared.get(atom) for atom in equation.invars]
        base = _is_root(equation) and roots[0] is not None
        if (name == "abs" and real) or base:
            inside: Any = roots[0] if base else inputs[0]
            kink = Kink("abs", (inside, -inside), inside)
        elif name in ("max", "min") and real:
            kink = Kink(name, (inputs[0], inputs[1]), inputs[0] - inputs[1])
        elif name == "select_n" and len(inputs) == 3 and side(equation.invars[0]) is not None:
            sign, difference = sides[equation.invars[0]]
            kink = Kink("where", (inputs[2], inputs[1]), sign * difference)
        instead = None if kink is None else corner(kink)
        if base and kink is not None:
            instead = jnp.abs(kink.side) if instead is None else instead
        if name in _PLACES and real and places is not None:
            places(name, _last(inputs[0], equation.params["axes"]))
        if name == "sort" and real and places is not None:
            places(name, _last(inputs[0], (equation.params["dimension"],)))
        if name in EXTREMES and real and extreme is not None:
            instead = extreme(name, _last(inputs[0], equation.params["axes"]))
        if picked is not None and equation.params.get("name") in _PICKED:
            instead = picked(equation.params["name"], inputs[0])
        if instead is not None:
            outputs: list[Any] = [lax.convert_element_type(instead, equation.outvars[0].aval.dtype)]
        elif inner is not None and len(inner.jaxpr.invars) == len(inputs):
            compared = [side(atom) for atom in equation.invars]
            outputs = evaluate(inner, inputs, corner, compared, extreme, places, roots, picked)
        else:
            told = equation.primitive.get_bind_params(equation.params)
            functions, parameters = told if isinstance(told, tuple) else ((), told)  # JAX before 0.9 returned both
            outputs = equation.primitive.bind(*functions, *inputs, **parameters)
            outputs = list(outputs) if equation.primitive.multiple_results else [outputs]
            if name in _COMPARISONS and real:
                sides[equation.outvars[0]] = _COMPARISONS[name], inputs[0] - inputs[1]
        values.update(zip(equation.outvars, outputs, strict=True))
        if real and (square := _base(equation, inputs, roots)) is not None:
            squared[equation.outvars[0]] = square
    return [read(atom) for atom in program.jaxpr.outvars]


def _is_root(equation: Any) -> bool:
    """Whether an operation is a square root."""
    if equation.primitive.name != "pow":
        return bool(equation.primitive.name == "sqrt")
    power = equation.invars[1]
    return is_literal(power) and bool(np.all(power.val == 0.5))


def _base(equation: Any, inputs: list[Any], roots: list[AnyArray | None]) -> AnyArray | None:
    """What the result of an operation is the square of; None if it is not known to be one."""
    name, first = equation.primitive.name, roots[0] if roots else None
    if name == "square":
        return inputs[0]
    power = equation.params["y"] if name == "integer_pow" else 0
    if power > 0 and power % 2 == 0:
        return inputs[0] ** (power // 2)
    if name == "pow" and is_literal(equation.invars[1]) and np.all(equation.invars[1].val == 2.0):
        return inputs[0]
    if name == "mul" and equation.invars[0] is equation.invars[1]:
        return inputs[0]
    if name in ("mul", "div", "add"):
        other = roots[1]
        if first is not None and other is not None and name != "add":
            return first * other if name == "mul" else first / other
        for base, atom in ((first, equation.invars[1]), (other, equation.invars[0])):
            if base is None or not is_literal(atom) or (name == "div" and base is other):
                continue
            if name == "add":
                return base if np.all(atom.val == 0.0) else None
            if np.all(atom.val > 0.0):
                return base * np.sqrt(atom.val) if name == "mul" else base / np.sqrt(atom.val)
        return None
    if first is None:
        return None
    if name in _SHAPING:
        return equation.primitive.bind(first, **equation.params)
    if name == "reduce_sum":
        axes = equation.params["axes"]
        return first.sum(axes) if all(first.shape[axis] == 1 for axis in axes) else None
    return None
