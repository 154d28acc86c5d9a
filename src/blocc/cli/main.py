"""What the ``blocc`` command does; where typer or rich is not installed, few commands are left (``bare.py``).

The program starts in ``blocc_command``, outside the package.
"""

from __future__ import annotations

import sys
from typing import Any

from blocc._lib.files import DISK_ERRORS
from blocc._lib.signals import taking_over, unbroken
from blocc._lib.streams import outlive_readers
from blocc.cli.ending import NOT_WRITTEN, ended_by_signals


def main() -> None:
    """The ``blocc`` command, for whoever has imported the package before."""
    from blocc_command import main as start

    start()


def run(mark: Any) -> None:
    """Parse the command line and do what it asks for.

    :param mark: the present handler of signals; it gets to know in ``heard`` what came meanwhile
    """
    outlive_readers()
    with taking_over(mark), ended_by_signals() as told:
        try:
            if mark.heard is not None:
                sys.exit(128 + mark.heard)
            try:
                _run()
            finally:
                if sys.stdout is not None:
                    sys.stdout.flush()
        except OSError as error:
            if error.errno not in DISK_ERRORS:
                raise
            print(f"blocc: {error}", file=sys.stderr)
            sys.exit(NOT_WRITTEN)
        finally:
            mark.heard = told.heard or mark.heard


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
