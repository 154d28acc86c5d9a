"""The front door for many starts at once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from blocc._lib.arrays import Float, NDArray, PyTree
from blocc._lib.precision import double_precision
from blocc.errors import OptionError
from blocc.multi_result import MultiResult
from blocc.options import Options, make_options
from blocc.outer.monitor import StopRequest, interruptible
from blocc.problem import BilevelProblem
from blocc.run.phases import Phases
from blocc.run.progress import Files, closing_report, make_report, with_remark
from blocc.run.single import Callback, Report
from blocc.run.variants import solve_batch
from blocc.solve import check_arguments, start_in


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
    **numbers: Any,
) -> MultiResult:
    """Solve from many starts at once: those in ``x0s``, or ``starts`` random points of X drawn with ``seed``.

    All starts run in one compiled, batched loop; a start that the batch leaves short of the tolerance is finished on
    its own. Returns every result and the best. The other arguments are those of :func:`solve`.
    """
    settings = make_options(preset, numbers, options)
    check_arguments(problem, callback)
    points = _starts(problem, x0s, starts, settings.seed)
    recording = Files(checkpoint, resume, checkpoint_seconds).recording(problem, settings, points)
    request, report = StopRequest(), make_report(progress)
    with double_precision(), interruptible(request), closing_report(report), closing(recording):

        def phases(target: BilevelProblem) -> Phases:
            return Phases(target, settings, callback, report, recording, request)

        found = solve_batch(problem, settings, phases, points)
    return replace(found, results=tuple(with_remark(result, recording) for result in found.results))


def _starts(
    problem: BilevelProblem, x0s: Sequence[PyTree] | np.ndarray | None, starts: int | None, seed: int
) -> Float[NDArray, "starts n_x"]:
    """The starts as rows: those given, or random members of X."""
    if (x0s is None) == (starts is None):
        raise OptionError(
            "give either x0s (a sequence of starts) or starts=N (random starts), not both and not neither"
        )
    if starts is not None:
        if not isinstance(starts, (int, np.integer)) or starts < 1:
            raise OptionError(f"starts must be a positive integer, got {starts!r}")
        generator = np.random.default_rng(seed)
        return np.stack([problem.x_set.sample_flat(generator) for _ in range(starts)])
    assert x0s is not None
    if not hasattr(x0s, "__len__") or isinstance(x0s, (str, dict)) or (hasattr(x0s, "ndim") and x0s.ndim == 0):
        kind = type(x0s).__name__
        raise OptionError(f"x0s must be a sequence of starts or an array with a row for each, got {kind}")
    if len(x0s) == 0:
        raise OptionError("x0s is empty: give at least one start")
    return np.stack([start_in(problem, x0, name=f"x0s[{index}]") for index, x0 in enumerate(x0s)])
