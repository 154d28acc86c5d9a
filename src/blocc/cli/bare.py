"""The commands that an installation without typer and rich still has: ``--version``, ``info`` and ``examples``.

The parser is argparse's; what the commands do is what they do with typer.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from blocc._lib.version import __version__
from blocc.cli.examples import copy_example, print_examples
from blocc.cli.info import print_info
from blocc.errors import BloccError

BAD_INPUT = 2


def run_bare(words: Sequence[str], missing: str) -> int:
    """Do what these words of the command line ask for, and return the exit code.

    :param missing: the package that all other commands need
    """
    lacking = f"the command line needs {missing}: pip install 'blocc[cli]'"
    if words and not words[0].startswith("-") and words[0] not in ("info", "examples"):
        print(f"{lacking} (without it there are blocc --version, info and examples)", file=sys.stderr)
        return BAD_INPUT
    parser = _parser(lacking)
    if not words:
        parser.print_help()
        return BAD_INPUT
    given = vars(parser.parse_args(words))
    command: Callable[..., None] = given.pop("command")
    try:
        command(**given)
    except BloccError as error:
        print(f"blocc: {error}", file=sys.stderr)
        return BAD_INPUT
    return 0


def _parser(lacking: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("blocc", epilog=f"For everything else {lacking}")
    parser.add_argument("--version", action="version", version=f"blocc {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    info = _command(commands, "info", print_info)
    info.add_argument("--json", dest="as_json", action="store_true", help="print it as JSON")
    examples = commands.add_parser("examples", help="examples to read, to run and to change")
    kinds = examples.add_subparsers(required=True, metavar="COMMAND")
    _command(kinds, "list", print_examples)
    copy = _command(kinds, "copy", copy_example)
    copy.add_argument("name", help="one of the names that list shows")
    copy.add_argument("folder", nargs="?", type=Path, default=Path(), help="where to copy it to")
    return parser


def _command(commands: Any, name: str, function: Callable[..., None]) -> argparse.ArgumentParser:
    """One command, with the first line of its function's docstring as its help."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=(function.__doc__ or "").partition("\n")[0])
    parser.set_defaults(command=function)
    return parser
