"""What every run of a small problem needs, made side by side: XLA compiles the evaluation while Python does the rest.

The evaluation is the largest program by far, and the same in all units. While XLA compiles it, another thread has the
programs made that the units and the judge want, and loads SciPy's optimisers. With one core nothing is gained or lost.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.inner.choice import choose_oracles
from blocc.judge.convexity import jensen
from blocc.lagrangian import figures, zero_multipliers
from blocc.options import Options
from blocc.penalty import cold_pair, evaluate_both, no_upper_multipliers
from blocc.problem import BilevelProblem
from blocc.reformulate.units import first_units, ones, scaling_of, takes_units


def prepare(problem: BilevelProblem, options: Options, x: Float[NDArray, "n_x"]) -> None:
    """Compile what a run from ``x`` will call first, where its size allows other units."""
    scaling = scaling_of(problem, ones(problem.flat)) if takes_units(problem) else None
    if scaling is None:
        return
    flat, target, middle = problem.flat, scaling.problem.flat, problem.flat.y_set.interior_flat()
    oracle, number = choose_oracles(scaling.problem, options.inner)[0], np.asarray(1.0)
    target.prepare(
        evaluate_both,
        oracle,
        arguments=(x, number, no_upper_multipliers(target), cold_pair(target, oracle), number),
        meanwhile=(
            partial(first_units, problem, x),
            partial(jensen, target, x, middle),
            partial(import_module, "scipy.optimize"),
            partial(figures, flat, x, middle, zero_multipliers(flat)),
        ),
    )
