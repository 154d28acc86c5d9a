"""Functions with kinks, made smooth: ``abs``, ``maximum``, ``minimum``, ``where`` and ``relu`` with rounded corners.

A Newton method below and gradients above need derivatives that do not jump. ``abs(z)`` becomes
``sqrt(z^2 + e^2) - e``, the larger of two numbers the mean of their sum and the rounded distance between them, and a
choice by a comparison the larger or the smaller of its branches. For convex functions that is convex again, and below
the function by at most a few ``e``: a constraint is relaxed by as much. The width ``e`` is an argument of the compiled
program, so that solvers may come from wide corners to sharp ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from blocc._lib.arrays import AnyArray, PyTree
from blocc._lib.precision import double_precision
from blocc.flat_problem import FlatProblem
from blocc.problem import BilevelProblem

#: Widths of the corners: the last is what an answer is computed with, the others lead there.
WIDTHS = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
FUNCTIONS = ("upper", "lower", "inequality", "equality", "upper_inequality")
_COMPARISONS = {"gt": 1.0, "ge": 1.0, "lt": -1.0, "le": -1.0}
_KINKS = ("abs", "max", "min", "select_n")
_CURVED = ("exp", "log", "log1p", "tanh", "logistic")
_SAMPLES = 64


def _round(z: AnyArray, width: AnyArray) -> AnyArray:
    return jnp.sqrt(z * z + width * width)


def _inner(equation: Any) -> ClosedJaxpr | None:
    """The program inside an operation that only calls it."""
    for name in ("jaxpr", "call_jaxpr"):
        found = equation.params.get(name)
        if isinstance(found, ClosedJaxpr) and equation.primitive.name not in ("while", "scan", "cond"):
            # A function with a derivative rule of its own (a softplus) is smooth unless it is made of straight pieces.
            ruled = equation.primitive.name.startswith("custom_")
            return None if ruled and _is_curved(found) else found
    return None


def _is_curved(program: ClosedJaxpr) -> bool:
    """Whether a program has operations that no straight piece has."""
    inner = [_inner(equation) for equation in program.jaxpr.eqns]
    names = {equation.primitive.name for equation in program.jaxpr.eqns}
    return bool(names & set(_CURVED)) or any(_is_curved(each) for each in inner if each is not None)


def kinks_of(problem: BilevelProblem) -> dict[str, set[str]]:
    """Which functions have operations with a kink whose argument depends on y, and which operations these are."""
    return problem.flat.once(_find)


def named(kinks: dict[str, set[str]]) -> str:
    """The kinks in words."""
    names = {"max": "maximum", "min": "minimum"}
    told = {function: ", ".join(sorted(names.get(kind, kind) for kind in kinds)) for function, kinds in kinks.items()}
    return ", ".join(f"{function} ({operations})" for function, operations in told.items())


def _find(flat: FlatProblem) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    if flat.prox is not None:  # its kinks are handled exactly
        return found
    with double_precision():
        at = (np.zeros(flat.n_x), np.zeros(flat.n_y))
        for name in FUNCTIONS:
            function = getattr(flat, name)
            program = jax.make_jaxpr(lambda x, y, f=function: f(x, y))(*at)
            if _tainted(program, [False, True])[1] and (kinds := _crossed(flat, program)):
                found[name] = kinds
    return found


def _crossed(flat: FlatProblem, program: ClosedJaxpr) -> set[str]:
    """Kinks with y on both sides, among random ones: the argument of an ``abs`` may never change its sign."""
    labels: list[str] = []

    def arguments(x: AnyArray, y: AnyArray) -> list[AnyArray]:
        recorded: list[tuple[str, AnyArray]] = []
        _evaluate(program, [x, y], jnp.asarray(0.0), record=recorded)
        labels[:] = [label for label, _ in recorded]
        return [jnp.atleast_1d(argument) for _, argument in recorded]

    generator = np.random.default_rng(0)
    low, high = flat.y_set.bounds_flat()
    spread = 10.0 ** generator.uniform(-1.0, 1.5, size=(_SAMPLES, 1))
    around = flat.y_set.interior_flat() + spread * generator.standard_normal((_SAMPLES, flat.n_y))
    members = [flat.y_set.sample_flat(generator) for _ in range(_SAMPLES)]
    y = jnp.asarray(np.concatenate([np.clip(around, low, high), members]))
    crossed: set[str] = set()
    look = jax.jit(jax.vmap(arguments, in_axes=(None, 0)))
    for x in (flat.x_set.interior_flat(), *(flat.x_set.sample_flat(generator) for _ in range(3))):
        found = jax.device_get(look(jnp.asarray(x), y))  # tracing it fills the labels
        for label, values in zip(labels, found, strict=True):
            if ((values > 0.0).any(axis=0) & (values < 0.0).any(axis=0)).any():
                crossed.add(label)
    return crossed


def _tainted(program: ClosedJaxpr, given: list[bool], choices: list[bool] | None = None) -> tuple[list[bool], set[str]]:
    """Which results depend on the marked arguments, and which kinks they pass; ``choices`` are comparisons of these."""
    marks: dict[Any, bool] = dict(zip(program.jaxpr.invars, given, strict=True))
    kinds: set[str] = set()
    compared = {
        atom for atom, known in zip(program.jaxpr.invars, choices or [False] * len(given), strict=True) if known
    }

    def marked(atom: Any) -> bool:
        return not isinstance(atom, Literal) and marks.get(atom, False)

    for equation in program.jaxpr.eqns:
        inputs = [marked(atom) for atom in equation.invars]
        name, inner = equation.primitive.name, _inner(equation)
        if name in _COMPARISONS and any(inputs):
            compared.update(equation.outvars)
        if name == "select_n":
            if not isinstance(equation.invars[0], Literal) and equation.invars[0] in compared:
                kinds.add("where")
        elif name in _KINKS and any(inputs):
            kinds.add(name)
        outputs = [any(inputs)] * len(equation.outvars)
        if inner is not None and len(inner.jaxpr.invars) == len(inputs):
            known = [not isinstance(atom, Literal) and atom in compared for atom in equation.invars]
            outputs, more = _tainted(inner, inputs, known)
            kinds |= more
        if name == "stop_gradient":
            outputs = [False] * len(outputs)
        marks.update(zip(equation.outvars, outputs, strict=True))
    return [marked(atom) for atom in program.jaxpr.outvars], kinds


def _evaluate(
    program: ClosedJaxpr,
    arguments: Sequence[AnyArray],
    width: AnyArray,
    comparisons: list[tuple[float, AnyArray] | None] | None = None,
    record: list[tuple[str, AnyArray]] | None = None,
) -> list[AnyArray]:
    """Run a program with its corners rounded; ``comparisons`` are those among its arguments.

    ``record`` collects what decides at every corner: its sign is the side.
    """
    note = (lambda label, argument: None) if record is None else (lambda *pair: record.append(pair))
    values: dict[Any, AnyArray] = dict(zip(program.jaxpr.constvars, program.consts, strict=True))
    values.update(zip(program.jaxpr.invars, arguments, strict=True))
    # A comparison of real numbers: its sign and the difference.
    given = zip(program.jaxpr.invars, comparisons or [None] * len(arguments), strict=True)
    sides: dict[Any, tuple[float, AnyArray]] = {atom: side for atom, side in given if side is not None}

    def read(atom: Any) -> Any:  # an array, or one of JAX's literals
        return atom.val if isinstance(atom, Literal) else values[atom]

    def side(atom: Any) -> tuple[float, AnyArray] | None:
        return None if isinstance(atom, Literal) else sides.get(atom)

    for equation in program.jaxpr.eqns:
        inputs, name = [read(atom) for atom in equation.invars], equation.primitive.name
        real = all(jnp.issubdtype(jnp.asarray(value).dtype, jnp.floating) for value in inputs[:2])
        inner = _inner(equation)
        if name == "abs" and real:
            note("abs", inputs[0])
            outputs = [_round(inputs[0], width) - width]
        elif name in ("max", "min") and real:
            sign = 1.0 if name == "max" else -1.0
            note(name, inputs[0] - inputs[1])
            outputs = [0.5 * (inputs[0] + inputs[1] + sign * (_round(inputs[0] - inputs[1], width) - width))]
        elif name == "select_n" and len(inputs) == 3 and side(equation.invars[0]) is not None:
            sign, difference = sides[equation.invars[0]]
            # Branches that meet at the switch are the larger or the smaller of the two around it.
            note("where", difference)
            apart = inputs[2] - inputs[1]
            larger = jax.lax.stop_gradient(jnp.where(apart * sign * difference < 0.0, -1.0, 1.0))
            outputs = [0.5 * (inputs[1] + inputs[2] + larger * (_round(apart, width) - width))]
        elif inner is not None and len(inner.jaxpr.invars) == len(inputs):
            outputs = _evaluate(inner, inputs, width, [side(atom) for atom in equation.invars], record)
        else:
            told = equation.primitive.get_bind_params(equation.params)
            functions, parameters = told if isinstance(told, tuple) else ((), told)  # JAX before 0.9 returned both
            outputs = equation.primitive.bind(*functions, *inputs, **parameters)
            outputs = list(outputs) if equation.primitive.multiple_results else [outputs]
            if name in _COMPARISONS and real:
                sides[equation.outvars[0]] = _COMPARISONS[name], inputs[0] - inputs[1]
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in program.jaxpr.outvars]


class _Smoothed(BilevelProblem):
    """A problem whose data are those of another one and the width of the corners."""

    def _flat_over(self, data: PyTree) -> FlatProblem:
        def easier(sharp: PyTree) -> list[PyTree]:
            return [(sharp[0], np.asarray(width)) for width in WIDTHS[:-1]]

        return replace(super()._flat_over(data), easier=easier)


def smoothed(problem: BilevelProblem) -> BilevelProblem:
    """The same problem with corners as wide as the last of ``WIDTHS``; x, y and multipliers keep their structure."""
    data = (() if problem.data is None else problem.data, np.asarray(WIDTHS[-1]))
    made: BilevelProblem = problem.shared.store.get((_Smoothed,), lambda: _with_round_corners(problem, data))
    return made.with_data(data)


def _with_round_corners(problem: BilevelProblem, data: PyTree) -> BilevelProblem:
    def rounded(name: str) -> Callable[..., Any] | None:
        function = getattr(problem, name)
        if function is None:
            return None
        last = () if problem.data is None else (problem.data,)
        as_float = lambda leaf: np.zeros(np.shape(leaf))  # noqa: E731
        with double_precision():
            at = (*(jax.tree.map(as_float, s.template) for s in (problem.x_set, problem.y_set)), *last)
            program, shape = jax.make_jaxpr(lambda *given: function(*given), return_shape=True)(*at)
        structure = jax.tree.structure(shape)

        def smooth(x: PyTree, y: PyTree, data: PyTree) -> PyTree:
            given, width = data
            own = () if problem.data is None else (given,)
            leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves((x, y, *own))]
            return jax.tree.unflatten(structure, _evaluate(program, leaves, width))

        return smooth

    return _Smoothed(
        **{name: rounded(name) for name in FUNCTIONS},  # type: ignore[arg-type]
        x_set=problem.x_set,
        y_set=problem.y_set,
        lower_terms=[term.over(lambda data: data[:1] * (problem.data is not None)) for term in problem.lower_terms],
        data=data,
        name=problem.name,
    )
