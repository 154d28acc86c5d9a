"""Pictures: what they hold, and that drawing them changes nothing outside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from blocc.lagrangian import Multipliers
from blocc.multi_result import MultiResult
from blocc.problems import toy
from blocc.report.figure import PlotError
from blocc.report.plots import plot_result, plot_toy_surface
from blocc.result import Certificate, History, HistoryRow, Result, Status


def make_result(iterations: int) -> Result:
    k = np.arange(iterations)
    rows = [
        HistoryRow(0.1 * i, 4.0 ** (i // 8), 1 + 2.0**-i, 1 - 2.0**-i, 0.5, 0.9, 2.0**-i, 1e-9, i % 3 * 1e-7, 0.1, i)
        for i in k
    ]
    x = np.array(0.9862)
    return Result(
        x=x,
        y=x,
        y_penalty=x,
        multipliers=Multipliers(x, np.zeros(0)),
        upper_value=1.0,
        lower_value=0.5,
        upper_value_penalty=1.0,
        gamma=64.0,
        status=Status.CONVERGED,
        message="",
        certificate=Certificate(0, 0, 0, 0, 0, 0),
        history=History(rows),
        counts={},
        seconds={"compile": 0.0, "run": 0.0},
    )


def make_run() -> toy.ToyRun:
    results = MultiResult(tuple(make_result(1) for _ in range(4)), {"compile": 0.0, "run": 0.0})
    minimisers = toy.local_minimisers()
    return toy.ToyRun(results, minimisers, np.array([0, 4, 0, 0]), np.full(4, 2e-5), 5.0, "default")


@pytest.mark.slow
@pytest.mark.parametrize(
    "iterations", [0, pytest.param(1, marks=pytest.mark.slow), 30, pytest.param(500, marks=pytest.mark.slow)]
)
def test_panels(tmp_path: Path, iterations: int) -> None:
    figure = plot_result(make_result(iterations), tmp_path / "made" / "picture.png")
    assert (tmp_path / "made" / "picture.png").stat().st_size > 10_000
    values, errors, gamma = figure.axes
    assert len(values.lines) >= 2
    assert len(errors.lines) == 3
    assert errors.get_yscale() == gamma.get_yscale() == "log"
    assert all(np.nanmin(line.get_ydata(), initial=1.0) > 0 for line in errors.lines)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["pdf", "svg"])
def test_other_formats(tmp_path: Path, suffix: str) -> None:
    plot_result(make_result(5), tmp_path / f"picture.{suffix}")
    assert (tmp_path / f"picture.{suffix}").stat().st_size > 1000


def test_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(PlotError, match=r"picture\.doc.*use \.png"):
        plot_result(make_result(5), tmp_path / "picture.doc")


def test_toy_surface(tmp_path: Path) -> None:
    figure = plot_toy_surface(make_run(), tmp_path / "surface.png")
    assert (tmp_path / "surface.png").stat().st_size > 50_000
    surface, line = figure.axes
    assert surface.name == "3d"
    assert line.get_xlabel() == "$x$"


@pytest.mark.slow
def test_no_global_state() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from test_plots import make_result, plot_result;"
        "plot_result(make_result(3)); assert 'matplotlib.figure' in sys.modules;"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(Path(__file__).parent)], check=True, timeout=60)


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(PlotError, match=r"pip install 'blocc\[plot\]'"):
        plot_result(make_result(3))
