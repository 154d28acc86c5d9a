"""The command ``blocc design``: from a network to a designed one, with its files and its report."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

from blocc.cli import network as cli_network
from blocc.cli.common import EXIT_CODES, parse_gamma
from blocc.errors import OptionError
from blocc.report.progress import ProgressLine
from blocc.report.transport.design_tables import design_document, write_design
from blocc.transport.design.design_network import design_network
from blocc.transport.design.design_result import Design

try:
    import typer
    from rich.console import Console
except ImportError:
    pass  # the entry point says what is missing


def design_command(
    network: cli_network.NetworkSource,
    gamma: Annotated[str, typer.Option(help="'auto', or a number: the penalty.")] = "auto",
    starts: Annotated[
        int | None, typer.Option(help="Random starts; the best design is kept. Default: 5, or 1 with --preset paper.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the starts.")] = 0,
    budget: Annotated[float | None, typer.Option(help="The most that construction may cost.")] = None,
    symmetric: Annotated[bool, typer.Option("--symmetric", help="Same capacity in both directions.")] = False,
    max_capacity: Annotated[
        str | None, typer.Option(help="The most a link may have: a number, or a JSON list with one for each link.")
    ] = None,
    method: Annotated[str, typer.Option(help="prices; lbfgsb or newton in the capacities; pgd.")] = "prices",
    preset: Annotated[str, typer.Option(help="default, or paper: Algorithm 1 with the published step.")] = "default",
    tolerance: Annotated[float, typer.Option(help="What the certificate may lack, relative to 1 + |utility|.")] = 1e-3,
    time_limit: Annotated[float | None, typer.Option(help="Seconds; the best design so far is kept.")] = None,
    max_iterations: Annotated[int | None, typer.Option(help="Most steps of Algorithm 1.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the design's files and report.html.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the design as JSON.")] = False,
    quiet: Annotated[bool, typer.Option(help="Print nothing; the exit code tells.")] = False,
    cost_per_length: cli_network.CostPerLength = None,
    cost_per_time: cli_network.CostPerTime = None,
    revenue_flat: cli_network.RevenueFlat = None,
    revenue_per_time: cli_network.RevenuePerTime = None,
    alternative_factor: cli_network.AlternativeFactor = None,
    demand_factor: cli_network.DemandFactor = None,
    time_factor: cli_network.TimeFactor = None,
    geographic: cli_network.Geographic = None,
    demand_omx: cli_network.DemandOmx = None,
    matrix: cli_network.Matrix = None,
    mapping: cli_network.Mapping = None,
) -> None:
    """Choose which links to build, and how large, when travellers choose freely.

    Ctrl-C keeps the best design so far. The exit code says how it ended; blocc --help lists them.
    """
    rules = cli_network.rules_from_options(
        cost_per_length=cost_per_length,
        cost_per_time=cost_per_time,
        revenue_flat=revenue_flat,
        revenue_per_time=revenue_per_time,
        alternative_factor=alternative_factor,
        demand_factor=demand_factor,
        time_factor=time_factor,
        geographic=geographic,
    )
    read = cli_network.network_from_options(network, rules, demand_omx, matrix, mapping)
    limit = _limit(max_capacity)
    level = parse_gamma(gamma)
    with ProgressLine() as line:
        report = None if quiet or not sys.stderr.isatty() else line
        design = design_network(
            read,
            gamma="auto" if level is None else level,
            starts=starts,
            seed=seed,
            budget=budget,
            symmetric=symmetric,
            max_capacity=limit,
            method=method,
            preset=preset,
            tolerance=tolerance,
            time_limit=time_limit,
            max_iterations=max_iterations,
            report=report,
        )
    written = [] if out is None else write_design(design, out)
    if as_json:
        print(json.dumps(design_document(design), indent=2))
    elif not quiet:
        _print(design)
        for path in written:
            print(f"written: {path}")
    raise typer.Exit(EXIT_CODES[design.status])


def _limit(text: str | None) -> float | list[float] | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, (int, float, list)) or isinstance(value, bool):
        raise OptionError(f"--max-capacity must be a number or a JSON list of numbers, got {text!r}")
    return value


def _print(design: Design) -> None:
    first, _, rest = repr(design).partition("\n")
    console = Console(soft_wrap=True, highlight=False)
    console.print(first, style="bold green" if design.success else "bold red", markup=False)
    console.print(rest, markup=False)
