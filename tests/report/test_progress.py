"""The progress line: when it speaks, when it is silent, and what it leaves on the screen."""

from __future__ import annotations

import io

import pytest

from blocc.report.progress import DesignProgress, ProgressLine, format_row
from blocc.result import HistoryRow

ROW = HistoryRow(
    time=1.25,
    gamma=16.0,
    upper_value=1.7218788,
    upper_value_penalty=1.72,
    lower_value=0.97,
    penalty_value=1.72,
    stationarity=3.2e-5,
    inner_residual=1e-9,
    distance=1.5e-7,
    step=0.1,
    evaluations=12,
)


class Terminal(io.StringIO):
    def __init__(self, live: bool) -> None:
        super().__init__()
        self.live = live

    def isatty(self) -> bool:
        return self.live


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def run(live: bool, seconds: float, tick: float = 0.01) -> Terminal:
    stream, clock = Terminal(live), Clock()
    line = ProgressLine(stream, clock)
    for iteration in range(1, round(seconds / tick) + 1):
        clock.now += tick
        line(iteration, ROW)
    return stream


def test_format() -> None:
    text = format_row(12, ROW)
    for part in ("12", "gamma 16", "f 1.721879", "stationarity 3.2e-05", "||yF-y|| 1.5e-07", "1.2 s"):
        assert part in text


def test_short_runs_show_nothing() -> None:
    assert run(True, 0.49).getvalue() == ""
    assert run(False, 9.9).getvalue() == ""


def test_ten_times_a_second_on_a_terminal() -> None:
    assert 20 <= run(True, 3.0).getvalue().count("\r") <= 26
    assert "\n" not in run(True, 3.0).getvalue()


def test_a_plain_line_every_ten_seconds_elsewhere() -> None:
    text = run(False, 35.0, tick=0.1).getvalue()
    assert text.count("\n") == 3
    assert "\r" not in text


def test_close_wipes_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    stream, clock = Terminal(True), Clock()
    with ProgressLine(stream, clock) as line:
        clock.now += 1.0
        line(3, ROW)
        shown = stream.getvalue()
        assert len(shown) <= 40  # a line that wraps could not be rewritten
    assert stream.getvalue() == shown + "\r" + " " * (len(shown) - 1) + "\r"
    line.close()
    assert stream.getvalue().endswith(" \r")


def test_shorter_lines_cover_longer_ones() -> None:
    stream, clock = Terminal(True), Clock()
    line = ProgressLine(stream, clock)
    clock.now += 1.0
    line(1, ROW._replace(time=123456.0))
    clock.now += 1.0
    line(2, ROW)
    first, second = stream.getvalue().split("\r")[1:]
    assert len(second) == len(first)


def test_a_closed_stream_does_not_end_the_run() -> None:
    stream, clock = Terminal(True), Clock()
    line = ProgressLine(stream, clock)
    stream.close()
    clock.now += 1.0
    line(1, ROW)
    line.close()


def design_lines(live: bool, limit: float | None = None) -> list[str]:
    """Three starts of 20 s each, with one evaluation every second."""
    stream, clock = Terminal(live), Clock()
    line = DesignProgress(3, limit, stream, clock)
    for second in range(1, 61):
        clock.now += 1.0
        evaluations = (second - 1) % 20 + 1
        line(second, ROW._replace(time=float(second), upper_value=-10.0 - second, evaluations=evaluations))
    return stream.getvalue().replace("\r", "\n").splitlines()


def test_design_off_a_terminal() -> None:
    lines = [" ".join(line.split()) for line in design_lines(live=False)]
    assert lines == [
        "start 1 of 3 utility 20 best 20 gamma 16 10 s, time left not known yet",
        "start 1 of 3 utility 30 best 30 gamma 16 20 s, time left not known yet",
        "start 1 of 3 ended after 21 s",
        "start 2 of 3 utility 40 best 40 gamma 16 30 s, about 33 s left",
        "start 2 of 3 utility 50 best 50 gamma 16 40 s, about 23 s left",
        "start 2 of 3 ended after 41 s",
        "start 3 of 3 utility 60 best 60 gamma 16 50 s, about 11.5 s left",
        "start 3 of 3 utility 70 best 70 gamma 16 60 s, about 1.5 s left",
    ]


def test_the_first_start_takes_as_long_as_expected() -> None:
    stream, clock = Terminal(False), Clock()
    line = DesignProgress(3, None, stream, clock, expected=30.0)
    clock.now += 11.0
    line(1, ROW._replace(time=10.0))
    assert "10 s, about 80 s left" in stream.getvalue()
    clock.now += 41.0
    line(2, ROW._replace(time=50.0))
    assert "50 s, about 60 s left" in stream.getvalue()


def test_design_on_a_terminal_and_with_a_limit() -> None:
    lines = design_lines(live=True, limit=100.0)
    assert "about 99 s left" in lines[1]
    assert not any("ended" in line for line in lines)
    assert "start 3 of 3" in lines[-1]
