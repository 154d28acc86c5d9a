"""What the benchmarks do for a reader who has the repository and nothing else."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from benchmarks import toy
from blocc.errors import InputError
from blocc.svm import LabelledData, read_samples

pytest.importorskip("cvxpy")
from benchmarks import svm

ROWS = "+1 1:0.5 2:-1\n-1 1:-0.5 2:1\n"


def test_samples_come_from_the_folder_or_else_from_openml(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "diabetes.libsvm").write_text(ROWS)
    fetched = read_samples("breast_cancer")
    monkeypatch.setattr(svm, "read_samples", lambda name: fetched if name == "fourclass" else pytest.fail(name))
    read = svm.samples("diabetes", tmp_path)
    assert isinstance(read, LabelledData)
    assert (read.name, read.n_samples) == ("diabetes", 2)
    assert svm.samples("fourclass", tmp_path) is fetched


def test_samples_that_are_nowhere_are_named_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def offline(name: str) -> LabelledData:
        raise InputError(f"there is no connection to openml.org, where {name} would come from")

    monkeypatch.setattr(svm, "read_samples", offline)
    assert svm.samples("fourclass", tmp_path) is None
    (line,) = capsys.readouterr().out.splitlines()
    for words in (str(tmp_path / "fourclass.libsvm"), "LIBSVM's file", "--data", "openml.org"):
        assert words in line


def test_the_toy_tells_warnings_as_remarks() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        *_, notes = toy._blocc(20, "paper", repetitions=1)
    assert len(notes) == 1
    assert notes[0].startswith("step=0.01 exceeds 1 / l_F")
