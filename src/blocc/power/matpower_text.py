"""The tables of a MATPOWER file as text, checked before a reader that would fail in words of its own."""

from __future__ import annotations

import re
from pathlib import Path

from blocc.errors import InputError

_BEGIN = re.compile(r"\bmpc\.(\w+)\s*=\s*\[")
#: Numbers as MATLAB writes them.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eEdD][+-]?\d+)?|[+-]?(inf|nan)", re.IGNORECASE)
_TABLES = {"bus": "buses", "gen": "generators", "branch": "lines", "gencost": "costs"}


def read_text(path: Path) -> str:
    """The text of a MATPOWER file."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if "mpc" not in text or "function" not in text:
        raise InputError(f"{path} is no MATPOWER case: it has no line 'function mpc = ...'")
    return text


def check_tables(path: Path, text: str) -> None:
    """Refuse tables that are missing, empty, not closed, ragged, or hold something else than numbers."""
    code = "\n".join(line.partition("%")[0] for line in text.splitlines()).replace("...\n", " ")
    found = {one.group(1): one.end() for one in _BEGIN.finditer(code)}
    for table, what in _TABLES.items():
        if table not in found:
            raise InputError(f"{path}: there is no table mpc.{table}: a market needs {what}")
        inside, closed, _ = code[found[table] :].partition("]")
        if not closed or _BEGIN.search(inside):
            raise InputError(f"{path}: mpc.{table} is not closed: its rows must end with ];")
        _check_rows(f"{path}: mpc.{table}", what, inside)


def _check_rows(where: str, what: str, inside: str) -> None:
    rows = [row.split() for row in re.split(r"[;\n]", inside) if row.strip()]
    if not rows:
        raise InputError(f"{where} has no rows; a market needs {what}")
    for number, row in enumerate(rows, start=1):
        for entry in row:
            if "," in entry:
                raise InputError(f"{where}, row {number}: numbers must have spaces between them, not commas")
            if not _NUMBER.fullmatch(entry):
                raise InputError(f"{where}, row {number}: {entry!r} is no number")
        if len(row) != len(rows[0]):
            raise InputError(
                f"{where}, row {number} has {len(row)} numbers, and row 1 has {len(rows[0])}: all rows of a table must "
                "have as many (fill up with zeros)"
            )
