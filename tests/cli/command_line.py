"""The command line as tests call it, and what it prints and writes as values."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from blocc.cli.commands import build_app


def blocc(*arguments: object) -> Result:
    """One command in this process."""
    return CliRunner().invoke(build_app(), [str(argument) for argument in arguments])


def strict(text: str) -> Any:
    """JSON without NaN and infinities, which the standard does not know."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))
