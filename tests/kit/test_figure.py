"""How pictures are kept: every usual format, a word where that is impossible, and no trace in matplotlib."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from blocc.kit.figure import PlotError, figure_image, keep_figure, line_style, new_figure


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_formats(tmp_path: Path, suffix: str) -> None:
    figure = new_figure(2.0, 1.0)
    path = tmp_path / "made" / f"picture.{suffix}"
    assert keep_figure(figure, path) is figure
    assert list(path.parent.iterdir()) == [path]
    assert path.read_bytes()[:4] in (b"\x89PNG", b"%PDF", b"<?xm")
    assert figure_image(figure, "svg") == figure_image(figure, "svg")  # it has no date


@pytest.mark.parametrize(("place", "words"), [("picture.doc", r"use \.png"), ("file/picture.png", "cannot write")])
def test_what_cannot_be_written_is_named(tmp_path: Path, place: str, words: str) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(PlotError, match=words):
        keep_figure(new_figure(2.0, 1.0), tmp_path / place)


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(PlotError, match=r"pip install 'blocc\[plot\]'"):
        new_figure(2.0, 1.0)


def test_lines_are_told_apart_where_colours_begin_again() -> None:
    looks = {tuple(map(str, line_style(k).values())) for k in range(40)}
    assert len(looks) == 40
