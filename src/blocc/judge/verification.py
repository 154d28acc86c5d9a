"""What a verification says: claims beside what was recomputed, as a table or as plain values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from blocc._lib.notebook import card


@dataclass(frozen=True)
class Check:
    """One claim: what the result says, what came out, and whether that will do (None: it could not be found out).

    A success needs an answer to every check but those that it does not rest on (``needed``): they are named as not
    checked.
    """

    name: str
    claimed: float | str
    recomputed: float | str
    ok: bool | None
    note: str = ""
    needed: bool = True

    def __post_init__(self) -> None:
        """A truth value of NumPy's is taken as Python's: it is neither True nor False by identity."""
        object.__setattr__(self, "ok", None if self.ok is None else bool(self.ok))

    def against(self, success: bool) -> bool:
        """Whether it speaks against a result that claims success, or does not."""
        return self.ok is False or (self.ok is None and success and self.needed)

    @property
    def word(self) -> str:
        """How the outcome reads."""
        return _WORDS[self.ok] if self.needed or self.ok is not None else "not checked"


@dataclass(frozen=True)
class Verification:
    """All checks of one result. ``print`` shows them as a table; ``ok`` is the outcome."""

    name: str
    tolerance: float
    checks: tuple[Check, ...]
    claims_success: bool  #: whether the result does, and every check must therefore have an answer

    @property
    def ok(self) -> bool:
        """Whether every claim holds. What could not be checked counts against a result that claims success."""
        return not self.failed

    @property
    def failed(self) -> tuple[Check, ...]:
        """The claims that do not hold or, for a result that claims success, could not be checked."""
        return tuple(check for check in self.checks if check.against(self.claims_success))

    def __getitem__(self, name: str) -> Check:
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        checks = [asdict(check) for check in self.checks]
        return {"name": self.name, "ok": self.ok, "tolerance": self.tolerance, "checks": checks}

    def _repr_html_(self) -> str:
        return card(str(self), self.ok)

    def __str__(self) -> str:
        head = f"{self.name}: {'verified' if self.ok else 'NOT verified'} (tolerance {self.tolerance:g})"
        rows = [(c.name, readable(c.claimed), readable(c.recomputed), c.word, c.note) for c in self.checks]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)) for row in rows]
        notes = [f"  {row[4]}" if row[4] else "" for row in rows]
        return "\n".join([head, *(f"  {line}{note}".rstrip() for line, note in zip(lines, notes, strict=True))])


_WORDS: dict[bool | None, str] = {True: "ok", False: "FAILS", None: "unknown"}


def readable(value: float | str) -> str:
    """A claim as text."""
    return value if isinstance(value, str) else f"{value:.8g}"
