"""The entry point of the command line; where typer or rich is not installed, few commands are left (``bare.py``)."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from typing import NoReturn

from blocc._lib.signals import USUAL, unbroken
from blocc._lib.streams import outlive_readers
from blocc.cli.ending import INTERRUPTED, ended_by_signals, exit_code


def main() -> None:
    """Entry point of the ``blocc`` command."""
    outlive_readers()
    try:
        with ended_by_signals() as told:
            _run()
    except SystemExit as ended:
        for number in USUAL:  # it is over, and what it ends with is settled
            signal.signal(number, signal.SIG_IGN)
        if told.heard is None:
            raise
        _leave(exit_code(told) if ended.code == INTERRUPTED else int(ended.code or 0))


def _leave(code: int) -> NoReturn:
    """End the process without taking Python down.

    Python ends itself by SIGINT, whatever the code, where a KeyboardInterrupt came in the middle of an import, and XLA
    crashes where one came in the middle of its work.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run() -> None:
    with unbroken():  # an import that is broken off may be taken for a package that is missing
        try:
            import rich  # noqa: F401
            import typer  # noqa: F401
        except ImportError as error:
            from blocc.cli.bare import run_bare

            sys.exit(run_bare(sys.argv[1:], (error.name or "typer").partition(".")[0]))
        from blocc.cli.commands import build_app
    build_app()()


if __name__ == "__main__":
    main()
