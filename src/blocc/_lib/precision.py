"""Double precision, without touching the host program's JAX configuration.

Everything numerical in blocc runs inside :func:`double_precision`. It switches 64-bit floats on for the current
thread and the duration of a ``with`` block (or of a decorated call), never globally and never at import. This gate is
also where a process stops in which JAX cannot compute.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import jax

from blocc.errors import ForkError

_is_broken = False  #: whether this process is a fork of one whose JAX had threads: a fork has their locks, not them


def _forked() -> None:
    global _is_broken
    started = getattr(sys.modules.get("jax._src.xla_bridge"), "backends_are_initialized", None)
    _is_broken = _is_broken or (started is not None and bool(started()))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@contextmanager
def double_precision() -> Iterator[None]:
    """Run the enclosed block with 64-bit floats in JAX.

    :raises ForkError: where the first computation would wait for ever
    """
    if _is_broken:
        raise ForkError(
            "this process was forked after JAX had been used, and would wait for ever for threads that it does not "
            'have: start processes by multiprocessing.get_context("spawn"), or fork before the first computation'
        )
    with jax.enable_x64(True):
        yield
