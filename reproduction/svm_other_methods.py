"""LV-HBA and GAM on splits of a data set, compiled once for all of them.

A solve of a new problem compiles for ten seconds, and every split is a new problem. Splits differ in numbers alone, so
here the samples are arguments of the compiled steps, and the exact answers come from the solver of the margins, which
is shared in the same way. The steps themselves are those of :mod:`blocc.methods`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import fields
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, Float, Int
from blocc._lib.compiled import Store, compile_seconds
from blocc._lib.precision import double_precision
from blocc.flat_problem import FlatProblem
from blocc.methods.base import Size
from blocc.methods.gam import Gam
from blocc.methods.single_loop import HbaState, LvHba
from blocc.outer.monitor import Monitor
from blocc.sets import Box, Reals
from blocc.studies.study import Row
from blocc.svm.leader import project_margins
from reproduction.svm_runs import CONVERGED, LIMIT, UPDATE, Classifier, Margins, Split, Trajectory, row_of

#: The published code's b^2 / 2 below; without it GAM's matrix is singular wherever w = 0 is best.
INTERCEPT_WEIGHT = 1.0
#: What LV-HBA chooses by itself on the first split of each data set, by trials that take longer than all the rest.
_CHOSEN = {"beta": 0.5, "gamma1": 100.0, "gamma2": 1.0, "c0": 0.1, "p": 0.49, "r": 1e6}
LV_HBA_NUMBERS = {
    "diabetes": {"alpha": 7.67e-4, "eta": 0.0121, **_CHOSEN},
    "fourclass": {"alpha": 2.16e-3, "eta": 0.0202, **_CHOSEN},
}
#: Iterations of LV-HBA between two looks at it: few at first, where the curves change most.
FIRST_LOOK, LONGEST_LOOK = 1, 20
SINGULAR = "singular matrix"
TOLERANCE = 1e-3  #: the default of every method of the package

_stores = Store()  #: of compiled programs, for each shape of the samples


class Samples(NamedTuple):
    """Signed rows, in the units of the data set."""

    rows: Float[AnyArray, "train weights"]
    validation: Float[AnyArray, "validation weights"]


def margins_problem(samples: Samples) -> FlatProblem:
    """The paper's problem over samples that may be traced; ``svm_problem`` is the same over given ones."""
    count, width = samples.rows.shape
    ridge = np.append(np.ones(width - 1), INTERCEPT_WEIGHT)
    nothing = lambda c, y: jnp.zeros(0)  # noqa: E731
    return FlatProblem(
        upper=lambda c, y: jnp.sum(jnp.exp(1.0 - samples.validation @ y)) + 0.5 * jnp.sum(c**2),
        lower=lambda c, y: 0.5 * jnp.sum(ridge * y**2),
        inequality=lambda c, y: jnp.asarray(1.0 - c - samples.rows @ y),
        equality=nothing,
        upper_inequality=nothing,
        x_set=Box.nonnegative(count),
        y_set=Reals(width),
        n_inequality=count,
        n_equality=0,
        n_upper_inequality=0,
        joint_projection=lambda c, y: project_margins(samples.rows, jnp.asarray(c), jnp.asarray(y)),
        data=samples,
        store=_stores.get((samples.rows.shape, samples.validation.shape), Store),
        rebind=margins_problem,
    )


def run_lv_hba(dataset: str, preset: str, seed: int, max_iterations: int) -> Row:
    """LV-HBA from the published start until the upper objective settles by the paper's rule, or to the limit."""
    split, samples = _draw(dataset, seed)
    numbers = LV_HBA_NUMBERS[dataset] if preset == "default" else LvHba.presets[preset]
    trajectory = Trajectory(split)
    with double_precision():
        flat = margins_problem(samples)
        first = split.follower(split.start)[0]
        state = LvHba().start(flat, jnp.asarray(split.start), jnp.asarray(first))
        advance = flat.program(_advance)
        began = _clock()
        done, look, ended = 0, FIRST_LOOK, LIMIT
        while done < max_iterations:
            count = min(look, max_iterations - done)
            state, update = advance(dict(numbers), state, done, count)
            done, look = done + count, min(look + 1, LONGEST_LOOK)
            c, y = np.asarray(state.x), np.asarray(state.y)
            trajectory.note(done, c, y)
            if float(update) < UPDATE:
                ended = CONVERGED
                break
        seconds = _clock() - began
    return row_of(split, c, y, trajectory, ended=ended, iterations=done, seconds=seconds)


def _advance(
    flat: FlatProblem,
    numbers: Mapping[str, Float[Array, ""]],
    state: HbaState,
    first: Int[Array, ""],
    count: Int[Array, ""],
) -> tuple[HbaState, Float[Array, ""]]:
    """``count`` steps from the step ``first`` on; and how much the last one changed the upper objective."""
    method = LvHba()

    def step(i: Int[Array, ""], carried: tuple[HbaState, Float[Array, ""]]) -> tuple[HbaState, Float[Array, ""]]:
        before, _ = carried
        after = method.step(flat, numbers, before, first + i)
        return after, jnp.abs(flat.upper(after.x, after.y) - flat.upper(before.x, before.y))

    return jax.lax.fori_loop(0, count, step, (state, jnp.asarray(jnp.inf)))


def run_gam(dataset: str, preset: str, seed: int, max_iterations: int) -> Row:
    """GAM from the published start."""
    split, samples = _draw(dataset, seed)
    numbers = Gam().automatic(_size_of(split.start))[0] if preset == "default" else Gam.presets[preset]
    run = _GamRun(split, samples, Gam(dict(numbers)), max_iterations)
    with double_precision():
        began = _clock()
        c, y = run.method.drive(run, split.start, run.last[1])
        seconds = _clock() - began
    ended = SINGULAR if run.trouble else LIMIT if run.iterations >= max_iterations else CONVERGED
    return row_of(split, c, y, run.trajectory, ended=ended, iterations=run.iterations, seconds=seconds)


class _GamRun:
    """What :meth:`Gam.drive` asks of a run, answered by the solver of the margins."""

    def __init__(self, split: Split, samples: Samples, method: Gam, max_iterations: int) -> None:
        self.split, self.method, self.trajectory = split, method, Trajectory(split)
        self.options = SimpleNamespace(tolerance=TOLERANCE, max_iterations=max_iterations)
        self.monitor = Monitor(lambda c: c)
        self.evaluator = SimpleNamespace(project=lambda c: np.maximum(c, 0.0))
        self.last = (split.start, split.follower(split.start)[0])
        self.iterations, self.trouble = 0, ""
        self.numbers: dict[str, float] = {}
        self.flat = margins_problem(samples)

    def candidates(self, x: Margins, y: Classifier) -> list[dict[str, float]]:
        """The numbers that were given: all of them."""
        return [dict(self.method.given)]

    def follower(self, c: Margins) -> Any:
        """The exact answer."""
        y, prices, found = self.split.follower(c)
        return SimpleNamespace(y=y, multipliers=(prices, np.zeros(0)), residuals=(np.asarray(found.error),))

    def upper(self, c: Margins, y: Classifier) -> float:
        """The upper objective."""
        return self.split.problem.upper(c, y)

    def record(self, c: Margins, y: Classifier, k: int, step: float) -> None:
        """One iteration is over."""
        self.trajectory.note(k, c, y)


def _clock() -> float:
    """Seconds, without those of compilation."""
    return time.perf_counter() - compile_seconds()


def _size_of(start: Margins) -> Size:
    """Of all sizes GAM's numbers need that of x alone."""
    unknown = dict.fromkeys((part.name for part in fields(Size)), np.nan)
    return Size(**{**unknown, "x": 1.0 + float(np.linalg.norm(start))})


def _draw(dataset: str, seed: int) -> tuple[Split, Samples]:
    split = Split.draw(dataset, seed, "squared", INTERCEPT_WEIGHT)
    return split, Samples(split.problem.rows, split.problem.validation)
