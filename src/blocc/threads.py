"""One thread for the linear algebra of many small matrices.

The structured oracles factorise batches of small blocks. Several BLAS threads gain nothing there, and on a machine with
other work they wait for each other actively, which can make a solve a hundred times slower.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext


def single_blas_thread() -> AbstractContextManager[object]:
    """Keep BLAS to one thread for the duration of a block, where threadpoolctl is installed; otherwise do nothing."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    limits: AbstractContextManager[object] = threadpool_limits(limits=1, user_api="blas")
    return limits
