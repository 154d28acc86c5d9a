"""What compilation costs, and a clock that leaves it out."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blocc._lib.compiled import Program, clock, clock_without_compilation, compile_seconds
from blocc._lib.precision import double_precision


def slow(x: jax.Array) -> jax.Array:
    time.sleep(0.2)  # while it is traced
    return 2.0 * x


def test_the_clock_stands_still_during_compilation() -> None:
    with clock_without_compilation():
        real, compiled, began = time.perf_counter(), compile_seconds(), clock()
        Program(slow)(jnp.ones(3))
        time.sleep(0.05)
        elapsed, compiling, wall = clock() - began, compile_seconds() - compiled, time.perf_counter() - real
    assert compiling >= 0.2
    assert 0.05 <= elapsed <= wall - compiling
    began = clock()
    Program(slow)(jnp.ones(4))
    assert clock() - began >= 0.2  # outside the block it goes on


def test_the_block_ends_with_an_error() -> None:
    with pytest.raises(ValueError, match="broken"), clock_without_compilation():
        raise ValueError("broken")
    before = time.perf_counter()
    assert before <= clock() <= time.perf_counter()


def test_single_operations_are_counted_once() -> None:
    before = compile_seconds()
    values = jnp.arange(173.0)
    jax.block_until_ready(jnp.sort(values[::-1]) @ values)  # compiled by JAX itself, for a length of their own
    single = compile_seconds()
    assert single > before
    jax.block_until_ready(jnp.sort(values[::-1]) @ values)
    assert compile_seconds() == single
    began = time.perf_counter()
    Program(lambda x: jnp.sort(x) @ x)(values)
    assert compile_seconds() - single <= time.perf_counter() - began  # no part of it twice


def test_other_work_is_done_while_xla_compiles() -> None:
    """In another thread, whatever fails there; what that thread compiles is compiled once, and waiting is counted."""
    done: list[str] = []
    begun = threading.Event()

    def other(x: jax.Array) -> jax.Array:
        done.append(threading.current_thread().name)
        begun.set()
        time.sleep(0.2)
        return x + 1.0

    program, second = Program(lambda x: 2.0 * x), Program(other)
    program.prepare(np.ones(3), meanwhile=(lambda: 1 / 0, lambda: second(np.ones(3))))
    assert begun.wait(30.0)
    before = compile_seconds()
    with double_precision():
        np.testing.assert_array_equal(second(np.ones(3)), np.full(3, 2.0))
    assert done == ["blocc-meanwhile"]
    assert compile_seconds() > before
    with double_precision():
        np.testing.assert_array_equal(program(np.ones(3)), np.full(3, 2.0))


def test_what_is_done_meanwhile_is_done_on_the_callers_device() -> None:
    """Contexts of JAX belong to a thread; the device that the caller has chosen must not be lost."""
    seen: list[object] = []
    over = threading.Event()
    program = Program(lambda x: x + 2.0)
    device = jax.devices("cpu")[-1]
    with jax.default_device(device):
        program.prepare(np.ones(2), meanwhile=(lambda: seen.append(jax.config.jax_default_device), over.set))
    assert over.wait(30.0)
    assert seen == [device]


ALARMING = """
import jax.numpy as jnp
import numpy as np
from blocc._lib.compiled import Program
from blocc._lib.precision import double_precision
many = np.random.default_rng(0).standard_normal(100_000)
with double_precision():
    print(float(Program(lambda x: jnp.cumsum(jnp.asarray(many))[-1] * x)(2.0)), 2.0 * many.sum())
"""


@pytest.mark.slow  # a process of its own: the suite's own settings leave the pass out
def test_sums_along_constants_raise_no_alarm() -> None:
    own = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS" and not name.startswith("JAX_")}
    done = subprocess.run([sys.executable, "-c", ALARMING], capture_output=True, text=True, env=own, check=True)
    found, expected = map(float, done.stdout.split())
    assert found == pytest.approx(expected, rel=1e-10)
    assert "Constant folding" not in done.stderr
