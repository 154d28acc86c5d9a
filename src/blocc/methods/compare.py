"""Every method on the same problem from the same start, each judged at the follower's exact answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import Float, NDArray, PyTree
from blocc._lib.compiled import clock_without_compilation
from blocc._lib.notebook import Shown, card, table
from blocc._lib.precision import double_precision
from blocc.errors import OptionError, ProblemError
from blocc.methods.base import Method, MethodDoesNotApply
from blocc.methods.registry import NAMES, kind_of, name_of
from blocc.options import Options
from blocc.outer.monitor import State, StopRequest, interruptible
from blocc.presets import check_preset
from blocc.problem import BilevelProblem
from blocc.result import Result, Status
from blocc.solve import solve, start_in

#: Called with a method's name after every recorded iteration; True ends the comparison.
CompareCallback = Callable[[str, State], Any]

DOES_NOT_APPLY, ERROR = "does not apply", "error"
#: Upper values this close to the best, relative to its size, count as equally good.
TIE = 1e-5
#: What an answer may violate, of the follower's constraints or of the leader's, and still be called the best.
VIOLATION = 1e-4
#: Presets that every method has.
PRESETS = ("default", "paper")
#: Iterations that no limit of time leaves room for.
ENDLESS = 2**31 - 1
#: The clock of budgets, tables, pictures and files.
CLOCK = "seconds without compilation"
_OWN_TITLE = "BLOCC (Jiang, Xiao, Tenorio, Real-Rojas, Marques, Chen, NeurIPS 2024)"
_NO_ANSWER = (Status.INFEASIBLE, Status.UNBOUNDED, Status.NOT_CONVEX)


@dataclass(frozen=True)
class MethodRow:
    """How one method did; numbers are NaN where it gave no result."""

    method: str
    title: str  #: authors and venue
    applies: bool = True  #: False: the problem is outside the method's assumptions
    why_not: str = ""
    status: str = ERROR  #: that of the result, or "does not apply", or "error"
    upper_value: float = math.nan  #: f at x and the follower's exact answer
    lower_gap: float = math.nan  #: g(x, own y) - g(x, exact y); negative where the own y breaks constraints
    violation: float = math.nan  #: largest positive part of gc, or size of h, at the own y
    distance: float = math.nan  #: ||own y - exact y||
    stationarity_x: float = math.nan
    moved: float = math.nan  #: ||x - start||; exactly 0 for a method that never moved
    iterations: int = 0
    run_seconds: float = math.nan  #: without compilation, as in the result's history
    compile_seconds: float = math.nan
    message: str = ""
    result: Result | None = field(default=None, repr=False)
    columns: Mapping[str, Any] = field(default_factory=dict)  #: further numbers, see Comparison.with_columns

    @property
    def success(self) -> bool:
        """Whether the method converged."""
        return self.result is not None and self.result.success

    @property
    def eligible(self) -> bool:
        """Whether its upper value is that of a feasible answer, so that it may be the best."""
        if self.result is None or self.result.status in _NO_ANSWER or not math.isfinite(self.upper_value):
            return False
        certificate = self.result.certificate
        return certificate.feasibility <= VIOLATION and certificate.leader_violation <= VIOLATION


@dataclass(frozen=True)
class Comparison(Shown):
    """One row for each method. ``print(comparison)`` is a table; :meth:`save` keeps it, :meth:`plot` draws it."""

    name: str  #: of the problem
    entries: tuple[MethodRow, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    interrupted: bool = False  #: ended early, by Ctrl-C or a callback

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, method: str) -> MethodRow:
        for row in self.entries:
            if row.method == method:
                return row
        raise KeyError(method)

    @property
    def best(self) -> MethodRow | None:
        """The first row whose upper value is that of a feasible answer and ties with the smallest; None without any."""
        return next((row for row in self.entries if self.is_best(row)), None)

    def is_best(self, row: MethodRow) -> bool:
        """Whether no other method's value is smaller by more than a tie allows."""
        if not row.eligible:
            return False
        least = min(other.upper_value for other in self.entries if other.eligible)
        return row.upper_value - least <= TIE * (1 + abs(least))

    def with_first(self, row: MethodRow) -> Comparison:
        """The same with one more row, at the top."""
        return replace(self, entries=(row, *self.entries))

    def with_columns(self, columns: Mapping[str, Mapping[str, Any]]) -> Comparison:
        """The same with further columns: for a method's name, numbers by heading. Tables and files show them."""
        rows = (replace(row, columns={**row.columns, **columns.get(row.method, {})}) for row in self.entries)
        return replace(self, entries=tuple(rows))

    def rows(self) -> list[dict[str, Any]]:
        """The table as plain values; every row has the same keys."""
        further = list(dict.fromkeys(key for row in self.entries for key in row.columns))
        hidden = ("result", "columns")
        return [
            {
                **{key: value for key, value in vars(row).items() if key not in hidden},
                "best": self.is_best(row),
                **{key: row.columns.get(key) for key in further},
            }
            for row in self.entries
        ]

    def __repr__(self) -> str:
        best = self.best
        found = "no feasible answer" if best is None else f"best upper value {best.upper_value:.8g} ({best.method})"
        head = f"{self.name}: {len(self)} method{'s' * (len(self) != 1)}, {found}"
        lines = [head + (" (ended early)" if self.interrupted else ""), *_table(self)]
        notes = [f"  {row.method}: {row.why_not or row.message}" for row in self.entries if not row.success]
        legend = [] if best is None else [f"  * the best value, ties within {TIE:.0e} (relative) included"]
        legend += [f"  {line}" for line in legend_of(self)]
        if any(row.result is not None and not row.eligible for row in self.entries):
            legend.append("  ( ) not the value of a feasible answer")
        return "\n".join([*lines, *legend, *notes])

    def _repr_html_(self) -> str:
        headings, *rows = cells(self)
        shown = set(_table(self))
        rest = [line for line in repr(self).splitlines() if line not in shown]
        return card("\n".join(rest), beside=table(rows, headings, wide="Comparison of methods"))

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw the comparison; returns the matplotlib figure, and writes it when ``path`` is given."""
        from blocc.report.comparison import plot_comparison

        return plot_comparison(self, path)

    def save(self, folder: str | Path) -> list[Path]:
        """Write ``comparison.csv``, ``.json``, ``.md`` and ``.png`` into ``folder`` and return their paths."""
        from blocc.report.comparison import write_comparison

        return write_comparison(self, folder)


def compare(
    problem: BilevelProblem,
    x0: PyTree | None = None,
    *,
    methods: Sequence[str | Method] | None = None,
    preset: str = "default",
    time_limit: float | None = 60.0,
    max_iterations: int | None = None,
    tolerance: float | None = None,
    seed: int = 0,
    callback: CompareCallback | None = None,
) -> Comparison:
    """Solve one problem by several methods from the same start, and judge each at the follower's exact answer.

    A method that does not apply, or fails, becomes a row that says why. Ctrl-C ends the comparison and keeps the rows
    that are complete. Limits, tables, pictures and files count seconds without compilation, which every row reports
    apart: what a method has to compile does not shorten its run.

    :param x0: the start; the middle of X by default
    :param methods: names such as ``["blocc", "gam"]``, or methods of your own, run in this order; all by default
    :param preset: "default", or "paper" for published numbers
    :param time_limit: seconds for each method alone, compilation left out; None: no limit
    :param max_iterations: of each method; None: no limit beside that of time, or the method's own where there is none
    :param tolerance: of the certificate, relative; None leaves it to the method
    :param callback: called with a method's name and its :class:`~blocc.outer.monitor.State` after every recorded
        iteration; ends the comparison by returning True
    """
    if not isinstance(problem, BilevelProblem):
        raise OptionError(f"problem must be a BilevelProblem, got {type(problem).__name__}")
    chosen = _checked(methods)
    check_preset(preset, PRESETS)
    limits = {"time_limit": time_limit, "max_iterations": max_iterations, "tolerance": tolerance}
    options: dict[str, Any] = {"seed": seed, **{key: value for key, value in limits.items() if value is not None}}
    Options(**options)  # a bad value is the caller's mistake, not a failure of every method
    start = start_in(problem, x0)
    ended = False

    def watch(name: str, state: State) -> bool:
        nonlocal ended
        ended = callback is not None and bool(callback(name, state))
        return ended

    rows: list[MethodRow] = []
    request = StopRequest()
    with interruptible(request):
        for name, method in chosen.items():
            try:
                own = {**options, "preset": preset, "callback": None if callback is None else partial(watch, name)}
                if isinstance(method, Method):
                    own.pop("preset")  # it has its numbers
                if method != "blocc" and time_limit is not None:
                    own.setdefault("max_iterations", ENDLESS)  # a step of one method costs what a hundred of another do
                found = solved_by(method, problem, x0, own)
                moved = math.nan if found.result is None else _moved(problem, found.result, start)
                rows.append(replace(found, moved=moved))
            except KeyboardInterrupt:
                ended = True
            ended = ended or request.reason is not None or rows[-1].status == Status.INTERRUPTED.value
            if ended:
                break
    return Comparison(problem.name, tuple(rows), {"preset": preset, **limits, "seed": seed}, ended)


def title_of(method: str | Method) -> str:
    """Authors and venue of a method."""
    return _OWN_TITLE if method == "blocc" else kind_of(method).title or name_of(method)


def _checked(methods: Sequence[str | Method] | None) -> dict[str, str | Method]:
    """The methods by name, in their order."""
    if methods is None:
        return {name: name for name in NAMES}
    if isinstance(methods, str) or not len(methods):
        raise OptionError(f"methods must be a sequence of names such as ['blocc'], or None for all, got {methods!r}")
    found: dict[str, str | Method] = {}
    for one in methods:
        if one != "blocc":
            kind_of(one)
        if found.setdefault(name_of(one) if one != "blocc" else "blocc", one) != one:
            raise OptionError(f"methods: two of them are called {name_of(one)!r}")
    return found


def solved_by(
    method: str | Method, problem: BilevelProblem, x0: PyTree | None, options: Mapping[str, Any]
) -> MethodRow:
    """One method; its failures are part of the comparison."""
    name, title = name_of(method), title_of(method)
    try:
        with clock_without_compilation():
            result = solve(problem, x0, method=method, progress=False, **options)
        return row_of(problem, name, title, result)
    except ProblemError as error:
        why = error.needs if isinstance(error, MethodDoesNotApply) else str(error)
        return MethodRow(name, title, False, why, DOES_NOT_APPLY, message=str(error))
    except Exception as error:  # whatever goes wrong in one method, the others go on
        return MethodRow(name, title, message=f"{type(error).__name__}: {error}")


def row_of(problem: BilevelProblem, name: str, title: str, result: Result) -> MethodRow:
    """A result as a row."""
    gap, violation = own_answer(problem, result)
    return MethodRow(
        method=name,
        title=title,
        status=result.status.value,
        upper_value=result.upper_value,
        lower_gap=gap,
        violation=violation,
        distance=result.certificate.distance,
        stationarity_x=result.certificate.stationarity_x,
        iterations=int(result.counts.get("iterations", len(result.history))),
        run_seconds=result.seconds.get("run", math.nan),
        compile_seconds=result.seconds.get("compile", math.nan),
        message=result.message,
        result=result,
    )


def _moved(problem: BilevelProblem, result: Result, start: Float[NDArray, "n_x"]) -> float:
    return float(np.linalg.norm(np.asarray(problem.x_set.ravel(result.x)) - start))


def own_answer(problem: BilevelProblem, result: Result) -> tuple[float, float]:
    """The follower's loss at the method's own y against the exact answer, and how far that y is from feasible."""
    flat = problem.flat
    with double_precision():
        x = jnp.asarray(problem.x_set.ravel(result.x))
        own = jnp.asarray(problem.y_set.ravel(result.y_penalty))
        gap = float(flat.lower(x, own)) - result.lower_value
        parts = [np.maximum(np.asarray(flat.inequality(x, own)), 0.0), np.abs(np.asarray(flat.equality(x, own)))]
    return gap, float(np.concatenate(parts).max(initial=0.0))


# --- text ----------------------------------------------------------------------------------------------------------
#: An exact zero where numbers are shown by their size alone.
ZERO = "=0"
#: Heading, key and format of a column of the table.
_COLUMNS = (
    ("status", "status", ""),
    ("f at exact y  ", "upper_value", ".8g"),
    ("gap of own y", "lower_gap", ".1e"),
    ("violation", "violation", ".1e"),
    ("distance", "distance", ".1e"),
    ("stationarity", "stationarity_x", ".1e"),
    ("moved", "moved", ".1e"),
    ("iterations", "iterations", "d"),
    ("seconds", "run_seconds", ".3g"),
    ("compile", "compile_seconds", ".3g"),
)


def cells(comparison: Comparison) -> list[list[str]]:
    """The table as text: a row of headings, then one for each method; a star marks the best values."""
    rows = comparison.rows()
    fixed = {"method", "best", *vars(MethodRow("", ""))}
    further = [key for key in (rows[0] if rows else ()) if key not in fixed]
    table = [["method", *(heading for heading, _, _ in _COLUMNS), *(key.replace("_", " ") for key in further)]]
    for row, entry in zip(rows, comparison.entries, strict=True):
        texts = [_cell(row[key], form) for _, key, form in _COLUMNS] + [_cell(row[key], ".4g") for key in further]
        if row["status"] in (DOES_NOT_APPLY, ERROR):
            texts[1 : len(_COLUMNS)] = ["–"] * (len(_COLUMNS) - 1)
        elif not entry.eligible:
            texts[1] = f"({texts[1]})"
        texts[1] += " *" if row["best"] else "  "
        table.append([row["method"], *texts])
    return table


def legend_of(comparison: Comparison) -> list[str]:
    """What the table's numbers mean: the clock, and exact zeros where there are any."""
    exact = any(ZERO in row for row in cells(comparison))
    return [f"clock: {CLOCK}", *([f"{ZERO}: exactly zero, not rounded"] if exact else [])]


def _cell(value: Any, form: str) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if form.endswith("e") and value == 0.0:
        return ZERO
    return value if isinstance(value, str) else format(value, form)


def _table(comparison: Comparison) -> list[str]:
    """Columns side by side: the first two to the left, numbers to the right."""
    table = cells(comparison)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        left = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
        right = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append(("  " + "  ".join(left + right)).rstrip())
    return lines
