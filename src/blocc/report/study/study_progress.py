"""How far studies are, on standard error while they run: a bar on a terminal, plain lines elsewhere; needs rich."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from blocc.studies.engine import Progress

if TYPE_CHECKING:
    from rich.console import Console

LOG_INTERVAL = 10.0  #: seconds between two lines where there is no terminal


class StudyProgress:
    """Shows cells done, failed and in all, the time so far and the time left of one study after the other.

    Its :meth:`report` is for ``run_study(on_progress=...)``. On a terminal a bar renews itself, also between two
    reports: a cell may take minutes. Elsewhere a line is written at most every ten seconds.

    :param quiet: show nothing, and only remember the newest report
    :param clock: seconds; the tests bring their own
    """

    def __init__(
        self, *, quiet: bool = False, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        self._console = console or Console(stderr=True, highlight=False)
        self._clock = clock
        self._label = ""
        self._quiet = quiet
        self._next = clock() + LOG_INTERVAL
        self.newest: Progress | None = None  #: of the study that was begun last
        self._bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[words]}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=quiet or not self._console.is_terminal,
        )

    def begin(self, label: str) -> None:
        """From now on reports are about the study of this name."""
        self.newest, self._label = None, label
        for task in self._bar.task_ids:
            self._bar.remove_task(task)
        self._bar.add_task(label, total=None, words="")

    def report(self, progress: Progress) -> None:
        """Show this where there is a terminal, or where the last line is old enough."""
        self.newest = progress
        for task in self._bar.task_ids:
            finished = progress.done + progress.failed
            self._bar.update(task, completed=finished, total=progress.total, words=describe(progress))
        if self._quiet or self._console.is_terminal or self._clock() < self._next:
            return
        self._next = self._clock() + LOG_INTERVAL
        line = f"{self._label}: {describe(progress)}, {clock(progress.elapsed)} so far"
        with contextlib.suppress(OSError, ValueError):  # a study must not end because its log is gone
            self._console.print(line, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Wipe the bar and show nothing more."""
        self._bar.stop()

    def __enter__(self) -> StudyProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def describe(progress: Progress) -> str:
    """Progress as words; the bar itself tells the time so far."""
    failed = f", {progress.failed} failed" if progress.failed else ""
    left = "" if progress.left is None else f", about {clock(progress.left)} left"
    return f"{progress.done} of {progress.total} cells done{failed}{left}"


def clock(seconds: float) -> str:
    """Seconds as 0:05, 12:30 or 1:02:03."""
    whole = math.ceil(seconds - 1e-6)  # rounding must not cost a second
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"
