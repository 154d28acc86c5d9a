"""Whatever is killed - a worker, the scheduler, the whole program - the rows in the end are the same."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from blocc.executors.cluster import DaskExecutor
from blocc.studies.engine import Progress, rows_of, run_study
from blocc.studies.store import Store
from blocc.studies.study import Row, Study, StudyError, computed

HELPERS = Path(__file__).parents[1]
TIMEOUT = 600.0  #: seconds; only ever reached where a test fails


def mortal(folder: Path, deaths: int, cells: int = 6) -> Study:
    """A study whose worker is killed at one of its cells."""
    grid = {"a": list(range(cells))}
    return Study("mortal", "study_functions:mortal", grid, fixed={"folder": str(folder), "deaths": deaths})


def slow(folder: Path, cells: int, pause: float) -> Study:
    """A study that can be killed in the middle."""
    fixed = {"folder": str(folder), "pause": pause}
    return Study("slow", "study_functions:counted", {"a": list(range(cells))}, seeds=range(2), fixed=fixed)


def undisturbed(study: Study, tmp_path: Path) -> list[dict[str, Any]]:
    """The rows of the same study where nothing dies and nothing takes time."""
    calm = {"folder": str(tmp_path / "calm"), "deaths": 0, "pause": 0.0}
    (tmp_path / "calm").mkdir(exist_ok=True)
    fixed = {name: calm[name] for name in study.fixed}
    twin = Study(study.name, study.function, study.grid, study.seeds, fixed)
    return essence(twin, run_study(twin, tmp_path / "calm.sqlite"))


def essence(study: Study, rows: list[Row]) -> list[dict[str, Any]]:
    """What rows have computed, without what steers the disturbance."""
    return [{name: value for name, value in computed(study, row).items() if name not in study.fixed} for row in rows]


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {TIMEOUT:.0f} s"
        time.sleep(0.02)


def alive(process: int) -> bool:
    """Whether a process is there and not a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(HELPERS), "OPENBLAS_NUM_THREADS": "1"}


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A program of this Python; it does not survive the block."""
    started = subprocess.Popen(
        [sys.executable, *words], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate(timeout=TIMEOUT)


def program(study: Study, store: Path, **options: Any) -> tuple[str, ...]:
    return (str(HELPERS / "study_program.py"), study.to_json(), str(store), json.dumps(options))


# --- a worker ---------------------------------------------------------------------------------------------------------
def test_a_killed_process_costs_nothing(tmp_path: Path) -> None:
    study = mortal(tmp_path, deaths=2)
    rows = run_study(study, tmp_path / "store.sqlite", executor="processes", workers=2)
    assert essence(study, rows) == undisturbed(study, tmp_path)
    with Store(tmp_path / "store.sqlite", read_only=True) as store:
        attempts = [store.cells(study)[cell.key].attempts for cell in study.cells()]
    assert attempts == [1, 3, 1, 1, 1, 1]  # nobody else pays for it


@pytest.mark.slow
def test_a_process_that_dies_between_two_batches_is_replaced(tmp_path: Path) -> None:
    study = slow(tmp_path, cells=2, pause=0.0)

    def kill(progress: Progress) -> None:
        if progress.done == 1:
            (mark,) = tmp_path.glob("0-0-*")
            os.kill(int(mark.name.split("-")[2]), signal.SIGKILL)
            time.sleep(1.0)  # until the executor has noticed

    rows = run_study(study, tmp_path / "store.sqlite", executor="processes", workers=1, on_progress=kill)
    assert essence(study, rows) == undisturbed(study, tmp_path)
    with Store(tmp_path / "store.sqlite", read_only=True) as store:
        assert {cell.attempts for cell in store.cells(study).values()} == {1}


@pytest.mark.slow
def test_a_batch_that_kills_every_process_becomes_a_failed_row(tmp_path: Path) -> None:
    study = mortal(tmp_path, deaths=99, cells=3)
    rows = run_study(study, tmp_path / "store.sqlite", executor="processes", workers=1)
    assert [row["status"] for row in rows] == ["done", "failed", "done"]
    assert "the worker died 3 times" in rows[1]["error"]
    assert "SIGKILL" in rows[1]["error"]


@pytest.mark.slow
def test_a_killed_dask_worker_costs_nothing(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed")
    study = mortal(tmp_path, deaths=1)
    executor = DaskExecutor(workers=2)
    rows = run_study(study, tmp_path / "store.sqlite", executor=executor)
    assert (tmp_path / "death-1-0").exists()
    assert executor._own_workers == 2  # the next study is not to suffer from it
    assert essence(study, rows) == undisturbed(study, tmp_path)


@pytest.mark.slow
def test_a_batch_that_kills_every_dask_worker_becomes_a_failed_row(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed")
    import dask

    study = mortal(tmp_path, deaths=99, cells=3)
    # Dask would give up a worker that is not back in time, and a study without workers would wait in vain.
    hasty = {"distributed.scheduler.allowed-failures": 1, "distributed.deploy.lost-worker-timeout": "1 ms"}
    with dask.config.set(hasty):
        rows = run_study(study, tmp_path / "store.sqlite", executor="dask", workers=1)
    assert [row["status"] for row in rows] == ["done", "failed", "done"]
    assert "the worker died 2 times" in rows[1]["error"]


@pytest.mark.slow
def test_a_function_may_print_where_nobody_reads(tmp_path: Path) -> None:
    """As in ``blocc sweep ... 2>&1 | head -1``: the rows are no worse for it."""
    study, store = Study("talk", "study_functions:talkative", {"a": [7]}), tmp_path / "store.sqlite"
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, *program(study, store, executor="processes", workers=1)]
    done = subprocess.run(words, env=environment(), timeout=TIMEOUT, stdout=subprocess.DEVNULL, stderr=writing)
    os.close(writing)
    assert done.returncode == 0
    assert [(row["status"], row["value"]) for row in rows_of(study, store)] == [("done", 7)]


@pytest.mark.slow
def test_scripts_need_no_guard_for_worker_processes(tmp_path: Path) -> None:
    """Workers do not import the program that started them."""
    script = tmp_path / "script.py"
    script.write_text(
        "from blocc.studies.engine import run_study\n"
        "from blocc.studies.study import Study\n"
        "study = Study('talk', 'study_functions:chatty', {'a': [7]})\n"
        "print([row['status'] for row in run_study(study, 'store.sqlite', executor='processes', workers=1)])\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.stdout == "['done']\n"  # what the function prints appears elsewhere
    assert "hello from Python" in done.stderr
    assert "hello from below" in done.stderr


# --- the scheduler ----------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_killed_scheduler_ends_the_study_and_keeps_its_cells(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed")
    study = slow(tmp_path, cells=6, pause=0.2)
    address = tmp_path / "scheduler.json"
    common = ("--scheduler-file", str(address), "--no-dashboard")
    with (
        process("-m", "distributed.cli.dask_scheduler", "--port", "0", *common) as scheduler,
        process("-m", "distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny", *common),
    ):
        wait_for(lambda: address.exists() and address.read_text().strip().endswith("}"), "the scheduler's start")

        def kill(progress: Progress) -> None:
            if progress.done == 3:
                scheduler.send_signal(signal.SIGKILL)

        with pytest.raises(StudyError, match=r"the Dask scheduler at tcp://.* is lost .*are kept"):
            run_study(
                study,
                tmp_path / "store.sqlite",
                executor="dask",
                scheduler=json.loads(address.read_text())["address"],
                on_progress=kill,
            )
    assert 3 <= len(rows_of(study, tmp_path / "store.sqlite")) < 12
    rows = run_study(study, tmp_path / "store.sqlite")
    assert essence(study, rows) == undisturbed(study, tmp_path)


# --- the program ------------------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize(
    ("executor", "kills"),
    [
        pytest.param("serial", 3, marks=pytest.mark.slow),
        pytest.param("processes", 2, marks=pytest.mark.slow),
        ("dask", 1),
    ],
)
def test_a_killed_program_goes_on_when_it_is_run_again(tmp_path: Path, executor: str, kills: int) -> None:
    if executor == "dask":
        pytest.importorskip("distributed", reason="Dask is not installed")
    study, store = slow(tmp_path, cells=10, pause=0.05), tmp_path / "store.sqlite"
    generator = random.Random(executor)
    options: dict[str, Any] = {"executor": executor} | ({} if executor == "serial" else {"workers": 2})
    for _ in range(kills):
        with process(*program(study, store, **options)) as running:
            assert running.stdout is not None
            before = int(running.stdout.readline())
            for _ in range(generator.randrange(4)):  # some more cells, and then some moment
                running.stdout.readline()
            time.sleep(generator.uniform(0.0, 0.1))
            running.send_signal(signal.SIGKILL)
            running.wait(TIMEOUT)
        kept = rows_of(study, store)
        assert before <= len(kept) <= 20
        assert all(row["status"] == "done" for row in kept)
    kept = rows_of(study, store)
    # No worker outlives its program.
    marks = [path.name.split("-") for path in tmp_path.glob("*-*-*-*")]
    workers = {int(mark[2]) for mark in marks}
    wait_for(lambda: not any(map(alive, workers)), "the end of the workers")
    finished = time.time_ns()
    # Whoever began, anybody may finish.
    rows = run_study(study, store, executor="processes" if executor == "processes" else "serial")
    assert essence(study, rows) == undisturbed(study, tmp_path)
    later = {tuple(path.name.split("-")[:2]) for path in tmp_path.glob("*-*-*-*") if int(path.name[-19:]) > finished}
    assert len(later) == 20 - len(kept)
    assert not later & {(str(row["a"]), str(row["seed"])) for row in kept}


@pytest.mark.slow
def test_ctrl_c_stops_cleanly(tmp_path: Path) -> None:
    study, store = slow(tmp_path, cells=100, pause=0.1), tmp_path / "store.sqlite"
    with process(*program(study, store, executor="processes", workers=2)) as running:
        assert running.stdout is not None
        while int(running.stdout.readline()) < 2:
            pass
        running.send_signal(signal.SIGINT)
        assert running.wait(TIMEOUT) == 130
    workers = {int(path.name.split("-")[2]) for path in tmp_path.glob("*-*-*-*")}
    assert workers
    wait_for(lambda: not any(map(alive, workers)), "the end of the workers")
    assert 2 <= len(rows_of(study, store)) < 200
