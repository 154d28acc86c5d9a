"""Starts that are computed elsewhere: the same results, whoever computes them and whatever dies on the way."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from blocc import BilevelProblem, Box, MultiResult, OptionError, Options, Status, solve_many
from blocc.executors.processes import ProcessExecutor
from blocc.executors.work import ExecutorError, Outcome, Work, begin
from blocc.outer.monitor import StopRequest
from blocc.problems.loading import load_problem
from blocc.run import starts

STARTS = np.array([0.5, 9.5, 1.0])


class Backwards:
    """Hands out everything before anything is known, and the last outcome first."""

    name = "backwards"
    workers = 3

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def run(self, work: Work, indices: Sequence[int]) -> Generator[Outcome, None, None]:
        calls = [call for index in indices if (call := work.call(index)) is not None]
        self.outcomes = [begin(call) for call in calls]
        yield from reversed(self.outcomes)


class Again(Backwards):
    """Yields what it is given, and raises it where it is an exception."""

    def __init__(self, *given: Outcome | BaseException) -> None:
        self.given = given

    def run(self, work: Work, indices: Sequence[int]) -> Generator[Outcome, None, None]:
        for outcome in self.given:
            if isinstance(outcome, BaseException):
                raise outcome
            yield outcome


def road(deadly: Path | None = None) -> BilevelProblem:
    """A toll x on a road with an alternative; a worker that meets it before ``deadly`` is there dies."""
    here = os.getpid()

    def upper(x: Any, y: Any) -> Any:
        if deadly is not None and os.getpid() != here and not deadly.exists():
            deadly.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return -x * y

    return BilevelProblem(
        upper=upper,
        lower=lambda x, y: x * y + 3.0 * (1.0 - y) + 0.01 * y**2,
        x_set=Box(0.0, 10.0),
        y_set=Box(0.0, 1.0),
        name="road",
    )


@pytest.fixture(scope="module")
def problem() -> BilevelProblem:
    return road()


@pytest.fixture(scope="module")
def here(problem: BilevelProblem) -> MultiResult:
    return solve_many(problem, STARTS)


def assert_same(one: MultiResult, other: MultiResult) -> None:
    for a, b in zip(one.results, other.results, strict=True):
        assert (a.status, a.message, a.certificate) == (b.status, b.message, b.certificate)
        for name in ("x", "y", "y_penalty", "multipliers", "upper_value", "gamma"):
            for left, right in zip(*(jax.tree.leaves(getattr(r, name)) for r in (a, b)), strict=True):
                np.testing.assert_array_equal(left, right)


@pytest.fixture(scope="module")
def elsewhere(problem: BilevelProblem) -> tuple[MultiResult, list[Outcome]]:
    executor = Backwards()
    return solve_many(problem, STARTS, executor=executor), executor.outcomes


@pytest.mark.slow
def test_starts_that_know_nothing_of_each_other_end_the_same(
    here: MultiResult, elsewhere: tuple[MultiResult, list[Outcome]]
) -> None:
    found, outcomes = elsewhere
    assert len(outcomes) == len(STARTS)
    assert_same(here, found)
    assert found.counts == here.counts


def test_what_has_come_before_ctrl_c_is_kept(
    problem: BilevelProblem, here: MultiResult, elsewhere: tuple[MultiResult, list[Outcome]]
) -> None:
    found = solve_many(problem, STARTS, executor=Again(elsewhere[1][0], KeyboardInterrupt()))
    assert [result.status for result in found.results[1:]] == [Status.INTERRUPTED] * 2
    assert found.best.upper_value == here[0].upper_value
    np.testing.assert_array_equal(found.x[1:], STARTS[1:])


def test_nothing_is_handed_out_when_the_time_is_over(problem: BilevelProblem) -> None:
    executor = Backwards()
    found = solve_many(problem, STARTS, executor=executor, time_limit=1e-9)
    assert executor.outcomes == []
    assert {result.status for result in found.results} == {Status.TIME_LIMIT}
    assert np.isfinite(found.best.upper_value)  # the first start has at least been looked at
    assert "3 starts, 0 converged" in repr(found)


@pytest.mark.slow
def test_a_worker_that_dies_loses_nothing(here: MultiResult, tmp_path: Path) -> None:
    deadly = tmp_path / "deadly"
    found = solve_many(road(deadly), STARTS, executor=ProcessExecutor(2))
    assert deadly.exists()
    assert_same(here, found)


@pytest.mark.slow
def test_a_start_that_fails_everywhere_leaves_the_others_alone(
    problem: BilevelProblem, here: MultiResult, elsewhere: tuple[MultiResult, list[Outcome]]
) -> None:
    first, second, third = elsewhere[1]
    lost = replace(second, value=None, error="the worker died 3 times\nmore")
    found = solve_many(problem, STARTS, executor=Again(third, lost, first))
    assert found[1].message == "the worker died 3 times"
    assert np.isnan(found[1].upper_value)
    assert found.best.upper_value == here.best.upper_value


@pytest.mark.slow
def test_starts_that_a_lost_cluster_owes_are_computed_here(
    problem: BilevelProblem, here: MultiResult, elsewhere: tuple[MultiResult, list[Outcome]]
) -> None:
    found = solve_many(problem, STARTS, executor=Again(elsewhere[1][0], ExecutorError("the scheduler is gone")))
    assert_same(here, found)
    with pytest.raises(ExecutorError, match="is gone"):
        solve_many(problem, STARTS, executor=Again(ExecutorError("the scheduler is gone")))


def test_impossible_arguments(problem: BilevelProblem) -> None:
    with pytest.raises(OptionError, match="callback needs starts that run in this process"):
        solve_many(problem, STARTS, executor=Backwards(), callback=lambda state: False)
    with pytest.raises(OptionError, match="checkpoint and resume"):
        solve_many(problem, STARTS, executor=Backwards(), checkpoint="run.npz")
    with pytest.raises(OptionError, match="executor must be one of"):
        solve_many(problem, STARTS, executor="threads")


def test_workers_run_the_files_that_functions_come_from(tmp_path: Path, problem: BilevelProblem) -> None:
    (tmp_path / "fare.py").write_text(
        "from blocc import BilevelProblem, Box\nPRICE = 3.0\n\ndef upper(x, y):\n    return -PRICE * x * y\n\n"
        "problem = BilevelProblem(upper=upper, lower=lambda x, y: (y - x) ** 2, x_set=Box(0, 1), y_set=Box(0, 1))\n"
    )
    given = load_problem(str(tmp_path / "fare.py"))
    work = starts._Work(starts.Starts(given, Options(inner="pdhg"), StopRequest()), given, np.zeros((1, 1)))
    prepare, files = work.check()
    assert files == (str(tmp_path / "fare.py"),)
    del sys.modules["blocc_problem_fare"]  # as on a worker
    prepare(files)
    assert "blocc_problem_fare" in sys.modules
    sent = work._sent
    rebuilt, options = starts._problem_of(sent)
    assert rebuilt.digests() == given.digests()
    assert options.inner == "pdhg"
    with pytest.raises(ExecutorError, match=r"the starts are of blocc 99.0, but process"):
        starts._problem_of(replace(sent, token="", version="99.0"))
    with pytest.raises(ExecutorError, match="lower of the problem computes something else"):
        starts._problem_of(replace(sent, token="", digests={**sent.digests, "lower": ""}))
    assert starts._Work(starts.Starts(problem, Options(), StopRequest()), problem, STARTS[:, None]).check()[1] == ()


@pytest.mark.slow
def test_a_cluster_gives_the_same(here: MultiResult) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    settings = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        assert_same(here, solve_many(road(), STARTS, executor=client))
