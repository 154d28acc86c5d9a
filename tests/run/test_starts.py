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
from blocc.result import Result
from blocc.run import starts
from blocc.run.places import Descent, End, Places

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
    assert found.counts["merged"] == here.counts["merged"] >= 1
    assert here.counts["evaluations_saved"] > 0


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


# --- what is known of other starts -----------------------------------------------------------------------------------
def result(base: Result, value: float, status: Status = Status.CONVERGED, evaluations: int = 10) -> Result:
    certificate = replace(base.certificate, exact=True)
    counts = {"evaluations": evaluations}
    return replace(base, upper_value=value, status=status, certificate=certificate, counts=counts, x=np.array(value))


def at(found: Result, x: float | list[float], best: float = np.inf, onward: bool = True) -> End:
    return End(replace(found, x=np.asarray(x)), best, onward=onward)


def test_a_stalled_start_that_is_clearly_worse_is_given_up(here: MultiResult) -> None:
    places = Places()
    best, poor, close = (result(here[0], value) for value in (-10.0, -3.0, -9.95))
    assert places.settle(Descent(best, (at(best, 1.0),), final=best)) is best
    stalled = replace(poor, status=Status.STALLED)
    given_up = places.settle(Descent(poor, (at(poor, 2.0),), stalled, 1, poor))
    assert given_up is not None
    assert given_up.counts["given_up"] == 1
    assert given_up.status is Status.STALLED
    assert "clearly better" in given_up.message
    assert places.settle(Descent(poor, (at(poor, 3.0),), poor, 1, poor)) is poor  # a success is never given up
    nearly = replace(close, status=Status.STALLED)
    assert places.settle(Descent(close, (at(close, 4.0),), nearly, 1, close)) is close
    assert places.settle(Descent(close, (at(close, 5.0),), nearly, 1, None)) is None  # followed not far enough
    merged = places.settle(Descent(close, (at(close, 1.0 + 1e-5),)))
    assert merged is not None
    assert (merged.upper_value, merged.counts["merged"]) == (-10.0, 1)
    assert "an earlier start came to the same place" in merged.message
    light = places.light()
    assert light.known(at(best, 1.0))
    assert not light.known(at(poor, 2.0))  # another start may fare better where this one was given up
    assert light.hopeless(stalled)
    assert not light.known(at(poor, 7.0))


def test_where_later_phases_end_is_known_too(here: MultiResult) -> None:
    """A start comes, by an attempt after its first phase, to where another one began to go on, and shares its end."""
    places = Places()
    poor, good = (result(here[0], value, evaluations=spent) for value, spent in ((-3.0, 10), (-8.0, 90)))
    on_the_way = replace(poor, counts={"evaluations": 40})
    ends = (at(poor, 1.0), at(on_the_way, 2.0, best=-3.0), at(on_the_way, 3.0, best=-3.0, onward=False))
    assert places.settle(Descent(poor, ends, final=good)) is good
    assert places.known(at(poor, 2.0))
    assert places.known(at(good, -8.0))  # where it ended
    assert not places.known(at(poor, 3.0))  # nothing came of that
    assert not places.known(at(poor, 2.0, best=-9.0))  # this start has been at a better place than all that came
    assert not places.known(at(replace(poor, status=Status.TIME_LIMIT), 2.0))  # stopped on its way, not ended
    merged = places.settle(Descent(poor, (at(poor, 5.0), at(on_the_way, 2.0, best=-3.0))))
    assert merged is not None
    assert (merged.upper_value, merged.counts) == (-8.0, {"evaluations": 40, "merged": 1, "evaluations_saved": 50})


def test_the_order_of_what_ends_a_start_is_kept(here: MultiResult) -> None:
    """Given up before anything dear was tried, even where that, tried elsewhere, has led to a known place."""
    places = Places()
    best, poor = (result(here[0], value) for value in (-10.0, -3.0))
    places.settle(Descent(best, (at(best, 1.0),), final=best))
    stalled = replace(poor, status=Status.STALLED)
    told = Descent(poor, (at(poor, 2.0), at(poor, 1.0, best=-3.0)), stalled, 1, best)
    given_up = places.settle(told)
    assert given_up is not None
    assert given_up.counts["given_up"] == 1
    cheap = places.settle(replace(told, cheap=2))
    assert cheap is not None
    assert cheap.counts["merged"] == 1


def test_a_plateau_is_one_place(here: MultiResult) -> None:
    places, ends = Places(), [np.array([1.0, 9.0]), np.array([1.0, 4.0]), np.array([2.0, 9.0])]
    on_top, beside, other = (replace(result(here[0], -5.0), x=x, y=np.array([1.0, 0.0])) for x in ends)
    places.settle(Descent(on_top, (End(on_top, flat=(1,)),), final=on_top, flat=(1,)))
    assert places.known(End(beside))
    assert not places.known(End(replace(beside, upper_value=-4.0)))
    assert not places.known(End(replace(beside, y=np.array([0.0, 1.0]))))
    assert not places.known(End(other))  # that entry matters


@pytest.mark.slow
def test_a_cluster_gives_the_same(here: MultiResult) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    settings = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        assert_same(here, solve_many(road(), STARTS, executor=client))
