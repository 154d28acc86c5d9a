"""How the answer changes with the data: ``Result.sensitivity``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import PyTree
from blocc._lib.precision import double_precision
from blocc.derivatives.leader import FlatAnswer, RegularAnswer, differentiable_answer, regular_answer
from blocc.errors import OptionError, SensitivityError
from blocc.flat_problem import FlatProblem
from blocc.lagrangian import figures, zero_multipliers
from blocc.problem import BilevelProblem
from blocc.result import Result, brief

#: Values that differ by no more than this, relative to their size, are the same.
_SAME_VALUE = 1e-6
#: Derivatives beyond so many (1.6 GB) are not formed all at once.
_MOST_NUMBERS = 2e8


@dataclass(frozen=True)
class Sensitivity:
    """Derivatives of the answer in the data, at a regular answer. ``print`` shows them.

    Each is a pytree like x, y or the value, with a pytree like the data in the place of every array; there, an array
    of the shape of x (or y) followed by the shape of the data. None where data are whole numbers.
    """

    x: PyTree  #: d x* / d data
    y: PyTree  #: d y* / d data
    value: PyTree  #: d f(x*, y*) / d data
    name: str = "bilevel problem"

    def __repr__(self) -> str:
        lines = [f"{self.name}: derivatives of the answer in the data"]
        for label, tree in (("x", self.x), ("y", self.y), ("value", self.value)):
            for path, leaf in jax.tree.leaves_with_path(tree):
                lines.append(f"  d {label} / d data{jax.tree_util.keystr(path)}  {brief(leaf)}")
        return "\n".join(lines)


def sensitivity(problem: BilevelProblem, result: Result) -> Sensitivity:
    """Derivatives of x*, y* and f(x*, y*) in the problem's data, by the KKT conditions of both levels.

    :raises SensitivityError: where the answer has none, or the problem no data, with the reason
    """
    if not isinstance(problem, BilevelProblem):
        raise OptionError(f"problem must be a BilevelProblem, got {type(problem).__name__}")
    problem.renew()
    problem = problem.lifted
    if problem.data is None or not any(leaf.dtype.kind == "f" for leaf in jax.tree.leaves(problem.data)):
        raise SensitivityError(
            "the answer has no derivatives, because the problem has no real numbers as data: build it with data=..., "
            "which its functions get as a third argument"
        )
    inputs = sum(leaf.size for leaf in jax.tree.leaves(problem.data) if leaf.dtype.kind == "f")
    outputs = problem.x_set.size + problem.y_set.size + 1
    if inputs * outputs > _MOST_NUMBERS:
        raise SensitivityError(
            f"all derivatives of {outputs:,} numbers in {inputs:,} numbers of data would fill memory: give as data "
            "only what you want derivatives in, or use jax.grad on a function of solve_differentiable's answer"
        )
    _check_solved(problem, result)
    known = regular_answer(problem, result)
    with double_precision():
        jacobians: Any = problem.flat.program(_jacobians)(known)
    return Sensitivity(
        _structured(problem, problem.x_set.template, jacobians.x),
        _structured(problem, problem.y_set.template, jacobians.y),
        _structured(problem, np.zeros(()), jacobians.value),
        problem.name,
    )


def _check_solved(problem: BilevelProblem, result: Result) -> None:
    """The values of both levels must be those that the result tells."""
    flat = problem.flat
    x, y = flat.x_set.ravel(result.x, "result.x"), flat.y_set.ravel(result.y, "result.y")
    with double_precision():
        told = figures(flat, x, y, zero_multipliers(flat))
    for name, now, then in (("upper", told.upper, result.upper_value), ("lower", told.lower, result.lower_value)):
        if abs(float(now) - then) > _SAME_VALUE * max(1.0, abs(then)):
            raise SensitivityError(
                f"this is not the problem that was solved, or it has other data: {name}(x, y) is {float(now):.6g} at "
                f"the answer, where the result says {then:.6g}"
            )


def _jacobians(flat: FlatProblem, known: RegularAnswer) -> FlatAnswer:
    """For each of x, y and the value a list: the Jacobian in each leaf of the data that holds real numbers."""
    leaves, structure = jax.tree.flatten(flat.data)
    real = [index for index, leaf in enumerate(leaves) if np.issubdtype(leaf.dtype, np.floating)]

    def answer(numbers: list[PyTree]) -> FlatAnswer:
        full = list(leaves)
        for index, number in zip(real, numbers, strict=True):
            full[index] = number
        found = differentiable_answer(flat, known, jax.tree.unflatten(structure, full))
        seen = jax.tree.leaves(flat.y_set.unravel(found.y))  # without the variables that stand for norms
        return found._replace(y=jnp.concatenate([jnp.ravel(leaf) for leaf in seen]))

    return jax.jacrev(answer)([leaves[index] for index in real])


def _structured(problem: BilevelProblem, template: PyTree, jacobians: list[np.ndarray]) -> PyTree:
    """Jacobians of a flat vector in flat pieces, as a tree of ``template`` with trees of the data in it."""
    data, inside = jax.tree.flatten(problem.data)
    leaves, outside = jax.tree.flatten(template)
    trees, begin = [], 0
    for leaf in leaves:
        rest = iter(jacobians)
        pieces = [
            next(rest).reshape(-1, *number.shape)[begin : begin + leaf.size].reshape(leaf.shape + number.shape)
            if number.dtype.kind == "f"
            else None
            for number in data
        ]
        trees.append(jax.tree.unflatten(inside, pieces))
        begin += leaf.size
    return jax.tree.unflatten(outside, trees)
