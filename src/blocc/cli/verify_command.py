"""``blocc verify``: is a saved result true?"""

from __future__ import annotations

import json
from typing import Annotated

from blocc._lib.files import plain
from blocc.cli.common import EXIT_CODES
from blocc.judge.verification import WORDS, Verification, readable
from blocc.judge.verify import TOLERANCE, verify
from blocc.problems.loading import load_problem
from blocc.report.storage import ChangedError, load_result
from blocc.result import Status

try:
    import typer
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
except ImportError:  # blocc.cli.main says so
    pass

#: A claim that does not hold counts like an assumption that fails.
NOT_VERIFIED = EXIT_CODES[Status.NOT_CONVEX]


def verify_command(
    result: Annotated[
        str, typer.Argument(help="What --save or Result.save wrote: PATH.json.", metavar="RESULT", show_default=False)
    ],
    problem: Annotated[
        str,
        typer.Argument(help="The Python file that builds its problem.", metavar="FILE.py[:NAME]", show_default=False),
    ],
    tolerance: Annotated[float, typer.Option(help="Relative tolerance; never the result's own.")] = TOLERANCE,
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
    quiet: Annotated[bool, typer.Option(help="Print nothing; the exit code tells.")] = False,
) -> None:
    """Recompute everything that a saved result claims, from the problem alone.

    Exit code 0: every claim holds; 6: one does not, or the files were changed after they were saved; 2: bad input.
    """
    target = load_problem(problem)
    try:
        found = load_result(result)
    except ChangedError as error:
        if as_json:
            print(json.dumps({"ok": False, "error": str(error)}, indent=2))
        elif not quiet:
            print(f"NOT verified: {error}")
        raise typer.Exit(NOT_VERIFIED) from None
    verification = verify(target, found, tolerance)
    if as_json:
        print(json.dumps(plain(verification.to_dict()), indent=2))
    elif not quiet:
        _print(verification)
    raise typer.Exit(0 if verification.ok else NOT_VERIFIED)


def _print(verification: Verification) -> None:
    console = Console(highlight=False)
    table = Table(box=SIMPLE)
    table.add_column("claim", no_wrap=True)
    for heading in ("result says", "recomputed", ""):
        table.add_column(heading, overflow="fold")
    table.add_column("by", style="dim")
    for check in verification.checks:
        style = "green" if check.ok else "red" if check.ok is False else "yellow"
        cells = (check.name, readable(check.claimed), readable(check.recomputed))
        words = f"[{style}]{WORDS[check.ok]}[/{style}]"
        table.add_row(*map(escape, cells), words, escape(check.note))  # a file from outside may hold any text
    console.print(table)
    verdict = "verified" if verification.ok else "NOT verified"
    style = "bold green" if verification.ok else "bold red"
    console.print(f"{verification.name}: {verdict} (tolerance {verification.tolerance:g})", style=style, markup=False)
