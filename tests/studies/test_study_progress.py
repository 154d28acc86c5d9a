"""How far studies are: a bar on a terminal, a line every ten seconds elsewhere, nothing where it is to be quiet."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from blocc.report.study.study_progress import StudyProgress, clock, describe
from blocc.studies.engine import Progress


def shown(terminal: bool, seconds: int, **options: Any) -> str:
    """What is written where a cell takes a second."""
    stream, now = io.StringIO(), [0.0]
    console = Console(file=stream, force_terminal=terminal, width=100)
    with StudyProgress(console=console, clock=lambda: now[0], **options) as progress:
        progress.begin("small [red]")
        for second in range(seconds):
            now[0] = float(second)
            progress.report(Progress(second, 0, 25, float(second), 25.0 - second))
    assert progress.newest is not None
    assert progress.newest.done == seconds - 1
    return stream.getvalue()


def test_progress_in_words() -> None:
    assert describe(Progress(3, 0, 9, 5.0, None)) == "3 of 9 cells done"
    assert describe(Progress(3, 1, 9, 65.0, 3700.0)) == "3 of 9 cells done, 1 failed, about 1:01:40 left"
    assert (clock(0.2), clock(0.0), clock(60.0), clock(3723.0)) == ("0:01", "0:00", "1:00", "1:02:03")


def test_a_terminal_shows_a_bar_and_is_left_clean() -> None:
    text = shown(terminal=True, seconds=4)
    assert "small [red]" in text
    assert "3 of 25 cells done, about 0:22 left" in text
    assert text.endswith("\x1b[2K")  # the line is wiped


def test_a_log_gets_a_line_every_ten_seconds() -> None:
    assert shown(terminal=False, seconds=25).splitlines() == [
        "small [red]: 10 of 25 cells done, about 0:15 left, 0:10 so far",
        "small [red]: 20 of 25 cells done, about 0:05 left, 0:20 so far",
    ]


def test_quiet_programs_show_nothing() -> None:
    for terminal in (True, False):
        assert shown(terminal=terminal, seconds=25, quiet=True) == ""
