"""One thread for the linear algebra of many small matrices; and calls that may never return.

The structured oracles factorise batches of small blocks. Several BLAS threads gain nothing there, and on a machine with
other work they wait for each other actively, which can make a solve a hundred times slower.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

R = TypeVar("R")

_lock = threading.Lock()
_inside = 0  #: blocks that are open now, in all threads
_limits: Any = None  #: what puts the host program's numbers of threads back


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """Keep BLAS to one thread for the duration of a block, where threadpoolctl is installed; otherwise do nothing.

    The number of threads belongs to the whole process. Where blocks of several threads overlap, the first one sets it
    and the last one puts it back; if each did both, one would put back what another had set.
    """
    global _inside, _limits
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
