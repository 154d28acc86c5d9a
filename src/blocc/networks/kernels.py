"""Kernels that Numba compiles, and the threads that share their work.

A kernel holds no lock of Python's, so that several threads run at once, and is compiled once for all runs: what is
compiled is kept in a file, where one can be written. Only large networks need any of this, so that this module is
imported where they begin.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core.caching import FunctionCache, IndexDataCacheFile

from blocc._lib.arrays import Float, Int, NDArray
from blocc._lib.log import logger
from blocc._lib.threads import thread_count

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")


class KernelFiles(IndexDataCacheFile):
    """A file for each signature of a kernel, named after it, and one that lists them.

    Numba numbers them: two processes that begin at once take the same number, and a third one runs the wrong program.
    """

    def save(self, key: Any, data: Any) -> None:
        """Keep a compiled program, and list it once it is there."""
        listed = self._load_index()
        listed[key] = name = self._data_name(int(sha256(repr(key).encode()).hexdigest()[:12], 16))
        self._save_data(name, data)
        self._save_index(listed)

    def _load_index(self) -> dict[Any, str]:
        """What is listed; nothing where the list names types that another version of this package had elsewhere."""
        try:
            return dict(super()._load_index())
        except (ImportError, AttributeError) as reason:
            logger.info("compiled kernels of another version are not used: %s", reason)
            return {}


class _Kept(FunctionCache):
    """Compiled kernels in files. One that cannot be read or written costs time, and never a run."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = KernelFiles(self._cache_path, self._impl.filename_base, stamp)

    @contextmanager
    def _guard_against_spurious_io_errors(self) -> Iterator[None]:  # Numba guards Windows alone
        try:
            yield
        except OSError as reason:
            logger.info("a compiled kernel is not kept: %s", reason)


def kernel(function: F) -> F:
    """Compile a function of numbers and arrays: in each process anew where no file can be kept."""
    compiled: Any = numba.njit(nogil=True, error_model="numpy")(function)
    try:
        compiled._cache = _Kept(function)
    except RuntimeError as reason:  # nothing can be written beside the source, at home, or in NUMBA_CACHE_DIR
        logger.info("%s is compiled in each process anew: %s", function.__qualname__, reason)
    return cast(F, compiled)


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """The threads of a process: a forked one inherits the pool without its threads."""
    return ThreadPoolExecutor(thread_count(), thread_name_prefix="blocc-kernel")


def in_threads(function: Callable[[int], R], count: int) -> list[R]:
    """``function(0)``, ..., ``function(count - 1)``, several at once: each thread takes an equal share of them."""
    workers = min(count, thread_count())
    if workers <= 1:
        return [function(i) for i in range(count)]
    shares = list(_pool(os.getpid()).map(lambda own: [function(i) for i in range(own, count, workers)], range(workers)))
    return [shares[i % workers][i // workers] for i in range(count)]


@cache
def _helper(process: int) -> ThreadPoolExecutor:
    """One more thread, whose work may hand out work to the others."""
    return ThreadPoolExecutor(1, thread_name_prefix="blocc-helper")


def both(first: Callable[[], R], second: Callable[[], R], *, at_once: bool = True) -> tuple[R, R]:
    """Two independent pieces of work, at once where there is more than one thread; each may use :func:`in_threads`."""
    if not at_once or thread_count() == 1:
        return first(), second()
    other = _helper(os.getpid()).submit(second)
    try:
        own = first()
    finally:
        wait([other])  # whatever happens, nothing goes on in the background
    return own, other.result()


#: Origins times nodes and links, for which one more thread gains more than it costs.
_WORTH_A_THREAD = 100_000


def shares(parts: int, work: int, *, at_once: int = 1) -> Int[NDArray, "bounds"]:
    """Bounds of the parts that each thread takes: of as many threads as there is work for.

    A call of a kernel takes longer than a small part, so that each thread makes one call for all of its parts.

    :param work: origins times nodes and links
    :param at_once: how many callers share the threads
    """
    return cuts(parts, min(max(1, thread_count() // at_once), 1 + work // _WORTH_A_THREAD))


def cuts(work: Float[NDArray, "items"] | int, parts: int) -> Int[NDArray, "bounds"]:
    """Bounds of at most so many consecutive parts of items, each with about the same work."""
    if isinstance(work, int):
        return np.linspace(0, work, min(parts, max(work, 1)) + 1).astype(int)
    total = np.concatenate(([0.0], np.cumsum(work)))
    bounds = np.searchsorted(total, np.linspace(0.0, total[-1], parts + 1))
    bounds[0], bounds[-1] = 0, len(work)
    return bounds
