"""Where rows live: one SQLite file for one or many studies, which survives kills and can be read while it grows.

SQLite writes ahead (WAL), so readers never wait for the writer nor it for them. ``synchronous=FULL``: a batch that was
reported as finished is on the disk, also after a power failure. ``NORMAL`` would keep the file whole, but might lose
the newest batches then. The price is one flush for each batch, milliseconds, where a batch takes seconds.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blocc._lib.digests import digest
from blocc._lib.files import shown
from blocc._lib.version import __version__
from blocc.executors.work import Outcome
from blocc.studies.compute import decode
from blocc.studies.locking import exclusive
from blocc.studies.study import Cell, Study, StudyError, canonical

DONE, FAILED = "done", "failed"

APPLICATION = 0x626C6F63  #: SQLite's mark of who a file belongs to: "bloc"
SCHEMA = 2  #: grows with every change of the tables; 2 brought the checksums
_WAIT = 30.0  #: seconds to wait for another program's transaction

_TABLES = """
CREATE TABLE studies (
    name TEXT PRIMARY KEY,
    definition TEXT NOT NULL,
    version TEXT NOT NULL,
    settings TEXT NOT NULL,
    total INTEGER NOT NULL,
    started REAL NOT NULL,
    ended REAL
);
CREATE TABLE cells (
    study TEXT NOT NULL,
    key TEXT NOT NULL,
    version TEXT NOT NULL,
    parameters TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('done', 'failed')),
    row TEXT,
    error TEXT,
    seconds REAL NOT NULL,
    worker TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    finished REAL NOT NULL,
    PRIMARY KEY (study, key)
);
CREATE TABLE checksums (
    study TEXT NOT NULL,
    key TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    PRIMARY KEY (study, key)
);
"""
_STATEMENTS = [statement.strip() for statement in _TABLES.split(";")[:-1]]
#: SQLite words its own complaint about a damaged file with bytes out of it, which need not be text.
_ERRORS = (sqlite3.Error, UnicodeDecodeError)
_NAMES = ("studies", "cells", "checksums")
_WHOLE = ""  #: in place of a cell's key: the checksum of the study's own row


def _code(error: Exception) -> int:
    """The kind of an error of SQLite; 0 for one of Python's module."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


@dataclass(frozen=True)
class StoredCell:
    """One cell as the store holds it."""

    key: str
    status: str  #: ``DONE`` or ``FAILED``
    columns: Mapping[str, Any]  #: what the function returned; empty where it failed
    error: str | None
    seconds: float  #: its share of the batch's
    worker: str
    attempts: int  #: in all runs together
    finished: float  #: seconds since 1970


@dataclass(frozen=True)
class StoredStudy:
    """One study as the store holds it: enough for a report, without the program that runs it."""

    study: Study
    version: str  #: of blocc, when it was last run; the keys of its cells hang on it
    settings: Mapping[str, Any]  #: executor, workers, process, machine, versions of packages
    total: int  #: cells
    done: int
    failed: int
    started: float  #: seconds since 1970, of the last run
    ended: float | None  #: None: it is running, or was killed


class Store(AbstractContextManager["Store"]):
    """A file with studies and their rows. Close it, or use it in a ``with`` block.

    :param path: created with its folder where it does not exist
    :param read_only: for reports, also of a running study; never creates or changes anything
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self.path = Path(path)
        self.read_only = read_only
        if self.path.is_dir():
            raise StudyError(f"{self.path} is a folder, not a file with studies")
        if self.path.exists() and not self.path.is_file():  # SQLite would wait without end for a pipe
            raise StudyError(f"{self.path} is not a file")
        if read_only and not self.path.exists():
            raise StudyError(f"{self.path} does not exist: no study was run there")
        if not read_only:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StudyError(f"the folder {self.path.parent} cannot be created: {error.strerror}") from error
        self._ahead = self.path.with_name(f"{self.path.name}-wal")  # what is written, but not yet in the file itself
        with self._explained():
            self._connection = self._connect("ro" if read_only else "rwc")
        try:
            with self._explained():
                self._open()
        except BaseException:
            self.close()
            raise

    def _connect(self, mode: str) -> sqlite3.Connection:
        address = f"{self.path.resolve().as_uri()}?mode={mode}"
        return sqlite3.connect(address, uri=True, timeout=_WAIT, isolation_level=None)

    def _open(self) -> None:
        if self.read_only:
            self._open_to_read()
            return
        if not self._belongs_to_us():
            self._connection.execute("PRAGMA journal_mode=WAL")
            with self._transaction():
                if not self._belongs_to_us():  # another program may have made them in the meantime
                    for statement in _STATEMENTS:
                        self._connection.execute(statement)
                    self._connection.execute(f"PRAGMA application_id={APPLICATION}")
                    self._connection.execute(f"PRAGMA user_version={SCHEMA}")
                    self._has_checksums = True
        if not self._has_checksums:
            self._add_checksums()
        self._connection.execute("PRAGMA synchronous=FULL")

    def _open_to_read(self) -> None:
        try:
            known = self._belongs_to_us()
        except sqlite3.OperationalError as error:
            # Readers of a WAL file share a small file beside it. In a folder where nothing can be written there is
            # none, and no writer either: then the file may be read as one that never changes.
            denied = _code(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
            if self._ahead.exists() or not denied:
                raise
            self._connection.close()
            self._connection = self._connect("ro&immutable=1")
            known = self._belongs_to_us()
        if not known:
            raise StudyError(f"{self.path} is empty: no study was run there")

    def _belongs_to_us(self) -> bool:
        """Whether the tables are there; False for an empty file, an error for anything else."""
        connection = self._connection
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        schema = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if application != APPLICATION and (application or schema or tables):
            raise StudyError(f"{self.path} is a database of another program, not one of blocc's studies")
        if schema > SCHEMA:
            raise StudyError(
                f"{self.path} was written by a newer blocc (format {schema}; this one, {__version__}, knows formats "
                f"up to {SCHEMA}). Install a newer blocc to use it"
            )
        if application == APPLICATION:
            self._check_schema(schema)
        return bool(application == APPLICATION)

    def _check_schema(self, schema: int) -> None:
        """See that the tables are ours: a view in their place might never end, a trigger would run at every write."""
        rows = self._connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        ours = dict(zip(_NAMES, _STATEMENTS, strict=True))
        self._has_checksums = schema >= 2
        if not self._has_checksums:
            del ours["checksums"]
        found = {name: sql for kind, name, sql in rows if kind == "table" and name in _NAMES}
        if schema < 1 or found != ours or any(kind == "trigger" for kind, _, _ in rows):
            raise StudyError(f"{self.path} is damaged: its tables are not those of a store")

    def _add_checksums(self) -> None:
        """Bring a store of an older version up to date: its rows are believed as they are, and guarded from now on."""
        with self._transaction() as connection:
            connection.execute(_STATEMENTS[-1])
            for (name,) in connection.execute("SELECT name FROM studies").fetchall():
                self._guard(name, _WHOLE)
            for study, key in connection.execute("SELECT study, key FROM cells").fetchall():
                self._guard(study, key)
            connection.execute(f"PRAGMA user_version={SCHEMA}")
        self._has_checksums = True

    def close(self) -> None:
        """Let go of the file; what was recorded stays."""
        self._connection.close()
        if self.read_only and self._ahead.exists():
            # A reader needs SQLite's two files beside the store, but only a writer that leaves last takes them away.
            with suppress(*_ERRORS), closing(self._connect("rw")) as writer:
                writer.execute("SELECT count(*) FROM sqlite_master").fetchone()

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """SQLite's errors as sentences for the user."""
        try:
            yield
        except _ERRORS as error:
            reasons = {
                sqlite3.SQLITE_NOTADB: "is not a file of blocc's studies",
                sqlite3.SQLITE_CORRUPT: "is damaged",
                sqlite3.SQLITE_CANTOPEN: "cannot be opened or created: see that its folder can be written",
                sqlite3.SQLITE_READONLY: "cannot be written: it or its folder is read-only",
                sqlite3.SQLITE_FULL: "cannot grow, because the disk is full. Recorded cells are kept: make room and "
                "run the same study again, it goes on where it stopped",
                sqlite3.SQLITE_BUSY: f"has been locked by another program for {_WAIT:.0f} s",
                sqlite3.SQLITE_IOERR: "cannot be read or written: the disk reports errors, or is full",
            }
            raise StudyError(f"{self.path} {reasons.get(_code(error), 'cannot be used')} ({error})") from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All of a block's changes, or none of them."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def lock(self) -> AbstractContextManager[None]:
        """Be the only program that runs studies here, for the duration of a block; readers are not disturbed."""
        if self.read_only:
            raise StudyError(f"{self.path} was opened for reading only: no study can be run in it")
        with self._explained():
            newest = self._connection.execute("SELECT settings FROM studies ORDER BY started DESC LIMIT 1").fetchone()
        holder = self._decoded(newest[0], "settings").get("process") if newest else None
        return exclusive(self.path, f"another program ({holder})" if holder else "another program")

    def begin(self, study: Study, settings: Mapping[str, Any]) -> None:
        """Note that a study is being run; its definition replaces an older one of the same name."""
        values = (study.name, study.to_json(), __version__, json.dumps(settings), len(study.cells()), time.time())
        with self._explained(), self._transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO studies VALUES (?, ?, ?, ?, ?, ?, NULL)", values)
            self._guard(study.name, _WHOLE)

    def end(self, study: Study) -> None:
        """Note that nothing is left to do."""
        with self._explained(), self._transaction() as connection:
            connection.execute("UPDATE studies SET ended = ? WHERE name = ?", (time.time(), study.name))
            self._guard(study.name, _WHOLE)

    def record(self, study: Study, batch: Sequence[Cell], outcome: Outcome) -> None:
        """Keep what became of a batch: all of its cells, or, where this fails, none."""
        status = DONE if outcome.error is None else FAILED
        rows: Sequence[str | None] = outcome.value if outcome.error is None else [None] * len(batch)
        ending = (outcome.seconds / len(batch), outcome.worker, outcome.attempts, time.time())
        values = [
            (study.name, cell.key, __version__, canonical(dict(cell.parameters)), status, row, outcome.error, *ending)
            for cell, row in zip(batch, rows, strict=True)
        ]
        with self._explained(), self._transaction() as connection:
            connection.executemany(
                "INSERT INTO cells VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (study, key) DO UPDATE SET "
                "status = excluded.status, row = excluded.row, error = excluded.error, seconds = excluded.seconds, "
                "worker = excluded.worker, attempts = attempts + excluded.attempts, finished = excluded.finished",
                values,
            )
            for cell in batch:
                self._guard(study.name, cell.key)

    def forget(self, study: Study) -> None:
        """Delete all cells of a study, those of older definitions and versions, too."""
        with self._explained(), self._transaction() as connection:
            connection.execute("DELETE FROM cells WHERE study = ?", (study.name,))
            connection.execute("DELETE FROM checksums WHERE study = ? AND key <> ?", (study.name, _WHOLE))

    def cells(self, study: Study) -> dict[str, StoredCell]:
        """What is stored under a study's name, by key; cells of older definitions and versions included."""
        stored = {}
        for _, key, _, _, status, row, error, *rest in self._rows(study.name)[1]:
            self._check_kinds((status, error, *rest), (str, str | None, float | int, str, int, float | int))
            columns = {} if row is None else self._decoded(row, "a row")
            stored[key] = StoredCell(key, status, columns, error, *rest)
        return stored

    def studies(self) -> list[StoredStudy]:
        """All studies that were ever begun here, with how far they are; the oldest first."""
        found, cells = self._rows()
        statuses = {(name, key): status for name, key, _, _, status, *_ in cells}
        listed = []
        for name, definition, version, settings, total, started, ended in found:
            kinds = (str, str, str, int, float | int, float | int | None)
            self._check_kinds((name, definition, version, total, started, ended), kinds)
            try:
                study = Study.from_json(definition)
            except StudyError as error:
                raise StudyError(f"{self.path} is damaged: {error}") from error
            own = [statuses.get((name, cell.key_for(version))) for cell in study.cells()]
            counts = (total, own.count(DONE), own.count(FAILED))
            listed.append(StoredStudy(study, version, self._decoded(settings, "settings"), *counts, started, ended))
        return listed

    # --- checksums ---------------------------------------------------------------------------------------------------
    def _guard(self, study: str, key: str) -> None:
        """Note the checksum of a row as it stands; within the transaction that wrote it."""
        if key == _WHOLE:
            row = self._connection.execute("SELECT * FROM studies WHERE name = ?", (study,)).fetchone()
        else:
            row = self._connection.execute("SELECT * FROM cells WHERE study = ? AND key = ?", (study, key)).fetchone()
        self._connection.execute("INSERT OR REPLACE INTO checksums VALUES (?, ?, ?)", (study, key, digest(row)))

    def _rows(self, study: str | None = None) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Rows of studies and of cells, of one study or of all, as they were written.

        :raises StudyError: where one was changed since, or is gone
        """
        only, names = ("", ()) if study is None else (" WHERE {} = ?", (study,))
        with self._explained():
            self._connection.execute("BEGIN")  # one state of the file, also beside a program that writes
            try:
                order = " ORDER BY started, name"
                studies = self._connection.execute(
                    f"SELECT * FROM studies{only.format('name')}{order}", names
                ).fetchall()
                cells = self._connection.execute(f"SELECT * FROM cells{only.format('study')}", names).fetchall()
                if not self._has_checksums:
                    return studies, cells
                found = self._connection.execute(f"SELECT * FROM checksums{only.format('study')}", names).fetchall()
            finally:
                self._connection.execute("COMMIT")
        noted = {(name, key): checksum for name, key, checksum in found}
        for row, place in [*((row, (row[0], _WHOLE)) for row in studies), *((row, row[:2]) for row in cells)]:
            if any(isinstance(value, bytes) for value in row) or noted.pop(place, None) != digest(row):
                raise StudyError(f"{self.path} is damaged: the row {shown(place)} is not what was written")
        if noted:
            raise StudyError(f"{self.path} is damaged: the row {shown(next(iter(noted)))} is gone")
        return studies, cells

    # --- checks of a file from outside --------------------------------------------------------------------------------
    def _decoded(self, text: Any, what: str) -> dict[str, Any]:
        """The dictionary that a text holds."""
        try:
            found = decode(text)
        except (TypeError, ValueError, RecursionError, OverflowError) as error:
            raise StudyError(f"{self.path} is damaged: {what} cannot be read ({error!s:.200})") from error
        if not isinstance(found, dict):
            raise StudyError(f"{self.path} is damaged: {what} must be an object, got {shown(found)}")
        return found

    def _check_kinds(self, values: Sequence[Any], kinds: Sequence[Any]) -> None:
        """SQLite keeps any kind of value in any column."""
        for value, kind in zip(values, kinds, strict=True):
            if not isinstance(value, kind):
                raise StudyError(f"{self.path} is damaged: it holds {shown(value)} where it must not")
