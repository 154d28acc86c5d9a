"""Files from outside: read up to a limit, JSON whoever wrote it, and paths that stay where they belong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from blocc.errors import BloccError

SHOWN = 80  #: characters of a stranger's value in a message


def read_limited(path: Path, most: int, error: type[BloccError]) -> bytes:
    """The content of a file of at most ``most`` bytes; raises ``error`` with a sentence otherwise.

    Pipes and devices are refused: reading one might never end.
    """
    try:
        if not path.exists():
            raise error(f"there is no file {path}")
        if not path.is_file():
            raise error(f"cannot read {path}: it is not a file")
        with path.open("rb") as stream:
            data = stream.read(most + 1)
    except (OSError, ValueError) as reason:
        if isinstance(reason, BloccError):
            raise
        raise error(f"cannot read {path}: {getattr(reason, 'strerror', None) or reason}") from reason
    if len(data) > most:
        raise error(f"{path} is too large: more than {most:,} bytes, the limit for such a file")
    return data


def parse_json(data: bytes | str, what: str, error: type[BloccError]) -> Any:
    """The value that a JSON text holds; raises ``error`` with a sentence otherwise."""
    try:
        return json.loads(data if isinstance(data, str) else data.decode("utf-8"))
    # Besides bad JSON and bad UTF-8: an integer of thousands of digits, and brackets without end.
    except (ValueError, RecursionError) as reason:
        raise error(f"{what} is not a JSON file: {reason}") from reason


def shown(value: Any) -> str:
    """A stranger's value for a message, cut where it is long."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deep, or an integer of thousands of digits
        return f"a {type(value).__name__} that is too large to show"
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def stays_inside(path: Path, *folders: Path) -> bool:
    """Whether a path, after all its ``..`` and symbolic links, lies in one of the folders."""
    resolved = path.resolve()
    return any(resolved.is_relative_to(folder.resolve()) for folder in folders)
