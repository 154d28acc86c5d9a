"""The files and the picture of a comparison, made from results with known numbers."""

from __future__ import annotations

import csv
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from blocc import History, Result, Status
from blocc._lib.digests import sealed
from blocc.kit.figure import PlotError, figure_image
from blocc.kit.storage import StorageError
from blocc.methods.compare import Comparison, MethodRow, title_of
from blocc.methods.registry import NAMES
from blocc.report.comparison import (
    comparison_markdown,
    describe_comparison,
    method_style,
    plot_comparison,
    write_comparison,
)
from blocc.report.comparison_page import comparison_page
from blocc.result import Certificate, HistoryRow

ZERO = "_exactly zero"  # the label of their marks
FILES = ["comparison.csv", "comparison.html", "comparison.json", "comparison.md", "comparison.png"]


def result(values: list[float], status: Status = Status.CONVERGED) -> Result:
    """A run whose upper value falls through ``values``, one a second, while the distance halves."""
    rows = [
        HistoryRow(k + 1.0, math.nan, value, value, 0.0, math.nan, math.nan, 0.0, 0.5**k, 0.1, k)
        for k, value in enumerate(values)
    ]
    return Result(
        x=np.array([1.0, 2.0]),
        y=np.zeros(1),
        y_penalty=np.zeros(1),
        multipliers=(np.zeros(0), np.zeros(0)),  # type: ignore[arg-type]
        upper_value=values[-1] if values else math.nan,
        lower_value=0.0,
        upper_value_penalty=0.0,
        gamma=1.0,
        status=status,
        message="words | about it",
        certificate=Certificate(0.0, 0.0, 0.0, 0.0, 0.25, 1e-6),
        history=History(rows),
        counts={"iterations": len(rows)},
        seconds={"run": 2.0, "compile": 1.0},
    )


def row(method: str, run: Result, **changes: Any) -> MethodRow:
    made = MethodRow(
        method,
        title_of(method),
        status=run.status.value,
        upper_value=run.upper_value,
        lower_gap=-0.125,
        violation=0.5,
        distance=run.certificate.distance,
        stationarity_x=run.certificate.stationarity_x,
        iterations=len(run.history),
        run_seconds=2.0,
        compile_seconds=1.0,
        message=run.message,
        result=run,
    )
    return replace(made, **changes)


@pytest.fixture
def comparison() -> Comparison:
    return Comparison(
        "a | problem",
        (
            row("blocc", result([4.0, 2.5, 2.0]), columns={"accuracy": 0.75}),
            row("lv-hba", result([5.0, 3.0], Status.TIME_LIMIT), upper_value=3.0),
            MethodRow("gam", title_of("gam"), False, "needs patience", "does not apply", message="gam needs patience"),
            MethodRow("sflcb", title_of("sflcb"), message="ValueError: broken"),
        ),
        {"seed": 0},
    )


# --- files ---------------------------------------------------------------------------------------------------------
def test_files(comparison: Comparison, tmp_path: Path) -> None:
    written = comparison.save(tmp_path / "deep" / "er")
    assert sorted(path.name for path in written) == FILES
    assert sorted(path.name for path in (tmp_path / "deep" / "er").iterdir()) == FILES
    assert written[3].read_bytes()[:4] == b"\x89PNG"


def test_page(comparison: Comparison) -> None:
    page = comparison_page(comparison, figure_image(plot_comparison(comparison)))
    assert "<title>a | problem: comparison of methods</title>" in page
    assert '<td data-v="2.0">2 *</td>' in page  # the best value, to be sorted as a number
    assert "needs patience" in page
    assert 'role="region" aria-label="Every method from the same start"' in page
    assert 'src="data:image/png;base64,' in page
    assert "Ends: blocc" in page  # the words for those who do not see the picture
    assert "http://" not in page.replace("http://www.w3.org", "")
    odd = replace(comparison, name="<script>alert(1)</script>")
    assert "<script>alert(1)" not in comparison_page(odd, figure_image(plot_comparison(odd)))


def test_csv(comparison: Comparison, tmp_path: Path) -> None:
    with write_comparison(comparison, tmp_path)[0].open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [entry["method"] for entry in rows] == ["blocc", "lv-hba", "gam", "sflcb"]
    assert [entry["upper_value"] for entry in rows] == ["2.0", "3.0", "", ""]
    assert [entry["best"] for entry in rows] == ["True", "False", "False", "False"]
    assert [entry["accuracy"] for entry in rows] == ["0.75", "", "", ""]
    assert rows[0]["lower_gap"] == "-0.125"
    assert rows[2]["why_not"] == "needs patience"


def test_json(comparison: Comparison, tmp_path: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    found = json.loads(write_comparison(comparison, tmp_path)[1].read_text(), parse_constant=refuse)
    assert found == sealed(describe_comparison(comparison))
    assert (found["name"], found["best"], found["interrupted"]) == ("a | problem", "blocc", False)
    assert found["settings"] == {"seed": 0}
    first, second, third, _ = found["rows"]
    assert first["history"] == {
        "time": [1, 2, 3],
        "upper_value": [4, 2.5, 2],
        "distance": [1, 0.5, 0.25],
        "inner_residual": [0, 0, 0],
    }
    assert first["x"] == [1.0, 2.0]
    assert second["status"] == "time limit"
    assert third["upper_value"] is None
    assert "history" not in third


def test_markdown(comparison: Comparison) -> None:
    lines = comparison_markdown(comparison).splitlines()
    assert lines[0] == "# a \\| problem"
    head, rule, *body = [line for line in lines if line.startswith("|")]
    columns = [cell.strip() for cell in head.strip("|").split("|")]
    assert columns[:3] == ["method", "status", "f at exact y"]
    assert columns[-1] == "accuracy"
    assert rule.count("---") == len(columns)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in body]
    assert cells[0][:6] == ["blocc", "converged", "2 \\*", "-1.2e-01", "5.0e-01", "2.5e-01"]
    assert cells[1][2] == "3"
    assert cells[2][1:] == ["does not apply", *["–"] * 10]
    assert "clock: seconds without compilation." in lines
    assert all(len(entry) == len(columns) for entry in cells)
    assert any(line.endswith(": needs patience") for line in lines)
    assert any(line.endswith(": ValueError: broken") for line in lines)


def test_folder_that_is_a_file(comparison: Comparison, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="cannot write the comparison into"):
        comparison.save(tmp_path / "file")


def test_nothing_is_written_without_matplotlib(
    comparison: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(PlotError, match=r"pip install 'blocc\[plot\]'"):
        comparison.save(tmp_path / "made")
    assert not (tmp_path / "made").exists()


# --- picture -------------------------------------------------------------------------------------------------------
def test_curves(comparison: Comparison) -> None:
    values, distances, ends = plot_comparison(comparison).axes
    lines = {line.get_label(): line for line in values.lines if not line.get_label().startswith("_")}
    assert list(lines) == ["blocc", "lv-hba"]
    assert np.asarray(lines["blocc"].get_xdata()).tolist() == [1.0, 2.0, 3.0]
    assert np.asarray(lines["blocc"].get_ydata()) == pytest.approx([2.0, 0.5, 3e-9])  # above the best, cut
    assert np.asarray(lines["lv-hba"].get_ydata()) == pytest.approx([3.0, 1.0])
    (first, *_) = distances.lines
    assert np.asarray(first.get_ydata()) == pytest.approx([1.0, 0.5, 0.25])
    assert (values.get_xscale(), values.get_yscale(), distances.get_yscale()) == ("log", "log", "log")
    assert [label.get_text() for label in ends.get_yticklabels()] == ["blocc", "lv-hba", "gam", "sflcb"]
    marks = [line for line in ends.lines if line.get_label() != ZERO]
    assert [np.asarray(line.get_xdata()).tolist() for line in marks] == [[pytest.approx(3e-9)], [1.0]]
    faces = [line.get_markerfacecolor() for line in marks]
    assert faces[0] != "white"
    assert faces[1] == "white"


def test_exact_zeros_are_drawn_and_named(comparison: Comparison) -> None:
    run = result([4.0, 2.0, 2.0 + 1e-15])
    run.history.distance[:] = [0.0, 1e-15, 0.0]
    values, distances, ends = plot_comparison(Comparison("zeros", (row("blocc", run, upper_value=2.0),))).axes

    def zeros(axes: Any) -> list[tuple[float, float]]:
        lines = [line for line in axes.lines if line.get_label() == ZERO]
        return [point for line in lines for point in zip(line.get_xdata(), line.get_ydata(), strict=True)]

    # Only what is exactly 0 is marked: not 1e-15, which is drawn at the same place.
    assert zeros(values) == [(2.0, pytest.approx(3e-9)), (2.0, pytest.approx(3e-9))]  # a row, and the answer after 2 s
    assert [time for time, _ in zeros(distances)] == [1.0, 3.0]
    assert len(zeros(ends)) == 1
    assert all(axes.get_title(loc="left").endswith("(▽: exactly 0)") for axes in (values, distances, ends))
    without = plot_comparison(Comparison("none", (row("blocc", result([4.0, 2.0])),))).axes[1]
    assert zeros(without) == []
    assert "exactly" not in without.get_title(loc="left")


def test_one_clock(comparison: Comparison) -> None:
    values, distances, _ = plot_comparison(comparison).axes
    assert distances.get_xlabel() == describe_comparison(comparison)["clock"] == "seconds without compilation"
    ring = next(line for line in values.lines if line.get_markersize() == 7.5)
    assert ring.get_xdata() == [comparison["blocc"].run_seconds]  # the seconds of the table


def test_a_method_that_never_moved_is_named(comparison: Comparison) -> None:
    still = replace(comparison["lv-hba"], moved=0.0)
    words = [text.get_text() for text in plot_comparison(Comparison("still", (still,))).axes[2].texts]
    assert words == ["3   time limit, 2 s   never moved   best"]


def test_words_beside_the_ends(comparison: Comparison) -> None:
    figure = plot_comparison(comparison)
    words = [text.get_text() for text in figure.axes[2].texts]
    assert words == ["2   converged, 2 s   best", "3   time limit, 2 s", "does not apply", "error"]
    heading = [text.get_text() for text in figure.texts]
    assert heading == [
        "a | problem: every method from the same start",
        "1 of 4 methods converged  ·  best upper value 2 (blocc)",
    ]


def test_infeasible_values_are_not_drawn(comparison: Comparison) -> None:
    run = result([4.0, 1.0], Status.INFEASIBLE)
    run.history.inner_residual[1] = 0.1
    figure = plot_comparison(replace(comparison, entries=(comparison["blocc"], row("gam", run))))
    way, ring = [line for line in figure.axes[0].lines if line.get_label() != ZERO][2:]
    assert np.asarray(way.get_ydata()) == pytest.approx([2.0, np.nan], nan_ok=True)
    assert np.isnan(ring.get_ydata()).all()
    assert [line.get_label() == ZERO for line in figure.axes[2].lines] == [False, True]
    assert [text.get_text() for text in figure.axes[2].texts][1] == "infeasible"


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_formats(comparison: Comparison, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "new" / f"picture.{suffix}"
    comparison.plot(path)
    assert path.stat().st_size > 5_000


def test_unknown_format(comparison: Comparison, tmp_path: Path) -> None:
    with pytest.raises(PlotError, match=r"picture\.doc.*use \.png"):
        comparison.plot(tmp_path / "picture.doc")


@pytest.mark.parametrize(
    "entries",
    [
        (),
        (MethodRow("gam", "", status="error"),),
        (row("blocc", result([])),),
        pytest.param((row("blocc", result([1.0])), row("gam", result([1.0]))), marks=pytest.mark.slow),
        pytest.param(
            (row("blocc", result([-1e6, -2e6])), row("gam", result([math.nan, 1e9], Status.STALLED))),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            (replace(row("gam", result([3.0, 2.0])), method="newton", title="Newton"),), marks=pytest.mark.slow
        ),
        (row("blocc", result([1.0])), row("gam", result([math.nan] * 9, Status.INFEASIBLE))),
    ],
    ids=["nothing", "no result", "no iteration", "equal", "far apart", "unknown method", "no value"],
)
def test_odd_comparisons_are_drawn(entries: tuple[MethodRow, ...], tmp_path: Path) -> None:
    written = write_comparison(Comparison("odd", entries, interrupted=True), tmp_path)
    assert written[3].stat().st_size > 5_000
    assert len(comparison_markdown(Comparison("odd", entries)).splitlines()) >= 6 + 2 * len(entries)


def test_no_two_methods_share_a_colour() -> None:
    assert len({method_style(name)["color"] for name in NAMES}) == len(NAMES)
