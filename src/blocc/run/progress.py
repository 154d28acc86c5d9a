"""What a user sees of a run while it goes on, and what a checkpoint adds to its result."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from blocc._lib.arrays import NDArray
from blocc._lib.log import log_answer, logger
from blocc._lib.notebook import live_stream
from blocc.errors import OptionError
from blocc.options import Options
from blocc.problem import BilevelProblem
from blocc.result import Result
from blocc.resume.file import open_recording
from blocc.resume.recording import Recording
from blocc.run.single import Report


class Files(NamedTuple):
    """Where a run keeps itself."""

    checkpoint: str | Path | None
    resume: str | Path | None
    seconds: float

    @property
    def wanted(self) -> bool:
        """Whether there is any."""
        return self.checkpoint is not None or self.resume is not None

    def recording(self, problem: BilevelProblem, settings: Options | dict[str, Any], starts: NDArray) -> Recording:
        """What the run is kept in; every mistake with the files is found out before any work."""
        described = {"method": "blocc", **settings.described()} if isinstance(settings, Options) else settings
        return open_recording(problem, described, starts, *self)


def with_remark(result: Result, recording: Recording) -> Result:
    """The result, with a sentence about a checkpoint that is not as it should be."""
    remark = recording.remark()
    return replace(result, message=result.message + remark) if remark else result


def make_report(progress: bool | Report | None, verbose: bool = False) -> Report | None:
    """What shows the progress of a run: a table, a live line (terminal, notebook), the user's function, the log."""
    if not isinstance(verbose, bool):
        raise OptionError(f"verbose must be True or False, got {verbose!r}")
    if verbose and progress is not None and progress is not False:
        raise OptionError("give either verbose=True or progress, not both: each shows the iterations")
    if verbose:
        from blocc.report.progress import IterationTable  # that room stands on this one

        return IterationTable()
    if callable(progress):
        return progress
    if progress is not None and not isinstance(progress, bool):
        raise OptionError(f"progress must be True, False, None or a function of the iteration, got {progress!r}")
    logged, shown = logger.isEnabledFor(logging.DEBUG), progress or (progress is None and live_stream().isatty())
    if not (logged or shown):
        return None
    from blocc.report.progress import LoggedLine, ProgressLine  # that room stands on this one

    line = ProgressLine() if shown else None
    return LoggedLine(line) if logged else line


def log_end(result: Result) -> Result:
    """The result itself, after one line about it in the log."""
    seconds = f"{result.seconds.get('run', 0.0):.3g} s (and {result.seconds.get('compile', 0.0):.3g} s to compile)"
    return log_answer(result, f"upper value {result.upper_value:.10g}", seconds)


@contextmanager
def closing_report(report: Report | None) -> Iterator[None]:
    """Wipe the live line at the end, whatever the end is."""
    try:
        yield
    finally:
        close = getattr(report, "close", None)
        if close is not None:
            close()
