"""Files appear whole, are on the disk before they appear, and leave nothing behind that is not theirs to remove."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blocc._lib import files
from blocc._lib.files import json_bytes, parse_json, remove_leftovers, write_atomically, write_file
from blocc.errors import BloccError

LEFTOVER = ".run.npz.0123456789abcdef.part"


def failing(number: int, only: Callable[[int], bool] = lambda descriptor: True) -> Callable[[int], None]:
    """A flush that fails with this error number, for some descriptors."""
    flush = os.fsync

    def fsync(descriptor: int) -> None:
        if only(descriptor):
            raise OSError(number, os.strerror(number))
        flush(descriptor)

    return fsync


def is_folder(descriptor: int) -> bool:
    return os.path.isdir(f"/proc/self/fd/{descriptor}")


def test_the_content_is_on_the_disk_before_the_file_appears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, steps = tmp_path / "run.npz", []
    flush, replace = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        if is_folder(descriptor):
            steps.append("folder")
        else:
            assert os.fstat(descriptor).st_size == 4
            steps.append("file")
        flush(descriptor)

    def moved(*arguments: Any) -> None:
        steps.append("move")
        replace(*arguments)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", moved)
    write_atomically(target, b"data")
    assert steps == ["file", "move", "folder"]
    assert target.read_bytes() == b"data"
    assert [path.name for path in tmp_path.iterdir()] == ["run.npz"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS])
def test_file_systems_that_cannot_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(os, "fsync", failing(number))
    write_atomically(tmp_path / "run.npz", b"data")
    assert (tmp_path / "run.npz").read_bytes() == b"data"


def test_folders_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def refuse(path: Any, *arguments: Any, **options: Any) -> int:
        if Path(path) == tmp_path:
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    write_atomically(tmp_path / "run.npz", b"data")
    assert (tmp_path / "run.npz").read_bytes() == b"data"


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_disk_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    write_atomically(tmp_path / "run.npz", b"old")
    monkeypatch.setattr(os, "fsync", failing(number))
    with pytest.raises(OSError, match=os.strerror(number)):
        write_atomically(tmp_path / "run.npz", b"new")
    assert (tmp_path / "run.npz").read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", failing(errno.EIO, is_folder))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        write_atomically(tmp_path / "run.npz", b"new")


def test_file_systems_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(files.fcntl, "flock", unsupported)
    write_atomically(tmp_path / "run.npz", b"data")
    (tmp_path / LEFTOVER).write_bytes(b"half")
    remove_leftovers(tmp_path / "run.npz")
    assert (tmp_path / LEFTOVER).exists()  # perhaps somebody is writing it
    hours_ago = time.time() - 7200.0
    os.utime(tmp_path / LEFTOVER, (hours_ago, hours_ago))
    remove_leftovers(tmp_path / "run.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["run.npz"]


def test_only_files_made_here_are_removed(tmp_path: Path) -> None:
    (tmp_path / LEFTOVER).write_bytes(b"half")
    mine = [
        ".run.npz.mine.part",
        ".run.npz.0123456789abcdeg.part",
        ".run.npz.0123456789abcde.part",
        ".run.npz.0123456789ABCDEF.part",
        ".run.npz.0123456789abcdef.part.part",
        ".runxnpz.0123456789abcdef.part",
        "run.npz.0123456789abcdef.part",
        ".run.npz.part",
    ]
    for name in mine:
        (tmp_path / name).write_text("precious")
    (tmp_path / ".run.npz.aaaaaaaaaaaaaaaa.part").mkdir()
    (tmp_path / ".run.npz.bbbbbbbbbbbbbbbb.part").symlink_to(tmp_path / ".run.npz.part")
    remove_leftovers(tmp_path / "run.npz")
    kept = {*mine, ".run.npz.aaaaaaaaaaaaaaaa.part", ".run.npz.bbbbbbbbbbbbbbbb.part"}
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_names_that_look_like_patterns(tmp_path: Path) -> None:
    (tmp_path / ".[ab]*.npz.0123456789abcdef.part").write_bytes(b"half")
    (tmp_path / ".a.npz.0123456789abcdef.part").write_bytes(b"of another file")
    remove_leftovers(tmp_path / "[ab]*.npz")
    assert [path.name for path in tmp_path.iterdir()] == [".a.npz.0123456789abcdef.part"]


WRITER = """
import os, sys
from pathlib import Path
from blocc._lib.files import write_atomically
flush = os.fsync
def slow(descriptor):
    flush(descriptor)
    print("writing", flush=True)
    sys.stdin.readline()
os.fsync = slow
write_atomically(Path(sys.argv[1]), b"data")
"""


def test_what_another_process_is_writing_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "run.npz"
    program = [sys.executable, "-c", WRITER, str(target)]
    for killed in (False, True):
        with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "writing\n"
            assert len(list(tmp_path.glob(".run.npz.*.part"))) == 1
            remove_leftovers(target)
            assert len(list(tmp_path.glob(".run.npz.*.part"))) == 1
            if killed:
                writer.send_signal(signal.SIGKILL)
            writer.communicate("\n\n", timeout=30)
        assert target.read_bytes() == b"data"
        assert len(list(tmp_path.glob(".run.npz.*.part"))) == int(killed)
        remove_leftovers(target)
        assert [path.name for path in tmp_path.iterdir()] == ["run.npz"]


def test_a_writer_that_loses_its_file_at_once_takes_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may take a new file for a leftover before it is locked."""
    lock, calls = files.fcntl.flock, []

    def late(descriptor: int, operation: int) -> None:
        if not calls:
            for path in tmp_path.glob(".*.part"):
                path.unlink()
        calls.append(descriptor)
        lock(descriptor, operation)

    monkeypatch.setattr(files.fcntl, "flock", late)
    write_atomically(tmp_path / "run.npz", b"data")
    assert len(calls) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["run.npz"]


# --- JSON -------------------------------------------------------------------------------------------------------------
def test_json_knows_every_value() -> None:
    document = {1: np.arange(2.0), "b": (math.inf, True, None), "c": np.int64(3), "d": files, "e": "é \ud800"}
    text = json_bytes(document)
    assert json.loads(text) == {"1": [0.0, 1.0], "b": [None, True, None], "c": 3, "d": repr(files), "e": "é \ud800"}
    assert "é".encode() in text


def test_files_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    path = write_file(tmp_path / "made" / "file", b"data", BloccError)
    assert path.read_bytes() == b"data"
    with pytest.raises(BloccError, match="cannot write"):
        write_file(path / "below a file", b"", BloccError)


def test_json_with_a_key_twice_is_refused() -> None:
    with pytest.raises(BloccError, match=r"a\.json is not a JSON file: an object has the key 'x' more than once"):
        parse_json(b'[{"x": 1, "y": 2, "x": 3}]', "a.json", BloccError)
    assert parse_json('{"x": 1, "y": {"x": 2}}', "a.json", BloccError) == {"x": 1, "y": {"x": 2}}
