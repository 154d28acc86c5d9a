"""The front door for many starts at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Unpack

import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Float, NDArray, PyTree
from blocc._lib.compiled import compile_seconds
from blocc._lib.precision import double_precision
from blocc._lib.threads import single_blas_thread
from blocc.errors import OptionError
from blocc.executors.work import Executor
from blocc.inner.choice import reformulated_for
from blocc.judge.convexity import with_convexity
from blocc.judge.jumps import with_jumps
from blocc.multi_result import MultiResult
from blocc.options import OptionNumbers, Options
from blocc.outer.monitor import StopRequest, interruptible
from blocc.presets import make_options
from blocc.problem import BilevelProblem
from blocc.run.progress import Files, closing_report, log_end, make_report, with_remark
from blocc.run.single import Callback, Report
from blocc.run.starts import Starts
from blocc.sets import ConvexSet
from blocc.solve import HasSet, check_arguments, check_leader, start_in

#: Sizes of random starts along directions in which X has no end.
_SCALES = (1.0, 10.0, 3.0, 30.0)
_MOST_STARTS = 1_000_000


def solve_many(
    problem: BilevelProblem,
    x0s: Sequence[PyTree] | np.ndarray | None = None,
    options: Options | None = None,
    *,
    starts: int | None = None,
    preset: str = "default",
    callback: Callback | None = None,
    progress: bool | Report | None = None,
    checkpoint: str | Path | None = None,
    resume: str | Path | None = None,
    checkpoint_seconds: float = 5.0,
    executor: str | Executor | Any = None,
    **numbers: Unpack[OptionNumbers],
) -> MultiResult:
    """Solve from many starts at once: those in ``x0s``, or ``starts`` random points of X drawn with ``seed``.

    Each gets what :func:`solve` would give it; compiled code is shared, and Algorithm 1 runs from all of them in one
    loop. Returns every result, the best one and where they ended (``basins``). Random starts come from several scales
    along directions in which X has no end. ``time_limit`` is for all starts together; the other
    arguments, and the options by name, are those of :func:`solve`.

    ``executor`` says who computes the starts: ``"processes"`` (as many as there
    are cores), ``"dask"``, an executor of :mod:`blocc.executors`, or a Dask client or cluster. The results are the
    same; a start whose worker dies is computed again. ``callback`` and checkpoints are for starts in this process.
    """
    request = StopRequest()  # what the user waits for begins here
    settings = make_options(preset, dict(numbers), options)
    check_arguments(problem, callback)
    check_leader(problem, settings)
    files = Files(checkpoint, resume, checkpoint_seconds)
    computing = _executor(executor, callback, files)
    given, problem = problem, reformulated_for(problem, settings.inner)
    with double_precision():
        points = starting_points(problem, x0s, starts, settings.seed)
    recording = files.recording(problem, settings, points)
    report, begun, compiled = make_report(progress), time.perf_counter(), compile_seconds()
    many = Starts(problem, settings, request, recording, callback, report)
    with (
        double_precision(),
        single_blas_thread(problem.flat.n_y),
        closing_report(report),
        closing(recording),
        interruptible(request),
    ):
        results = many.together(points)
        if computing is None:
            many.here(points, results)
        else:
            many.elsewhere(computing, points, results, given)
    compiling = compile_seconds() - compiled
    seconds = {"compile": compiling, "run": time.perf_counter() - begun - compiling}
    with double_precision(), single_blas_thread(problem.flat.n_y):
        ends = [with_jumps(problem, with_convexity(problem, one, settings.seed)) for one in results if one is not None]
    return MultiResult(tuple(log_end(with_remark(one, recording)) for one in ends), seconds)


def _executor(given: Any, callback: Callback | None, files: Files) -> Executor | None:
    """Who computes, checked; None for this process."""
    if given is None or given == "serial":
        return None
    from blocc.executors.choice import choose_executor

    computing = choose_executor(given)
    for name, unfit in (("callback", callback is not None), ("checkpoint and resume", files.wanted)):
        if unfit:
            raise OptionError(f"{name} needs starts that run in this process: leave out executor")
    return computing


def starting_points(
    problem: HasSet, x0s: Sequence[PyTree] | np.ndarray | None, starts: int | None, seed: int
) -> Float[NDArray, "starts n_x"]:
    """The starts as rows: those given, or random members of X."""
    if (x0s is None) == (starts is None):
        raise OptionError(
            "give either x0s (a sequence of starts) or starts=N (random starts), not both and not neither"
        )
    if starts is not None:
        if isinstance(starts, bool) or not isinstance(starts, (int, np.integer)) or starts < 1:
            raise OptionError(f"starts must be a positive integer, got {starts!r}")
        if starts > _MOST_STARTS:
            raise OptionError(f"starts must be at most {_MOST_STARTS:,}, got {starts!r}: each has a result of its own")
        generator = np.random.default_rng(seed)
        return np.stack([_random_start(problem.x_set, generator, index) for index in range(starts)])
    assert x0s is not None
    if not hasattr(x0s, "__len__") or isinstance(x0s, (str, dict)) or (hasattr(x0s, "ndim") and x0s.ndim == 0):
        kind = type(x0s).__name__
        raise OptionError(f"x0s must be a sequence of starts or an array with a row for each, got {kind}")
    if len(x0s) == 0:
        raise OptionError("x0s is empty: give at least one start")
    return np.stack([start_in(problem, x0, name=f"x0s[{index}]") for index, x0 in enumerate(x0s)])


def _random_start(x_set: ConvexSet, generator: np.random.Generator, index: int) -> Float[NDArray, "n_x"]:
    """A random member of X; where X has no bounds, from one of several scales in turn."""
    point = x_set.sample_flat(generator)
    low, high = x_set.bounds_flat()
    open_ended = ~(np.isfinite(low) & np.isfinite(high))
    if not open_ended.any():
        return point
    middle = x_set.interior_flat()
    scale = np.where(open_ended, _SCALES[index % len(_SCALES)], 1.0)
    return np.asarray(x_set.project_flat(jnp.asarray(middle + scale * (point - middle))))
