"""Files that are either whole or not there."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside the target and move into place, so that no reader ever sees half a file.

    A symbolic link at the target is replaced, not followed.
    """
    temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}.part"
    # The system itself applies the user's mask to 0o666: asking for the mask would mean to change it for a moment, for
    # all threads of the host program.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
