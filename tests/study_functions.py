"""Cheap functions for studies: some sleep, some raise, some kill their own process. Workers import them by name."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

MODULE = "study_functions"
#: Set by a test in its own process: a worker that sees it is a fork.
INHERITED = False


def noise(size: int, scale: float, seed: int) -> dict[str, Any]:
    """Numbers that need every bit of a double."""
    values = np.random.default_rng(seed).normal(scale=scale, size=size)
    return {"mean": values.mean(), "largest": values.max(), "values": values, "who": os.getpid(), "seconds": 0.1}


def together(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each row also says how many were computed at once."""
    return [{"cube": cell["a"] ** 3 + cell["seed"], "batch": len(cells)} for cell in cells]


def odd_values(seed: int) -> dict[str, Any]:
    return {
        "nan": float("nan"),
        "infinite": [np.inf, -np.inf],
        "zero": -0.0,
        "tiny": 5e-324,
        "third": np.float64(1) / 3,
        "single": np.float32(0.1),
        "whole": np.int64(2**62),
        "big": 10**40,
        "flag": np.bool_(True),
        "none": None,
        "nested": {"$float": "nan", "$": (1, 2)},
        "array": np.arange(4.0).reshape(2, 2),
        "text": "naïve \ud800 \x00",
    }


def picky(a: int, seed: int) -> dict[str, Any]:
    if a == 2:
        raise ValueError("two is too much")
    if a == 3:
        raise SystemExit("I quit")
    return {"double": 2 * a}


def unfit(kind: str, seed: int) -> Any:
    """Rows that cannot be kept."""
    return {
        "set": {"values": {1, 2}},
        "status": {"status": "fine"},
        "parameter": {"seed": seed + 1},
        "number": 3,
        "complex": {"value": np.complex128(1j)},
        "key": {"value": {1: 2}},
    }[kind]


def counted(folder: str, a: int, seed: int, pause: float = 0.0) -> dict[str, Any]:
    """Leave one file for each time a cell is computed to its end."""
    time.sleep(pause)
    stamp = time.time_ns()
    (Path(folder) / f"{a}-{seed}-{os.getpid()}-{stamp}").touch()
    return {"value": float(np.sin(a + 0.1 * seed))}


def counted_together(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**counted(**cell), "batch": len(cells)} for cell in cells]


def mortal(folder: str, a: int, seed: int, deaths: int = 1, victim: int = 1) -> dict[str, Any]:
    """The worker that computes the victim is killed, as often as is asked for."""
    marks = len(list(Path(folder).glob(f"death-{a}-*")))
    if a == victim and marks < deaths:
        (Path(folder) / f"death-{a}-{marks}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"value": a * 1.5}


def broken_once(folder: str, a: int, seed: int) -> dict[str, Any]:
    """Fails until there is a file named ``repaired``."""
    if a == 1 and not (Path(folder) / "repaired").exists():
        raise RuntimeError("not yet")
    return counted(folder, a, seed)


def chatty(a: int, seed: int) -> dict[str, Any]:
    """Prints to standard output in every way there is, and reads standard input."""
    print("hello from Python")
    os.write(1, b"hello from below\n")
    return {"read": os.read(0, 1).decode(), "value": a}


def threads(seed: int) -> dict[str, Any]:
    return {name: os.environ.get(name) for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NPROC")}


def inherited(seed: int) -> dict[str, Any]:
    """Whether this process is a fork of the one that runs the test."""
    return {"inherited": INHERITED}


def talkative(a: int, seed: int) -> dict[str, Any]:
    """Prints more than any buffer holds."""
    for _ in range(200):
        print("word " * 100, flush=True)
    return {"value": a}
