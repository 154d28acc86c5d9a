"""Who computes the batches of a study: this process, processes of this machine, or a cluster."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from blocc._lib.streams import outlive_readers
from blocc._lib.threads import single_blas_thread
from blocc._lib.version import __version__
from blocc.errors import OptionError
from blocc.studies.compute import Outcome, compute_batch, worker_name
from blocc.studies.study import Study, StudyError

NAMES = ("serial", "processes", "dask")
ATTEMPTS = 3  #: worker processes that may die of one batch before it counts as failed

#: One thread for each worker: as many workers as cores share the machine without waiting for each other, and sums are
#: added in the same order whatever the machine. NPROC is what XLA asks for its threads.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "NPROC": "1",
}


@runtime_checkable
class Executor(Protocol):
    """Computes batches in any order, and yields each outcome as soon as it is there.

    The program that asks is the only one that writes to the store: an executor knows nothing about files. Closing the
    generator ends all workers that were started for it. A batch that fails, or whose worker dies again and again, is
    an outcome with an error; only where no outcome can come any more, an executor raises ``StudyError``.
    """

    @property
    def name(self) -> str:
        """``serial``, ``processes`` or ``dask``."""

    @property
    def workers(self) -> int:
        """How many batches are computed at once; may change during a run, and be 0 before it."""

    def run(self, study: Study, batches: Sequence[int]) -> Generator[Outcome, None, None]:
        """Compute these batches, given by their places in ``study.batches()``."""


class SerialExecutor:
    """One batch after the other, in this process."""

    name = "serial"
    workers = 1

    def run(self, study: Study, batches: Sequence[int]) -> Generator[Outcome, None, None]:
        """Compute these batches, in their order."""
        definition = study.to_json()
        for index in batches:
            with single_blas_thread():  # as in a worker process
                outcome = compute_batch(definition, index, __version__)
            yield outcome


class ProcessExecutor:
    """Worker processes on this machine, started by loky.

    Each worker is a pool of its own and has one batch at a time. So it is known which batch a worker died of, and only
    that one is charged an attempt. The workers are fresh interpreters, never forks: JAX has threads, and their locks
    would stay locked in a fork. They do not import the main program again: a script needs no guard.

    :param workers: how many; by default as many as this process may use cores
    """

    name = "processes"

    def __init__(self, workers: int | None = None) -> None:
        try:
            import loky
        except ModuleNotFoundError as error:
            raise StudyError("executor='processes' needs loky: pip install 'blocc[cluster]'") from error
        self.workers: int = loky.cpu_count() if workers is None else workers

    def run(self, study: Study, batches: Sequence[int]) -> Generator[Outcome, None, None]:
        """Compute these batches, in the order in which workers come to them."""
        definition, waiting, attempts = study.to_json(), deque(batches), Counter[int]()
        pools = [_start_pool() for _ in range(min(self.workers, len(batches)))]
        running: dict[Future[Outcome], tuple[int, int]] = {}  # the batch, and the place of its pool
        try:
            _check_start(pools)
            idle = list(range(len(pools)))
            while waiting or running:
                while waiting and idle:
                    index, place = waiting.popleft(), idle.pop()
                    attempts[index] += 1
                    task = (compute_batch, definition, index, __version__)
                    try:
                        future = pools[place].submit(*task)
                    except BrokenProcessPool:  # the worker died after its last batch
                        pools[place] = _replace_pool(pools[place])
                        future = pools[place].submit(*task)
                    running[future] = index, place
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    index, place = running.pop(future)
                    idle.append(place)
                    try:
                        yield replace(future.result(), attempts=attempts[index])
                    except BrokenProcessPool as error:
                        pools[place] = _replace_pool(pools[place])
                        if attempts[index] < ATTEMPTS:
                            waiting.append(index)
                        else:
                            yield _given_up(index, error)
        finally:
            for pool in pools:
                pool.shutdown(kill_workers=True)


def _start_pool() -> Any:
    """A pool of one process, which starts with its first task."""
    from loky import ProcessPoolExecutor

    return ProcessPoolExecutor(1, env=ONE_THREAD, initializer=_prepare_worker, initargs=(os.getpid(),))


def _replace_pool(broken: Any) -> Any:
    broken.shutdown()
    return _start_pool()


def _check_start(pools: Sequence[Any]) -> None:
    try:
        for started in [pool.submit(worker_name) for pool in pools]:
            started.result()
    except BrokenProcessPool as error:
        raise StudyError(f"worker processes cannot start ({_cause(error)}). Finished cells are kept") from error


def _given_up(index: int, error: BaseException) -> Outcome:
    reason = f"the worker died {ATTEMPTS} times while it computed this batch (the last time: {_cause(error)})"
    return Outcome(index, (), reason, 0.0, "processes of this machine", ATTEMPTS)


def _cause(error: BaseException) -> str:
    """How a worker died: loky names the exit code, such as SIGKILL(-9), in braces within a page of advice."""
    code = re.search(r"\{(.*?)\}", str(error))
    return code[1] if code else str(error).partition("\n")[0]


def _prepare_worker(program: int) -> None:
    """In a new worker: leave the program's terminal and its standard output alone, and do not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of the terminal; the main one decides
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    outlive_readers()
    sys.stdout = sys.stderr
    threading.Thread(target=_end_with, args=(program,), daemon=True).start()


def _end_with(program: int) -> None:
    """End this process at once when the program that started it is gone, in the middle of a batch, too."""
    while os.getppid() == program:
        time.sleep(0.5)
    os._exit(0)


def make_executor(name: str, workers: int | None, scheduler: str | None) -> Executor:
    """The executor of that name, with its options checked."""
    if name not in NAMES:
        raise OptionError(f"executor must be one of {', '.join(NAMES)}, got {name!r}")
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise OptionError(f"workers must be a whole number of at least 1, got {workers!r}")
    if scheduler is not None and name != "dask":
        raise OptionError(f"scheduler is an option of executor='dask', but executor is {name!r}")
    if name == "serial":
        if workers not in (None, 1):
            raise OptionError(f"executor='serial' has one worker, got workers={workers}")
        return SerialExecutor()
    if name == "processes":
        return ProcessExecutor(workers)
    from blocc.studies.cluster import DaskExecutor

    if scheduler is not None and workers is not None:
        raise OptionError("give workers or scheduler, not both: an existing cluster brings its own workers")
    return DaskExecutor(workers, scheduler)
