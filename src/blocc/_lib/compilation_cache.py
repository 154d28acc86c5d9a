"""Compiled programs kept on disk, by JAX's own persistent cache: a later process reads them instead of compiling."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import jax
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from blocc.errors import OptionError


def _default_folder() -> Path:
    """Where this user's programs keep what can be made again."""
    if sys.platform == "win32":
        caches = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        caches = Path.home() / "Library" / "Caches"
    else:
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "blocc" / "compiled"


def cache_compilations(folder: str | Path | None = None) -> Path:
    """Keep compiled programs in a folder, from now on and for every later process that makes the same call.

    It sets JAX's persistent compilation cache for this whole process, other JAX programs in it included, and returns
    the folder: by default one for this user alone. What is in it is run as it is, so let nobody else write there.
    Entries know the versions, the options and the machine that they were compiled for; deleting any of them is safe.
    """
    place = _default_folder() if folder is None else Path(folder).expanduser()
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"compiled programs cannot be kept in {place}: {error.strerror or error}") from error
    reset_cache()  # JAX decides at its first compilation whether there is a cache
    jax.config.update("jax_compilation_cache_dir", str(place))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # most programs of a small problem take less
    return place
