"""Files as a stranger might send them: every reader with a valid file, and the ways to spoil it.

``tests/test_fuzz_readers.py`` draws a few hundred of them, ``benchmarks/fuzz.py`` as many as there is time for.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import re
import sqlite3
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import h5py
import numpy as np

from blocc import BilevelProblem, Box, Product, Reals
from blocc._lib.digests import digest, sealed
from blocc.cli.studies import read_report_settings
from blocc.executors.work import Outcome
from blocc.lagrangian import Multipliers
from blocc.networks.readers.omx import read_omx
from blocc.problems.loading import parse_x0
from blocc.report.storage import load_result, save_result
from blocc.report.study.study_views import read_report
from blocc.result import Certificate, History, HistoryRow, Result, Status
from blocc.resume.file import Identity, array_digest, pack, read_checkpoint
from blocc.resume.fingerprint import Fingerprint
from blocc.resume.recording import Entry, HistoryState, Kept, Recorded
from blocc.studies.compute import encode
from blocc.studies.store import Store
from blocc.studies.study import Study
from blocc.studies.sweep import read_sweep
from blocc.svm.data.samples import read_samples
from blocc.transport.design.documents import DESIGN, read_design_json
from blocc.transport.network.files import read_network, write_network
from blocc.transport.network.readers.rules import FillRules
from old_results import as_pair
from transport_designs import fake_design, small_network

Files = dict[str, bytes]


class Reader(NamedTuple):
    """One way into the package: valid files, the call that reads them, and what spoils them knowingly."""

    valid: Callable[[], Files]
    read: Callable[[Path], Any]
    spoil: Callable[[Random, Files], Files] | None = None


# --- valid files -----------------------------------------------------------------------------------------------------
def _written(write: Callable[[Path], Any]) -> Files:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def _gmns() -> Files:
    with tempfile.TemporaryDirectory() as name:
        folder = write_network(small_network(), Path(name) / "net")
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def _tntp() -> Files:
    net = """<NUMBER OF ZONES> 2
<NUMBER OF NODES> 3
<FIRST THRU NODE> 1
<NUMBER OF LINKS> 4
<END OF METADATA>
~ init term capacity length time b power speed toll type ;
1 2 100 1.5 2 0.15 4 0 0 1 ;
2 3 100 1.5 2 0.15 4 0 0 1 ;
3 2 100 1.5 2 0.15 4 0 0 1 ;
2 1 100 1.5 2 0.15 4 0 0 1 ;
"""
    trips = "<NUMBER OF ZONES> 2\n<TOTAL OD FLOW> 30.0\n<END OF METADATA>\nOrigin 1\n 2 : 10.0; 3 : 5.0;\nOrigin 3\n"
    node = "Node X Y ;\n1 0 0 ;\n2 1 0 ;\n3 1 1 ;\n"
    texts = {"a_net.tntp": net, "a_trips.tntp": trips + " 1 : 15.0;\n", "a_node.tntp": node}
    return {name: text.encode() for name, text in texts.items()}


def _omx(matrix: Any = None, lookup: Any = None, **options: Any) -> Files:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as stream:
        cells = np.arange(9.0).reshape(3, 3) if matrix is None else matrix
        stream.create_dataset("data/cars", data=cells, **options)
        stream.create_dataset("lookup/zone", data=np.array([11, 12, 13]) if lookup is None else lookup)
    return {"demand.omx": buffer.getvalue()}


def saved_result(**changes: Any) -> Result:
    """A result that was never computed."""
    row = HistoryRow(*(float(k) for k in range(len(HistoryRow._fields))))
    given: dict[str, Any] = {
        "x": {"a": np.arange(3.0), "b": (1.0, [np.ones((2, 2))])},
        "y": np.array(2.0),
        "y_penalty": np.array(2.5),
        "multipliers": Multipliers(np.ones(2), np.zeros(0)),
        "upper_value": 1.0,
        "upper_value_penalty": float("nan"),
        "lower_value": -3.0,
        "gamma": 10.0,
        "status": Status.CONVERGED,
        "message": "The run ended.",
        "certificate": Certificate(0.0, 0.0, 0.0, 1e-9, 0.0, 0.0),
        "history": History([row, row]),
        "counts": {"iterations": 2},
        "seconds": {"run": 0.5},
        "settings": {"tolerance": 1e-6, "method": "blocc"},
    }
    return Result(**{**given, **changes})


def _load_quietly(folder: Path) -> Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about formats without a digest
        return load_result(folder / "result")


def _study() -> Study:
    return Study("small", "package.module:name", {"gamma": [1.0, 2.0]}, [0, 1], {"problem": "toy"})


def _store() -> Files:
    def write(folder: Path) -> None:
        with Store(folder / "study.sqlite") as store:
            study = _study()
            store.begin(study, {"process": 1, "python": "3", "packages": {"numpy": "2"}})
            for batch in study.batches():
                outcome = Outcome(0, (encode({"value": 1.0, "seconds": 0.1}),), None, 0.1, "here")
                store.record(study, batch, outcome)
            store.end(study)

    return _written(write)


_SWEEP = b"""name = "small"
problem = "toy"
seeds = [0, 1]
start = "random"
[options]
tolerance = 1e-6
[grid]
gamma = [1.0, 2.0]
method = ["blocc"]
[output]
columns = ["upper_value", "gap"]
folder = "out"
"""
_CSV = b"a,b,label\n1,2.5,yes\n-3e2,4,no\n0.5,7,yes\n"
_LIBSVM = b"+1 1:0.5 3:2 # note\n-1 2:1e-3\n1 1:4 2:5 3:6\n"
_PROBLEM = BilevelProblem(
    upper=lambda x, y: y,
    lower=lambda x, y: (y - x["a"].sum()) ** 2,
    x_set=Product({"a": Box(np.zeros(2), np.ones(2)), "b": Box(0.0, 1.0)}),
    y_set=Reals(),
)


# --- ways to spoil a file --------------------------------------------------------------------------------------------
TOKENS = (
    b"\x00", b"NaN", b"nan", b"inf", b"-Infinity", b"1e999", b"-1", b"-0", b"1e-400", b"9" * 5000, b"1" + b"0" * 12,
    b"1_000", b"0x10", b"[" * 3000, b"{\"a\":" * 3000, b"(" * 200, b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80",
    b"\\ud800", b"a" * 140_000, b"\n" * 2000, b"\r", b"\r\n", b",", b";", b"\t", b'"', b"'", b"<", b">", b":", b"#",
    b"../../etc/passwd", b"/etc/passwd", b"<script>alert(1)</script>", b"=cmd|' /C calc'!A0", b"null", b"true", b"[]",
    b"{}", b'""', b"1e308", b"-1e308", "\u2028\U0001f600\u0663".encode(), b"Origin", b"<NUMBER OF NODES> 1e12\n",
)  # fmt: skip


def mutated(random: Random, files: Files) -> Files:
    """One of the files with a few bytes cut, doubled, replaced or inserted."""
    name = random.choice(sorted(files))
    data = files[name]
    for _ in range(random.choice((1, 1, 2, 4, 16))):
        start = random.randint(0, len(data))
        stop = min(len(data), start + random.choice((0, 1, 2, 8, 64)))
        kind = random.randrange(7)
        if kind == 0:
            data = data[:start] + random.randbytes(stop - start) + data[stop:]
        elif kind == 1:
            data = data[:start] + data[stop:]
        elif kind == 2:
            data = data[:stop] + data[start:stop] * random.choice((1, 2, 50)) + data[stop:]
        elif kind == 3:
            data = data[:start]
        elif kind == 4:
            data = data[:start] + random.choice(TOKENS) + data[stop:]
        elif kind == 5:
            data = _number_replaced(random, data)
        else:
            text = data.decode("utf-8", "replace")
            data = text.encode(random.choice(("utf-16", "utf-32", "cp037", "latin-1")), "replace")
    return {**files, name: data}


def noise(random: Random, files: Files) -> Files:
    """One of the files made of random bytes, sometimes behind a genuine beginning."""
    name = random.choice(sorted(files))
    head = files[name][: random.choice((0, 0, 4, 16, 100))]
    return {**files, name: head + random.randbytes(random.choice((0, 1, 10, 300, 5000)))}


def _number_replaced(random: Random, data: bytes) -> bytes:
    digits = [k for k, byte in enumerate(data) if 48 <= byte <= 57]
    if not digits:
        return data
    start = stop = random.choice(digits)
    while stop < len(data) and data[stop] in b"0123456789.eE+-":
        stop += 1
    return data[:start] + random.choice(TOKENS) + data[stop:]


def nonsense(random: Random, depth: int = 0) -> Any:
    """Any value that JSON can hold, some of them unkind."""
    kind = random.randrange(12 if depth < 3 else 9)
    if kind < 9:
        return random.choice(
            (None, True, False, 0, -1, 1, 10**12, 10**400, -(10**30), 0.5, 1e308, -1e-320, float("nan"), float("inf"),
             "", "nan", "a\x00b", "\ud800", "x" * 70_000, "../../etc/passwd", "7", " 7 ", [], {}, [[]],
             ["a"] * 1000, "<b>", "=1+1")
        )  # fmt: skip
    size = random.choice((0, 1, 2, 5))
    if kind == 9:
        return f"@{random.choice((10, 300, 900, 960, 980, 990, 20_000))}@"  # `as_json` makes so many brackets of it
    if kind == 10:
        return [nonsense(random, depth + 1) for _ in range(size)]
    keys = ("a", "id", "float", "array", "list", "dict", "tuple", "$float", "$", "name", "1")
    return {random.choice(keys): nonsense(random, depth + 1) for _ in range(size)}


def spoiled_document(random: Random, document: Any) -> Any:
    """A JSON document with one of its parts left out or replaced by nonsense."""
    holder, node = None, document
    key: Any = None
    while isinstance(node, dict | list) and node and (holder is None or random.random() < 0.75):
        holder, key = node, random.choice(list(node)) if isinstance(node, dict) else random.randrange(len(node))
        node = holder[key]
    if holder is None:
        return nonsense(random)
    if random.random() < 0.2:
        del holder[key]
    else:
        holder[key] = nonsense(random)
    return document


def as_json(document: Any) -> str:
    """JSON with the nesting that :func:`nonsense` asked for, which no encoder would write."""
    return re.sub(r'"@(\d+)@"', lambda found: "[" * int(found[1]) + "]" * int(found[1]), json.dumps(document))


def _spoil_json(name: str) -> Callable[[Random, Files], Files]:
    def spoil(random: Random, files: Files) -> Files:
        document = json.loads(files[name])
        for _ in range(random.choice((1, 1, 3))):
            document = spoiled_document(random, document)
        return {**files, name: as_json(document).encode()}

    return spoil


def resealed(files: Mapping[str, bytes]) -> Files:
    """A saved result whose checksums fit its content again, as someone who means harm would see to."""
    found = dict(files)
    with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
        document = json.loads(found["result.json"])
        document["arrays"]["sha256"] = hashlib.sha256(found["result.npz"]).hexdigest()
        document["sha256"] = digest(document)
        found["result.json"] = json.dumps(document).encode()
    return found


_ODD_ARRAYS = (
    np.zeros(0), np.zeros((0, 3)), np.array("text"), np.ones(2, complex), np.array([[1, 2]], np.int8),
    np.zeros(3, "M8[s]"), np.zeros(2, [("a", int)]), np.full((1, 1, 1), np.nan), np.array(b"\0"),
    np.full((4, 2), 2**62), -np.ones((4, 2), np.int64),
)  # fmt: skip


def _spoil_result(random: Random, files: Files) -> Files:
    if random.random() < 0.5:
        return resealed(_spoil_json("result.json")(random, files))
    if random.random() < 0.5:
        only = mutated(random, {"result.npz": files["result.npz"]})
        return resealed({**files, **only})
    with np.load(io.BytesIO(files["result.npz"])) as archive:
        arrays: dict[str, Any] = dict(archive.items())
    name = random.choice(sorted(arrays))
    arrays[name] = random.choice(_ODD_ARRAYS)
    buffer = io.BytesIO()
    random.choice((np.savez, np.savez_compressed))(buffer, **arrays)
    return resealed({**files, "result.npz": buffer.getvalue()})


def _spoil_one_file(random: Random, files: Files) -> Files:
    document = json.loads(files["result.json"])
    if random.random() < 0.5:
        packed = mutated(random, {"npz": base64.b64decode(document["arrays"]["npz"])})["npz"]
        document["arrays"]["npz"] = base64.b64encode(packed).decode()
        return {"result.json": json.dumps(sealed(document)).encode()}
    return _sealed_again("result.json")(random, files)


def _sealed_again(name: str) -> Callable[[Random, Files], Files]:
    """A document spoiled by someone who knows how its digest is made."""

    def spoil(random: Random, files: Files) -> Files:
        spoiled = _spoil_json(name)(random, files)
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
            document = json.loads(spoiled[name])
            return {name: json.dumps({**document, "sha256": digest(document)}).encode()}
        return spoiled

    return spoil


def _checkpoint() -> Files:
    entries = [Entry("0", np.arange(5.0) + k, np.arange(9.0) - k, 0.1 * k) for k in range(4)]
    row = tuple(float(k) for k in range(len(HistoryRow._fields)))
    recorded = Recorded(
        entries, {"batch": Kept([np.ones((2, 3)), np.arange(2)], HistoryState([row, row], 2, 7, 1, np.ones(2)))}
    )
    recorded.warm["0"] = [np.asarray(True), np.ones(3)]
    problem = Fingerprint({"upper": np.ones(4), "x_set": np.zeros((2, 2))}, {"tracer": "jax", "upper": "0f"})
    identity = Identity(problem, {"gamma": "auto", "seed": 0}, np.zeros((1, 2)))
    return {"run.npz": pack(identity, recorded)}


def _spoil_checkpoint(random: Random, files: Files) -> Files:
    """Its checksums fit again afterwards, as someone who means harm would see to."""
    with np.load(io.BytesIO(files["run.npz"])) as archive:
        arrays: dict[str, Any] = dict(archive.items())
    document = json.loads(arrays.pop("document").tobytes())
    arrays.pop("sha256")
    if random.random() < 0.5:
        document = spoiled_document(random, document)
    else:
        name = random.choice(sorted(arrays))
        if random.random() < 0.2:
            del arrays[name]
        else:
            arrays[name] = random.choice(_ODD_ARRAYS)
    if isinstance(document, dict) and random.random() < 0.9:
        document["arrays"] = {name: array_digest(array) for name, array in arrays.items()}
    text = as_json(document).encode()
    arrays["document"] = np.frombuffer(text, dtype=np.uint8)
    arrays["sha256"] = np.frombuffer(hashlib.sha256(text).hexdigest().encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return {"run.npz": buffer.getvalue()}


def _spoil_omx(random: Random, files: Files) -> Files:
    matrix = random.choice(
        (np.zeros((3, 4)), np.zeros(3), np.array(1.0), np.zeros((0, 0)), np.full((3, 3), np.nan), -np.ones((3, 3)),
         np.ones((3, 3), complex), np.array([[b"a", b"b"], [b"c", b"d"]]), np.ones((3, 3), np.float16),
         np.ones((3, 3), bool), np.zeros((2, 2), [("a", int), ("b", float)]), np.full((3, 3), 1e308), np.ones((3, 3)))
    )  # fmt: skip
    lookup = random.choice(
        (np.arange(3), np.arange(4), np.array([b"a", b"\xff", b""]), np.array([1, 1, 1]), np.array([np.nan, 1, 2]),
         np.zeros((3, 2)), np.array([2**63] * 3, np.uint64), np.array([b"x" * 90_000] * 3), np.ones(3, complex),
         np.array(1), np.zeros(3, [("a", int)]))
    )  # fmt: skip
    options = random.choice(({}, {"compression": "gzip", "chunks": matrix.shape or None, "maxshape": None}))
    return _omx(matrix, lookup, **(options if matrix.ndim and matrix.size else {}))


def without_checksums(connection: sqlite3.Connection) -> None:
    """Make a store one of the first version, whose rows are only held against what they must be."""
    with contextlib.suppress(sqlite3.Error):  # another program's database
        connection.execute("DROP TABLE IF EXISTS checksums")
        connection.execute("PRAGMA user_version=1")
        connection.commit()


def _spoil_store(random: Random, files: Files) -> Files:
    table, columns = random.choice(
        (
            ("studies", ("name", "definition", "version", "settings", "total", "started", "ended")),
            ("cells", ("study", "key", "version", "status", "row", "error", "seconds", "attempts", "finished")),
        )
    )
    column = random.choice(columns)
    value: Any = random.choice((None, -1, 2**62, 1e308, "nan", b"\xff\x00", "x" * 5000, "[" * 5000, "{}", "[]", "1e9"))
    if column in ("definition", "settings", "row") and random.random() < 0.7:
        made = json.loads(_study().to_json()) if column == "definition" else {"value": 1.0, "process": 3}
        value = as_json(spoiled_document(random, made))

    def write(folder: Path) -> None:
        path = folder / "study.sqlite"
        path.write_bytes(files["study.sqlite"])
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA ignore_check_constraints=ON")
            connection.execute("PRAGMA journal_mode=DELETE")
            with contextlib.suppress(sqlite3.Error):  # a column that may not be empty
                connection.execute(f"UPDATE {table} SET {column} = ?", (value,))
                connection.commit()
            without_checksums(connection)

    return _written(write)


def _spoil_sweep(random: Random, files: Files) -> Files:
    lines = files["study.toml"].decode().splitlines()
    k = random.choice([k for k, line in enumerate(lines) if "=" in line])
    values = (
        "1", "-1", "0", "1e400", "nan", "inf", "true", "''", "'x'", "[]", "{}", "[[1]]", "1979-05-27", "{a = 1}",
        "9" * 5000, "[" * 2000, "'" + "x" * 9000 + "'", "[1.0, 1.0]", "'../../etc/passwd'", "'/etc/passwd'",
        "'network:../../x.json'", "'svm:/etc/passwd'", "\"a\\u0000.py\"", "\"network:\\u0000\"", "'three'", "'a.py:b'",
        "1_000_000_000_000", "[0, 0]", "[1, 2, 3, 'x']", str(list(range(3000))), "'blocc'", "['gam', 'x']", "[true]",
    )  # fmt: skip
    key = lines[k].partition("=")[0]
    lines[k] = f"{key}= {random.choice(values)}"
    return {**files, "study.toml": "\n".join(lines).encode()}


READERS: dict[str, Reader] = {
    "network in JSON": Reader(
        lambda: _written(lambda folder: write_network(small_network(), folder / "net.json")),
        lambda folder: read_network(folder / "net.json"),
        _spoil_json("net.json"),
    ),
    "network in GMNS": Reader(_gmns, lambda folder: read_network(folder, rules=FillRules(geographic=False))),
    "network in TNTP": Reader(
        _tntp, lambda folder: read_network(folder, rules=FillRules(cost_per_time=1.0, revenue_flat=2.0))
    ),
    "demand in OMX": Reader(_omx, lambda folder: read_omx(folder / "demand.omx"), _spoil_omx),
    "samples in CSV": Reader(lambda: {"data.csv": _CSV}, lambda folder: read_samples(folder / "data.csv")),
    "samples in LIBSVM": Reader(lambda: {"data.svm": _LIBSVM}, lambda folder: read_samples(folder / "data.svm")),
    "samples in any text": Reader(lambda: {"data.txt": _LIBSVM}, lambda folder: read_samples(folder / "data.txt")),
    "saved result": Reader(
        lambda: _written(lambda folder: as_pair(save_result(saved_result(), folder / "result"))),
        _load_quietly,
        _spoil_result,
    ),
    "saved result in one file": Reader(
        lambda: _written(lambda folder: save_result(saved_result(), folder / "result")),
        _load_quietly,
        _spoil_one_file,
    ),
    "checkpoint": Reader(_checkpoint, lambda folder: read_checkpoint(folder / "run.npz"), _spoil_checkpoint),
    "design in JSON": Reader(
        lambda: {"design.json": json.dumps(DESIGN.document(fake_design(small_network()))).encode()},
        lambda folder: read_design_json(folder / "design.json"),
        _sealed_again("design.json"),
    ),
    "study in TOML": Reader(
        lambda: {"study.toml": _SWEEP}, lambda folder: read_sweep(folder / "study.toml"), _spoil_sweep
    ),
    "store of studies": Reader(_store, lambda folder: read_report(folder / "study.sqlite"), _spoil_store),
    "settings of a report": Reader(
        lambda: {"report.json": b'{"title": "t", "shown": {"small": ["value"]}, "items": ["toy"], "quick": true}'},
        read_report_settings,
        _spoil_json("report.json"),
    ),
    "start in JSON": Reader(
        lambda: {"x0.json": b'{"a": [0.5, 1], "b": 0.25}'},
        lambda folder: parse_x0((folder / "x0.json").read_bytes().decode("utf-8", "replace"), _PROBLEM),
        _spoil_json("x0.json"),
    ),
}


def draw(random: Random, reader: Reader, valid: Files) -> Files:
    """Files for a reader: noise, a mutation, or nonsense in the right form."""
    kind = random.randrange(5)
    if kind == 0:
        return noise(random, valid)
    if reader.spoil is not None and kind >= 3:
        return reader.spoil(random, valid)
    return mutated(random, valid)


def put(files: Mapping[str, bytes], folder: Path) -> None:
    """Write files into a folder."""
    for name, data in files.items():
        (folder / name).write_bytes(data)
