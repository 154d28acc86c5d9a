"""Documents on disk: read when their format, version and digest are right, written into folders whole or not at all."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blocc._lib.digests import digest
from blocc._lib.files import MOST_BYTES, parse_json, read_limited, shown, write_atomically
from blocc.errors import BloccError

MOST_DOCUMENT = 500 * 2**20  #: bytes of the JSON file of a design


class StorageError(BloccError):
    """A file cannot be written, or is not a result that this version can read."""


class ChangedError(StorageError):
    """The content of a file is no longer what was saved."""


def read_document(
    path: Path, name: str, newest: int, writer: str, *, digest_from: int = 1, most: int = MOST_DOCUMENT
) -> dict[str, Any]:
    """The document that ``writer`` wrote: its format is ``name``, its version at most ``newest``, its digest its own.

    :param digest_from: the first version with a digest. A file of an older one is read with a warning
    :raises ChangedError: where it was changed since
    """
    document = parse_json(read_limited(path, most, StorageError), str(path), StorageError)
    return checked(document, path, name, newest, writer, digest_from)


def checked(document: Any, path: Path, name: str, newest: int, writer: str, digest_from: int) -> dict[str, Any]:
    """The same of a document that was read already."""
    if not isinstance(document, dict) or document.get("format") != name:
        raise StorageError(f"{path} was not written by {writer}: its format is not {name!r}")
    version = document.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise StorageError(f"{path} is damaged: its format version is {shown(version)}")
    if version > newest:
        raise StorageError(f"{path} has format version {version}, this blocc reads up to {newest}: upgrade blocc")
    if is_without_digest(document, digest_from):
        warnings.warn(f"{path} has no digest: saved by an older version; later changes go unnoticed", stacklevel=4)
    elif document.get("sha256") != digest(document):
        told = "its digest differs" if "sha256" in document else "its digest is gone"
        raise ChangedError(f"{path} is damaged: it was changed after it was saved, {told}")
    return document


def is_without_digest(document: Mapping[str, Any], digest_from: int) -> bool:
    """Whether an older version wrote a document, which had no digests yet."""
    return document["version"] < digest_from and "sha256" not in document


def document_format(path: str | Path) -> str:
    """The format that a JSON file names; empty where it names none, or is none."""
    try:
        document = parse_json(read_limited(Path(path), MOST_BYTES, StorageError), str(path), StorageError)
    except StorageError:
        return ""
    return str(document.get("format", "")) if isinstance(document, dict) else ""


def write_files(folder: str | Path, files: Mapping[str, bytes], what: str = "") -> list[Path]:
    """Write files into a folder, which is made where it is missing; each appears complete or not at all.

    ``what`` names them where they cannot be written.
    """
    target, at = Path(folder), ""
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            at = f" ({name})"
            write_atomically(target / name, content)
    except OSError as error:
        reason = f"{error.strerror or error}{at}"
        raise StorageError(f"cannot write {what}{' ' * bool(what)}into {target}: {reason}") from error
    return [target / name for name in files]
