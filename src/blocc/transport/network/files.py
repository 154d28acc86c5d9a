"""Networks in and out of files: which format a path stands for, and writing that is complete or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from blocc._lib.files import write_file
from blocc._lib.tables import csv_bytes
from blocc.errors import BloccError, OptionError
from blocc.networks.line_geometry import line_of, line_text
from blocc.networks.model import OPTIONAL_LINK_COLUMNS, NodeId
from blocc.networks.readers import gmns, tntp
from blocc.networks.readers.formats import located
from blocc.networks.readers.omx import read_demand_matrix
from blocc.networks.readers.raw import RawNetwork, Row, read_text
from blocc.transport.network.network import TransportNetwork
from blocc.transport.network.readers import native
from blocc.transport.network.readers.rules import FillRules, complete

BUILT_IN = ("three", "nine", "seville")


def read_network(
    source: str | Path,
    *,
    rules: FillRules | None = None,
    name: str | None = None,
    demand_omx: str | Path | None = None,
    matrix: str | None = None,
    mapping: str | None = None,
    coordinates: str | Path | None = None,
) -> TransportNetwork:
    """Read a network: a built-in one by its name, or a file or folder (see ``blocc.networks.readers.formats``).

    ``rules`` fill in figures that the files leave out. ``demand_omx`` takes the demand from an OMX file instead
    (``matrix`` and ``mapping`` say which of its arrays), ``coordinates`` the places of the nodes from a CSV file
    (node_id, x, y). A built-in name always means the built-in network; a folder of the same name is ``./three``. What
    was assumed on the way is in the network's ``assumptions``.
    """
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise OptionError(f"name must be a text that is not empty, got {name!r}")
    demand = read_demand_matrix(demand_omx, matrix, mapping)
    try:
        raw = read_raw(source)
        raw.name = name or raw.name
        if demand is not None:
            raw.set_demand(demand, keep_zero=False)
        if coordinates is not None:
            raw.set_coordinates(Path(coordinates))
        return complete(raw, rules)
    except RecursionError as error:
        raise BloccError(f"{source} nests values too deep: {error}") from None


def write_network(network: TransportNetwork, path: str | Path) -> Path:
    """Write ``PATH.json``, or a folder of GMNS files where the path has no suffix; returns what was written.

    Missing folders are made. Each file appears complete or not at all.
    """
    target = Path(path)
    network.check_text()
    if target.suffix == ".json" and not target.is_dir():
        contents = {target: native.render(network)}
    elif target.is_dir() or not target.suffix:
        contents = {target / file: content for file, content in _gmns(network).items()}
    else:
        raise OptionError(f"cannot write {target}: end the name in .json, or give a folder for GMNS files")
    for file, content in contents.items():
        write_file(file, content, BloccError)
    return target


def read_raw(source: str | Path) -> RawNetwork:
    """What the files of a network hold, as it is."""
    kind, path = located(source, BUILT_IN, "network")
    if kind == "built-in":
        text = files("blocc.transport.network").joinpath("data", f"{path}.json").read_text("utf-8")
        return native.parse(text, str(path))
    try:
        if kind == "json":
            return native.parse(read_text(path), path.name)
        return tntp.read_tntp(path) if kind == "tntp" else gmns.read_folder(path)
    except (OSError, ValueError) as error:
        if isinstance(error, BloccError):
            raise
        raise BloccError(f"cannot read {source}: {getattr(error, 'strerror', None) or error}") from error


def _gmns(network: TransportNetwork) -> dict[str, bytes]:
    """The contents of the files that :func:`read_folder` reads, by name."""
    axes = ("lon", "lat") if network.geographic else ("x", "y")
    zones = _zones_to_write(network)
    headings = {"node_id": "id", "name": "name", "x_coord": axes[0], "y_coord": axes[1]}
    headings |= {"zone_id": "zone_id"} if zones else {}
    nodes = _renamed(network.node_rows(), headings | ({} if network.through.all() else {"through": "through"}))
    rows = network.link_rows()
    for row, name in zip(rows, network.link_ids, strict=True):
        row |= {"link_id": name, "directed": 1}
        row |= {"geometry": line_text(line)} if (line := line_of(row.get("geometry"))) is not None else {}
    headings = {"link_id": "link_id", "from_node_id": "from", "to_node_id": "to"}
    headings |= {name: name for name in ("directed", "time", "cost")}
    headings |= {name: name for name in (*OPTIONAL_LINK_COLUMNS, "geometry") if any(name in row for row in rows)}
    links = _renamed(rows, headings)
    rows = network.market_rows()
    for row in rows:
        row |= {end: zones.get(row[end], row[end]) for end in ("origin", "destination")}
    headings = {"o_zone_id": "origin", "d_zone_id": "destination", "volume": "demand"}
    markets = _renamed(rows, headings | {name: name for name in ("revenue", "alternative_time")})
    tables = {"node.csv": nodes, "link.csv": links, "demand.csv": markets, "config.csv": [_config_row(network)]}
    return {name: csv_bytes(rows, guarded=False) for name, rows in tables.items()}


def _config_row(network: TransportNetwork) -> Row:
    low, high = network.start_range or ("", "")
    units = network.units
    crs = network.crs or ("EPSG:4326" if network.geographic else "")
    row: dict[str, Any] = {"dataset_name": network.name, "crs": crs, "start_low": low, "start_high": high}
    more: dict[str, Any] = {"long_length": units.length, "currency": units.money, "time_unit": units.time}
    more |= {"time_factor": units.time_factor if units.time_factor != 1.0 else ""}
    more |= {"assumptions": "\n".join(network.assumptions)}
    return {**row, "notes": network.notes, **{name: value for name, value in more.items() if value}}


def _zones_to_write(network: TransportNetwork) -> dict[NodeId, NodeId]:
    """The zone of each node, where demand can be told by zones: the first node of a zone takes its demand."""
    first: dict[NodeId, NodeId] = {}
    for node, zone in zip(network.nodes, network.zone_ids, strict=True):
        if zone is not None:
            first.setdefault(zone, node)
    ends = {network.nodes[i] for i in {*network.origin.tolist(), *network.destination.tolist()}}
    zones = {node: zone for zone, node in first.items()}
    return zones if ends <= zones.keys() else {}


def _renamed(rows: Iterable[Row], headings: Mapping[str, str]) -> list[Row]:
    """Rows under other headings; what a row lacks stays empty."""
    return [{heading: row.get(name, "") for heading, name in headings.items()} for row in rows]
