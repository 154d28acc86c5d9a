"""The degree that is read from a program: exact for polynomials, infinite for what is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blocc._lib.precision import double_precision
from blocc.global_search.degree import degree_of

MATRIX = np.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    ("function", "degree"),
    [
        (lambda x, y: 3.0, 0),
        (lambda x, y: jnp.sum(MATRIX @ y) - x[0] / 2.0, 1),
        (lambda x, y: jnp.stack([x[0], y[1]]) + jnp.concatenate([y[:1], x[1:]]), 1),
        (lambda x, y: jnp.where(np.array([True, False]), x, 2.0 * x), 1),
        (lambda x, y: y[jnp.array([2, 0])], 1),
        (lambda x, y: jnp.zeros(3).at[1].set(x[0]).at[0].add(y[0]), 1),
        (lambda x, y: x @ MATRIX @ y, 2),
        (lambda x, y: jnp.square(x[0]) + y[0] ** 2 + jnp.exp(1.0), 2),
        (lambda x, y: jax.jit(lambda z: z * z)(y), 2),
        (lambda x, y: jnp.outer(x, y) * y[0], 3),
        (lambda x, y: jnp.prod(MATRIX) * y[0] ** 4, 4),
        (lambda x, y: jnp.exp(y[0]), np.inf),
        (lambda x, y: jnp.abs(x), np.inf),
        (lambda x, y: y / x[0], np.inf),
        (lambda x, y: jnp.where(x[0] > 0.0, y, -y), np.inf),
        (lambda x, y: jnp.maximum(y, 0.0), np.inf),
        (lambda x, y: y ** (-1), np.inf),
        (lambda x, y: jax.lax.stop_gradient(y) * 1.0, np.inf),
        (lambda x, y: y.astype(jnp.float32), np.inf),
        (lambda x, y: jnp.floor(y), np.inf),
        (lambda x, y: jax.pure_callback(np.sin, jax.ShapeDtypeStruct((3,), np.float64), y), np.inf),
    ],
)
def test_degree(function: Callable[..., Any], degree: float) -> None:
    with double_precision():
        found = degree_of(function, 2, 3)
    assert found.degree == degree
    assert bool(found.culprits) == (degree == np.inf)


def test_the_function_is_called_by_its_primitive() -> None:
    with double_precision():
        assert degree_of(lambda x, y: jnp.log(x) + jnp.sin(x), 1, 1).culprits == ("log", "sin")
