"""The commands ``blocc roads assign | expand | toll | estimate | validate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from blocc._lib.files import shown
from blocc.cli.common import (
    Output,
    Search,
    flag,
    make_app,
    parse_numbers,
    positive,
    print_assumptions,
    print_complaints,
)
from blocc.cli.road_source import RoadSource
from blocc.errors import InputError
from blocc.networks.checked_rows import PLACE, NetworkError, finite, identifier
from blocc.networks.readers.raw import read_csv
from blocc.report.progress import ProgressLine

_ABOUT = """Assign drivers to roads, choose links to widen or to toll (with a proven gap), estimate trips from counts.

NETWORK is sioux-falls, a TNTP file (NAME_net.tntp, with NAME_trips.tntp beside it), a folder with GMNS files or a .json
file of blocc.

[bold]Examples[/bold]

  blocc roads assign sioux-falls
  blocc roads assign Anaheim_net.tntp --principle system-optimum --out runs/anaheim
  blocc roads expand sioux-falls --candidates 16,19,29,48 --cost 0.02 --exponent 2 --out runs/sioux
  blocc roads expand study/ --candidates links.csv --budget 500 --checkpoint run.npz
  blocc roads toll sioux-falls --candidates 16,19,29,48,74
  blocc roads estimate sioux-falls --counts counts.csv --out runs/trips
  blocc roads validate study/
  blocc verify runs/sioux/design.json runs/sioux/network.json
  blocc verify runs/trips/estimate.json sioux-falls"""

_CANDIDATES = (
    "Links that may change: ids such as 16,19,29, or a CSV file with link_id and perhaps {}, one row for each link. "
    "Default: all."
)
_EACH = "a number, or a JSON list with one for each candidate."
#: Columns of a CSV file of candidates.
_EXPANSION, _TOLL = ("cost", "exponent", "max_expansion"), ("max_toll",)


# --- commands ------------------------------------------------------------------------------------------------------
def assign_command(
    *,
    source: RoadSource,
    principle: Annotated[str, typer.Option(help="user-equilibrium, or system-optimum.")] = "user-equilibrium",
    limit_factor: Annotated[
        float | None, typer.Option(help="Hard limits: volumes of at most this multiple of the capacity; drivers wait.")
    ] = None,
    relative_gap: Annotated[float | None, typer.Option(help="Where to stop. Default: 1e-10.")] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds, compilation included; the flows so far are kept.")
    ] = None,
    output: Output,
) -> None:
    """Find where drivers go: volumes, times and queues of all links.

    The exit code says how it ended; blocc --help lists them.
    """
    network = output.read(source)
    from blocc.roads import assign
    from blocc.roads.documents import ASSIGNMENT

    positive(limit_factor=limit_factor)
    options = {"relative_gap": relative_gap, "time_limit": time_limit}
    with ProgressLine() as line:
        found = assign(
            network,
            principle=principle.replace("-", " "),
            limit=None if limit_factor is None else limit_factor * network.capacity,
            report=None
            if output.quiet
            else lambda number, gap: line.show(lambda: f"{number:6d}  relative gap {gap:.1e}"),
            **{name: value for name, value in options.items() if value is not None},  # type: ignore[arg-type]
        )
    output.conclude(found, ASSIGNMENT)


def expand_command(
    *,
    source: RoadSource,
    candidates: Annotated[str | None, typer.Option(help=_CANDIDATES.format(", ".join(_EXPANSION)))] = None,
    cost: Annotated[str | None, typer.Option(help=f"Coefficient of a link's cost: {_EACH} Default: 1.")] = None,
    exponent: Annotated[str | None, typer.Option(help=f"A link costs cost x^exponent: {_EACH} Default: 1.")] = None,
    max_expansion: Annotated[str | None, typer.Option(help=f"The most that may be added to a link: {_EACH}")] = None,
    budget: Annotated[float | None, typer.Option(help="The most that all construction may cost.")] = None,
    sizes: Annotated[
        str | None, typer.Option(help="What can be built: a number whose multiples are meant, or a JSON list.")
    ] = None,
    search: Search,
    output: Output,
) -> None:
    """Choose how much to widen links, so that travel time and construction together are least.

    Ctrl-C keeps the best answer so far. The exit code says how it ended; blocc --help lists them.
    """
    network = output.read(source)
    from blocc.roads import expand_network
    from blocc.roads.documents import DESIGN

    given = {"cost": cost, "exponent": exponent, "max_expansion": max_expansion, "sizes": sizes}
    figures = {name: parse_numbers(name, text) for name, text in given.items()}
    options = _candidates(candidates, figures, _EXPANSION) | {"budget": budget}
    search.run(output, DESIGN, expand_network, network, starts=3, **options)


def toll_command(
    *,
    source: RoadSource,
    candidates: Annotated[str | None, typer.Option(help=_CANDIDATES.format("max_toll"))] = None,
    max_toll: Annotated[str | None, typer.Option(help=f"The most to add to a link's own toll: {_EACH}")] = None,
    search: Search,
    output: Output,
) -> None:
    """Choose tolls on some links, so that drivers, who pay them on top of their time, lose least time in all.

    Tolls that the network has stay; what is chosen is added to them, and the tolls shown are the sums.
    Ctrl-C keeps the best answer so far. The exit code says how it ended; blocc --help lists them.
    """
    network = output.read(source)
    from blocc.roads import second_best_tolls
    from blocc.roads.documents import DESIGN

    options = _candidates(candidates, {"max_toll": parse_numbers("max_toll", max_toll)}, _TOLL)
    search.run(output, DESIGN, second_best_tolls, network, starts=2, **options)


def estimate_command(
    *,
    source: RoadSource,
    counts: Annotated[Path, typer.Option(help="A CSV file with link_id and count, one row for each counted link.")],
    prior_weight: Annotated[float | None, typer.Option(help="Of the trips in the files; small: counts decide.")] = None,
    count_weight: Annotated[float | None, typer.Option(help="Of the counts. Default: 1, like the other.")] = None,
    max_factor: Annotated[float | None, typer.Option(help="Most trips of a pair, relative to the prior ones.")] = None,
    search: Search,
    output: Output,
) -> None:
    """Estimate the trips of all pairs from counted volumes, near those that the network has.

    network.json in --out carries the estimated trips, for the other commands. Ctrl-C keeps the best answer so far. The
    exit code says how it ended; blocc --help lists them.
    """
    network = output.read(source)
    from blocc.roads import estimate_demand
    from blocc.roads.documents import ESTIMATE

    given: dict[str, Any] = {"prior_weight": prior_weight, "count_weight": count_weight, "max_factor": max_factor}
    search.run(output, ESTIMATE, estimate_demand, network, _counts(counts), starts=2, **given)


def validate_command(source: RoadSource) -> None:
    """Check every row of a road network; print "ok" and what was assumed, or everything that is wrong and where.

    Exit code 0: ok; 2: something is wrong.
    """
    try:
        found = source.read()
    except NetworkError as error:
        print_complaints(error, vars(source))
    print(
        f"ok: {found.name}, {found.n_nodes} nodes, {found.n_links} links, {found.n_pairs} pairs, "
        f"{found.demand.sum():.8g} trips"
    )
    print_assumptions(found.assumptions)


# --- candidates ----------------------------------------------------------------------------------------------------
def _candidates(text: str | None, figures: dict[str, Any], columns: tuple[str, ...]) -> dict[str, Any]:
    """Candidates and their figures: ids on the command line, or a file that may have figures too."""
    given = {name: value for name, value in figures.items() if value is not None}
    if text is None:
        return given
    if not text.lower().endswith(".csv"):
        return {**given, "candidates": [identifier(part) for part in text.split(",")]}
    rows = _rows(Path(text), columns)
    found: dict[str, Any] = {"candidates": [identifier(row["link_id"]) for row in rows]}
    for name in columns:
        if name not in rows[0] or not any(row[name] for row in rows):
            continue
        if name in given:
            raise InputError(f"{text} has a column {name}: leave out {flag(name)}")
        found[name] = [_number(row, name) for row in rows]
    return given | found


def _counts(path: Path) -> dict[Any, float]:
    """The volume of each counted link."""
    found: dict[Any, float] = {}
    for row in _rows(path, ("count",), ("count",)):
        key = identifier(row["link_id"])
        if key in found:
            raise InputError(f"{row[PLACE]}: link {shown(row['link_id'])} was counted before")
        found[key] = _number(row, "count")
    return found


def _rows(path: Path, columns: tuple[str, ...], needed: tuple[str, ...] = ()) -> list[dict[str, str]]:
    """The rows of a CSV file about links."""
    known = {"link_id": ("link_id", "id"), **{name: (name,) for name in columns}}
    rows = read_csv(path, known, ("link_id", *needed)).rows
    if not rows:
        raise InputError(f"{path} has no rows")
    return rows


def _number(row: dict[str, str], name: str) -> float:
    value = finite(row[name])
    if value is None:
        raise InputError(f"{row[PLACE]}: {name} {shown(row[name])} is not a finite number")
    return value


def build_roads_app() -> typer.Typer:
    """The typer application of ``blocc roads``."""
    return make_app(_ABOUT, assign_command, expand_command, toll_command, estimate_command, validate_command)
