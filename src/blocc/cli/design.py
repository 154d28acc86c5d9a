"""The command ``blocc design``, with its files and its report."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from blocc.cli.common import Checkpoint, Output, Resume, parse_number, parse_numbers
from blocc.cli.network import NetworkSource
from blocc.cli.scenarios import Scenarios, run_scenarios
from blocc.errors import OptionError
from blocc.executors.choice import choose_executor
from blocc.networks.readers.raw import NOT_USED
from blocc.report.progress import DesignProgress
from blocc.result import HistoryRow
from blocc.transport import DesignOptions, design_network
from blocc.transport.design.documents import DESIGN
from blocc.transport.design.forecast import forecast
from blocc.transport.design.options import PRESETS
from blocc.transport.network.plausibility import doubts

_CAPACITIES = ("max_capacity", "min_capacity", "existing_capacity")
_STARTS = "Random starts; the best design is kept. Default: 5, or the preset's."
_LIMIT = "a number, or a JSON list with one for each link."


@dataclass(frozen=True)
class Arguments:
    """Options of ``design_network``, as they are given here."""

    gamma: Annotated[str, typer.Option(help="'auto', or a number: the penalty.")] = "auto"
    starts: Annotated[int | None, typer.Option(help=_STARTS)] = None
    seed: Annotated[int, typer.Option(help="Seed of the starts.")] = DesignOptions.seed
    budget: Annotated[float | None, typer.Option(help="The most that construction may cost.")] = None
    symmetric: Annotated[bool, typer.Option("--symmetric", help="Same capacity in both directions.")] = False
    max_capacity: Annotated[str | None, typer.Option(help=f"The most a link may have: {_LIMIT}")] = None
    min_capacity: Annotated[str | None, typer.Option(help=f"The least a link must have: {_LIMIT}")] = None
    existing_capacity: Annotated[str | None, typer.Option(help=f"What a link has today: {_LIMIT}")] = None
    method: Annotated[str, typer.Option(help="prices, or pgd: Algorithm 1.")] = DesignOptions.method
    engine: Annotated[str, typer.Option(help="dense, paths (large networks), mixed (with a GPU), or auto.")] = "auto"
    preset: Annotated[str, typer.Option(help=f"{', '.join(PRESETS)}: Algorithm 1 with published numbers.")] = "default"
    tolerance: Annotated[float, typer.Option(help="What the certificate may lack, relative to 1 + |utility|.")] = (
        DesignOptions.tolerance
    )
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds, compilation included; the best design so far is kept.")
    ] = None
    max_iterations: Annotated[int | None, typer.Option(help="Most steps of Algorithm 1.")] = None

    @property
    def options(self) -> dict[str, Any]:
        """The same, as ``design_network`` takes it."""
        capacities = {name: parse_numbers(name, getattr(self, name)) for name in _CAPACITIES}
        given = {**vars(self), "gamma": parse_number("gamma", self.gamma, "auto"), **capacities}
        return {name: value for name, value in given.items() if value is not None}


def design_command(
    *,
    arguments: Arguments,
    checkpoint: Checkpoint = None,
    resume: Resume = None,
    output: Output,
    plan: Scenarios,
    source: NetworkSource,
) -> None:
    """Choose which links to build, and how large, when travellers choose freely.

    Ctrl-C or SIGTERM keeps the best design so far. The exit code says how it ended; blocc --help lists them. With
    scenarios, every design has a folder of its own in --out, and the same command goes on after a kill.
    """
    network, options, quiet = output.read(source), arguments.options, output.quiet
    if not quiet:
        for sentence in network.assumptions:
            if sentence.startswith(NOT_USED):
                print(f"blocc: {sentence.replace(NOT_USED, NOT_USED.upper(), 1)}", file=sys.stderr)
    if not quiet and arguments.existing_capacity is None:  # what exists need not be paid for
        for doubt in doubts(network):
            print(f"blocc: {doubt}", file=sys.stderr)
    if plan.is_given:
        if checkpoint is not None or resume is not None:
            raise OptionError("--checkpoint and --resume are for one design: scenarios keep themselves in --out")
        run_scenarios(network, plan, options, output)
    starts, expected = DesignOptions.from_names(options).starts or 1, forecast(network, arguments.engine).seconds
    computing = choose_executor(**plan.computing)
    with DesignProgress(starts, arguments.time_limit, expected=expected) as line:
        report = None if quiet else line if computing.name == "serial" else _tell_start
        files: dict[str, Any] = {"checkpoint": checkpoint, "resume": resume}
        design = design_network(network, report=report, executor=computing, **files, **options)
    output.conclude(design, DESIGN)


def _tell_start(_: int, row: HistoryRow) -> None:
    """A start that was computed elsewhere has come back."""
    print(f"blocc: a start has ended, utility {-row.upper_value:.6g}", file=sys.stderr, flush=True)
