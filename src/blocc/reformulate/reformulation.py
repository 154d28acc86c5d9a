"""Problems that stand in for the one given, and the way back from their results.

Convex kinks of the follower's functions become rows and further variables (the epigraph form), other corners are
rounded off. Units (:mod:`blocc.reformulate.units`) and relaxed constraints (:mod:`blocc.reformulate.relaxation`) are
of the same kind, but depend on where a run is, or on how it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from blocc.corners import FOLLOWER, kinks_of
from blocc.inner.choice import choose_oracles
from blocc.inner.interior_point import InteriorPoint
from blocc.options import Options
from blocc.problem import BilevelProblem
from blocc.reformulate.epigraph import EpigraphForm, epigraph_form
from blocc.reformulate.smoothing import invert_smoothing, smoothed
from blocc.result import Result


class Reformulation(NamedTuple):
    """A problem that stands in, and its results as those of the problem given."""

    problem: BilevelProblem
    invert: Callable[[Result], Result]


def reformulations(problem: BilevelProblem, options: Options) -> Iterator[Reformulation]:
    """The problem and those that may stand in for it, the most promising first."""
    by_hand = problem.oracle is not None or isinstance(options.gamma, float) or options.outer == "pgd"
    kinks = {} if by_hand else kinks_of(problem)
    plain = Reformulation(problem, lambda result: result)
    exact = epigraph_form(problem) if kinks else None
    if exact is not None and _suits(exact, options):
        yield Reformulation(exact.problem, exact.invert)
    below = {name: kinds for name, kinds in kinks.items() if name in FOLLOWER}
    rounded_first = bool(below) and bool(set().union(*below.values()) - {"where"})
    if not rounded_first:
        yield plain
    if kinks:
        yield Reformulation(smoothed(problem), partial(invert_smoothing, problem, kinks=kinks))
    if rounded_first:
        yield plain


def _suits(exact: EpigraphForm, options: Options) -> bool:
    """Whether the interior point takes on all the further variables that stand for kinks."""
    if not exact.n_epigraph or not (isinstance(options.inner, str) and options.inner == "auto"):
        return True
    return isinstance(choose_oracles(exact.problem, "auto")[0], InteriorPoint)
