"""Double precision, without touching the host program's JAX configuration.

Everything numerical in blocc runs inside :func:`double_precision`. It switches 64-bit floats on for the current
thread and the duration of a ``with`` block (or of a decorated call), never globally and never at import.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jax


@contextmanager
def double_precision() -> Iterator[None]:
    """Run the enclosed block with 64-bit floats in JAX."""
    with jax.enable_x64(True):
        yield
