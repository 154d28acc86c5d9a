"""Saved results as versions 1 and 2 of the format had them: the arrays in a file of their own."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

from blocc._lib.digests import digest


def as_pair(path: Path, version: int = 2) -> Path:
    """A saved result, rewritten in place as an older version would have written it."""
    document = json.loads(path.read_text())
    packed = base64.b64decode(document["arrays"].pop("npz"))
    companion = path.with_suffix(".npz")
    companion.write_bytes(packed)
    document["arrays"] |= {"file": companion.name, "sha256": hashlib.sha256(packed).hexdigest()}
    document["version"] = version
    del document["sha256"]
    path.write_text(json.dumps(document if version == 1 else document | {"sha256": digest(document)}))
    return path
