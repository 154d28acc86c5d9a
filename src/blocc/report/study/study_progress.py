"""How far a study is, in one line on standard error."""

from __future__ import annotations

import math
import shutil
import threading
from dataclasses import replace
from typing import Any

from blocc.report.progress import ProgressLine
from blocc.studies.engine import Progress


class StudyLine(ProgressLine):
    """Shows cells done, failed and in all, the time so far and the time left.

    Its :meth:`report` is for ``run_study(on_progress=...)``. On a terminal one line rewrites itself, also between two
    reports: a cell may take minutes. Elsewhere a plain line is written every ten seconds.
    """

    tick = 0.5  #: seconds between two looks at the clock

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.label = ""  #: stands in front, where several studies are run one after the other
        self._newest: tuple[float, Progress] | None = None
        self._guard = threading.RLock()
        self._ended = threading.Event()
        self._ticker: threading.Thread | None = None

    def report(self, progress: Progress) -> None:
        """Take note of this, and show it if it is time to."""
        with self._guard:
            self._newest = self._clock(), progress
        if self._ticker is None:
            self._ticker = threading.Thread(target=self._keep_ticking, daemon=True)
            self._ticker.start()
        self.refresh()

    def refresh(self) -> None:
        """Show what was reported last, with the time that has passed since."""
        with self._guard:
            now = self._clock()
            if now < self._next or self._newest is None:
                return
            self._next = now + (self.interval if self._live else self.log_interval)
            then, progress = self._newest
            left = None if progress.left is None else max(progress.left - (now - then), 0.0)
            aged = replace(progress, elapsed=progress.elapsed + now - then, left=left)
            text = " ".join(part for part in (self.label, describe(aged)) if part)
            if not self._live:
                self._write(text + "\n")
                return
            # A line that wraps could not be rewritten, so it is cut at the edge of the terminal.
            text = text[: shutil.get_terminal_size().columns - 1]
            self._write("\r" + text.ljust(self._shown))
            self._shown = len(text)

    def __enter__(self) -> StudyLine:
        return self

    def close(self) -> None:
        """Wipe the live line and show nothing more."""
        self._ended.set()
        with self._guard:
            self._newest = None
            super().close()

    def _keep_ticking(self) -> None:
        while not self._ended.wait(self.tick):
            self.refresh()


def describe(progress: Progress) -> str:
    """Progress as words."""
    failed = f", {progress.failed} failed" if progress.failed else ""
    left = "" if progress.left is None else f", about {clock(progress.left)} left"
    return f"{progress.done} of {progress.total} cells done{failed}, {clock(progress.elapsed)} so far{left}"


def clock(seconds: float) -> str:
    """Seconds as 0:05, 12:30 or 1:02:03."""
    whole = math.ceil(seconds - 1e-6)  # rounding must not cost a second
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"
