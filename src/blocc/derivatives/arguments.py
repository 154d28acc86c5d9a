"""Arguments that JAX may be tracing: checked by their shapes, and always in double precision."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Array, Float, PyTree
from blocc._lib.checks import in_words
from blocc.errors import OptionError, ProblemError
from blocc.problem import BilevelProblem


def need_double_precision(name: str) -> None:
    """Refuse to be part of a traced program that has no 64-bit floats."""
    if jax.dtypes.canonicalize_dtype(np.float64) != np.float64:
        raise OptionError(
            f"{name} inside jax.jit, jax.grad or jax.vmap needs 64-bit floats: call the function that JAX transforms "
            "inside `with jax.enable_x64(True):`, or set JAX_ENABLE_X64=1"
        )


def need_problem(given: Any) -> None:
    """Refuse what is no problem."""
    if not isinstance(given, BilevelProblem):
        raise OptionError(f"problem must be a BilevelProblem, got {type(given).__name__}")


def like(template: PyTree, given: PyTree, name: str) -> PyTree:
    """``given`` as arrays of the structure, shapes and dtypes of ``template``; traced leaves stay traced."""
    if isinstance(template, np.ndarray) and isinstance(given, list | tuple):
        given = np.asarray(given, dtype=template.dtype)  # a plain list of numbers is an array too
    leaves, structure = jax.tree.flatten(given)
    expected, expected_structure = jax.tree.flatten(template)
    if structure != expected_structure:  # type: ignore[operator]
        raise ProblemError(f"{name} has the structure {in_words(given)}, expected {in_words(template)}")
    return jax.tree.unflatten(structure, [_leaf(*pair, name) for pair in zip(expected, leaves, strict=True)])


def _leaf(expected: np.ndarray, leaf: Any, name: str) -> Array:
    try:
        array = jnp.asarray(np.asarray(leaf) if isinstance(leaf, str | bytes) else leaf)
    except TypeError:
        raise ProblemError(f"{name} must hold real numbers, got {leaf!r}") from None
    if array.shape != expected.shape:
        raise ProblemError(f"{name} has shape {array.shape}, expected {expected.shape}")
    if expected.dtype.kind != "f" and array.dtype.kind == "f":
        raise ProblemError(f"{name} has real numbers where the problem has whole ones ({expected.dtype})")
    if array.dtype.kind not in "fiub":
        raise ProblemError(f"{name} must hold real numbers, got {array.dtype}")
    return array.astype(expected.dtype)


def flat_point(problem: BilevelProblem, x: PyTree) -> Float[Array, "n_x"]:
    """x as one vector; numbers that are known must be finite."""
    leaves = jax.tree.leaves(like(problem.x_set.template, x, "x"))
    point = jnp.concatenate([jnp.ravel(leaf) for leaf in leaves])
    if not isinstance(point, jax.core.Tracer) and not np.isfinite(point).all():
        raise ProblemError("x must be finite, got NaN or infinity")
    return point


def data_of(problem: BilevelProblem, data: PyTree | None) -> PyTree:
    """The problem's data, or others of the same structure, as the flat problem takes them."""
    if data is None:
        return problem.flat.data
    if problem.data is None:
        raise ProblemError("data needs a problem that was built with data=...: its functions take (x, y, data)")
    return like(problem.data, data, "data")
