"""Which format a path stands for, and out of which file or folder it is read."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from os import PathLike
from pathlib import Path

from blocc.errors import BloccError, OptionError
from blocc.networks.readers.tntp import SUFFIX

FORMATS = f"a .json file of blocc, a folder with GMNS files (node.csv, link.csv, demand.csv), or a *{SUFFIX} file"
_GMNS_FILES = ("node.csv", "link.csv", "demand.csv", "config.csv")


def located(source: str | Path, built_in: Collection[str], what: str) -> tuple[str, Path]:
    """``built-in``, ``json``, ``gmns`` or ``tntp``, and the file or folder; of what is built in, its name.

    :param what: is read, for messages: a network, a road network
    """
    if not isinstance(source, (str, PathLike)):
        raise OptionError(f"source must be a built-in name or a path, got {type(source).__name__}; otherwise {FORMATS}")
    path = Path(source)
    if isinstance(source, str) and source in built_in:
        return "built-in", path
    try:
        return _of_path(path, built_in, what)
    except (OSError, ValueError) as error:  # a name that is too long, or has a null in it
        if isinstance(error, BloccError):
            raise
        raise BloccError(f"cannot read {source}: {getattr(error, 'strerror', None) or error}") from error


def _of_path(path: Path, built_in: Collection[str], what: str) -> tuple[str, Path]:
    if path.is_dir():
        return _in_folder(path, what)
    if not path.is_file():
        beside = path.with_name(path.name + SUFFIX) if path.name else path
        if beside.is_file():
            return "tntp", beside
        near = difflib.get_close_matches(str(path).lower(), built_in, n=1)
        guess = f" (did you mean {near[0]!r}?)" if near else ""
        known = f"built in: {', '.join(built_in)}; otherwise give {FORMATS}"
        raise BloccError(f"there is no {what} {str(path)!r}{guess}; {known}")
    name = path.name.lower()
    if name in _GMNS_FILES:
        return "gmns", path.parent
    if name.endswith((SUFFIX, ".json")):
        return "tntp" if name.endswith(SUFFIX) else "json", path
    raise BloccError(f"{path} is not a {what} file that blocc knows; expected {FORMATS}")


def _in_folder(path: Path, what: str) -> tuple[str, Path]:
    has_gmns = any((path / name).is_file() for name in ("node.csv", "link.csv"))
    nets = sorted(file for file in path.iterdir() if file.name.lower().endswith(SUFFIX))
    if len(nets) + has_gmns == 1:
        return ("gmns", path) if has_gmns else ("tntp", nets[0])
    if not nets:
        raise BloccError(f"the folder {path} holds no {what}: neither node.csv nor a *{SUFFIX} file")
    found = ", ".join(["node.csv"] * has_gmns + [file.name for file in nets])
    raise BloccError(f"the folder {path} holds several networks ({found}); give the path of one of them")
