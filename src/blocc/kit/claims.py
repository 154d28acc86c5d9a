"""Claims of an answer beside what was recomputed; and of a saved document, which figures follow from others in it.

A document says many things twice: a table and its sum, a certificate and its verdicts. A verifier recomputes what the
document rests on; here the rest is made anew from that and compared. What remains is named as unchecked, so that nobody
takes silence for consent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from blocc._lib.files import shown
from blocc.judge.verification import Check, Verification

Path = tuple[str | int, ...]

#: Figures that are made by the same operations agree to this: relative to themselves, and, where terms cancel, to the
#: largest of the figures beside them (sums of thousands of terms have errors of thousands of roundings, 2e-16 each).
_SAME, _ROUNDING = 1e-9, 1e-12
_NAMED = 3  #: contradictions in a message

#: What is in a saved result and no check is about, and why.
RESULT_UNCHECKED = {
    "version": "of the format",
    **dict.fromkeys(("result.counts", "result.seconds", "result.versions", "history"), "of the run"),
    "result.settings": "of the run: what they say is not believed",
    "result.bound": "held against the value; its proof is not repeated",
}
#: Held within the tolerance of the verification, which computes its own.
RESULT_BOUNDED = {
    "result.certificate": "each residual is held within the tolerance",
    "result.gamma": "a choice of the run: what is told at it is held within the tolerance",
}
#: Of problems in CVXPY, whose verifier solves the followers again and not the penalised problem.
CONE_UNCHECKED = RESULT_UNCHECKED | {
    "result.gamma": "of the run",
    "result.y_penalty": "of the run, as is the value there",
    "result.upper_value_penalty": "of the run",
    "result.multipliers": "used where the leader's objective has prices, and not recomputed",
}


class Claims:
    """What an answer claims, each beside what was recomputed, and within which tolerance they agree."""

    def __init__(self, name: str, tolerance: float, success: bool) -> None:
        """``success``: whether the answer claims to have converged, and therefore everything."""
        self.name, self.tolerance, self.success = name, tolerance, success
        self.checks: list[Check] = []

    def add(self, name: str, claimed: float | str, recomputed: float | str, ok: bool | None, note: str = "") -> None:
        """One more claim, and whether it holds; None: it could not be found out."""
        self.checks.append(Check(name, claimed, recomputed, None if ok is None else bool(ok), note))

    def same(self, name: str, claimed: float, recomputed: float, allowed: float, note: str = "") -> None:
        """A figure, and by how much the other may differ."""
        self.add(name, claimed, recomputed, abs(claimed - recomputed) <= allowed, note)

    def near(self, name: str, claimed: str, away: float, allowed: float, note: str = "") -> None:
        """Many figures, by the largest difference from what they should be."""
        self.add(name, claimed, f"{away:.1e} away", away <= allowed, note)

    def holds(self, name: str, claimed: str, ok: bool, otherwise: str, so: str = "so they are", note: str = "") -> None:
        """A property, in words."""
        self.add(name, claimed, so if ok else otherwise, ok, note)

    def concluded(self) -> Verification:
        """All claims, and whether the status follows."""
        if self.success:
            wrong = [check.name for check in self.checks if not check.ok]
            self.add("status", "converged", f"not: {', '.join(wrong)}" if wrong else "converged", not wrong)
        return Verification(self.name, self.tolerance, tuple(self.checks), self.success)


@dataclass(frozen=True)
class FileVerification(Verification):
    """The checks of a file, and the names of what is in it and was not checked, with the reason."""

    unchecked: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return {**super().to_dict(), "unchecked": dict(self.unchecked)}

    def __str__(self) -> str:
        return "\n".join([super().__str__(), *(f"  {line}" for line in self.reserve())])

    def reserve(self) -> list[str]:
        """What was not checked, a line for each reason."""
        names: dict[str, list[str]] = {}
        for name, reason in self.unchecked.items():
            names.setdefault(reason, []).append(name)
        return [f"unchecked ({reason}): {', '.join(found)}" for reason, found in names.items()]

    def __repr__(self) -> str:
        return str(self)


def of_file(found: Verification, unchecked: Mapping[str, str], *more: Check) -> FileVerification:
    """A verification with further checks of the file, and what no check is about."""
    given = {one.name: getattr(found, one.name) for one in fields(Verification)}
    return FileVerification(**{**given, "checks": (*found.checks, *more)}, unchecked=unchecked)


def consistent(
    document: Mapping[str, Any],
    anew: Mapping[str, Any],
    unchecked: Mapping[str, str],
    loose: Mapping[str, float] | None = None,
) -> Check:
    """Whether the figures of a document are those that follow from what was verified.

    :param anew: the document made anew
    :param unchecked: names of what is left out, with all that is below them
    :param loose: names of figures that two solvers may disagree about, and by how much, relative
    """
    wrong = list(_contradictions(document, anew, unchecked, loose or {}))
    told = f"{'; '.join(wrong[:_NAMED])}{f' and {len(wrong) - _NAMED} more' * (len(wrong) > _NAMED)}"
    return Check("figures that follow", "from the rest of the file", told or "so they do", not wrong)


def name_of(path: Path) -> str:
    """The name of a figure: of a table's, that of its column."""
    return ".".join(part for part in path if isinstance(part, str))


def figures(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every number, yes or no, and gap (null) of a document with its place."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from figures(value, (*path, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from figures(value, (*path, index))
    elif tree is None or isinstance(tree, (bool, int, float)):
        yield path, tree


def is_below(name: str, names: Iterable[str]) -> bool:
    """Whether a figure has one of the names, or belongs to a part that has."""
    return any(name == one or name.startswith(one + ".") for one in names)


def _contradictions(
    document: Mapping[str, Any], anew: Mapping[str, Any], unchecked: Mapping[str, str], loose: Mapping[str, float]
) -> Iterator[str]:
    known = dict(figures(anew))
    beside: dict[Path, float] = {}
    for path, value in known.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            beside[path[:-1]] = max(beside.get(path[:-1], 0.0), abs(value))
    said = dict(figures(document))
    for path in [*said, *(path for path in known if path not in said)]:
        name = name_of(path)
        if is_below(name, unchecked):
            continue
        if path not in known or path not in said:
            yield f"{_placed(path)} is {'not known' if path in said else 'missing'}"
        elif not _agree(said[path], known[path], loose.get(name, _SAME), beside.get(path[:-1], 0.0)):
            yield f"{_placed(path)} is {shown(said[path])} and follows as {shown(known[path])}"


def _placed(path: Path) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def _agree(one: Any, other: Any, relative: float, beside: float) -> bool:
    if one is None or other is None or isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if not (math.isfinite(one) and math.isfinite(other)):
        return bool(one == other)
    return abs(one - other) <= relative * max(abs(one), abs(other)) + _ROUNDING * beside
