"""Answers as files: columns, declared once, become CSV, a workbook, JSON, layers for a GIS and the page of columns.

An application declares one :class:`Document` for each kind of its answers. Every file is plain data: in JSON what is
not finite is null, in tables an empty cell. The JSON file carries a digest of what it says, so that a careless change
is noticed; who recomputes the digest can write anything, and the application's ``verify`` is there for that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from blocc._lib.digests import sealed
from blocc._lib.files import json_bytes
from blocc._lib.tables import csv_bytes, table_rows
from blocc.judge.verification import Verification
from blocc.kit.checks import CertificateRow
from blocc.kit.claims import FileVerification, consistent, of_file
from blocc.kit.gis import Layers, geojson, geopackage_bytes
from blocc.kit.records import encoded
from blocc.kit.storage import StorageError, read_document, write_files
from blocc.kit.workbook import workbook_bytes

A = TypeVar("A")
Rows = list[dict[str, Any]]
Tables = dict[str, Rows]


class Column(NamedTuple):
    """One column of a table about an answer."""

    source: str | Callable[[Any], Any]  #: attributes of the answer, such as ``before.flow``, or a function of it
    meaning: str
    unit: str = ""  #: may name units that the answer knows, such as ``{length}``

    def of(self, answer: Any) -> Any:
        """Its values."""
        return attrgetter(self.source)(answer) if isinstance(self.source, str) else self.source(answer)


Columns = Mapping[str, Column]


def rows_of(answer: Any, columns: Columns) -> Rows:
    """The rows of a table."""
    sources = {
        name: attrgetter(one.source) if isinstance(one.source, str) else one.source for name, one in columns.items()
    }
    return table_rows({name: source(answer) for name, source in sources.items()})


class Summary(NamedTuple):
    """What is said of an answer first."""

    figures: Mapping[str, Any]
    checks: Sequence[CertificateRow]
    sentences: Mapping[str, Iterable[str]]  #: by their kind, such as ``assumption``
    units: Mapping[str, str] = {}  #: of figures
    results: Mapping[str, str] = {}  #: words beside status and message

    def rows(self, answer: Any) -> Rows:
        """The summary as a table: status, message, figures, the certificate with its verdicts, and sentences."""
        results = {"status": answer.status.value, "message": answer.message, **self.results}
        rows: Rows = [{"kind": "result", "name": name, "value": value} for name, value in results.items()]
        for name, value in self.figures.items():
            unit = {"unit": self.units.get(name, "")} if self.units else {}
            rows.append({"kind": "figure", "name": name, "value": value, **unit})
        for check in self.checks:
            rows.append({"kind": "certificate", **check.row()})
            del rows[-1]["passed"]
        return rows + [{"kind": kind, "name": line} for kind, lines in self.sentences.items() for line in lines if line]


@dataclass(frozen=True)
class Document(Generic[A]):
    """How answers of one kind are kept in files."""

    format: str  #: that the JSON file names
    version: int
    stem: str  #: of the files: ``design`` for ``design.json``
    writer: str  #: the function that writes them, for messages
    tables: Mapping[str, Columns]
    summary: Callable[[A], Summary]
    content: Callable[[A, Summary], Mapping[str, Any]]  #: of the JSON file, beside its format and tables
    further: Callable[[A, Tables], Mapping[str, bytes]]  #: files beside the tables: pictures, pages, the network
    make: Callable[..., A] | None = None  #: an answer out of the content, the file's path, and what is given beside it
    check: Callable[..., Verification] | None = None  #: of what it is about, and an answer
    kept: Collection[str] | None = None  #: tables that the JSON file has; by default all
    parts: Mapping[str, type] = field(default_factory=dict)  #: what it must have besides
    unchecked: Mapping[str, str] = field(default_factory=dict)  #: names of figures that no check is about, and why
    bounded: Mapping[str, str] = field(default_factory=dict)  #: names of those that are held within a limit, and why
    digest_from: int = 1  #: the first version that has a digest
    units: Callable[[A], Mapping[str, str]] = field(default=lambda answer: {})

    def tables_of(self, answer: A) -> Tables:
        """All tables by the names of their files: the summary, those of the answer, and what their columns mean."""
        units = self.units(answer)
        page = [
            {"file": f"{table}.csv", "column": name, "unit": one.unit.format(**units), "meaning": one.meaning}
            for table, columns in self.tables.items()
            for name, one in columns.items()
        ]
        rows = {table: rows_of(answer, columns) for table, columns in self.tables.items()}
        return {"summary": self.summary(answer).rows(answer), **rows, "columns": page}

    def document(self, answer: A) -> dict[str, Any]:
        """An answer as JSON values with their digest."""
        return self._sealed(answer, self.tables_of(answer))

    def write(self, answer: A, folder: str | Path) -> list[Path]:
        """Write everything about an answer into ``folder`` (created where missing) and return the paths.

        Everything is made before anything is written, and each file appears complete or not at all: a failure leaves
        the old files of a folder together.
        """
        tables = self.tables_of(answer)
        files = {
            f"{self.stem}.json": json_bytes(self._sealed(answer, tables)),
            **{f"{table}.csv": csv_bytes(rows) for table, rows in tables.items()},
            f"{self.stem}.xlsx": workbook_bytes(tables),
            **self.further(answer, tables),
        }
        return write_files(folder, files, f"the {self.stem}")

    def read(self, path: str | Path) -> dict[str, Any]:
        """The content of a JSON file, or of that in a folder.

        :raises StorageError: where it is damaged; a ``ChangedError`` where it was changed
        """
        source = self.place(path)
        document = read_document(source, self.format, self.version, self.writer, digest_from=self.digest_from)
        for name, kind in {"summary": dict, **self.parts, **dict.fromkeys(self._kept, list)}.items():
            if not isinstance(document.get(name), kind):
                raise StorageError(f"{source} is damaged: {name!r} is missing or not a {kind.__name__}")
        for name in self._kept:
            for position, row in enumerate(document[name], start=1):
                missing = [key for key in self.tables[name] if not isinstance(row, dict) or key not in row]
                if missing:
                    raise StorageError(f"{source} is damaged: row {position} of {name!r} has no {', '.join(missing)}")
        return document

    def load(self, path: str | Path, *given: Any) -> A:
        """An answer read back; ``given`` is what the application wants beside the file."""
        source, document = self.place(path), self.read(path)
        assert self.make is not None, f"{self.format} is not read back"
        try:
            return self.make(document, source, *given)
        except StorageError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise StorageError(f"{source} is damaged: {type(error).__name__}: {error!s:.200}") from error

    def verify(self, path: str | Path, subject: Any, **given: Any) -> FileVerification:
        """Recompute what a file says about a network or a case, and hold the rest of the file against that."""
        answer = self.load(path, subject)
        assert self.check is not None, f"{self.format} is not verified"
        follows = consistent(self.read(path), self.document(answer), self.unchecked)
        return of_file(self.check(subject, answer, **given), {**self.unchecked, **self.bounded}, follows)

    def place(self, path: str | Path) -> Path:
        """The JSON file that a path stands for."""
        source = Path(path)
        return source / f"{self.stem}.json" if source.is_dir() else source

    def _sealed(self, answer: A, tables: Tables) -> dict[str, Any]:
        found: dict[str, Any] = {"format": self.format, "version": self.version}
        found |= self.content(answer, self.summary(answer))
        return sealed(encoded(found | {name: tables[name] for name in self._kept}))

    @property
    def _kept(self) -> list[str]:
        return [name for name in self.tables if self.kept is None or name in self.kept]


def layer_files(stem: str, layers: Layers) -> dict[str, bytes]:
    """A network for a GIS."""
    return {
        f"{stem}.geojson": json_bytes(geojson(layers), indent=None),
        f"{stem}.gpkg": geopackage_bytes(layers),
    }
