"""Functions that vary in jumps alone: their derivative is zero everywhere, so nothing shows where they fall.

The error rate of a classifier is the natural example. Read from the program: ``sign``, ``round``, comparisons and
``argmax`` pass no derivative on, and what depends on a variable only through them varies with it in jumps alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.jaxprs import is_literal, is_program
from blocc._lib.precision import double_precision
from blocc.flat_problem import FlatProblem
from blocc.problem import BilevelProblem
from blocc.result import Result, Status

#: Operations on real numbers whose derivative is zero wherever there is one. Others that return no real number are too.
_FLAT = {"sign", "floor", "ceil", "round", "stop_gradient"}
#: Operations that only run the program inside them.
_CALLS = {"jit", "pjit", "closed_call", "core_call", "remat", "checkpoint", "remat2"}
_NAMES = ("x", "y")
_CURE = "use a smooth function in its place, such as the logistic, cross-entropy or squared loss for an error rate"

#: Of one array: the arguments that it depends on, and those of them whose derivative can be other than zero.
_Marks = tuple[frozenset[str], frozenset[str]]
_NONE: _Marks = (frozenset(), frozenset())
#: Of the question whether something is not a number: what stands for that is no value (``heaviside`` has it).
_NO_NUMBER: _Marks = (frozenset({"nan"}), frozenset())


def jumps_of(flat: FlatProblem, name: str = "upper") -> tuple[str, ...]:
    """Of which of x and y one of the functions varies in jumps alone."""
    found = flat.once(_find)[name]
    return tuple(each for each in _NAMES if each in found[0] - found[1])


def in_words(flat: FlatProblem, name: str = "upper") -> str:
    """The same in a sentence; empty where there are none."""
    of = jumps_of(flat, name)
    if not of:
        return ""
    both = " and ".join(of)
    return f"{name} varies with {both} in jumps alone, so its derivative in {both} is zero everywhere: {_CURE}"


def with_jumps(problem: BilevelProblem, result: Result) -> Result:
    """The result with a sentence about functions of few digits, and about an upper level without derivatives.

    Where they show nothing of it at all, no descent led to x, and a derivative of zero is no sign of an end.
    """
    if few := problem.single_precision():
        result = replace(result, message=f"{result.message} But {few}.")
    words = in_words(problem.flat)
    if not words:
        return result
    if result.status is Status.CONVERGED and not problem.flat.once(_find)["upper"][1]:
        return replace(result, status=Status.STALLED, message=f"x could not be improved, as {words}.")
    return replace(result, message=f"{result.message} But {words}.")


def _find(flat: FlatProblem) -> dict[str, _Marks]:
    with double_precision():
        at = (np.zeros(flat.n_x), np.zeros(flat.n_y))
        programs = {
            name: jax.make_jaxpr(lambda x, y, name=name: getattr(flat, name)(x, y))(*at)
            for name in ("upper", "lower", "upper_inequality")
        }
    given = [(frozenset((name,)), frozenset((name,))) for name in _NAMES]
    return {name: _joined(_propagate(program, given)) for name, program in programs.items()}


def _joined(marks: list[_Marks]) -> _Marks:
    return frozenset().union(*(one for one, _ in marks)), frozenset().union(*(other for _, other in marks))


def _propagate(program: Any, given: list[_Marks]) -> list[_Marks]:
    """Marks of what a program returns, from those of its arguments."""
    inner = getattr(program, "jaxpr", program)
    known: dict[Any, _Marks] = dict.fromkeys(inner.constvars, _NONE) | dict(zip(inner.invars, given, strict=True))
    read = lambda atom: _NONE if is_literal(atom) else known[atom]  # noqa: E731
    for equation in inner.eqns:
        marks, name = [read(atom) for atom in equation.invars], equation.primitive.name
        body = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
        if name in _CALLS and is_program(body):
            found = _propagate(body, marks)
        elif name == "cond":
            ways = [_propagate(branch, marks[1:]) for branch in equation.params["branches"]]
            found = [_joined([(marks[0][0], frozenset()), *each]) for each in zip(*ways, strict=True)]
        elif name == "ne" and equation.invars[0] is equation.invars[1]:
            found = [_NO_NUMBER]
        elif name == "select_n" and marks[0] == _NO_NUMBER:
            found = [marks[1]]
        else:  # loops and functions with rules of their own are taken to pass derivatives on
            reached, smooth = _joined(marks)
            found = [(reached, frozenset() if name in _FLAT else smooth)] * len(equation.outvars)
        for atom, (reached, smooth) in zip(equation.outvars, found, strict=True):
            real = jnp.issubdtype(getattr(atom.aval, "dtype", np.float64), jnp.inexact)
            known[atom] = reached, smooth if real else frozenset()
    return [read(atom) for atom in inner.outvars]
