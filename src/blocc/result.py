"""What a solve returns: the answer, its certificate, how it was reached, and how to keep it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from blocc._lib.arrays import PyTree
from blocc._lib.notebook import Shown, card, curve
from blocc.errors import BloccError
from blocc.lagrangian import InnerPairs, Multipliers

if TYPE_CHECKING:
    from blocc.derivatives.sensitivity import Sensitivity
    from blocc.problem import BilevelProblem


class HistoryRow(NamedTuple):
    """One outer iteration."""

    time: float  #: seconds since the start
    gamma: float
    upper_value: float  #: f(x, yg)
    upper_value_penalty: float  #: f(x, yF)
    lower_value: float  #: g(x, yg)
    penalty_value: float  #: F_gamma(x)
    stationarity: float  #: ||x - P_X(x - grad F)||_inf
    inner_residual: float  #: largest KKT residual of both inner solutions
    distance: float  #: ||yF - yg||
    step: float  #: ||x - previous x||
    evaluations: int  #: of F_gamma so far; of other methods: how often they differentiated the lower level


class Status(Enum):
    """How a run ended. Only ``CONVERGED`` is a success; every other value says what stood in the way."""

    CONVERGED = "converged"
    STATIONARY = "stationary"  #: both levels, to first order: the follower is not convex, and y need not be its answer
    STALLED = "stalled"  #: no further progress before the tolerances were met
    PENALTY_OPEN = "penalty open"  #: x is stationary for F_gamma at the gamma given, which still hides a difference
    ITERATION_LIMIT = "iteration limit"
    TIME_LIMIT = "time limit"
    STOPPED = "stopped by callback"
    INTERRUPTED = "interrupted"
    INFEASIBLE = "infeasible"  #: no follower's answer, or the leader's own constraints cannot be met
    UNBOUNDED = "unbounded"  #: the lower (or upper) objective falls without limit
    NOT_CONVEX = "not convex"  #: the lower level, or L_F at a gamma too small, is not convex in y
    NOT_FINITE = "not finite"  #: a user function returned NaN or infinity


@dataclass(frozen=True)
class Certificate:
    """Numbers that prove (or disprove) the answer; all are absolute; only the penalty gap may be (slightly)
    negative, where inner solutions or the leader's multipliers are inexact.

    The first three are the KKT residuals of y at x for the follower's own problem.
    """

    stationarity: float  #: ``||y - P_Y(y - dL_g/dy)||_inf``
    feasibility: float  #: largest violation of gc <= 0, h = 0 and y in Y
    complementarity: float  #: largest ``min(mu, -gc)``
    penalty_gap: float  #: ``f(x, y) - F_gamma(x)``: what the penalty still hides
    distance: float  #: ``||yF - y||``
    stationarity_x: float  #: ``||x - P_X(x - grad F_gamma(x))||_inf``, or its analogue at a kink
    radius: float = 0.0  #: gradients within this distance of x were combined for ``stationarity_x`` (0: just at x)
    leader_violation: float = 0.0  #: largest positive part of ``G(x, y)``
    exact: bool = False  #: y is the follower's answer at x and G holds, by the tolerances of ``success``

    def __str__(self) -> str:
        lines = [
            f"lower level   stationarity {self.stationarity:.1e}   feasibility {self.feasibility:.1e}"
            f"   complementarity {self.complementarity:.1e}",
            f"penalty       gap {self.penalty_gap:.1e}   ||yF - y|| {self.distance:.1e}",
            f"upper level   stationarity of x {self.stationarity_x:.1e}"
            + (f" (within radius {self.radius:.0e})" if self.radius else "")
            + (f"   constraint violation {self.leader_violation:.1e}" if self.leader_violation else ""),
        ]
        return "\n".join(lines)


class History:
    """The run, iteration by iteration: one NumPy array for each column of :class:`HistoryRow`."""

    time: np.ndarray
    gamma: np.ndarray
    upper_value: np.ndarray
    upper_value_penalty: np.ndarray
    lower_value: np.ndarray
    penalty_value: np.ndarray
    stationarity: np.ndarray
    inner_residual: np.ndarray
    distance: np.ndarray
    step: np.ndarray
    evaluations: np.ndarray

    columns: tuple[str, ...] = HistoryRow._fields

    def __init__(self, rows: list[HistoryRow]) -> None:
        table = np.asarray(rows, dtype=np.float64).reshape(-1, len(self.columns))
        for index, name in enumerate(self.columns):
            setattr(self, name, table[:, index])

    def __len__(self) -> int:
        return len(self.time)

    def rows(self) -> Iterator[HistoryRow]:
        """The iterations one by one."""
        for values in zip(*(getattr(self, name) for name in self.columns), strict=True):
            yield HistoryRow(*values)

    def to_pandas(self) -> Any:
        """The iterations as a ``DataFrame``, one column for each name; it needs pandas."""
        try:
            from pandas import DataFrame
        except ImportError as error:
            raise BloccError("history.to_pandas() needs pandas: pip install pandas") from error
        return DataFrame({name: getattr(self, name) for name in self.columns})

    def __repr__(self) -> str:
        return f"History({len(self)} iterations: {', '.join(self.columns)})"


@dataclass(frozen=True)
class Result(Shown):
    """The answer to a bilevel problem. ``print(result)`` explains it; :meth:`save` keeps it."""

    x: PyTree
    y: PyTree  #: the follower's answer at x, re-solved exactly
    y_penalty: PyTree  #: yF, the penalised answer
    multipliers: Multipliers  #: prices of gc and h, in the structure that the constraint functions return
    upper_value: float  #: f(x, y)
    lower_value: float  #: g(x, y)
    upper_value_penalty: float  #: f(x, yF)
    gamma: float
    status: Status
    message: str
    certificate: Certificate
    history: History
    counts: dict[str, int]
    seconds: dict[str, float]  #: ``compile`` and ``run``
    name: str = "bilevel problem"
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    bound: float | None = None  #: no admissible x has an upper value below this; None where nothing is proven
    gap: float | None = None  #: ``upper_value - bound``
    inner: InnerPairs | None = None  #: (yg, mu_g), (yF, mu_F) as Algorithm 1's own inner solver left them at x

    @property
    def success(self) -> bool:
        """Whether the run converged; nothing else counts as success."""
        return self.status is Status.CONVERGED

    def __repr__(self) -> str:
        lines = [
            f"{self.name}: {self.status.value}",
            f"  {self.message}",
            f"  x            {brief(self.x)}",
            f"  y            {brief(self.y)}",
            f"  upper value  {self.upper_value:.10g}   (at yF: {self.upper_value_penalty:.10g})",
            *self._proven(),
            f"  lower value  {self.lower_value:.10g}",
            f"  gamma        {self.gamma:g}",
            "  certificate",
            *("    " + line for line in str(self.certificate).splitlines()),
            f"  {self.counts.get('evaluations', 0)} evaluations, "
            f"{self.counts.get('iterations', len(self.history))} iterations, "
            f"{self.seconds.get('run', 0.0):.3g} s (and {self.seconds.get('compile', 0.0):.3g} s to compile)",
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return card(repr(self), self.success, curve(self.history.upper_value, "upper value of each iteration"))

    def _proven(self) -> list[str]:
        """The bound and the gap in one line, where there are any."""
        if self.bound is None:
            return []
        return [f"  bound        {self.bound:.10g}" + ("" if self.gap is None else f"   (gap {self.gap:.1e})")]

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw the convergence; returns the matplotlib figure, and writes it when ``path`` is given."""
        from blocc.report.plots import plot_result

        return plot_result(self, path)

    def save(self, path: str | Path) -> Path:
        """Write ``PATH.json``, complete or not at all, and return its path."""
        from blocc.report.storage import save_result

        return save_result(self, path)

    def sensitivity(self, problem: BilevelProblem) -> Sensitivity:
        """Derivatives of x, y and the upper value in the data of ``problem``, the one that was solved.

        :raises SensitivityError: where the answer has none, with the reason
        """
        from blocc.derivatives.sensitivity import sensitivity

        return sensitivity(problem, self)

    @classmethod
    def load(cls, path: str | Path) -> Result:
        """Read back what :meth:`save` wrote."""
        from blocc.report.storage import load_result

        return load_result(path)


def brief(tree: PyTree) -> str:
    """One line for any pytree of arrays."""
    if isinstance(tree, dict):
        return ", ".join(f"{key}: {brief(value)}" for key, value in tree.items())
    if isinstance(tree, (list, tuple)):
        return "(" + ", ".join(brief(value) for value in tree) + ")"
    array = np.asarray(tree)
    if array.ndim == 0:
        return f"{float(array):.8g}"
    text = np.array2string(array, precision=6, threshold=8, edgeitems=3, suppress_small=True).replace("\n", " ")
    return text if array.size <= 8 else f"{text} shape {array.shape}"
