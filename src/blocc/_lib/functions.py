"""Whether what a user wrote is a function, and one that JAX can differentiate; looked at before any work."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import PyTree
from blocc._lib.precision import double_precision
from blocc.errors import ProblemError

#: Operations whose value is not in the program, or that JAX may not be able to differentiate.
CALLBACKS = frozenset({"pure_callback", "io_callback"})
DOUBTFUL = CALLBACKS | {"while", "custom_vjp_call"}


def changing(name: str, what: str) -> ProblemError:
    """The error for what gives something else when it is asked again."""
    return ProblemError(
        f"{name}(x, y) is no function of x and y: {what}. Random numbers of numpy.random and random, the time and "
        "counters change from call to call. Draw them once, before the problem is built, and let the function use that "
        "array, or pass them as data; jax.random with a fixed key is the same each time. For mini-batches give all "
        "data to the problem and solve(problem, method='stochastic', batches=blocc.Batches(problem.data, size=64)); "
        "docs/methods.md#mini-batches shows it"
    )


def check_differentiable(name: str, function: Callable[..., Any], arguments: tuple[PyTree, ...]) -> None:
    """Refuse a program that has no first or no second derivatives. It is traced and not run.

    First ones are taken backwards, and those of them forwards, many at once.
    """

    def scalar(x: PyTree, y: PyTree, *data: PyTree) -> Any:
        leaves = [jnp.asarray(leaf, float) for leaf in jax.tree.leaves(function(x, y, *data))]
        return sum((jnp.sum(leaf) for leaf in leaves), jnp.zeros(()))

    try:
        with double_precision():
            jax.eval_shape(jax.jacfwd(jax.grad(scalar, argnums=(0, 1)), argnums=(0, 1)), *arguments)
    except Exception as error:
        if "while_loop" in str(error) or "fori_loop" in str(error):
            cure = (
                "it has a lax.while_loop (or a lax.fori_loop whose bounds are not fixed), through which JAX has no "
                "gradients: write lax.fori_loop with bounds that are Python numbers, lax.scan, or a derivative of your "
                "own with jax.custom_jvp"
            )
        elif "custom_vjp" in str(error) or "callback" in str(error):
            cure = (
                "it is differentiated twice, and a rule of jax.custom_vjp serves once: give a derivative of your own "
                "with jax.custom_jvp, and jax.pure_callback vmap_method='sequential'"
            )
        else:
            cure = f"JAX says: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        raise ProblemError(f"{name}(x, y) cannot be differentiated: {cure}") from error


def check_callbacks(name: str, function: Callable[..., Any], arguments: tuple[PyTree, ...]) -> None:
    """Refuse a function whose callbacks cannot return doubles, or return two values at one point.

    XLA may call Python from a thread of its own, which knows the settings of the whole program alone. A function that
    fails here is left alone.
    """
    with ThreadPoolExecutor(1) as other:
        if not other.submit(lambda: bool(jax.config.read("jax_enable_x64"))).result():
            raise ProblemError(
                f"{name}(x, y) calls Python back, and JAX rounds what that returns to single precision unless 64 bits "
                "are enabled for the whole program: call jax.config.update('jax_enable_x64', True) first, or write it "
                "with jax.numpy"
            )
    try:
        with double_precision():
            first, second = ([np.asarray(leaf) for leaf in jax.tree.leaves(function(*arguments))] for _ in range(2))
    except Exception:
        return
    if not all(np.array_equal(one, other, equal_nan=True) for one, other in zip(first, second, strict=True)):
        raise changing(name, "evaluated twice at one point, it returned two values")
