"""The command line: parses, calls, prints. Everything it does is a call away in Python.

typer and rich are needed here and nowhere else; annotations stay text until typer reads them, so this module imports
without either and :func:`main` can say what is missing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

from blocc._lib.files import plain
from blocc._lib.streams import outlive_readers
from blocc._lib.version import __version__
from blocc.cli.common import BAD_INPUT, EXIT_CODES, guarded, parse_gamma, print_headed
from blocc.cli.compare import compare_command
from blocc.cli.design import design_command
from blocc.cli.network import build_network_app
from blocc.cli.studies import report_command, sweep_command
from blocc.cli.svm import svm_command
from blocc.cli.verify_command import verify_command
from blocc.errors import InputError
from blocc.multi_result import MultiResult
from blocc.problems import toy
from blocc.problems.loading import load_problem, parse_x0
from blocc.report.storage import describe
from blocc.result import Result, Status
from blocc.solve import solve
from blocc.solve_many import solve_many

try:
    import typer
    from rich.console import Console
    from rich.table import Table
except ImportError as error:
    _MISSING: str | None = (error.name or "typer").partition(".")[0]
else:
    _MISSING = None

_ABOUT = """Solve bilevel programs whose lower level is constrained by the upper level's decision.

A problem is a Python file that builds a [bold]BilevelProblem[/bold] (examples/toy.py is one).

[bold]Examples[/bold]

  blocc solve examples/toy.py
  blocc solve examples/toy.py --x0 0.3 --save runs/first --plot runs/first.png
  blocc solve examples/pricing.py --x0 '{"price": [1, 1, 1], "capacity": 3}'
  blocc solve study.py:winter --starts 50 --json
  blocc check study.py:winter
  blocc verify runs/first examples/toy.py
  blocc design seville --out runs/seville
  blocc network describe seville
  blocc svm breast_cancer --out runs/svm
  blocc toy --starts 50
  blocc compare toy --out runs/compare
  blocc sweep examples/study.toml --out runs/study
  blocc report runs/study

[bold]Exit codes[/bold]

    0  converged (check: every assumption holds; verify: every claim does; compare: one method at
       least; sweep: every cell is done)
    2  bad input
    3  stalled, or out of iterations (sweep: some cells failed)
    4  infeasible
    5  unbounded
    6  not convex (check: an assumption fails; verify: a claim does not hold)
    7  a function is not finite
    8  time limit
    9  the penalty is open: gamma, given by hand, is too small
  130  interrupted or stopped
    1  an unexpected error inside blocc"""

_PROBLEM = "FILE.py, or FILE.py:NAME where the file holds several problems (or functions that build one)."


# --- commands ------------------------------------------------------------------------------------------------------
def solve_command(
    problem: Annotated[str, typer.Argument(help=_PROBLEM, metavar="FILE.py[:NAME]", show_default=False)],
    x0: Annotated[
        str | None, typer.Option(help="Start, as JSON: a number, a list or an object. Default: mid X.")
    ] = None,
    gamma: Annotated[str | None, typer.Option(help="'auto', or a number to keep it fixed.")] = None,
    inner: Annotated[str | None, typer.Option(help="auto, interior-point, maxmin, single-loop or pdhg.")] = None,
    outer: Annotated[str | None, typer.Option(help="auto, or pgd: Algorithm 1 as published.")] = None,
    step: Annotated[float | None, typer.Option(help="Step length eta of pgd.")] = None,
    tolerance: Annotated[float | None, typer.Option(help="Relative tolerance of the certificate.")] = None,
    max_iterations: Annotated[int | None, typer.Option(help="Most outer iterations.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds; the best point so far is kept.")] = None,
    starts: Annotated[int | None, typer.Option(help="Solve from this many random starts and report the best.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    preset: Annotated[str, typer.Option(help="default, or paper: the published algorithms.")] = "default",
    save: Annotated[Path | None, typer.Option(help="Keep the result as PATH.json and PATH.npz.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Keep the run itself here, to continue it later.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run that was kept here.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the convergence (.png, .pdf, .svg).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quiet: Annotated[bool, typer.Option(help="Print nothing; the exit code tells.")] = False,
) -> None:
    """Solve the problem in a file and print a certified answer.

    The exit code says how it ended; blocc --help lists them.
    """
    target = load_problem(problem)
    given = {
        "gamma": parse_gamma(gamma),
        "inner": inner,
        "outer": outer,
        "step": step,
        "tolerance": tolerance,
        "max_iterations": max_iterations,
        "time_limit": time_limit,
    }
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    options.update(seed=seed, preset=preset)
    options.update(progress=False if quiet else None, checkpoint=checkpoint, resume=resume)
    if starts is None:
        found: Result | MultiResult = solve(target, None if x0 is None else parse_x0(x0, target), **options)
    elif x0 is None:
        found = solve_many(target, starts=starts, **options)
    else:
        raise InputError("give either --x0 (one start) or --starts (random starts), not both")
    result = found.best if isinstance(found, MultiResult) else found
    written = [] if save is None else [result.save(save)]
    if plot is not None:
        result.plot(plot)
        written.append(plot)
    if as_json:
        print(json.dumps(_document(found, result), indent=2))
    elif not quiet:
        print_headed(repr(found), result.success)
        for path in written:
            print(f"written: {path}")
    raise typer.Exit(EXIT_CODES[result.status])


def check_command(
    problem: Annotated[str, typer.Argument(help=_PROBLEM, metavar="FILE.py[:NAME]", show_default=False)],
    x0: Annotated[str | None, typer.Option(help="Where to look, as JSON. Default: mid X.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Probe numerically whether the problem meets the method's assumptions, and say so in words.

    Exit code 0: every assumption holds near x0; 6: one fails; 2: bad input.
    """
    target = load_problem(problem)
    report = target.check(None if x0 is None else parse_x0(x0, target))
    print(json.dumps(plain(report.to_dict()), indent=2) if as_json else str(report))
    raise typer.Exit(0 if report.ok else EXIT_CODES[Status.NOT_CONVEX])


def toy_command(
    starts: Annotated[int, typer.Option(help="Random starts, run in one batch.")] = 200,
    gamma: Annotated[float, typer.Option(help="Penalty, kept fixed as in the paper.")] = 5.0,
    preset: Annotated[str, typer.Option(help="default, or paper: Algorithms 1 and 2 as published.")] = "default",
    seed: Annotated[int, typer.Option(help="Seed of the starts.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("runs/toy"),
) -> None:
    """Run the toy example of the paper: where the starts end, and a picture of it.

    Exit code 0 when every start converged to a local minimiser within 1e-4, otherwise 3.
    """
    run = toy.run_starts(starts, gamma, preset, seed)
    table = Table("local minimiser x", "f(x, x)", "starts that end there", title=f"The toy, {preset} settings")
    for x, count in zip(run.minimisers, run.counts, strict=True):
        table.add_row(f"{x:.6f}", f"{float(toy.true_value(x)):.6f}", str(count))
    Console().print(table)
    seconds = run.results.seconds
    print(
        f"{run.converged} of {starts} starts converged; largest distance to a local minimiser "
        f"{run.largest_distance:.1e}; {seconds['run']:.2f} s (and {seconds['compile']:.2f} s to compile)"
    )
    from blocc.report.plots import plot_toy_surface

    plot_toy_surface(run, out / "surface.png")
    print(f"written: {out / 'surface.png'}")
    raise typer.Exit(0 if run.converged == starts and run.largest_distance < 1e-4 else 3)


# --- what a user sees ----------------------------------------------------------------------------------------------
def _document(found: Result | MultiResult, result: Result) -> dict[str, Any]:
    """The best result as JSON, with one line for each start where there were many."""
    document = {**describe(result), "exit_code": EXIT_CODES[result.status]}
    if isinstance(found, MultiResult):
        document["starts"] = [
            {"status": one.status.value, "x": plain(one.x), "upper_value": plain(one.upper_value)}
            for one in found.results
        ]
    return document


# --- the entry point -----------------------------------------------------------------------------------------------
def _version(wanted: bool) -> None:
    if wanted:
        print(f"blocc {__version__}")
        raise typer.Exit()


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Hold the options that belong to no command."""


def build_app() -> typer.Typer:
    """The typer application, with its commands."""
    app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich", help=_ABOUT)
    app.callback(help=_ABOUT)(_root)
    app.command("solve", no_args_is_help=True)(guarded(solve_command))
    app.command("check", no_args_is_help=True)(guarded(check_command))
    app.command("verify", no_args_is_help=True)(guarded(verify_command))
    app.command("design", no_args_is_help=True)(guarded(design_command))
    app.add_typer(build_network_app(), name="network")
    app.command("svm")(guarded(svm_command))
    app.command("compare", no_args_is_help=True)(guarded(compare_command))
    app.command("toy")(guarded(toy_command))
    app.command("sweep", no_args_is_help=True)(guarded(sweep_command))
    app.command("report", no_args_is_help=True)(guarded(report_command))
    return app


def main() -> None:
    """Entry point of the ``blocc`` command."""
    outlive_readers()
    if _MISSING is not None:
        print(f"the command line needs {_MISSING}: pip install 'blocc[cli]'", file=sys.stderr)
        sys.exit(BAD_INPUT)
    build_app()()


if __name__ == "__main__":
    main()
