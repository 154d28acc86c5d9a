"""The entry point of the command line; where typer or rich is not installed, few commands are left (``bare.py``)."""

from __future__ import annotations

import signal
import sys

from blocc._lib.signals import USUAL, unbroken
from blocc._lib.streams import outlive_readers
from blocc.cli.ending import ended_by_signals


def main() -> None:
    """Entry point of the ``blocc`` command."""
    outlive_readers()
    try:
        with ended_by_signals():
            _run()
    finally:
        for number in USUAL:  # it is over, and what it ends with is settled
            signal.signal(number, signal.SIG_IGN)


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
