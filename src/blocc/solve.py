"""The front door: checks what it is given, runs it, and returns a judged result.

A failure is a status and a sentence, never an answer that looks like success. Many starts: :mod:`blocc.solve_many`.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol, Unpack, overload

import numpy as np

from blocc._lib.arrays import Float, NDArray, PyTree
from blocc._lib.compiled import compile_seconds
from blocc._lib.precision import double_precision
from blocc._lib.threads import single_blas_thread
from blocc._lib.tracing import holds_tracers, is_traced
from blocc.errors import OptionError
from blocc.inner.choice import reformulated_for
from blocc.judge.convexity import with_convexity
from blocc.judge.jumps import with_jumps
from blocc.options import OptionNumbers, Options
from blocc.outer.monitor import StopRequest, interruptible
from blocc.presets import make_options
from blocc.problem import BilevelProblem
from blocc.result import Result
from blocc.run.conclude import joined_multipliers
from blocc.run.driver import Driver
from blocc.run.finishing import Known
from blocc.run.progress import Files, closing_report, log_end, make_report, with_remark
from blocc.run.single import Callback, Report
from blocc.run.variants import solve_single
from blocc.sets import ConvexSet


@overload
def solve(
    problem: BilevelProblem,
    x0: PyTree | None = None,
    options: Options | None = None,
    *,
    start: Result | None = None,
    method: Literal["blocc"] = "blocc",
    preset: str = "default",
    callback: Callback | None = None,
    progress: bool | Report | None = None,
    verbose: bool = False,
    checkpoint: str | Path | None = None,
    resume: str | Path | None = None,
    checkpoint_seconds: float = 5.0,
    **numbers: Unpack[OptionNumbers],
) -> Result: ...


@overload
def solve(
    problem: BilevelProblem,
    x0: PyTree | None = None,
    options: Options | None = None,
    *,
    start: Result | None = None,
    method: Any,
    preset: str = "default",
    callback: Callback | None = None,
    progress: bool | Report | None = None,
    verbose: bool = False,
    checkpoint: str | Path | None = None,
    resume: str | Path | None = None,
    checkpoint_seconds: float = 5.0,
    **numbers: Any,
) -> Result: ...


def solve(
    problem: BilevelProblem,
    x0: PyTree | None = None,
    options: Options | None = None,
    *,
    start: Result | None = None,
    method: Any = "blocc",
    preset: str = "default",
    callback: Callback | None = None,
    progress: bool | Report | None = None,
    verbose: bool = False,
    checkpoint: str | Path | None = None,
    resume: str | Path | None = None,
    checkpoint_seconds: float = 5.0,
    **numbers: Any,
) -> Result:
    """Solve a bilevel problem from ``x0`` (or from the middle of X) and return a certified :class:`Result`.

    ``options`` is an :class:`~blocc.options.Options`; its fields may be given by name instead, or as well.
    ``method`` is blocc's own, or another of the field (:mod:`blocc.methods`), which is judged in the same way and
    takes its own numbers by name; or one of yours, a :class:`blocc.methods.Method`. ``callback(state)`` is called
    after every outer iteration and stops the run by returning True. A run of more than half a second shows a live
    line on a terminal's standard error (``progress=False`` never, ``True`` always); ``verbose=True`` prints a table of
    the iterations in its place. Ctrl-C, a callback or the time
    limit end the run with the best point so far.

    ``start`` is a result to go on from, of this problem or of one that differs a little (other data, say): its x, y,
    multipliers and active set are where f(x, y(x)) descends first, and if that ends well nothing else is tried.

    ``checkpoint`` names a file that the run keeps itself in, every ``checkpoint_seconds`` at most and at its end;
    ``resume`` names one to continue from, with the same problem, start and options (``time_limit`` may differ, and
    counts anew). A resumed run goes on as if it had never stopped, and keeps itself in the same file unless
    ``checkpoint`` names another.

    Options by name (:class:`~blocc.options.Options` tells more): ``gamma``, the penalty weight, or "auto"; ``inner``,
    the solver of the lower level; ``outer``, "auto" or Algorithm 1 ("pgd") with its ``step``, ``stop`` and
    ``inner_start``; ``tolerance`` and ``inner_tolerance``; ``max_iterations``; ``time_limit`` in seconds; ``seed``.
    ``preset`` is "default", or a name of :mod:`blocc.presets`: published numbers for Algorithm 1.

    To cite blocc's own method (the classes in :mod:`blocc.methods` tell how to cite the others):

        @inproceedings{jiang2024primal,
          title = {A Primal-Dual-Assisted Penalty Approach to Bilevel Optimization with Coupled Constraints},
          author = {Jiang, Liuyuan and Xiao, Quan and Tenorio, Victor M. and Real-Rojas, Fernando and
            Marques, Antonio G. and Chen, Tianyi},
          booktitle = {Advances in Neural Information Processing Systems}, volume = {37}, year = {2024}}
    """
    request, begun, compiled = StopRequest(), time.perf_counter(), compile_seconds()  # the user waits from here on
    check_arguments(problem, callback)
    files = Files(checkpoint, resume, checkpoint_seconds)
    report = make_report(progress, verbose)
    if not (isinstance(method, str) and method == "blocc"):
        if options is not None:
            raise OptionError("options is for method 'blocc'; give the numbers of another method by name")
        return _by_other_method(problem, begin_at(problem, x0, start), method, preset, numbers, callback, report, files)
    if numbers.pop("batches", None) is not None:
        raise OptionError("method 'blocc' takes all data in every step; batches is for method='stochastic'")
    settings = make_options(preset, numbers, options)
    check_leader(problem, settings)
    problem = reformulated_for(problem, settings.inner)
    begin = begin_at(problem, x0, start)
    recording = files.recording(problem, settings, begin)
    with (
        double_precision(),
        single_blas_thread(problem.flat.n_y),
        interruptible(request),
        closing_report(report),
        closing(recording),
    ):

        def driver(target: BilevelProblem) -> Driver:
            known = None if start is None or target is not problem else known_of(problem, start)
            return Driver(target, settings, callback, report, recording, request, known=known)

        result = with_convexity(problem, solve_single(problem, settings, driver, begin), settings.seed)
    compiling = compile_seconds() - compiled
    seconds = {"compile": compiling, "run": time.perf_counter() - begun + recording.earlier - compiling}
    return log_end(with_remark(with_jumps(problem, replace(result, seconds=seconds)), recording))


def _by_other_method(
    problem: BilevelProblem,
    start: Float[NDArray, "n_x"],
    method: Any,
    preset: str,
    numbers: dict[str, Any],
    callback: Callback | None,
    report: Report | None,
    files: Files,
) -> Result:
    from blocc.methods.registry import name_of, prepare, run_method  # that room stands on this one

    run = prepare(problem, method, preset, numbers, callback, report)
    if files.wanted:
        numbers = {**run.method.given, **run.method.counts, **run.method.described}
        described = {"method": name_of(method), **vars(run.options), **numbers}
        run = run.continuing(files.recording(problem, described, start))
    with (
        double_precision(),
        single_blas_thread(problem.flat.n_y),
        interruptible(run.monitor.request),
        closing_report(run.monitor.report),
        closing(run.recording),
    ):
        result = run_method(run, start)
    return log_end(with_remark(with_jumps(problem, result), run.recording))


def check_arguments(problem: Any, callback: Any) -> None:
    """A problem and a callback before any work."""
    if not isinstance(problem, BilevelProblem):
        raise OptionError(f"problem must be a BilevelProblem, got {type(problem).__name__}")
    if callback is not None and not callable(callback):
        raise OptionError(f"callback must be a function of the state, got {type(callback).__name__}")
    if is_traced():
        raise OptionError(
            "solve cannot run while JAX traces the program around it (jax.jit): use "
            "blocc.solve_differentiable(problem, data) there"
        )
    problem.renew()  # values that its functions have captured may have changed since they were compiled


def check_leader(problem: BilevelProblem, settings: Options) -> None:
    """Refuse rows of the leader's own where the method has no line for them."""
    if settings.outer == "pgd" and problem.flat.n_upper_inequality:
        raise OptionError(
            "outer='pgd' is Algorithm 1 of the paper, which knows no upper_inequality and would ignore it: leave "
            "outer='auto' (with preset='default'), or put rows of x alone into x_set"
        )


def begin_at(problem: BilevelProblem, x0: PyTree | None, start: Result | None) -> Float[NDArray, "n_x"]:
    """Where a run begins: at a start, or at an earlier result, whose x is moved into X."""
    if start is None:
        return start_in(problem, x0)
    if x0 is not None:
        raise OptionError("give either x0 or start, not both")
    if not isinstance(start, Result):
        raise OptionError(f"start must be a Result, got {type(start).__name__}; give a point as x0")
    return problem.x_set.nearest_flat(problem.x_set.ravel(start.x, "start.x"))


def known_of(problem: BilevelProblem, start: Result) -> Known | None:
    """An earlier result as what a run can go on from; None if its y or its multipliers are of another follower."""
    y = problem.y_set.ravel(start.y, "start.y")
    prices = joined_multipliers(start)
    flat = problem.flat
    if (len(prices.inequality), len(prices.equality), len(y)) != (flat.n_inequality, flat.n_equality, flat.n_y):
        return None
    x = problem.x_set.nearest_flat(problem.x_set.ravel(start.x, "start.x"))
    return Known(x, y, np.asarray(prices.inequality), np.asarray(prices.equality))


class HasSet(Protocol):
    """What a start needs to know of a problem."""

    @property
    def x_set(self) -> ConvexSet:
        """Where the leader's decisions lie."""


def start_in(problem: HasSet, x0: PyTree | None, name: str = "x0") -> Float[NDArray, "n_x"]:
    """Flatten a start and make sure that it lies in X."""
    if x0 is None:
        return problem.x_set.interior_flat()
    if holds_tracers(x0):
        raise OptionError(
            f"{name} is being traced by JAX (jax.grad, jax.jit or jax.vmap), and a start must be numbers: the answer "
            "is no smooth function of it, only of the data, through blocc.solve_differentiable(problem, data)"
        )
    flat = problem.x_set.ravel(x0, name)
    if not np.isfinite(flat).all():
        raise OptionError(f"{name} must be finite")
    nearest = problem.x_set.nearest_flat(flat)
    away = float(np.linalg.norm(nearest - flat))
    if away > 1e-7 * (1.0 + float(np.abs(flat).max(initial=0.0))):
        raise OptionError(
            f"{name} lies outside x_set, {away:.3g} away from it; the nearest member is problem.x_set.project({name})"
        )
    return nearest
