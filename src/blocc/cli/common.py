"""What all commands share: exit codes, options, what is printed, and how a function becomes a command."""

from __future__ import annotations

import functools
import inspect
import json
import re
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn, Protocol, TypeVar

import numpy as np
import typer
from rich.console import Console
from typer.models import ArgumentInfo

from blocc._lib.files import DISK_ERRORS, plain
from blocc._lib.signals import Shield, listening
from blocc.cli.ending import INTERRUPTED, NOT_WRITTEN, ended_by_signals, exit_code
from blocc.errors import BloccError, InputError
from blocc.kit.documents import Document
from blocc.kit.figure import new_figure
from blocc.networks.checked_rows import NetworkError
from blocc.networks.readers.raw import NOT_USED
from blocc.report.progress import SearchProgress
from blocc.result import Status

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

BAD_INPUT = 2
OUT_OF_MEMORY = 10
ALARMS = ("FAIL ", "NOT CERTIFIED")  #: beginnings of lines that no reader should miss
LESS_MEMORY = "take a smaller problem, or a machine with more memory"
EXIT_CODES: dict[Status, int] = {
    Status.CONVERGED: 0,
    Status.STATIONARY: 12,
    Status.STALLED: 3,
    Status.ITERATION_LIMIT: 3,
    Status.INFEASIBLE: 4,
    Status.UNBOUNDED: 5,
    Status.NOT_CONVEX: 6,
    Status.NOT_FINITE: 7,
    Status.TIME_LIMIT: 8,
    Status.PENALTY_OPEN: 9,
    Status.STOPPED: INTERRUPTED,
    Status.INTERRUPTED: INTERRUPTED,
}

# --- options -------------------------------------------------------------------------------------------------------
_FILE = "FILE.py, or FILE.py:NAME where the file holds several problems (or functions that build one)."
ProblemFile = Annotated[str, typer.Argument(help=_FILE, metavar="FILE.py[:NAME]", show_default=False)]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
Checkpoint = Annotated[Path | None, typer.Option(help="Keep the run itself here, to continue it later.")]
Resume = Annotated[Path | None, typer.Option(help="Continue the run that was kept here.")]
Quiet = Annotated[bool, typer.Option(help="Print nothing; the exit code tells.")]

_POSITIVE = (
    *("c_weight", "gamma", "kernel_gamma", "tolerance", "step"),
    *("time_limit", "max_iterations", "degree", "splits"),
)
_NOT_NEGATIVE = ("intercept_weight", "seed", "top")


def flag(name: str) -> str:
    """What a parameter is called on the command line."""
    return "--" + name.replace("_", "-")


def with_flags(sentence: str, names: Iterable[str]) -> str:
    """A sentence about Python's arguments with the options of a command in their place.

    An argument is one where it has an underscore, is given a value (``name=``) or begins the sentence. What stands in
    double quotes is a name in a file.
    """
    for name in sorted(names, key=len, reverse=True):
        sentence = re.sub(rf"(?<![\w-]){name}=", f"{flag(name)} ", sentence)
        anywhere = rf'(?<![\w"-]){name}(?![\w"-])' if "_" in name else rf"^{name}(?= )"
        sentence = re.sub(anywhere, flag(name), sentence)
    return sentence


def parse_number(name: str, text: str | None, *words: str) -> float | str | None:
    """One of these words, or a number."""
    if text is None or text in words:
        return text
    try:
        return float(text)
    except ValueError:
        known = ", ".join(map(repr, words))
        raise InputError(f"{flag(name)} must be {known} or a positive number, got {text!r}") from None


def parse_numbers(name: str, text: str | None) -> float | list[float] | None:
    """A number, or a JSON list of numbers."""
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, (int, float, list)) or isinstance(value, bool):
        raise InputError(f"{flag(name)} must be a number or a JSON list of numbers, got {text!r}")
    return value


def check_options(options: Mapping[str, Any], choices: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse words that are not a choice, and numbers out of range."""
    for name, allowed in choices.items():
        if name in options and options[name] not in allowed:
            raise InputError(f"{flag(name)} must be {', '.join(allowed[:-1])} or {allowed[-1]}, got {options[name]!r}")
    for names, least, word in ((_POSITIVE, np.nextafter(0.0, 1.0), "positive"), (_NOT_NEGATIVE, 0.0, "nonnegative")):
        for name in names:
            value = options.get(name)
            if value is not None and not isinstance(value, str) and not least <= value < np.inf:
                raise InputError(f"{flag(name)} must be {word} and finite, got {value!r}")


def check_folder(out: Path | None) -> None:
    """Refuse a folder that cannot be made; pictures must be possible too."""
    if out is None:
        return
    found = next((path for path in (out, *out.parents) if path.exists()), None)
    if found is not None and not found.is_dir():
        raise InputError(f"--out must be a folder, but {str(found)!r} is a file")
    new_figure(1.0, 1.0)  # says so where matplotlib is missing


# --- what is printed -----------------------------------------------------------------------------------------------
def print_json(document: Any) -> None:
    """Print a document as JSON."""
    print(json.dumps(plain(document), indent=2))


def present(
    document: Callable[[], Any],
    text: str,
    success: bool,
    *,
    as_json: bool,
    quiet: bool,
    written: Iterable[Path] = (),
) -> None:
    """Print an answer: the document as JSON, or the text with its first line green or red, and the files written.

    Lines that begin with one of ``ALARMS`` are red too. ``written`` may write its files while it is gone through: what
    was computed is on the screen by then. Pages and pictures take seconds. One signal in that time changes nothing but
    the exit code, so that whoever has stopped a search twice still has its answer on the disk; a second one interrupts.
    """
    with listening(Shield()):
        if as_json:
            print_json(document())
        elif not quiet:
            first, _, rest = text.partition("\n")
            console = Console(soft_wrap=True, highlight=False)
            console.print(first, style="bold green" if success else "bold red", markup=False)
            for line in rest.splitlines():
                console.print(line, style="bold red" if line.lstrip().startswith(ALARMS) else None, markup=False)
        sys.stdout.flush()
        for path in written:
            if not (as_json or quiet):
                print(f"written: {path}")


@dataclass(frozen=True)
class Output:
    """Where answers go: the options of every command that computes one."""

    out: Annotated[Path | None, typer.Option(help="Folder for the files of the answer.")] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False
    quiet: Quiet = False

    def read(self, source: Source[T]) -> T:
        """What a command is about, once it is sure that its answer can be written."""
        check_folder(self.out)
        return source.read()

    def conclude(self, answer: Any, kind: Document[Any]) -> NoReturn:
        """Print and write an answer, and end with the exit code of its status."""
        document = functools.partial(kind.document, answer)
        write = functools.partial(kind.write, answer)
        self.finish(document, repr(answer), answer.success, write, EXIT_CODES[answer.status])

    def finish(
        self,
        document: Callable[[], Any],
        text: str,
        success: bool,
        write: Callable[[Path], Iterable[Path]],
        code: int,
    ) -> NoReturn:
        """Print an answer, write its files into the folder where there is one, and end with this exit code.

        They are written when the answer is on the screen.
        """
        written = (path for out in [self.out] if out is not None for path in write(out))
        present(document, text, success, as_json=self.as_json, quiet=self.quiet, written=written)
        raise typer.Exit(code)


@dataclass(frozen=True)
class Search:
    """How to search: the options of every command whose answer is the best of several descents."""

    starts: Annotated[int | None, typer.Option(help="Descents; the best is kept. Default: few, by the size.")] = None
    seed: Seed = 0
    tolerance: Annotated[float | None, typer.Option(help="What decisions around the answer may gain, relative.")] = None
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds, compilation included; the best answer so far is kept.")
    ] = None
    checkpoint: Checkpoint = None
    resume: Resume = None

    def run(
        self,
        output: Output,
        kind: Document[Any],
        function: Callable[..., Any],
        *given: Any,
        starts: int,
        is_maximised: bool = False,
        **options: Any,
    ) -> NoReturn:
        """Call a search with what was given, show how far it is, and print and write its answer.

        :param starts: how many it tries where nothing else is said
        """
        chosen = {name: value for name, value in {**options, **vars(self)}.items() if value is not None}
        with SearchProgress(self.starts or starts, self.time_limit, is_maximised=is_maximised) as line:
            answer = function(*given, report=None if output.quiet else line.step, **chosen)
        output.conclude(answer, kind)


class Source(Protocol[T_co]):
    """What tells which network or case a command is about."""

    def read(self) -> T_co:
        """The network, or the case."""


@contextmanager
def needing(what: str, extra: str) -> Iterator[None]:
    """In this block modules of an application are imported, whose packages may be missing."""
    try:
        yield
    except ImportError as error:
        raise InputError(f"{what} ({error}): pip install 'blocc[{extra}]'") from error


def positive(**figures: float | None) -> None:
    """Refuse figures that are no positive numbers."""
    for name, value in figures.items():
        if value is not None and not 0.0 < value < np.inf:
            raise InputError(f"{flag(name)} must be a positive number, got {value!r}")


def print_complaints(error: NetworkError, names: Iterable[str]) -> NoReturn:
    """Everything that is wrong with a network and where: its message shows the first complaints alone."""
    print(with_flags("\n".join(error.complaints), set(names) - {"network"}))
    print(f"{error.name}: {len(error.complaints)} wrong", file=sys.stderr)
    raise typer.Exit(BAD_INPUT) from None


def print_assumptions(lines: Iterable[str]) -> None:
    """What was assumed; what files have and nobody uses is told loudly."""
    for line in lines:
        print(f"  {line.replace(NOT_USED, NOT_USED.upper(), 1)}")


# --- from functions to commands ------------------------------------------------------------------------------------
def make_app(about: str, *commands: Callable[..., None], bare: Iterable[str] = ()) -> typer.Typer:
    """A typer application of functions called NAME_command; those among ``bare`` can do without any argument."""
    app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich", help=about)
    for command in commands:
        name = command.__name__.removesuffix("_command")
        app.command(name, no_args_is_help=name not in bare)(as_command(command))
    return app


def as_command(command: Callable[..., None]) -> Callable[..., None]:
    """What typer takes: every parameter that is a dataclass becomes a parameter for each of its fields.

    An error that the user can mend becomes one sentence, in which options have their names on the command line, and
    exit code 2; a lack of memory and a disk that cannot be written to likewise, with codes of their own. A command that
    was asked to stop ends with the code of the signal, whatever it found until then.
    """
    groups: dict[str, type] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        members = [parameter]
        if isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation):
            groups[parameter.name] = parameter.annotation
            members = list(inspect.signature(parameter.annotation, eval_str=True).parameters.values())
        parameters += [member.replace(kind=inspect.Parameter.KEYWORD_ONLY) for member in members]

    names = [parameter.name for parameter in parameters if not _is_argument(parameter)]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        try:
            for name, group in groups.items():
                given[name] = group(**{field: given.pop(field) for field in inspect.signature(group).parameters})
            with ended_by_signals() as told:
                try:
                    command(**given)
                    code = 0
                except typer.Exit as ended:
                    code = ended.exit_code
                if told.heard is not None:
                    print(f"blocc: stopped by {told.heard.name}", file=sys.stderr)
            raise typer.Exit(exit_code(told) or code)
        except (BloccError, OSError, sqlite3.Error) as error:
            if not_written(error):
                print(f"blocc: {error}; what was written before is whole", file=sys.stderr)
                raise typer.Exit(NOT_WRITTEN) from None
            if not isinstance(error, BloccError):
                raise
            columns = getattr(error, "columns", ())  # an error about tables names these, and not options
            print(f"blocc: {with_flags(str(error), set(names).difference(columns))}", file=sys.stderr)
            raise typer.Exit(BAD_INPUT) from None
        except (MemoryError, RuntimeError) as error:  # XLA reports a lack of memory by an error of its own
            if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
                raise
            print(f"blocc: out of memory ({str(error).splitlines()[0]:.200}); {LESS_MEMORY}", file=sys.stderr)
            raise typer.Exit(OUT_OF_MEMORY) from None

    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def not_written(error: BaseException) -> bool:
    """Whether the disk is at fault: it is full or broken, or more than the user may have would be on it."""
    cause = error if isinstance(error, (OSError, sqlite3.Error)) else error.__cause__
    if isinstance(cause, sqlite3.Error):
        return getattr(cause, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
    return isinstance(cause, OSError) and cause.errno in DISK_ERRORS


def _is_argument(parameter: inspect.Parameter) -> bool:
    """Whether a parameter has no name on the command line."""
    return any(isinstance(part, ArgumentInfo) for part in getattr(parameter.annotation, "__metadata__", ()))
