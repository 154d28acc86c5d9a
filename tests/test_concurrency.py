"""Runs side by side do not disturb each other, nor the program that starts them."""

from __future__ import annotations

import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box, Reals, solve, solve_many
from blocc._lib.files import write_atomically
from blocc._lib.threads import single_blas_thread
from blocc.svm.estimator import BilevelSVC
from blocc.transport.design.design_network import design_network
from blocc.transport.network.files import read_network


def make_problem(goal: float = 1.0) -> BilevelProblem:
    return BilevelProblem(
        upper=lambda x, y: (y - goal) ** 2 + x**2,
        lower=lambda x, y: (y - 2.0 * x) ** 2,
        inequality=lambda x, y: y - x,
        x_set=Box(0.0, 3.0),
        y_set=Reals(),
    )


def solved() -> bytes:
    result = solve(make_problem())
    return np.asarray(result.x).tobytes() + np.asarray(result.y).tobytes()


def solved_many() -> bytes:
    best = solve_many(make_problem(2.0), starts=3, seed=1).best
    return np.asarray(best.x).tobytes() + np.asarray(best.y).tobytes()


def designed() -> bytes:
    return design_network(read_network("three"), starts=1, seed=3, tolerance=1e-2).capacity.tobytes()


def fitted() -> bytes:
    random = np.random.default_rng(0)
    features = random.normal(size=(40, 3))
    labels = np.where(features[:, 0] + 0.3 * random.normal(size=40) > 0, 1, -1)
    model = BilevelSVC(random_state=0).fit(features, labels)
    return bytes(model.coef_.tobytes() + model.margins_.tobytes())


RUNS: tuple[Callable[[], bytes], ...] = (solved, solved_many, designed, fitted)


def host_state() -> dict[str, Any]:
    """Everything of the host program that a library might change."""
    from threadpoolctl import threadpool_info

    handlers = {name: signal.getsignal(getattr(signal, name)) for name in ("SIGINT", "SIGTERM", "SIGALRM")}
    root = logging.getLogger()
    return {
        "jax": {name: getattr(jax.config, name) for name in ("jax_enable_x64", "jax_debug_nans", "jax_platforms")},
        "precision": str(jnp.ones(1).dtype),
        "signals": handlers,
        "logging": (root.level, list(root.handlers), logging.getLogger("jax").level, logging.root.manager.disable),
        "warnings": list(warnings.filters),
        "numpy": (np.geterr(), str(np.random.get_state()), np.get_printoptions()["precision"]),  # noqa: NPY002
        "environment": dict(os.environ),
        "blas": sorted((pool["filepath"], pool["num_threads"]) for pool in threadpool_info()),
        "folder": Path.cwd(),
        "recursion": sys.getrecursionlimit(),
        "excepthook": (sys.excepthook, threading.excepthook),
    }


@contextmanager
def host_unchanged() -> Iterator[None]:
    before = host_state()
    try:
        yield
    finally:
        after = host_state()
        before["environment"].pop("PYTEST_CURRENT_TEST", None)
        after["environment"].pop("PYTEST_CURRENT_TEST", None)
        assert after == before


@pytest.fixture(scope="module")
def alone() -> dict[str, bytes]:
    """The answers of runs one after the other, none of which changes the host program."""
    with host_unchanged():
        return {run.__name__: run() for run in RUNS}


def test_runs_leave_the_host_program_as_it_was(alone: dict[str, bytes]) -> None:
    with host_unchanged():
        assert fitted() == alone["fitted"]


def test_threads_do_not_disturb_each_other(alone: dict[str, bytes]) -> None:
    """Two of each at the same time, while the main thread keeps looking at its own settings."""
    handler = signal.getsignal(signal.SIGINT)
    with host_unchanged(), ThreadPoolExecutor(4) as pool:
        waiting = [(run, pool.submit(run)) for run in RUNS * 2]
        while not all(future.done() for _, future in waiting):
            assert jax.config.jax_enable_x64 is False
            assert jnp.ones(3).sum().dtype == jnp.float32
            assert signal.getsignal(signal.SIGINT) is handler
            time.sleep(0.01)
        for run, future in waiting:
            assert future.result() == alone[run.__name__], run.__name__


class Expected(Exception):
    """Raised by a callback."""


@pytest.mark.parametrize("front", [solve, lambda problem, **given: solve_many(problem, starts=2, **given)])
def test_a_run_that_raises_puts_everything_back(front: Callable[..., Any]) -> None:
    seen = []

    def callback(state: Any) -> None:
        seen.append((jax.config.jax_enable_x64, signal.getsignal(signal.SIGINT) is signal.default_int_handler))
        raise Expected

    with host_unchanged(), pytest.raises(Expected):
        front(make_problem(), callback=callback)
    assert seen == [(True, False)]  # so there was something to put back


def test_a_host_with_its_own_settings_keeps_them() -> None:
    """64-bit floats and a handler of its own."""

    def own(number: int, frame: Any) -> None:
        """Not Python's default."""

    before = signal.signal(signal.SIGINT, own)
    try:
        with jax.enable_x64(True), np.errstate(all="raise"):
            result = solve(make_problem())
            assert result.success
            assert jax.config.jax_enable_x64 is True
            assert set(np.geterr().values()) == {"raise"}
        assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)


def test_no_thread_but_the_main_one_touches_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise AssertionError("signal.signal was called outside the main thread")

    monkeypatch.setattr(signal, "signal", refuse)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(solved).result()


def test_overlapping_blocks_put_the_number_of_threads_back() -> None:
    """The one that began first ends first: each by itself would put back what the other had set."""
    info = pytest.importorskip("threadpoolctl").threadpool_info

    def counts() -> list[int]:
        return [pool["num_threads"] for pool in info() if pool["user_api"] == "blas"]

    before = counts()
    first, second = single_blas_thread(), single_blas_thread()
    first.__enter__()
    second.__enter__()
    assert set(counts()) == {1}
    first.__exit__(None, None, None)
    assert set(counts()) == {1}
    second.__exit__(None, None, None)
    assert counts() == before


def test_writing_from_many_threads_keeps_the_mask(tmp_path: Path) -> None:
    """Every file is whole and as readable as the user's mask says; the mask itself stays."""
    before = os.umask(0o027)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda k: write_atomically(tmp_path / f"f{k % 5}", bytes([k % 5]) * 9999), range(200)))
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    for k in range(5):
        path = tmp_path / f"f{k}"
        assert path.read_bytes() == bytes([k]) * 9999
        assert path.stat().st_mode & 0o777 == 0o640
    assert len(list(tmp_path.iterdir())) == 5


IMPORT = """
import os, sys, threading, warnings, signal, logging
before = (dict(os.environ), list(warnings.filters), signal.getsignal(signal.SIGINT), list(logging.root.handlers))
import jax, numpy, scipy.optimize
warm = (list(warnings.filters), threading.active_count(), sorted(os.listdir(".")))
state = numpy.random.get_state()[1].tobytes()
import blocc
from jax._src import xla_bridge
assert not xla_bridge.backends_are_initialized()
assert jax.config.jax_enable_x64 is False
assert threading.active_count() == warm[1] == 1, threading.enumerate()
assert list(warnings.filters) == warm[0]
assert dict(os.environ) == before[0]
assert signal.getsignal(signal.SIGINT) is before[2]
assert list(logging.root.handlers) == before[3]
assert numpy.random.get_state()[1].tobytes() == state
assert sorted(os.listdir(".")) == warm[2] == []
"""


def test_import_has_no_side_effects(tmp_path: Path) -> None:
    command = [sys.executable, "-B", "-W", "error", "-c", IMPORT]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_import_is_quick() -> None:
    """Processor time of the best of three, so that other programs do not count; about 1 s, most of it JAX."""
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", "import blocc"], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if spent[-1] < 1.5:
            break
    assert min(spent) < 3.0


# --- processes of the user's own -------------------------------------------------------------------------------------
POOLS = """
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor

from blocc import solve
from blocc.problems.toy import toy_problem


def one_run(start):
    return float(solve(toy_problem(), start).x)


if __name__ == "__main__":
    starts = [0.3, 1.2]
    here = [one_run(start) for start in starts]  # JAX is in use from now on
    if sys.argv[1] == "spawn":
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
            there = list(pool.map(one_run, starts))
    else:
        from joblib import Parallel, delayed

        there = Parallel(n_jobs=2)(delayed(one_run)(start) for start in starts)
    print(here == there)
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["spawn", pytest.param("loky", marks=pytest.mark.slow)])
def test_processes_of_the_users_own(way: str, tmp_path: Path) -> None:
    """The two ways that the pages recommend, after JAX was used in the program that starts the processes."""
    if way == "loky":
        pytest.importorskip("joblib", reason="joblib, which comes with scikit-learn, is not installed")
    script = tmp_path / "program.py"
    script.write_text(POOLS)
    done = subprocess.run([sys.executable, str(script), way], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr


THREADS = """
import jax.numpy as jnp
from threadpoolctl import threadpool_info
from blocc import BilevelProblem, Box, Reals, solve

problem = BilevelProblem(
    upper=lambda x, y: (x - 3) ** 2 + jnp.sum((y - 1) ** 2),
    lower=lambda x, y: jnp.sum((y - 2 * x) ** 2),
    x_set=Box(0.0, 3.0),
    y_set=Reals(3),
)
seen = set()
solve(
    problem,
    callback=lambda state: seen.update(each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"),
    progress=False,
)
print(sorted(seen))
"""


def test_linear_algebra_has_one_thread_from_the_first_iteration() -> None:
    """In a fresh process: a limit holds only for libraries that are loaded before it is set."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", THREADS],
        capture_output=True,
        text=True,
        check=True,
        env=environment | {"OPENBLAS_NUM_THREADS": "2"},
    )
    assert done.stdout.strip() == "[1]"
