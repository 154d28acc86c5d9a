"""Compiled programs on disk: a later process reads them, and broken files change no answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import blocc

PROGRAM = """
import json, sys
import jax
import jax.numpy as jnp
import numpy as np
import blocc
from blocc._lib.compiled import Program
events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event.rpartition("/")[2]))
jax.block_until_ready(jnp.ones(2))  # compiled before there is a cache
folder = blocc.cache_compilations(sys.argv[1])
with jax.enable_x64(True):
    found = Program(lambda x: jnp.sin(x) @ jnp.cos(x))(np.arange(3.0))
names = ("cache_hits", "cache_misses")
print(json.dumps([float(found), str(folder), *(events.count(name) for name in names)]))
"""


def run(folder: Path) -> list[object]:
    call = [sys.executable, "-c", PROGRAM, str(folder)]
    own = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}  # no cache of the suite
    done = subprocess.run(call, capture_output=True, text=True, check=True, env=own)
    found: list[object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_programs_are_read_by_later_processes(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "compiled"
    first = run(folder)
    assert first[1] == str(folder)
    assert first[2] == 0
    entries = list(folder.glob("*-cache"))
    assert entries
    again = run(folder)
    assert again[0] == first[0]
    assert again[2] == 1
    for entry in entries:  # as a process leaves it that is killed while writing
        entry.write_bytes(entry.read_bytes()[:40])
    assert run(folder)[0] == first[0]


def test_a_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(blocc.OptionError, match="cannot be kept in"):
        blocc.cache_compilations(tmp_path / "file")
