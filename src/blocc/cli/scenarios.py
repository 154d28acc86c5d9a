"""``blocc design`` with scenarios: their lines or their file, progress with their names, and the table at the end."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from blocc._lib.files import read_limited, shown
from blocc.cli.common import BAD_INPUT, EXIT_CODES, Output, print_json
from blocc.cli.ending import INTERRUPTED
from blocc.cli.studies import EXECUTOR_HELP, SCHEDULER_HELP, SOME_FAILED, WORKERS_HELP
from blocc.errors import InputError, OptionError
from blocc.report.progress import DesignProgress
from blocc.report.study.study_tables import print_table
from blocc.result import HistoryRow
from blocc.transport import Scenario, ScenarioDesigns, TransportNetwork, design_scenarios

_MOST_BYTES = 2**20  #: of a file of scenarios
#: What the terminal shows of each scenario; the page and the tables have more.
_COLUMNS = ("scenario", "status", "certificate", "utility", "revenue", "construction_cost", "passengers")


_SCENARIO = "A scenario: base, budget=100,demand=1.1 or 'growth: budget=100, demand=1.1'; may be given again and again."
_PANEL = "Scenarios, and who computes them, or the starts of one design"


@dataclass(frozen=True)
class Scenarios:
    """Which scenarios, and who computes them."""

    scenario: Annotated[list[str] | None, typer.Option(help=_SCENARIO, rich_help_panel=_PANEL)] = None
    scenarios: Annotated[
        Path | None, typer.Option(help="A TOML file with a table for each scenario.", rich_help_panel=_PANEL)
    ] = None
    executor: Annotated[str | None, typer.Option(help=EXECUTOR_HELP, rich_help_panel=_PANEL)] = None
    workers: Annotated[int | None, typer.Option(help=WORKERS_HELP, rich_help_panel=_PANEL)] = None
    scheduler: Annotated[str | None, typer.Option(help=SCHEDULER_HELP, rich_help_panel=_PANEL)] = None

    @property
    def computing(self) -> dict[str, Any]:
        """Who computes them, or the starts of one design, as ``design_scenarios`` takes it."""
        return {name: getattr(self, name) for name in ("executor", "workers", "scheduler")}

    @property
    def is_given(self) -> bool:
        """Whether there are any."""
        return bool(self.scenario) or self.scenarios is not None

    def read(self) -> list[Scenario]:
        """Those of the file, then those of the command line."""
        tables = {} if self.scenarios is None else _tables(self.scenarios)
        return [
            *(Scenario(name, changes) for name, changes in tables.items()),
            *map(Scenario.parse, self.scenario or ()),
        ]


def _tables(file: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(read_limited(file, _MOST_BYTES, InputError).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{file} is not a TOML file: {error}") from error
    for name, changes in content.items():
        if not isinstance(changes, dict):
            raise InputError(f"{file}: {name!r} must be a table, a line [{name}] with keys below, got {shown(changes)}")
    return content


class _Progress:
    """A line when a scenario begins and ends, and for designs in this process the live line of a design in between."""

    def __init__(self, starts: int, time_limit: float | None) -> None:
        self._settings = (starts, time_limit)
        self._line: _NamedProgress | None = None

    def tell(self, name: str, words: str) -> None:
        self.close()
        print(f"blocc: {name}: {words}", file=sys.stderr, flush=True)

    def report(self, name: str, iteration: int, row: HistoryRow) -> None:
        if self._line is None:
            self._line = _NamedProgress(*self._settings)
            self._line.name = name
        self._line(iteration, row)

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None


class _NamedProgress(DesignProgress):
    name = ""

    def words(self, iteration: int, row: HistoryRow) -> str:
        """What the line says about an iteration, after the scenario's name."""
        return f"{self.name}: {super().words(iteration, row)}"


def run_scenarios(network: TransportNetwork, plan: Scenarios, options: dict[str, Any], output: Output) -> NoReturn:
    """Design all scenarios, print them side by side, and end with the exit code of the worst of them."""
    progress = _Progress(options.get("starts") or 5, options.get("time_limit"))
    told = {} if output.quiet else {"on_progress": progress.tell, "report": progress.report}
    try:
        result = design_scenarios(network, plan.read(), out=output.out, **plan.computing, **told, **options)
    except OptionError as error:  # of a scenario, whose changes have the names of Python's options
        print(f"blocc: {error}", file=sys.stderr)
        raise typer.Exit(BAD_INPUT) from None
    finally:
        progress.close()
    if output.as_json:
        print_json(result.rows())
    elif not output.quiet:
        rows = [{name: row.get(name) for name in _COLUMNS} for row in result.rows()]
        print_table(rows, network.name, "interrupted" if result.interrupted else "")
        for path in result.written:
            print(f"written: {path}")
    raise typer.Exit(_exit_code(result))


def _exit_code(result: ScenarioDesigns) -> int:
    if result.interrupted:
        return INTERRUPTED
    return SOME_FAILED if result.failed else max((EXIT_CODES[design.status] for design in result), default=SOME_FAILED)
