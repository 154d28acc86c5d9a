"""Arrays out of an NPZ file from outside: nothing is executed, and nothing is unpacked beyond what is announced.

An archive of some kilobytes can announce, or unpack to, any number of bytes. So sizes are compared before memory is
taken: what the archive's directory says, what the header of each array says, and the limit.
"""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from blocc.errors import BloccError

MOST_BYTES = 2 * 2**30  #: of all arrays together, unpacked
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def unpack_arrays(
    packed: bytes, what: str, error: type[BloccError], names: Sequence[str] | None = None
) -> dict[str, np.ndarray]:
    """The arrays of these names, or all of them; raises ``error`` with a sentence that begins with ``what``."""
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            found = [name.removesuffix(".npy") for name in archive.namelist()] if names is None else names
            members = {name: archive.getinfo(f"{name}.npy") for name in found}
            total = sum(member.file_size for member in members.values())
            if total > MOST_BYTES:
                raise error(f"{what} unpacks to {total:,} bytes; {MOST_BYTES:,} are the limit")
            return {name: _unpack(archive, member) for name, member in members.items()}
    except BloccError:
        raise
    # Zip files can be damaged in many ways, encrypted, or packed by a method that Python does not know.
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, KeyError, SyntaxError) as reason:
        raise error(f"{what} is not a NumPy archive: {reason}") from reason
    except (ValueError, TypeError, MemoryError, OverflowError, RecursionError) as reason:
        raise error(f"{what} is damaged: {type(reason).__name__}: {reason}") from reason


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        if version not in _HEADERS:
            raise ValueError(f"{member.filename} has version {version} of the format")
        shape, _, dtype = _HEADERS[version](stream)
        if dtype.hasobject:
            raise ValueError(f"{member.filename} holds Python objects, which are never loaded")
        announced = math.prod(shape) * dtype.itemsize
        if any(length < 0 for length in shape) or announced != member.file_size - stream.tell():
            raise ValueError(f"{member.filename} announces {announced:,} bytes, but has others")
    with archive.open(member) as stream:
        array: Any = np.lib.format.read_array(stream, allow_pickle=False)
    return np.asarray(array)
