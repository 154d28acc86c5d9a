"""The commands ``blocc network describe | validate | convert``, and the options of commands that read a network."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from blocc._lib.arrays import Float, NDArray
from blocc.cli.common import make_app, print_assumptions, print_complaints, print_json
from blocc.transport import BUILT_IN, FillRules, NetworkError, TransportNetwork, read_network, write_network
from blocc.transport.design.forecast import forecast
from blocc.transport.network.plausibility import doubts

_ABOUT = """Look at transport networks, check them, and convert them between formats.

A network is a built-in name (three, nine, seville), a .json file of blocc, a folder with GMNS files (node.csv,
link.csv, demand.csv) or a TNTP file (NAME_net.tntp, with NAME_trips.tntp and NAME_node.tntp beside it).

[bold]Examples[/bold]

  blocc network describe seville
  blocc network validate study/
  blocc network convert SiouxFalls_net.tntp sioux.json --time-factor 0.1 --cost-per-time 1 --revenue-flat 2
  blocc network validate Anaheim_net.tntp --coordinates nodes.csv --time-factor 0.1 --cost-per-time 1 --revenue-flat 2
  blocc network convert study/ study.json --demand-omx trips.omx --matrix AM"""

_SOURCE = f"{', '.join(BUILT_IN)}, or a .json file, a folder of GMNS files, a *_net.tntp file."
_PLANE = "Coordinates are longitude and latitude, or plane ones; by default as the files say, or as they look."


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
    drop_unreachable: Annotated[
        bool, _rule("Leave out markets that no path serves, instead of refusing.", "--drop-unreachable")
    ] = False
    geographic: Annotated[bool | None, _rule(_PLANE, "--geographic/--plane")] = None
    coordinates: Annotated[Path | None, _rule("Take the nodes' places from this CSV file (node_id, x, y).")] = None
    time_unit: Annotated[str | None, _rule("Unit of the times in the files: h, min or s.")] = None
    length_unit: Annotated[str | None, _rule("Unit of the lengths, such as km.")] = None
    money_unit: Annotated[str | None, _rule("Unit of cost and revenue, such as EUR.")] = None
    demand_omx: Annotated[Path | None, _demand("Take the demand from this OMX file.")] = None
    matrix: Annotated[str | None, _demand("Which matrix of the OMX file, where it has several.")] = None
    mapping: Annotated[str | None, _demand("Which mapping of the OMX file names the zones.")] = None

    def read(self, name: str | None = None) -> TransportNetwork:
        """The network, perhaps under another name."""
        given = {rule.name: getattr(self, rule.name) for rule in fields(FillRules)}
        rules = FillRules(**{rule: value for rule, value in given.items() if value is not None})
        names = ("demand_omx", "matrix", "mapping", "coordinates")
        return read_network(self.network, rules=rules, name=name, **{given: getattr(self, given) for given in names})


# --- commands ------------------------------------------------------------------------------------------------------
def describe_command(
    source: NetworkSource, as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False
) -> None:
    """Print what a network holds, how large its design problem is, and about what a design will take."""
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

    Also says what was assumed, what the files hold and no design uses, and why none could earn anything.

    Exit code 0: ok; 2: something is wrong.
    """
    try:
        found = source.read()
    except NetworkError as error:
        print_complaints(error, vars(source))
    print(f"ok: {found.name}, {found.n_nodes} nodes, {found.n_links} links, {found.n_markets} markets")
    _print_remarks(found)


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
    _print_remarks(network)


def _print_remarks(network: TransportNetwork) -> None:
    """What was assumed; what the files have and nobody uses, loudly; and whether a design can earn anything."""
    print_assumptions(network.assumptions)
    for line in doubts(network):
        print(f"  WARNING: {line}")


# --- what a user sees ----------------------------------------------------------------------------------------------
def describe(network: TransportNetwork) -> dict[str, Any]:
    """Figures of a network as JSON values: counts, ranges as [least, largest], sizes of the full formulation.

    Memory and time of a design are forecasts, the time right within a factor of about three.
    """

    def span(values: Float[NDArray, "entries"]) -> list[float]:
        return [float(values.min()), float(values.max())]

    expected = forecast(network)
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
        "engine": expected.engine,
        "memory_in_gb": expected.memory / 1e9,
        "seconds_for_a_start": expected.seconds,
        "notes": network.notes,
        "doubts": doubts(network),
        "assumptions": list(network.assumptions),
    }


def _words(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return "\n".join(value)
    if isinstance(value, list):
        return " to ".join(f"{number:.6g}" for number in value)
    if isinstance(value, bool) or value is None:
        return {None: "-", True: "yes", False: "no"}[value]
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}" if isinstance(value, float) else str(value)


def build_network_app() -> typer.Typer:
    """The typer application of ``blocc network``."""
    return make_app(_ABOUT, describe_command, validate_command, convert_command)
