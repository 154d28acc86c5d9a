"""Designs that were interrupted go on where they were, and end as if nothing had happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import issparse

from blocc.result import History, Status
from blocc.resume.file import read_checkpoint
from blocc.resume.recording import CheckpointError
from blocc.transport import Design, DesignModel, design_network, read_network
from selections import few
from transport_reference import three_nodes


@pytest.fixture(scope="module")
def model() -> DesignModel:
    return DesignModel(three_nodes())


def design(model: DesignModel, **options: Any) -> Design:
    return design_network(model.network, model=model, **{"starts": 2, **options})


class Killed(Exception):
    pass


def killed_at(count: int) -> Any:
    """A callback that ends the program, as it seems, in its n-th call."""
    calls = 0

    def callback(state: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == count:
            raise Killed

    return callback


def assert_same(one: Design, other: Design) -> None:
    """Every figure is the same, bit by bit, but for seconds."""
    np.testing.assert_array_equal(one.capacity, other.capacity)
    for part in ("follower", "penalised"):
        for values in zip(getattr(one, part), getattr(other, part), strict=True):
            np.testing.assert_array_equal(*(value.toarray() if issparse(value) else value for value in values))
    for name in History.columns:
        if name != "time":
            np.testing.assert_array_equal(getattr(one.history, name), getattr(other.history, name))
    assert one.certificate == other.certificate
    assert (one.status, one.message, one.settings) == (other.status, other.message, other.settings)
    for table in ("starts", "what_if"):
        rows = [[row._replace(seconds=0.0) for row in getattr(found, table)] for found in (one, other)]
        assert rows[0] == rows[1]


OPTIONS: dict[str, dict[str, Any]] = {
    "auto": {},
    "fixed gamma": {"gamma": 30.0},
    "budget": {"budget": 1.2, "symmetric": True},
    "x0": {"x0": np.full(6, 0.6)},
}


@pytest.mark.parametrize("case", few(OPTIONS, "x0"))
def test_a_killed_design_goes_on(model: DesignModel, case: str, tmp_path: Path) -> None:
    options = OPTIONS[case]
    file, seen = tmp_path / "run.npz", []
    whole = design(model, **options, callback=lambda state: seen.append(state) and None)
    for count in (len(seen) // 3, len(seen) // 3):  # killed, and killed once more
        with pytest.raises(Killed):
            design(
                model,
                **options,
                callback=killed_at(count),
                checkpoint=None if file.exists() else file,
                resume=file if file.exists() else None,
                checkpoint_seconds=0.0,
            )
    later: list[int] = []
    again = design(model, **options, resume=file, callback=lambda state: later.append(state.iteration) and None)
    assert_same(again, whole)
    assert later[-1] == len(seen)
    assert later[0] > 1  # earlier stages were not repeated


def test_a_stopped_design_goes_on(model: DesignModel, tmp_path: Path) -> None:
    file = tmp_path / "run.npz"
    stopped = design(model, checkpoint=file, callback=lambda state: state.iteration >= 40)
    assert stopped.status is Status.STOPPED
    assert_same(design(model, resume=file), design(model))


@pytest.mark.slow
def test_more_starts_for_a_finished_design(model: DesignModel, tmp_path: Path) -> None:
    file, calls = tmp_path / "run.npz", []
    design(model, starts=1, checkpoint=file)
    more = design(model, starts=2, resume=file, callback=lambda state: calls.append(1) and None)
    assert_same(more, design(model, starts=2))
    assert sum(start.evaluations for start in more.starts) > len(calls)
    again = design(model, starts=2, resume=file, callback=lambda state: pytest.fail("nothing is left to do"))
    assert_same(again, more)
    with pytest.raises(CheckpointError, match=r"holds 2 starts, .* give starts=2 or more"):
        design(model, starts=1, resume=file)


PROGRAM = """
import sys
import time
from blocc.transport import design_network, read_network

options = {"resume": sys.argv[1]}
if sys.argv[2] == "begin":  # slow enough to be killed on the way
    slow = lambda state: time.sleep(0.05)
    options = {"checkpoint": sys.argv[1], "checkpoint_seconds": 0.0, "callback": slow}
design = design_network(read_network("three"), starts=2, **options)
print(design.capacity.tobytes().hex(), design.utility.hex())
"""


@pytest.mark.slow
def test_sigkill(tmp_path: Path) -> None:
    file = tmp_path / "run.npz"

    def begin(how: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PROGRAM, str(file), how]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))

    program = begin("begin")
    until = time.monotonic() + 120
    while not file.exists() or not read_checkpoint(file).recorded.kept:
        assert program.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)
    program.send_signal(signal.SIGKILL)
    assert program.wait(20) == -signal.SIGKILL
    resumed = begin("resume").communicate(timeout=150)[0].split()
    whole = design_network(read_network("three"), starts=2)
    assert resumed == [whole.capacity.tobytes().hex(), whole.utility.hex()]


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"seed": 1}, "seed=0"), ({"budget": 1.0}, "another problem|budget"), ({"gamma": 5.0}, "gamma='auto'")],
)
def test_other_runs_are_refused(model: DesignModel, changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    file = tmp_path / "run.npz"
    design(model, starts=1, checkpoint=file, callback=lambda state: state.iteration >= 20)
    with pytest.raises(CheckpointError, match=words):
        design(model, starts=1, resume=file, **changes)
    with pytest.raises(CheckpointError, match="another problem"):
        design_network(read_network("nine"), resume=file)
