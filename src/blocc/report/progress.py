"""A live line while a run goes on: on standard error, or in the cell of a notebook."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from io import TextIOBase
from types import TracebackType
from typing import ClassVar, Self, TextIO

from blocc._lib.log import logger
from blocc._lib.notebook import live_stream
from blocc.kit.records import Step
from blocc.kit.text import duration
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

    On a terminal, or in a notebook, the line is renewed at most ten times a second. Elsewhere (a log file, a batch
    job) a plain line is written every ten seconds. A run shorter than half a second shows nothing. :meth:`close`,
    or leaving a ``with`` block, wipes the line.

    :param stream: where to write; by default standard error, or the cell of a notebook
    :param clock: seconds; the tests bring their own
    """

    patience: float = 0.5  #: seconds before the first line
    interval: float = 0.1  #: seconds between two renewals on a terminal
    log_interval: float = 10.0  #: seconds between two lines elsewhere

    def __init__(self, stream: TextIO | TextIOBase | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = live_stream() if stream is None else stream
        self._clock = clock
        self._live = self._stream.isatty()
        started = clock()
        self._next = started + (self.patience if self._live else self.log_interval)
        self._shown = 0  # characters on the line now

    def __call__(self, iteration: int, row: HistoryRow) -> None:
        """Report one iteration; cheap when it is too early to show anything."""
        self.show(lambda: self.words(iteration, row))

    def show(self, words: Callable[[], str]) -> None:
        """Show these words, unless it is too early."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + (self.interval if self._live else self.log_interval)
        text = words()
        if not self._live:
            self._write(text.strip() + "\n")
            return
        # A line that wraps could not be rewritten, so it is cut at the edge of the terminal.
        text = text[: shutil.get_terminal_size().columns - 1]
        self._write("\r" + text.ljust(self._shown))
        self._shown = len(text)

    def words(self, iteration: int, row: HistoryRow) -> str:
        """What the line says about an iteration."""
        return format_row(iteration, row)

    def close(self) -> None:
        """Wipe the live line, so that whatever is printed next starts on a clean one."""
        if self._shown:
            self._write("\r" + " " * self._shown + "\r")
            self._shown = 0

    def __enter__(self) -> Self:
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


class IterationTable:
    """Prints every iteration as one line of a table, as solvers do; ``solve(verbose=True)`` has one.

    What a method does not know is left out of its table; numbers mean what they do in the history.
    """

    again: int = 20  #: lines after which the headings are printed again
    columns: ClassVar[dict[str, str]] = {
        "gamma": "9.3g",
        "upper_value": "15.8e",
        "penalty_value": "15.8e",
        "stationarity": "12.2e",
        "inner_residual": "14.2e",
        "distance": "9.2e",
        "step": "9.2e",
        "evaluations": "11.0f",
        "time": "8.2f",
    }

    def __init__(self, stream: TextIO | TextIOBase | None = None) -> None:
        self._stream = stream
        self._shown, self._lines = list[str](), 0

    def __call__(self, iteration: int, row: HistoryRow) -> None:
        """Print one iteration."""
        known = [
            name for name in self.columns if not math.isnan(getattr(row, name)) or name in ("step", "stationarity")
        ]
        widths = {name: max(int(form.partition(".")[0]), len(name)) for name, form in self.columns.items()}
        if known != self._shown or self._lines % self.again == 0:
            print("iteration", *(f"{name:>{widths[name]}}" for name in known), file=self._stream, flush=True)
            self._shown = known
        values = (f"{format(getattr(row, name), self.columns[name]):>{widths[name]}}" for name in known)
        print(f"{iteration:9d}", *values, file=self._stream, flush=True)
        self._lines += 1


class LoggedLine:
    """Every iteration in the log, at the level of debugging, and on a live line where there is one."""

    def __init__(self, line: ProgressLine | None) -> None:
        self._line = line

    def __call__(self, iteration: int, row: HistoryRow) -> None:
        """Report one iteration."""
        logger.debug("%s", format_row(iteration, row).strip())
        if self._line is not None:
            self._line(iteration, row)

    def close(self) -> None:
        """Wipe the live line."""
        if self._line is not None:
            self._line.close()


class DesignProgress(ProgressLine):
    """The same for a design: which start of how many, the utility, and the time so far and left.

    The time left is that of the starts that remain, as long as those before on average (the first: as expected), or
    what a time limit leaves.

    :param starts: how many there are
    :param time_limit: seconds, if the run has a limit
    :param expected: seconds that a start may take
    """

    def __init__(
        self,
        starts: int,
        time_limit: float | None = None,
        stream: TextIO | TextIOBase | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        expected: float = math.inf,
    ) -> None:
        super().__init__(stream, clock)
        self._starts, self._limit = starts, math.inf if time_limit is None else time_limit
        self._expected = expected
        self._start, self._began, self._evaluations = 1, 0.0, 0
        self._best = -math.inf  # utility of all starts so far

    def __call__(self, iteration: int, row: HistoryRow) -> None:
        """Report one iteration; evaluations are counted anew by every start."""
        if row.evaluations < self._evaluations:
            self._next_start(row.time)
        self._evaluations = row.evaluations
        self._best = max(self._best, -row.upper_value)
        super().__call__(iteration, row)

    def _next_start(self, seconds: float) -> None:
        if not self._live:
            self._write(f"start {self._start} of {self._starts} ended after {duration(seconds)}\n")
        self._start, self._began = self._start + 1, seconds

    def words(self, iteration: int, row: HistoryRow) -> str:
        """What the line says about an iteration."""
        utility = f"utility {-row.upper_value:.6g}  best {self._best:.6g}"
        return f"start {self._start} of {self._starts}  {utility}  gamma {row.gamma:.4g}  {self._so_far(row.time)}"

    def _so_far(self, seconds: float) -> str:
        """The time so far, and about how much is left."""
        mean = self._began / (self._start - 1) if self._start > 1 else self._expected
        own = max(mean - (seconds - self._began), 0.0)  # of the start under way
        left = min(self._limit - seconds, own + mean * (self._starts - self._start))
        about = f"about {duration(left)} left" if math.isfinite(left) else "time left not known yet"
        return f"{duration(seconds)}, {about}"


class SearchProgress(DesignProgress):
    """The same for a search that reports steps.

    :param is_maximised: whether the objective is the larger the better
    """

    def __init__(self, starts: int, time_limit: float | None = None, *, is_maximised: bool = False) -> None:
        super().__init__(starts, time_limit)
        self._sense = -1.0 if is_maximised else 1.0

    def step(self, step: Step) -> None:
        """Report one value."""
        if step.start >= self._start:
            self._next_start(step.seconds)
        if math.isinf(step.gamma):  # an exact value
            self._best = max(self._best, -step.value)
        self.show(lambda: self._words(step))

    def _words(self, step: Step) -> str:
        gamma = "exact" if math.isinf(step.gamma) else f"gamma {step.gamma:.4g}"
        best = "" if math.isinf(self._best) else f"  best {-self._sense * self._best:.6g}"
        start = f"start {min(self._start, self._starts)} of {self._starts}"
        return f"{start}  objective {self._sense * step.value:.6g}{best}  {gamma}  {self._so_far(step.seconds)}"
