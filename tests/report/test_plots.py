"""Pictures: what they hold, and that drawing them changes nothing outside."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from blocc.lagrangian import Multipliers
from blocc.multi_result import MultiResult
from blocc.problems import toy
from blocc.report.plots import plot_result, plot_starts, plot_toy_surface
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


def end(place: float, value: float, **given: object) -> Result:
    """Where a start ended, with the follower's exact answer unless something else is given."""
    exact = replace(make_result(1).certificate, exact=True)
    changes: dict = {"x": np.array(place), "y": np.array(place), "upper_value": value, "certificate": exact, **given}
    return replace(make_result(1), **changes)


def test_starts_are_drawn_by_where_they_ended(tmp_path: Path) -> None:
    lost = {"status": Status.INFEASIBLE, "certificate": Certificate(1, 1, 1, 1, 1, 1)}
    results = (end(1.0, 3.0), end(2.0, 2.0), end(1.0, 3.0), end(5.0, 1.0, **lost), end(6.0, np.nan, **lost))
    many = MultiResult(results, {})
    (axes,) = many.plot(tmp_path / "starts.png").axes
    assert (tmp_path / "starts.png").read_bytes()[:4] == b"\x89PNG"
    drawn = {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}  # type: ignore[union-attr]
    assert drawn == {
        "f = 2: 1 start": [[2.0, 2.0]],
        "f = 3: 2 starts": [[3.0, 3.0], [4.0, 3.0]],
        "without an exact answer: 2 starts": [[1.0, 1.0]],
    }
    assert "3 of 5 starts converged" in axes.get_title(loc="left")


def test_many_places_are_drawn_and_the_largest_values_come_first_where_the_leader_maximises() -> None:
    results = tuple(end(k, float(k)) for k in range(9))
    (axes,) = plot_starts(MultiResult(results, {}, sign=-1.0)).axes
    lines = axes.get_lines()
    assert len(lines) == 7
    assert lines[0].get_xydata().tolist() == [[1.0, 8.0]]  # type: ignore[union-attr]
    assert lines[-1].get_label() == "3 more places: 3 starts"


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
    subprocess.run([sys.executable, "-c", code, str(Path(__file__).parent)], check=True)
