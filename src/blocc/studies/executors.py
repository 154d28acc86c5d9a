"""Who computes the batches of a study: one protocol, and the choice by name."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol

from blocc._lib.threads import single_blas_thread
from blocc._lib.version import __version__
from blocc.errors import OptionError
from blocc.studies.compute import Outcome, compute_batch
from blocc.studies.study import Study

NAMES = ("serial", "processes", "dask")

#: One thread for each worker: as many workers as cores share the machine without waiting for each other, and sums are
#: added in the same order whatever the machine. NPROC is what XLA asks for its threads.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "NPROC": "1",
}


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
        from blocc.studies.processes import ProcessExecutor

        return ProcessExecutor(workers)
    from blocc.studies.cluster import DaskExecutor

    if scheduler is not None and workers is not None:
        raise OptionError("give workers or scheduler, not both: an existing cluster brings its own workers")
    return DaskExecutor(workers, scheduler)
