"""The command line: parses, calls, prints. Everything it does is a call away in Python.

The commands ``solve``, ``check``, ``verify``, ``toy``, ``info`` and ``examples`` are here, and the application of all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from blocc._lib.files import plain
from blocc._lib.signals import Shield, listening
from blocc._lib.version import __version__
from blocc.cli.bench import bench_command
from blocc.cli.common import (
    EXIT_CODES,
    Checkpoint,
    ProblemFile,
    Quiet,
    Resume,
    Seed,
    make_app,
    parse_number,
    present,
    print_json,
)
from blocc.cli.compare import compare_command
from blocc.cli.design import design_command
from blocc.cli.examples import copy_example, print_examples
from blocc.cli.info import print_info
from blocc.cli.network import build_network_app
from blocc.cli.power import CaseSource, build_power_app, same_system
from blocc.cli.road_source import RoadSource
from blocc.cli.roads import build_roads_app
from blocc.cli.studies import report_command, sweep_command
from blocc.cli.svm import svm_command
from blocc.errors import InputError
from blocc.executors.choice import make_executor
from blocc.judge.verification import Verification, readable
from blocc.judge.verify import verify
from blocc.kit.claims import CONE_UNCHECKED, RESULT_BOUNDED, RESULT_UNCHECKED, FileVerification, of_file
from blocc.kit.storage import ChangedError, document_format
from blocc.multi_result import MultiResult
from blocc.problem import BilevelProblem
from blocc.problems import toy
from blocc.problems.loading import load_problem, load_solvable, parse_x0
from blocc.report.plots import plot_toy_surface
from blocc.report.storage import describe, load_result
from blocc.result import Result, Status
from blocc.solve import solve
from blocc.solve_many import solve_many
from blocc.transport import read_network, verify_design
from blocc.transport.design.documents import read_design_json

_ABOUT = """Solve bilevel programs whose lower level is constrained by the upper level's decision.

A problem is a Python file that builds a [bold]BilevelProblem[/bold]. The first two lines write one, and solve it.

[bold]Examples[/bold]

  blocc examples copy toy
  blocc solve toy.py
  blocc solve toy.py --x0 0.3 --save runs/first --plot runs/first.png
  blocc solve pricing.py --x0 '{"price": [1, 1, 1], "capacity": 3}'
  blocc solve study.py:winter --starts 50 --json
  blocc check study.py:winter
  blocc verify runs/first toy.py
  blocc design seville --out runs/seville
  blocc verify runs/seville/design.json seville
  blocc network describe seville
  blocc roads expand sioux-falls --candidates 16,19,29 --cost 0.02 --exponent 2 --out runs/sioux
  blocc power bid case5 --generators 3,5 --out runs/bids
  blocc svm breast_cancer --out runs/svm
  blocc toy --starts 50
  blocc compare toy --out runs/compare
  blocc bench --out runs/bench
  blocc sweep study.toml --out runs/study
  blocc report runs/study
  blocc examples list
  blocc info

[bold]Exit codes[/bold]

    0  converged (check: every assumption holds; verify: every claim does; compare: one method at
       least; sweep and bench: every cell is done)
    2  bad input
    3  stalled, or out of iterations (sweep and bench: some cells failed)
    4  infeasible
    5  unbounded
    6  not convex (check: an assumption fails; verify: a claim does not hold)
    7  a function is not finite
    8  time limit
    9  the penalty is open: gamma, given by hand, is too small
   10  out of memory
   11  the disk is full or broken
   12  both levels are stationary, and the follower is not convex
  130  stopped by Ctrl-C (SIGINT): what was found until then is printed and kept
  143  stopped by SIGTERM, likewise
    1  an unexpected error inside blocc"""

_ABOUT_EXAMPLES = """Examples to read, to run and to change.

[bold]Examples[/bold]

  blocc examples list
  blocc examples copy pricing
  blocc examples copy braess studies/"""

#: A claim that does not hold counts like an assumption that fails.
NOT_VERIFIED = EXIT_CODES[Status.NOT_CONVEX]


# --- commands ------------------------------------------------------------------------------------------------------
def solve_command(
    problem: ProblemFile,
    x0: Annotated[
        str | None, typer.Option(help="Start, as JSON: a number, a list or an object. Default: mid X.")
    ] = None,
    gamma: Annotated[str | None, typer.Option(help="'auto', or a number to keep it fixed.")] = None,
    inner: Annotated[str | None, typer.Option(help="auto, interior-point, maxmin, single-loop or pdhg.")] = None,
    outer: Annotated[str | None, typer.Option(help="auto, or pgd: Algorithm 1 as published.")] = None,
    step: Annotated[float | None, typer.Option(help="Step length eta of pgd.")] = None,
    stop: Annotated[float | None, typer.Option(help="Stopping test of pgd. Default: all its steps.")] = None,
    tolerance: Annotated[float | None, typer.Option(help="Relative tolerance of the certificate.")] = None,
    max_iterations: Annotated[int | None, typer.Option(help="Most outer iterations.")] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds, compilation included; the best point so far is kept.")
    ] = None,
    starts: Annotated[int | None, typer.Option(help="Solve from this many random starts and report the best.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes for the starts. Default: this one.")] = None,
    seed: Seed = 0,
    preset: Annotated[str, typer.Option(help="default, or paper: the published algorithms.")] = "default",
    save: Annotated[Path | None, typer.Option(help="Keep the result as PATH.json.")] = None,
    checkpoint: Checkpoint = None,
    resume: Resume = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the convergence (.png, .pdf, .svg).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Solve the problem in a file and print a certified answer.

    The exit code says how it ended; blocc --help lists them.
    """
    target: Any = load_solvable(problem)
    given = {
        "gamma": parse_number("gamma", gamma, "auto"),
        "inner": inner,
        "outer": outer,
        "step": step,
        "stop": stop,
        "tolerance": tolerance,
        "max_iterations": max_iterations,
        "time_limit": time_limit,
    }
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    options.update(seed=seed, progress=False if quiet else None)
    others = {"checkpoint": checkpoint, "resume": resume, "preset": None if preset == "default" else preset}
    options.update({name: value for name, value in others.items() if value is not None})
    if starts is not None and x0 is not None:
        raise InputError("give either --x0 (one start) or --starts (random starts), not both")
    is_core = isinstance(target, BilevelProblem)
    found: Result | MultiResult
    if starts is None:
        start = None if x0 is None else parse_x0(x0, target)
        found = solve(target, start, **options) if is_core else target.solve(start, **options)
    else:
        executor = None if workers is None else make_executor("processes", workers)
        options.update(starts=starts, executor=executor)
        found = solve_many(target, **options) if is_core else target.solve_many(**options)
    result = found.best if isinstance(found, MultiResult) else found

    def write() -> Iterator[Path]:
        if save is not None:
            yield result.save(save)
        if plot is not None:
            result.plot(plot)
            yield plot

    present(
        lambda: _document(found, result), repr(found), result.success, as_json=as_json, quiet=quiet, written=write()
    )
    raise typer.Exit(EXIT_CODES[result.status])


def check_command(
    problem: ProblemFile,
    x0: Annotated[str | None, typer.Option(help="Where to look, as JSON. Default: mid X.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Probe numerically whether the problem meets the method's assumptions, and say so in words.

    Exit code 0: every assumption holds near x0; 6: one fails; 2: bad input.
    """
    target = load_problem(problem)
    report = target.check(None if x0 is None else parse_x0(x0, target))
    if as_json:
        print_json(report.to_dict())
    else:
        print(report)
    raise typer.Exit(0 if report.ok else EXIT_CODES[Status.NOT_CONVEX])


def verify_command(
    result: Annotated[
        str,
        typer.Argument(
            help="What --save or Result.save wrote, or the design.json of a design, or an estimate.json.",
            metavar="RESULT",
            show_default=False,
        ),
    ],
    problem: Annotated[
        str,
        typer.Argument(
            help="The Python file that builds its problem; for a design its network or case.",
            metavar="FILE.py[:NAME]|NETWORK",
            show_default=False,
        ),
    ],
    tolerance: Annotated[float | None, typer.Option(help="Relative tolerance; never the result's own.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Recompute everything that a saved result or design claims, from the problem or the network alone.

    Exit code 0: every claim holds; 6: one does not, or the files were changed after they were saved; 2: bad input.
    """
    given = {} if tolerance is None else {"tolerance": tolerance}
    try:
        if re.search(r"\.py(:|$)", problem):
            target: Any = load_solvable(problem)
            found = load_result(result)
            is_core = isinstance(target, BilevelProblem)
            verification = verify(target, found, **given) if is_core else target.verify(found, **given)
            unchecked = RESULT_UNCHECKED if is_core else CONE_UNCHECKED
            verification = of_file(verification, unchecked | RESULT_BOUNDED)
        else:
            verification = _verify_answer(result, problem, given)
    except ChangedError as error:
        if as_json:
            print_json({"ok": False, "error": str(error)})
        elif not quiet:
            print(f"NOT verified: {error}")
        raise typer.Exit(NOT_VERIFIED) from None
    if as_json:
        print_json(verification.to_dict())
    elif not quiet:
        _print_checks(verification)
    raise typer.Exit(0 if verification.ok else NOT_VERIFIED)


def _verify_answer(result: str, subject: str, given: dict[str, float]) -> Verification:
    """An application's answer, whose file says which application that is."""
    kind = document_format(result)
    if kind == "blocc-power-design":
        found = CaseSource(subject).read()
        from blocc.power.documents import DESIGN as POWER_DESIGN

        if not same_system(found, POWER_DESIGN.load(result).case):  # perhaps its flows are computed in the other way
            found = CaseSource(subject, branch_model="matpower").read()
        return POWER_DESIGN.verify(result, found, **given)
    if kind in ("blocc-road-design", "blocc-demand-estimate"):
        roads = RoadSource(subject).read()
        from blocc.roads.documents import DESIGN, ESTIMATE

        return (ESTIMATE if kind == ESTIMATE.format else DESIGN).verify(result, roads, **given)
    return verify_design(read_network(subject), read_design_json(result), **given)


def toy_command(
    starts: Annotated[int, typer.Option(help="Random starts, run in one batch.")] = 200,
    gamma: Annotated[float, typer.Option(help="Penalty, kept fixed as in the paper.")] = 5.0,
    preset: Annotated[
        str, typer.Option(help="default; paper: Algorithms 1 and 2 by its text; or toy: with its program's numbers.")
    ] = "default",
    seed: Annotated[int, typer.Option(help="Seed of the starts.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("runs/toy"),
) -> None:
    """Run the toy example of the paper: where the starts end, and a picture of it.

    Starts are drawn as the paper's: uniform on [0, 3.5], those beyond 3 at 3. Exit code 0 when every start converged
    within 1e-3 of a local minimiser, otherwise 3.
    """
    run = toy.run_starts(starts, gamma, preset, seed)
    with listening(Shield()):
        table = Table("local minimiser x", "f(x, x)", "starts that end there", title=f"The toy, {preset} settings")
        for x, count in zip(run.minimisers, run.counts, strict=True):
            table.add_row(f"{x:.6f}", f"{float(toy.true_value(x)):.6f}", str(count))
        Console().print(table)
        seconds = run.results.seconds
        print(
            f"{run.found} of {starts} starts ended within {toy.FOUND:g} of a local minimiser (the farthest "
            f"{run.largest_distance:.1e} away), {run.converged} converged; {seconds['run']:.2f} s (and "
            f"{seconds['compile']:.2f} s to compile)"
        )
        plot_toy_surface(run, out / "surface.png")
        print(f"written: {out / 'surface.png'}")
    raise typer.Exit(0 if run.converged == run.found == starts else 3)


def info_command(as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False) -> None:
    """Tell versions, devices and threads: what a report of an error, or a measurement, should name."""
    print_info(as_json)


def list_command() -> None:
    """List the examples, each with what it shows."""
    print_examples()


def copy_command(
    name: Annotated[str, typer.Argument(help="One of the names that `list` shows.", show_default=False)],
    folder: Annotated[Path, typer.Argument(help="Where to copy it to.")] = Path(),
) -> None:
    """Copy an example; a file that is there already is never written over."""
    copy_example(name, folder)


# --- what a user sees ----------------------------------------------------------------------------------------------
def _document(found: Result | MultiResult, result: Result) -> dict[str, Any]:
    """The best result as JSON, with one line for each start where there were many."""
    document = {**describe(result), "exit_code": EXIT_CODES[result.status]}
    if isinstance(found, MultiResult):
        document["starts"] = [
            {"status": one.status.value, "x": plain(one.x), "upper_value": one.upper_value} for one in found.results
        ]
    return document


def _print_checks(verification: Verification) -> None:
    console = Console(highlight=False)
    table = Table(box=SIMPLE)
    table.add_column("claim", no_wrap=True)
    for heading in ("result says", "recomputed", ""):
        table.add_column(heading, overflow="fold")
    table.add_column("by", style="dim")
    for check in verification.checks:
        style = "green" if check.ok else "red" if check.ok is False else "yellow"
        cells = (check.name, readable(check.claimed), readable(check.recomputed))
        words = f"[{style}]{check.word}[/{style}]"
        table.add_row(*map(escape, cells), words, escape(check.note))  # a file from outside may hold any text
    console.print(table)
    verdict = "verified" if verification.ok else "NOT verified"
    style = "bold green" if verification.ok else "bold red"
    if isinstance(verification, FileVerification):
        for line in verification.reserve():
            console.print(line, style="dim", markup=False)
    console.print(f"{verification.name}: {verdict} (tolerance {verification.tolerance:g})", style=style, markup=False)


# --- the application -----------------------------------------------------------------------------------------------
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
    own = (solve_command, check_command, verify_command)
    studies = (compare_command, bench_command, toy_command, sweep_command, report_command)
    others = (design_command, svm_command, *studies, info_command)
    app = make_app(_ABOUT, *own, *others, bare=("svm", "toy", "bench", "info"))
    app.callback(help=_ABOUT)(_root)
    app.add_typer(build_network_app(), name="network")
    app.add_typer(build_roads_app(), name="roads")
    app.add_typer(build_power_app(), name="power")
    app.add_typer(make_app(_ABOUT_EXAMPLES, list_command, copy_command, bare=("list",)), name="examples")
    return app
