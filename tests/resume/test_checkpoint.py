"""Long runs: what was interrupted goes on as if nothing had happened, and no file is trusted or overwritten blindly."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, OptionError, Reals, Result, Simplex, Status, solve, solve_many
from blocc.problems.textbook import known_problem
from blocc.resume import file as module
from blocc.resume.file import read_checkpoint
from blocc.resume.fingerprint import fingerprint
from blocc.resume.recording import CheckpointError, Recording
from clocks import counted
from selections import few


def make_toy(wall: float = 1.0, **changes: Any) -> BilevelProblem:
    parts: dict[str, Any] = {
        "upper": lambda x, y: jnp.sin(3.0 * x) + 0.1 * (x - 1.0) ** 2 + (y - 0.4) ** 2,
        "lower": lambda x, y: (y - x) ** 2,
        "inequality": lambda x, y: y - wall,
        "x_set": Box(0.0, 3.0),
        "y_set": Reals(),
    }
    return BilevelProblem(**{**parts, **changes})


@pytest.fixture(scope="module")
def toy() -> BilevelProblem:
    return make_toy()


@pytest.fixture(scope="module")
def led() -> BilevelProblem:
    """The leader has a constraint of its own, and multipliers for it that the run finds."""
    return make_toy(upper_inequality=lambda x, y: 1.2 - x - y)


@pytest.fixture(scope="module")
def simplex() -> BilevelProblem:
    """X is no box, and the boundary of the follower's feasibility makes kinks."""
    return BilevelProblem(
        upper=lambda x, y: jnp.abs(x[0] - 0.3) + (y - 0.1) ** 2,
        lower=lambda x, y: (y - x[0] * x[1]) ** 2,
        inequality=lambda x, y: x[0] - 0.6 - y,
        x_set=Simplex(2),
        y_set=Reals(),
    )


def assert_same(one: Result, other: Result) -> None:
    """The same bits, and the same way there."""
    assert one.status is other.status, (one.message, other.message)
    for name in ("x", "y", "y_penalty", "multipliers"):
        trees = (jax.tree.leaves(getattr(result, name)) for result in (one, other))
        for a, b in zip(*trees, strict=True):
            np.testing.assert_array_equal(a, b)
    assert one.counts == other.counts
    assert one.certificate == other.certificate
    for column in set(one.history.columns) - {"time"}:
        np.testing.assert_array_equal(getattr(one.history, column), getattr(other.history, column))


STOPS = [(name, stop) for name in ("toy", "led", "simplex") for stop in (1, 5)]


@pytest.mark.parametrize(("name", "stop"), few(STOPS, ("led", 5)))
def test_a_stopped_run_goes_on(name: str, stop: int, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    problem = request.getfixturevalue(name)
    undisturbed = solve(problem)
    file = tmp_path / "run.npz"
    seen: list[int] = []
    stopped = solve(problem, callback=lambda state: state.iteration >= stop, checkpoint=file)
    assert stopped.status in (Status.STOPPED, Status.CONVERGED)
    resumed = solve(problem, callback=lambda state: seen.append(state.iteration), resume=file)
    assert_same(undisturbed, resumed)
    assert min(seen, default=stop) >= stop  # what was seen before the last iteration is not shown again
    assert_same(undisturbed, solve(problem, resume=file))  # a finished run, too


@pytest.mark.slow
def test_algorithm_one_goes_on_bit_by_bit(toy: BilevelProblem, tmp_path: Path) -> None:
    options: dict[str, Any] = {"outer": "pgd", "inner": "maxmin", "gamma": 5.0, "step": 0.002, "max_iterations": 400}
    file = tmp_path / "run.npz"
    solve(toy, 0.9, callback=lambda state: state.iteration >= 61, checkpoint=file, **options)
    assert_same(solve(toy, 0.9, **options), solve(toy, 0.9, resume=file, **options))


@pytest.mark.parametrize("name", [pytest.param("toy", marks=pytest.mark.slow), "led"])
def test_many_starts_go_on(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    problem = request.getfixturevalue(name)
    undisturbed = solve_many(problem, starts=4)
    for stop in (1, 4):
        file = tmp_path / f"run{stop}.npz"
        solve_many(problem, starts=4, callback=lambda state, stop=stop: state.iteration >= stop, checkpoint=file)
        for one, other in zip(undisturbed.results, solve_many(problem, starts=4, resume=file).results, strict=True):
            assert one.status is other.status
            np.testing.assert_array_equal(one.x, other.x)


@pytest.mark.parametrize(
    ("method", "name", "stops"),
    few(
        [("bic-gaffa", "blocc_toy", (2, 25)), ("gam", "moving_lower_bound", (1, 4))],
        ("gam", "moving_lower_bound", (1, 4)),
    ),
)
def test_other_methods_go_on(method: str, name: str, stops: tuple[int, ...], tmp_path: Path) -> None:
    problem = known_problem(name).problem
    options: dict[str, Any] = {"method": method, "max_iterations": 800 if method == "bic-gaffa" else 30}
    undisturbed = solve(problem, **options)
    for stop in stops:
        file = tmp_path / f"run{stop}.npz"
        solve(problem, callback=lambda state, stop=stop: state.iteration >= stop, checkpoint=file, **options)
        assert_same(undisturbed, solve(problem, resume=file, **options))


@pytest.mark.slow
def test_a_run_in_other_units_goes_on(tmp_path: Path) -> None:
    plain = known_problem("moving_lower_bound").problem
    upper, lower = plain.upper, plain.lower
    problem = replace(plain, upper=lambda x, y: 1e6 * upper(x, y), lower=lambda x, y: 1e-5 * lower(x, y))
    undisturbed = solve(problem)
    file = tmp_path / "run.npz"
    solve(problem, callback=lambda state: state.iteration >= 3, checkpoint=file)
    assert_same(undisturbed, solve(problem, resume=file))


@pytest.mark.slow
def test_a_time_limit_counts_anew(toy: BilevelProblem, tmp_path: Path) -> None:
    file = tmp_path / "run.npz"
    whole = solve(toy, checkpoint=tmp_path / "whole.npz")  # compiled
    with counted(step=1e-6) as clock:
        first = solve(toy, callback=lambda state: clock.advance(1.0), time_limit=4.5, checkpoint=file)
        assert first.status is Status.TIME_LIMIT
        for _ in range(20):  # what the judge computes is not kept
            again = solve(toy, callback=lambda state: clock.advance(1.0), time_limit=20.5, resume=file)
            if again.success:
                break
    assert_same(whole, again)


# --- kill -9 ----------------------------------------------------------------------------------------------------------
PROGRAM = """
import sys, time
import jax.numpy as jnp
from blocc import BilevelProblem, Box, Reals, solve
problem = BilevelProblem(
    upper=lambda x, y: jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2) + jnp.sum((y - 0.5) ** 2),
    lower=lambda x, y: jnp.sum((y - x) ** 2),
    x_set=Box(-2.0, 2.0, shape=4),
    y_set=Reals(4),
)
more = {"resume": sys.argv[2]} if sys.argv[3] == "resume" else {}
if sys.argv[3] == "start":
    more = {"checkpoint": sys.argv[2]}
pause = 0.0 if sys.argv[3] == "undisturbed" else 0.02
result = solve(problem, gamma=30.0, callback=lambda state: time.sleep(pause), checkpoint_seconds=0.01, **more)
result.save(sys.argv[1])
"""


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path: Path) -> None:
    script, file = tmp_path / "program.py", tmp_path / "run.npz"
    script.write_text(PROGRAM)
    cache = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    environment = {**os.environ, **cache, "OPENBLAS_NUM_THREADS": "1"}

    def begin(mode: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, str(script), str(tmp_path / mode), str(file), mode], env=environment)

    assert begin("undisturbed").wait(60) == 0
    generator, entries = random.Random(4), [0]
    for kill in range(3):
        program = begin("start" if kill == 0 else "resume")
        until, stamp = time.monotonic() + 60.0, file.stat().st_mtime_ns if file.exists() else 0
        while not (file.exists() and file.stat().st_mtime_ns > stamp):  # this part has written something
            assert time.monotonic() < until
            assert program.poll() is None
            time.sleep(0.002)
        time.sleep(generator.uniform(0.0, 0.2))
        program.send_signal(signal.SIGKILL)
        assert program.wait(10) == -signal.SIGKILL
        entries.append(len(read_checkpoint(file).recorded.entries))
    assert entries == sorted(entries)  # every part got further
    assert begin("resume").wait(60) == 0
    assert_same(Result.load(tmp_path / "undisturbed"), Result.load(tmp_path / "resume"))
    assert not list(tmp_path.glob(".*.part"))


# --- files that are refused -------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def kept(toy: BilevelProblem, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    file = tmp_path_factory.mktemp("kept") / "run.npz"
    solve(toy, callback=lambda state: state.iteration >= 3, checkpoint=file)
    return file.read_bytes()


@pytest.mark.parametrize("path", ["resume", "checkpoint"])
@pytest.mark.parametrize("damage", ["text", "empty", "cut", "bit", "archive"])
def test_broken_files(toy: BilevelProblem, kept: bytes, tmp_path: Path, damage: str, path: str) -> None:
    file = tmp_path / "run.npz"
    middle = kept.index(b"outputs.npy") + 400
    file.write_bytes(
        {
            "text": b"my diary",
            "empty": b"",
            "cut": kept[: len(kept) // 2],
            "bit": kept[:middle] + bytes([kept[middle] ^ 1]) + kept[middle + 1 :],
            "archive": b"",
        }[damage]
    )
    if damage == "archive":
        np.savez(file, a=np.zeros(3))
    before = file.read_bytes()
    with pytest.raises(CheckpointError, match=r"not a blocc checkpoint|checksum differs"):
        solve(toy, **{path: file})
    assert file.read_bytes() == before


def test_a_forged_number_is_noticed(toy: BilevelProblem, kept: bytes, tmp_path: Path) -> None:
    file = tmp_path / "run.npz"
    file.write_bytes(kept)
    with np.load(file) as archive:
        arrays = dict(archive)
    arrays["outputs"] = arrays["outputs"] + 1e-12
    np.savez(file, **arrays)
    with pytest.raises(CheckpointError, match="was changed after it was saved"):
        solve(toy, resume=file)


@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        ({"wall": 1.0 + 1e-6}, {}, r"another problem: inequality\(x, y\) differs"),
        ({"lower": lambda x, y: (y - 1.001 * x) ** 2}, {}, r"another problem: lower\(x, y\) differs"),
        ({"x_set": Box(0.0, 3.5)}, {}, "another problem: x_set differs"),
        ({}, {"tolerance": 1e-4}, "tolerance=1e-05, this one has tolerance=0.0001"),
        ({}, {"seed": 1}, "seed=0"),
        ({}, {"x0": 0.25}, "another start: x0 differs"),
        ({}, {"method": "lv-hba"}, "method='blocc', this one has method='lv-hba'"),
    ],
)
def test_foreign_checkpoints(kept: bytes, tmp_path: Path, changes: dict, options: dict, words: str) -> None:
    file = tmp_path / "run.npz"
    file.write_bytes(kept)
    with pytest.raises(CheckpointError, match=words):
        solve(make_toy(**changes), resume=file, **options)


def upper(x: Any, y: Any) -> Any:
    """That of :func:`make_toy`."""
    return jnp.sin(3.0 * x) + 0.1 * (x - 1.0) ** 2 + (y - 0.4) ** 2


#: Edits that no comparison at a few random points can show.
EDITS: dict[str, dict[str, Any]] = {
    "where nobody looks": {"upper": lambda x, y: upper(x, y) + jnp.where(jnp.abs(x - 0.777) < 1e-9, 5.0, 0.0)},
    "at the answer": {"upper": lambda x, y: upper(x, y) + jnp.where(jnp.abs(y - jnp.minimum(x, 1.0)) < 0.01, 0.1, 0.0)},
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_that_a_few_values_do_not_show(kept: bytes, tmp_path: Path, edit: str) -> None:
    file, problem = tmp_path / "run.npz", make_toy(**EDITS[edit])
    file.write_bytes(kept)
    before, now = read_checkpoint(file).identity.problem, fingerprint(problem)
    assert before._replace(program={}).differences(now._replace(program={})) == []
    for path in ("resume", "checkpoint"):
        with pytest.raises(CheckpointError, match=r"another problem.* upper\(x, y\)"):
            solve(problem, **{path: file})
    assert file.read_bytes() == kept


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [{}, pytest.param({"tracer": "jax 0.0", "upper(x, y)": "0f"}, marks=pytest.mark.slow)],
    ids=["none", "other version"],
)
def test_programs_of_other_versions_are_not_compared(
    toy: BilevelProblem, kept: bytes, tmp_path: Path, program: dict[str, str]
) -> None:
    """What counts then are values: at a few points, and where the run has been."""
    file = tmp_path / "run.npz"
    file.write_bytes(kept)
    identity, recorded = read_checkpoint(file)
    file.write_bytes(module.pack(identity._replace(problem=identity.problem._replace(program=program)), recorded))
    before = file.read_bytes()
    words = r"the checkpoint's evaluations are not this problem's: at number 1, upper\(x, y\) gave "
    with pytest.raises(CheckpointError, match=words):
        solve(make_toy(**EDITS["at the answer"]), resume=file)
    assert file.read_bytes() == before
    assert_same(solve(toy), solve(toy, resume=file))


@pytest.mark.slow
def test_every_bit_of_the_data_counts(tmp_path: Path) -> None:
    file = tmp_path / "run.npz"
    parts: dict[str, Any] = {"x_set": Box(0.0, 3.0), "y_set": Reals()}
    problem = BilevelProblem(upper=lambda x, y, d: (x - d) ** 2, lower=lambda x, y, d: (y - x) ** 2, data=1.0, **parts)
    solve(problem, checkpoint=file)
    with pytest.raises(CheckpointError, match="another problem: data differs"):
        solve(problem.with_data(1.0 + 1e-15), resume=file)
    assert solve(problem.with_data(1.0), resume=file).success


def test_the_last_evaluation_is_looked_at(toy: BilevelProblem, kept: bytes, tmp_path: Path) -> None:
    file = tmp_path / "run.npz"
    file.write_bytes(kept)
    identity, recorded = read_checkpoint(file)
    last = recorded.entries[-1]
    changed = last.outputs.copy()
    changed[3:] += 0.5  # all but the counts
    recorded.entries[-1] = last._replace(outputs=changed)
    file.write_bytes(module.pack(identity, recorded))
    with pytest.raises(CheckpointError, match=f"not this problem's: at number {len(recorded.entries)}, "):
        solve(toy, resume=file)


def test_checkpoints_of_other_problems_are_not_overwritten(kept: bytes, tmp_path: Path) -> None:
    file = tmp_path / "run.npz"
    file.write_bytes(kept)
    with pytest.raises(CheckpointError, match=r"another problem \(by inequality\(x, y\)\); it is not overwritten"):
        solve(make_toy(0.5), checkpoint=file)
    assert file.read_bytes() == kept


def test_missing_and_impossible_paths(toy: BilevelProblem, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no file"):
        solve(toy, resume=tmp_path / "none.npz")
    with pytest.raises(CheckpointError, match="must name a file"):
        solve(toy, checkpoint=tmp_path)
    with pytest.raises(OptionError, match="checkpoint must be the path of a file"):
        solve(toy, checkpoint=3)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="checkpoint_seconds"):
        solve(toy, checkpoint=tmp_path / "run.npz", checkpoint_seconds=-1.0)
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write the checkpoint"):
        solve(toy, checkpoint=tmp_path / "file" / "run.npz")


def test_unwritable_folder_is_found_out_before_work(
    toy: BilevelProblem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*arguments: Any, **options: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    # A superuser may write anywhere, so the refusal is staged.
    monkeypatch.setattr(module.tempfile, "TemporaryFile", refused)
    with pytest.raises(CheckpointError, match=r"cannot write the checkpoint .*: Permission denied"):
        solve(toy, callback=lambda state: pytest.fail("work was begun"), checkpoint=tmp_path / "run.npz")


def test_a_disk_that_fills_up_does_not_end_the_run(
    toy: BilevelProblem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def full(path: Path, data: bytes) -> None:
        calls.append(path)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "write_atomically", full)
    with pytest.warns(RuntimeWarning, match="No space left on device") as told:
        result = solve(toy, checkpoint=tmp_path / "run.npz", checkpoint_seconds=0.0)
    assert told[0].filename == __file__  # where a user can change something
    assert result.success
    assert "checkpoint could not be written at the end (No space left on device)" in result.message
    assert len(calls) > 1
    np.testing.assert_array_equal(result.x, solve(toy).x)


def test_a_disk_that_recovers(toy: BilevelProblem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, file = module.write_atomically, tmp_path / "run.npz"
    failures = iter([True])  # the first attempt; the one at the end succeeds

    def sometimes(path: Path, data: bytes) -> None:
        if next(failures, False):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, data)

    monkeypatch.setattr(module, "write_atomically", sometimes)
    with pytest.warns(RuntimeWarning, match="the run goes on"):
        result = solve(toy, checkpoint=file, checkpoint_seconds=0.0)
    assert "checkpoint" not in result.message
    assert_same(result, solve(toy, resume=file))


def test_a_full_recording_says_so(toy: BilevelProblem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blocc.resume.recording.LARGEST", 2000)
    result = solve(toy, checkpoint=tmp_path / "run.npz", checkpoint_seconds=0.0)
    assert "The checkpoint is full" in result.message
    np.testing.assert_allclose(solve(toy, resume=tmp_path / "run.npz").x, result.x, rtol=1e-6)


def test_an_idle_recording_does_nothing(toy: BilevelProblem) -> None:
    recording = Recording()
    assert not recording.active
    recording.note("a", np.zeros(1), np.zeros(1))
    recording.close()
    assert recording.recorded.entries == []
    assert recording.remark() == ""
