"""Output whose reader may leave: ``blocc ... | head -1`` ends like any other run, without an error of its own."""

from __future__ import annotations

import io
import sys
from typing import Any


class _Enduring(io.FileIO):
    """A descriptor that takes what it is given also when the other end of the pipe is closed.

    A disk that is full or broken is an error once; what a buffer keeps of it is lost when it is given again.
    """

    _failed = False

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            return memoryview(data).nbytes
        except OSError as error:
            if self._failed:
                return memoryview(data).nbytes
            self._failed = True
            raise OSError(error.errno, f"cannot write the output: {error.strerror}") from None


def outlive_readers() -> None:
    """See to it that printing never fails when its reader has left: what is printed then is lost, and no more.

    The work goes on, files are written, and the exit code tells how it ended. For the entry points of programs: it
    replaces ``sys.stdout`` and ``sys.stderr`` unless they lead to a terminal.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        try:
            if stream.isatty():
                continue
            descriptor = stream.fileno()
            stream.flush()
        except (AttributeError, OSError, ValueError):  # none at all, closed, or no file
            continue
        lasting = io.TextIOWrapper(
            io.BufferedWriter(_Enduring(descriptor, "w", closefd=False)),
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering or stream.write_through,
        )
        setattr(sys, name, lasting)
