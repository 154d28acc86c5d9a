"""Where the ``blocc`` command starts: signals are taken note of before anything that takes time is imported.

It lies outside the package, whose import brings JAX. An exception in the middle of an import is taken for a missing
package, lost in a callback, or crashes what is being loaded: so the first signal leaves a mark, and the second ends the
process. The mark is looked at last of all: it decides on the exit code, whatever became of an exception.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from contextlib import suppress
from typing import Any

_USUAL: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


class Mark:
    """A handler of signals that takes note of the first, and ends the process at the second."""

    heard: int | None = None

    def __call__(self, number: int, frame: Any) -> None:
        """Handle a signal."""
        if self.heard is not None:
            os._exit(128 + self.heard)
        self.heard = number

    def take(self) -> None:
        """Handle signals from now on, each where Python's own handler is in place, until the process ends."""
        atexit.register(self.settle, [number for number, usual in _USUAL.items() if signal.getsignal(number) is usual])
        for number, usual in _USUAL.items():
            if signal.getsignal(number) is usual:
                signal.signal(number, self)

    def settle(self, taken: list[signal.Signals]) -> None:
        """Give a process that heard a signal its exit code, without taking Python down.

        Python ends itself by SIGINT, whatever the code, where a KeyboardInterrupt came in the middle of an import, and
        XLA crashes where one came in the middle of its work.
        """
        for number in taken:
            signal.signal(number, signal.SIG_IGN)
        if self.heard is None:
            return
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):  # none at all, full, or closed
                stream.flush()
        os._exit(128 + self.heard)


def main() -> None:
    """Entry point of the ``blocc`` command."""
    mark = Mark()
    mark.take()  # before all else registers what is to be done at the end: so it comes last there
    from blocc.cli.main import run

    run(mark)


if __name__ == "__main__":
    main()
