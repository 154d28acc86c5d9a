"""What the benchmarks do for a reader who has the repository and nothing else."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from benchmarks import toy

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
