"""The commands ``blocc network describe | validate | convert`` and ``blocc design``, with its files and its report."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from blocc._lib.arrays import Float, NDArray
from blocc.cli.common import (
    BAD_INPUT,
    EXIT_CODES,
    Checkpoint,
    Quiet,
    Resume,
    make_app,
    parse_number,
    present,
    print_json,
)
from blocc.errors import OptionError
from blocc.report.progress import ProgressLine
from blocc.report.transport.design_tables import design_document, write_design
from blocc.transport import (
    BUILT_IN,
    DesignOptions,
    FillRules,
    NetworkError,
    TransportNetwork,
    design_network,
    read_network,
    write_network,
)

_ABOUT = """Look at transport networks, check them, and convert them between formats.

A network is a built-in name (three, nine, seville), a .json file of blocc, a folder with GMNS files (node.csv,
link.csv, demand.csv) or a TNTP file (NAME_net.tntp, with NAME_trips.tntp and NAME_node.tntp beside it).

[bold]Examples[/bold]

  blocc network describe seville
  blocc network validate study/
  blocc network convert SiouxFalls_net.tntp sioux.json --cost-per-length 2 --revenue-per-time 1
  blocc network convert study/ study.json --demand-omx trips.omx --matrix AM"""

_SOURCE = f"{', '.join(BUILT_IN)}, or a .json file, a folder of GMNS files, a *_net.tntp file."
_PLANE = "Coordinates are longitude and latitude, or plane ones; by default as the files say."


def _rule(help_text: str, *flags: str) -> Any:
    return typer.Option(*flags, help=help_text, rich_help_panel="Figures that the files leave out")


def _demand(help_text: str) -> Any:
    return typer.Option(help=help_text, rich_help_panel="Demand")


@dataclass(frozen=True)
class NetworkSource:
    """Which network, and what completes it: the options of every command that reads one."""

    network: Annotated[str, typer.Argument(help=_SOURCE, metavar="NETWORK", show_default=False)]
    cost_per_length: Annotated[float | None, _rule("Cost of a unit of capacity for a unit of length.")] = None
    cost_per_time: Annotated[float | None, _rule("Cost of a unit of capacity for a unit of time.")] = None
    revenue_flat: Annotated[float | None, _rule("Revenue of one passenger.")] = None
    revenue_per_time: Annotated[
        float | None, _rule("Revenue of a passenger for a unit of time on the shortest path.")
    ] = None
    alternative_factor: Annotated[
        float | None, _rule("Time on the existing network over the shortest path's (1.5).")
    ] = None
    demand_factor: Annotated[float | None, _rule("Multiplies all demand.")] = None
    time_factor: Annotated[float | None, _rule("Multiplies all times.")] = None
    geographic: Annotated[bool | None, _rule(_PLANE, "--geographic/--plane")] = None
    demand_omx: Annotated[Path | None, _demand("Take the demand from this OMX file.")] = None
    matrix: Annotated[str | None, _demand("Which matrix of the OMX file, where it has several.")] = None
    mapping: Annotated[str | None, _demand("Which mapping of the OMX file names the zones.")] = None

    def read(self, name: str | None = None) -> TransportNetwork:
        """The network, perhaps under another name."""
        given = {rule.name: getattr(self, rule.name) for rule in fields(FillRules)}
        rules = FillRules(**{rule: value for rule, value in given.items() if value is not None})
        demand, arrays = self.demand_omx, {"matrix": self.matrix, "mapping": self.mapping}
        return read_network(self.network, rules=rules, name=name, demand_omx=demand, **arrays)


# --- commands ------------------------------------------------------------------------------------------------------
def describe_command(
    source: NetworkSource, as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False
) -> None:
    """Print what a network holds, and how large its design problem is."""
    facts = describe(source.read())
    if as_json:
        print_json(facts)
        return
    table = Table(box=SIMPLE, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for label, value in facts.items():
        table.add_row(label.replace("_", " "), _words(value))
    Console(highlight=False, markup=False).print(table)


def validate_command(source: NetworkSource) -> None:
    """Check every row of a network; print "ok", or everything that is wrong and where.

    Exit code 0: ok; 2: something is wrong.
    """
    try:
        found = source.read()
    except NetworkError as error:  # the message shows the first complaints, this command all of them
        print("\n".join(error.complaints))
        print(f"{error.name}: {len(error.complaints)} wrong", file=sys.stderr)
        raise typer.Exit(BAD_INPUT) from None
    print(f"ok: {found.name}, {found.n_nodes} nodes, {found.n_links} links, {found.n_markets} markets")


def convert_command(
    source: NetworkSource,
    target: Annotated[
        Path, typer.Argument(help="FILE.json, or a folder for GMNS files.", metavar="TARGET", show_default=False)
    ],
    name: Annotated[str | None, typer.Option(help="Another name for the network.")] = None,
) -> None:
    """Read a network in any format, fill in what is missing, and write it complete."""
    network = source.read(name)
    print(f"written: {write_network(network, target)}")
    for line in network.notes.splitlines():
        print(f"  {line}")


# --- what a user sees ----------------------------------------------------------------------------------------------
def describe(network: TransportNetwork) -> dict[str, Any]:
    """Figures of a network as JSON values: counts, ranges as [least, largest], sizes of the full formulation."""

    def span(values: Float[NDArray, "entries"]) -> list[float]:
        return [float(values.min()), float(values.max())]

    return {
        "name": network.name,
        "nodes": network.n_nodes,
        "links": network.n_links,
        "markets": network.n_markets,
        "demand": float(network.demand.sum()),
        "demand_range": span(network.demand),
        "revenue_range": span(network.revenue),
        "cost_range": span(network.cost),
        "time_range": span(network.time),
        "shortest_path_range": span(network.free_flow_times),
        "alternative_time_range": span(network.alternative_time),
        "start_range": None if network.start_range is None else list(network.start_range),
        "geographic": network.geographic,
        **network.sizes._asdict(),
        "notes": network.notes,
    }


def _words(value: Any) -> str:
    if isinstance(value, list):
        return " to ".join(f"{number:.6g}" for number in value)
    if isinstance(value, bool) or value is None:
        return {None: "-", True: "yes", False: "no"}[value]
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}" if isinstance(value, float) else str(value)


def build_network_app() -> typer.Typer:
    """The typer application of ``blocc network``."""
    return make_app(_ABOUT, describe_command, validate_command, convert_command)


_STARTS = "Random starts; the best design is kept. Default: 5, or 1 with --preset paper."
_LIMIT = "The most a link may have: a number, or a JSON list with one for each link."


@dataclass(frozen=True)
class Arguments:
    """Options of ``design_network``, as they are given here."""

    gamma: Annotated[str, typer.Option(help="'auto', or a number: the penalty.")] = "auto"
    starts: Annotated[int | None, typer.Option(help=_STARTS)] = None
    seed: Annotated[int, typer.Option(help="Seed of the starts.")] = DesignOptions.seed
    budget: Annotated[float | None, typer.Option(help="The most that construction may cost.")] = None
    symmetric: Annotated[bool, typer.Option("--symmetric", help="Same capacity in both directions.")] = False
    max_capacity: Annotated[str | None, typer.Option(help=_LIMIT)] = None
    method: Annotated[str, typer.Option(help="prices, or pgd: Algorithm 1.")] = DesignOptions.method
    preset: Annotated[str, typer.Option(help="default, or paper: Algorithm 1 with the published step.")] = "default"
    tolerance: Annotated[float, typer.Option(help="What the certificate may lack, relative to 1 + |utility|.")] = (
        DesignOptions.tolerance
    )
    time_limit: Annotated[float | None, typer.Option(help="Seconds; the best design so far is kept.")] = None
    max_iterations: Annotated[int | None, typer.Option(help="Most steps of Algorithm 1.")] = None

    @property
    def options(self) -> dict[str, Any]:
        """The same, as ``design_network`` takes it."""
        parsed = {"gamma": parse_number("gamma", self.gamma, "auto"), "max_capacity": _limit(self.max_capacity)}
        return {**vars(self), **parsed}


def design_command(
    *,
    arguments: Arguments,
    checkpoint: Checkpoint = None,
    resume: Resume = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the design's files and report.html.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the design as JSON.")] = False,
    quiet: Quiet = False,
    source: NetworkSource,
) -> None:
    """Choose which links to build, and how large, when travellers choose freely.

    Ctrl-C keeps the best design so far. The exit code says how it ended; blocc --help lists them.
    """
    network, options = source.read(), arguments.options
    with ProgressLine() as line:
        report = None if quiet or not sys.stderr.isatty() else line
        design = design_network(network, report=report, checkpoint=checkpoint, resume=resume, **options)
    written = [] if out is None else write_design(design, out)
    document = partial(design_document, design)
    present(document, repr(design), design.success, as_json=as_json, quiet=quiet, written=written)
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
