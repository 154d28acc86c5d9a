"""From samples to a certified answer in the user's own units."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from blocc._lib.arrays import Float, Int, NDArray
from blocc._lib.compiled import compile_seconds
from blocc._lib.rounding import KEPT
from blocc.errors import OptionError
from blocc.lagrangian import InnerPairs, Multipliers
from blocc.outer.monitor import StopRequest, interruptible
from blocc.presets import PUBLISHED
from blocc.result import Certificate, History, HistoryRow, Result, Status
from blocc.run.conclude import versions
from blocc.solve import solve
from blocc.svm.margins import (
    FeatureUnits,
    MarginProblem,
    Margins,
    Samples,
    SampleWeights,
    Y,
    check_price,
    is_number,
    scaled_problem,
)
from blocc.svm.optimality import follower_residual
from blocc.svm.padded import Solvers, Stopped
from blocc.svm.support_sets import Choice, Descent
from blocc.svm.svm_problem import svm_problem

Report = Callable[[int, HistoryRow], None]

#: gamma of the certificate when it is "auto": the first of these that hides nothing.
GAMMAS = (12.0, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7)
METHODS = ("exact", "pgd")
#: The start of the published experiment: every c_i drawn from this interval.
UNIFORM = (1.0, 5.0)
#: Most classifiers that are kept of a run of Algorithm 1.
MOST_STAGES = 200
_SVM = PUBLISHED["svm"]
_PUBLISHED_RUN = {
    **{"c_weight": 1.0, "gamma": _SVM.gamma, "method": "pgd", "step": _SVM.step, "start": "uniform"},
    "inner": _SVM.inner,
}
#: Named settings: the problem as the paper's text has it ("paper"), and as its program ("svm"), each with the program's
#: start and steps, inner ones too, and its 80 iterations unless ``max_iterations`` says otherwise.
PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {"c_penalty": "squared", "intercept_weight": 0.0, **_PUBLISHED_RUN},
    "svm": {"c_penalty": "norm", "intercept_weight": 1.0, **_PUBLISHED_RUN},
}


@dataclass(frozen=True, eq=False)
class MarginFit:
    """A classifier y = (w, b), how it came about, and what is proved about it."""

    result: Result
    path: Float[NDArray, "rows p"]  #: the classifier after each row of the history, or of an even selection of them
    path_rows: Int[NDArray, "rows"]  #: which rows of the history these are
    bound: float  #: no margins have a smaller upper value (-inf: not known)
    is_global: bool


def worst_result(results: Sequence[Result]) -> Result:
    """The first that did not converge, or the first of all."""
    return next((result for result in results if not result.success), results[0])


@dataclass(frozen=True)
class FitOptions:
    """How to choose the margins; see :class:`blocc.svm.BilevelSVC`."""

    c_penalty: str = "sum"
    c_weight: float = 10.0
    intercept_weight: float = 0.0
    gamma: float | str = "auto"
    tolerance: float = 1e-5
    method: str = "exact"
    step: float = 0.01
    max_iterations: int | None = None
    time_limit: float | None = None
    inner: Any = "auto"  #: inner solver of "pgd"

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise OptionError(f"method must be {' or '.join(map(repr, METHODS))}, got {self.method!r}")
        check_price(self.c_penalty, self.c_weight, self.intercept_weight)
        for name in ("tolerance", "step", "max_iterations", "time_limit"):
            value = getattr(self, name)
            if value is None and name in ("max_iterations", "time_limit"):
                continue
            if not is_number(value) or value <= 0:
                raise OptionError(f"{name} must be positive, got {value!r}")
        if self.max_iterations is not None and not isinstance(self.max_iterations, Integral):
            raise OptionError(f"max_iterations must be a whole number, got {self.max_iterations!r}")
        if self.gamma != "auto" and (not is_number(self.gamma) or self.gamma <= 0):  # type: ignore[operator]
            raise OptionError(f"gamma must be 'auto' or a positive number, got {self.gamma!r}")

    @property
    def formula(self) -> dict[str, Any]:
        """What belongs to the problem, not to the method."""
        return {name: getattr(self, name) for name in ("c_penalty", "c_weight", "intercept_weight")}


def fit_margins(
    samples: Samples,
    options: FitOptions,
    start: Any = None,
    report: Report | None = None,
    weights: SampleWeights | None = None,
    begun: float | None = None,
) -> MarginFit:
    """Choose margins for (features, labels, validation features, validation labels), labels being -1 and 1.

    The time limit counts from ``begun`` on :func:`blocc._lib.compiled.clock`, or from now.
    """
    start = None if start is None else np.asarray(start, dtype=np.float64)
    if start is not None and (start.shape != samples[1].shape or not np.isfinite(start).all() or (start < 0).any()):
        raise OptionError(f"start must hold a nonnegative margin for each of the {len(samples[1])} training samples")
    request = StopRequest(limit=options.time_limit)
    request.started = request.started if begun is None else begun
    with interruptible(request):
        scaled, units = scaled_problem(samples, **options.formula, weights=weights)
        solvers = Solvers(scaled, request)
        raw = MarginProblem.of(samples, **options.formula, weights=weights)
        if options.method == "pgd":
            return _by_gradient_steps(samples, solvers, units, options, start, report)
        return _exactly(raw, solvers, units, options, start, report)


def _exactly(
    raw: MarginProblem,
    solvers: Solvers,
    units: FeatureUnits,
    options: FitOptions,
    start: Margins | None,
    report: Report | None,
) -> MarginFit:
    began, compiled = time.perf_counter(), compile_seconds()
    gamma = GAMMAS[0] if isinstance(options.gamma, str) else options.gamma
    descent = Descent(solvers, options.tolerance, report)
    choice = descent.run(start, gamma / units.unit**2)
    assert choice.best is not None
    y, c = units.back(choice.best.y), choice.best.c
    support = choice.best.support / units.unit**2
    residuals = kkt_residuals(raw, c, y, support)
    upper = raw.upper(c, y)
    gamma, y_penalty, penalty_value = _penalised(raw, solvers, units, c, y, options)
    status, message = _judge(choice, solvers.problem)
    certificate = Certificate(
        stationarity=residuals[0],
        feasibility=residuals[1],
        complementarity=residuals[2],
        penalty_gap=upper - penalty_value,
        distance=float(np.linalg.norm(y_penalty - y)),
        stationarity_x=choice.stationarity,
    )
    compiling = compile_seconds() - compiled
    result = Result(
        x=c,
        y=y,
        y_penalty=y_penalty,
        multipliers=Multipliers(support, np.zeros(0)),
        upper_value=upper,
        lower_value=raw.lower(y),
        upper_value_penalty=raw.upper(c, y_penalty),
        gamma=gamma,
        status=status,
        message=message,
        certificate=certificate,
        history=History(
            [row._replace(gamma=gamma, lower_value=row.lower_value / units.unit**2) for row in choice.rows]
        ),
        counts={"evaluations": solvers.solves, "branches": choice.branches, "newton_steps": choice.newton_steps},
        seconds={"compile": compiling, "run": time.perf_counter() - began - compiling},
        name="SVM margins",
        settings={**options.formula, "gamma": options.gamma, "tolerance": options.tolerance, "method": options.method},
        versions=versions(),
    )
    path = np.array([units.back(point) for point in choice.path])
    return MarginFit(result, path, np.arange(len(path)), choice.bound, choice.is_global)


def kkt_residuals(problem: MarginProblem, c: Margins, y: Y, support: Margins) -> tuple[float, float, float]:
    """Stationarity, feasibility and complementarity of the follower's answer, from the samples alone."""
    slack = problem.rows @ y - (1.0 - c)
    stationarity = np.abs(problem.ridge * y - problem.rows.T @ support).max()
    negative = max(float(np.max(-support, initial=0.0)), 0.0)
    return (
        float(stationarity),
        float(np.max(-slack, initial=0.0)),
        max(float(np.max(np.minimum(np.maximum(slack, 0.0), support), initial=0.0)), negative),
    )


def _penalised(
    raw: MarginProblem, solvers: Solvers, units: FeatureUnits, c: Margins, y: Y, options: FitOptions
) -> tuple[float, Y, float]:
    """yF and F_gamma(c) at the given gamma, or at the one that hides least (the first that hides nothing).

    Both are NaN where the fit was stopped before them.
    """
    lower, upper = raw.lower(y), raw.upper(c, y)
    candidates = GAMMAS if isinstance(options.gamma, str) else (options.gamma,)
    best: tuple[float, Y, float] | None = None
    for gamma in candidates:
        try:
            answer = solvers.follower(c, gamma=gamma / units.unit**2)
        except Stopped:
            break
        y_penalty = units.back(answer.y)
        # The Lagrangian: second-order accurate where gamma magnifies what yF lacks in feasibility.
        missing = (answer.price / units.unit**2) @ (1.0 - c - raw.rows @ y_penalty)
        value = raw.upper(c, y_penalty) + gamma * (raw.lower(y_penalty) + missing - lower)
        if best is None or abs(upper - value) < abs(upper - best[2]):
            best = gamma, y_penalty, value
        near = float(np.linalg.norm(y_penalty - y)) <= 10.0 * options.tolerance * (1.0 + float(np.linalg.norm(y)))
        if near and abs(upper - value) <= options.tolerance * (1.0 + upper):
            break
    return best or (candidates[0], np.full_like(y, np.nan), np.nan)


def _judge(choice: Choice, scaled: MarginProblem) -> tuple[Status, str]:
    """No success unless the follower's KKT residuals, in scaled features, are small too."""
    assert choice.best is not None
    worst = follower_residual(scaled, choice.best)
    if choice.status is Status.CONVERGED and worst > KEPT:
        return Status.STALLED, f"The lower level is solved only to {worst:.1e} (relative); a certificate needs 1e-06."
    return choice.status, choice.message


def _by_gradient_steps(
    samples: Samples,
    solvers: Solvers,
    units: FeatureUnits,
    options: FitOptions,
    start: Margins | None,
    report: Report | None,
) -> MarginFit:
    """Algorithm 1 of the paper, with exact inner solutions, or from w = 0 and b = 1 with the paper's."""
    weights = solvers.problem.weights
    problem = svm_problem(
        *samples, **options.formula, sample_weight=weights.training, sample_weight_val=weights.validation
    )
    first = np.full(len(samples[1]), 2.0) if start is None else start
    margins: list[Margins] = []
    left = solvers.request.left()
    exactly = isinstance(options.inner, str)
    begin = np.append(np.zeros(samples[0].shape[1]), 1.0)
    result = solve(
        problem,
        first,
        outer="pgd",
        inner=options.inner,
        inner_start=None if exactly else InnerPairs(y_g=begin, y_F=begin),
        gamma=GAMMAS[0] if isinstance(options.gamma, str) else options.gamma,
        step=options.step,
        stop=options.tolerance if exactly else None,
        tolerance=options.tolerance,
        max_iterations=options.max_iterations or (2000 if exactly else _SVM.iterations),
        time_limit=None if left is None else max(left, 1e-9),
        progress=report,
        callback=lambda state: margins.append(np.array(state.x)),
    )
    chosen = np.unique(np.linspace(0, len(margins) - 1, MOST_STAGES).astype(int)) if margins else np.zeros(0, int)
    path: list[Y] = []
    try:
        for index in chosen:
            path.append(units.back(solvers.follower(margins[index]).y))
    except Stopped:  # then the stages end early
        chosen = chosen[: len(path)]
    # A very long history keeps only some of its rows.
    rows = chosen * len(result.history) // max(len(margins), 1)
    return MarginFit(
        result, np.array([*path, result.y]), np.append(rows, max(len(result.history) - 1, 0)), -np.inf, False
    )
