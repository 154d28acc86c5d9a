"""The version of the package, as installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("blocc")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0.1.0+source"
