"""Starts on an executor: the same design as here, kept in the checkpoint as they finish."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from blocc.errors import OptionError
from blocc.executors.work import Outcome, Work, begin
from blocc.result import Status
from blocc.transport import Design, DesignModel, design_network, read_network
from blocc.transport.design import start_runs
from blocc.transport.design.start_runs import FollowedStart


class Backwards:
    """Computes here, but as if elsewhere: in any order, and some pieces perhaps not at all."""

    name = "backwards"
    workers = 1

    def __init__(self, fails: Sequence[int] = (), ends_after: int = 100) -> None:
        self.fails, self.ends_after, self.done = fails, ends_after, list[int]()

    def run(self, work: Work, indices: Sequence[int]) -> Generator[Outcome, None, None]:
        for index in reversed(indices):
            if len(self.done) >= self.ends_after:
                raise KeyboardInterrupt
            call = work.call(index)
            if call is not None:
                self.done.append(index)
                found = begin(call)
                yield replace(found, value=None, error="died") if index in self.fails else found


@pytest.fixture(scope="module")
def model() -> DesignModel:
    return DesignModel(read_network("three"))


@pytest.fixture(autouse=True)
def share(model: DesignModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled twice."""
    monkeypatch.setattr(start_runs, "_compiled", {"auto": model})


def designed(model: DesignModel, **options: Any) -> Design:
    return design_network(model.network, model=model, **{"starts": 3, **options})


@pytest.fixture(scope="module")
def here(model: DesignModel) -> Design:
    return designed(model)


def same(one: Design, other: Design) -> None:
    np.testing.assert_array_equal(one.capacity, other.capacity)
    np.testing.assert_array_equal(one.follower.flow, other.follower.flow)
    np.testing.assert_array_equal(one.history.upper_value, other.history.upper_value)
    assert one.certificate == other.certificate
    assert [start[:4] for start in one.starts] == [start[:4] for start in other.starts]
    assert [row[:5] for row in one.what_if] == [row[:5] for row in other.what_if]


def test_the_design_is_the_same(model: DesignModel, here: Design) -> None:
    utilities: list[float] = []
    executor = Backwards()
    same(designed(model, executor=executor, report=lambda _, row: utilities.append(-row.upper_value)), here)
    assert executor.done == [2, 1, 0]
    assert utilities == pytest.approx(
        [start.utility for start in reversed(here.starts)], rel=1e-6
    )  # the best gains more


@pytest.mark.slow
def test_a_start_that_fails_elsewhere_is_done_here(model: DesignModel, here: Design) -> None:
    same(designed(model, executor=Backwards(fails=[1])), here)


def test_finished_starts_are_kept_at_once(model: DesignModel, here: Design, tmp_path: Path) -> None:
    file = tmp_path / "run.npz"
    stopped = designed(model, executor=Backwards(ends_after=2), checkpoint=file, checkpoint_seconds=0.0)
    assert stopped.status is Status.INTERRUPTED
    assert [start.status for start in stopped.starts[1:]] == [Status.CONVERGED] * 2
    assert stopped.utility == max(start.utility for start in stopped.starts)
    executor = Backwards()
    same(designed(model, executor=executor, resume=file), here)
    assert executor.done == [0]  # the other two were finished
    assert len(designed(model, executor=executor, resume=file, starts=4).starts) == 4
    assert executor.done == [0, 3]


def test_a_time_limit_holds_elsewhere(model: DesignModel) -> None:
    design = designed(model, executor=Backwards(), time_limit=1e-6)
    assert design.status is Status.TIME_LIMIT


def test_what_travels_is_plain(model: DesignModel, monkeypatch: pytest.MonkeyPatch) -> None:
    leaves: list[Any] = []
    portable = FollowedStart.portable

    def noted(start: FollowedStart) -> FollowedStart:
        sent = portable(start)
        leaves.extend(leaf for value in vars(sent.state).values() for leaf in jax.tree.leaves(value))
        return sent

    monkeypatch.setattr(FollowedStart, "portable", noted)
    designed(model, executor=Backwards(), starts=1)
    assert leaves
    assert not any(isinstance(leaf, jax.Array) for leaf in leaves)
    assert all(leaf.dtype != np.float32 for leaf in leaves if isinstance(leaf, np.ndarray))


def test_callbacks_do_not_travel(model: DesignModel) -> None:
    with pytest.raises(OptionError, match="callback"):
        designed(model, executor=Backwards(), callback=lambda state: False)


@pytest.mark.slow
def test_a_start_is_never_worse_than_where_it_began(model: DesignModel, here: Design) -> None:
    """With the design itself as x0, and within limits that hold it."""
    again = designed(model, x0=here.capacity, budget=here.follower.construction_cost * 1.0001)
    assert again.utility >= here.utility - 1e-6


@pytest.mark.slow
def test_processes(model: DesignModel, here: Design) -> None:
    found = designed(model, executor="processes")
    np.testing.assert_allclose(found.capacity, here.capacity, atol=1e-9)
    assert found.utility == pytest.approx(here.utility, abs=1e-9)
