"""The front door for many starts at once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Float, NDArray, PyTree
from blocc._lib.precision import double_precision
from blocc._lib.threads import single_blas_thread
from blocc.errors import OptionError
from blocc.multi_result import MultiResult
from blocc.options import OptionNumbers, Options, make_options
from blocc.outer.monitor import StopRequest, interruptible
from blocc.problem import BilevelProblem
from blocc.run.phases import Phases
from blocc.run.places import Places
from blocc.run.progress import Files, closing_report, make_report, with_remark
from blocc.run.single import Callback, Report
from blocc.run.variants import solve_batch
from blocc.sets import ConvexSet
from blocc.solve import check_arguments, start_in

#: Sizes of random starts along directions in which X has no end.
_SCALES = (1.0, 10.0, 3.0, 30.0)


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
    **numbers: Unpack[OptionNumbers],
) -> MultiResult:
    """Solve from many starts at once: those in ``x0s``, or ``starts`` random points of X drawn with ``seed``.

    Every start gets what :func:`solve` would give it, for less: compiled code is shared, many starts descend in one
    compiled loop, and a start that ends where another one did is not judged again. Returns every result, the best one
    and the places where they ended (``basins``). Random starts come from several scales along directions in which X has
    no end. ``time_limit`` is for all starts together; the other arguments, and the options by name, are those of
    :func:`solve`.
    """
    settings = make_options(preset, dict(numbers), options)
    check_arguments(problem, callback)
    with double_precision():
        points = _starts(problem, x0s, starts, settings.seed)
    recording = Files(checkpoint, resume, checkpoint_seconds).recording(problem, settings, points)
    request, report = StopRequest(), make_report(progress)
    with (
        double_precision(),
        single_blas_thread(problem.flat.n_y),
        interruptible(request),
        closing_report(report),
        closing(recording),
    ):
        known: dict[Any, tuple[BilevelProblem, Places]] = {}
        begun: list[float] = []

        def phases(target: BilevelProblem) -> Phases:
            # Problems that stand in for the given one are made anew for each start, on the same functions.
            key = id(target.shared), *(leaf.tobytes() for leaf in jax.tree.leaves(target.data))
            _, places = known.setdefault(key, (target, Places()))
            return Phases(target, settings, callback, report, recording, request, places, begun)

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
    point, middle = x_set.sample_flat(generator), x_set.interior_flat()
    low, high = x_set.bounds_flat()
    open_ended = ~(np.isfinite(low) & np.isfinite(high))
    if not open_ended.any():
        return point
    scale = np.where(open_ended, _SCALES[index % len(_SCALES)], 1.0)
    return np.asarray(x_set.project_flat(jnp.asarray(middle + scale * (point - middle))))
