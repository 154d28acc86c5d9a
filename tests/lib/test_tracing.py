"""Digests of functions: they change with every operation and every number, and with nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blocc._lib.precision import double_precision
from blocc._lib.tracing import digest_of_arrays, trace

X, Y = jax.ShapeDtypeStruct((2,), np.float64), jax.ShapeDtypeStruct((3,), np.float64)


def digest(function: Callable[..., Any]) -> str:
    return trace(function, X, Y).digest


def rich(matrix: np.ndarray, factor: float = 3.25, beyond: float = 2.9) -> Callable[..., Any]:
    """A function with loops, branches, constants inside them, and rules for its derivatives."""

    def function(x: Any, y: Any) -> Any:
        looped = jax.lax.scan(lambda carry, entry: (carry + entry * matrix[0, 0], carry), 0.0, y)[0]
        branch = jax.lax.cond(x[0] > 0, lambda: jnp.sum(matrix @ y), lambda: 0.0)
        waited = jax.lax.while_loop(lambda state: state[0] < 3, lambda state: (state[0] + 1, factor * state[1]), (0, x))
        far = jnp.where(x > beyond, 1e-3 * np.ones(2), 0.0).sum()
        return jax.nn.relu(jnp.sum(matrix @ y)) + looped + branch + waited[1][0] + far + jax.nn.softplus(x[1])

    return function


def test_the_same_function_has_the_same_digest() -> None:
    matrix = np.arange(6.0).reshape(2, 3)
    function = rich(matrix)
    assert digest(function) == digest(function) == digest(rich(matrix.copy()))


@pytest.mark.parametrize(
    "other",
    [
        rich(np.arange(6.0).reshape(2, 3), factor=3.25 + 1e-15),
        rich(np.arange(6.0).reshape(2, 3), beyond=2.95),
        rich(np.nextafter(np.arange(6.0).reshape(2, 3), 9.0)),
        rich(np.arange(6.0, dtype=np.float32).reshape(2, 3)),
        rich(np.arange(6).reshape(2, 3)),
    ],
    ids=["number", "threshold", "last bit", "precision", "whole numbers"],
)
def test_any_number_counts(other: Callable[..., Any]) -> None:
    assert digest(rich(np.arange(6.0).reshape(2, 3))) != digest(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x, y: x[0] - y[0], lambda x, y: y[0] - x[0]),
        (lambda x, y: x[0] * y[0], lambda x, y: x[0] + y[0]),
        (lambda x, y: x[0] + (y[0] + y[1]), lambda x, y: (x[0] + y[0]) + y[1]),
        (lambda x, y: jnp.sum(x) + y[0], lambda x, y: jnp.max(x) + y[0]),
        (lambda x, y: y[0], lambda x, y: y[1]),
        (lambda x, y: {"a": y[0], "b": y[1]}, lambda x, y: {"a": y[0], "c": y[1]}),
        (lambda x, y: jax.lax.cond(x[0] > 0, lambda: y[0], lambda: y[1]), lambda x, y: jnp.where(x[0] > 0, y[0], y[1])),
    ],
)
def test_any_operation_counts(one: Callable[..., Any], other: Callable[..., Any]) -> None:
    assert digest(one) != digest(other)


def test_names_do_not_count() -> None:
    @jax.jit
    def inner(value: Any) -> Any:
        return jnp.sum(value) ** 2

    @jax.jit
    def renamed(number: Any) -> Any:
        return jnp.sum(number) ** 2

    assert digest(lambda x, y: inner(x) + y[0]) == digest(lambda first, second: renamed(first) + second[0])


def test_values_from_the_surroundings_are_those_of_now() -> None:
    numbers, array = {"goal": 1.0}, np.zeros(3)

    def function(x: Any, y: Any) -> Any:
        return (x[0] - numbers["goal"]) ** 2 + jnp.sum(y * array)

    first = digest(function)
    numbers["goal"] = 2.0
    second = digest(function)
    array[1] = 1e-300
    third = digest(function)
    assert len({first, second, third}) == 3
    numbers["goal"], array[1] = 1.0, 0.0
    assert digest(function) == first


def test_random_keys_and_callbacks() -> None:
    key = jax.random.key(3)

    def ask(value: Any) -> Any:
        return jax.pure_callback(lambda number: 2.0 * number, jax.ShapeDtypeStruct((), np.float64), value)

    drawn = digest(lambda x, y: jnp.sum(jax.random.normal(key, (3,)) * y))
    assert drawn != digest(lambda x, y: jnp.sum(jax.random.normal(jax.random.key(4), (3,)) * y))
    assert digest(lambda x, y: ask(x[0])) == digest(lambda x, y: ask(x[0]))


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from test_tracing import digest, rich
print(digest(rich(np.arange(6.0).reshape(2, 3))))
"""


def test_another_process_finds_the_same_digest() -> None:
    here = digest(rich(np.arange(6.0).reshape(2, 3)))
    command = [sys.executable, "-c", PROGRAM, os.path.dirname(__file__)]
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == here


def test_digests_of_arrays() -> None:
    tree = {"a": np.arange(3.0), "b": np.asarray(2)}
    assert digest_of_arrays(tree) == digest_of_arrays({"b": np.asarray(2), "a": np.arange(3.0)})
    others = [
        {"a": np.arange(3.0), "c": np.asarray(2)},
        {"a": np.arange(3.0), "b": np.asarray(2.0)},
        {"a": np.arange(3.0).reshape(3, 1), "b": np.asarray(2)},
        {"a": np.array([0.0, 1.0, 2.0 + 4e-16]), "b": np.asarray(2)},
        {"a": np.array([-0.0, 1.0, 2.0]), "b": np.asarray(2)},
    ]
    assert digest_of_arrays(tree) not in {digest_of_arrays(other) for other in others}
    assert digest_of_arrays(np.zeros((0, 3))) != digest_of_arrays(np.zeros(0))
    with double_precision():
        assert digest_of_arrays(jnp.arange(3.0)) == digest_of_arrays(np.arange(3.0))
