"""The front door: chooses the methods, runs them, and judges what came out.

:func:`solve` runs one start, :func:`solve_many` many at once. Both return certified results; a failure is a status and
a sentence, never an answer that looks like success.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from blocc._lib.precision import double_precision
from blocc.errors import OptionError
from blocc.inner.choice import choose_oracles
from blocc.options import Options, make_options
from blocc.outer.evaluator import PenaltyFunction
from blocc.outer.monitor import Monitor, StopRequest, interruptible
from blocc.outer.nonsmooth.relaxation import AMOUNTS, agreed, relaxed
from blocc.outer.nonsmooth.smoothing import kinks_of, named, smoothed
from blocc.problem import BilevelProblem
from blocc.result import MultiResult, Result, Status
from blocc.resume.file import open_journal
from blocc.resume.recording import Journal
from blocc.run.conclude import NO_ROOM, restated
from blocc.run.descents import Callback, Report
from blocc.run.phase import ENDED
from blocc.run.phases import Legs
from blocc.sets import PyTree


def solve(
    problem: BilevelProblem,
    x0: PyTree | None = None,
    *,
    method: str = "blocc",
    preset: str = "default",
    callback: Callback | None = None,
    progress: bool | Report | None = None,
    checkpoint: str | Path | None = None,
    resume: str | Path | None = None,
    checkpoint_seconds: float = 5.0,
    **options: Any,
) -> Result:
    """Solve a bilevel problem from ``x0`` (or from the middle of X) and return a certified :class:`Result`.

    ``method`` is blocc's own, or another of the field (:mod:`blocc.methods`), which is judged in the same way.
    ``options`` are the fields of :class:`~blocc.options.Options`, or the numbers of the other method.
    ``callback(state)`` is called after every outer iteration and stops the run by returning True. A run of more than
    half a second shows a live line on a terminal's standard error (``progress=False`` never, ``True`` always). Ctrl-C,
    a callback or the time limit end the run with the best point so far.

    ``checkpoint`` names a file that the run keeps itself in, every ``checkpoint_seconds`` at most and at its end;
    ``resume`` names one to continue from, with the same problem, start and options (``time_limit`` may differ, and
    counts anew). A resumed run goes on as if it had never stopped, and keeps itself in the same file unless
    ``checkpoint`` names another.
    """
    _check(problem, callback)
    files = _Files(checkpoint, resume, checkpoint_seconds)
    if method != "blocc":
        return _by_other_method(problem, x0, method, preset, callback, progress, files, options)
    settings = make_options(preset, options)
    start, report = start_in(problem, x0), _reporter(progress)
    journal = files.journal(problem, settings, start)
    request = StopRequest()
    with double_precision(), interruptible(request), _closing(report), closing(journal):

        def legs(target: BilevelProblem) -> Legs:
            return Legs(target, settings, callback, report, journal, request)

        result = _judged(problem, settings, legs, start)
    return _remarked(result, journal)


def _judged(
    problem: BilevelProblem, settings: Options, legs: Callable[[BilevelProblem], Legs], start: np.ndarray
) -> Result:
    """One start; functions with kinks in y are tried with rounded corners as well."""
    plain: Result | None = None
    for rounded in _rounding(problem, settings):
        if not rounded:
            plain = result = legs(problem).single(start)
        else:
            result = restated(problem, legs(smoothed(problem)).single(start), kinks_of(problem))
        if result.success or result.status in ENDED:
            return result
    assert plain is not None
    if _without_room(problem, settings, plain):
        return agreed(*(legs(relaxed(problem, amount)).single(start) for amount in AMOUNTS))
    return plain if not kinks_of(problem) else replace(plain, message=f"{plain.message} {_advice(problem)}")


def _without_room(problem: BilevelProblem, settings: Options, plain: Result) -> bool:
    """Whether a run came to nothing because the follower's inequalities leave no room where it ended."""
    given = problem.oracle is not None or not isinstance(settings.gamma, str)
    if given or problem.inequality is None or plain.status not in (Status.STALLED, Status.INFEASIBLE, Status.UNBOUNDED):
        return False
    monitor = Monitor(problem.x_set.unravel)
    function = PenaltyFunction(problem.flat, choose_oracles(problem, "auto"), problem.cache, monitor)
    found = function.violation(problem.x_set.ravel(plain.x))
    return bool(found.solved) and abs(float(found.value)) <= NO_ROOM


def _rounding(problem: BilevelProblem, settings: Options) -> tuple[bool, ...]:
    """With rounded corners or without, in the order of their promise."""
    own_way = problem.oracle is not None or isinstance(settings.gamma, float) or settings.outer == "pgd"
    kinks = {} if own_way else kinks_of(problem)
    if not kinks:
        return (False,)
    return (True, False) if set().union(*kinks.values()) - {"where"} else (False, True)


def _advice(problem: BilevelProblem) -> str:
    return (
        f"These functions have kinks in y, which may be why: {named(kinks_of(problem))}. Where one is convex, a "
        "variable t of the follower's with t >= z and t >= -z can stand for abs(z)."
    )


def _by_other_method(
    problem: BilevelProblem,
    x0: PyTree | None,
    method: str,
    preset: str,
    callback: Callback | None,
    progress: bool | Report | None,
    files: _Files,
    options: dict[str, Any],
) -> Result:
    from blocc.methods.registry import prepare, run_method  # that room stands on this one

    start = start_in(problem, x0)
    run = prepare(problem, method, preset, options, callback, _reporter(progress))
    if files.wanted:
        described = {"method": method, **vars(run.options), **run.method.given, **run.method.counts}
        run = run.continuing(files.journal(problem, described, start))
    journal = run.monitor.journal
    with double_precision(), interruptible(run.monitor.request), _closing(run.monitor.report), closing(journal):
        result = run_method(run, start)
    return _remarked(result, journal)


def solve_many(
    problem: BilevelProblem,
    x0s: Sequence[PyTree] | np.ndarray | None = None,
    *,
    starts: int | None = None,
    preset: str = "default",
    callback: Callback | None = None,
    progress: bool | Report | None = None,
    checkpoint: str | Path | None = None,
    resume: str | Path | None = None,
    checkpoint_seconds: float = 5.0,
    **options: Any,
) -> MultiResult:
    """Solve from many starts at once: those in ``x0s``, or ``starts`` random points of X drawn with ``seed``.

    All starts run in one compiled, batched loop; a start that the batch leaves short of the tolerance is finished on
    its own. Returns every result and the best. ``checkpoint`` and ``resume`` are those of :func:`solve`.
    """
    settings = make_options(preset, options)
    _check(problem, callback)
    if (x0s is None) == (starts is None):
        raise OptionError(
            "give either x0s (a sequence of starts) or starts=N (random starts), not both and not neither"
        )
    if starts is not None:
        if not isinstance(starts, (int, np.integer)) or starts < 1:
            raise OptionError(f"starts must be a positive integer, got {starts!r}")
        generator = np.random.default_rng(settings.seed)
        points = np.stack([problem.x_set.sample_flat(generator) for _ in range(starts)])
    else:
        assert x0s is not None
        if not hasattr(x0s, "__len__") or isinstance(x0s, (str, dict)) or (hasattr(x0s, "ndim") and x0s.ndim == 0):
            kind = type(x0s).__name__
            raise OptionError(f"x0s must be a sequence of starts or an array with a row for each, got {kind}")
        if len(x0s) == 0:
            raise OptionError("x0s is empty: give at least one start")
        points = np.stack([start_in(problem, x0, name=f"x0s[{index}]") for index, x0 in enumerate(x0s)])
    journal = _Files(checkpoint, resume, checkpoint_seconds).journal(problem, settings, points)
    request, report = StopRequest(), _reporter(progress)
    with double_precision(), interruptible(request), _closing(report), closing(journal):
        rounded = _rounding(problem, settings)[0]
        target = smoothed(problem) if rounded else problem
        found = Legs(target, settings, callback, report, journal, request).many(points)
        if rounded:
            kinks = kinks_of(problem)
            found = replace(found, results=tuple(restated(problem, result, kinks) for result in found.results))
    return replace(found, results=tuple(_remarked(result, journal) for result in found.results))


class _Files(NamedTuple):
    """Where a run keeps itself."""

    checkpoint: str | Path | None
    resume: str | Path | None
    seconds: float

    @property
    def wanted(self) -> bool:
        return self.checkpoint is not None or self.resume is not None

    def journal(self, problem: BilevelProblem, settings: Options | dict[str, Any], starts: np.ndarray) -> Journal:
        described = {"method": "blocc", **settings.described()} if isinstance(settings, Options) else settings
        return open_journal(problem, described, starts, *self)


def _remarked(result: Result, journal: Journal) -> Result:
    """The result, with a sentence about a checkpoint that is not as it should be."""
    remark = journal.remark()
    return replace(result, message=result.message + remark) if remark else result


def _check(problem: Any, callback: Any) -> None:
    if not isinstance(problem, BilevelProblem):
        raise OptionError(f"problem must be a BilevelProblem, got {type(problem).__name__}")
    if callback is not None and not callable(callback):
        raise OptionError(f"callback must be a function of the state, got {type(callback).__name__}")
    problem.renew()  # values that its functions have captured may have changed since they were compiled


def start_in(problem: BilevelProblem, x0: PyTree | None, name: str = "x0") -> np.ndarray:
    """Flatten a start and make sure that it lies in X."""
    if x0 is None:
        return problem.x_set.interior_flat()
    flat = problem.x_set.ravel(x0, name)
    if not np.isfinite(flat).all():
        raise OptionError(f"{name} must be finite")
    if not problem.x_set.contains(x0, 1e-7):
        away = problem.x_set.distance(x0)
        raise OptionError(
            f"{name} lies outside x_set, {away:.3g} away from it; the nearest member is problem.x_set.project({name})"
        )
    return np.asarray(problem.x_set.ravel(problem.x_set.project(x0)))


def _reporter(progress: bool | Report | None) -> Report | None:
    if callable(progress):
        return progress
    if progress or (progress is None and sys.stderr.isatty()):
        from blocc.report.progress import ProgressLine

        return ProgressLine()
    return None


@contextmanager
def _closing(report: Report | None) -> Iterator[None]:
    """Wipe the live line at the end, whatever the end is."""
    try:
        yield
    finally:
        close = getattr(report, "close", None)
        if close is not None:
            close()
