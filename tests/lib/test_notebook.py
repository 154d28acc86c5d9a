"""Cards out of printed reports, small curves, and the log under one name."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from blocc import BilevelProblem, Box, Reals, solve
from blocc._lib.notebook import card, curve, table


def test_a_report_becomes_heading_sentences_and_rows() -> None:
    html = card(
        "metro: stalled\n  It went no further.\n  x            [1 2]\n  certificate\n    gap   1e-3", success=False
    )
    assert "<strong>metro</strong>" in html
    assert 'color:#c8102e;font-weight:bold">stalled</span>' in html
    assert ">It went no further.</p>" in html
    assert html.count("<tr>") == 2
    assert html.index("It went") < html.index("[1 2]") < html.index("certificate") < html.index("1e-3")


def test_everything_is_escaped() -> None:
    html = card("<b>: <i>\n  <u>   <script>\n  <s>") + table([("<a>", "<q>")], ["<th>"]) + curve([1, 2], '"<x>')
    for tag in ("<b>", "<i>", "<u>", "<script>", "<s>", "<a>", "<q>", '"<x>'):
        assert tag not in html


def test_a_wide_table_breaks_no_word_and_scrolls() -> None:
    html = table([("lv-hba", "converged", "2.0000937")], ["method", "status", "f"], wide="Methods")
    assert html.startswith('<div role="region" aria-label="Methods" tabindex="0" style="overflow-x:auto"><table')
    assert html.count("white-space:nowrap") == 6
    assert "anywhere" not in html
    assert "anywhere" in table([("x", "[1 2 3]")])  # vectors on a card may be of any length


@pytest.mark.parametrize("values", [[], [1.0], [float("nan"), 2.0]])
def test_no_curve_without_two_numbers(values: list[float]) -> None:
    assert curve(values, "f") == ""


def test_a_constant_curve_is_drawn() -> None:
    assert 'points="4.0,44.0 236.0,44.0"' in curve([3.0, 3.0], "f")


PROBLEM = BilevelProblem(
    upper=lambda x, y: (x - 3) ** 2 + (y - 1) ** 2,
    lower=lambda x, y: (y - 2 * x) ** 2,
    inequality=lambda x, y: y - x,
    x_set=Box(0.0, 3.0),
    y_set=Reals(),
    name="capacity",
)


def test_a_problem_explains_itself() -> None:
    text = str(PROBLEM)
    assert text.splitlines()[0] == "capacity: bilevel problem"
    assert "leader decides" in text
    assert "gc(x, y) <= 0           1 row" in text


def test_the_log_tells_iterations_and_the_end(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="blocc"):
        result = solve(PROBLEM)
    said = [record for record in caplog.records if record.name == "blocc"]
    iterations = [record for record in said if record.levelno == logging.DEBUG]
    (end,) = [record.getMessage() for record in said if record.levelno == logging.INFO]
    assert len(iterations) >= len(result.history) > 0  # two tracks are followed, and one is reported
    assert end.startswith("capacity: converged, upper value 2")


def test_the_log_is_quiet_by_default() -> None:
    program = "from blocc._lib.log import logger; logger.error('nobody hears this')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_problem_in_cvxpy_explains_itself() -> None:
    cp = pytest.importorskip("cvxpy")
    from blocc.cvxpy import BilevelProblem as ConicProblem

    x, y = cp.Parameter(name="x", bounds=[0, 1]), cp.Variable(name="y")
    follower = cp.Problem(cp.Minimize(cp.square(y - x)), [y <= x])
    problem = ConicProblem(cp.Minimize(cp.square(y - 1) + x), follower, x, name="conic")
    assert str(problem).splitlines()[:2] == ["conic: bilevel problem", "  leader decides    x"]
    assert "y &lt;= x" in problem._repr_html_()
