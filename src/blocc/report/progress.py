"""A live line on standard error while a run goes on."""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Callable
from io import TextIOBase
from types import TracebackType
from typing import TextIO

from blocc.result import HistoryRow


def format_row(iteration: int, row: HistoryRow) -> str:
    """One iteration in one line of text; what a method does not know (NaN) is left out."""
    parts = (
        (iteration, f"{iteration:6d}"),
        (row.gamma, f"gamma {row.gamma:<8.4g}"),
        (0.0, f"f {row.upper_value:<12.7g}"),
        (row.stationarity, f"stationarity {row.stationarity:.1e}"),
        (row.distance, f"||yF-y|| {row.distance:.1e}"),
        (0.0, f"{row.time:.1f} s"),
    )
    return "  ".join(text for value, text in parts if not math.isnan(value))


class ProgressLine:
    """Shows the newest iteration on one line that rewrites itself; give it to ``solve(progress=...)``.

    On a terminal the line is renewed at most ten times a second. Elsewhere (a log file, a batch job) a plain line is
    written every ten seconds. A run shorter than half a second shows nothing. :meth:`close`, or leaving a ``with``
    block, wipes the line from the terminal.

    :param stream: where to write; standard error by default
    :param clock: seconds; the tests bring their own
    """

    patience: float = 0.5  #: seconds before the first line
    interval: float = 0.1  #: seconds between two renewals on a terminal
    log_interval: float = 10.0  #: seconds between two lines elsewhere

    def __init__(self, stream: TextIO | TextIOBase | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._live = self._stream.isatty()
        started = clock()
        self._next = started + (self.patience if self._live else self.log_interval)
        self._shown = 0  # characters on the line now

    def __call__(self, iteration: int, row: HistoryRow) -> None:
        """Report one iteration; cheap when it is too early to show anything."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + (self.interval if self._live else self.log_interval)
        text = format_row(iteration, row)
        if not self._live:
            self._write(text.strip() + "\n")
            return
        # A line that wraps could not be rewritten, so it is cut at the edge of the terminal.
        text = text[: shutil.get_terminal_size().columns - 1]
        self._write("\r" + text.ljust(self._shown))
        self._shown = len(text)

    def close(self) -> None:
        """Wipe the live line, so that whatever is printed next starts on a clean one."""
        if self._shown:
            self._write("\r" + " " * self._shown + "\r")
            self._shown = 0

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the terminal is gone: a run must not die of its progress line
            self._next = float("inf")
