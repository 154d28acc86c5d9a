"""The version of the package: written here, and not looked up, because programs that only import should not wait."""

from __future__ import annotations

__version__ = "0.2.0"  #: that of pyproject.toml
