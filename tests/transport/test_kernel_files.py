"""Compiled kernels where nothing can be written: a container's user without a home, a package that is read-only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("numba")

SOURCE = Path(__file__).parents[2] / "src"
#: All kernels of roads declared, and a small one compiled and run.
PROGRAM = """
import numpy as np
from blocc.roads import assign, expand_network
from blocc.networks.kernels import kernel

@kernel
def doubled(values):
    return 2.0 * values

assert doubled(np.ones(3)).sum() == 6.0
assert doubled(np.ones((2, 2))).sum() == 8.0
print("done")
"""


def ran(package: Path, cache: str, program: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """The program with a package from elsewhere; ``/dev/null`` is no folder, for the superuser neither."""
    places = dict.fromkeys(("HOME", "XDG_CACHE_HOME"), "/dev/null/home")
    given = {**os.environ, **places, "NUMBA_CACHE_DIR": cache, "PYTHONPATH": str(package), "JAX_PLATFORMS": "cpu"}
    return subprocess.run([sys.executable, str(program)], env=given | more, capture_output=True, text=True, cwd="/")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    (tmp_path / "__pycache__").write_text("a file, so that no folder can be made there")
    return path


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, nowhere in which anything can be kept."""
    copy = tmp_path / "site"
    for path in (SOURCE / "blocc").rglob("*"):
        target = copy / path.relative_to(SOURCE)
        if path.is_dir() and path.name != "__pycache__":
            target.mkdir(parents=True)
            (target / "__pycache__").write_text("")
        elif path.is_file() and path.parent.name != "__pycache__":
            target.write_bytes(path.read_bytes())
    return copy


@pytest.mark.skipif(sys.platform == "win32", reason="/dev/null is a file on Unix alone")
def test_without_a_place_for_files(program: Path, package: Path) -> None:
    for cache in ("", "/dev/null/cache"):
        done = ran(package, cache, program)
        assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is always full")
def test_on_a_full_disk(program: Path, tmp_path: Path) -> None:
    """The place exists, and yet nothing can be written to it."""
    text = """
import numba.core.caching as caching
caching.IndexDataCacheFile._open_for_write = lambda self, path: open("/dev/full", "wb", buffering=0)
"""
    program.write_text(text + PROGRAM)
    done = ran(SOURCE, str(tmp_path / "cache"), program)
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr


def test_processes_that_begin_at_once_do_not_mix_up_kernels(tmp_path: Path) -> None:
    """The second one read the list before the first one wrote it."""
    from blocc.networks.kernels import KernelFiles

    first, second = (KernelFiles(str(tmp_path), "kernel", 0.0) for _ in range(2))
    first.save("one signature", "its program")
    listed = first._load_index()
    second._load_index = dict
    second.save("another", "another program")
    first._save_index(listed)
    assert first.load("one signature") == "its program"


def test_lists_that_name_types_of_another_version_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is upgraded in place finds the files of the older one beside its own."""
    from blocc.networks.kernels import KernelFiles

    older = ModuleType("older")
    monkeypatch.setitem(sys.modules, "older", older)
    older.Streets = type("Streets", (), {"__module__": "older"})
    files = KernelFiles(str(tmp_path), "kernel", 0.0)
    files.save(older.Streets, "its program")
    assert files.load(older.Streets) == "its program"
    monkeypatch.delitem(sys.modules, "older")
    assert files.load("a signature") is None
    files.save("a signature", "a program")
    assert files.load("a signature") == "a program"
