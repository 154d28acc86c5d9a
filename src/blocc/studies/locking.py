"""One program at a time: a lock that the operating system takes back when its holder dies, however it dies.

The lock is SQLite's own, on an empty file beside the store. It works alike on all systems, is not inherited by worker
processes, and needs no cleaning up after a kill. The file itself stays: deleting it would let two programs hold "the"
lock at once, one on the old file and one on the new.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from blocc.studies.study import StudyError


@contextmanager
def exclusive(path: Path, holder: str) -> Iterator[None]:
    """Hold the lock of the file at ``path`` for the duration of a block.

    :param holder: named in the error where the lock is taken
    :raises StudyError: at once, where the lock is taken
    """
    lock = path.with_name(f"{path.name}.lock")
    try:
        connection = sqlite3.connect(lock.resolve().as_uri(), uri=True, timeout=0, isolation_level=None)
    except sqlite3.Error as error:
        raise StudyError(f"{lock} cannot be created: {error}") from error
    try:
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                raise StudyError(
                    f"{path} is in use: {holder} is running a study in it. Wait until it ends, or use another file"
                ) from error
            raise StudyError(f"{lock} cannot be locked: {error}") from error
        yield
    finally:
        connection.close()
