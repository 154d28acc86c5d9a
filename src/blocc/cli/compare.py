"""The command ``blocc compare``: every method on one problem, beside what was published about it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from blocc._lib.compiled import clock_without_compilation
from blocc.cli.common import Output, Seed, check_folder, check_options
from blocc.errors import InputError
from blocc.methods.compare import Comparison, compare, row_of
from blocc.methods.registry import NAMES, known_names
from blocc.outer.monitor import State, StopRequest, interruptible
from blocc.problems.loading import load_problem, parse_x0
from blocc.report.comparison import describe_comparison
from blocc.report.progress import format_row
from blocc.studies.cases import Case, find_known_case, toy_case

NOT_CONVERGED = 3
#: The row of the application's own solver.
OWN = "blocc svm"
OWN_TITLE = "BLOCC with the solver of support vector machines"

_PROBLEM = (
    "FILE.py or FILE.py:NAME as for blocc solve, or toy, three (the paper's network of three nodes), or svm:DATA "
    "with a CSV or LIBSVM file or a built-in data set, or gam-svm:DATA, the formulation that GAM was published with."
)


def compare_command(
    problem: Annotated[str, typer.Argument(help=_PROBLEM, metavar="PROBLEM", show_default=False)],
    x0: Annotated[str | None, typer.Option(help="Start, as JSON. Default: mid X, or as published.")] = None,
    methods: Annotated[str | None, typer.Option(help=f"Separated by commas: {', '.join(NAMES)}. Default: all.")] = None,
    preset: Annotated[str, typer.Option(help="default, or paper: the published numbers.")] = "default",
    time_limit: Annotated[float, typer.Option(help="Seconds for each method, without compilation.")] = 30.0,
    max_iterations: Annotated[int | None, typer.Option(help="Most iterations of each method.")] = None,
    seed: Seed = 0,
    *,
    output: Output,
) -> None:
    """Solve one problem by every published method and compare their answers at the exact lower level.

    Ctrl-C keeps the methods that are done. Exit code 0: at least one method converged; 3: none; 2: bad input.
    """
    chosen = parse_methods(methods)
    given: dict[str, Any] = {"time_limit": time_limit, "max_iterations": max_iterations, "seed": seed, "preset": preset}
    check_options(given, {"preset": ("default", "paper")})
    check_folder(output.out)
    case = find_case(problem, seed)
    start = case.x0 if x0 is None else parse_x0(x0, case.problem)
    with Console(stderr=True, quiet=output.quiet).status("comparing") as line:

        def watch(name: str, state: State) -> None:
            line.update(f"{name} {format_row(state.iteration, state.row)}")

        request = StopRequest()
        with interruptible(request):
            comparison = compare(case.problem, start, methods=chosen, callback=None if output.quiet else watch, **given)
            if case.own is not None and (chosen is None or "blocc" in chosen) and request.reason is None:
                with clock_without_compilation():
                    result = case.own(time_limit)
                comparison = comparison.with_first(row_of(case.problem, OWN, OWN_TITLE, result))
            comparison = beside(comparison, case)
    success = any(row.success for row in comparison.entries)
    document = lambda: describe_comparison(comparison)  # noqa: E731
    output.finish(document, repr(comparison), success, comparison.save, 0 if success else NOT_CONVERGED)


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
        return toy_case()
    kind, found, _ = argument.partition(":")
    if argument == "three" or (kind in ("svm", "gam-svm") and found):
        return find_known_case(argument, seed)
    if not Path(argument.partition(":")[0]).suffix:
        known = "toy, three, svm:DATA, gam-svm:DATA or the path of a Python file"
        raise InputError(f"there is no problem {argument!r}; give {known}")
    return Case(load_problem(argument))


# --- what was typed, and what is shown -----------------------------------------------------------------------------
def parse_methods(text: str | None, further: tuple[str, ...] = ()) -> list[str] | None:
    """Names of methods, separated by commas, or ``further`` ones; None for all."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = (*known_names(), *further)
    wrong = [name for name in names if name not in known]
    if wrong or not names:
        raise InputError(f"--methods must be names among {', '.join(known)}, got {(wrong or [text])[0]!r}")
    return names
