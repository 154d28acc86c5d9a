"""The entry point of the command line, which says what is missing where typer or rich is not installed."""

from __future__ import annotations

import sys

from blocc._lib.streams import outlive_readers


def main() -> None:
    """Entry point of the ``blocc`` command."""
    outlive_readers()
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as error:
        missing = (error.name or "typer").partition(".")[0]
        print(f"the command line needs {missing}: pip install 'blocc[cli]'", file=sys.stderr)
        sys.exit(2)
    from blocc.cli.commands import build_app

    build_app()()


if __name__ == "__main__":
    main()
