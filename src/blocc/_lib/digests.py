"""Digests of what a file says, however it is laid out: a change after it was written is noticed.

They guard against accidents and careless edits. Who recomputes a digest can write anything; claims are therefore
recomputed as well, by the verifiers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from blocc._lib.files import plain

KEY = "sha256"


def digest(said: Any) -> str:
    """SHA-256 over plain values: of a mapping over all but its own digest, in whatever order its keys stand."""
    content = {key: value for key, value in said.items() if key != KEY} if isinstance(said, Mapping) else said
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def sealed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The same as plain values, with their digest."""
    said = dict(plain(document))
    return said | {KEY: digest(said)}


def digest_list(files: Mapping[str, bytes]) -> bytes:
    """Digests of files that cannot hold their own, as ``sha256sum --check`` reads them."""
    return "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items()).encode()
