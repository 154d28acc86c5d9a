"""The commands ``blocc network describe | validate | convert``, and the options of every command that reads a network.

Like the rest of the command line this module imports without typer and rich: a command's annotations stay text until
typer reads them, and :func:`reads_network` then does nothing.
"""

from __future__ import annotations

import functools
import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

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

_SOURCE_HELP = f"{', '.join(BUILT_IN)}, or a .json file, a folder of GMNS files, a *_net.tntp file."
_RULES_PANEL = "Figures that the files leave out"
_RULE_HELP = {
    "time_factor": "Multiplies all times.",
    "demand_factor": "Multiplies all demand.",
    "cost_per_length": "Cost of a unit of capacity for a unit of length.",
    "cost_per_time": "Cost of a unit of capacity for a unit of time.",
    "revenue_flat": "Revenue of one passenger.",
    "revenue_per_time": "Revenue of one passenger for a unit of time on the shortest path.",
    "alternative_factor": "Time on the existing network over the shortest path's (1.5 unless told).",
    "geographic": "Coordinates are longitude and latitude, or plane ones; by default as the files say.",
}
_DEMAND_HELP = {
    "demand_omx": (Path, "Take the demand from this OMX file."),
    "matrix": (str, "Which matrix of the OMX file, where it has several."),
    "mapping": (str, "Which mapping of the OMX file names the zones."),
}


# --- options shared by the commands that read a network ------------------------------------------------------------
def reads_network(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the argument NETWORK and every option of reading one, besides its own.

    The command is called with a function that reads the network, and with the values of its own options.
    """
    if not HAS_TYPER:
        return command

    @functools.wraps(command)
    def run(network: str, **given: Any) -> None:
        rules = {name: given.pop(name) for name in _RULE_HELP}
        filled = FillRules(**{name: value for name, value in rules.items() if value is not None})
        demand = {name: given.pop(name) for name in _DEMAND_HELP}
        command(functools.partial(read_network, network, rules=filled, **demand), **given)

    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    parameters = [_source(), *(option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in own), *_options()]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in parameters}
    return run


def _source() -> inspect.Parameter:
    argument = typer.Argument(help=_SOURCE_HELP, metavar="NETWORK", show_default=False)
    return inspect.Parameter("network", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Annotated[str, argument])


def _options() -> list[inspect.Parameter]:
    def option(name: str, kind: Any, panel: str, text: str, *flags: str) -> inspect.Parameter:
        details = typer.Option(*flags, help=text, rich_help_panel=panel, show_default=False)
        annotation = Annotated[kind | None, details]
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)

    switch = ("--geographic/--plane",)
    rules = [
        option(
            rule.name,
            bool if rule.name == "geographic" else float,
            _RULES_PANEL,
            _RULE_HELP[rule.name],
            *(switch if rule.name == "geographic" else ()),
        )
        for rule in fields(FillRules)
    ]
    return rules + [option(name, kind, "Demand", text) for name, (kind, text) in _DEMAND_HELP.items()]


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
