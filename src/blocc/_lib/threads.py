"""One thread for the linear algebra of small matrices; and calls that may never return.

Several BLAS threads gain nothing on matrices of a few hundred rows, and on a machine with other work they wait for each
other actively, which can make a solve thirty times slower. JAX's own threads do not.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

R = TypeVar("R")

_lock = threading.Lock()
_inside = 0  #: blocks that are open now, in all threads
_limits: Any = None  #: what puts the host program's numbers of threads back


def thread_count() -> int:
    """How many threads this process may run at once."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


#: Rows of a dense matrix from which a factorisation gains by several threads.
LARGE = 1500


@contextmanager
def single_blas_thread(rows: int = 0) -> Iterator[None]:
    """Keep BLAS to one thread for the duration of a block whose matrices have so many rows, unless those are large.

    Where threadpoolctl is not installed nothing happens. The number of threads belongs to the whole process. Where
    blocks of several threads overlap, the first one sets it and the last one puts it back; if each did both, one would
    put back what another had set.
    """
    global _inside, _limits
    if rows >= LARGE:
        yield
        return
    with _lock:
        if _inside == 0:
            _limits = _limited()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0 and _limits is not None:
                _limits.restore_original_limits()
                _limits = None


def _limited() -> Any:
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return None
    # Limits hold for libraries that are loaded. JAX's factorisations use SciPy's BLAS, and load it only when they are
    # compiled: that is too late.
    import scipy.linalg.cython_lapack  # noqa: F401

    return threadpool_limits(limits=1, user_api="blas")


def call_within(seconds: float, function: Callable[[], R]) -> R:
    """What ``function`` returns, from a thread that is left alone after so many seconds; then a ``TimeoutError``."""
    future: Future[R] = Future()

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name="blocc-call", daemon=True).start()
    try:
        return future.result(seconds)
    except TimeoutError:
        if future.done():  # the function's own limit
            raise
        raise TimeoutError(f"no answer within {seconds:g} seconds") from None
