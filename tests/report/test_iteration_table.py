"""The table of iterations, data frames of the history, and the recorder that the page shows."""

from __future__ import annotations

import csv
import io
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blocc import BilevelProblem, BloccError, Box, OptionError, Reals, solve
from blocc.report.progress import IterationTable

PAGE = Path(__file__).parents[2] / "docs" / "how-to.md"


@pytest.fixture(scope="module")
def toy() -> BilevelProblem:
    return BilevelProblem(
        upper=lambda x, y: (x - 3) ** 2 + (y - 1) ** 2,
        lower=lambda x, y: (y - 2 * x) ** 2,
        x_set=Box(0.0, 3.0),
        y_set=Reals(),
    )


def test_verbose_prints_a_row_for_every_iteration(toy: BilevelProblem, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Any] = []
    result = solve(toy, 0.5, verbose=True, callback=lambda state: seen.append(state))
    head, *lines = capsys.readouterr().out.splitlines()
    names = head.split()
    assert names == ["iteration", *IterationTable.columns]
    assert len(lines) == len(seen)
    for line, state in zip(lines, seen, strict=True):
        row = dict(zip(names, map(float, line.split()), strict=True))
        assert row["iteration"] == state.iteration
        assert row["upper_value"] == pytest.approx(state.row.upper_value, rel=1e-8)
        assert len(line) == len(head)  # columns stand below their names
    np.testing.assert_array_equal(result.x, solve(toy, 0.5, verbose=False).x)


def test_what_a_method_does_not_know_is_left_out_and_headings_come_again(toy: BilevelProblem) -> None:
    stream = io.StringIO()
    table = IterationTable(stream)
    row = next(solve(toy, 0.5, method="sflcb", max_iterations=10, judge_every=10).history.rows())
    for iteration in range(table.again + 1):
        table(iteration, row)
    lines = stream.getvalue().splitlines()
    heads = [line for line in lines if line.startswith("iteration")]
    assert len(heads) == 2
    assert "gamma" not in heads[0]


@pytest.mark.parametrize(("options", "words"), [({"verbose": 1}, "verbose must be"), ({"progress": True}, "not both")])
def test_bad_wishes_are_named(toy: BilevelProblem, options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        solve(toy, **{"verbose": True, **options})


def test_a_history_is_a_data_frame(toy: BilevelProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    history = solve(toy, 0.5).history
    pytest.importorskip("pandas")
    frame = history.to_pandas()
    assert tuple(frame.columns) == history.columns
    np.testing.assert_array_equal(frame["upper_value"], history.upper_value)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(BloccError, match="pip install pandas"):
        history.to_pandas()


def test_the_recorder_of_the_page_writes_both(
    toy: BilevelProblem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a writer that keeps what TensorBoard's would be given."""
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(# recorder\.py\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {"solve": solve, "toy": toy}
    exec(block, names)
    told: list[tuple[str, float, int]] = []

    class Writer:
        def add_scalar(self, tag: str, value: float, step: int) -> None:
            told.append((tag, value, step))

    solve(toy, 0.5, callback=names["Recorder"]("both.csv", Writer()))
    with open("both.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["iteration"]) for row in rows] == sorted({step for *_, step in told})
    values = [value for tag, value, _ in told if tag == "blocc/upper_value"]
    assert [float(row["upper_value"]) for row in rows] == values
