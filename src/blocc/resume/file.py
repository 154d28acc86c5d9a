"""Checkpoints: the recording of a run in one file, and the checks that keep foreign and broken files out.

The file is a NumPy archive of plain arrays, one of which holds a JSON document; nothing in it is ever executed. The
document carries the SHA-256 of every other array, and the archive that of the document. A checkpoint knows its problem
(by its fingerprint), its start and its settings, and refuses to continue any other run.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy

from blocc._lib.files import (
    MOST_BYTES,
    parse_json,
    read_limited,
    remove_leftovers,
    shown,
    unpack_arrays,
    write_atomically,
)
from blocc._lib.version import __version__
from blocc.errors import OptionError
from blocc.problem import BilevelProblem
from blocc.resume.fingerprint import Fingerprint, fingerprint
from blocc.resume.recording import CheckpointError, Entry, HistoryState, Kept, Recorded, Recording

FORMAT = "blocc-checkpoint"
VERSION = 1
#: Settings that may differ when a run is continued: they say when to stop, not where to go.
_FREE = ("time_limit",)
_PROBE = 4096


class Identity(NamedTuple):
    """Which run a checkpoint belongs to."""

    problem: Fingerprint
    settings: dict[str, Any]
    starts: np.ndarray


class _Content(NamedTuple):
    identity: Identity
    recorded: Recorded


def open_recording(
    problem: BilevelProblem | Fingerprint,
    settings: Mapping[str, Any],
    starts: np.ndarray,
    checkpoint: str | Path | None,
    resume: str | Path | None,
    seconds: float,
) -> Recording:
    """The recording of a run: idle, or kept in ``checkpoint``, or continued from ``resume`` (and kept there as well).

    Everything that can go wrong with the files is found out here, before any work.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0.0 <= seconds < np.inf:
        raise OptionError(f"checkpoint_seconds must be a number of seconds, got {seconds!r}")
    source = _path("resume", resume)
    target = _path("checkpoint", checkpoint) or source
    if target is None:
        return Recording()
    plain = json.loads(json.dumps({key: settings[key] for key in settings if key not in _FREE}, default=repr))
    known_by = problem if isinstance(problem, Fingerprint) else fingerprint(problem)
    identity = Identity(known_by, plain, np.asarray(starts))
    recorded = Recorded()
    if source is not None:
        content = read_checkpoint(source)
        _same_run(source, content.identity, identity)
        recorded = content.recorded
    if target != source:
        _may_be_written(target, identity)
    _probe(target)

    def save(current: Recorded) -> None:
        write_atomically(target, pack(identity, current))

    return Recording(recorded, save, float(seconds))


def read_checkpoint(path: Path) -> _Content:
    """The content of a checkpoint, or an error that says what is wrong with the file."""
    packed = read_limited(path, MOST_BYTES, CheckpointError)
    foreign = CheckpointError(f"{path} is not a blocc checkpoint, or it is damaged or cut short")
    try:
        arrays = unpack_arrays(packed, str(path), CheckpointError)
        text = arrays.pop("document").tobytes()
        digest = arrays.pop("sha256").tobytes().decode()
        document = parse_json(text, str(path), CheckpointError)
        version = document["version"]
        if document["format"] != FORMAT or not isinstance(version, int):
            raise foreign
    except (CheckpointError, KeyError, ValueError, TypeError):
        raise foreign from None
    if version > VERSION:
        raise CheckpointError(f"{path} has format version {version}, this blocc reads up to {VERSION}: upgrade blocc")
    intact = digest == hashlib.sha256(text).hexdigest()
    if not intact or document.get("arrays") != {name: array_digest(array) for name, array in arrays.items()}:
        raise CheckpointError(f"{path} is damaged, or was changed after it was saved: its checksum differs")
    try:
        return _unpack(document, arrays)
    # The checksums are right and the content is not: someone wrote this file by other means.
    except (KeyError, IndexError, ValueError, TypeError, AttributeError, OverflowError, MemoryError) as reason:
        raise CheckpointError(f"{path} is no checkpoint that blocc has written: {reason!r:.200}") from reason


# --- before any work -------------------------------------------------------------------------------------------------
def _path(name: str, given: str | Path | None) -> Path | None:
    if given is None:
        return None
    if not isinstance(given, (str, os.PathLike)) or not str(given):
        raise OptionError(f"{name} must be the path of a file, got {given!r}")
    path = Path(given)
    if path.is_dir():
        better = path / "run.npz"
        raise CheckpointError(f"{name} must name a file, got the folder {str(path)!r}; for instance {better}")
    return path


def _same_run(path: Path, found: Identity, wanted: Identity) -> None:
    if parts := found.problem.differences(wanted.problem):
        raise CheckpointError(f"{path} belongs to another problem: {', '.join(parts)} differ{'s' * (len(parts) == 1)}")
    for name in {**found.settings, **wanted.settings}:
        before, now = found.settings.get(name), wanted.settings.get(name)
        if before != now:
            raise CheckpointError(f"{path} belongs to a run with {name}={before!r}, this one has {name}={now!r}")
    if found.starts.shape != wanted.starts.shape or not np.array_equal(found.starts, wanted.starts):
        raise CheckpointError(f"{path} belongs to a run from another start: x0 differs")


def _may_be_written(path: Path, identity: Identity) -> None:
    """Nothing is overwritten but an older checkpoint of the same problem."""
    if not path.exists():
        return
    try:
        found = read_checkpoint(path)
    except CheckpointError as error:
        raise CheckpointError(f"{error}; it is not overwritten: choose another path for checkpoint") from None
    if parts := found.identity.problem.differences(identity.problem):
        raise CheckpointError(
            f"{path} is a checkpoint of another problem (by {', '.join(parts)}); it is not overwritten: choose another "
            "path for checkpoint"
        )


def _probe(path: Path) -> None:
    """Try to write beside the target, so that a folder without rights or room is found out before any work."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path)  # of runs that were killed while they wrote
        with tempfile.TemporaryFile(dir=path.parent) as stream:
            stream.write(bytes(_PROBE))
            stream.flush()
    except OSError as error:
        raise CheckpointError(f"cannot write the checkpoint {path}: {error.strerror or error}") from error


# --- the format ------------------------------------------------------------------------------------------------------
def array_digest(array: np.ndarray) -> str:
    """SHA-256 of an array's content, form and type."""
    content = np.ascontiguousarray(array).tobytes()
    return hashlib.sha256(f"{array.dtype.str} {array.shape} ".encode() + content).hexdigest()


def _joined(vectors: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(vectors) if vectors else np.zeros(0)


def pack(identity: Identity, recorded: Recorded) -> bytes:
    """A checkpoint as bytes."""
    arrays: dict[str, np.ndarray] = {"starts": identity.starts}
    arrays |= {f"problem{index}": table for index, table in enumerate(identity.problem.values.values())}
    entries = recorded.entries
    arrays["inputs"] = _joined([entry.inputs for entry in entries])
    arrays["outputs"] = _joined([entry.outputs for entry in entries])
    arrays["lengths"] = np.array([[e.inputs.size, e.outputs.size] for e in entries], dtype=np.int64).reshape(-1, 2)
    arrays["times"] = np.array([entry.time for entry in entries], dtype=np.float64)
    states: dict[str, Any] = {}
    for number, (name, (leaves, log)) in enumerate(recorded.kept.items()):
        arrays |= {f"state{number}_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.device_get(leaves))}
        arrays[f"rows{number}"] = np.asarray([tuple(row) for row in log.rows[: log.count]], dtype=np.float64)
        if log.position is not None:
            arrays[f"position{number}"] = np.asarray(log.position)
        states[name] = {"leaves": len(leaves), "iterations": log.iterations, "stride": log.stride}
    for owner, leaves in recorded.warm.items():
        arrays |= {f"warm{owner}_{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    document = {
        "format": FORMAT,
        "version": VERSION,
        "versions": {"blocc": __version__, "jax": jax.__version__, "numpy": np.__version__, "scipy": scipy.__version__},
        "settings": identity.settings,
        "problem": list(identity.problem.values),
        "program": identity.problem.program,
        "labels": [entry.label for entry in entries],
        "states": states,
        "warm": {owner: len(leaves) for owner, leaves in recorded.warm.items()},
        "seconds": recorded.seconds,
        "arrays": {name: array_digest(array) for name, array in arrays.items()},
    }
    text = json.dumps(document).encode()
    arrays["document"] = np.frombuffer(text, dtype=np.uint8)
    arrays["sha256"] = np.frombuffer(hashlib.sha256(text).hexdigest().encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    packed: dict[str, Any] = dict(arrays)
    np.savez(buffer, allow_pickle=False, **packed)
    return buffer.getvalue()


def _unpack(document: dict[str, Any], arrays: dict[str, np.ndarray]) -> _Content:
    """The inverse of :func:`pack`."""
    values = {str(name): arrays[f"problem{index}"] for index, name in enumerate(document["problem"])}
    program = {str(name): str(digest) for name, digest in document.get("program", {}).items()}  # older files have none
    recorded = Recorded(_entries(document["labels"], arrays))
    for number, (name, state) in enumerate(document["states"].items()):
        leaves = [arrays[f"state{number}_{i}"] for i in range(_count(state["leaves"], arrays))]
        rows = [tuple(map(float, row)) for row in arrays[f"rows{number}"].tolist()]
        iterations, stride = int(state["iterations"]), int(state["stride"])
        if iterations < 0 or stride < 1:
            raise ValueError(f"{name!r} counts {iterations} iterations in strides of {stride}")
        recorded.kept[name] = Kept(
            leaves, HistoryState(rows, len(rows), iterations, stride, arrays.get(f"position{number}"))
        )
    for owner, size in document["warm"].items():
        recorded.warm[owner] = [arrays[f"warm{owner}_{i}"] for i in range(_count(size, arrays))]
    recorded.seconds = float(document["seconds"])
    if not 0.0 <= recorded.seconds < np.inf:
        raise ValueError(f"{recorded.seconds} seconds")
    return _Content(Identity(Fingerprint(values, program), dict(document["settings"]), arrays["starts"]), recorded)


def _entries(labels: list[Any], arrays: dict[str, np.ndarray]) -> list[Entry]:
    lengths, times = arrays["lengths"], arrays["times"]
    if lengths.dtype != np.int64 or lengths.shape != (len(labels), 2) or (lengths < 0).any():
        raise ValueError("the lengths of the entries are not those of their labels")
    vectors = []
    for column, name in enumerate(("inputs", "outputs")):
        joined = arrays[name]
        # Whole numbers of Python: a sum that runs over must not come out right.
        if joined.dtype != np.float64 or joined.shape != (sum(lengths[:, column].tolist()),):
            raise ValueError(f"the {name} of the entries are not as long as their lengths say")
        vectors.append(np.split(joined, np.cumsum(lengths[:, column])[:-1]) if labels else [])
    if times.dtype != np.float64 or not np.isfinite(times).all():
        raise ValueError("the times of the entries are no numbers")
    return [Entry(str(label), *rest) for label, *rest in zip(labels, *vectors, times.tolist(), strict=True)]


def _count(given: Any, arrays: dict[str, np.ndarray]) -> int:
    """A number of arrays, no more than there are."""
    if not isinstance(given, int) or not 0 <= given <= len(arrays):
        raise ValueError(f"{shown(given)} arrays")
    return given
