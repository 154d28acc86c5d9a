"""The command ``blocc compare``: every method on one problem, beside what was published about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from blocc._lib.compiled import clock_without_compilation
from blocc.cli.common import Quiet, Seed, check_folder, check_options, present
from blocc.cli.svm import part_sizes
from blocc.errors import InputError
from blocc.methods.compare import Comparison, compare, row_of
from blocc.methods.registry import NAMES
from blocc.outer.monitor import State
from blocc.problem import BilevelProblem
from blocc.problems.loading import load_problem, parse_x0
from blocc.problems.toy import toy_problem
from blocc.report.comparison import describe_comparison
from blocc.report.progress import format_row
from blocc.result import Result
from blocc.svm.data.samples import read_samples, split_indices
from blocc.svm.fitting import FitOptions, fit_margins
from blocc.svm.svm_problem import svm_problem
from blocc.transport.network.files import read_network
from blocc.transport.travellers.formulation import structured_problem

#: Published figures of a built-in problem: value and seconds of a method.
Published = Mapping[str, tuple[float, float]]
THREE_NODES: Published = {"blocc": (1.71, 20.0), "lv-hba": (1.53, 351.0)}
SVM_ACCURACY: Mapping[str, Published] = {
    "diabetes": {"blocc": (0.767, 1.73), "lv-hba": (0.765, 2.9), "gam": (0.721, 8.8)},
    "fourclass": {"blocc": (0.761, 1.92)},
}
NOT_CONVERGED = 3
#: The published code gives the follower b^2 / 2 as well; without it GAM's matrix is singular wherever w = 0 is best.
INTERCEPT_WEIGHT = 1.0
#: The row of the application's own solver.
OWN = "blocc svm"
OWN_TITLE = "BLOCC with the solver of support vector machines"

_PROBLEM = (
    "FILE.py or FILE.py:NAME as for blocc solve, or toy, three (the paper's network of three nodes), or svm:DATA "
    "with a CSV or LIBSVM file or a built-in data set."
)


@dataclass(frozen=True)
class Case:
    """A problem with its start, and what else is worth knowing about a method's answer."""

    problem: BilevelProblem
    x0: Any = None
    measure: Callable[[Result], dict[str, float]] = lambda result: {}
    published: Published = field(default_factory=dict)
    quantity: str = "value"  #: what the published figures are
    own: Callable[[float], Result] | None = None  #: what its own solver makes of it in so many seconds


def compare_command(
    problem: Annotated[str, typer.Argument(help=_PROBLEM, metavar="PROBLEM", show_default=False)],
    x0: Annotated[str | None, typer.Option(help="Start, as JSON. Default: mid X, or as published.")] = None,
    methods: Annotated[str | None, typer.Option(help=f"Separated by commas: {', '.join(NAMES)}. Default: all.")] = None,
    preset: Annotated[str, typer.Option(help="default, or paper: the published numbers.")] = "default",
    time_limit: Annotated[float, typer.Option(help="Seconds for each method, without compilation.")] = 30.0,
    max_iterations: Annotated[int | None, typer.Option(help="Most iterations of each method.")] = None,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for the table (.csv, .json, .md) and the picture.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Solve one problem by every published method and compare their answers at the exact lower level.

    Ctrl-C keeps the methods that are done. Exit code 0: at least one method converged; 3: none; 2: bad input.
    """
    chosen = _parse_methods(methods)
    given: dict[str, Any] = {"time_limit": time_limit, "max_iterations": max_iterations, "seed": seed, "preset": preset}
    check_options(given, {"preset": ("default", "paper")})
    check_folder(out)
    case = find_case(problem, seed)
    start = case.x0 if x0 is None else parse_x0(x0, case.problem)
    with Console(stderr=True, quiet=quiet).status("comparing") as line:

        def watch(name: str, state: State) -> None:
            line.update(f"{name} {format_row(state.iteration, state.row)}")

        comparison = compare(case.problem, start, methods=chosen, callback=None if quiet else watch, **given)
    if case.own is not None and (chosen is None or "blocc" in chosen):
        with clock_without_compilation():
            result = case.own(time_limit)
        comparison = comparison.with_first(row_of(case.problem, OWN, OWN_TITLE, result))
    comparison = beside(comparison, case)
    success = any(row.success for row in comparison.entries)
    present(lambda: describe_comparison(comparison), repr(comparison), success, as_json=as_json, quiet=quiet)
    # Printed first: a folder that cannot be written must not cost the table.
    for path in [] if out is None else comparison.save(out):
        if not (as_json or quiet):
            print(f"written: {path}")
    raise typer.Exit(0 if success else NOT_CONVERGED)


def beside(comparison: Comparison, case: Case) -> Comparison:
    """The comparison with what the case measures, and with the published figures."""
    columns: dict[str, dict[str, float]] = {}
    for row in comparison.entries:
        columns[row.method] = {} if row.result is None else case.measure(row.result)
        if row.method in case.published:
            value, seconds = case.published[row.method]
            columns[row.method] |= {f"paper_{case.quantity}": value, "paper_seconds": seconds}
    return comparison.with_columns(columns)


# --- problems ------------------------------------------------------------------------------------------------------
def find_case(argument: str, seed: int) -> Case:
    """The problem that an argument of the command line stands for."""
    if argument == "toy":
        return Case(toy_problem())
    if argument == "three":
        return three_case(seed)
    kind, found, source = argument.partition(":")
    if kind == "svm" and found:
        return svm_case(source, seed)
    if not Path(argument.partition(":")[0]).suffix:
        raise InputError(f"there is no problem {argument!r}; give toy, three, svm:DATA or the path of a Python file")
    return Case(load_problem(argument))


def three_case(seed: int) -> Case:
    """The network of three nodes; the published figures are utilities, which the leader maximises."""
    network = read_network("three")
    return Case(
        structured_problem(network),
        network.random_starts(1, seed)[0],
        lambda result: {"utility": -result.upper_value},
        THREE_NODES,
        "utility",
    )


def svm_case(source: str, seed: int) -> Case:
    """Margins of a linear SVM on samples as they are, with the paper's price of c and its start."""
    if not source:
        raise InputError("svm: needs samples, for instance svm:diabetes or svm:samples.csv")
    samples = read_samples(source)
    if len(samples.classes) != 2:
        raise InputError(f"svm:{source} must have two classes of samples, got {len(samples.classes)}")
    sizes = part_sizes(samples, None, None)
    parts = split_indices(samples.n_samples, train=sizes[0], validation=sizes[1], seed=seed)
    signs = np.where(samples.y == samples.classes[1], 1.0, -1.0)
    (X, labels), (X_val, labels_val), (X_test, labels_test) = ((samples.X[part], signs[part]) for part in parts)

    def accuracy(y: Any) -> float:
        return float(np.mean((X_test @ y[:-1] + y[-1] > 0.0) == (labels_test > 0.0)))

    def own(time_limit: float) -> Result:
        options = FitOptions("squared", 1.0, INTERCEPT_WEIGHT, gamma=12.0, time_limit=time_limit)
        return fit_margins((X, labels, X_val, labels_val), options).result

    return Case(
        svm_problem(X, labels, X_val, labels_val, c_penalty="squared", c_weight=1.0, intercept_weight=INTERCEPT_WEIGHT),
        np.random.default_rng(seed).uniform(1.0, 5.0, len(X)),
        lambda result: {"test_accuracy": accuracy(result.y), "own_accuracy": accuracy(result.y_penalty)},
        SVM_ACCURACY.get(samples.name, {}),
        "accuracy",
        own,
    )


# --- what was typed, and what is shown -----------------------------------------------------------------------------
def _parse_methods(text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    wrong = [name for name in names if name not in NAMES]
    if wrong or not names:
        raise InputError(f"--methods must be names among {', '.join(NAMES)}, got {(wrong or [text])[0]!r}")
    return names
