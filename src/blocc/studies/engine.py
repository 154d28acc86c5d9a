"""Running a study: what is done already is skipped, the rest is computed batch by batch and kept as it comes."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from blocc._lib.signals import Waiting, listening, unbroken
from blocc._lib.version import __version__
from blocc.errors import OptionError
from blocc.executors.choice import make_executor
from blocc.executors.work import Executor, ExecutorError, worker_name
from blocc.studies.compute import Batches
from blocc.studies.store import DONE, FAILED, Store
from blocc.studies.study import Cell, Row, Study, StudyError, resolve


@dataclass(frozen=True)
class Progress:
    """How far a study is, in cells."""

    done: int  #: those of earlier runs included
    failed: int
    total: int
    elapsed: float  #: seconds since this run began
    left: float | None  #: seconds, estimated; None while nothing is known


def run_study(
    study: Study,
    store: Store | str | Path,
    *,
    executor: str | Executor = "serial",
    workers: int | None = None,
    scheduler: str | None = None,
    fresh: bool = False,
    retry_failed: bool = True,
    on_progress: Callable[[Progress], None] | None = None,
) -> list[Row]:
    """Compute what is missing of a study, and return all of its rows as :func:`rows_of` does.

    It may be stopped at any time, by Ctrl-C or by force. The same call goes on where it stopped: cells that are done,
    with the same function, parameters and version of the package, are not computed again.

    :param store: a file, or a store that is open for writing
    :param executor: ``"serial"`` in this process, ``"processes"`` on this machine, ``"dask"`` on a cluster, or an
        executor of your own
    :param workers: how many processes; by default as many as there are cores
    :param scheduler: address of a Dask scheduler that is running, such as ``"tcp://host:8786"``; without it,
        ``"dask"`` starts a cluster on this machine
    :param fresh: delete the study's cells first
    :param retry_failed: compute the failed cells of earlier runs again
    :param on_progress: called at the start and after each batch
    :raises StudyError: where the store or all workers refuse; what is recorded stays recorded
    """
    with _telling():
        chosen = make_executor(executor, workers, scheduler) if isinstance(executor, str) else executor
    study = Study.from_json(study.to_json())  # tuples become lists here, not only for workers far away
    if study.function.startswith("__main__:") and chosen.name != "serial":
        raise OptionError(
            f"workers cannot import {study.function!r} from the main program: put the function into a module of its own"
        )
    resolve(study.function)  # a misspelt name should not become a thousand failed cells
    with _opened(store) as opened, opened.lock():
        if fresh:
            opened.forget(study)
        opened.begin(study, _settings(chosen))
        _compute(study, opened, chosen, retry_failed, on_progress)
        opened.end(study)
        return rows_of(study, opened)


def rows_of(study: Study, store: Store | str | Path, *, version: str | None = None) -> list[Row]:
    """The rows a store holds for a study, in the order of ``study.cells()``; cells that are not yet there are left out.

    A row holds the cell's parameters, the function's columns, ``status`` (``"done"`` or ``"failed"``) and ``error``
    (None, or a text whose first line is a summary). A failed row lacks the function's columns.

    :param version: of the package that computed the rows, where it was not this one
    """
    version = __version__ if version is None else version
    study = Study.from_json(study.to_json())
    with _opened(store, read_only=True) as opened:
        stored = opened.cells(study)
    rows: list[Row] = []
    for cell in study.cells():
        found = stored.get(cell.key_for(version))
        if found is not None:
            rows.append({**cell.parameters, **found.columns, "status": found.status, "error": found.error})
    return rows


def _compute(
    study: Study, store: Store, executor: Executor, retry_failed: bool, on_progress: Callable[[Progress], None] | None
) -> None:
    batches = study.batches()
    stored = store.cells(study)
    settled = {DONE} if retry_failed else {DONE, FAILED}
    statuses = {cell.key: stored[cell.key].status for batch in batches for cell in batch if cell.key in stored}
    # A batch is computed whole or not at all: half of one might be rounded differently.
    waiting = [
        index for index, batch in enumerate(batches) if not all(statuses.get(cell.key) in settled for cell in batch)
    ]
    for index in waiting:
        for cell in batches[index]:
            statuses.pop(cell.key, None)
    clock = _Clock(sum(map(len, batches)), [stored[key].seconds for key in statuses])
    unfinished = len(waiting)

    def tell() -> None:
        if on_progress is not None:
            on_progress(clock.progress(list(statuses.values()), min(executor.workers, unfinished)))

    tell()
    if not waiting:
        return
    stopping = Waiting()
    with _telling(), listening(stopping), closing(executor.run(Batches(study), waiting)) as outcomes:
        for outcome in outcomes:
            if stopping.heard is not None:  # the solver in this cell has heard it, too, and ended early
                raise KeyboardInterrupt
            batch: Sequence[Cell] = batches[outcome.index]
            with unbroken():
                store.record(study, batch, outcome)
            statuses |= {cell.key: DONE if outcome.error is None else FAILED for cell in batch}
            clock.note(outcome.seconds, len(batch))
            unfinished -= 1
            tell()


class _Clock:
    """Estimates the time left from the seconds that finished cells took."""

    def __init__(self, total: int, earlier: Sequence[float]) -> None:
        self._total = total
        self._started = time.monotonic()
        self._seconds, self._cells = sum(earlier), len(earlier)  # of earlier runs: a guess until there is a better one
        self._from_now = False

    def note(self, seconds: float, cells: int) -> None:
        """A batch has finished."""
        if not self._from_now:
            self._seconds, self._cells, self._from_now = 0.0, 0, True
        self._seconds += seconds
        self._cells += cells

    def progress(self, statuses: Sequence[str], workers: int) -> Progress:
        """How far the study is now, and how long so many workers need for the rest."""
        left = self._total - len(statuses)
        seconds = 0.0 if left == 0 else None
        if left and self._cells:
            seconds = self._seconds / self._cells * left / max(1, workers)
        elapsed = time.monotonic() - self._started
        return Progress(statuses.count(DONE), statuses.count(FAILED), self._total, elapsed, seconds)


@contextmanager
def _telling() -> Iterator[None]:
    """What keeps an executor from computing, in terms of the study."""
    try:
        yield
    except ExecutorError as error:
        raise StudyError(f"{error}. Finished cells are kept: the same command goes on where it stopped") from error


@contextmanager
def _opened(store: Store | str | Path, *, read_only: bool = False) -> Iterator[Store]:
    """A store that was given stays open afterwards; one that was named is closed."""
    if isinstance(store, Store):
        yield store
        return
    with Store(store, read_only=read_only) as opened:
        yield opened


def _settings(executor: Executor) -> dict[str, Any]:
    """What a report should say about how, where and by what a study was run."""
    packages = {}
    for name in ("blocc", "jax", "jaxlib", "numpy", "scipy", "dask", "distributed"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "executor": executor.name,
        "workers": executor.workers or None,  # an existing cluster has not been asked yet
        "process": worker_name(),
        "machine": {"system": platform.platform(), "processor": platform.machine(), "cores": os.cpu_count()},
        "python": sys.version.split()[0],
        "packages": packages,
    }
