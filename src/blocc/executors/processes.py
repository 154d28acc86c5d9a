"""This process, or worker processes of this machine."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from blocc._lib.streams import outlive_readers
from blocc._lib.threads import single_blas_thread
from blocc.executors.work import Call, ExecutorError, Outcome, Work, begin

ATTEMPTS = 3  #: worker processes that may die of one piece of work before it counts as failed

#: One thread for each worker: as many workers as cores share the machine without waiting for each other, and sums are
#: added in the same order whatever the machine. NPROC is what XLA asks for its threads.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "NPROC": "1",
}


class SerialExecutor:
    """One piece of work after the other, in this process."""

    name = "serial"
    workers = 1

    def run(self, work: Work, indices: Sequence[int]) -> Generator[Outcome, None, None]:
        """Compute these pieces, in their order."""
        for index in indices:
            call = work.call(index)
            if call is None:
                return
            with single_blas_thread():  # as in a worker process
                outcome = begin(call)
            yield outcome


class ProcessExecutor:
    """Worker processes on this machine, started by loky.

    Each worker is a pool of its own and has one piece at a time. So it is known which piece a worker died of, and only
    that one is charged an attempt. The workers are fresh interpreters, never forks: JAX has threads, and their locks
    would stay locked in a fork. They do not import the main program again: a script needs no guard.

    :param workers: how many; by default as many as this process may use cores
    """

    name = "processes"

    def __init__(self, workers: int | None = None) -> None:
        try:
            import loky
        except ModuleNotFoundError as error:
            raise ExecutorError("executor='processes' needs loky: pip install 'blocc[cluster]'") from error
        self.workers: int = loky.cpu_count() if workers is None else workers

    def run(self, work: Work, indices: Sequence[int]) -> Generator[Outcome, None, None]:
        """Compute these pieces, in the order in which workers come to them."""
        waiting, attempts = deque(indices), Counter[int]()
        check = work.check()
        running: dict[Future[Outcome], tuple[int, int]] = {}  # the piece, and the place of its pool
        pools: list[Any] = []
        try:
            with _starting():
                pools += [_start_pool() for _ in range(min(self.workers, len(indices)))]
                for started in [pool.submit(*check) for pool in pools]:
                    started.result()
            idle = list(range(len(pools)))
            while waiting or running:
                while waiting and idle:
                    if (call := work.call(waiting[0])) is None:
                        waiting.clear()
                        break
                    index, place = waiting.popleft(), idle.pop()
                    attempts[index] += 1
                    running[_submit(pools, place, call, check)] = index, place
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    index, place = running.pop(future)
                    idle.append(place)
                    try:
                        yield replace(future.result(), attempts=attempts[index])
                    except BrokenProcessPool as error:
                        pools[place] = _replace_pool(pools[place], check)
                        if attempts[index] < ATTEMPTS:
                            waiting.appendleft(index)
                        else:
                            yield _given_up(index, error)
        finally:
            for pool in pools:
                pool.shutdown(kill_workers=True)


def _submit(pools: list[Any], place: int, call: Call, check: Call) -> Future[Outcome]:
    try:
        future: Future[Outcome] = pools[place].submit(*call)
    except BrokenProcessPool:  # the worker died after its last piece
        pools[place] = _replace_pool(pools[place], check)
        future = pools[place].submit(*call)
    return future


def _start_pool() -> Any:
    """A pool of one process, which starts with its first task."""
    from loky import ProcessPoolExecutor

    return ProcessPoolExecutor(1, env=ONE_THREAD, initializer=_prepare_worker, initargs=(os.getpid(),))


def _replace_pool(broken: Any, check: Call) -> Any:
    broken.shutdown()
    with _starting():
        pool = _start_pool()
        pool.submit(*check)  # its one process makes this call before any other
    return pool


@contextmanager
def _starting() -> Iterator[None]:
    """One sentence for whatever keeps workers from starting.

    An OSError: the system gives no further process, or loky's tracker of resources, a process itself, is gone.
    """
    try:
        yield
    except (BrokenProcessPool, OSError) as error:
        raise ExecutorError(f"worker processes cannot start ({_cause(error)})") from error


def _given_up(index: int, error: BaseException) -> Outcome:
    reason = f"the worker died {ATTEMPTS} times while it computed this (the last time: {_cause(error)})"
    return Outcome(index, None, reason, 0.0, "processes of this machine", ATTEMPTS)


def _cause(error: BaseException) -> str:
    """How a worker died: loky names the exit code, such as SIGKILL(-9), in braces within a page of advice."""
    code = re.search(r"\{(.*?)\}", str(error))
    return code[1] if code else str(error).partition("\n")[0]


def _prepare_worker(program: int) -> None:
    """In a new worker: leave the program's terminal and its standard output alone, and do not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of the terminal; the main one decides
    signal.signal(signal.SIGTERM, _end)  # a handler, so that no run in this process takes it for a wish of the user's
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    outlive_readers()
    sys.stdout = sys.stderr
    threading.Thread(target=_end_with, args=(program,), daemon=True).start()


def _end(number: int, frame: Any) -> None:
    os._exit(128 + number)


def _end_with(program: int) -> None:
    """End this process at once when the program that started it is gone, in the middle of a piece of work, too."""
    while os.getppid() == program:
        time.sleep(0.5)
    os._exit(0)
