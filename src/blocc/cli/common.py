"""What all commands share: exit codes, options in groups, a gamma given as text, errors as one sentence, text under a
coloured line."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, get_type_hints

from blocc.errors import BloccError, InputError
from blocc.result import Status

BAD_INPUT = 2
EXIT_CODES: dict[Status, int] = {
    Status.CONVERGED: 0,
    Status.STALLED: 3,
    Status.ITERATION_LIMIT: 3,
    Status.INFEASIBLE: 4,
    Status.UNBOUNDED: 5,
    Status.NOT_CONVEX: 6,
    Status.NOT_FINITE: 7,
    Status.TIME_LIMIT: 8,
    Status.PENALTY_OPEN: 9,
    Status.STOPPED: 130,
    Status.INTERRUPTED: 130,
}


def parse_gamma(text: str | None) -> float | str | None:
    """``auto`` or a number."""
    if text is None or text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--gamma must be 'auto' or a positive number, got {text!r}") from None


def print_headed(text: str, success: bool) -> None:
    """Print text whose first line is green or red."""
    from rich.console import Console

    first, _, rest = text.partition("\n")
    console = Console(soft_wrap=True, highlight=False)
    console.print(first, style="bold green" if success else "bold red", markup=False)
    console.print(rest, markup=False)


def with_flat_options(command: Callable[..., None]) -> Callable[..., None]:
    """Turn a function of dataclasses into what typer takes: a function with a parameter for each of their fields."""
    try:
        hints = get_type_hints(command)
        groups = [hints[name] for name in inspect.signature(command).parameters]
        types: dict[str, Any] = {}
        for group in groups:
            types |= get_type_hints(group, include_extras=True)
    except NameError:  # without typer the annotations mean nothing, and the entry point says what is missing
        return command

    @functools.wraps(command)
    def run(**given: Any) -> None:
        command(*(group(**{field.name: given[field.name] for field in fields(group)}) for group in groups))

    run.__annotations__ = types
    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=types[field.name],
        )
        for group in groups
        for field in fields(group)
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Turn an error that the user can mend into one sentence and exit code 2."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        import typer

        try:
            command(*arguments, **options)
        except BloccError as error:
            print(f"blocc: {error}", file=sys.stderr)
            raise typer.Exit(BAD_INPUT) from None

    return run
