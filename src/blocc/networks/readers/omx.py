"""Demand matrices in OMX, the open matrix format: an HDF5 file with ``/data/MATRIX`` and perhaps ``/lookup/MAPPING``.

Reading needs h5py. Nothing outside the file is followed: matrices stored elsewhere are refused.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from blocc.errors import BloccError, OptionError, ProblemError
from blocc.networks.checked_rows import PLACE
from blocc.networks.readers.raw import MAX_BYTES, Demand, Row, check_rows

MAX_CELLS = 100_000_000
#: Bytes of one chunk of an array. Chunks are packed, so that a small file can announce large ones, and each is unpacked
#: as a whole.
MAX_CHUNK = 64 * 2**20
MAX_ID = 200  #: characters of a zone's name
SHOWN = 5


def read_demand_matrix(path: str | Path | None, matrix: str | None, mapping: str | None) -> Demand | None:
    """The demand of an OMX file, where one is given."""
    if path is None and (matrix is not None or mapping is not None):
        given = "matrix" if matrix is not None else "mapping"
        raise OptionError(f"{given} chooses an array of an OMX file: give demand_omx too")
    return None if path is None else read_omx(path, matrix, mapping)


def read_omx(path: str | Path, matrix: str | None = None, mapping: str | None = None) -> Demand:
    """Origin, destination and demand of every cell that is not zero.

    Without names, the file's only matrix and its only mapping are taken; a file without a mapping numbers its zones
    from 1.
    """
    try:
        import h5py
    except ImportError:
        raise BloccError("reading OMX needs h5py: pip install 'blocc[omx]'") from None
    file = Path(path)
    try:
        if not file.is_file():
            raise BloccError(f"there is no file {path}")
        if file.stat().st_size > MAX_BYTES:
            raise BloccError(f"{path} is too large: more than {MAX_BYTES:,} bytes")
        with h5py.File(file, "r") as stream:
            cells, matrix_name = _pick(h5py, stream, "data", matrix, "matrix", file.name)
            if cells is None:
                raise ProblemError(f"{file.name} has no matrix: /data is missing or empty")
            lookup, _ = _pick(h5py, stream, "lookup", mapping, "mapping", file.name)
            size = _size(cells, f"{file.name} matrix {matrix_name!r}")
            zones = _zones(lookup, size, file.name)
            return _demand(cells, zones, f"{file.name} {matrix_name}")
    except BloccError:
        raise
    # h5py reports damaged files by errors of all these kinds.
    except (OSError, KeyError, RuntimeError, TypeError, ValueError, AttributeError, MemoryError) as error:
        raise ProblemError(f"{file.name} is not an OMX file that can be read: {error}") from error


def _pick(h5py: Any, stream: Any, group: str, wanted: str | None, what: str, file: str) -> tuple[Any, str]:
    """The array of this name, or the only one; None where there is none and none is wanted."""
    folder = stream.get(group)
    names = list(folder) if isinstance(folder, h5py.Group) else []
    known = ", ".join(names) or "none"
    if wanted is not None and wanted not in names:
        raise OptionError(f"{file} has no {what} {wanted!r}; it has: {known}")
    if not names:
        return None, ""
    if wanted is None and len(names) > 1:
        raise OptionError(f"{file} has several: {known}; choose one with {what}=NAME")
    name = names[0] if wanted is None else wanted
    links = (folder.get(name, getlink=True), stream.get(group, getlink=True))
    if not all(isinstance(link, h5py.HardLink) for link in links):  # a soft link may lead on to an external one
        raise ProblemError(
            f"{file}: the {what} {name!r} is stored in another file or behind a link; neither is followed"
        )
    found = folder[name]
    if not isinstance(found, h5py.Dataset) or found.external or found.is_virtual:
        raise ProblemError(f"{file}: the {what} {name!r} must be an array in the file itself")
    chunk = math.prod(found.chunks) * found.dtype.itemsize if found.chunks else 0
    if chunk > MAX_CHUNK:
        raise ProblemError(
            f"{file}: the {what} {name!r} is packed in chunks of {chunk:,} bytes; up to {MAX_CHUNK:,} are read"
        )
    return found, name


def _size(cells: Any, what: str) -> int:
    """Rows of a square matrix of numbers."""
    if cells.ndim != 2 or cells.shape[0] != cells.shape[1]:
        raise ProblemError(f"{what} must be square, got the shape {cells.shape}")
    if not np.issubdtype(cells.dtype, np.number) or np.issubdtype(cells.dtype, np.complexfloating):
        raise ProblemError(f"{what} must hold numbers, got {cells.dtype}")
    if cells.size > MAX_CELLS:
        raise ProblemError(f"{what} has {cells.size:,} cells; matrices up to {MAX_CELLS:,} are read")
    return int(cells.shape[0])


def _zones(lookup: Any, size: int, file: str) -> list[int | str]:
    """The ids that a mapping gives to rows and columns; without one, their numbers."""
    if lookup is None:
        return list(range(1, size + 1))
    if lookup.shape != (size,):
        raise ProblemError(
            f"{file}: the mapping must have {size} entries like the matrix, got the shape {lookup.shape}"
        )
    if lookup.dtype.itemsize > 4 * MAX_ID:
        raise ProblemError(f"{file}: the mapping has entries of {lookup.dtype.itemsize} bytes; names must be shorter")
    zones: list[int | str] = []
    for position in range(size):  # one at a time: texts of any length may stand behind the entries of a small array
        value = lookup[position]
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        elif isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, str) and len(value) > MAX_ID:
            raise ProblemError(f"{file}: the mapping has a name of {len(value)} characters; up to {MAX_ID} are read")
        zones.append(value)
    return zones


def _demand(cells: Any, zones: list[int | str], place: str) -> Demand:
    rows: list[Row] = []
    wrong: list[str] = []
    # Some rows at a time: the matrix may be large. As many as a chunk has, since a chunk is unpacked as a whole.
    height = cells.chunks[0] if cells.chunks else 1
    block = np.zeros((0, len(zones)))
    for position, origin in enumerate(zones):
        if position % height == 0:
            block = np.asarray(cells[position : position + height], dtype=float)
        figures = block[position % height]
        for column in np.flatnonzero(figures):
            where = f"{place}[{origin}, {zones[column]}]"
            if not np.isfinite(figures[column]):
                wrong.append(f"{where} is {figures[column]}")
            amount = float(figures[column])
            rows.append({"origin": origin, "destination": zones[column], "demand": amount, PLACE: where})
        check_rows(len(rows), place)
        if len(wrong) >= SHOWN:
            break
    if wrong:
        raise ProblemError("demand must be finite; put 0 where there is none: " + "; ".join(wrong[:SHOWN]))
    return Demand(rows, (f"Demand: {place}.",))
