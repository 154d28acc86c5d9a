"""The command line: parses, calls, prints. Everything it does is a call away in Python.

typer and rich are needed here and nowhere else; annotations stay text until typer reads them, so this module imports
without either and :func:`main` can say what is missing.
"""

from __future__ import annotations

import csv
import functools
import importlib.util
import inspect
import json
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from blocc.applications import toy
from blocc.errors import BloccError
from blocc.problem import BilevelProblem
from blocc.report.progress import ProgressLine
from blocc.report.storage import describe, plain
from blocc.result import MultiResult, Result, Status
from blocc.solve import solve, solve_many
from blocc.version import __version__

try:
    import typer
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
except ImportError as error:
    _MISSING: str | None = (error.name or "typer").partition(".")[0]
else:
    _MISSING = None

BAD_INPUT = 2
EXIT_CODES: dict[Status, int] = {
    Status.CONVERGED: 0,
    Status.STALLED: 3,
    Status.ITERATION_LIMIT: 3,
    Status.INFEASIBLE: 4,
    Status.UNBOUNDED: 5,
    Status.NOT_CONVEX: 6,
    Status.NOT_FINITE: 7,
    Status.TIME_LIMIT: 8,
    Status.STOPPED: 130,
    Status.INTERRUPTED: 130,
}

_ABOUT = """Solve bilevel programs whose lower level is constrained by the upper level's decision.

A problem is a Python file that builds a [bold]BilevelProblem[/bold] (examples/toy.py is one).

[bold]Examples[/bold]

  blocc solve examples/toy.py
  blocc solve examples/toy.py --x0 0.3 --save runs/first --plot runs/first.png
  blocc solve examples/pricing.py --x0 '{"price": [1, 1, 1], "capacity": 3}'
  blocc solve study.py:winter --starts 50 --json
  blocc check study.py:winter
  blocc toy --sensitivity

[bold]Exit codes[/bold]

    0  converged (check: every assumption holds)
    2  bad input
    3  stalled, or out of iterations
    4  infeasible
    5  unbounded
    6  not convex (check: an assumption fails)
    7  a function is not finite
    8  time limit
  130  interrupted or stopped
    1  an unexpected error inside blocc"""

_PROBLEM = "FILE.py, or FILE.py:NAME where the file holds several problems (or functions that build one)."


class InputError(BloccError):
    """What the command line was given cannot be used."""


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
    plot: Annotated[Path | None, typer.Option(help="Draw the convergence (.png, .pdf, .svg).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quiet: Annotated[bool, typer.Option(help="Print nothing; the exit code tells.")] = False,
) -> None:
    """Solve the problem in a file and print a certified answer.

    The exit code says how it ended; blocc --help lists them.
    """
    target = load_problem(problem)
    given = {
        "gamma": _gamma(gamma),
        "inner": inner,
        "outer": outer,
        "step": step,
        "tolerance": tolerance,
        "max_iterations": max_iterations,
        "time_limit": time_limit,
    }
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    options.update(seed=seed, preset=preset)
    many: MultiResult | None = None
    with ProgressLine() as line, _Interrupt() as interrupt:
        options["callback"] = interrupt.seen
        options["progress"] = line if not quiet and sys.stderr.isatty() else False
        if starts is None:
            result = solve(target, None if x0 is None else parse_x0(x0, target), **options)
        elif x0 is None:
            many = solve_many(target, starts=starts, **options)
            result = many.best
        else:
            raise InputError("give either --x0 (one start) or --starts (random starts), not both")
    kept = [] if save is None else [result.save(save)]
    if plot is not None:
        result.plot(plot)
        kept.append(plot)
    if as_json:
        document = {**describe(result), "exit_code": EXIT_CODES[result.status]}
        if many is not None:
            document["starts"] = [
                {"status": r.status.value, "x": plain(r.x), "upper_value": plain(r.upper_value)} for r in many.results
            ]
        print(json.dumps(document, indent=2))
    elif not quiet:
        _print_result(many or result, result.success)
        for path in kept:
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
    sensitivity: Annotated[bool, typer.Option("--sensitivity", help="Also the study of gamma and eta.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the starts.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the picture and the table.")] = Path("runs/toy"),
) -> None:
    """Run the toy example of the paper: where the starts end, and a picture of it.

    Exit code 0 when every start converged to a local minimiser within 1e-4, otherwise 3.
    """
    run = toy.run_starts(starts, gamma, preset, seed)
    table = Table("local minimiser x", "f(x, x)", "starts that end there", title=f"The toy, {preset} settings")
    for x, count in zip(run.minimisers, run.counts, strict=True):
        table.add_row(f"{x:.6f}", f"{float(toy.true_value(x)):.6f}", str(count))
    console = Console()
    console.print(table)
    seconds = run.results.seconds
    print(
        f"{run.converged} of {starts} starts converged; largest distance to a local minimiser "
        f"{run.largest_distance:.1e}; {seconds['run']:.2f} s (and {seconds['compile']:.2f} s to compile)"
    )
    if sensitivity:
        rows = toy.sensitivity(seed=seed)
        console.print(_sensitivity_table(rows))
        print(f"written: {_write_csv(rows, out / 'sensitivity.csv')}")
    from blocc.report.plots import plot_toy_surface

    plot_toy_surface(run, out / "surface.png")
    print(f"written: {out / 'surface.png'}")
    raise typer.Exit(0 if run.converged == starts and run.largest_distance < 1e-4 else 3)


class _Interrupt:
    """Remembers Ctrl-C besides raising it: one that strikes within a callback of JAX's is swallowed there."""

    def __init__(self) -> None:
        self._count = 0

    def seen(self, _: object) -> bool:
        """For ``solve``, which asks after every iteration."""
        return self._count > 0

    def __enter__(self) -> _Interrupt:
        self._main = threading.current_thread() is threading.main_thread()  # elsewhere signals cannot be handled
        if self._main:
            self._before = signal.signal(signal.SIGINT, self._raise)
        return self

    def __exit__(self, *_: object) -> None:
        if self._main:
            signal.signal(signal.SIGINT, self._before)

    def _raise(self, *_: object) -> None:
        self._count += 1
        raise KeyboardInterrupt


# --- what a user gives ---------------------------------------------------------------------------------------------
def load_problem(argument: str) -> BilevelProblem:
    """The problem that ``FILE.py`` or ``FILE.py:NAME`` stands for."""
    file, name = Path(argument), None
    if not file.exists() and ":" in argument:
        before, name = argument.rsplit(":", 1)
        file = Path(before)
    if not file.is_file():
        raise InputError(f"there is no file {str(file)!r}; give the path of a Python file that builds a problem")
    if file.suffix != ".py":
        raise InputError(f"{str(file)!r} is not a Python file; its name must end in .py")
    members = vars(_execute(file))
    if name:
        if name not in members:
            known = ", ".join(_problems(members)) or "none"
            raise InputError(f"{file} defines no {name!r}; the problems in it: {known}")
        return _built(members[name], name, file)
    found = _problems(members)
    if not found:
        raise InputError(f"{file} holds no BilevelProblem, nor a function without arguments that returns one")
    if len(found) > 1:
        raise InputError(f"{file} holds several problems ({', '.join(found)}); choose one: {file}:{next(iter(found))}")
    ((only, value),) = found.items()
    return _built(value, only, file)


def _execute(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"blocc_problem_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses in the file look themselves up here
    sys.path.insert(0, str(file.resolve().parent))  # as if it were run: neighbours can be imported
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise InputError(f"{error.filename or file}, line {error.lineno}: {error.msg}") from error
    except BloccError as error:
        raise InputError(f"{file}: {error}") from error
    except (Exception, SystemExit) as error:
        raise InputError(f"{file} fails while it is read: {type(error).__name__}: {error}") from error
    return module


def _problems(members: dict[str, Any]) -> dict[str, Any]:
    """Problems by name; if there is none, the functions that say they return one; if none does, those that might."""
    public = {key: value for key, value in members.items() if not key.startswith("_")}
    objects = {id(value): key for key, value in reversed(public.items()) if isinstance(value, BilevelProblem)}
    if objects:
        return {key: public[key] for key in reversed(objects.values())}
    functions = {
        key: value
        for key, value in public.items()
        if inspect.isfunction(value) and value.__module__ == members["__name__"] and _needs_nothing(value)
    }
    says = {key: f for key, f in functions.items() if "BilevelProblem" in str(f.__annotations__.get("return", ""))}
    return says or {key: f for key, f in functions.items() if key != "main"}


def _needs_nothing(function: Any) -> bool:
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return all(p.default is not p.empty or p.kind in free for p in parameters)


def _built(value: Any, name: str, file: Path) -> BilevelProblem:
    if inspect.isfunction(value) and _needs_nothing(value):
        try:
            value = value()
        except Exception as error:  # the user's own code: its message is the one that helps
            raise InputError(f"{name}() in {file} fails: {type(error).__name__}: {error}") from error
    if not isinstance(value, BilevelProblem):
        raise InputError(f"{name} in {file} must be a BilevelProblem or build one, got {type(value).__name__}")
    return value


def parse_x0(text: str, problem: BilevelProblem) -> Any:
    """A start from JSON, in the structure of the leader's set."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InputError(f"--x0 must be JSON such as 0.5, '[1, 2]' or '{{\"price\": 3}}', got {text!r}") from error
    return _fit(problem.x_set.template, value, "x0")


def _fit(template: Any, value: Any, name: str) -> Any:
    if isinstance(template, dict):
        if not isinstance(value, dict) or set(value) != set(map(str, template)):
            raise InputError(f"{name} must be an object with the keys {', '.join(map(str, template))}")
        return {key: _fit(part, value[str(key)], f"{name}.{key}") for key, part in template.items()}
    if isinstance(template, (list, tuple)):
        if not isinstance(value, list) or len(value) != len(template):
            raise InputError(f"{name} must be a list of {len(template)} parts")
        parts = [_fit(part, item, f"{name}[{i}]") for i, (part, item) in enumerate(zip(template, value, strict=True))]
        return parts if isinstance(template, list) else _like(template, parts)
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number or a list of numbers, got {json.dumps(value)}") from None
    if array.shape != template.shape:
        wanted = "a single number" if template.shape == () else f"an array of shape {template.shape}"
        raise InputError(f"{name} must be {wanted}, got {json.dumps(value)}")
    return array


def _like(template: tuple, parts: list) -> tuple:
    return type(template)(*parts) if hasattr(template, "_fields") else tuple(parts)


def _gamma(text: str | None) -> float | str | None:
    if text is None or text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--gamma must be 'auto' or a positive number, got {text!r}") from None


# --- what a user sees ----------------------------------------------------------------------------------------------
def _print_result(answer: Result | MultiResult, success: bool) -> None:
    first, _, rest = repr(answer).partition("\n")
    console = Console(soft_wrap=True, highlight=False)
    console.print(first, style="bold green" if success else "bold red", markup=False)
    console.print(rest, markup=False)


def _sensitivity_table(rows: list[toy.SensitivityRow]) -> Table:
    table = Table(title="||yg - yF|| and time of one simulation, beside the paper's", box=SIMPLE)
    for heading in ("eta", "gamma", "||yg - yF||", "paper", "ms", "paper", "steps"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            f"{row.eta:g}",
            f"{row.gamma:g}",
            f"{row.distance_mean:.3f} ± {row.distance_std:.3f}",
            f"{row.published_distance_mean:.3f} ± {row.published_distance_std:.3f}",
            f"{1e3 * row.seconds_mean:.2f} ± {1e3 * row.seconds_std:.2f}",
            f"{1e3 * row.published_seconds_mean:.0f}",
            f"{row.iterations_mean:.0f}",
        )
    return table


def _write_csv(rows: list[toy.SensitivityRow], path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(asdict(rows[0])))
        writer.writeheader()
        writer.writerows(map(asdict, rows))
    return path


# --- the entry point -----------------------------------------------------------------------------------------------
def _guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Turn an error that the user can mend into one sentence and exit code 2."""

    @functools.wraps(command)
    def guarded(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except BloccError as error:
            print(f"blocc: {error}", file=sys.stderr)
            raise typer.Exit(BAD_INPUT) from None

    return guarded


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
    """The typer application, with its three commands."""
    app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich", help=_ABOUT)
    app.callback(help=_ABOUT)(_root)
    app.command("solve", no_args_is_help=True)(_guarded(solve_command))
    app.command("check", no_args_is_help=True)(_guarded(check_command))
    app.command("toy")(_guarded(toy_command))
    return app


def main() -> None:
    """Entry point of the ``blocc`` command."""
    if _MISSING is not None:
        print(f"the command line needs {_MISSING}: pip install 'blocc[cli]'", file=sys.stderr)
        sys.exit(BAD_INPUT)
    build_app()()


if __name__ == "__main__":
    main()
