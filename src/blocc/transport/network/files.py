"""Networks in and out of files: which format a path stands for, and writing that is complete or not at all."""

from __future__ import annotations

import difflib
from importlib.resources import files
from os import PathLike
from pathlib import Path

from blocc._lib.files import write_file
from blocc.errors import BloccError, OptionError
from blocc.networks.readers import gmns, tntp
from blocc.networks.readers.omx import read_omx
from blocc.networks.readers.raw import RawNetwork, read_text
from blocc.transport.network import gmns_files
from blocc.transport.network.network import TransportNetwork
from blocc.transport.network.readers import native
from blocc.transport.network.readers.rules import FillRules, complete

BUILT_IN = ("three", "nine", "seville")
FORMATS = "a .json file of blocc, a folder with GMNS files (node.csv, link.csv, demand.csv), or a *_net.tntp file"

_GMNS_FILES = ("node.csv", "link.csv", "demand.csv", "config.csv")


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
    """Read a network: a built-in one by its name, or a file or folder (see ``FORMATS``).

    ``rules`` fill in figures that the files leave out. ``demand_omx`` takes the demand from an OMX file instead
    (``matrix`` and ``mapping`` say which of its arrays), ``coordinates`` the places of the nodes from a CSV file
    (node_id, x, y). A built-in name always means the built-in network; a folder of the same name is ``./three``. What
    was assumed on the way is in the network's ``assumptions``.
    """
    if not isinstance(source, (str, PathLike)):
        raise OptionError(f"source must be a built-in name or a path, got {type(source).__name__}; otherwise {FORMATS}")
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise OptionError(f"name must be a text that is not empty, got {name!r}")
    if demand_omx is None and (matrix is not None or mapping is not None):
        given = "matrix" if matrix is not None else "mapping"
        raise OptionError(f"{given} chooses an array of an OMX file: give demand_omx too")
    try:
        raw = read_raw(source)
        raw.name = name or raw.name
        if demand_omx is not None:
            raw.set_demand(read_omx(demand_omx, matrix, mapping), keep_zero=False)
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
    if isinstance(source, str) and source in BUILT_IN:
        text = files("blocc.transport.network").joinpath("data", f"{source}.json").read_text("utf-8")
        return native.parse(text, source)
    path = Path(source)
    try:
        return _from_folder(path) if path.is_dir() else _from_file(path)
    except (OSError, ValueError) as error:
        if isinstance(error, BloccError):
            raise
        raise BloccError(f"cannot read {source}: {getattr(error, 'strerror', None) or error}") from error


def _from_file(path: Path) -> RawNetwork:
    stem = path.with_name(path.name + tntp.SUFFIX) if path.name else path
    if not path.is_file():
        if stem.is_file():
            return tntp.read_tntp(stem)
        raise BloccError(_unknown(path))
    if path.name.lower() in _GMNS_FILES:
        return gmns.read_folder(path.parent)
    if path.name.lower().endswith(tntp.SUFFIX):
        return tntp.read_tntp(path)
    if path.suffix.lower() == ".json":
        return native.parse(read_text(path), path.name)
    raise BloccError(f"{path} is not a network file that blocc knows; expected {FORMATS}")


def _from_folder(path: Path) -> RawNetwork:
    has_gmns = (path / "node.csv").is_file()
    nets = sorted(file for file in path.iterdir() if file.name.lower().endswith(tntp.SUFFIX))
    if has_gmns and not nets:
        return gmns.read_folder(path)
    if len(nets) == 1 and not has_gmns:
        return tntp.read_tntp(nets[0])
    if not nets:
        raise BloccError(f"the folder {path} holds no network: neither node.csv nor a *{tntp.SUFFIX} file")
    found = ", ".join(["node.csv"] * has_gmns + [file.name for file in nets])
    raise BloccError(f"the folder {path} holds several networks ({found}); give the path of one of them")


def _unknown(path: Path) -> str:
    near = difflib.get_close_matches(str(path).lower(), BUILT_IN, n=1)
    guess = f" (did you mean {near[0]!r}?)" if near else ""
    return f"there is no network {str(path)!r}{guess}; built in: {', '.join(BUILT_IN)}; otherwise give {FORMATS}"
