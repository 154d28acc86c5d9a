"""What the benchmarks do for a reader who has the repository and nothing else."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

from benchmarks import toy

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

pytest.importorskip("cvxpy")
from benchmarks import svm

ROWS = "+1 1:0.5 2:-1\n-1 1:-0.5 2:1\n"


def test_samples_that_are_nowhere_are_named_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BLOCC_DATA", str(tmp_path))
    assert svm.samples("fourclass") is None
    (line,) = capsys.readouterr().out.splitlines()
    for words in (str(tmp_path / "fourclass.libsvm"), "LIBSVM's file", "$BLOCC_DATA"):
        assert words in line
    (tmp_path / "fourclass.libsvm").write_text(ROWS)
    read = svm.samples("fourclass")
    assert read is not None
    assert (read.name, read.n_samples) == ("fourclass", 2)


def test_the_toy_tells_warnings_as_remarks() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        *_, notes = toy._blocc(100, "paper", repetitions=1)
    assert len(notes) == 1
    assert notes[0].startswith("step=0.01 exceeds 1 / l_F")


def test_the_table_of_what_was_asked_has_the_rows_of_its_command() -> None:
    import asked

    page = asked.PAGE.read_text(encoding="utf-8").partition(asked.HEADING)[2]
    rows = [line for line in page.partition("Further tables")[0].splitlines() if line.endswith("` |")]
    assert [row.split("|")[1:3] for row in rows] == [[f" {row.what} ", f" {row.asked} "] for row in asked.ROWS.values()]
    renewed = asked.written(asked.PAGE.read_text(encoding="utf-8"), {"meta": "seen"})
    assert asked.line_of("meta", "seen") in renewed.splitlines()


def test_uncommon_numbers_do_not_become_more() -> None:
    import source_counts

    assert source_counts.per_thousand() <= 20.5
