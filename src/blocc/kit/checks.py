"""Rows of a certificate: a number, the limit it is held against, and whether it keeps it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


class CertificateRow(NamedTuple):
    """One number of the certificate, the limit it is held against, and whether it keeps it."""

    name: str
    value: float
    limit: float | None  #: None: nothing is asked of this number
    passed: bool | None  #: None where nothing is asked, or nothing was measured

    @property
    def verdict(self) -> str:
        """In words."""
        if self.passed is None:
            return "not measured" if math.isnan(self.value) else "no limit"
        return "pass" if self.passed else "FAIL"

    def row(self) -> dict[str, Any]:
        """The row with its verdict, as a document has it."""
        return {**self._asdict(), "verdict": self.verdict}


def judged(name: str, value: float, limit: float | None) -> CertificateRow:
    """A number, held against its limit."""
    return CertificateRow(name, value, limit, None if limit is None or math.isnan(value) else value <= limit)


def check_lines(checks: list[CertificateRow]) -> list[str]:
    """The checks as a table, as a terminal shows it."""
    lines = []
    for row in checks:
        value = "-" if math.isnan(row.value) else f"{row.value:.1e}"
        limit = "" if row.limit is None else f"limit {row.limit:.1e}"
        lines.append(f"    {row.verdict:<13} {row.name:<28} {value:<9} {limit}".rstrip())
    return lines


def assumed_lines(assumptions: Iterable[str]) -> list[str]:
    """What was assumed, as lines below a heading."""
    lines = [f"    {sentence}" for sentence in assumptions]
    return ["  assumed", *lines] if lines else []


def verdict(checks: Sequence[CertificateRow]) -> str:
    """How many checks pass, and which do not."""
    failed = [check.name for check in checks if check.passed is False]
    missing = [check.name for check in checks if check.verdict == "not measured"]
    lines = [f"{sum(check.passed is True for check in checks)} checks pass."]
    lines += [f"FAILED: {', '.join(failed)}."] if failed else []
    lines += [f"Not measured, since the run was stopped: {', '.join(missing)}."] if missing else []
    return " ".join(lines)
