"""Calls from compiled programs to Python: 64-bit numbers, batches, and large arrays where XLA has one thread."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.callbacks import call_back
from blocc._lib.precision import double_precision


def plus_tiny(x, scale):
    """A change that 32 bits would round away."""
    return {"moved": scale * x + 1e-12, "total": np.sum(x)}


def moved(x, scale):
    shapes = {"moved": jax.ShapeDtypeStruct(x.shape, np.float64), "total": jax.ShapeDtypeStruct((), np.float64)}
    return call_back(plus_tiny, shapes, x, scale)


def test_numbers_keep_their_64_bits_in_and_out_of_compiled_programs():
    with double_precision():
        x, scale = jnp.asarray([1.0 + 1e-15, 2.0]), jnp.asarray(3.0)
        for found in (moved(x, scale), jax.jit(moved)(x, scale)):
            np.testing.assert_array_equal(found["moved"], 3.0 * np.asarray(x) + 1e-12)
            assert float(found["total"]) == float(np.sum(np.asarray(x)))


def test_a_batch_is_computed_one_by_one():
    with double_precision():
        x = jnp.arange(6.0).reshape(2, 3)
        found = jax.jit(jax.vmap(moved, in_axes=(1, None)))(x, jnp.asarray(2.0))
        np.testing.assert_allclose(found["moved"], 2.0 * np.asarray(x).T, atol=1e-11)
        np.testing.assert_allclose(found["total"], np.asarray(x).sum(axis=0))


def test_large_arrays_do_not_wait_for_the_only_thread():
    program = """
import jax, numpy as np
from blocc._lib.callbacks import call_back
jax.config.update("jax_enable_x64", True)
total = jax.jit(lambda x: call_back(np.sum, jax.ShapeDtypeStruct((), np.float64), x))
assert float(total(np.ones(200_000))) == 200_000.0
"""
    environment = {**os.environ, "NPROC": "1"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
