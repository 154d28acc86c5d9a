"""Results on disk: one JSON file of numbers, words and structure, with the arrays as a NumPy archive in base64.

It is plain data: nothing in it is ever executed, so a result from outside is safe to load. Floats keep every bit. One
file, because it then appears whole or not at all: a save that dies leaves the older result. A digest of everything it
says tells of later changes; who recomputes it can write anything, and :func:`blocc.judge.verify.verify` is there for
that. Older versions kept the arrays in ``PATH.npz`` beside it; such pairs are still read.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from blocc._lib.arrays import NDArray, PyTree
from blocc._lib.digests import sealed
from blocc._lib.files import (
    MOST_BYTES,
    json_bytes,
    parse_json,
    plain,
    read_limited,
    shown,
    unpack_arrays,
    write_file,
)
from blocc.errors import OptionError
from blocc.kit.storage import ChangedError, StorageError, checked
from blocc.lagrangian import InnerPairs, Multipliers
from blocc.result import Certificate, History, HistoryRow, Result, Status

FORMAT = "blocc-result"
VERSION = 3  #: from 2 on with a digest, from 3 on with the arrays in the same file

DIGEST_FROM = 2
MOST_JSON = 64 * 2**20  #: bytes of a JSON file besides its packed arrays: as objects of Python it takes 20 times that
_PACKED = re.compile(rb'"npz": "[A-Za-z0-9+/=]*"')

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
#: The same where the run was not one of Algorithm 1.
_OPTIONAL = (*_PROVEN, "inner")


def save_result(result: Result, path: str | Path) -> Path:
    """Write ``PATH.json`` and return its path.

    ``path`` may carry the suffix or not; its folder is created. The file appears complete or not at all.
    """
    json_path, _ = _paths(path)
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
    document = {
        "format": FORMAT,
        "version": VERSION,
        "history": {"array": _HISTORY, "columns": list(History.columns)},
        "result": content,
        "arrays": {"names": list(arrays), "npz": base64.b64encode(buffer.getvalue()).decode()},
    }
    return write_file(json_path, json_bytes(sealed(document)), StorageError)


def load_result(path: str | Path) -> Result:
    """Read back what :func:`save_result` wrote; named tuples come back as plain tuples."""
    json_path, _ = _paths(path)
    try:
        document = _read_document(json_path)
        arrays = _read_arrays(json_path, document)
        content = document["result"]
        given = {name: _decode(content[name], arrays) for name in _PLAIN if name in content or name not in _OPTIONAL}
        if given.get("inner") is not None:
            y_g, mu_g, y_F, mu_F = given["inner"]
            given["inner"] = InnerPairs(y_g, Multipliers(*mu_g), y_F, Multipliers(*mu_F))
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
    made = result.counts.get("iterations", len(result.history))
    document |= {"iterations": made, "counts": result.counts, "seconds": result.seconds}
    return {**document, "settings": plain(result.settings), "versions": result.versions}


def _paths(path: str | Path) -> tuple[Path, Path]:
    if not isinstance(path, (str, PathLike)):
        raise OptionError(f"path must be the path of a file such as 'result.json', got {type(path).__name__}")
    given = Path(path)
    base = given.with_suffix("") if given.suffix in (".json", ".npz") else given
    if not base.name or (given == base and base.is_dir()):
        raise StorageError(f"path must name a file, got the folder {str(path)!r}; for instance {given / 'result.json'}")
    return base.with_name(base.name + ".json"), base.with_name(base.name + ".npz")


def _read_document(path: Path) -> dict[str, Any]:
    # Base64 has four letters for three bytes.
    data = read_limited(path, MOST_JSON + MOST_BYTES * 4 // 3, StorageError)
    if len(data) > MOST_JSON and len(data) - max(map(len, _PACKED.findall(data)), default=0) > MOST_JSON:
        raise StorageError(f"{path} is too large: more than {MOST_JSON:,} bytes, the limit for such a file")
    return checked(parse_json(data, str(path), StorageError), path, FORMAT, VERSION, "Result.save", DIGEST_FROM)


def _read_arrays(json_path: Path, document: dict[str, Any]) -> dict[str, NDArray]:
    described, path = document["arrays"], json_path
    if document["version"] >= 3:
        try:
            packed = base64.b64decode(described["npz"], validate=True)
        except binascii.Error as error:
            raise StorageError(f"{path} is damaged: its arrays are no base64: {error}") from error
    else:
        # The name in the file is not used: whoever renamed both files alike can still load them.
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
