"""Networks in and out of files: which format a path stands for, and writing that is complete or not at all."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from blocc._lib.files import write_file
from blocc.errors import BloccError, OptionError
from blocc.networks.readers import gmns, tntp
from blocc.networks.readers.formats import located
from blocc.networks.readers.omx import read_demand_matrix
from blocc.networks.readers.raw import RawNetwork, read_text
from blocc.transport.network import gmns_files
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
        contents = {target / file: content for file, content in gmns_files.render(network).items()}
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
