"""What an application of one bilevel program needs beside its mathematics: a search, its answer, files and a page.

An application declares what it is about (a dataclass), what it answers (a dataclass that extends :class:`Answer`) and
which tables that has. :func:`answered` searches from several starts, :func:`answer_document` declares the files, whose
page shows every table, the way to the answer and the certificate. ``examples/parking.py`` is one.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import numpy as np

from blocc._lib.compiled import clock
from blocc._lib.notebook import Shown
from blocc.errors import InputError
from blocc.judge.verification import Verification
from blocc.kit.charts import steps_chart
from blocc.kit.checks import CertificateRow, check_lines
from blocc.kit.documents import Columns, Document, Summary, Tables, rows_of
from blocc.kit.page import Section, answer_page, chart, record_table, table
from blocc.kit.records import Step, decoded, encoded, picked
from blocc.kit.text import duration, number
from blocc.outer.monitor import State
from blocc.problem import BilevelProblem
from blocc.result import Result, Status
from blocc.run.conclude import versions
from blocc.solve_many import solve_many


@dataclass(frozen=True, eq=False, kw_only=True)
class Answer(Shown, ABC):
    """An application's answer; ``print`` explains it, if the class that extends this has ``repr=False``."""

    objective: float  #: in the leader's own sense
    status: Status
    message: str
    evaluations: int
    seconds: float
    settings: dict[str, Any]
    versions: dict[str, str]
    history: tuple[Step, ...]

    @property
    def success(self) -> bool:
        """Whether the run converged; nothing else counts as success."""
        return self.status is Status.CONVERGED

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is about."""

    @abstractmethod
    def checks(self) -> list[CertificateRow]:
        """The certificate."""

    @abstractmethod
    def decided(self) -> list[str]:
        """The decision in lines."""

    def __repr__(self) -> str:
        lines = [f"{self.name}: {self.status.value}", f"  {self.message}", f"  objective {self.objective:.8g}"]
        decided = [f"  {line}" for line in self.decided()]
        return "\n".join([*lines, *decided, "  certificate", *check_lines(self.checks())])


#: Fields of an answer that are of the run: no check is about them.
OF_THE_RUN = ("message", "evaluations", "seconds", "settings", "versions", "history")
A = TypeVar("A", bound=Answer)
R = TypeVar("R")


def answered(
    problem: BilevelProblem, starts: int, report: Callable[[Step], None] | None = None, **options: Any
) -> tuple[Result, dict[str, Any]]:
    """The best of several starts, and the fields of an :class:`Answer` but for its objective.

    :param report: called with every iteration
    :param options: of :func:`blocc.solve_many`, checkpoints and time limits among them
    """
    began, steps = clock(), list[Step]()

    def keep(state: State) -> None:
        steps.append(Step(clock() - began, 1, np.inf, state.row.upper_value))
        if report is not None:
            report(steps[-1])

    found = solve_many(problem, starts=starts, callback=keep, progress=False, **options)
    best = found.best
    return best, {
        **picked(best, "status", "message"),
        "evaluations": found.counts["evaluations"],
        "seconds": clock() - began,
        "settings": {"starts": starts} | {name: value for name, value in options.items() if np.isscalar(value)},
        "versions": versions(),
        "history": tuple(steps),
    }


def same_record(one: Any, other: Any) -> bool:
    """Whether two records of a kind have equal fields."""
    said = asdict(other)
    return all(np.array_equal(value, said[name]) for name, value in asdict(one).items())


def read_record(kind: type[R], path: str | Path) -> R:
    """A record out of a JSON file that has its fields by name.

    :raises InputError: where there is no such file, or a field is missing or of another type
    """
    try:
        return decoded(kind, json.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        wanted = ", ".join(one.name for one in fields(kind))  # type: ignore[arg-type]
        reason = f"field {error} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(f"{str(path)!r} must be a JSON file with {wanted}: {reason:.200}") from error


def answer_document(
    kind: type[A],
    subject: str,
    *,
    title: str,
    tables: Mapping[str, Columns],
    meanings: Mapping[str, str],
    verify: Callable[..., Verification],
    assumed: str,
    is_maximised: bool = False,
) -> Document[A]:
    """The files of an answer: all its fields, its tables, and a page.

    :param subject: the field that holds what the answer is about
    :param title: what the answers are, in a word or two: of the page, and with dashes of the format
    :param meanings: of the numbers of the certificate, by name
    :param verify: called with what the answer is about and the answer
    :param assumed: what every answer assumes
    """
    own = [one.name for one in fields(kind) if one.name != subject]
    about = get_type_hints(kind)[subject]
    stem = title.replace(" ", "-")

    def summary(answer: A) -> Summary:
        return Summary({"objective": answer.objective}, answer.checks(), {})

    def content(answer: A, said: Summary) -> dict[str, Any]:
        checks = [check.row() for check in said.checks]
        return {"summary": {**picked(answer, *own), "checks": checks}, subject: asdict(getattr(answer, subject))}

    def make(document: Mapping[str, Any], source: Path, given: Any = None) -> A:
        return decoded(kind, encoded(document["summary"]), **{subject: decoded(about, document[subject])})

    def further(answer: A, rows: Tables) -> dict[str, bytes]:
        page = answer_page(
            answer,
            kind=title,
            name=answer.name,
            kicker=title,
            figures=[
                ("Objective", number(answer.objective, 6), ""),
                ("Computed in", duration(answer.seconds), f"{answer.evaluations:,} evaluations"),
            ],
            sections=[*(_table(answer, name, columns) for name, columns in tables.items()), _way(answer, is_maximised)],
            checks=answer.checks(),
            meanings=meanings,
            measured="Every number is computed from the answer.",
            assumed=assumed,
            assumptions=(),
            files=f"{stem}.json, {stem}.xlsx and {', '.join(f'{name}.csv' for name in rows)}",
        )
        return {"report.html": page.html().encode(errors="replace")}

    return Document(
        format=f"blocc-{stem}",
        version=1,
        stem=stem,
        writer="Document.write",
        tables=tables,
        summary=summary,
        content=content,
        further=further,
        make=make,
        check=verify,
        unchecked={
            "version": "of the format",
            **dict.fromkeys((f"summary.{name}" for name in OF_THE_RUN), "of the run"),
        },
    )


def _table(answer: Answer, name: str, columns: Columns) -> Section:
    """A table with the meanings of its columns."""
    rows = rows_of(answer, columns)
    words = [key for key in columns if any(isinstance(row[key], str) for row in rows)]
    kinds = {key: (key.replace("_", " "), "text" if key in words else "fine") for key in columns}
    note = " ".join(f"{key.replace('_', ' ').capitalize()}: {one.meaning}." for key, one in columns.items())
    return Section(
        name, name.capitalize(), note, [table(record_table(f"{name}-table", rows, kinds), name)], is_long=True
    )


def _way(answer: Answer, is_maximised: bool) -> Section:
    """The objective over time."""
    columns: Sequence[Sequence[float]] = [(one.seconds, one.value, one.gamma) for one in answer.history]
    seconds, value, gamma = np.array(columns, dtype=float).reshape(-1, 3).T
    value = -value if is_maximised else value
    drawn = steps_chart(seconds, value, gamma, is_maximised=is_maximised, x="seconds", y="objective")
    return Section("way", "The way to the answer", blocks=[chart("way", drawn.plotly(), "The objective over time.")])
