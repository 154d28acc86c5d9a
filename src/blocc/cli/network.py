"""The commands ``blocc network describe | validate | convert``, and the options of every command that reads a network.

Like the rest of the command line this module imports without typer and rich: a command's annotations stay text until
typer reads them, and :func:`reads_network` then does nothing.
"""

from __future__ import annotations

import functools
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from blocc._lib.arrays import Float, NDArray
from blocc.cli.common import BAD_INPUT, guarded
from blocc.transport import BUILT_IN, FillRules, NetworkError, TransportNetwork, read_network, write_network

try:
    import typer
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
except ImportError:
    HAS_TYPER = False  # the entry point says what is missing
else:
    HAS_TYPER = True

_ABOUT = """Look at transport networks, check them, and convert them between formats.

A network is a built-in name (three, nine, seville), a .json file of blocc, a folder with GMNS files (node.csv,
link.csv, demand.csv) or a TNTP file (NAME_net.tntp, with NAME_trips.tntp and NAME_node.tntp beside it).

[bold]Examples[/bold]

  blocc network describe seville
  blocc network validate study/
  blocc network convert SiouxFalls_net.tntp sioux.json --cost-per-length 2 --revenue-per-time 1
  blocc network convert study/ study.json --demand-omx trips.omx --matrix AM"""

#: Reads the network that a command was given, perhaps under another name.
Reader = Callable[..., TransportNetwork]


# --- options shared by the commands that read a network ------------------------------------------------------------
class Option(NamedTuple):
    """An option that is not a parameter of its command's own."""

    kind: type
    help: str
    panel: str | None = None
    flags: tuple[str, ...] = ()
    default: Any = None

    def parameter(self, name: str) -> inspect.Parameter:
        """The option as typer wants it."""
        details = typer.Option(*self.flags, help=self.help, rich_help_panel=self.panel)
        kind: Any = self.kind if self.default is not None else self.kind | None
        annotation = Annotated[kind, details]
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=self.default, annotation=annotation)


_SOURCE = f"{', '.join(BUILT_IN)}, or a .json file, a folder of GMNS files, a *_net.tntp file."
_MISSING = "Figures that the files leave out"
_PLANE = "Coordinates are longitude and latitude, or plane ones; by default as the files say."
_RULES = {
    "cost_per_length": Option(float, "Cost of a unit of capacity for a unit of length.", _MISSING),
    "cost_per_time": Option(float, "Cost of a unit of capacity for a unit of time.", _MISSING),
    "revenue_flat": Option(float, "Revenue of one passenger.", _MISSING),
    "revenue_per_time": Option(float, "Revenue of a passenger for a unit of time on the shortest path.", _MISSING),
    "alternative_factor": Option(float, "Time on the existing network over the shortest path's (1.5).", _MISSING),
    "demand_factor": Option(float, "Multiplies all demand.", _MISSING),
    "time_factor": Option(float, "Multiplies all times.", _MISSING),
    "geographic": Option(bool, _PLANE, _MISSING, ("--geographic/--plane",)),
}
_DEMAND = {
    "demand_omx": Option(Path, "Take the demand from this OMX file.", "Demand"),
    "matrix": Option(str, "Which matrix of the OMX file, where it has several.", "Demand"),
    "mapping": Option(str, "Which mapping of the OMX file names the zones.", "Demand"),
}


def reads_network(
    command: Callable[..., None], options: Mapping[str, Option] = MappingProxyType({})
) -> Callable[..., None]:
    """Give a command the argument NETWORK, ``options``, and every option of reading a network, besides its own.

    The command is called with a function that reads the network, and with the values of all other options.
    """
    if not HAS_TYPER:
        return command

    @functools.wraps(command)
    def run(network: str, **given: Any) -> None:
        rules = {name: given.pop(name) for name in _RULES}
        filled = FillRules(**{name: value for name, value in rules.items() if value is not None})
        demand = {name: given.pop(name) for name in _DEMAND}
        command(functools.partial(read_network, network, rules=filled, **demand), **given)

    argument = typer.Argument(help=_SOURCE, metavar="NETWORK", show_default=False)
    source = inspect.Parameter("network", inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[str, argument])
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    given_options = [option.parameter(name) for name, option in options.items()]
    shared = [option.parameter(name) for name, option in {**_RULES, **_DEMAND}.items()]
    parameters = [source, *given_options, *own, *shared]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


# --- commands ------------------------------------------------------------------------------------------------------
@reads_network
def describe_command(
    read: Reader, as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False
) -> None:
    """Print what a network holds, and how large its design problem is."""
    facts = describe(read())
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    table = Table(box=SIMPLE, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for label, value in facts.items():
        table.add_row(label.replace("_", " "), _words(value))
    Console(highlight=False, markup=False).print(table)


@reads_network
def validate_command(read: Reader) -> None:
    """Check every row of a network; print "ok", or everything that is wrong and where.

    Exit code 0: ok; 2: something is wrong.
    """
    try:
        found = read()
    except NetworkError as error:  # the message shows the first complaints, this command all of them
        print("\n".join(error.complaints))
        print(f"{error.name}: {len(error.complaints)} wrong", file=sys.stderr)
        raise typer.Exit(BAD_INPUT) from None
    print(f"ok: {found.name}, {found.n_nodes} nodes, {found.n_links} links, {found.n_markets} markets")


@reads_network
def convert_command(
    read: Reader,
    target: Annotated[
        Path, typer.Argument(help="FILE.json, or a folder for GMNS files.", metavar="TARGET", show_default=False)
    ],
    name: Annotated[str | None, typer.Option(help="Another name for the network.")] = None,
) -> None:
    """Read a network in any format, fill in what is missing, and write it complete."""
    network = read(name=name)
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


# --- the application -----------------------------------------------------------------------------------------------


def build_network_app() -> typer.Typer:
    """The typer application of ``blocc network``."""
    app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich", help=_ABOUT)
    app.command("describe", no_args_is_help=True)(guarded(describe_command))
    app.command("validate", no_args_is_help=True)(guarded(validate_command))
    app.command("convert", no_args_is_help=True)(guarded(convert_command))
    return app
