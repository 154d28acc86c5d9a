"""The commands ``blocc network describe | validate | convert``, and the options of every command that reads a network.

Like the rest of the command line this module imports without typer and rich: the option types below exist only where
typer does, and annotations stay text until typer reads them. Another command refers to them as
``cli_network.CostPerTime`` and hands their values to :func:`rules_from_options` and :func:`network_from_options`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from blocc.cli.common import BAD_INPUT, guarded
from blocc.transport.network.checked_rows import NetworkError
from blocc.transport.network.files import BUILT_IN, read_network, write_network
from blocc.transport.network.network import TransportNetwork
from blocc.transport.network.readers.rules import FillRules

_ABOUT = """Look at transport networks, check them, and convert them between formats.

A network is a built-in name (three, nine, seville), a .json file of blocc, a folder with GMNS files (node.csv,
link.csv, demand.csv) or a TNTP file (NAME_net.tntp, with NAME_trips.tntp and NAME_node.tntp beside it).

[bold]Examples[/bold]

  blocc network describe seville
  blocc network validate study/
  blocc network convert SiouxFalls_net.tntp sioux.json --cost-per-length 2 --revenue-per-time 1
  blocc network convert study/ study.json --demand-omx trips.omx --matrix AM"""

try:
    import typer
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
except ImportError:
    pass  # the entry point says what is missing
else:
    _RULES = "Figures that the files leave out"
    NetworkSource = Annotated[
        str,
        typer.Argument(
            help=f"{', '.join(BUILT_IN)}, or a .json file, a folder of GMNS files, a *_net.tntp file.",
            metavar="NETWORK",
            show_default=False,
        ),
    ]
    CostPerLength = Annotated[
        float | None, typer.Option(help="Cost of a unit of capacity for a unit of length.", rich_help_panel=_RULES)
    ]
    CostPerTime = Annotated[
        float | None, typer.Option(help="Cost of a unit of capacity for a unit of time.", rich_help_panel=_RULES)
    ]
    RevenueFlat = Annotated[float | None, typer.Option(help="Revenue of one passenger.", rich_help_panel=_RULES)]
    RevenuePerTime = Annotated[
        float | None,
        typer.Option(help="Revenue of one passenger for a unit of time on the shortest path.", rich_help_panel=_RULES),
    ]
    AlternativeFactor = Annotated[
        float | None,
        typer.Option(
            help="Time on the existing network over the shortest path's (1.5 unless told).", rich_help_panel=_RULES
        ),
    ]
    DemandFactor = Annotated[float | None, typer.Option(help="Multiplies all demand.", rich_help_panel=_RULES)]
    TimeFactor = Annotated[float | None, typer.Option(help="Multiplies all times.", rich_help_panel=_RULES)]
    Geographic = Annotated[
        bool | None,
        typer.Option(
            "--geographic/--plane",
            help="Coordinates are longitude and latitude, or plane ones; by default as the files say.",
            rich_help_panel=_RULES,
            show_default=False,
        ),
    ]
    DemandOmx = Annotated[
        Path | None, typer.Option(help="Take the demand from this OMX file.", rich_help_panel="Demand")
    ]
    Matrix = Annotated[
        str | None, typer.Option(help="Which matrix of the OMX file, where it has several.", rich_help_panel="Demand")
    ]
    Mapping = Annotated[
        str | None, typer.Option(help="Which mapping of the OMX file names the zones.", rich_help_panel="Demand")
    ]
    NetworkName = Annotated[str | None, typer.Option("--name", help="Another name for the network.")]


# --- options shared by the commands that read a network ------------------------------------------------------------
def rules_from_options(
    *,
    cost_per_length: float | None = None,
    cost_per_time: float | None = None,
    revenue_flat: float | None = None,
    revenue_per_time: float | None = None,
    alternative_factor: float | None = None,
    demand_factor: float | None = None,
    time_factor: float | None = None,
    geographic: bool | None = None,
) -> FillRules:
    """The rules that options on the command line ask for; what is not given keeps its default."""
    return FillRules(**{name: value for name, value in locals().items() if value is not None})


def network_from_options(
    source: str,
    rules: FillRules,
    demand_omx: Path | None = None,
    matrix: str | None = None,
    mapping: str | None = None,
    name: str | None = None,
) -> TransportNetwork:
    """The network that a command was given."""
    return read_network(source, rules=rules, demand_omx=demand_omx, matrix=matrix, mapping=mapping, name=name)


# --- commands ------------------------------------------------------------------------------------------------------
def describe_command(
    network: NetworkSource,
    cost_per_length: CostPerLength = None,
    cost_per_time: CostPerTime = None,
    revenue_flat: RevenueFlat = None,
    revenue_per_time: RevenuePerTime = None,
    alternative_factor: AlternativeFactor = None,
    demand_factor: DemandFactor = None,
    time_factor: TimeFactor = None,
    geographic: Geographic = None,
    demand_omx: DemandOmx = None,
    matrix: Matrix = None,
    mapping: Mapping = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Print what a network holds, and how large its design problem is."""
    rules = rules_from_options(
        cost_per_length=cost_per_length,
        cost_per_time=cost_per_time,
        revenue_flat=revenue_flat,
        revenue_per_time=revenue_per_time,
        alternative_factor=alternative_factor,
        demand_factor=demand_factor,
        time_factor=time_factor,
        geographic=geographic,
    )
    facts = describe(network_from_options(network, rules, demand_omx, matrix, mapping))
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    table = Table(box=SIMPLE, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for label, value in facts.items():
        table.add_row(label.replace("_", " "), _words(value))
    Console(highlight=False, markup=False).print(table)


def validate_command(
    network: NetworkSource,
    cost_per_length: CostPerLength = None,
    cost_per_time: CostPerTime = None,
    revenue_flat: RevenueFlat = None,
    revenue_per_time: RevenuePerTime = None,
    alternative_factor: AlternativeFactor = None,
    demand_factor: DemandFactor = None,
    time_factor: TimeFactor = None,
    geographic: Geographic = None,
    demand_omx: DemandOmx = None,
    matrix: Matrix = None,
    mapping: Mapping = None,
) -> None:
    """Check every row of a network; print "ok", or everything that is wrong and where.

    Exit code 0: ok; 2: something is wrong.
    """
    rules = rules_from_options(
        cost_per_length=cost_per_length,
        cost_per_time=cost_per_time,
        revenue_flat=revenue_flat,
        revenue_per_time=revenue_per_time,
        alternative_factor=alternative_factor,
        demand_factor=demand_factor,
        time_factor=time_factor,
        geographic=geographic,
    )
    try:
        found = network_from_options(network, rules, demand_omx, matrix, mapping)
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
    cost_per_length: CostPerLength = None,
    cost_per_time: CostPerTime = None,
    revenue_flat: RevenueFlat = None,
    revenue_per_time: RevenuePerTime = None,
    alternative_factor: AlternativeFactor = None,
    demand_factor: DemandFactor = None,
    time_factor: TimeFactor = None,
    geographic: Geographic = None,
    demand_omx: DemandOmx = None,
    matrix: Matrix = None,
    mapping: Mapping = None,
    name: NetworkName = None,
) -> None:
    """Read a network in any format, fill in what is missing, and write it complete."""
    rules = rules_from_options(
        cost_per_length=cost_per_length,
        cost_per_time=cost_per_time,
        revenue_flat=revenue_flat,
        revenue_per_time=revenue_per_time,
        alternative_factor=alternative_factor,
        demand_factor=demand_factor,
        time_factor=time_factor,
        geographic=geographic,
    )
    network = network_from_options(source, rules, demand_omx, matrix, mapping, name)
    print(f"written: {write_network(network, target)}")
    for line in network.notes.splitlines():
        print(f"  {line}")


# --- what a user sees ----------------------------------------------------------------------------------------------
def describe(network: TransportNetwork) -> dict[str, Any]:
    """Figures of a network as JSON values: counts, ranges as [least, largest], sizes of the full formulation."""

    def span(values: np.ndarray) -> list[float]:
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


# --- the application -----------------------------------------------------------------------------------------------


def build_network_app() -> typer.Typer:
    """The typer application of ``blocc network``."""
    app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich", help=_ABOUT)
    app.command("describe", no_args_is_help=True)(guarded(describe_command))
    app.command("validate", no_args_is_help=True)(guarded(validate_command))
    app.command("convert", no_args_is_help=True)(guarded(convert_command))
    return app
