"""Road networks out of files: TNTP, GMNS, the JSON format of this package, and Sioux Falls by its name."""

from __future__ import annotations

from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from blocc._lib.files import parse_json
from blocc.errors import BloccError, OptionError, ProblemError
from blocc.networks.readers.omx import read_omx
from blocc.networks.readers.raw import RawNetwork, read_text
from blocc.networks.readers.tntp import SUFFIX, read_tntp
from blocc.roads.gmns import read_gmns
from blocc.roads.network import RoadNetwork

BUILT_IN = {"sioux-falls": "sioux_falls.json"}
FORMAT, VERSION = "blocc-roads", 1
FORMATS = f"a *{SUFFIX} file, a folder with GMNS files (node.csv, link.csv, demand.csv), or a .json file of blocc"
_GMNS_FILES = ("node.csv", "link.csv", "demand.csv", "config.csv")


def read_road_network(
    source: str | Path,
    *,
    demand_omx: str | Path | None = None,
    matrix: str | None = None,
    mapping: str | None = None,
    default_bpr: tuple[float, float] | None = None,
    drop_unreachable: bool = False,
) -> RoadNetwork:
    """Read a road network: "sioux-falls", ``NAME_net.tntp`` with its trips beside it, a GMNS folder, or ``.json``.

    Of a TNTP file capacity, length, free flow time, b, power and toll are used, and ``<FIRST THRU NODE>``; speed and
    link type are not. Tolls count as they stand in the file, in units of time. What a GMNS folder is used for, and in
    which units, :mod:`blocc.roads.gmns` says. What was assumed is in the network's ``assumptions``.

    :param demand_omx: take the trips from this OMX file instead; ``matrix`` and ``mapping`` say which of its arrays
    :param default_bpr: b and power of links that have none, with a note, instead of an error; (0.15, 4) is usual
    :param drop_unreachable: leave out trips that no path can serve, with a note, instead of an error
    """
    if not isinstance(source, (str, PathLike)):
        raise OptionError(f"source must be a built-in name or a path, got {type(source).__name__}")
    if demand_omx is None and (matrix is not None or mapping is not None):
        given = "matrix" if matrix is not None else "mapping"
        raise OptionError(f"{given} chooses an array of an OMX file: give demand_omx too")
    more: dict[str, Any] = {"default_bpr": default_bpr, "drop_unreachable": drop_unreachable}
    is_built_in = isinstance(source, str) and source in BUILT_IN
    path = Path(source)
    if is_built_in or (path.suffix.lower() == ".json" and path.is_file()):
        if demand_omx is not None:
            raise OptionError("demand_omx replaces the trips of TNTP and GMNS files, not those of a .json file")
        if is_built_in:
            text = files("blocc.roads").joinpath("data", BUILT_IN[str(source)]).read_text("utf-8")
        else:
            text = read_text(path)
        return _from_json(text, path.name, more)
    raw = _raw(path)
    if demand_omx is not None:
        raw.set_demand(read_omx(demand_omx, matrix, mapping), keep_zero=False)
    if raw.markets is None:
        raise ProblemError(f"{path.name}: no trips; expected {raw.demand_expected}, or an OMX file (demand_omx)")
    return RoadNetwork.from_tables(
        raw.nodes, raw.links, raw.markets, name=raw.name, assumptions=raw.assumptions, **more
    )


def network_document(network: RoadNetwork) -> dict[str, Any]:
    """A network in the JSON format of this package, which :func:`read_road_network` reads."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": network.name,
        "assumptions": list(network.assumptions),
        "nodes": network.node_rows(),
        "links": network.link_rows(),
        "trips": network.trip_rows(),
    }


def _raw(path: Path) -> RawNetwork:
    """What the files that a path stands for hold."""
    beside = path.with_name(path.name + SUFFIX) if path.name else path
    if path.is_dir():
        nets = sorted(file for file in path.iterdir() if file.name.lower().endswith(SUFFIX))
        has_gmns = (path / "link.csv").is_file()
        if len(nets) + has_gmns != 1:
            several = "several networks; give the path of one" if nets else f"no road network; expected {FORMATS}"
            raise BloccError(f"the folder {path} holds {several}")
        return read_gmns(path) if has_gmns else _tntp(nets[0])
    if not path.is_file():
        if beside.is_file():
            return _tntp(beside)
        raise BloccError(
            f"there is no road network {str(path)!r}; built in: {', '.join(BUILT_IN)}; otherwise {FORMATS}"
        )
    if path.name.lower().endswith(SUFFIX):
        return _tntp(path)
    if path.name.lower() in _GMNS_FILES:
        return read_gmns(path.parent)
    raise BloccError(f"{path} is not a road network that blocc knows: it must be {FORMATS}")


def _tntp(path: Path) -> RawNetwork:
    raw = read_tntp(path)
    raw.links = [{**row, "free_flow_time": row.get("time")} for row in raw.links]
    # What the other application leaves unused is used here.
    notes = [note for note in raw.assumptions if not note.startswith("Not used: capacity")]
    notes = [note.replace("a link costs its time alone", "a link costs its time and its toll") for note in notes]
    raw.assumptions = [*notes, f"Not used: speed and link type of {path.name}."]
    return raw


def _from_json(text: str, source: str, more: dict[str, Any]) -> RoadNetwork:
    document = parse_json(text, source, ProblemError)
    if not isinstance(document, dict) or (document.get("format"), document.get("version")) != (FORMAT, VERSION):
        raise ProblemError(f'{source} is not a road network: it needs "format": "{FORMAT}" and "version": {VERSION}')
    tables: dict[str, Any] = {}
    for table in ("nodes", "links", "trips"):
        rows = document.get(table)
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ProblemError(f"{source}: {table!r} must be a list of objects")
        tables[table] = rows
    notes = document.get("assumptions", [])
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        raise ProblemError(f"{source}: 'assumptions' must be a list of texts")
    return RoadNetwork.from_tables(
        **tables,
        name=str(document.get("name", source)),
        assumptions=notes,
        **more,
    )
