"""Files: written whole or not at all; read up to a limit; JSON; and arrays out of NPZ archives.

A file that was written survives a power failure. A file from outside is never executed, and never takes more memory
than its limit: an archive of some kilobytes can announce, or unpack to, any number of bytes, so the sizes in its
directory and in the header of each array are compared with the limit before memory is taken.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import re
import secrets
import sys
import time
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blocc._lib.arrays import NDArray
from blocc.errors import BloccError

if sys.platform != "win32":
    import fcntl

MOST_BYTES = 2 * 2**30  #: of all arrays of an archive together, unpacked
SHOWN = 80  #: characters of a value from outside in a message
#: Where the system has no locks, a temporary file that was not written to for so many seconds is abandoned.
_ABANDONED = 3600.0
#: Errors of systems and file systems that cannot flush (a folder, above all), or cannot lock.
_UNSUPPORTED = {errno.EINVAL, errno.EBADF, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}
#: Errors of a disk that is full or broken, or of a share of it that is used up.
DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG}
#: Errors where a folder may be written to but not be opened for reading.
_CLOSED = {errno.EACCES, errno.EPERM, errno.EISDIR}
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


# --- writing -------------------------------------------------------------------------------------------------------
def write_file(path: str | Path, data: bytes, error: type[BloccError]) -> Path:
    """Write a file into a folder that is made where it is missing; raises ``error`` with a sentence if it cannot be."""
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, data)
    except OSError as reason:
        raise error(f"cannot write {target}: {reason.strerror or reason}") from reason
    return target


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
            if sys.platform != "win32":  # while the lock is held: no other process takes the file for abandoned
                os.replace(temporary, path)
        if sys.platform == "win32":  # an open file cannot be moved there
            os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _flush_folder(path.parent)


def remove_leftovers(path: Path) -> None:
    """Remove what writers of ``path`` left behind when they were killed.

    Only files that :func:`write_atomically` names are touched, and none that is being written.
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
        os.close(descriptor)  # another process took it for abandoned in the moment before it was locked


def _remove_if_abandoned(temporary: Path) -> None:
    try:
        old = time.time() - temporary.stat().st_mtime > _ABANDONED
        if sys.platform == "win32":  # an open file cannot be removed there
            if old:
                temporary.unlink(missing_ok=True)
            return
        descriptor = os.open(temporary, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # it is gone by now, or it belongs to another user
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
        _raise_unless(error, _UNSUPPORTED)
        return None
    return True


def _flush(descriptor: int) -> None:
    """See that what was written is on the disk, where the file system can do that."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        _raise_unless(error, _UNSUPPORTED)


def _flush_folder(folder: Path) -> None:
    """See that the names of a folder are on the disk, where the system can do that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        _raise_unless(error, _UNSUPPORTED | _CLOSED)
        return
    try:
        _flush(descriptor)
    finally:
        os.close(descriptor)


def _raise_unless(error: OSError, expected: set[int]) -> None:
    if error.errno not in expected:
        raise error


# --- reading -------------------------------------------------------------------------------------------------------
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


def shown(value: Any) -> str:
    """A value from outside for a message, cut where it is long."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deep, or an integer of thousands of digits
        return f"a {type(value).__name__} that is too large to show"
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def stays_inside(path: Path, *folders: Path) -> bool:
    """Whether a path, after all its ``..`` and symbolic links, lies in one of the folders."""
    resolved = path.resolve()
    return any(resolved.is_relative_to(folder.resolve()) for folder in folders)


# --- JSON ----------------------------------------------------------------------------------------------------------
def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these entries, for ``json.loads``: a key that is there twice is an error, not its last value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"an object has the key {shown(next(n for n in names if names.count(n) > 1))} more than once")
    return found


def parse_json(data: bytes | str, what: str, error: type[BloccError]) -> Any:
    """The value that a JSON text holds; raises ``error`` with a sentence otherwise."""
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        return json.loads(text, object_pairs_hook=unique_keys)
    # Besides bad JSON and bad UTF-8: a key twice, an integer of thousands of digits, and brackets without end.
    except (ValueError, RecursionError) as reason:
        raise error(f"{what} is not a JSON file: {reason}") from reason


def plain(tree: Any) -> Any:
    """Any nested value as values that JSON knows: arrays become lists, what is not finite null.

    Of an object that JSON does not know, such as a solver among settings, its description is kept.
    """
    if isinstance(tree, dict):
        return {str(key): plain(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [plain(value) for value in tree]
    if hasattr(tree, "tolist"):
        return plain(tree.tolist())
    if isinstance(tree, float):
        return tree if math.isfinite(tree) else None
    return tree if tree is None or isinstance(tree, (bool, int, str)) else repr(tree)


def json_bytes(document: Any, indent: int | None = 1) -> bytes:
    """The content of a JSON file: :func:`plain` values in UTF-8."""
    text = json.dumps(plain(document), indent=indent, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode(errors="backslashreplace")  # half a surrogate pair, in the way that JSON writes it


# --- NPZ archives --------------------------------------------------------------------------------------------------
def unpack_arrays(
    packed: bytes, what: str, error: type[BloccError], names: Sequence[str] | None = None
) -> dict[str, NDArray]:
    """The arrays of these names, or all of them; raises ``error`` with a sentence that begins with ``what``."""
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            found = [name.removesuffix(".npy") for name in archive.namelist()] if names is None else names
            members = {name: archive.getinfo(f"{name}.npy") for name in found}
            total = sum(member.file_size for member in members.values())
            if total > MOST_BYTES:
                raise error(f"{what} unpacks to {total:,} bytes; {MOST_BYTES:,} are the limit")
            return {name: _unpack(archive, member) for name, member in members.items()}
    except BloccError:
        raise
    # Zip files can be damaged in many ways, encrypted, or packed by a method that Python does not know.
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, KeyError, SyntaxError) as reason:
        raise error(f"{what} is not a NumPy archive: {reason}") from reason
    except (ValueError, TypeError, MemoryError, OverflowError, RecursionError) as reason:
        raise error(f"{what} is damaged: {type(reason).__name__}: {reason}") from reason


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray:
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        if version not in _HEADERS:
            raise ValueError(f"{member.filename} has version {version} of the format")
        shape, _, dtype = _HEADERS[version](stream)
        if dtype.hasobject:
            raise ValueError(f"{member.filename} holds Python objects, which are never loaded")
        announced = math.prod(shape) * dtype.itemsize
        if any(length < 0 for length in shape) or announced != member.file_size - stream.tell():
            raise ValueError(f"{member.filename} announces {announced:,} bytes, but has others")
    with archive.open(member) as stream:
        return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
