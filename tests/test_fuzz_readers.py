"""Files from outside: whatever they hold, only the package's own errors come out, soon and within limits."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blocc._lib.files import MOST_BYTES, write_atomically
from blocc.errors import BloccError, InputError
from blocc.kit.storage import StorageError
from blocc.networks.readers import omx
from blocc.networks.readers.omx import read_omx
from blocc.report.storage import load_result, save_result
from blocc.report.study.study_views import read_report
from blocc.studies.store import Store
from blocc.studies.study import Study
from blocc.studies.sweep import read_sweep
from blocc.svm.data import samples as svm_data
from blocc.svm.data.samples import read_samples
from blocc.transport.network.files import read_network
from fuzz_inputs import READERS, Reader, mutated, noise, put, resealed, saved_result, without_checksums
from old_results import as_pair

EXAMPLES = settings(
    max_examples=60, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
readers = pytest.mark.parametrize("reader", READERS.values(), ids=list(READERS))


def attempt(reader: Reader, files: dict[str, bytes]) -> None:
    """Read files; anything but a value or an error of the package is raised on."""
    with TemporaryDirectory() as name:
        put(files, Path(name))
        said = "read"
        try:
            reader.read(Path(name))
        except BloccError as error:
            said = str(error)
        assert 0 < len(said) < 10_000, said[:3000]  # a sentence for people, not the file again


@readers
def test_valid_files_are_read(reader: Reader, tmp_path: Path) -> None:
    put(reader.valid(), tmp_path)
    assert reader.read(tmp_path) is not None


@readers
@EXAMPLES
@given(random=st.randoms(use_true_random=False))
def test_noise(reader: Reader, random: Random) -> None:
    attempt(reader, noise(random, valid(reader)))


@readers
@EXAMPLES
@given(random=st.randoms(use_true_random=False))
def test_mutations(reader: Reader, random: Random) -> None:
    attempt(reader, mutated(random, valid(reader)))


@pytest.mark.parametrize("name", [name for name, reader in READERS.items() if reader.spoil is not None])
@EXAMPLES
@given(random=st.randoms(use_true_random=False))
def test_nonsense_in_the_right_form(name: str, random: Random) -> None:
    reader = READERS[name]
    assert reader.spoil is not None
    attempt(reader, reader.spoil(random, valid(reader)))


def test_nonsense_is_not_repeated_whole() -> None:
    """A text of 70,000 characters where a checkpoint has a number; 603 is a draw that puts it there."""
    reader = READERS["checkpoint"]
    assert reader.spoil is not None
    attempt(reader, reader.spoil(Random(603), valid(reader)))


@readers
@pytest.mark.parametrize("data", [b"", b"\0" * 100, b"\xff\xfe\x00", b"[" * 100_000, b"9" * 100_000, b"\r" * 100_000])
def test_the_usual_suspects(reader: Reader, data: bytes) -> None:
    files = valid(reader)
    for name in files:
        attempt(reader, {**files, name: data})


_VALID: dict[int, dict[str, bytes]] = {}


def valid(reader: Reader) -> dict[str, bytes]:
    """The valid files, made once."""
    if id(reader) not in _VALID:
        _VALID[id(reader)] = reader.valid()
    return _VALID[id(reader)]


# --- pipes and devices ------------------------------------------------------------------------------------------------
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
@readers
def test_a_pipe_is_no_file(reader: Reader, tmp_path: Path) -> None:
    """Opening one would wait for a writer for ever."""
    files = valid(reader)
    if "x0.json" in files:
        pytest.skip("a start comes as text, not as a file")
    for name in files:
        os.mkfifo(tmp_path / name)
    if "report.json" in files:
        assert reader.read(tmp_path) == {"title": "", "items": [], "quick": False, "shown": {}}  # nothing is known
        return
    with pytest.raises(BloccError):
        reader.read(tmp_path)


# --- small files that promise, or unpack to, more than there is memory ---------------------------------------------
def result_with(member: bytes) -> dict[str, bytes]:
    """A saved result whose first array is replaced by these bytes."""
    files = READERS["saved result"].valid()
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(files["result.npz"])) as old, zipfile.ZipFile(buffer, "w") as new:
        for name in old.namelist():
            new.writestr(name, member if name == "array0.npy" else old.read(name), zipfile.ZIP_DEFLATED)
    return resealed({**files, "result.npz": buffer.getvalue()})


def header(shape: str, kind: str = "'<f8'") -> bytes:
    """The beginning of an NPY file."""
    text = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    "member",
    [
        header("(1000000000000,)"),
        header("(1000000000000,)") + bytes(800),
        header("(-1, -100)") + bytes(800),
        header("(4294967296, 4294967296)"),
        header("(100,)", "'|O'") + b"cos\nsystem\n(S'true'\ntR.",
        header("(0,)", "'<f8', 'x': __import__('os')"),
        header("(" * 50 + ")" * 50),
        b"cos\nsystem\n(S'true'\ntR.",
        b"",
    ],
)
def test_npz_headers_that_lie(member: bytes, tmp_path: Path) -> None:
    put(result_with(member), tmp_path)
    with pytest.raises(StorageError, match=r"is damaged|is not a NumPy archive"):
        load_result(tmp_path / "result")


def test_npz_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kilobytes that unpack to more than the limit are refused before they are unpacked."""
    monkeypatch.setattr("blocc._lib.files.MOST_BYTES", 10**7)
    files = result_with(header("(4000000,)") + bytes(32_000_000))
    assert len(files["result.npz"]) < 100_000
    put(files, tmp_path)
    with pytest.raises(StorageError, match=r"unpacks to 32,\d+,\d+ bytes; 10,000,000 are the limit"):
        load_result(tmp_path / "result")


def test_files_beyond_their_limit(tmp_path: Path) -> None:
    """Sparse files, which need no room on the disk."""
    for name, read in (
        ("a.toml", read_sweep),
        ("net.json", read_network),
        ("a.omx", read_omx),
        ("a.csv", read_samples),
        ("r.json", load_result),
    ):
        with (tmp_path / name).open("wb") as stream:
            stream.truncate(3 * 10**9)
        with pytest.raises(BloccError, match=r"too large|files up to"):
            read(tmp_path / name)
        (tmp_path / name).unlink()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunks": (4000, 4000), "compression": "gzip"}, "packed in chunks of 128,000,000 bytes"),
        ({"chunks": (1, 1), "shape": (10**6, 10**6)}, "cells; matrices up to 100,000,000 are read"),
    ],
)
def test_hdf5_bombs(options: dict, message: str, tmp_path: Path) -> None:
    """Arrays that were never written take no room in the file."""
    given = {"shape": (4000, 4000), "dtype": "f8", **options}
    with h5py.File(tmp_path / "a.omx", "w") as stream:
        stream.create_dataset("data/cars", **given)
    assert (tmp_path / "a.omx").stat().st_size < 20_000
    with pytest.raises(BloccError, match=message):
        read_omx(tmp_path / "a.omx")


def test_hdf5_names_of_any_length(tmp_path: Path) -> None:
    for lookup in (np.array(["x" * 10**6] * 3, dtype=object), np.zeros(3, "S100000")):
        with h5py.File(tmp_path / "a.omx", "w") as stream:
            stream["data/cars"] = np.ones((3, 3))
            kind = h5py.string_dtype() if lookup.dtype == object else None
            stream.create_dataset("lookup/zone", data=lookup, dtype=kind)
        with pytest.raises(BloccError, match=r"the mapping has (a name|entries) of"):
            read_omx(tmp_path / "a.omx")


def test_rows_are_read_in_chunks_without_mixing_them_up(tmp_path: Path) -> None:
    cells = np.arange(49.0).reshape(7, 7)
    with h5py.File(tmp_path / "a.omx", "w") as stream:
        stream.create_dataset("data/cars", data=cells, chunks=(3, 2), compression="gzip")
    demand = read_omx(tmp_path / "a.omx")
    found = {(row["origin"], row["destination"]): row["demand"] for row in demand.rows}
    assert found == {(i + 1, j + 1): cells[i, j] for i in range(7) for j in range(7) if cells[i, j]}


def test_counts_without_content(tmp_path: Path) -> None:
    net = "<NUMBER OF NODES> 1000000000000\n<NUMBER OF LINKS> 1\n<END OF METADATA>\n1 2 1 1 1 ;\n"
    (tmp_path / "a_net.tntp").write_text(net)
    with pytest.raises(BloccError, match="more than 2,000,000 rows"):
        read_network(tmp_path / "a_net.tntp")
    (tmp_path / "a.svm").write_text("1 1000000:1\n" * 600)
    with pytest.raises(InputError, match="numbers are the limit"):
        read_samples(tmp_path / "a.svm")


def test_labels_of_any_width(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svm_data, "MAX_LABEL_LETTERS", 10_000)
    (tmp_path / "a.csv").write_text("a,label\n" + "1,b\n" * 100 + f"1,{'c' * 190}\n")
    with pytest.raises(InputError, match="101 labels of up to 190 characters are too many"):
        read_samples(tmp_path / "a.csv")


def test_studies_that_promise_too_many_cells(tmp_path: Path) -> None:
    study = Study("small", "a.b:c", {"p": list(range(10))}, list(range(10)))
    with Store(tmp_path / "s.sqlite") as store:
        store.begin(study, {})
    grid = {name: list(range(100)) for name in "abcdef"}
    definition = {**json.loads(study.to_json()), "grid": grid}
    change(tmp_path / "s.sqlite", "UPDATE studies SET definition = ?", json.dumps(definition))
    with pytest.raises(BloccError, match="make 10,000,000,000,000 cells; 100,000 are the limit"):
        read_report(tmp_path / "s.sqlite")


def test_long_lists_in_a_study_take_no_longer_than_they_must(tmp_path: Path) -> None:
    """A list without repetitions, which was once compared with itself, value by value."""
    (tmp_path / "a.toml").write_text(f'problem = "toy"\n[grid]\ngamma = {list(range(1, 120_000))}\n')
    with pytest.raises(InputError, match="119,999 cells; 100,000 are the limit"):
        read_sweep(tmp_path / "a.toml")


# --- stores that are more than tables --------------------------------------------------------------------------------
def change(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement, values)
        connection.commit()
        without_checksums(connection)


@pytest.mark.parametrize(
    "statements",
    [
        (
            "DROP TABLE studies",
            "CREATE VIEW studies AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS name, "
            "x AS definition, x AS version, x AS settings, x AS total, x AS started, x AS ended FROM c",
        ),
        ("DROP TABLE cells",),
        ("ALTER TABLE cells ADD COLUMN more TEXT",),
        ("CREATE TRIGGER t AFTER UPDATE ON studies BEGIN DELETE FROM cells; END",),
    ],
)
def test_views_and_triggers_in_a_store(statements: tuple[str, ...], tmp_path: Path) -> None:
    """A view in place of a table could go on for ever, a trigger would change what others wrote."""
    path = tmp_path / "study.sqlite"
    put(valid(READERS["store of studies"]), tmp_path)
    for statement in statements:
        change(path, statement)
    for read_only in (True, False):
        with pytest.raises(BloccError, match="is damaged"):
            Store(path, read_only=read_only)


# --- paths -----------------------------------------------------------------------------------------------------------
OUTSIDE = ("../../etc/passwd", "/etc/passwd", "link/passwd", "x/../../../etc/passwd")


def in_toml(text: str, key: str) -> str:
    return f'problem = "toy"\n[output]\nfolder = "{text}"\n' if key == "output.folder" else f'problem = "{text}"\n'


@pytest.fixture
def study_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a symbolic link out of it, far from the working folder."""
    folder = tmp_path / "study"
    for path in (folder / "x", tmp_path / "office", tmp_path / "else"):
        path.mkdir(parents=True)
    (folder / "link").symlink_to("/etc")
    (folder / "here").symlink_to(folder / "x")
    monkeypatch.chdir(tmp_path / "office")
    return folder


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("form", ["{}", "network:{}", "svm:{}", "{}.py", "output.folder"])
def test_paths_of_a_study_stay_inside(path: str, form: str, study_folder: Path) -> None:
    key = "output.folder" if form == "output.folder" else "problem"
    text = in_toml(path if key == "output.folder" else form.format(path), key)
    (study_folder / "a.toml").write_text(text)
    with pytest.raises(InputError, match=f"{key} leads to .*outside the folder of the study and the working folder"):
        read_sweep(study_folder / "a.toml")


def test_paths_inside_and_on_demand(study_folder: Path) -> None:
    for inside in ("x/out", "./out", "x/../out", "here/out", "../office/out"):
        (study_folder / "a.toml").write_text(in_toml(inside, "output.folder"))
        assert read_sweep(study_folder / "a.toml").folder == study_folder / inside
    (study_folder / "a.toml").write_text(in_toml("../else", "output.folder"))
    assert read_sweep(study_folder / "a.toml", anywhere=True).folder == study_folder / "../else"


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "other.npz"])
def test_a_saved_result_does_not_choose_its_companion(name: str, tmp_path: Path) -> None:
    """The name in the file is for people: what is read is the file beside it."""
    path = as_pair(save_result(saved_result(), tmp_path / "result"))
    document = json.loads(path.read_text())
    document["arrays"]["file"] = name
    path.write_bytes(resealed({"result.json": json.dumps(document).encode(), "result.npz": npz(path)})["result.json"])
    assert np.array_equal(load_result(path).x["a"], np.arange(3.0))
    path.with_suffix(".npz").unlink()
    with pytest.raises(StorageError, match=r"result\.npz is missing"):
        load_result(path)


def npz(path: Path) -> bytes:
    return path.with_suffix(".npz").read_bytes()


@pytest.mark.parametrize("way", ["external", "soft", "group", "virtual"])
def test_an_omx_file_does_not_lead_to_others(way: str, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "secret.h5", "w") as stream:
        stream["data/cars"] = np.ones((2, 2))
    with h5py.File(tmp_path / "a.omx", "w") as stream:
        if way == "external":
            stream["data/cars"] = h5py.ExternalLink("secret.h5", "/data/cars")
        elif way == "soft":  # a soft link through an external one
            stream["else"] = h5py.ExternalLink("secret.h5", "/data")
            stream["data/cars"] = h5py.SoftLink("/else/cars")
        elif way == "group":
            stream["data"] = h5py.ExternalLink("secret.h5", "/data")
        else:
            layout = h5py.VirtualLayout((2, 2), "f8")
            layout[:] = h5py.VirtualSource(tmp_path / "secret.h5", "data/cars", (2, 2))
            stream.create_virtual_dataset("data/cars", layout)
    with pytest.raises(BloccError, match=r"behind a link|must be an array in the file itself"):
        read_omx(tmp_path / "a.omx")


def test_writing_replaces_a_link_instead_of_following_it(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "precious").read_text() == "kept"
    assert (tmp_path / "link").read_text() == "new"
    assert not (tmp_path / "link").is_symlink()


def test_half_a_character_in_a_name_is_refused(tmp_path: Path) -> None:
    """JSON can write one; no file, no terminal and no fingerprint takes it."""
    text = valid(READERS["network in JSON"])["net.json"].decode()
    (tmp_path / "net.json").write_text(text.replace('"North"', '"\\ud800"'))
    with pytest.raises(BloccError, match="half a surrogate pair"):
        read_network(tmp_path / "net.json")


def test_limits_are_the_documented_ones() -> None:
    """docs/reliability.md names them."""
    page = (Path(__file__).parents[1] / "docs" / "reliability.md").read_text(encoding="utf-8")
    limits: dict[str, Callable[[], int] | int] = {"2 GiB": MOST_BYTES, "64 MiB": omx.MAX_CHUNK}
    assert limits == {"2 GiB": 2 * 2**30, "64 MiB": 64 * 2**20}
    for words in limits:
        assert words in page
