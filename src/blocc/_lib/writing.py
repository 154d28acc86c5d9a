"""Files that are either whole or not there, and that survive a power failure once they are there."""

from __future__ import annotations

import errno
import os
import re
import secrets
import sys
import time
from pathlib import Path

if sys.platform != "win32":
    import fcntl

#: Where the system has no locks, a file that nobody has written to for so many seconds was left behind.
_ABANDONED = 3600.0
#: Answers of systems and file systems that cannot flush (a folder, above all), or cannot lock.
_IMPOSSIBLE = {errno.EINVAL, errno.EBADF, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}
#: Answers where a folder may be written to and not be opened for reading.
_CLOSED = {errno.EACCES, errno.EPERM, errno.EISDIR}


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside the target and move into place, so that no reader ever sees half a file.

    The content is on the disk before the file appears, and so is its name when this returns, where the file system can
    promise that. A symbolic link at the target is replaced, not followed.
    """
    temporary, descriptor = _begin(path)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            _flush(stream.fileno())
            if sys.platform != "win32":  # while the lock is held: nobody takes the file for a leftover
                os.replace(temporary, path)
        if sys.platform == "win32":  # an open file cannot be moved there
            os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _flush_folder(path.parent)


def remove_leftovers(path: Path) -> None:
    """Remove what writers of ``path`` left behind when they were killed.

    Only files that :func:`write_atomically` names are touched, and none that is being written by anyone.
    """
    made_here = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{16}}\.part")
    for entry in list(os.scandir(path.parent)):
        if made_here.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
            _remove_if_abandoned(Path(entry.path))


def _begin(path: Path) -> tuple[Path, int]:
    """A new file beside the target, locked where that is possible: its path and its descriptor."""
    while True:
        temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}.part"
        # The system itself applies the user's mask to 0o666: asking for the mask would mean to change it for a moment,
        # for all threads of the host program.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        if _lock(descriptor) is not False and os.fstat(descriptor).st_nlink > 0:
            return temporary, descriptor
        os.close(descriptor)  # somebody took it for a leftover in the moment before it was locked


def _remove_if_abandoned(temporary: Path) -> None:
    try:
        old = time.time() - temporary.stat().st_mtime > _ABANDONED
        if sys.platform == "win32":  # an open file cannot be removed there
            if old:
                temporary.unlink(missing_ok=True)
            return
        descriptor = os.open(temporary, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # it is gone by now, or it belongs to somebody else
        return
    try:
        free = _lock(descriptor)
        if free or (free is None and old):
            temporary.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool | None:
    """Take the lock of an open file, which ends with the process at the latest; None where there are no locks."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        _forgive(error, _IMPOSSIBLE)
        return None
    return True


def _flush(descriptor: int) -> None:
    """See that what was written is on the disk, where the file system can do that."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        _forgive(error, _IMPOSSIBLE)


def _flush_folder(folder: Path) -> None:
    """See that the names of a folder are on the disk, where the system can do that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        _forgive(error, _IMPOSSIBLE | _CLOSED)
        return
    try:
        _flush(descriptor)
    finally:
        os.close(descriptor)


def _forgive(error: OSError, harmless: set[int]) -> None:
    """Raise an error unless it only says that something is not possible here."""
    if error.errno not in harmless:
        raise error
