"""LV-HBA on splits of a data set, compiled once for all of them.

A solve of a new problem compiles for ten seconds, and every split is a new problem. Splits differ in numbers alone, so
here the samples are arguments of the compiled steps, and the exact answers come from the solver of the margins, which
is shared in the same way. The steps themselves are those of :mod:`blocc.methods`.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Float
from blocc._lib.compiled import Store, compile_seconds
from blocc._lib.precision import double_precision
from blocc.flat_problem import FlatProblem
from blocc.methods.single_loop import LvHba
from blocc.sets import Box, Reals
from blocc.studies.study import Row
from blocc.svm.leader import project_margins
from reproduction.lv_hba_steps import advance_lv_hba
from reproduction.svm_runs import Split, Trajectory, row_of

#: The published code's b^2 / 2 below.
INTERCEPT_WEIGHT = 1.0
#: The published numbers. There both gammas are factors, here divisors; the weight 1 / sqrt(k + 1) multiplies the upper
#: loss; z is never moved, and multipliers have no bound.
NUMBERS = {"alpha": 0.01, "beta": 0.0, "eta": 1e-3, "gamma1": 10.0, "gamma2": 10.0, "c0": 1.0, "p": 0.5, "r": 1e6}

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


def run_lv_hba(dataset: str, seed: int, max_iterations: int) -> Row:
    """LV-HBA from the published start until the upper objective settles by the paper's rule, or to the limit."""
    split, samples = _draw(dataset, seed)
    trajectory = Trajectory(split)
    with double_precision():
        flat = margins_problem(samples)
        first = split.follower(split.start)[0]
        state = LvHba().start(flat, jnp.asarray(split.start), jnp.asarray(first))
        advance = flat.program(advance_lv_hba)
        began = _clock()
        for done in range(max_iterations):
            state, _ = advance(dict(NUMBERS), state, done, 1)
            c, y = np.asarray(state.x), np.asarray(state.y)
            trajectory.note(done + 1, c, y)
            if trajectory.settled:
                break
        seconds, made = _clock() - began, len(trajectory.points)
    work = {"iterations": made, "derivatives": LvHba().calls * made, "projections": made}
    return row_of(split, c, y, trajectory, ended=trajectory.ended, seconds=seconds, **work)


def _clock() -> float:
    """Seconds, without those of compilation."""
    return time.perf_counter() - compile_seconds()


def _draw(dataset: str, seed: int) -> tuple[Split, Samples]:
    split = Split.draw(dataset, seed, "squared", INTERCEPT_WEIGHT)
    return split, Samples(split.problem.rows, split.problem.validation)
