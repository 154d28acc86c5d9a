"""Ctrl-C and SIGTERM in every command: what was found is printed and kept, and the exit code names the signal.

A signal comes when the loops have looked for one so many times, or where a command reads its input: no test waits.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from blocc._lib import files
from blocc._lib.files import json_bytes
from blocc._lib.signals import USUAL
from blocc.cli import commands as cli
from blocc.cli import network as cli_network
from blocc.outer.monitor import StopRequest
from blocc.roads.files import network_document
from blocc.studies import engine
from power_reference import written
from road_designs import small_roads

PROBLEM = """
import jax.numpy as jnp
from blocc import BilevelProblem, Box, Reals

problem = BilevelProblem(
    upper=lambda x, y: jnp.sum((x - 1.0) ** 2) + jnp.sum((y - 2.0) ** 4),
    lower=lambda x, y: jnp.sum((y - x) ** 2),
    inequality=lambda x, y: y - 2.0 * x - 1.0,
    x_set=Box(0.0, 3.0, shape=(3,)),
    y_set=Reals(3),
)
"""
CONIC = """
import cvxpy as cp
from blocc.cvxpy import BilevelProblem

p, y = cp.Parameter(name="p", bounds=[0.0, 3.0]), cp.Variable(name="y")
follower = cp.Problem(cp.Minimize(cp.square(y - p)), [y <= 1.5])
problem = BilevelProblem(cp.Minimize(cp.square(y - 1.0) + cp.square(p)), follower, p)
"""
STUDY = """
name = "small"
problem = "toy"
seeds = 1
[grid]
gamma = [5.0, 10.0]
"""


def blocc(*arguments: object) -> Result:
    return CliRunner().invoke(cli.build_app(), [str(argument) for argument in arguments])


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    """Python's own handlers: tests that run in the background have SIGINT ignored."""
    before = {number: signal.signal(number, handler) for number, handler in USUAL.items()}
    yield
    for number, handler in before.items():
        assert signal.getsignal(number) is USUAL[number]  # put back by the command
        signal.signal(number, handler)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "conic.py").write_text(CONIC)
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "square.json").write_bytes(json_bytes(network_document(small_roads())))
    (tmp_path / "counts.csv").write_text("link_id,count\n1,5\n2,6\n")
    written(tmp_path)
    return tmp_path


def press(monkeypatch: pytest.MonkeyPatch, number: signal.Signals, look: int) -> Callable[[], int]:
    """Send a signal when somebody looks for one for the ``look``-th time; how often they have looked."""
    looks, seen = count(1), [0]

    def reason(request: StopRequest) -> Any:
        seen[0] = next(looks)
        if seen[0] == look:
            signal.raise_signal(number)
        return vars(request).get("reason")

    def keep(request: StopRequest, value: Any) -> None:
        vars(request)["reason"] = value

    monkeypatch.setattr(StopRequest, "reason", property(reason, keep), raising=False)
    return lambda: seen[0]


#: The command, at which look it is stopped, and what it prints then.
COMMANDS: dict[str, tuple[str, int, str]] = {
    "solve": ("solve {}/problem.py --save {}/out/result", 9, "interrupted"),
    "solve-many": ("solve {}/problem.py --starts 3 --save {}/out/result", 60, "interrupted"),
    "solve-conic": ("solve {}/conic.py --save {}/out/result", 5, "interrupted"),
    "design": ("design three --starts 2 --out {}/out", 12, "interrupted"),
    "scenarios": ("design three --starts 1 --scenario base --scenario budget=1 --out {}/out", 12, "interrupted"),
    "svm": ("svm --train 40 --validation 20 --out {}/out", 3, "interrupted"),
    "svm-at-once": ("svm --train 40 --validation 20 --out {}/out", 1, "before the lower level was solved"),
    "svm-splits": ("svm --train 40 --validation 20 --splits 3 --out {}/out", 40, "interrupted"),
    "assign": ("roads assign {}/square.json --relative-gap 1e-300 --out {}/out", 8, "interrupted"),
    "roads-expand": ("roads expand {}/square.json --candidates 2 --cost 0.3 --out {}/out", 40, "interrupted"),
    "toll": ("roads toll {}/square.json --candidates 1 --out {}/out", 40, "interrupted"),
    "estimate": ("roads estimate {}/square.json --counts {}/counts.csv --out {}/out", 40, "interrupted"),
    "bid": ("power bid {}/three.m --generators 2 --offer-cap 70 --out {}/out", 8, "interrupted"),
    "power-expand": ("power expand {}/three.m --lines 3 --cost 4 --goal cost --out {}/out", 8, "interrupted"),
    "tariff": ("power tariff {}/three.m --demand-factor 0.5 --out {}/out", 8, "interrupted"),
    "toy": ("toy --starts 3 --out {}/out", 2, "of 3 starts ended within 0.001"),
    "compare": ("compare toy --methods blocc,gam,sflcb --out {}/out", 40, "(ended early)"),
    "sweep": ("sweep {}/study.toml --out {}/out", 9, "incomplete: 2 cells, 0 done, 0 failed, 2 missing"),
    "bench": ("bench --problems toy --methods blocc,sflcb --out {}/out", 9, "incomplete: 2 cells, 0 done, 0 failed"),
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_there_is_printed_and_kept(
    name: str, number: signal.Signals, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, look, words = COMMANDS[name]
    looks = press(monkeypatch, number, look)
    ended = blocc(*line.replace("{}", str(folder)).split())
    assert looks() >= look, looks()
    assert ended.exit_code == 128 + number, ended.output
    assert words in ended.stdout, ended.output
    assert f"blocc: stopped by {number.name}" in ended.stderr
    assert [path for path in (folder / "out").rglob("*") if path.is_file()]


PRESSED = """
import signal
from blocc import BilevelProblem, Box, Reals

seen = []

def lower(x, y):
    seen.append(0)
    if len(seen) == 2:
        signal.raise_signal(signal.{})
    return (y - x) ** 2

problem = BilevelProblem(
    upper=lambda x, y: (x - 1.0) ** 2 + y**2, lower=lower, x_set=Box(0.0, 3.0), y_set=Reals()
)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("line", ["check {}/pressed.py", "verify {}/result {}/pressed.py"])
def test_what_has_no_answer_yet_ends_at_once(line: str, number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "calm.py").write_text(PRESSED.format("SIGINT").replace("== 2", "< 0"))
    assert blocc("solve", tmp_path / "calm.py", "--save", tmp_path / "result", "--quiet").exit_code == 0
    (tmp_path / "pressed.py").write_text(PRESSED.format(number.name))
    ended = blocc(*line.replace("{}", str(tmp_path)).split())
    assert ended.exit_code == 128 + number, ended.output
    assert ended.stdout == ""
    assert "blocc: interrupted before there was an answer" in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", ["network describe", "network validate", "design"])
def test_reading_ends_at_once(command: str, number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_network, "read_network", lambda *_, **__: signal.raise_signal(number))
    ended = blocc(*command.split(), "three")
    assert (ended.exit_code, ended.stdout) == (128 + number, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("line", ["sweep {}/study.toml --out {}/out", "bench --problems toy --out {}/out"])
def test_a_study_that_is_stopped_before_its_first_cell_ends_at_once(
    line: str, number: signal.Signals, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "resolve", lambda _: signal.raise_signal(number))
    ended = blocc(*line.replace("{}", str(folder)).split())
    assert (ended.exit_code, ended.stdout) == (128 + number, ""), ended.output
    assert "blocc: interrupted before there was an answer" in ended.stderr


@pytest.mark.parametrize("line", ["sweep {}/study.toml --out {}/out/in", "bench --problems toy --out {}/out/in"])
def test_a_folder_that_cannot_be_made_is_bad_input(line: str, folder: Path) -> None:
    (folder / "out").symlink_to(folder / "out")  # which neither exists nor can be made, for the superuser neither
    ended = blocc(*line.replace("{}", str(folder)).split())
    assert ended.exit_code == 2, ended.output
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert "out" in ended.stderr


def test_a_stopped_benchmark_computes_the_cell_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = ("--time-limit", 1000)  # nothing here ends by the clock
    line = ("bench", "--problems", "toy", "--methods", "sflcb,blocc", *limit, "--out", folder / "out")
    with monkeypatch.context() as patch:
        looks = press(patch, signal.SIGINT, -1)
        blocc("bench", "--problems", "toy", "--methods", "sflcb", *limit, "--out", folder / "alone")
        press(patch, signal.SIGINT, looks() + 5)  # in the second cell
        ended = blocc(*line)
    assert ended.exit_code == 130, ended.output
    assert "incomplete: 2 cells, 1 done, 0 failed, 1 missing" in ended.stdout
    again = blocc(*line)
    assert again.exit_code == 0, again.output
    rows = json.loads((folder / "out" / "bench.json").read_text())["rows"]
    assert [row["outcome"] for row in rows if row["method"] == "blocc"] == ["converged"]


def test_a_signal_while_the_answer_is_written_costs_none_of_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pressed: list[int] = []

    def flush(descriptor: int) -> None:
        if not pressed:
            pressed.append(descriptor)
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(files, "_flush", flush)
    ended = blocc("solve", folder / "problem.py", "--save", tmp_path / "result")
    assert ended.exit_code == 143, ended.output
    assert "converged" in ended.stdout
    monkeypatch.undo()
    assert blocc("verify", tmp_path / "result", folder / "problem.py").exit_code == 0


# --- full disks ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("solve {}/problem.py --save {}/out/result", "result"),
        ("roads assign {}/square.json --out {}/out", "assignment.json"),
        ("toy --starts 2 --out {}/out", "surface.png"),
        ("compare toy --methods blocc --out {}/out", "comparison.csv"),
        ("network convert three {}/out/three.json", "three.json"),
    ],
)
def test_a_full_disk_is_no_bad_input(line: str, file: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "_flush", full)
    ended = blocc(*line.replace("{}", str(folder)).split())
    assert ended.exit_code == 11, ended.output
    assert os.strerror(errno.ENOSPC) in ended.stderr
    assert file in ended.stderr
    assert [path for path in (folder / "out").rglob("*") if path.is_file()] == []


# --- the program itself --------------------------------------------------------------------------------------------
PROGRAM = """
import signal, sys

class Press:
    def find_spec(self, name, path, target=None):
        if name == "{module}":
            sys.meta_path.remove(self)
            {then}

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Press())
sys.argv[0] = "blocc"
from blocc_command import main
main()
"""


def program(
    *words: str, folder: Path, module: str = "", then: str = "pass", stdout: Any = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """Run the program, in which something happens when a module is about to be imported."""
    command = [sys.executable, "-c", PROGRAM.format(module=module, then=then), *words]
    return subprocess.run(command, cwd=folder, stdout=stdout, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_program_passes_the_code_on(number: signal.Signals, tmp_path: Path) -> None:
    """With a real process, whose problem file sends it the signal."""
    (tmp_path / "pressed.py").write_text(PRESSED.replace("{}", number.name))
    ended = program("check", "pressed.py", folder=tmp_path)
    assert ended.returncode == 128 + number, ended.stderr
    assert ended.stderr == "blocc: interrupted before there was an answer\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("module", ["blocc", "jax", "blocc.cli.main", "typer", "blocc.cli.commands"])
def test_a_signal_in_the_middle_of_an_import(module: str, number: signal.Signals, tmp_path: Path) -> None:
    ended = program("--version", folder=tmp_path, module=module, then=f"signal.raise_signal({int(number)})")
    assert (ended.returncode, ended.stdout) == (128 + number, ""), ended.stderr
    assert ended.stderr in ("", "blocc: interrupted before there was an answer\n")


def test_a_second_signal_ends_the_imports(tmp_path: Path) -> None:
    ended = program("--version", folder=tmp_path, module="jax", then="signal.raise_signal(15); signal.raise_signal(2)")
    assert (ended.returncode, ended.stdout, ended.stderr) == (143, "", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_when_all_is_printed(number: signal.Signals, tmp_path: Path) -> None:
    then = f"import atexit; atexit.register(signal.raise_signal, {int(number)})"
    ended = program("--version", folder=tmp_path, module="typer", then=then)
    assert (ended.returncode, ended.stderr) == (128 + number, "")
    assert ended.stdout.startswith("blocc ")


COLLECTED = """
import gc, signal

def collecting(phase, info):
    gc.callbacks.remove(collecting)
    signal.raise_signal(signal.{})

gc.callbacks.append(collecting)
gc.collect()
"""


@pytest.mark.parametrize(("number", "command"), [(signal.SIGINT, "check"), (signal.SIGTERM, "solve")])
def test_an_exception_that_is_lost_in_a_callback(number: signal.Signals, command: str, tmp_path: Path) -> None:
    calm = PRESSED.replace("{}", number.name).replace("== 2", "< 0")
    (tmp_path / "collected.py").write_text(COLLECTED.format(number.name) + calm)
    ended = program(command, "collected.py", folder=tmp_path)
    assert ended.returncode == 128 + number, ended.stderr
    assert "Traceback" not in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert "assumptions hold" not in ended.stdout
    assert "converged" not in ended.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is always full")
@pytest.mark.parametrize("line", ["--version", "solve calm.py --x0 0.3"])
def test_output_that_cannot_be_written(line: str, tmp_path: Path) -> None:
    (tmp_path / "calm.py").write_text(PRESSED.format("SIGINT").replace("== 2", "< 0"))
    with Path("/dev/full").open("w") as full:
        ended = program(*line.split(), folder=tmp_path, stdout=full)
    assert ended.returncode == 11, ended.stderr
    assert "cannot write the output: No space left on device" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
