"""Results on disk: ``PATH.json`` holds numbers, words and structure, ``PATH.npz`` the arrays.

Both files are plain data: nothing in them is ever executed, so a result from a stranger is safe to load. Floats keep
every bit. The JSON file carries the checksum of its companion, so that files that do not belong together are noticed.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from blocc.errors import BloccError
from blocc.lagrangian import Multipliers
from blocc.outer.monitor import HistoryRow
from blocc.result import Certificate, History, Result, Status
from blocc.writing import write_atomically

PyTree = Any

FORMAT = "blocc-result"
VERSION = 1

_HISTORY = "history"
#: Fields of a result that need no translation beyond that of a pytree.
_PLAIN = tuple(f.name for f in fields(Result) if f.name not in ("status", "certificate", "history", "multipliers"))


class StorageError(BloccError):
    """A file cannot be written, or is not a result that this version can read."""


def save_result(result: Result, path: str | Path) -> Path:
    """Write ``PATH.json`` and ``PATH.npz`` and return the path of the JSON file.

    ``path`` may carry either suffix or none; its folder is created. Each file appears complete or not at all.
    """
    json_path, npz_path = _paths(path)
    arrays: dict[str, np.ndarray] = {}
    content = {name: _encode(getattr(result, name), name, arrays) for name in _PLAIN}
    content["status"] = result.status.value
    content["certificate"] = _encode(asdict(result.certificate), "certificate", arrays)
    content["multipliers"] = _encode(result.multipliers._asdict(), "multipliers", arrays)
    columns = [getattr(result.history, name) for name in History.columns]
    arrays[_HISTORY] = np.column_stack(columns)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **_file_names(arrays))
    packed = buffer.getvalue()
    document = {
        "format": FORMAT,
        "version": VERSION,
        "arrays": {"file": npz_path.name, "sha256": hashlib.sha256(packed).hexdigest(), "names": list(arrays)},
        "history": {"array": _HISTORY, "columns": list(History.columns)},
        "result": content,
    }
    text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    try:
        json_path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(npz_path, packed)
        write_atomically(json_path, text.encode())
    except OSError as error:
        raise StorageError(f"cannot write {json_path}: {error.strerror or error}") from error
    return json_path


def load_result(path: str | Path) -> Result:
    """Read back what :func:`save_result` wrote; named tuples come back as plain tuples."""
    json_path, _ = _paths(path)
    document = _read_document(json_path)
    try:
        arrays = _read_arrays(json_path, document["arrays"])
        content = document["result"]
        plain = {name: _decode(content[name], arrays) for name in _PLAIN}
        return Result(
            **plain,
            status=Status(content["status"]),
            certificate=Certificate(**_decode(content["certificate"], arrays)),
            multipliers=Multipliers(**_decode(content["multipliers"], arrays)),
            history=_history(document["history"]["columns"], arrays[document["history"]["array"]]),
        )
    except StorageError:
        raise
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise StorageError(f"{json_path} is damaged: {type(error).__name__}: {error}") from error


def plain(tree: Any) -> Any:
    """Any pytree of numbers as values that JSON knows; what is not finite becomes null."""
    if isinstance(tree, dict):
        return {str(key): plain(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [plain(value) for value in tree]
    if hasattr(tree, "tolist"):
        return plain(tree.tolist())
    return None if isinstance(tree, float) and not np.isfinite(tree) else tree


def describe(result: Result) -> dict[str, Any]:
    """A result as JSON values, for people and scripts to read; unlike a saved one it cannot be loaded again."""
    names = ("name", "message", "x", "y", "y_penalty", "upper_value", "lower_value", "upper_value_penalty", "gamma")
    document = {"status": result.status.value, "success": result.success}
    document |= {name: plain(getattr(result, name)) for name in names}
    document["multipliers"] = plain(result.multipliers._asdict())
    document["certificate"] = plain(asdict(result.certificate))
    return {**document, "iterations": len(result.history), "counts": result.counts, "seconds": result.seconds}


def _paths(path: str | Path) -> tuple[Path, Path]:
    given = Path(path)
    base = given.with_suffix("") if given.suffix in (".json", ".npz") else given
    if not base.name or (given == base and base.is_dir()):
        raise StorageError(f"path must name a file, got the folder {str(path)!r}; for instance {given / 'result.json'}")
    return base.with_name(base.name + ".json"), base.with_name(base.name + ".npz")


def _read_document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StorageError(f"there is no file {path}") from None
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:  # both JSONDecodeError and UnicodeDecodeError
        raise StorageError(f"{path} is not a JSON file: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise StorageError(f"{path} was not written by Result.save: its format is not {FORMAT!r}")
    version = document.get("version")
    if not isinstance(version, int) or version < 1:
        raise StorageError(f"{path} is damaged: its format version is {version!r}")
    if version > VERSION:
        raise StorageError(
            f"{path} has format version {version}, this blocc reads up to {VERSION}: upgrade blocc to load it"
        )
    return document


def _read_arrays(json_path: Path, described: dict[str, Any]) -> dict[str, np.ndarray]:
    # The name in the file is not used: whoever renames both files alike can still load them.
    path = json_path.with_suffix(".npz")
    try:
        packed = path.read_bytes()
    except FileNotFoundError:
        raise StorageError(f"{path} is missing: {json_path.name} and {path.name} belong together") from None
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
    if hashlib.sha256(packed).hexdigest() != described["sha256"]:
        raise StorageError(f"{path} is damaged or does not belong to {json_path.name}: its checksum differs")
    try:
        with np.load(io.BytesIO(packed), allow_pickle=False) as archive:
            return {name: archive[f"array{index}"] for index, name in enumerate(described["names"])}
    except (zipfile.BadZipFile, OSError, EOFError) as error:
        raise StorageError(f"{path} is not a NumPy archive: {error}") from error


def _file_names(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Numbered names inside the archive: a user's own keys may hold characters that no file name should."""
    return {f"array{index}": array for index, array in enumerate(arrays.values())}


def _encode(tree: PyTree, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """A pytree as JSON; its arrays go to ``arrays`` and are named by their place in the tree."""
    if tree is None or isinstance(tree, (bool, str)):
        return tree
    if isinstance(tree, (int, np.integer)):
        return int(tree)
    if isinstance(tree, (float, np.floating)):
        number = float(tree)
        return number if np.isfinite(number) else {"float": repr(number)}  # JSON knows no infinity and no NaN
    if isinstance(tree, dict):
        return {"dict": [[_key(key, name), _encode(tree[key], f"{name}/{key}", arrays)] for key in tree]}
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


def _key(key: Any, name: str) -> Any:
    if not isinstance(key, (str, int)):
        raise StorageError(f"{name} has the key {key!r}; only text and integers can be saved as keys")
    return key


def _decode(node: Any, arrays: dict[str, np.ndarray]) -> Any:
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


def _history(columns: list[str], table: np.ndarray) -> History:
    """The history by column name: a column that the file does not have is NaN."""
    found = dict(zip(columns, table.T, strict=True))
    unknown = np.full(len(table), np.nan)
    ordered = np.column_stack([found.get(name, unknown) for name in History.columns])
    return History([HistoryRow(*row) for row in ordered])


def csv_text(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Rows as the content of a CSV file, with headings from the first; what is not finite stays empty."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    for row in rows[:1]:
        writer.writerow(row)
    for row in rows:
        writer.writerow([_cell(value) for value in row.values()])
    return stream.getvalue().encode(errors="replace")


def _cell(value: Any) -> Any:
    return "" if isinstance(value, float) and not math.isfinite(value) else value
