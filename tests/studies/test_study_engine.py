"""Running studies: the same rows whoever computes them, failures as rows, and nothing computed twice."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blocc._lib.version import __version__
from blocc.errors import OptionError
from blocc.executors import cluster
from blocc.studies import compute
from blocc.studies.engine import Progress, rows_of, run_study
from blocc.studies.store import Store
from blocc.studies.study import Row, Study, StudyError, computed
from reproduction import gradient_of_v, transport_runs

NOISE = Study(
    "noise",
    "study_functions:noise",
    grid={"size": [3, 50], "scale": (0.1, 1e-300)},
    seeds=range(2),
    measured=("seconds", "who"),
)
TOGETHER = Study("cubes", "study_functions:together", grid={"a": [1, 2, 3]}, seeds=range(4), together=("seed",))
PICKY = Study("picky", "study_functions:picky", grid={"a": [1, 2, 3, 4]})
#: Of the paper: one vmap over all cells, and whole designs.
GRADIENTS = gradient_of_v.studies(True)[0]
DESIGNS = Study(
    "designs",
    "reproduction.transport_runs:run_default",
    seeds=range(2),
    fixed={"network": "three", "gamma": 4.0},
    measured=transport_runs.MEASURED,
)


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """A Dask cluster of two worker processes that exists before any study."""
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit=0
    ) as started:
        yield started.scheduler_address


def summaries(rows: list[Row]) -> list[dict[str, Any]]:
    """Rows with the first line of their errors only."""
    return [{**row, "error": row["error"] and row["error"].splitlines()[0]} for row in rows]


def counted(folder: Path, **changes: Any) -> Study:
    settings = {"grid": {"a": [0, 1, 2]}, "seeds": range(2), "fixed": {"folder": str(folder)}, **changes}
    return Study("counted", settings.pop("function", "study_functions:counted"), **settings)


def counts(folder: Path) -> Counter[tuple[int, int]]:
    """How often each cell was computed."""
    return Counter((int(a), int(seed)) for a, seed, *_ in (path.name.split("-") for path in folder.glob("*-*-*-*")))


STUDIES = [pytest.param(study, id=study.name) for study in (NOISE,)]
STUDIES += [
    pytest.param(study, id=study.name, marks=pytest.mark.slow) for study in (TOGETHER, PICKY, GRADIENTS, DESIGNS)
]


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_rows_are_the_same_whoever_computes_them(study: Study, tmp_path: Path, scheduler: str) -> None:
    serial = run_study(study, tmp_path / "serial.sqlite")
    processes = run_study(study, tmp_path / "processes.sqlite", executor="processes", workers=2)
    dask = run_study(study, tmp_path / "dask.sqlite", executor="dask", scheduler=scheduler)
    expected = [computed(study, row) for row in summaries(serial)]
    assert len(expected) == len(study.cells())
    assert [computed(study, row) for row in summaries(processes)] == expected
    assert [computed(study, row) for row in summaries(dask)] == expected
    if study is NOISE:
        own, others, far = ({row["who"] for row in rows} for rows in (serial, processes, dask))
        assert own == {os.getpid()}
        assert not own & others
        assert not own & far
    for row, cell in zip(serial, study.cells(), strict=True):
        assert {name: row[name] for name in cell.parameters} == dict(cell.parameters)


@pytest.mark.slow
def test_workers_have_one_thread_and_keep_their_output_apart(tmp_path: Path) -> None:
    study = Study("threads", "study_functions:threads")
    (row,) = run_study(study, tmp_path / "store.sqlite", executor="processes", workers=1)
    assert (row["OPENBLAS_NUM_THREADS"], row["OMP_NUM_THREADS"], row["NPROC"]) == ("1", "1", "1")
    chatty = Study("chatty", "study_functions:chatty", grid={"a": [1, 2]})
    rows = run_study(chatty, tmp_path / "store.sqlite", executor="processes", workers=1)
    assert [(row["value"], row["read"]) for row in rows] == [(1, ""), (2, "")]


def test_a_failure_is_a_row_and_the_rest_goes_on(tmp_path: Path) -> None:
    rows = run_study(PICKY, tmp_path / "store.sqlite")
    assert [(row["a"], row["status"], row.get("double")) for row in rows] == [
        (1, "done", 2),
        (2, "failed", None),
        (3, "failed", None),
        (4, "done", 8),
    ]
    lines = rows[1]["error"].splitlines()
    assert lines[0] == "ValueError: two is too much"
    assert "study_functions.py" in rows[1]["error"]
    assert "raise ValueError" in lines[-1]
    assert rows[2]["error"].startswith("SystemExit: I quit")
    assert rows[0]["error"] is None


def test_rows_that_cannot_be_kept_are_failures(tmp_path: Path) -> None:
    kinds = ["set", "status", "parameter", "number", "complex", "key"]
    rows = run_study(Study("unfit", "study_functions:unfit", grid={"kind": kinds}), tmp_path / "store.sqlite")
    assert {row["status"] for row in rows} == {"failed"}
    errors = [row["error"].splitlines()[0] for row in rows]
    expected = ["got set", "column 'status'", "column 'seed'", "not iterable", "got complex128", "keys must be"]
    assert all(part in error for part, error in zip(expected, errors, strict=True)), errors


def test_a_finished_study_is_not_computed_again(tmp_path: Path) -> None:
    study = counted(tmp_path)
    first = run_study(study, tmp_path / "store.sqlite")
    assert run_study(study, tmp_path / "store.sqlite", executor="processes") == first
    assert rows_of(study, tmp_path / "store.sqlite") == first
    assert set(counts(tmp_path).values()) == {1}


def test_a_larger_grid_computes_only_what_is_new(tmp_path: Path) -> None:
    run_study(counted(tmp_path), tmp_path / "store.sqlite")
    rows = run_study(counted(tmp_path, grid={"a": [7, 2, 1]}), tmp_path / "store.sqlite")
    assert [(row["a"], row["seed"]) for row in rows] == [(a, seed) for a in (7, 2, 1) for seed in (0, 1)]
    assert set(counts(tmp_path).values()) == {1}


def test_fresh_computes_all_again(tmp_path: Path) -> None:
    study = counted(tmp_path)
    first = run_study(study, tmp_path / "store.sqlite")
    assert run_study(study, tmp_path / "store.sqlite", fresh=True) == first
    assert set(counts(tmp_path).values()) == {2}


@pytest.mark.parametrize("executor", ["serial", pytest.param("processes", marks=pytest.mark.slow)])
def test_an_interrupted_study_goes_on_where_it_stopped(tmp_path: Path, executor: str) -> None:
    study = counted(tmp_path)

    def stop(progress: Progress) -> None:
        if progress.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(study, tmp_path / "store.sqlite", executor=executor, on_progress=stop)
    kept = rows_of(study, tmp_path / "store.sqlite")
    assert len(kept) == 2
    rows = run_study(study, tmp_path / "store.sqlite", executor=executor)
    assert len(rows) == 6
    found = counts(tmp_path)
    assert {found[row["a"], row["seed"]] for row in kept} == {1}
    if executor == "serial":
        assert set(found.values()) == {1}


def test_batches_are_computed_whole(tmp_path: Path) -> None:
    small = counted(tmp_path, function="study_functions:counted_together", together=("seed",))
    large = counted(tmp_path, function="study_functions:counted_together", together=("seed",), seeds=range(3))
    run_study(small, tmp_path / "store.sqlite")
    rows = run_study(large, tmp_path / "store.sqlite")
    assert {row["batch"] for row in rows} == {3}
    assert set(counts(tmp_path).values()) == {1, 2}


def test_failed_cells_are_tried_again_unless_told_otherwise(tmp_path: Path) -> None:
    study = counted(tmp_path, function="study_functions:broken_once")
    assert [row["status"] for row in run_study(study, tmp_path / "store.sqlite")].count("failed") == 2
    (tmp_path / "repaired").touch()
    rows = run_study(study, tmp_path / "store.sqlite", retry_failed=False)
    assert [row["status"] for row in rows].count("failed") == 2
    rows = run_study(study, tmp_path / "store.sqlite")
    assert {row["status"] for row in rows} == {"done"}
    assert set(counts(tmp_path).values()) == {1}
    with Store(tmp_path / "store.sqlite", read_only=True) as store:
        assert sorted(cell.attempts for cell in store.cells(study).values()) == [1, 1, 1, 1, 2, 2]


def test_progress_counts_cells_and_estimates_the_rest(tmp_path: Path) -> None:
    study = counted(tmp_path, function="study_functions:broken_once")
    told: list[Progress] = []
    run_study(study, tmp_path / "store.sqlite", on_progress=told.append)
    assert [(one.done, one.failed, one.total) for one in told] == [
        (0, 0, 6),
        (1, 0, 6),
        (2, 0, 6),
        (2, 1, 6),
        (2, 2, 6),
        (3, 2, 6),
        (4, 2, 6),
    ]
    assert told[0].left is None
    assert all(one.left is not None and one.left > 0 for one in told[1:-1])
    assert told[-1].left == 0
    assert [one.elapsed for one in told] == sorted(one.elapsed for one in told)
    (tmp_path / "repaired").touch()
    told.clear()
    run_study(study, tmp_path / "store.sqlite", on_progress=told.append)
    assert [(one.done, one.failed) for one in told] == [(4, 0), (5, 0), (6, 0)]
    assert told[0].left is not None  # the earlier run is a guess


def test_the_store_says_how_it_was_filled(tmp_path: Path) -> None:
    run_study(PICKY, tmp_path / "store.sqlite")
    with Store(tmp_path / "store.sqlite", read_only=True) as store:
        (stored,) = store.studies()
    assert (stored.total, stored.done, stored.failed) == (4, 2, 2)
    assert stored.settings["executor"] == "serial"
    assert stored.settings["packages"]["blocc"] == __version__
    assert "process" in stored.settings["process"]
    assert stored.ended is not None


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"executor": "threads"}, "executor must be one of"),
        ({"executor": "dask", "scheduler": "foo"}, "scheduler must be an address like tcp://HOST:PORT"),
        ({"executor": "processes", "workers": 0}, "workers must be"),
        ({"executor": "processes", "workers": True}, "workers must be"),
        ({"executor": "serial", "workers": 2}, "one worker"),
        ({"executor": "processes", "scheduler": "tcp://x:1"}, "scheduler is an option"),
        ({"executor": "dask", "scheduler": "tcp://x:1", "workers": 2}, "not both"),
    ],
)
def test_impossible_options(tmp_path: Path, options: dict[str, Any], complaint: str) -> None:
    if options["executor"] == "dask":
        pytest.importorskip("distributed", reason="Dask is not installed")
    with pytest.raises(OptionError, match=complaint):
        run_study(PICKY, tmp_path / "store.sqlite", **options)
    assert not list(tmp_path.iterdir())


def test_functions_are_looked_for_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot be imported"):
        run_study(Study("none", "study_functions:missing"), tmp_path / "store.sqlite")
    with pytest.raises(OptionError, match="module of its own"):
        run_study(Study("main", "__main__:something"), tmp_path / "store.sqlite", executor="processes")
    assert not list(tmp_path.iterdir())


def test_workers_that_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(StudyError, match="cannot start"):
        run_study(PICKY, tmp_path / "store.sqlite", executor="processes", workers=2)


@pytest.mark.parametrize("where", ["__init__", "submit"])
def test_a_system_that_gives_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Loky raises what the system says, such as EAGAIN, and BrokenPipeError where its tracker of resources is gone."""
    import loky

    def refuse(*_: object, **__: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(loky.ProcessPoolExecutor, where, refuse)
    with pytest.raises(StudyError, match=r"cannot start \(\[Errno 32\] Broken pipe\)"):
        run_study(PICKY, tmp_path / "store.sqlite", executor="processes", workers=2)


# --- Dask -------------------------------------------------------------------------------------------------------------
def test_a_dask_client_of_ones_own(tmp_path: Path, scheduler: str) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    with distributed.Client(scheduler, set_as_default=False) as client:
        rows = run_study(PICKY, tmp_path / "store.sqlite", executor=cluster.DaskExecutor(scheduler=client))
        assert client.status == "running"
    assert len(rows) == 4


def test_another_version_on_the_workers(tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "__version__", "99.0")
    with pytest.raises(StudyError, match=rf"has blocc {__version__}, but this program is blocc 99.0"):
        run_study(PICKY, tmp_path / "store.sqlite", executor="dask", scheduler=scheduler)
    assert rows_of(PICKY, tmp_path / "store.sqlite") == []


def test_a_worker_that_joins_late_with_another_version(
    tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compute, "__version__", "99.0")
    monkeypatch.setattr(cluster, "_check_workers", lambda *_: None)
    with pytest.raises(StudyError, match=r"started by blocc 99.0, but process .* has blocc"):
        run_study(PICKY, tmp_path / "store.sqlite", executor="dask", scheduler=scheduler)


def test_workers_that_cannot_find_the_function(tmp_path: Path, scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here.py").write_text("def function(seed):\n    return {}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(StudyError, match="only_here"):
        run_study(Study("here", "only_here:function"), tmp_path / "s.sqlite", executor="dask", scheduler=scheduler)


def test_no_scheduler_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed")
    monkeypatch.setattr(cluster, "_ANSWER", 1.0)
    for address in ("tcp://127.0.0.1:9", "nonsense://x"):
        with pytest.raises(StudyError, match="no Dask scheduler answers"):
            run_study(PICKY, tmp_path / "store.sqlite", executor="dask", scheduler=address)


def test_a_cluster_without_workers(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    with distributed.LocalCluster(n_workers=0, dashboard_address=":0") as empty:
        executor = cluster.DaskExecutor(scheduler=empty.scheduler_address, patience=0.5)
        with pytest.raises(StudyError, match="no Dask worker has come"):
            run_study(PICKY, tmp_path / "store.sqlite", executor=executor)


def test_dask_is_optional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(StudyError, match=r"blocc\[cluster\]"):
        run_study(PICKY, tmp_path / "store.sqlite", executor="dask")
