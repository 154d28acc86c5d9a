"""The executor that is asked for by name."""

from __future__ import annotations

from typing import Any

from blocc.errors import OptionError
from blocc.executors.processes import ProcessExecutor, SerialExecutor
from blocc.executors.work import Executor

NAMES = ("serial", "processes", "dask")


def make_executor(name: str, workers: int | None = None, scheduler: str | None = None) -> Executor:
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
    from blocc.executors.cluster import DaskExecutor

    if scheduler is not None and workers is not None:
        raise OptionError("give workers or scheduler, not both: an existing cluster brings its own workers")
    if isinstance(scheduler, str) and ":" not in scheduler:
        raise OptionError(f"scheduler must be an address like tcp://HOST:PORT or tls://HOST:PORT, got {scheduler!r}")
    return DaskExecutor(workers, scheduler)


def choose_executor(executor: Any = None, workers: int | None = None, scheduler: str | None = None) -> Executor:
    """An executor by its name, itself, or one for a Dask cluster or its client.

    Where nothing is given: this process, or processes where more than one worker is asked for, or Dask where a
    scheduler is.
    """
    if executor is None:
        executor = "dask" if scheduler is not None else "serial" if workers in (None, 1) else "processes"
    if isinstance(executor, str):
        return make_executor(executor, workers, scheduler)
    if isinstance(executor, Executor):
        return executor
    if not hasattr(executor, "scheduler") and not hasattr(executor, "scheduler_address"):
        raise OptionError(
            f"executor must be one of {', '.join(NAMES)}, an executor, or a Dask client or cluster, got {executor!r}"
        )
    from blocc.executors.cluster import DaskExecutor

    return DaskExecutor(scheduler=executor)
