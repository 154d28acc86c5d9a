"""The store: whole batches or nothing, every bit kept, readers beside a writer, and files that are not stores."""

from __future__ import annotations

import math
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from blocc._lib.version import __version__
from blocc.errors import BloccError
from blocc.executors.work import Outcome
from blocc.studies.compute import compute_batch
from blocc.studies.engine import rows_of, run_study
from blocc.studies.store import DONE, FAILED, Store
from blocc.studies.study import Study, StudyError

STUDY = Study("pairs", "study_functions:together", grid={"a": [1, 2]}, seeds=range(3), together=("seed",))


def outcome(study: Study, index: int) -> Outcome:
    return compute_batch(study.to_json(), index, __version__)


def failure(index: int, error: str = "no luck") -> Outcome:
    return Outcome(index, (), error, 1.5, "somebody")


def fill(path: Path, *outcomes: Outcome) -> None:
    with Store(path) as store:
        store.begin(STUDY, {"executor": "none"})
        for one in outcomes:
            store.record(STUDY, STUDY.batches()[one.index], one)


def test_what_is_recorded_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "a #%? name.sqlite"
    fill(path, outcome(STUDY, 0), failure(1))
    with Store(path, read_only=True) as store:
        (stored,) = store.studies()
        cells = store.cells(STUDY)
    assert stored.study == Study.from_json(STUDY.to_json())
    assert (stored.version, stored.total, stored.done, stored.failed, stored.ended) == (__version__, 6, 3, 3, None)
    assert stored.settings == {"executor": "none"}
    done, failed = (cells[batch[0].key] for batch in STUDY.batches())
    assert (done.status, done.columns, done.error) == (DONE, {"cube": 1, "batch": 3}, None)
    assert (failed.status, failed.columns, failed.error, failed.seconds) == (FAILED, {}, "no luck", 0.5)


def test_one_file_beside_its_lock_remains(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    run_study(STUDY, path)
    rows_of(STUDY, path)
    assert sorted(os.listdir(tmp_path)) == ["store.sqlite", "store.sqlite.lock"]


def test_a_second_attempt_replaces_the_first(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    fill(path, failure(0), outcome(STUDY, 0))
    with Store(path) as store:
        cell = store.cells(STUDY)[STUDY.batches()[0][0].key]
    assert (cell.status, cell.error, cell.attempts) == (DONE, None, 2)


def test_studies_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    other = Study("other", STUDY.function, STUDY.grid, STUDY.seeds, together=STUDY.together)
    fill(path, outcome(STUDY, 0))
    run_study(other, path)
    with Store(path) as store:
        store.forget(STUDY)
        assert [(stored.study.name, stored.done) for stored in store.studies()] == [("pairs", 0), ("other", 6)]


def test_odd_numbers_survive_the_store(tmp_path: Path) -> None:
    study = Study("odd", "study_functions:odd_values")
    (row,) = run_study(study, tmp_path / "store.sqlite")
    assert row["status"] == "done", row["error"]
    assert math.isnan(row["nan"])
    assert row["infinite"] == [math.inf, -math.inf]
    assert row["tiny"] == 5e-324
    assert row["text"] == "naïve \ud800 \x00"


def test_rows_of_another_version_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.sqlite"
    run_study(STUDY, path)
    for module in ("study", "store", "engine"):
        monkeypatch.setattr(f"blocc.studies.{module}.__version__", "99.0")
    assert rows_of(STUDY, path) == []
    with Store(path, read_only=True) as store:
        (stored,) = store.studies()
        assert (stored.version, stored.done) == (__version__, 6)
        assert len(rows_of(stored.study, store, version=stored.version)) == 6


def test_a_batch_is_recorded_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    bad = Outcome(1, ("{}", "{}", object()), None, 1.0, "somebody")  # type: ignore[arg-type]  # two good, one bad
    with pytest.raises(StudyError):
        fill(path, outcome(STUDY, 0), bad)
    assert [row["a"] for row in rows_of(STUDY, path)] == [1, 1, 1]


def test_a_full_disk_is_said_so_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    fill(path, outcome(STUDY, 0))
    huge = Outcome(1, tuple(f'{{"text": "{"x" * 100_000}"}}' for _ in range(3)), None, 1.0, "somebody")
    with Store(path) as store:
        store._connection.execute("PRAGMA max_page_count=20")
        with pytest.raises(StudyError, match=r"the disk is full.*are kept"):
            store.record(STUDY, STUDY.batches()[1], huge)
        store._connection.execute("PRAGMA max_page_count=100000")
        store.record(STUDY, STUDY.batches()[1], huge)
    assert len(rows_of(STUDY, path)) == 6


def test_readers_see_a_running_study(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    seen = []

    def look(progress: object) -> None:
        with Store(path, read_only=True) as reader:
            (stored,) = reader.studies()
            seen.append((stored.done, stored.ended, len(rows_of(STUDY, reader))))

    run_study(STUDY, path, on_progress=look)
    assert seen == [(0, None, 0), (3, None, 3), (6, None, 6)]
    with Store(path, read_only=True) as reader:
        assert reader.studies()[0].ended is not None


def test_reading_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="does not exist"):
        Store(tmp_path / "none.sqlite", read_only=True)
    with pytest.raises(StudyError, match="does not exist"):
        rows_of(STUDY, tmp_path / "none" / "none.sqlite")
    assert not list(tmp_path.iterdir())


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    fill(tmp_path / "store.sqlite")
    with Store(tmp_path / "store.sqlite", read_only=True) as store, pytest.raises(StudyError, match="read-only"):
        store.begin(STUDY, {})
    with Store(tmp_path / "store.sqlite", read_only=True) as store, pytest.raises(StudyError, match="reading only"):
        run_study(STUDY, store)


@pytest.mark.parametrize("read_only", [False, True])
def test_files_that_are_no_stores(tmp_path: Path, read_only: bool) -> None:
    text = tmp_path / "text.sqlite"
    text.write_text("a table of figures, but not a database\n" * 50)
    foreign = tmp_path / "foreign.sqlite"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE cells (x)")
    connection.close()
    newer = tmp_path / "newer.sqlite"
    fill(newer)
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version=3")
    connection.close()
    before = {path: path.read_bytes() for path in (text, foreign, newer)}
    for path, complaint in ((text, "not a file of"), (foreign, "another program"), (newer, "newer blocc")):
        with pytest.raises(StudyError, match=complaint):
            Store(path, read_only=read_only)
    with pytest.raises(StudyError, match="is a folder"):
        Store(tmp_path, read_only=read_only)
    assert before == {path: path.read_bytes() for path in before}


def test_an_empty_file_becomes_a_store_but_is_none_yet(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    path.touch()
    with pytest.raises(StudyError, match="is empty"):
        Store(path, read_only=True)
    fill(path, outcome(STUDY, 0))
    assert len(rows_of(STUDY, path)) == 3


def test_folders_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StudyError, match="cannot be created"):
        Store(tmp_path / "file" / "store.sqlite")
    if sys.platform == "linux":  # nobody can create files there, the administrator included
        with pytest.raises(StudyError, match="see that its folder can be written"):
            Store("/proc/store.sqlite")
    assert issubclass(StudyError, BloccError)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
def test_a_folder_that_can_only_be_read() -> None:
    program = """
import os, sys
from blocc.studies.store import Store
from blocc.studies.study import StudyError
if os.getuid() == 0:  # nothing is forbidden to the administrator
    os.setgid(65534)
    os.setuid(65534)
with Store(sys.argv[1], read_only=True) as store:
    print(store.studies()[0].done)
for name in sys.argv[1:]:
    try:
        Store(name).close()
    except StudyError as error:
        print(error)
"""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        fill(path, outcome(STUDY, 0))
        path.chmod(0o444)
        os.chmod(folder, 0o555)
        try:
            call = [sys.executable, "-c", program, str(path), f"{folder}/new.sqlite"]
            done = subprocess.run(call, capture_output=True, text=True, check=False)
            assert os.listdir(folder) == ["store.sqlite"]
        finally:
            os.chmod(folder, 0o755)
    lines = done.stdout.splitlines()
    assert len(lines) == 3, done.stderr
    assert lines[0] == "3"
    assert "read-only" in lines[1]
    assert "cannot be opened or created" in lines[2]


def test_the_lock_admits_one_program(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    program = f"""
import sys
from blocc.studies.store import Store
from blocc.studies.study import StudyError
try:
    with Store({str(path)!r}) as store, store.lock():
        pass
except StudyError as error:
    sys.exit(str(error))
"""
    with Store(path) as store, store.lock():
        with pytest.raises(StudyError, match="in use"):
            run_study(STUDY, path)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert (done.returncode, "is in use: another program" in done.stderr) == (1, True)
    assert len(run_study(STUDY, path)) == 6


# --- checksums -------------------------------------------------------------------------------------------------------
def contents(path: Path) -> object:
    """Everything that a report reads."""
    with Store(path, read_only=True) as store:
        return repr(store.studies()), repr(sorted(store.cells(STUDY).items()))


def test_a_changed_byte_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    path, flipped = tmp_path / "store.sqlite", tmp_path / "flipped.sqlite"
    run_study(STUDY, path)
    written, known = path.read_bytes(), contents(path)
    random, noticed = np.random.default_rng(5), 0
    used = np.flatnonzero(np.frombuffer(written, np.uint8))  # most of a page is empty
    for place in random.choice(used, 600, replace=False):
        changed = bytearray(written)
        changed[place] ^= 1 << random.integers(8)
        flipped.write_bytes(changed)
        try:
            assert contents(flipped) == known, f"byte {place}"
        except StudyError:
            noticed += 1
    assert noticed > 300


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE cells SET row = replace(row, '1', '7')",
        "UPDATE cells SET seconds = 2 * seconds",
        "UPDATE cells SET status = 'failed'",
        "UPDATE cells SET finished = finished + 1",
        "UPDATE studies SET total = 7",
        "UPDATE studies SET ended = NULL",
        "DELETE FROM cells WHERE rowid = 2",
        "DELETE FROM checksums WHERE rowid = 2",
        "INSERT INTO cells SELECT study, 'another', version, parameters, status, row, error, seconds, worker, "
        "attempts, finished FROM cells LIMIT 1",
    ],
)
def test_a_changed_row_is_noticed(tmp_path: Path, change: str) -> None:
    path = tmp_path / "store.sqlite"
    run_study(STUDY, path)
    with sqlite3.connect(path) as connection:
        connection.execute(change)
    connection.close()
    with pytest.raises(StudyError, match="is damaged: the row"):
        contents(path)


def test_stores_without_checksums_are_read_and_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    fill(path, outcome(STUDY, 0))
    known = contents(path)
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE checksums")
        connection.execute("PRAGMA user_version=1")
    connection.close()
    old = path.read_bytes()
    assert contents(path) == known
    assert path.read_bytes() == old
    assert len(run_study(STUDY, path)) == 6
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM checksums").fetchone() == (7,)
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    connection.close()
    contents(path)
