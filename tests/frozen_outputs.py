"""What the commands of the applications write, as a table that is held against a stored one.

``python tests/frozen_outputs.py`` writes the stored table anew, for whoever changes a file on purpose. It holds exit
codes, names of files, columns, words and figures of tables, and keys and kinds of values of JSON files; no figure of a
run (seconds, counts, residuals), and figures to a tolerance.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from typer.testing import CliRunner

from blocc._lib.files import json_bytes
from blocc.cli import commands as cli
from blocc.roads.files import network_document
from power_reference import written
from road_designs import small_roads

STORED = Path(__file__).parent / "data" / "frozen_outputs.json"
TOLERANCE = 1e-3  #: of figures, relative to the largest of their column
#: Columns and rows whose figures a run leaves as they come.
LOOSE = {
    *("price", "marginal_value", "bound_expansion", "iterations", "n_paths", "gap", "bound", "c", "decision"),
    *("price_before", "price_after", "value_before", "value_after", "profit_before", "profit_after"),
    *("paid by consumers", "congestion rent", "congestion rent, before"),  # of prices that may not be unique
    *("weight", "weight_original", "time", "forgiven", "predicted", "index", "label"),
}
#: What a JSON file says of the run, not of the answer.
OF_THE_RUN = re.compile(r"(^|\.)(seconds|versions|settings|counts|sha256|npz|message|checks|history|names)(\.|$)")
_SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


def outcomes(folder: Path) -> dict[str, Any]:
    """Every command of the applications on small inputs: its exit code and its files."""
    return {name: _outcome(arguments, folder / name) for name, arguments in _commands(folder).items()}


def _commands(folder: Path) -> dict[str, Sequence[object]]:
    roads = folder / "square.json"
    roads.write_bytes(json_bytes(network_document(small_roads())))
    counts = folder / "counts.csv"
    counts.write_text("link_id,count\nb>c,1.0\n1,5.0\n")
    ring = written(folder)
    decided = ("--candidates", "2,b>c", "--cost", "[0.3, 0.5]", "--exponent", 2, "--starts", 1)
    bids = ("power", "bid", ring, "--generators", 2, "--offer-cap", 70, "--starts", 1)
    sizes = ("--train", 60, "--validation", 30, "--seed", 1)
    return {
        "design-three": ("design", "three", "--starts", 2),
        "design-nine": ("design", "nine", "--starts", 1, "--gamma", 4),
        "scenarios": ("design", "three", "--starts", 1, "--scenario", "base", "--scenario", "more: demand=1.1"),
        "assign": ("roads", "assign", roads),
        "system-optimum": ("roads", "assign", roads, "--principle", "system-optimum"),
        "expand": ("roads", "expand", roads, *decided),
        "toll": ("roads", "toll", roads, "--candidates", "1,b>c", "--starts", 1),
        "estimate": ("roads", "estimate", roads, "--counts", counts, "--prior-weight", 0.1, "--starts", 1),
        "bids": bids,
        "stopped-bids": (*bids, "--time-limit", 1e-3),
        "lines": ("power", "expand", ring, "--lines", 3, "--cost", 4, "--goal", "cost", "--starts", 1),
        "tariff": ("power", "tariff", ring, "--starts", 1),
        "svm": ("svm", "breast_cancer", *sizes),
        "verify-design": ("verify", folder / "design-three" / "design.json", "three", "--json"),
        "verify-expand": ("verify", folder / "expand" / "design.json", roads, "--json"),
        "verify-toll": ("verify", folder / "toll" / "design.json", roads, "--json"),
        "verify-estimate": ("verify", folder / "estimate" / "estimate.json", roads, "--json"),
        "verify-bids": ("verify", folder / "bids" / "design.json", ring, "--json"),
        "verify-lines": ("verify", folder / "lines" / "design.json", ring, "--json"),
        "verify-tariff": ("verify", folder / "tariff" / "design.json", ring, "--json"),
        "verify-another": ("verify", folder / "bids" / "design.json", "three", "--json"),
        "verify-nothing": ("verify", folder / "none.json", "three"),
    }


def _outcome(arguments: Sequence[object], out: Path) -> dict[str, Any]:
    is_check = arguments[0] == "verify"
    given = arguments if is_check else (*arguments, "--quiet", "--out", out)
    done = CliRunner().invoke(cli.build_app(), [str(argument) for argument in given])
    found: dict[str, Any] = {"exit": done.exit_code}
    if is_check:
        said = json.loads(done.stdout) if done.stdout.startswith("{") else {}
        checks = {check["name"]: check["ok"] for check in said.get("checks", ())}
        return found | {"checks": checks, "unchecked": sorted(said.get("unchecked", ()))}
    is_stopped = "--time-limit" in arguments  # how far it came, the clock knows
    return found | {"files": {name: is_stopped or _content(path) for name, path in sorted(_files(out))}}


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in folder.rglob("*") if folder.is_dir() else ():
        if path.is_file():
            yield re.sub(r"run-\w+", "run", path.relative_to(folder).as_posix()), path


def _content(path: Path) -> Any:
    readers: dict[str, Callable[[Path], Any]] = {
        ".csv": lambda file: _table(file.read_text(encoding="utf-8-sig")),
        ".json": lambda file: _document(json.loads(file.read_text(encoding="utf-8"))),
        ".geojson": lambda file: _document(json.loads(file.read_text(encoding="utf-8"))),
        ".xlsx": _workbook,
        ".gpkg": _layers,
        ".npz": _arrays,
    }
    is_known = path.suffix in readers and path.name != "result.json"  # which is of the core, not of an application
    return readers[path.suffix](path) if is_known else path.stat().st_size > 0


def _table(text: str) -> dict[str, Any]:
    """The columns of a table, in their order: figures, or words."""
    rows = list(csv.DictReader(io.StringIO(text)))
    if rows and "kind" in rows[0]:  # a summary: a row is a figure of its own
        kept = [row for row in rows if row["kind"] != "result" and row["name"] not in LOOSE]
        values = [row["value"] if row["kind"] == "figure" else row.get("verdict", "") for row in kept]
        named = [f"{row['kind']}: {row['name']}" for row in kept]
        return {"columns": list(rows[0]), "rows": dict(zip(named, map(_number, values), strict=True))}
    return {name: _column(name, [row[name] for row in rows]) for name in (rows[0] if rows else ())}


def _column(name: str, cells: list[str]) -> Any:
    found = [_number(cell) for cell in cells]
    if name in LOOSE or name.endswith("seconds"):
        return len(found)
    return found if len(found) <= 40 else [len(found), *found[:5]]


def _number(text: str) -> Any:
    try:
        return float(f"{float(text):.6g}")
    except ValueError:
        return text


def _document(tree: Any) -> dict[str, Any]:
    """Every place of a document with the kinds of values there; words stand for themselves."""
    found: dict[str, set[str]] = {}
    for path, value in _leaves(tree):
        if path.startswith("summary.price_range"):
            continue
        words = isinstance(value, str) and len(value) < 40 and not OF_THE_RUN.search(path)
        found.setdefault(path, set()).add(f"{value!r}" if words else type(value).__name__)
    some = lambda kinds: sorted(kinds)[:8]  # noqa: E731
    return {path: some(kinds - {"NoneType"}) or ["NoneType"] for path, kinds in sorted(found.items())}


def _leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        for name, value in tree.items():
            yield from _leaves(value, f"{path}.{name}".removeprefix("."))
    elif isinstance(tree, list) and tree:
        for value in tree:
            yield from _leaves(value, f"{path}[]")
    else:
        yield path, tree


def _workbook(path: Path) -> dict[str, Any]:
    """Names of sheets, how many rows each has, and its headings."""
    with zipfile.ZipFile(path) as archive:
        book = ElementTree.fromstring(archive.read("xl/workbook.xml"))
        names = [sheet.attrib["name"] for sheet in book.iter(f"{_SHEET}sheet")]
        sheets = [ElementTree.fromstring(archive.read(f"xl/worksheets/sheet{k + 1}.xml")) for k in range(len(names))]
    found = {}
    for name, sheet in zip(names, sheets, strict=True):
        rows = list(sheet.iter(f"{_SHEET}row"))
        found[name] = [len(rows), *("".join(cell.itertext()) for cell in rows[0])]
    return found


def _layers(path: Path) -> dict[str, Any]:
    """The layers of a GeoPackage: columns with their types, and how many features."""
    with closing(sqlite3.connect(path)) as file:
        tables = [row[0] for row in file.execute("SELECT table_name FROM gpkg_contents ORDER BY table_name")]
        systems = [row[0] for row in file.execute("SELECT srs_id FROM gpkg_spatial_ref_sys ORDER BY srs_id")]
        columns = {t: [f"{c[1]} {c[2]}" for c in file.execute(f"PRAGMA table_info({t})")] for t in tables}
        counts = {t: file.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in tables}
    return {"systems": systems, "columns": columns, "counts": counts}


def _arrays(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: list(arrays[name].shape) for name in sorted(arrays.files)}


def differences(found: Any, stored: Any, path: str = "") -> Iterator[str]:
    """Where two tables differ; figures within the tolerance are the same."""
    if isinstance(found, dict) and isinstance(stored, dict):
        for name in [*stored, *(name for name in found if name not in stored)]:
            if name not in found or name not in stored:
                yield f"{path}/{name} is {'new' if name in found else 'gone'}"
            else:
                yield from differences(found[name], stored[name], f"{path}/{name}")
        if list(found) != list(stored) and set(found) == set(stored):
            yield f"{path} has another order"
    elif isinstance(found, list) and isinstance(stored, list) and len(found) == len(stored):
        size = max((abs(one) for one in stored if isinstance(one, float)), default=0.0)
        for k, (one, other) in enumerate(zip(found, stored, strict=True)):
            if not _same(one, other, size):
                yield f"{path}[{k}] is {one!r} and was {other!r}"
    elif not _same(found, stored, abs(stored) if isinstance(stored, float) else 0.0):
        yield f"{path} is {found!r:.200} and was {stored!r:.200}"


def _same(one: Any, other: Any, size: float) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= TOLERANCE * (size + 1e-3)
    return bool(one == other)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        STORED.parent.mkdir(exist_ok=True)
        STORED.write_text(json.dumps(outcomes(Path(place)), ensure_ascii=False, separators=(",", ":")) + "\n")
