"""How a command ends that is asked to stop: what is there is printed and kept, and the exit code names the signal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from signal import Signals

from blocc._lib.signals import Waiting, listening

NOT_WRITTEN = 11  #: the disk is full or broken
INTERRUPTED = 128 + Signals.SIGINT  #: 130; after SIGTERM it is 143


@contextmanager
def ended_by_signals() -> Iterator[Waiting]:
    """In this block a signal ends a solver with the best answer so far, and any other work at once.

    An answer that comes back is printed and written as usual; the caller asks what was ``heard`` for its exit code.
    """
    command = Waiting()
    with listening(command):
        try:
            yield command
        except KeyboardInterrupt:
            print("blocc: interrupted before there was an answer", file=sys.stderr)
            sys.exit(exit_code(command) or INTERRUPTED)


def exit_code(command: Waiting) -> int:
    """Of a command that has heard a signal; 0 where it has not."""
    return 0 if command.heard is None else 128 + command.heard
