"""Results on disk: ``PATH.json`` holds numbers, words and structure, ``PATH.npz`` the arrays.

Both files are plain data: nothing in them is ever executed, so a result from outside is safe to load. Floats keep
every bit. The JSON file carries the checksum of its companion, so that files that do not belong together are noticed,
and a digest of everything it says, so that a later change is noticed. Both guard against accidents and careless edits:
who recomputes them can write anything, and :func:`blocc.judge.verify.verify` is there for that.
"""

from __future__ import annotations

import hashlib
import io
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from blocc._lib.arrays import NDArray, PyTree
from blocc._lib.files import (
    MOST_BYTES,
    json_bytes,
    parse_json,
    plain,
    read_limited,
    shown,
    unpack_arrays,
    write_atomically,
    write_file,
)
from blocc.errors import BloccError, OptionError
from blocc.lagrangian import Multipliers
from blocc.result import Certificate, History, HistoryRow, Result, Status

FORMAT = "blocc-result"
VERSION = 2  #: from 2 on the file carries a digest of itself

MOST_JSON = 64 * 2**20  #: bytes of the JSON file; arrays stand in the other one

_HISTORY = "history"
#: What the fields of a file from outside must be, so that nothing that uses a result meets anything else.
_TYPES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("name", "message"), str),
    **dict.fromkeys(("settings", "versions", "counts", "seconds"), dict),
    **dict.fromkeys(("upper_value", "lower_value", "upper_value_penalty", "gamma"), (int, float)),
}
#: Fields of a result that need no translation beyond that of a pytree.
_PLAIN = tuple(f.name for f in fields(Result) if f.name not in ("status", "certificate", "history", "multipliers"))
#: Fields that are None where nothing is proven, and that older files do not have.
_PROVEN = ("bound", "gap")


class StorageError(BloccError):
    """A file cannot be written, or is not a result that this version can read."""


class ChangedError(StorageError):
    """The content of a file is no longer what was saved."""


def digest(document: Mapping[str, Any]) -> str:
    """SHA-256 over everything a document says but its own digest, however it is laid out."""
    said = {key: value for key, value in document.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def save_result(result: Result, path: str | Path) -> Path:
    """Write ``PATH.json`` and ``PATH.npz`` and return the path of the JSON file.

    ``path`` may carry either suffix or none; its folder is created. Each file appears complete or not at all.
    """
    json_path, npz_path = _paths(path)
    arrays: dict[str, NDArray] = {}
    content = {name: _encode(getattr(result, name), name, arrays) for name in _PLAIN}
    content["status"] = result.status.value
    content["certificate"] = _encode(asdict(result.certificate), "certificate", arrays)
    content["multipliers"] = _encode(result.multipliers._asdict(), "multipliers", arrays)
    columns = [getattr(result.history, name) for name in History.columns]
    arrays[_HISTORY] = np.column_stack(columns)
    size = sum(array.nbytes for array in arrays.values())
    if size > MOST_BYTES:
        raise StorageError(f"the arrays of this result have {size:,} bytes; up to {MOST_BYTES:,} are saved")
    buffer = io.BytesIO()
    # Numbered names inside the archive: a user's own keys may hold characters that no file name should.
    numbered: dict[str, Any] = {f"array{index}": array for index, array in enumerate(arrays.values())}
    np.savez_compressed(buffer, allow_pickle=False, **numbered)
    packed = buffer.getvalue()
    document = {
        "format": FORMAT,
        "version": VERSION,
        "arrays": {"file": npz_path.name, "sha256": hashlib.sha256(packed).hexdigest(), "names": list(arrays)},
        "history": {"array": _HISTORY, "columns": list(History.columns)},
        "result": content,
    }
    document["sha256"] = digest(document)
    write_file(npz_path, packed, StorageError)
    return write_file(json_path, json_bytes(document), StorageError)


def load_result(path: str | Path) -> Result:
    """Read back what :func:`save_result` wrote; named tuples come back as plain tuples."""
    json_path, _ = _paths(path)
    try:
        document = _read_document(json_path)
        arrays = _read_arrays(json_path, document["arrays"])
        content = document["result"]
        given = {name: _decode(content[name], arrays) for name in _PLAIN if name in content or name not in _PROVEN}
        certificate = _decode(content["certificate"], arrays)
        _check_types(given, _TYPES | {name: (int, float) for name in _PROVEN if given.get(name) is not None})
        exact = certificate.pop("exact", False)
        _check_types(certificate, dict.fromkeys(certificate, (int, float)))
        if not isinstance(exact, bool):
            raise TypeError(f"exact is {shown(exact)}")
        return Result(
            **given,
            status=Status(content["status"]),
            certificate=Certificate(**certificate, exact=exact),
            multipliers=Multipliers(**_decode(content["multipliers"], arrays)),
            history=_history(document["history"]["columns"], arrays[document["history"]["array"]]),
        )
    except StorageError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise StorageError(f"{json_path} is damaged: {type(error).__name__}: {error!s:.200}") from error


def describe(result: Result) -> dict[str, Any]:
    """A result as JSON values, for people and scripts to read; unlike a saved one it cannot be loaded again."""
    names = ("name", "message", "x", "y", "y_penalty", "upper_value", "lower_value", "upper_value_penalty", "gamma")
    document: dict[str, Any] = {"status": result.status.value, "success": result.success}
    document |= {name: plain(getattr(result, name)) for name in (*names, *_PROVEN)}
    document["multipliers"] = plain(result.multipliers._asdict())
    document["certificate"] = plain(asdict(result.certificate))
    document |= {"iterations": len(result.history), "counts": result.counts, "seconds": result.seconds}
    return {**document, "settings": plain(result.settings), "versions": result.versions}


def _paths(path: str | Path) -> tuple[Path, Path]:
    if not isinstance(path, (str, PathLike)):
        raise OptionError(f"path must be the path of a file such as 'result.json', got {type(path).__name__}")
    given = Path(path)
    base = given.with_suffix("") if given.suffix in (".json", ".npz") else given
    if not base.name or (given == base and base.is_dir()):
        raise StorageError(f"path must name a file, got the folder {str(path)!r}; for instance {given / 'result.json'}")
    return base.with_name(base.name + ".json"), base.with_name(base.name + ".npz")


def check_format(document: Any, path: Path, name: str, newest: int, writer: str) -> dict[str, Any]:
    """The document itself, if ``writer`` wrote it: its format is ``name``, and its version at most ``newest``."""
    if not isinstance(document, dict) or document.get("format") != name:
        raise StorageError(f"{path} was not written by {writer}: its format is not {name!r}")
    version = document.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise StorageError(f"{path} is damaged: its format version is {shown(version)}")
    if version > newest:
        raise StorageError(f"{path} has format version {version}, this blocc reads up to {newest}: upgrade blocc")
    return document


def document_format(path: str | Path) -> str:
    """The format that a JSON file names; empty where it names none, or is none."""
    try:
        document = parse_json(read_limited(Path(path), MOST_BYTES, StorageError), str(path), StorageError)
    except StorageError:
        return ""
    return str(document.get("format", "")) if isinstance(document, dict) else ""


def _read_document(path: Path) -> dict[str, Any]:
    document = parse_json(read_limited(path, MOST_JSON, StorageError), str(path), StorageError)
    document = check_format(document, path, FORMAT, VERSION, "Result.save")
    if document["version"] == 1:
        warnings.warn(f"{path} is of an older format without a digest: later changes go unnoticed", stacklevel=3)
    elif document.get("sha256") != digest(document):
        raise ChangedError(f"{path} is damaged: it was changed after it was saved, its digest differs")
    return document


def _read_arrays(json_path: Path, described: dict[str, Any]) -> dict[str, NDArray]:
    # The name in the file is not used: whoever renames both files alike can still load them.
    path = json_path.with_suffix(".npz")
    if not path.exists():
        raise StorageError(f"{path} is missing: {json_path.name} and {path.name} belong together")
    packed = read_limited(path, MOST_BYTES, StorageError)
    if hashlib.sha256(packed).hexdigest() != described["sha256"]:
        raise ChangedError(
            f"{path} was changed after it was saved, or does not belong to {json_path.name}: its checksum differs"
        )
    names = described["names"]
    members = [f"array{index}" for index in range(len(names))]
    arrays = unpack_arrays(packed, str(path), StorageError, members)
    return {name: arrays[member] for name, member in zip(names, members, strict=True)}


def _check_types(found: Mapping[str, Any], wanted: Mapping[str, type | tuple[type, ...]]) -> None:
    for name, kinds in wanted.items():
        if not isinstance(found[name], kinds) or isinstance(found[name], bool):
            raise TypeError(f"{name} is {shown(found[name])}")


def _encode(tree: PyTree, name: str, arrays: dict[str, NDArray]) -> Any:
    """A pytree as JSON; its arrays go to ``arrays`` and are named by their place in the tree."""
    if tree is None or isinstance(tree, (bool, str)):
        return tree
    if isinstance(tree, (int, np.integer)):
        return int(tree)
    if isinstance(tree, (float, np.floating)):
        number = float(tree)
        return number if np.isfinite(number) else {"float": repr(number)}  # JSON knows no infinity and no NaN
    if isinstance(tree, dict):
        if strange := [key for key in tree if not isinstance(key, (str, int))]:
            raise StorageError(f"{name} has the key {strange[0]!r}; only text and integers can be saved as keys")
        return {"dict": [[key, _encode(tree[key], f"{name}/{key}", arrays)] for key in tree]}
    if isinstance(tree, (list, tuple)):
        kind = "list" if isinstance(tree, list) else "tuple"
        return {kind: [_encode(item, f"{name}/{index}", arrays) for index, item in enumerate(tree)]}
    if not hasattr(tree, "__array__"):
        return repr(tree)  # an object among the settings: its description is all that can be kept
    array = np.asarray(tree)
    if array.dtype.hasobject:
        raise StorageError(f"{name} holds Python objects, only arrays of numbers can be saved")
    while name in arrays:  # the keys "a/b" and "a" -> "b" would share a name
        name += "'"
    arrays[name] = array
    return {"array": name}


def _decode(node: Any, arrays: dict[str, NDArray]) -> Any:
    """The inverse of :func:`_encode`."""
    if not isinstance(node, dict):
        return node
    readers: dict[str, Callable[[Any], Any]] = {
        "float": float,
        "array": lambda name: arrays[name],
        "list": lambda items: [_decode(item, arrays) for item in items],
        "tuple": lambda items: tuple(_decode(item, arrays) for item in items),
        "dict": lambda pairs: {key: _decode(value, arrays) for key, value in pairs},
    }
    ((kind, value),) = node.items()
    return readers[kind](value)


def _history(columns: list[str], table: NDArray) -> History:
    """The history by column name: a column that the file does not have is NaN."""
    if table.ndim != 2 or table.dtype.kind != "f":
        raise TypeError(f"the history is an array of {table.dtype} with the shape {table.shape}")
    found = dict(zip(columns, table.T, strict=True))
    unknown = np.full(len(table), np.nan)
    ordered = np.column_stack([found.get(name, unknown) for name in History.columns])
    return History([HistoryRow(*row) for row in ordered])


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
