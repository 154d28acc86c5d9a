"""Whoever reads the output may leave early: the command ends with its own exit code and without a word about it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def without_reader(command: list[str], *, buffered: bool = True, errors_too: bool = False) -> tuple[int, str]:
    """Exit code and standard error of a command whose output nobody reads."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    environment |= {} if buffered else {"PYTHONUNBUFFERED": "1"}
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            command,
            stdout=writing,
            stderr=writing if errors_too else subprocess.PIPE,
            text=True,
            check=False,
            env=environment,
        )
    finally:
        os.close(writing)
    return done.returncode, done.stderr or ""


@pytest.mark.parametrize("buffered", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_command_without_reader(buffered: bool) -> None:
    command = [sys.executable, "-m", "blocc.cli.main", "network", "describe", "three"]
    assert without_reader(command, buffered=buffered) == (0, "")


@pytest.mark.slow
def test_a_run_without_reader_writes_its_files(tmp_path: Path) -> None:
    words = ["solve", str(EXAMPLES / "toy.py"), "--x0", "0.3", "--save", str(tmp_path / "first")]
    assert without_reader([sys.executable, "-m", "blocc.cli.main", *words]) == (0, "")
    assert {path.name for path in tmp_path.iterdir()} == {"first.json"}


def test_errors_without_reader() -> None:
    command = [sys.executable, "-m", "blocc.cli.main", "solve", "there-is-no-such-file.py"]
    assert without_reader(command, errors_too=True) == (2, "")


def test_a_reader_gets_everything_in_order() -> None:
    program = (
        "from blocc._lib.streams import outlive_readers\nprint('before', end=' ')\noutlive_readers()\nprint('nächste')"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=environment)
    assert done.stdout.decode() == "before nächste\n"


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs pseudo-terminals")
def test_a_terminal_is_left_alone() -> None:
    leader, follower = os.openpty()
    program = "import sys\nfrom blocc._lib.streams import outlive_readers\nold = sys.stdout\noutlive_readers()\n"
    program += "sys.exit(3 if sys.stdout is old else 4)"
    done = subprocess.run([sys.executable, "-c", program], stdout=follower, check=False)
    os.close(leader)
    os.close(follower)
    assert done.returncode == 3


def test_missing_streams_are_left_alone() -> None:
    program = "import sys\nfrom blocc._lib.streams import outlive_readers\nsys.stdout = None\noutlive_readers()\n"
    program += "sys.exit(0 if sys.stdout is None else 1)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
